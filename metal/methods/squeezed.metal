// Squeezed: the clusters of keys that matter. See cpu_kernels/methods/squeezed.py.
//
// The document's clusters are the first items of a head's scratch. The clusters of the tail's chunks begin at the next
// multiple of ITEMS_STEP, and each chunk's take ITEMS_STEP items. Items that are no cluster have no size.

constant constexpr uint ITEMS_STEP = 16;      // as in cpu_kernels/scores.py
constant constexpr uint CHUNK_CLUSTERS = 13;  // as in cpu_kernels/tail_clusters.py

struct SqueezedState {
    device const half *centroids;
    device const int *cluster_starts;
    long n_clusters;
    long n_clustered_chunks;
    long n_tail_selected;
    float threshold;
};

// The state of the lookup in two levels begins with this one.
inline device SqueezedState &squeezed_state(device const Head &head) {
    return *reinterpret_cast<device SqueezedState *>(head.state);
}

inline long first_tail_item(device const SqueezedState &state) {
    return (state.n_clusters + ITEMS_STEP - 1) / ITEMS_STEP * ITEMS_STEP;
}

inline long count_items(device const SqueezedState &state) {
    return first_tail_item(state) + state.n_clustered_chunks * ITEMS_STEP;
}

// A clustered chunk's extras: centroids, (CHUNK_CLUSTERS, HEAD_DIM) f16, and rows where clusters start and stop.
inline device const half *chunk_centroids(device const Head &head, long chunk) {
    return reinterpret_cast<device const half *>(extras_of(chunk_at(head, chunk)));
}

inline device const int *chunk_starts(device const Head &head, long chunk) {
    return reinterpret_cast<device const int *>(chunk_centroids(head, chunk) + CHUNK_CLUSTERS * HEAD_DIM);
}

// q . C_i of the clusters in a range; if `sizes` is not null, only of those that have one. Score i goes to item
// first + i.
inline void score_centroids(device const Head &head, device const float *queries, device const half *centroids,
                            device const float *sizes, Range range, long first, thread const Team &team) {
    uint slot = team.lane / SLOT, part = team.lane % SLOT;
    float query[GROUP][8], row[8], products[GROUP];
    load_queries(queries, part, query);
    for (long base = range.start + team.simd * SLOTS; base < range.stop; base += team.n_simds * SLOTS) {
        long i = base + slot;
        bool wanted = i < range.stop && (!sizes || sizes[i] > 0.0f);
        clear(row);
        if (wanted && part < PARTS) {
            load_halves(centroids + i * HEAD_DIM, part, row);
        }
        dot_slot(query, row, products);
        if (wanted && part == 0) {
            write_scores(head, first + i, products);
        }
    }
}

// A share of the scores of the document's clusters, of all or of those that have a size, and of the tail's.
inline void score_clusters(device const Head &head, device const float *queries, device const float *sizes, uint share,
                           uint n_shares, thread const Team &team) {
    device const SqueezedState &state = squeezed_state(head);
    Range clusters = share_of(state.n_clusters, share, n_shares);
    score_centroids(head, queries, state.centroids, sizes, clusters, 0, team);
    Range chunks = share_of(state.n_clustered_chunks, share, n_shares);
    for (long chunk = chunks.start; chunk < chunks.stop; chunk++) {
        Range all = {0, CHUNK_CLUSTERS};
        long first = first_tail_item(state) + chunk * ITEMS_STEP;
        score_centroids(head, queries, chunk_centroids(head, chunk), nullptr, all, first, team);
    }
}

inline void squeezed_score(device const Head &head, device const float *queries, uint share, uint n_shares,
                           thread const Team &team) {
    score_clusters(head, queries, nullptr, share, n_shares, team);
}

// Write the sizes of all items, and set their importance to 0. A barrier must follow.
inline void start_items(device const Head &head, thread const Team &team) {
    device const SqueezedState &state = squeezed_state(head);
    device float *sizes = sizes_of(head);
    long first_tail = first_tail_item(state);
    for (long i = team.index; i < count_items(state); i += team.n_threads) {
        float size = 0.0f;
        if (i < state.n_clusters) {
            size = float(state.cluster_starts[i + 1] - state.cluster_starts[i]);
        } else if (i >= first_tail && (i - first_tail) % ITEMS_STEP < CHUNK_CLUSTERS) {
            long item = i - first_tail;
            device const int *starts = chunk_starts(head, item / ITEMS_STEP) + item % ITEMS_STEP;
            size = float(starts[1] - starts[0]);
        }
        sizes[i] = size;
        importance_of(head)[i] = 0.0f;
    }
}

// Raise the importance of n items to what one token makes of them: the sum of S_i over the group. A NaN stays.
inline void raise_importance(device const Head &head, long n, thread const Team &team) {
    device const float *sizes = sizes_of(head);
    device float *importance = importance_of(head);
    Softmax softmax[GROUP];
    for (uint g = 0; g < GROUP; g++) {
        softmax[g] = softmax_of(head, g, n, sizes, team);
    }
    for (long i = team.index; i < n; i += team.n_threads) {
        if (sizes[i] > 0.0f) {
            float sum = 0.0f;
            for (uint g = 0; g < GROUP; g++) {
                sum += exp(scores_of(head, g)[i] - softmax[g].top) / softmax[g].total;
            }
            float before = importance[i];
            importance[i] = sum <= before || isnan(before) ? before : sum;
        }
    }
}

// The rows of an item whose importance is above `least`. After the items come rows that are in no cluster: those of the
// document, and then of each chunk of the tail.
inline Candidate cluster_candidate(device const Head &head, long i, float least) {
    device const SqueezedState &state = squeezed_state(head);
    long first_tail = first_tail_item(state), n_items = count_items(state);
    if (i < n_items) {
        if (sizes_of(head)[i] <= 0.0f || importance_of(head)[i] <= least) {
            return no_candidate();
        }
        if (i < state.n_clusters) {
            return document_rows(head, state.cluster_starts[i], state.cluster_starts[i + 1], ANY_ORDER);
        }
        long chunk = (i - first_tail) / ITEMS_STEP;
        device const int *starts = chunk_starts(head, chunk) + (i - first_tail) % ITEMS_STEP;
        return tail_rows(head, chunk * CHUNK_ROWS + starts[0], chunk * CHUNK_ROWS + starts[1], ANY_ORDER, 0);
    }
    if (i == n_items) {
        long first = state.n_clusters > 0 ? state.cluster_starts[state.n_clusters] : 0;
        return document_rows(head, first, head.n_document, ANY_ORDER);
    }
    long chunk = i - n_items - 1;
    if (chunk < state.n_clustered_chunks) {
        long row = chunk * CHUNK_ROWS;
        return tail_rows(head, row, row + chunk_starts(head, chunk)[0], ANY_ORDER, 0);
    }
    return rest_of_chunk(head, chunk, 0, 0);
}

// Select the clusters above the threshold among the items that have a size, and all rows that are in no cluster.
inline void select_clusters(device const Head &head, device const float *queries, uint n_tokens,
                            thread Selection &selection, thread const Team &team) {
    device SqueezedState &state = squeezed_state(head);
    long first_tail = first_tail_item(state), n_items = count_items(state);
    for (uint token = 0; token < n_tokens; token++) {
        if (n_tokens > 1) {
            score_clusters(head, queries + token * GROUP * HEAD_DIM, sizes_of(head), 0, 1, team);
            threadgroup_barrier(mem_flags::mem_device);
        }
        raise_importance(head, n_items, team);
        threadgroup_barrier(mem_flags::mem_device);
    }
    selection.n_bytes += state.n_clustered_chunks * CHUNK_CLUSTERS * HEAD_DIM * 2;
    float least = state.threshold * float(GROUP);
    long n_candidates = n_items + 1 + count_chunks(head);
    uint of_tail = 0;
    for (long base = 0; base < n_candidates; base += team.n_threads) {
        long i = base + team.index;
        Candidate candidate = i < n_candidates ? cluster_candidate(head, i, least) : no_candidate();
        if (i >= first_tail && i < n_items) {
            of_tail += uint(candidate.n_rows);
        }
        append_spans(candidate, selection, team);
    }
    of_tail = team_prefix(uint2(of_tail, 0), team).total.x;
    if (team.index == 0) {
        state.n_tail_selected = n_tokens == 1 ? long(of_tail) : -1;
    }
}

inline void squeezed_select(device const Head &head, device const float *queries, uint n_tokens,
                            thread Selection &selection, thread const Team &team) {
    start_items(head, team);
    threadgroup_barrier(mem_flags::mem_device);
    selection.n_bytes += squeezed_state(head).n_clusters * HEAD_DIM * 2;
    select_clusters(head, queries, n_tokens, selection, team);
}
