// Appending to the cache: new keys and values, and what selection makes of them beside a chunk's rows.
// The same as cpu_kernels/append.py.

#if QUANTISED
// Store a row of f16 as q8_0, all lanes together. A row that is not finite gets a NaN for its scale.
inline void store_row(device const half *source, device uchar *target, uint lane) {
    float largest = 0.0f;
    bool is_finite = true;
    for (uint column = lane; column < HEAD_DIM; column += LANES) {
        float value = float(source[column]);
        is_finite = is_finite && isfinite(value);
        largest = max(largest, fabs(value));
    }
    largest = simd_max(largest);
    is_finite = simd_all(is_finite);
    float scale = is_finite ? largest / 127.0f : NAN;
    for (uint column = lane; column < HEAD_DIM; column += LANES) {
        float value = scale > 0.0f ? rint(float(source[column]) / scale) : 0.0f;
        reinterpret_cast<device char *>(target)[column] = char(int(value));
    }
    if (lane == 0) {
        *reinterpret_cast<device float *>(target + HEAD_DIM) = scale;
    }
}
#else
inline void store_row(device const half *source, device uchar *target, uint lane) {
    for (uint part = lane; part < PARTS; part += LANES) {
        reinterpret_cast<device uint4 *>(target)[part] = reinterpret_cast<device const uint4 *>(source)[part];
    }
}
#endif

// Take a value into a bound of its page; the page's first value sets it, and a NaN stays.
inline void take_bound(device half *bound, float value, bool is_first, bool is_upper) {
    float before = float(*bound);
    bool beyond = is_upper ? value > before : value < before;
    if (is_first || beyond || isnan(value)) {
        *bound = half(value);
    }
}

// Store the newest n_tokens rows of each head. A threadgroup stores those that lie in one chunk.
// threadgroups (chunks that are touched, n_kv_head)
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
    long number = oldest / CHUNK_ROWS + place.x;
    long first = max(oldest, number * long(CHUNK_ROWS));
    long stop = min(head.n_tail, (number + 1) * long(CHUNK_ROWS));
    if (first >= stop) {
        return;
    }
    device uchar *chunk = head.tail_chunks[number].bytes;
    for (long row = first + simd; row < stop; row += n_simds) {
        ulong source = (place.y * step.n_tokens + (row - oldest)) * HEAD_DIM;
        long within = row % CHUNK_ROWS * ROW_BYTES;
        store_row(new_keys + source, chunk + head.key_offset + within, lane);
        store_row(new_values + source, chunk + head.value_offset + within, lane);
    }
    threadgroup_barrier(mem_flags::mem_device);
    for (uint column = index; column < HEAD_DIM; column += n_simds * LANES) {
        float sum = 0.0f, key_sum = 0.0f, square_sum = 0.0f;
        device float *sums = reinterpret_cast<device float *>(chunk + head.sum_offset);
        device float *moments = reinterpret_cast<device float *>(chunk + head.moment_offset);
        if (head.sum_offset != 0 && first % CHUNK_ROWS != 0) {
            sum = sums[column];
        }
        if (head.moment_offset != 0 && first % CHUNK_ROWS != 0) {
            key_sum = moments[column];
            square_sum = moments[HEAD_DIM + column];
        }
        for (long row = first; row < stop; row++) {
            long within = row % CHUNK_ROWS;
            float key = element(chunk + head.key_offset + within * ROW_BYTES, column);
            if (head.page_offset != 0) {
                device half *bounds = reinterpret_cast<device half *>(chunk + head.page_offset);
                device half *bound = bounds + within / PAGE_ROWS * 2 * HEAD_DIM + column;
                bool is_first = within % PAGE_ROWS == 0;
                take_bound(bound, key, is_first, false);
                take_bound(bound + HEAD_DIM, key, is_first, true);
            }
            if (head.column_offset != 0) {
                reinterpret_cast<device half *>(chunk + head.column_offset)[column * CHUNK_ROWS + within] = half(key);
            }
            key_sum += key;
            square_sum += key * key;
            if (head.sum_offset != 0) {
                sum += element(chunk + head.value_offset + within * ROW_BYTES, column);
            }
        }
        if (head.moment_offset != 0) {
            moments[column] = key_sum;
            moments[HEAD_DIM + column] = square_sum;
        }
        if (head.sum_offset != 0) {
            sums[column] = sum;
        }
    }
}
