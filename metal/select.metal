// Selection: score each head's items, and write the spans that it attends, by the functions of its method.

inline Team team_of(uint index, uint lane, uint simd, uint n_simds, threadgroup float *floats,
                    threadgroup uint2 *pairs) {
    Team team = {index, n_simds * LANES, lane, simd, n_simds, floats, pairs};
    return team;
}

// Score the items of all heads for one token.
// threadgroups (shares, n_kv_head)
kernel void score_items(device const Head *heads [[buffer(0)]],
                        device const float *all_queries [[buffer(2)]],
                        uint3 place [[threadgroup_position_in_grid]],
                        uint3 places [[threadgroups_per_grid]],
                        uint index [[thread_index_in_threadgroup]],
                        uint lane [[thread_index_in_simdgroup]],
                        uint simd [[simdgroup_index_in_threadgroup]],
                        uint n_simds [[simdgroups_per_threadgroup]]) {
    threadgroup float floats[ROOM];
    threadgroup uint2 pairs[LANES];
    Team team = team_of(index, lane, simd, n_simds, floats, pairs);
    device const Head &head = heads[place.y];
    device const float *queries = all_queries + place.y * GROUP * HEAD_DIM;
    CALL_SCORE(head.select, head, queries, place.x, places.x, team)
}

// Choose the items that score_narrowed scores, for one token, and count the bytes read.
// threadgroups (n_kv_head)
kernel void narrow_items(device Head *heads [[buffer(0)]],
                         uint3 place [[threadgroup_position_in_grid]],
                         uint index [[thread_index_in_threadgroup]],
                         uint lane [[thread_index_in_simdgroup]],
                         uint simd [[simdgroup_index_in_threadgroup]],
                         uint n_simds [[simdgroups_per_threadgroup]]) {
    threadgroup float floats[ROOM];
    threadgroup uint2 pairs[LANES];
    Team team = team_of(index, lane, simd, n_simds, floats, pairs);
    device Head &head = heads[place.x];
    long n_bytes = 0;
    CALL_NARROW(head.select, head, n_bytes, team)
    if (index == 0) {
        head.bytes_read += n_bytes;
    }
}

// Score the items that narrow_items kept, for one token.
// threadgroups (shares, n_kv_head)
kernel void score_narrowed(device const Head *heads [[buffer(0)]],
                           device const float *all_queries [[buffer(2)]],
                           uint3 place [[threadgroup_position_in_grid]],
                           uint3 places [[threadgroups_per_grid]],
                           uint index [[thread_index_in_threadgroup]],
                           uint lane [[thread_index_in_simdgroup]],
                           uint simd [[simdgroup_index_in_threadgroup]],
                           uint n_simds [[simdgroups_per_threadgroup]]) {
    threadgroup float floats[ROOM];
    threadgroup uint2 pairs[LANES];
    Team team = team_of(index, lane, simd, n_simds, floats, pairs);
    device const Head &head = heads[place.y];
    device const float *queries = all_queries + place.y * GROUP * HEAD_DIM;
    CALL_SCORE_NARROWED(head.select, head, queries, place.x, places.x, team)
}

// Write the spans of each head, and count the bytes that selection and attention read.
// threadgroups (n_kv_head)
kernel void select_spans(device Head *heads [[buffer(0)]],
                         constant Step &step [[buffer(1)]],
                         device const float *all_queries [[buffer(2)]],
                         device Span *all_spans [[buffer(3)]],
                         device Selected *all_selected [[buffer(4)]],
                         uint3 place [[threadgroup_position_in_grid]],
                         uint index [[thread_index_in_threadgroup]],
                         uint lane [[thread_index_in_simdgroup]],
                         uint simd [[simdgroup_index_in_threadgroup]],
                         uint n_simds [[simdgroups_per_threadgroup]]) {
    threadgroup float floats[ROOM];
    threadgroup uint2 pairs[LANES];
    Team team = team_of(index, lane, simd, n_simds, floats, pairs);
    device Head &head = heads[place.x];
    device const float *queries = all_queries + place.x * step.n_tokens * GROUP * HEAD_DIM;
    Selection selection = {all_spans + place.x * step.span_capacity, {0, 0}, 0};
    CALL_SELECT(head.select, head, queries, step.n_tokens, selection, team)
    if (index == 0) {
        all_selected[place.x] = selection.selected;
        head.bytes_read += selection.n_bytes + selection.selected.n_rows * long(TOKEN_BYTES);
    }
}

// Rotate LENGTH f32 in place, all lanes of a simd group together.
template <uint LENGTH>
inline void rotate_part(device float *floats, uint lane) {
    constexpr uint n = (LENGTH + LANES - 1) / LANES;
    float values[n];
    for (uint i = 0; i < n; i++) {
        uint column = i * LANES + lane;
        values[i] = column < LENGTH ? floats[column] : 0.0f;
    }
    rotate<LENGTH>(values, lane);
    for (uint i = 0; i < n; i++) {
        uint column = i * LANES + lane;
        if (column < LENGTH) {
            floats[column] = values[i];
        }
    }
}

// Rotate the queries as stored keys are rotated: methods score what keys stand for, attention multiplies stored keys.
// threadgroups (queries of a head, n_kv_head), one simd group each
kernel void rotate_queries(constant Step &step [[buffer(1)]],
                           device float *all_queries [[buffer(2)]],
                           uint3 place [[threadgroup_position_in_grid]],
                           uint lane [[thread_index_in_simdgroup]]) {
    device float *query = all_queries + (place.y * step.n_tokens * GROUP + place.x) * HEAD_DIM;
    rotate_part<(LATENT ? VALUE_DIM : HEAD_DIM)>(query, lane);
#if LATENT && VALUE_DIM < HEAD_DIM
    rotate_part<HEAD_DIM - VALUE_DIM>(query + VALUE_DIM, lane);
#endif
}
