// Streaming: sink tokens and, for each token, its newest rows. See cpu_kernels/methods/streaming.py.

struct StreamingState {
    long n_sinks;
    long n_recent;
};

inline void streaming_select(device const Head &head, device const float *queries, uint n_tokens,
                             thread Selection &selection, thread const Team &team) {
    device const StreamingState &state = *reinterpret_cast<device const StreamingState *>(head.state);
    long n_sinks = min(state.n_sinks, head.n_tail);
    long first = max(max(n_sinks, head.n_dropped), first_visible_row(head, n_tokens, int(state.n_recent)));
    long n_chunks = count_chunks(head);
    for (long base = 0; base <= n_chunks; base += team.n_threads) {
        long i = base + team.index;
        Candidate candidate = no_candidate();
        if (i == 0) {
            candidate = tail_rows(head, 0, n_sinks, int(head.tail_position), 0);
        } else if (i <= n_chunks) {
            candidate = rest_of_chunk(head, i - 1, first, int(state.n_recent));
        }
        append_spans(candidate, selection, team);
    }
}
