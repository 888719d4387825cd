// Shared by the parts of methods: score items and select rows. One selection serves all query heads of a KV head.
//
// An importance that is not above 0 is never above a threshold of 0 or more.

// Size of a team's working memory in numbers: three for each component, and one for each query head.
constant constexpr uint ROOM = 3 * HEAD_DIM + GROUP > LANES ? 3 * HEAD_DIM + GROUP : LANES;

// A threadgroup, and the threadgroup memory that its threads share.
struct Team {
    uint index;
    uint n_threads;
    uint lane;
    uint simd;
    uint n_simds;
    threadgroup float *floats;  // ROOM
    threadgroup uint2 *pairs;   // LANES
};

// The largest value of all threads, returned in each.
inline float team_max(float value, thread const Team &team) {
    value = simd_max(value);
    if (team.lane == 0) {
        team.floats[team.simd] = value;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    value = simd_max(team.lane < team.n_simds ? team.floats[team.lane] : LOWEST_SCORE);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return value;
}

// The sum over all threads, returned in each.
inline float team_sum(float value, thread const Team &team) {
    value = simd_sum(value);
    if (team.lane == 0) {
        team.floats[team.simd] = value;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    value = simd_sum(team.lane < team.n_simds ? team.floats[team.lane] : 0.0f);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return value;
}

// Sums of pairs over the threads before this one, and over all threads.
struct Prefix {
    uint2 before;
    uint2 total;
};

inline uint2 simd_before(uint2 value) {
    return uint2(simd_prefix_exclusive_sum(value.x), simd_prefix_exclusive_sum(value.y));
}

inline Prefix team_prefix(uint2 value, thread const Team &team) {
    uint2 before = simd_before(value);
    if (team.lane == LANES - 1) {
        team.pairs[team.simd] = before + value;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint2 sums = team.lane < team.n_simds ? team.pairs[team.lane] : uint2(0, 0);
    uint2 starts = simd_before(sums);
    uint2 own = uint2(simd_shuffle(starts.x, ushort(team.simd)), simd_shuffle(starts.y, ushort(team.simd)));
    uint2 total = uint2(simd_sum(sums.x), simd_sum(sums.y));
    threadgroup_barrier(mem_flags::mem_threadgroup);
    Prefix prefix = {own + before, total};
    return prefix;
}

// The items from start to stop.
struct Range {
    long start;
    long stop;
};

inline Range share_of(long n_items, uint share, uint n_shares) {
    Range range = {n_items * share / n_shares, n_items * (share + 1) / n_shares};
    return range;
}

// A head's scratch: for each item its importance, its size, and GROUP scores; then a list (see cpu_kernels/layout/scores.py).
inline device float *importance_of(device const Head &head) {
    return head.scratch;
}

inline device float *sizes_of(device const Head &head) {
    return head.scratch + head.scratch_items;
}

inline device float *scores_of(device const Head &head, uint g) {
    return head.scratch + (2 + g) * head.scratch_items;
}

inline device int *list_of(device const Head &head) {
    return reinterpret_cast<device int *>(head.scratch + (2 + GROUP) * head.scratch_items);
}

// Write the scores of one item for the query heads from head g on.
inline void write_scores(device const Head &head, long item, uint g, thread const float (&products)[HEADS]) {
    for (uint h = 0; h < HEADS && g + h < GROUP; h++) {
        scores_of(head, g + h)[item] = products[h];
    }
}

// The softmax of a query head's scores over all items, or over those that have a size: exp(score - top) / total.
struct Softmax {
    float top;
    float total;
};

inline Softmax softmax_of(device const Head &head, uint g, long n, device const float *sizes,
                          thread const Team &team) {
    device float *scores = scores_of(head, g);
    float top = LOWEST_SCORE;
    for (long i = team.index; i < n; i += team.n_threads) {
        if (!sizes || sizes[i] > 0.0f) {
            float score = capped(scores[i], head.softcap);
            scores[i] = score;
            top = max(top, score);
        }
    }
    top = team_max(top, team);
    float total = 0.0f;
    for (long i = team.index; i < n; i += team.n_threads) {
        if (!sizes) {
            total += exp(scores[i] - top);
        } else if (sizes[i] > 0.0f) {
            total += sizes[i] * exp(scores[i] - top);
        }
    }
    Softmax softmax = {top, team_sum(total, team)};
    return softmax;
}

// Write each item's importance: the sum of its softmax over the query heads. Returns whether all are numbers. Thread
// number item % n_threads writes an item's importance.
inline bool sum_attention(device const Head &head, long n, thread Softmax (&softmax)[GROUP], thread const Team &team) {
    device float *importance = importance_of(head);
    bool are_numbers = true;
    for (uint g = 0; g < GROUP; g++) {
        softmax[g] = softmax_of(head, g, n, nullptr, team);
        are_numbers = are_numbers && !isnan(softmax[g].total);
        device const float *scores = scores_of(head, g);
        for (long i = team.index; i < n; i += team.n_threads) {
            float share = exp(scores[i] - softmax[g].top) / softmax[g].total;
            importance[i] = g == 0 ? share : importance[i] + share;
        }
    }
    return are_numbers;
}

// The k largest of n numbers of at least 0: those with bits above `bits`, and the first n_equal with equal bits.
struct Top {
    int bits;
    uint n_equal;
};

inline Top find_top(device const float *values, long n, long k, thread const Team &team) {
    Top top = {-1, 0};
    if (k >= n) {
        return top;
    }
    int low = 0, high = 0x7f800001;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        uint count = 0;
        for (long i = team.index; i < n; i += team.n_threads) {
            count += uint(as_type<int>(values[i]) >= middle);
        }
        if (long(team_prefix(uint2(count, 0), team).total.x) >= k) {
            low = middle;
        } else {
            high = middle;
        }
    }
    uint above = 0;
    for (long i = team.index; i < n; i += team.n_threads) {
        above += uint(as_type<int>(values[i]) > low);
    }
    top.bits = low;
    top.n_equal = uint(k) - team_prefix(uint2(above, 0), team).total.x;
    return top;
}

// The number such that the sizes of the values above it add up to nearly the wanted sum; -1 to take all.
// See cpu_kernels/select/top_k.py.
inline float sum_at_least(device const float *values, device const float *sizes, long n, int bits,
                          thread const Team &team) {
    float total = 0.0f;
    for (long i = team.index; i < n; i += team.n_threads) {
        int own = as_type<int>(values[i]);
        total += own >= bits && own <= 0x7f800000 ? sizes[i] : 0.0f;  // a NaN is not taken
    }
    return team_sum(total, team);
}

inline float find_least(device const float *values, device const float *sizes, long n, float wanted,
                        thread const Team &team) {
    int low = 0, high = 0x7f800001;
    float at_low = sum_at_least(values, sizes, n, low, team), at_high = 0.0f;
    if (at_low <= wanted) {
        return -1.0f;
    }
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        float total = sum_at_least(values, sizes, n, middle, team);
        if (total > wanted) {
            low = middle;
            at_low = total;
        } else {
            high = middle;
            at_high = total;
        }
    }
    int first = at_low - wanted < wanted - at_high ? low : high;
    return first > 0 ? as_type<float>(first - 1) : -1.0f;
}

// Whether this thread's number is among the largest, and how many numbers before it are. `seen` counts the numbers
// above and equal in earlier blocks of n_threads.
struct Choice {
    bool taken;
    uint before;
};

inline Choice choose(float value, bool is_one, Top top, thread uint2 &seen, thread const Team &team) {
    int bits = as_type<int>(value);
    bool above = is_one && bits > top.bits, equal = is_one && bits == top.bits;
    Prefix prefix = team_prefix(uint2(above, equal), team);
    uint2 before = seen + prefix.before;
    Choice choice = {above || (equal && before.y < top.n_equal), before.x + min(before.y, top.n_equal)};
    seen += prefix.total;
    return choice;
}

// The selection of a step for a head.
struct Selection {
    device Span *spans;
    Selected selected;  // so far
    long n_bytes;       // that selection read
};

// A run of rows that may become a span; empty if n_rows is below 1.
struct Candidate {
    device const uchar *keys;
    device const uchar *values;
    long n_rows;
    int position;
    int window;
};

inline Candidate no_candidate() {
    Candidate none = {nullptr, nullptr, 0, ANY_ORDER, 0};
    return none;
}

// A head's window, as in Span.
inline int window_of(device const Head &head) {
    return head.chunked ? -int(head.window) : int(head.window);
}

inline Candidate document_rows(device const Head &head, long start, long stop, int position) {
    Candidate rows = {head.document_keys + start * ROW_BYTES, head.document_values + start * VALUE_BYTES, stop - start,
                      position, window_of(head)};
    return rows;
}

// Rows of the tail in one chunk.
inline Candidate tail_rows(device const Head &head, long start, long stop, int position, int window) {
    if (start >= stop) {
        return no_candidate();
    }
    device uchar *chunk = chunk_at(head, start / CHUNK_ROWS);
    long within = start % CHUNK_ROWS;
    Candidate rows = {key_in(chunk, within), value_in(chunk, within), stop - start, position, window};
    return rows;
}

// A chunk's rows from row `first` of the tail on, with their positions.
inline Candidate rest_of_chunk(device const Head &head, long chunk, long first, int window) {
    long start = max(first, chunk * long(CHUNK_ROWS));
    long stop = min(head.n_tail, (chunk + 1) * long(CHUNK_ROWS));
    return tail_rows(head, start, stop, int(head.tail_position + start), window);
}

// The oldest row of the tail that the step's first token sees; negative before the tail.
inline long first_visible_row(device const Head &head, uint n_tokens, int window) {
    return oldest_seen(int(head.tail_position + head.n_tail) - int(n_tokens), window) - head.tail_position;
}

// Append the threads' candidates to the spans, in the order of the threads.
inline void append_spans(Candidate candidate, thread Selection &selection, thread const Team &team) {
    bool taken = candidate.n_rows > 0;
    Prefix prefix = team_prefix(uint2(taken, taken ? uint(candidate.n_rows) : 0u), team);
    if (taken) {
        Span span = {candidate.keys, candidate.values, nullptr, selection.selected.n_rows + int(prefix.before.y),
                     int(candidate.n_rows), candidate.position, candidate.window};
        selection.spans[selection.selected.n_spans + int(prefix.before.x)] = span;
    }
    selection.selected.n_spans += int(prefix.total.x);
    selection.selected.n_rows += int(prefix.total.y);
}
