// Append to the cache: store new keys and values, and let the heads' methods add them to the chunks' extras.
// See cpu_kernels/attend/append_rows.py.

// Store n f16 as q8_0, all lanes of a simd group together. If one is not finite, the scale is NaN.
inline void quantise(device const half *source, uint n, device uchar *target, device float *scale_place, uint lane) {
    float largest = 0.0f;
    bool is_finite = true;
    for (uint column = lane; column < n; column += LANES) {
        float value = float(source[column]);
        is_finite = is_finite && isfinite(value);
        largest = max(largest, fabs(value));
    }
    largest = simd_max(largest);
    is_finite = simd_all(is_finite);
    float scale = is_finite ? largest / 127.0f : NAN;
    for (uint column = lane; column < n; column += LANES) {
        float value = scale > 0.0f ? rint(float(source[column]) / scale) : 0.0f;
        reinterpret_cast<device char *>(target)[column] = char(int(value));
    }
    if (lane == 0) {
        *scale_place = scale;
    }
}

// Store a row of n f16, all lanes of a simd group together.
inline void store_row(device const half *source, device uchar *target, uint n, uint lane) {
#if QUANTISED
    uint n_first = LATENT ? VALUE_DIM : n;
    device float *scales = reinterpret_cast<device float *>(target + n);
    quantise(source, n_first, target, scales, lane);
    if (LATENT) {
        quantise(source + n_first, n - n_first, target + n_first, scales + 1, lane);
    }
#else
    for (uint part = lane; part < n / 8; part += LANES) {
        reinterpret_cast<device uint4 *>(target)[part] = reinterpret_cast<device const uint4 *>(source)[part];
    }
#endif
}

// Store the newest n_tokens rows of each head. A threadgroup stores those of one chunk.
// threadgroups (most chunks that a head's new rows lie in, n_kv_head)
kernel void append_rows(device const Head *heads [[buffer(0)]],
                        constant Step &step [[buffer(1)]],
                        device const half *new_keys [[buffer(8)]],
                        device const half *new_values [[buffer(9)]],
                        uint3 place [[threadgroup_position_in_grid]],
                        uint index [[thread_index_in_threadgroup]],
                        uint lane [[thread_index_in_simdgroup]],
                        uint simd [[simdgroup_index_in_threadgroup]],
                        uint n_simds [[simdgroups_per_threadgroup]]) {
    device const Head &head = heads[place.y];
    long oldest = head.n_tail - step.n_tokens;
    long number = oldest / CHUNK_ROWS + place.x, first = number * long(CHUNK_ROWS);
    long start = max(oldest, first);
    long stop = min(head.n_tail, first + long(CHUNK_ROWS));
    if (start >= stop) {
        return;
    }
    device uchar *chunk = chunk_at(head, number);
    for (long row = start + simd; row < stop; row += n_simds) {
        ulong source = place.y * step.n_tokens + (row - oldest);
        store_row(new_keys + source * HEAD_DIM, key_in(chunk, row - first), HEAD_DIM, lane);
        if (!LATENT) {
            store_row(new_values + source * VALUE_DIM, value_in(chunk, row - first), VALUE_DIM, lane);
        }
    }
    threadgroup_barrier(mem_flags::mem_device);
    CALL_APPEND(head.append, chunk, uint(start - first), uint(stop - first), index, n_simds * LANES)
}
