// Attention of one new token over spans: flash-decoding.
//
// The rows of all KV heads are divided into n_shares equal shares, however uneven the heads are. A share belongs to one
// head, so the last share of a head may be smaller. A threadgroup attends to a share for HEADS query heads, and writes
// a partial result of each: its weighted values, its largest score and its sum of weights. merge_shares joins them.
// See cpu_kernels/attend/decode.py.

constant constexpr uint MOST_SIMDS = 8;
constant constexpr uint PARTIAL = VALUE_DIM + 2;  // f32 of a query head's partial result

// The shares of one head: their first place among all, and how many there are.
struct Shares {
    uint first;
    uint count;
};

inline uint rows_of_share(device const Selected *selected, constant Step &step) {
    uint total = 0;
    for (uint i = 0; i < step.n_kv_head; i++) {
        total += uint(selected[i].n_rows);
    }
    return max(1u, (total + step.n_shares - 1) / step.n_shares);
}

inline Shares shares_of(device const Selected *selected, uint number, uint n_rows) {
    Shares shares = {0, 0};
    for (uint i = 0; i <= number; i++) {
        shares.first += shares.count;
        shares.count = (uint(selected[i].n_rows) + n_rows - 1) / n_rows;
    }
    return shares;
}

// The span of a row, numbered over all spans: the last span that begins at or before it.
inline int find_span(device const Span *spans, int n_spans, int row) {
    int low = 0, high = n_spans;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (spans[middle].first <= row) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

// The sums in the lanes of a slot: each has a part of the weighted values; all have the same largest score and weight.
struct Gathered {
    float values[HEADS][VALUE_PIECES][8];
    float largest[HEADS];
    float weights[HEADS];
};

inline void start(thread Gathered &own) {
    for (uint h = 0; h < HEADS; h++) {
        clear(own.values[h]);
        own.largest[h] = LOWEST_SCORE;
        own.weights[h] = 0.0f;
    }
}

// Add one row, or nothing if the slot has none.
inline void gather(thread const float (&scores)[HEADS], thread const float (&value)[VALUE_PIECES][8],
                   bool has_row, thread Gathered &own) {
    for (uint h = 0; h < HEADS; h++) {
        float largest = has_row ? max(own.largest[h], scores[h]) : own.largest[h];
        float shrink = exp(own.largest[h] - largest);
        float weight = has_row ? exp(scores[h] - largest) : 0.0f;
        own.largest[h] = largest;
        own.weights[h] = own.weights[h] * shrink + weight;
        for (uint piece = 0; piece < VALUE_PIECES; piece++) {
            for (uint i = 0; i < 8; i++) {
                thread float &sum = own.values[h][piece][i];
                sum = fma(weight, value[piece][i], sum * shrink);
            }
        }
    }
}

// The sum over the slots of a simd group, in each of them.
inline float sum_of_slots(float value) {
    for (ushort step = SLOT; step < LANES; step *= 2) {
        value += simd_shuffle_xor(value, step);
    }
    return value;
}

// Join the sums of a simd group's slots, in all of its lanes.
inline void join_slots(thread Gathered &own) {
    for (uint h = 0; h < HEADS; h++) {
        float largest = simd_max(own.largest[h]);
        float shrink = exp(own.largest[h] - largest);
        own.largest[h] = largest;
        own.weights[h] = sum_of_slots(own.weights[h] * shrink);
        for (uint piece = 0; piece < VALUE_PIECES; piece++) {
            for (uint i = 0; i < 8; i++) {
                own.values[h][piece][i] = sum_of_slots(own.values[h][piece][i] * shrink);
            }
        }
    }
}

// threadgroups (n_shares + n_kv_head, blocks of HEADS query heads), at most MOST_SIMDS simd groups each
kernel void attend_shares(device const Head *heads [[buffer(0)]],
                          constant Step &step [[buffer(1)]],
                          device const float *all_queries [[buffer(2)]],
                          device const Span *all_spans [[buffer(3)]],
                          device const Selected *selected [[buffer(4)]],
                          device float *partials [[buffer(5)]],
                          uint3 place [[threadgroup_position_in_grid]],
                          uint index [[thread_index_in_threadgroup]],
                          uint lane [[thread_index_in_simdgroup]],
                          uint simd [[simdgroup_index_in_threadgroup]],
                          uint n_simds [[simdgroups_per_threadgroup]]) {
    threadgroup float joined[MOST_SIMDS][VALUE_DIM];
    threadgroup float largest[MOST_SIMDS];
    threadgroup float weights[MOST_SIMDS];
    uint n_rows = rows_of_share(selected, step), number = 0;
    Shares shares = shares_of(selected, number, n_rows);
    while (place.x >= shares.first + shares.count) {
        number++;
        if (number == step.n_kv_head) {
            return;  // the grid has up to one spare threadgroup for each head
        }
        shares = shares_of(selected, number, n_rows);
    }
    device const Span *spans = all_spans + number * step.span_capacity;
    int n_spans = selected[number].n_spans;
    int first = int((place.x - shares.first) * n_rows);
    int stop = min(first + int(n_rows), selected[number].n_rows);

    uint slot = lane / SLOT, part = lane % SLOT, first_head = place.y * HEADS;
    float query[HEADS][PIECES][8], scores[HEADS], key[PIECES][8], value[VALUE_PIECES][8];
    load_queries(all_queries + number * GROUP * HEAD_DIM, first_head, part, query);
    Gathered own;
    start(own);
    int at = find_span(spans, n_spans, min(first + int(simd * SLOTS + slot), stop - 1));
    for (int base = first + int(simd * SLOTS); base < stop; base += int(n_simds * SLOTS)) {
        int row = base + int(slot);
        bool has_row = row < stop;
        clear(key);
        clear(value);
        if (has_row) {
            while (row >= spans[at].first + spans[at].n_rows) {
                at++;
            }
            long within = row - spans[at].first;
            if (spans[at].rows) {
                within = spans[at].rows[within] % int(CHUNK_ROWS);
            }
            load_row(spans[at].keys + within * ROW_BYTES, part, HEAD_DIM, key);
#if !LATENT
            load_row(spans[at].values + within * VALUE_BYTES, part, VALUE_DIM, value);
#endif
        }
#if LATENT
        for (uint piece = 0; piece < VALUE_PIECES; piece++) {
            for (uint i = 0; i < 8; i++) {
                value[piece][i] = key[piece][i];
            }
        }
#endif
        dot_slot(query, key, scores);
        for (uint h = 0; h < HEADS; h++) {
            scores[h] = capped(scores[h], step.softcap);
        }
        gather(scores, value, has_row, own);
    }
    join_slots(own);

    // Join the simd groups, one query head after another.
    for (uint h = 0; h < HEADS && first_head + h < GROUP; h++) {
        if (lane == 0) {
            largest[simd] = own.largest[h];
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        float top = simd_max(lane < n_simds ? largest[lane] : LOWEST_SCORE);
        float shrink = exp(own.largest[h] - top);
        if (lane == 0) {
            weights[simd] = own.weights[h] * shrink;
        }
        for (uint piece = 0; piece < VALUE_PIECES; piece++) {
            uint own_part = lane + piece * SLOT;
            if (lane < SLOT && own_part < VALUE_PARTS) {
                for (uint i = 0; i < 8; i++) {
                    joined[simd][8 * own_part + i] = own.values[h][piece][i] * shrink;
                }
            }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        device float *partial = partials + (place.x * GROUP + first_head + h) * PARTIAL;
        for (uint column = index; column < VALUE_DIM; column += n_simds * LANES) {
            float sum = 0.0f;
            for (uint i = 0; i < n_simds; i++) {
                sum += joined[i][column];
            }
            partial[column] = sum;
        }
        if (index == 0) {
            float sum = 0.0f;
            for (uint i = 0; i < n_simds; i++) {
                sum += weights[i];
            }
            partial[VALUE_DIM] = top;
            partial[VALUE_DIM + 1] = sum;
        }
    }
}

// Join the partial results of a query head; then the head's method completes its output.
// threadgroups (GROUP, n_kv_head), one simd group each
kernel void merge_shares(device const Head *heads [[buffer(0)]],
                         constant Step &step [[buffer(1)]],
                         device const Selected *selected [[buffer(4)]],
                         device const float *partials [[buffer(5)]],
                         device float *out [[buffer(6)]],
                         device const float *sinks [[buffer(7)]],
                         uint3 place [[threadgroup_position_in_grid]],
                         uint lane [[thread_index_in_simdgroup]]) {
    uint g = place.x, number = place.y, query_head = number * GROUP + g;
    Shares shares = shares_of(selected, number, rows_of_share(selected, step));
    float top = step.has_sinks ? sinks[query_head] : LOWEST_SCORE;
    for (uint i = shares.first; i < shares.first + shares.count; i++) {
        top = max(top, partials[(i * GROUP + g) * PARTIAL + VALUE_DIM]);
    }
    float values[COLUMNS], total = step.has_sinks ? exp(sinks[query_head] - top) : 0.0f;
    for (uint column = 0; column < COLUMNS; column++) {
        values[column] = 0.0f;
    }
    for (uint i = shares.first; i < shares.first + shares.count; i++) {
        device const float *partial = partials + (i * GROUP + g) * PARTIAL;
        float weight = exp(partial[VALUE_DIM] - top);
        total += weight * partial[VALUE_DIM + 1];
        for (uint column = 0; column < COLUMNS; column++) {
            uint at = column * LANES + lane;
            values[column] += at < VALUE_DIM ? weight * partial[at] : 0.0f;
        }
    }
    for (uint column = 0; column < COLUMNS; column++) {
        values[column] /= total;
    }
#if QUANTISED
    rotate<VALUE_DIM>(values, lane);
#endif
    device const Head &head = heads[number];
    for (uint column = 0; column < COLUMNS; column++) {
        uint at = column * LANES + lane;
        if (at < VALUE_DIM) {
            CALL_FINISH(head.select, head, g, at, values[column])
            out[query_head * VALUE_DIM + at] = values[column];
        }
    }
}
