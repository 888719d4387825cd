// Dense: every row that the layer's window shows. See cpu_kernels/methods/dense.py.

inline void dense_select(device const Head &head, device const float *queries, uint n_tokens,
                         thread Selection &selection, thread const Team &team) {
    long first_visible = first_visible_row(head, n_tokens, window_of(head));
    long n_chunks = count_chunks(head);
    for (long base = 0; base <= n_chunks; base += team.n_threads) {
        long i = base + team.index;
        Candidate candidate = no_candidate();
        if (i == 0) {
            long first = 0, position = head.document_position;
            if (position != ANY_ORDER) {
                first = max(0l, first_visible + head.tail_position - position);
                position += first;
            }
            candidate = document_rows(head, first, head.n_document, int(position));
        } else if (i <= n_chunks) {
            candidate = rest_of_chunk(head, i - 1, max(0l, first_visible), window_of(head));
        }
        append_spans(candidate, selection, team);
    }
}
