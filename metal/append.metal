// Append to the cache: store new keys and values, and let the heads' methods add them to the chunks' extras.
// See append_rows in cpu_kernels/layer.py.

constant constexpr uint APPEND_SIMDS = 4;

#if QUANTISED
// Store LENGTH f16 as q8_0, and as f32 what the stored ones stand for, all lanes of a simd group together. If one is not
// finite, the scale is NaN.
template <uint LENGTH>
inline void store_part(device const half *source, device uchar *target, device float *scale, threadgroup float *floats,
                       uint lane) {
    constexpr uint n = (LENGTH + LANES - 1) / LANES;
    float values[n], largest = 0.0f;
    bool is_finite = true;
    for (uint i = 0; i < n; i++) {
        uint column = i * LANES + lane;
        values[i] = column < LENGTH ? float(source[column]) : 0.0f;
    }
    rotate<LENGTH>(values, lane);
    for (uint i = 0; i < n; i++) {
        is_finite = is_finite && isfinite(values[i]);
        largest = max(largest, fabs(values[i]));
    }
    largest = largest_size(largest, is_finite);
    for (uint i = 0; i < n; i++) {
        uint column = i * LANES + lane;
        char stored = rounded(values[i], largest);
        if (column < LENGTH) {
            reinterpret_cast<device char *>(target)[column] = stored;
        }
        values[i] = float(stored) * (largest / 127.0f);
    }
    if (lane == 0) {
        *scale = largest / 127.0f;
    }
    rotate<LENGTH>(values, lane);
    for (uint i = 0; i < n; i++) {
        uint column = i * LANES + lane;
        if (column < LENGTH) {
            floats[column] = values[i];
        }
    }
}
#endif

// Store a row of LENGTH f16, and as f32 what it stands for then, all lanes of a simd group together.
template <uint LENGTH>
inline void store_row(device const half *source, device uchar *target, threadgroup float *floats, uint lane) {
#if QUANTISED
    device float *scales = reinterpret_cast<device float *>(target + LENGTH);
    store_part<(LATENT ? VALUE_DIM : LENGTH)>(source, target, scales, floats, lane);
#if LATENT && VALUE_DIM < HEAD_DIM
    store_part<HEAD_DIM - VALUE_DIM>(source + VALUE_DIM, target + VALUE_DIM, scales + 1, floats + VALUE_DIM, lane);
#endif
#else
    for (uint column = lane; column < LENGTH; column += LANES) {
        reinterpret_cast<device half *>(target)[column] = source[column];
        floats[column] = float(source[column]);
    }
#endif
}

// Store the newest n_tokens rows of each head. A threadgroup stores those of one chunk.
// threadgroups (most chunks that a head's new rows lie in, n_kv_head), at most APPEND_SIMDS simd groups each
kernel void append_rows(device const Head *heads [[buffer(0)]],
                        constant Step &step [[buffer(1)]],
                        device const half *new_keys [[buffer(8)]],
                        device const half *new_values [[buffer(9)]],
                        uint3 place [[threadgroup_position_in_grid]],
                        uint index [[thread_index_in_threadgroup]],
                        uint lane [[thread_index_in_simdgroup]],
                        uint simd [[simdgroup_index_in_threadgroup]],
                        uint n_simds [[simdgroups_per_threadgroup]]) {
    threadgroup float keys[APPEND_SIMDS][HEAD_DIM];
#if LATENT
    threadgroup float (*values)[HEAD_DIM] = keys;
#else
    threadgroup float values[APPEND_SIMDS][VALUE_DIM];
#endif
    device const Head &head = heads[place.y];
    long oldest = head.n_tail - step.n_tokens;
    long number = oldest / CHUNK_ROWS + place.x, first = number * long(CHUNK_ROWS);
    long start = max(oldest, first);
    long stop = min(head.n_tail, first + long(CHUNK_ROWS));
    if (start >= stop) {
        return;
    }
    device uchar *chunk = chunk_at(head, number);
    for (long row = start; row < stop; row += n_simds) {
        long own = row + simd;
        if (own < stop) {
            ulong source = place.y * step.n_tokens + (own - oldest);
            store_row<HEAD_DIM>(new_keys + source * HEAD_DIM, key_in(chunk, own - first), keys[simd], lane);
#if !LATENT
            store_row<VALUE_DIM>(new_values + source * VALUE_DIM, value_in(chunk, own - first), values[simd], lane);
#endif
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        NewRows rows = {uint(row - first), uint(min(row + long(n_simds), stop) - first), keys[0], values[0]};
        CALL_APPEND(head.append, chunk, rows, index, n_simds * LANES)
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
}
