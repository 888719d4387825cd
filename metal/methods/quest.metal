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

inline void quest_append(device uchar *chunk, thread const NewRows &rows, uint index, uint n_threads) {
    for (uint column = index; column < HEAD_DIM; column += n_threads) {
        for (uint row = rows.start; row < rows.stop; row++) {
            float key = rows.keys[(row - rows.start) * HEAD_DIM + column];
            device half *bound = bounds_of(chunk) + row / PAGE_ROWS * 2 * HEAD_DIM + column;
            bool is_first = row % PAGE_ROWS == 0;
            take_bound(bound, key, is_first, false);
            take_bound(bound + HEAD_DIM, key, is_first, true);
        }
    }
}

// The products of queries with one side of a page's bounds: of what is negative in them with the lower bounds, on side
// 0, or of what is positive with the upper ones. A NaN is on both sides.
inline void dot_side(thread const float (&query)[HEADS][PIECES][8], thread const float (&bounds)[PIECES][8], uint side,
                     thread float (&products)[HEADS]) {
    float split[HEADS][PIECES][8];
    for (uint h = 0; h < HEADS; h++) {
        for (uint piece = 0; piece < PIECES; piece++) {
            for (uint i = 0; i < 8; i++) {
                float element = query[h][piece][i];
                bool other = side == 0 ? element > 0.0f : element < 0.0f;
                split[h][piece][i] = other ? 0.0f : element;
            }
        }
    }
    dot_slot(split, bounds, products);
}

// A page's score is its upper bound: the product of (min(q, 0), max(q, 0)) with the page's bounds.
inline void quest_score(device const Head &head, device const float *queries, uint share, uint n_shares,
                        thread const Team &team) {
    Range pages = share_of(count_pages(head), share, n_shares);
    uint slot = team.lane / SLOT, part = team.lane % SLOT;
    float query[HEADS][PIECES][8], low[PIECES][8], high[PIECES][8], of_low[HEADS], of_high[HEADS];
    for (uint g = 0; g < GROUP; g += HEADS) {
        load_queries(queries, g, part, query);
        for (long base = pages.start + team.simd * SLOTS; base < pages.stop; base += team.n_simds * SLOTS) {
            long page = base + slot;
            bool wanted = page < pages.stop;
            clear(low);
            clear(high);
            if (wanted) {
                device const half *bounds = bounds_of(chunk_at(head, page / CHUNK_PAGES));
                load_vector(bounds + page % CHUNK_PAGES * 2 * HEAD_DIM, part, low);
                load_vector(bounds + (page % CHUNK_PAGES * 2 + 1) * HEAD_DIM, part, high);
            }
            dot_side(query, low, 0, of_low);
            dot_side(query, high, 1, of_high);
            if (wanted && part == 0) {
                for (uint h = 0; h < HEADS; h++) {
                    of_low[h] += of_high[h];
                }
                write_scores(head, page, g, of_low);
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
