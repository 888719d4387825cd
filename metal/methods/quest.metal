// Quest: the pages whose keys could score highest. See cpu_kernels/methods/quest.py.

constant constexpr uint PAGE_ROWS = 16;  // as there
constant constexpr uint CHUNK_PAGES = CHUNK_ROWS / PAGE_ROWS;

struct QuestState {
    long n_pages;
};

inline long count_pages(device const Head &head) {
    return (head.n_tail + PAGE_ROWS - 1) / PAGE_ROWS;
}

// The bounds of a chunk's pages, (CHUNK_PAGES, 2, HEAD_DIM) f16.
inline device half *bounds_of(device uchar *chunk) {
    return reinterpret_cast<device half *>(extras_of(chunk));
}

// Widen a bound of a page by a key's element. The page's first key sets the bound; a NaN stays.
inline void take_bound(device half *bound, float value, bool is_first, bool is_upper) {
    float before = float(*bound);
    bool beyond = is_upper ? value > before : value < before;
    if (is_first || beyond || isnan(value)) {
        *bound = half(value);
    }
}

inline void quest_append(device uchar *chunk, uint start, uint stop, uint index, uint n_threads) {
    for (uint column = index; column < HEAD_DIM; column += n_threads) {
        for (uint row = start; row < stop; row++) {
            float key = element(key_in(chunk, row), column, HEAD_DIM);
            device half *bound = bounds_of(chunk) + row / PAGE_ROWS * 2 * HEAD_DIM + column;
            bool is_first = row % PAGE_ROWS == 0;
            take_bound(bound, key, is_first, false);
            take_bound(bound + HEAD_DIM, key, is_first, true);
        }
    }
}

// A page's score is its upper bound: the product of (min(q, 0), max(q, 0)) with the page's bounds.
inline void quest_score(device const Head &head, device const float *queries, uint share, uint n_shares,
                        thread const Team &team) {
    Range pages = share_of(count_pages(head), share, n_shares);
    uint slot = team.lane / SLOT, part = team.lane % SLOT;
    float query[GROUP][8], split[GROUP][8], row[8], low[GROUP], high[GROUP];
    load_queries(queries, part, query);
    for (long base = pages.start + team.simd * SLOTS; base < pages.stop; base += team.n_simds * SLOTS) {
        long page = base + slot;
        bool wanted = page < pages.stop && part < PARTS;
        for (uint side = 0; side < 2; side++) {
            clear(row);
            if (wanted) {
                device const half *bounds = bounds_of(chunk_at(head, page / CHUNK_PAGES));
                load_halves(bounds + (page % CHUNK_PAGES * 2 + side) * HEAD_DIM, part, row);
            }
            for (uint g = 0; g < GROUP; g++) {
                for (uint i = 0; i < 8; i++) {
                    bool other = side == 0 ? query[g][i] > 0.0f : query[g][i] < 0.0f;  // a NaN is on both sides
                    split[g][i] = other ? 0.0f : query[g][i];
                }
            }
            if (side == 0) {
                dot_slot(split, row, low);
            } else {
                dot_slot(split, row, high);
            }
        }
        if (wanted && part == 0) {
            for (uint g = 0; g < GROUP; g++) {
                scores_of(head, g)[page] = low[g] + high[g];
            }
        }
    }
}

// The n_pages pages with the highest bounds, the newest always among them. A batch attends to everything.
inline void quest_select(device const Head &head, device const float *queries, uint n_tokens,
                         thread Selection &selection, thread const Team &team) {
    long n = count_pages(head);
    Softmax softmax[GROUP];
    if (n_tokens > 1 || !sum_attention(head, n, softmax, team)) {  // attend to all, so that a NaN reaches the output
        dense_select(head, queries, n_tokens, selection, team);
        return;
    }
    device float *importance = importance_of(head);
    if ((n - 1) % team.n_threads == team.index) {
        importance[n - 1] = MAXFLOAT;
    }
    selection.n_bytes += n * HEAD_DIM * 4;
    Top top = find_top(importance, n, reinterpret_cast<device const QuestState *>(head.state)->n_pages, team);
    uint2 seen = uint2(0, 0);
    for (long base = 0; base < n; base += team.n_threads) {
        long page = base + team.index;
        Choice choice = choose(page < n ? importance[page] : 0.0f, page < n, top, seen, team);
        Candidate candidate = no_candidate();
        if (choice.taken) {
            long start = page * PAGE_ROWS;
            candidate = tail_rows(head, start, min(start + long(PAGE_ROWS), head.n_tail), ANY_ORDER, 0);
        }
        append_spans(candidate, selection, team);
    }
}
