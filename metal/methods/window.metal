// Window: for each token its newest rows. It is streaming without sinks, and has the same state.

inline void window_select(device const Head &head, device const float *queries, uint n_tokens,
                          thread Selection &selection, thread const Team &team) {
    streaming_select(head, queries, n_tokens, selection, team);
}
