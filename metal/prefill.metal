// Attention of a batch of tokens over spans, causal, in tiles of queries.
//
// A threadgroup computes TILE neighbouring queries of the (n_tokens, GROUP) of a KV head, each simd group QUERIES of
// them. It loads blocks of BLOCK rows into threadgroup memory as f16, for all simd groups. SHARERS lanes score a row for
// each query, each by some columns; then each lane adds up some columns of the values. See
// cpu_kernels/prefill/attend_batch.py.

constant constexpr uint TILE_SIMDS = 4;
constant constexpr uint QUERIES = TILE / TILE_SIMDS;  // of a simd group
constant constexpr uint STORED = LATENT ? HEAD_DIM : HEAD_DIM + VALUE_DIM;  // elements of a key and its value
constant constexpr uint BLOCK = STORED <= 256 ? 32 : STORED <= 640 ? 16 : 8;
constant constexpr uint SHARERS = LANES / BLOCK;
constant constexpr uint STRIDE = HEAD_DIM / 4 + 1;  // half4 of a key in a block: neighbours lie in other banks
constant constexpr uint VALUE_STRIDE = VALUE_ELEMENTS / 4 + 1;

// Load a block's keys or values, of n elements and n_bytes each, into threadgroup memory, and their scales, all threads
// together; 0 for a missing row.
inline void load_block(device const uchar *rows, uint n_rows, uint n, uint n_bytes, threadgroup half4 *block,
                       threadgroup float *scales, uint index, uint n_threads) {
    uint n_parts = n / 8, stride = n / 4 + 1;
    for (uint i = index; i < BLOCK * n_parts; i += n_threads) {
        uint row = i / n_parts, part = i % n_parts;
        float values[8];
        clear(values);
        if (row < n_rows) {
            load_elements(rows + row * n_bytes, part, values);
        }
        threadgroup half4 *place = block + row * stride + 2 * part;
        place[0] = half4(float4(values[0], values[1], values[2], values[3]));
        place[1] = half4(float4(values[4], values[5], values[6], values[7]));
        if (part == 0 || (LATENT && part == VALUE_PARTS)) {
            scales[row * SCALES + (part > 0)] = row < n_rows ? scale_of(rows + row * n_bytes, 8 * part, n) : 0.0f;
        }
    }
}

// Whether a token sees a row of a span.
inline bool sees(device const Span &span, int row, int position) {
    if (span.position == ANY_ORDER) {
        return true;
    }
    int own = span.position + row;
    return own <= position && own >= oldest_seen(position, span.window);
}

// Products of a simd group's queries with a lane's row of a block: lane i has row i % BLOCK.
inline void score_block(device const float *queries, int first, int n_queries, threadgroup const half4 *keys,
                        threadgroup const float *key_scales, uint lane, thread float (&scores)[QUERIES]) {
    threadgroup const half4 *row = keys + lane % BLOCK * STRIDE;
    threadgroup const float *scales = key_scales + lane % BLOCK * SCALES;
    device const float4 *own[QUERIES];
    for (uint i = 0; i < QUERIES; i++) {
        own[i] = reinterpret_cast<device const float4 *>(queries + min(first + int(i), n_queries - 1) * HEAD_DIM);
        scores[i] = 0.0f;
    }
    for (uint column = lane / BLOCK; column < HEAD_DIM / 4; column += SHARERS) {
        float4 key = float4(row[column]);
#if QUANTISED
        key *= scales[LATENT && column >= VALUE_DIM / 4];
#endif
        for (uint i = 0; i < QUERIES; i++) {
            scores[i] += dot(own[i][column], key);
        }
    }
    for (uint i = 0; i < QUERIES; i++) {
        for (ushort step = BLOCK; step < LANES; step *= 2) {
            scores[i] += simd_shuffle_xor(scores[i], step);
        }
    }
}

// threadgroups (tiles from step.first_tile on, n_kv_head), TILE_SIMDS simd groups each
kernel void attend_tiles(device const Head *heads [[buffer(0)]],
                         constant Step &step [[buffer(1)]],
                         device const float *all_queries [[buffer(2)]],
                         device const Span *all_spans [[buffer(3)]],
                         device const Selected *selected [[buffer(4)]],
                         device float *out [[buffer(6)]],
                         device const float *sinks [[buffer(7)]],
                         uint3 place [[threadgroup_position_in_grid]],
                         uint index [[thread_index_in_threadgroup]],
                         uint lane [[thread_index_in_simdgroup]],
                         uint simd [[simdgroup_index_in_threadgroup]],
                         uint n_simds [[simdgroups_per_threadgroup]]) {
    threadgroup half4 keys[BLOCK * STRIDE];
    threadgroup float key_scales[BLOCK * SCALES];
#if LATENT
    threadgroup half4 *values = keys;
    threadgroup float *value_scales = key_scales;
#else
    threadgroup half4 values[BLOCK * VALUE_STRIDE];
    threadgroup float value_scales[BLOCK];
#endif
    device const Head &head = heads[place.y];
    device const Span *spans = all_spans + place.y * step.span_capacity;
    device const float *queries = all_queries + place.y * step.n_tokens * GROUP * HEAD_DIM;
    int n_queries = int(step.n_tokens * GROUP), tile = int((step.first_tile + place.x) * TILE);
    int first = tile + int(simd * QUERIES);
    int oldest = int(head.tail_position + head.n_tail) - int(step.n_tokens);  // position of the first token
    int first_position = oldest + tile / int(GROUP);
    int last_position = oldest + (min(tile + int(TILE), n_queries) - 1) / int(GROUP);

    float sums[QUERIES][COLUMNS], largest[QUERIES], weights[QUERIES], scores[QUERIES];
    for (uint i = 0; i < QUERIES; i++) {
        int query = first + int(i);
        bool has_sink = step.has_sinks && query < n_queries;
        largest[i] = has_sink ? sinks[place.y * GROUP + uint(query) % GROUP] : LOWEST_SCORE;
        weights[i] = has_sink ? 1.0f : 0.0f;
        for (uint column = 0; column < COLUMNS; column++) {
            sums[i][column] = 0.0f;
        }
    }
    for (int s = 0; s < selected[place.y].n_spans; s++) {
        device const Span &span = spans[s];
        for (int block = 0; block < span.n_rows; block += int(BLOCK)) {
            if (span.position != ANY_ORDER) {
                int row = span.position + block;
                if (row > last_position) {
                    break;  // all later rows come after the tile
                }
                if (row + int(BLOCK) <= oldest_seen(first_position, span.window)) {
                    continue;  // out of every token's window
                }
            }
            uint n_rows = uint(min(int(BLOCK), span.n_rows - block));
            threadgroup_barrier(mem_flags::mem_threadgroup);
            load_block(span.keys + long(block) * ROW_BYTES, n_rows, HEAD_DIM, ROW_BYTES, keys, key_scales, index,
                       n_simds * LANES);
#if !LATENT
            load_block(span.values + long(block) * VALUE_BYTES, n_rows, VALUE_DIM, VALUE_BYTES, values, value_scales,
                       index, n_simds * LANES);
#endif
            threadgroup_barrier(mem_flags::mem_threadgroup);
            score_block(queries, first, n_queries, keys, key_scales, lane, scores);
            for (uint i = 0; i < QUERIES; i++) {
                int position = oldest + min(first + int(i), n_queries - 1) / int(GROUP);
                bool visible = lane < n_rows && sees(span, block + int(lane), position);
                float score = visible ? capped(scores[i], step.softcap) : LOWEST_SCORE;
                float top = max(largest[i], simd_max(score));
                float shrink = exp(largest[i] - top);
                scores[i] = visible ? exp(score - top) : 0.0f;
                largest[i] = top;
                weights[i] = weights[i] * shrink + simd_sum(scores[i]);
                for (uint column = 0; column < COLUMNS; column++) {
                    sums[i][column] *= shrink;
                }
            }
            threadgroup const half *elements = reinterpret_cast<threadgroup const half *>(values);
            for (uint row = 0; row < n_rows; row++) {
                float own[COLUMNS];
                for (uint column = 0; column < COLUMNS; column++) {
                    uint at = column * LANES + lane;
                    own[column] = at < VALUE_DIM ? float(elements[4 * row * VALUE_STRIDE + at]) * value_scales[row * SCALES] : 0.0f;
                }
                for (uint i = 0; i < QUERIES; i++) {
                    float weight = simd_shuffle(scores[i], ushort(row));
                    for (uint column = 0; column < COLUMNS; column++) {
                        sums[i][column] = fma(weight, own[column], sums[i][column]);
                    }
                }
            }
        }
    }
    for (uint i = 0; i < QUERIES; i++) {
        int query = first + int(i);
        if (query < n_queries) {
            uint token = uint(query) / GROUP, query_head = place.y * GROUP + uint(query) % GROUP;
            device float *row = out + (token * step.n_kv_head * GROUP + query_head) * VALUE_DIM;
            for (uint column = 0; column < COLUMNS; column++) {
                sums[i][column] = weights[i] > 0.0f ? sums[i][column] / weights[i] : 0.0f;
            }
#if QUANTISED
            rotate<VALUE_DIM>(sums[i], lane);
#endif
            for (uint column = 0; column < COLUMNS; column++) {
                uint at = column * LANES + lane;
                if (at < VALUE_DIM) {
                    row[at] = sums[i][column];
                }
            }
        }
    }
}
