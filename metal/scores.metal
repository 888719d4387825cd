// Scores of what a head may select, for one token: pages, rows by some components, clusters, clusters of clusters.
//
// The threadgroups of a head share its items; scores go into its scratch, and select.metal reads them there.
// The methods are those of cpu_kernels/pages.py, partial.py and clusters.py, which name their sources.

// A share of n items, in steps of `step` items.
struct Share {
    long start;
    long stop;
};

inline Share share_of(long n_items, long step, uint part, uint n_parts) {
    long steps = (n_items + step - 1) / step;
    Share share = {steps * part / n_parts * step, min(steps * (part + 1) / n_parts * step, n_items)};
    return share;
}

// Products of queries with one row of 8 elements a lane: in each lane of the slot, for each query head.
inline void dot_slot(thread const float (&query)[GROUP][8], thread const float (&row)[8],
                     thread float (&products)[GROUP]) {
    for (uint g = 0; g < GROUP; g++) {
        float sum = 0.0f;
        for (uint i = 0; i < 8; i++) {
            sum = fma(query[g][i], row[i], sum);
        }
        products[g] = slot_sum(sum);
    }
}

inline void clear(thread float (&values)[8]) {
    for (uint i = 0; i < 8; i++) {
        values[i] = 0.0f;
    }
}

// Where a simd group is: its rank among those that share the work, and its lane's slot and part.
struct Lane {
    uint simd;
    uint n_simds;
    uint slot;
    uint part;
};

inline Lane lane_at(uint lane, uint simd, uint n_simds) {
    Lane at = {simd, n_simds, lane / SLOT, lane % SLOT};
    return at;
}

// Write the scores of one item.
inline void write_scores(device const Head &head, long item, thread const float (&products)[GROUP]) {
    for (uint g = 0; g < GROUP; g++) {
        scores_of(head, g)[item] = products[g];
    }
}

// q . C_i of clusters, f16 rows, where `sizes` is 0 or says that they have any; score i goes to item first + i.
inline void score_centroids(device const Head &head, device const float *queries, device const half *centroids,
                            device const float *sizes, Share share, long first, Lane at) {
    float query[GROUP][8], row[8], products[GROUP];
    load_queries(queries, at.part, query);
    for (long base = share.start + at.simd * SLOTS; base < share.stop; base += at.n_simds * SLOTS) {
        long i = base + at.slot;
        bool wanted = i < share.stop && (!sizes || sizes[i] > 0.0f);
        clear(row);
        if (wanted && at.part < PARTS) {
            load_halves(centroids + i * HEAD_DIM, at.part, row);
        }
        dot_slot(query, row, products);
        if (wanted && at.part == 0) {
            write_scores(head, first + i, products);
        }
    }
}

// The same of the clusters of chunks of the tail, whose first item is `first`.
inline void score_tail_clusters(device const Head &head, device const float *queries, Share chunks, long first,
                                Lane at) {
    for (long chunk = chunks.start; chunk < chunks.stop; chunk++) {
        Share all = {0, CHUNK_CLUSTERS};
        score_centroids(head, queries, chunk_centroids(head, chunk), nullptr, all, first + chunk * ITEMS_STEP, at);
    }
}

// The upper bounds of pages: the product of (min(q, 0), max(q, 0)) with a page's bounds.
inline void score_pages(device const Head &head, device const float *queries, Share share, Lane at) {
    float query[GROUP][8], split[GROUP][8], row[8], low[GROUP], high[GROUP];
    load_queries(queries, at.part, query);
    for (long base = share.start + at.simd * SLOTS; base < share.stop; base += at.n_simds * SLOTS) {
        long page = base + at.slot;
        bool wanted = page < share.stop && at.part < PARTS;
        for (uint side = 0; side < 2; side++) {
            clear(row);
            if (wanted) {
                device const uchar *bytes = head.tail_chunks[page / CHUNK_PAGES].bytes + head.page_offset;
                device const half *bounds = reinterpret_cast<device const half *>(bytes);
                load_halves(bounds + (page % CHUNK_PAGES * 2 + side) * HEAD_DIM, at.part, row);
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
        if (wanted && at.part == 0) {
            for (uint g = 0; g < GROUP; g++) {
                scores_of(head, g)[page] = low[g] + high[g];
            }
        }
    }
}

// What scoring by components needs in threadgroup memory.
struct Components {
    int columns[HEAD_DIM];      // those that were chosen
    int magnitudes[HEAD_DIM];   // bits of spread * |q|, which have an order
    float spreads[HEAD_DIM];    // standard deviations over keys
    float factors[GROUP];       // of each query head
};

// The standard deviation of a component over the keys of some chunks. A NaN stays.
inline float measure_spread(device const Head &head, uint column) {
    Measured measured = measured_chunks(head);
    float sum = 0.0f, square_sum = 0.0f;
    for (long number = 0; number < measured.n; number++) {
        device const uchar *bytes = head.tail_chunks[number * measured.n_chunks / measured.n].bytes;
        device const float *moments = reinterpret_cast<device const float *>(bytes + head.moment_offset);
        sum += moments[column];
        square_sum += moments[HEAD_DIM + column];
    }
    float n_rows = float(measured.n * min(head.n_tail, long(CHUNK_ROWS)));
    float mean = sum / n_rows;
    float variance = square_sum / n_rows - mean * mean;
    return variance < 0.0f ? 0.0f : sqrt(variance);
}

// Choose the n components with the largest spread * |q|, |q| summed over the group, of equal ones the first; the factors
// make up for what is left out. Where a spread is NaN, so are all factors; where a query is, so is its own.
inline void choose_components(device const Head &head, device const float *queries, uint n,
                              threadgroup Components &chosen, uint index, uint n_threads) {
    for (uint i = index; i < HEAD_DIM; i += n_threads) {
        float sum = 0.0f, spread = measure_spread(head, i);
        for (uint g = 0; g < GROUP; g++) {
            sum += fabs(queries[g * HEAD_DIM + i]);
        }
        float magnitude = spread * sum;
        chosen.magnitudes[i] = as_type<int>(magnitude < MAXFLOAT ? magnitude : MAXFLOAT);
        chosen.spreads[i] = spread;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = index; i < HEAD_DIM; i += n_threads) {
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
    for (uint g = index; g < GROUP; g += n_threads) {
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

// Partial scores of rows, one row a thread: neighbours read neighbours of a column.
inline void score_rows(device const Head &head, device const float *queries, threadgroup Components &chosen,
                       Share share, uint index, uint n_threads) {
    uint n = uint(min(head.n_components, long(HEAD_DIM)));
    choose_components(head, queries, n, chosen, index, n_threads);
    for (long row = share.start + index; row < share.stop; row += n_threads) {
        device const uchar *bytes = head.tail_chunks[row / CHUNK_ROWS].bytes + head.column_offset;
        device const half *columns = reinterpret_cast<device const half *>(bytes) + row % CHUNK_ROWS;
        float products[GROUP];
        for (uint g = 0; g < GROUP; g++) {
            products[g] = 0.0f;
        }
        for (uint i = 0; i < n; i++) {
            uint column = uint(chosen.columns[i]);
            float key = float(columns[column * CHUNK_ROWS]);
            for (uint g = 0; g < GROUP; g++) {
                products[g] = fma(queries[g * HEAD_DIM + column] * chosen.factors[g], key, products[g]);
            }
        }
        write_scores(head, row, products);
    }
}

// threadgroups (parts, n_kv_head)
kernel void score_items(device const Head *heads [[buffer(0)]],
                        device const float *all_queries [[buffer(2)]],
                        uint3 place [[threadgroup_position_in_grid]],
                        uint3 places [[threadgroups_per_grid]],
                        uint index [[thread_index_in_threadgroup]],
                        uint lane [[thread_index_in_simdgroup]],
                        uint simd [[simdgroup_index_in_threadgroup]],
                        uint n_simds [[simdgroups_per_threadgroup]]) {
    threadgroup Components chosen;
    device const Head &head = heads[place.y];
    device const float *queries = all_queries + place.y * GROUP * HEAD_DIM;
    Lane at = lane_at(lane, simd, n_simds);
    if (head.method == PAGES) {
        score_pages(head, queries, share_of(count_pages(head), 1, place.x, places.x), at);
    } else if (head.method == ROWS) {
        Share share = share_of(head.n_tail, 1, place.x, places.x);
        score_rows(head, queries, chosen, share, index, n_simds * LANES);
    } else if (head.method == CLUSTERS) {
        Share share = share_of(head.n_clusters, 1, place.x, places.x);
        score_centroids(head, queries, head.centroids, nullptr, share, 0, at);
        Share chunks = share_of(head.n_clustered, 1, place.x, places.x);
        score_tail_clusters(head, queries, chunks, tail_items(head.n_clusters), at);
    } else if (head.method == COARSE) {
        Share share = share_of(head.n_coarse, 1, place.x, places.x);
        score_centroids(head, queries, head.coarse_centroids, nullptr, share, 0, at);
    }
}

// Of heads that look up two levels: the clusters that keep_clusters (select.metal) has left a size, and the tail's.
// threadgroups (parts, n_kv_head)
kernel void score_kept(device const Head *heads [[buffer(0)]],
                       device const float *all_queries [[buffer(2)]],
                       uint3 place [[threadgroup_position_in_grid]],
                       uint3 places [[threadgroups_per_grid]],
                       uint lane [[thread_index_in_simdgroup]],
                       uint simd [[simdgroup_index_in_threadgroup]],
                       uint n_simds [[simdgroups_per_threadgroup]]) {
    device const Head &head = heads[place.y];
    if (head.method != COARSE) {
        return;
    }
    device const float *queries = all_queries + place.y * GROUP * HEAD_DIM;
    Lane at = lane_at(lane, simd, n_simds);
    Share share = share_of(head.n_clusters, 1, place.x, places.x);
    score_centroids(head, queries, head.centroids, sizes_of(head), share, 0, at);
    Share chunks = share_of(head.n_clustered, 1, place.x, places.x);
    score_tail_clusters(head, queries, chunks, tail_items(head.n_clusters), at);
}
