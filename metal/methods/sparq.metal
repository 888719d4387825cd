// SparQ: the rows that score highest by a few of the query's components. See cpu_kernels/methods/sparq.py.

constant constexpr uint MEASURED_CHUNKS = 8;  // as there

struct SparqState {
    long n_rows;
    long n_recent;
    long n_components;
    long reallocates;
    long by_query;  // these are 0 or unused: Metal has octavo's own rules, for a group, and the transposed copy only
    long by_coverage;
    long n_bytes;
    long n_own;
    long n_own_components;
};

inline device const SparqState &sparq_state(device const Head &head) {
    return *reinterpret_cast<device const SparqState *>(head.state);
}

// A chunk's extras: the sums of its keys and of their squares, (2, HEAD_DIM) f32; the sum of its values, (VALUE_DIM) f32;
// and a copy of its keys: of q8_0 a scale for each row, (CHUNK_ROWS) f16, and always the keys transposed,
// (HEAD_DIM, CHUNK_ROWS) f16 or int8 (see cpu_kernels/rows/columns.py).
inline device float *moments_of(device uchar *chunk) {
    return reinterpret_cast<device float *>(extras_of(chunk));
}

inline device float *value_sum_of(device uchar *chunk) {
    return moments_of(chunk) + 2 * HEAD_DIM;
}

inline device half *halves_of(device uchar *chunk) {
    return reinterpret_cast<device half *>(value_sum_of(chunk) + VALUE_DIM);
}

#if QUANTISED
constant constexpr uint ELEMENT_BYTES = 1, COPIED_SCALE_BYTES = 2;

inline device char *columns_of(device uchar *chunk) {
    return reinterpret_cast<device char *>(halves_of(chunk) + CHUNK_ROWS);
}

// Copy a key, all lanes of a simd group together. It gets one scale, also if it is latent.
inline void copy_key(device uchar *chunk, uint row, threadgroup const float *key, uint lane) {
    float largest = 0.0f;
    bool is_finite = true;
    for (uint column = lane; column < HEAD_DIM; column += LANES) {
        is_finite = is_finite && isfinite(key[column]);
        largest = max(largest, fabs(key[column]));
    }
    largest = largest_size(largest, is_finite);
    for (uint column = lane; column < HEAD_DIM; column += LANES) {
        columns_of(chunk)[column * CHUNK_ROWS + row] = rounded(key[column], largest);
    }
    if (lane == 0) {
        halves_of(chunk)[row] = half(largest / 127.0f);
    }
}

inline float copied_scale(device uchar *chunk, uint row) {
    return float(halves_of(chunk)[row]);
}
#else
constant constexpr uint ELEMENT_BYTES = 2, COPIED_SCALE_BYTES = 0;

inline device half *columns_of(device uchar *chunk) {
    return halves_of(chunk);
}

inline void copy_key(device uchar *chunk, uint row, threadgroup const float *key, uint lane) {
    for (uint column = lane; column < HEAD_DIM; column += LANES) {
        columns_of(chunk)[column * CHUNK_ROWS + row] = half(key[column]);
    }
}

inline float copied_scale(device uchar *, uint) {
    return 1.0f;
}
#endif

inline void sparq_append(device uchar *chunk, thread const NewRows &rows, uint index, uint n_threads) {
    uint n = rows.stop - rows.start;
    for (uint i = index / LANES; i < n; i += n_threads / LANES) {
        copy_key(chunk, rows.start + i, rows.keys + i * HEAD_DIM, index % LANES);
    }
    device float *moments = moments_of(chunk);
    for (uint column = index; column < HEAD_DIM; column += n_threads) {
        float key_sum = rows.start == 0 ? 0.0f : moments[column];
        float square_sum = rows.start == 0 ? 0.0f : moments[HEAD_DIM + column];
        for (uint i = 0; i < n; i++) {
            float key = rows.keys[i * HEAD_DIM + column];
            key_sum += key;
            square_sum += key * key;
        }
        moments[column] = key_sum;
        moments[HEAD_DIM + column] = square_sum;
    }
    device float *value_sums = value_sum_of(chunk);
    for (uint column = index; column < VALUE_DIM; column += n_threads) {
        float sum = rows.start == 0 ? 0.0f : value_sums[column];
        for (uint i = 0; i < n; i++) {
            sum += rows.values[i * VALUE_ELEMENTS + column];
        }
        value_sums[column] = sum;
    }
}

// The number of chunks that the spread is measured over, and among how many first ones: full ones, if any.
struct Measured {
    long n;
    long n_chunks;
};

inline Measured measured_chunks(device const Head &head) {
    long n_chunks = max(head.n_tail / CHUNK_ROWS, 1l);
    Measured measured = {min(n_chunks, long(MEASURED_CHUNKS)), n_chunks};
    return measured;
}

// The standard deviation of a component over the keys of some chunks. A NaN stays.
inline float measure_spread(device const Head &head, uint column) {
    Measured measured = measured_chunks(head);
    float sum = 0.0f, square_sum = 0.0f;
    for (long number = 0; number < measured.n; number++) {
        device const float *moments = moments_of(chunk_at(head, number * measured.n_chunks / measured.n));
        sum += moments[column];
        square_sum += moments[HEAD_DIM + column];
    }
    float n_rows = float(measured.n * min(head.n_tail, long(CHUNK_ROWS)));
    float mean = sum / n_rows;
    float variance = square_sum / n_rows - mean * mean;
    return variance < 0.0f ? 0.0f : sqrt(variance);
}

// The components that score rows, in a team's working memory.
struct Components {
    threadgroup int *columns;     // (HEAD_DIM) the chosen components
    threadgroup int *magnitudes;  // (HEAD_DIM) bits of spread * |q|, which sort as the numbers do
    threadgroup float *spreads;   // (HEAD_DIM) standard deviations over keys
    threadgroup float *factors;   // (GROUP) of the query heads
};

inline Components components_in(thread const Team &team) {
    threadgroup int *columns = reinterpret_cast<threadgroup int *>(team.floats);
    Components chosen = {columns, columns + HEAD_DIM, team.floats + 2 * HEAD_DIM, team.floats + 3 * HEAD_DIM};
    return chosen;
}

// Choose the n components with the largest spread * |q|, |q| summed over the group; of equal ones the first. The
// factors compensate for the other components. If a spread is NaN, all factors are; if a query is, its own factor is.
inline void choose_components(device const Head &head, device const float *queries, uint n,
                              thread const Components &chosen, thread const Team &team) {
    for (uint i = team.index; i < HEAD_DIM; i += team.n_threads) {
        float sum = 0.0f, spread = measure_spread(head, i);
        for (uint g = 0; g < GROUP; g++) {
            sum += fabs(queries[g * HEAD_DIM + i]);
        }
        float magnitude = spread * sum;
        chosen.magnitudes[i] = as_type<int>(magnitude < MAXFLOAT ? magnitude : MAXFLOAT);
        chosen.spreads[i] = spread;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = team.index; i < HEAD_DIM; i += team.n_threads) {
        int own = chosen.magnitudes[i];
        uint rank = 0;
        for (uint j = 0; j < HEAD_DIM; j++) {
            int other = chosen.magnitudes[j];
            rank += uint(other > own || (other == own && j < i));
        }
        if (rank < n) {
            chosen.columns[rank] = int(i);
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint g = team.index; g < GROUP; g += team.n_threads) {
        float whole = 0.0f, part = 0.0f;
        for (uint i = 0; i < HEAD_DIM; i++) {
            float product = queries[g * HEAD_DIM + i] * chosen.spreads[i];
            whole += product * product;
        }
        for (uint i = 0; i < n; i++) {
            uint column = uint(chosen.columns[i]);
            float product = queries[g * HEAD_DIM + column] * chosen.spreads[column];
            part += product * product;
        }
        chosen.factors[g] = part == 0.0f ? 1.0f : sqrt(whole / part);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
}

// Whether all rows are selected, without scoring.
inline bool selects_all(device const Head &head) {
    return sparq_state(head).n_rows >= head.n_tail;
}

// Partial scores of rows. A thread scores one row: neighbours read neighbours of a column.
inline void sparq_score(device const Head &head, device const float *queries, uint share, uint n_shares,
                        thread const Team &team) {
    if (selects_all(head)) {
        return;
    }
    Range rows = share_of(head.n_tail, share, n_shares);
    uint n = uint(min(sparq_state(head).n_components, long(HEAD_DIM)));
    Components chosen = components_in(team);
    choose_components(head, queries, n, chosen, team);
    for (long row = rows.start + team.index; row < rows.stop; row += team.n_threads) {
        device uchar *chunk = chunk_at(head, row / CHUNK_ROWS);
        uint within = uint(row % CHUNK_ROWS);
        float products[HEADS], scale = copied_scale(chunk, within);
        for (uint first = 0; first < GROUP; first += HEADS) {
            uint n_heads = min(uint(HEADS), GROUP - first);
            for (uint h = 0; h < HEADS; h++) {
                products[h] = 0.0f;
            }
            for (uint i = 0; i < n; i++) {
                uint column = uint(chosen.columns[i]);
                float key = float(columns_of(chunk)[column * CHUNK_ROWS + within]);
                for (uint h = 0; h < n_heads; h++) {
                    uint g = first + h;
                    products[h] = fma(queries[g * HEAD_DIM + column] * chosen.factors[g], key, products[h]);
                }
            }
            for (uint h = 0; h < HEADS; h++) {
                products[h] *= scale;
            }
            write_scores(head, row, first, products);
        }
    }
}

// After selection the head's importance is no longer needed. It is replaced by the share of each query head's attention
// in the selected rows, (GROUP) f32, and then the mean of all values, (VALUE_DIM) f32.
inline device float *kept_shares(device const Head &head) {
    return importance_of(head);
}

inline device float *mean_value(device const Head &head) {
    return importance_of(head) + GROUP;
}

// Note that all rows are attended: query heads give no attention to the mean value.
inline void keep_everything(device const Head &head, thread const Team &team) {
    for (uint g = team.index; g < GROUP; g += team.n_threads) {
        kept_shares(head)[g] = 1.0f;
    }
}

// Store the share of each query head's attention in the selected rows, of which `kept` is that in this thread's rows;
// and the mean of all values.
inline void keep_mean(device const Head &head, thread const float (&kept)[GROUP],
                      thread const Softmax (&softmax)[GROUP], thread Selection &selection, thread const Team &team) {
    for (uint g = 0; g < GROUP; g++) {
        float sum = team_sum(kept[g], team);
        if (team.index == 0) {
            kept_shares(head)[g] = sum / softmax[g].total;
        }
    }
    long n_chunks = count_chunks(head);
    for (uint column = team.index; column < VALUE_DIM; column += team.n_threads) {
        float sum = 0.0f;
        for (long chunk = 0; chunk < n_chunks; chunk++) {
            sum += value_sum_of(chunk_at(head, chunk))[column];
        }
        mean_value(head)[column] = sum / float(head.n_tail);
    }
    selection.n_bytes += n_chunks * VALUE_DIM * 4;
}

// The first place in a rising list of n rows whose row is not before `row`.
inline int find_row(device const int *list, int n, long row) {
    int low = 0, high = n;
    while (low < high) {
        int middle = (low + high) / 2;
        if (list[middle] < row) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

// The n_rows best rows, the newest n_recent among them: a rising list for each chunk. A batch attends to everything.
inline void sparq_select(device const Head &head, device const float *queries, uint n_tokens,
                         thread Selection &selection, thread const Team &team) {
    device const SparqState &state = sparq_state(head);
    long n = head.n_tail;
    Softmax softmax[GROUP];
    if (n_tokens > 1) {
        dense_select(head, queries, n_tokens, selection, team);
        return;
    }
    if (selects_all(head)) {
        keep_everything(head, team);
        dense_select(head, queries, n_tokens, selection, team);
        return;
    }
    selection.n_bytes += n * (min(state.n_components, long(HEAD_DIM)) * ELEMENT_BYTES + COPIED_SCALE_BYTES);
    selection.n_bytes += measured_chunks(head).n * HEAD_DIM * 8;
    if (!sum_attention(head, n, softmax, team)) {  // attend to all, so that a NaN reaches the output
        keep_everything(head, team);
        dense_select(head, queries, n_tokens, selection, team);
        return;
    }
    device float *importance = importance_of(head);
    long n_recent = min(state.n_recent, n);
    for (long i = team.index; i < n; i += team.n_threads) {
        if (i >= n - n_recent) {
            importance[i] = MAXFLOAT;
        }
    }
    Top top = find_top(importance, n, max(state.n_rows, n_recent), team);
    device int *list = list_of(head);
    float kept[GROUP];
    for (uint g = 0; g < GROUP; g++) {
        kept[g] = 0.0f;
    }
    uint2 seen = uint2(0, 0);
    for (long base = 0; base < n; base += team.n_threads) {
        long row = base + team.index;
        Choice choice = choose(row < n ? importance[row] : 0.0f, row < n, top, seen, team);
        if (choice.taken) {
            list[choice.before] = int(row);
            for (uint g = 0; g < GROUP; g++) {
                kept[g] += exp(scores_of(head, g)[row] - softmax[g].top);
            }
        }
    }
    int n_listed = int(seen.x + min(seen.y, top.n_equal));
    threadgroup_barrier(mem_flags::mem_device);
    if (state.reallocates) {
        keep_mean(head, kept, softmax, selection, team);
    }
    for (long chunk = team.index; chunk < count_chunks(head); chunk += team.n_threads) {
        int first = find_row(list, n_listed, chunk * long(CHUNK_ROWS));
        int stop = find_row(list, n_listed, (chunk + 1) * long(CHUNK_ROWS));
        device uchar *rows = chunk_at(head, chunk);
        Span span = {key_in(rows, 0), value_in(rows, 0), list + first, first, stop - first, ANY_ORDER, 0};
        selection.spans[chunk] = span;
    }
    selection.selected.n_spans = int(count_chunks(head));
    selection.selected.n_rows = n_listed;
}

// Give the attention of the rows that were left out to the mean value.
inline void sparq_finish(device const Head &head, uint g, uint column, thread float &value) {
    if (sparq_state(head).reallocates) {
        float kept = kept_shares(head)[g];
        if (kept < 1.0f) {
            value = kept * value + (1.0f - kept) * mean_value(head)[column];
        }
    }
}
