// Squeezed: the clusters of keys that matter. See cpu_kernels/methods/squeezed.py. A batch attends to everything.
//
// The document's clusters are the first items of a head's scratch. The clusters of the tail's chunks begin at the next
// multiple of ITEMS_STEP, and each chunk's take ITEMS_STEP items. Items that are not clusters have no size.

constant constexpr uint ITEMS_STEP = 16;      // as in cpu_kernels/layout/scores.py
constant constexpr uint CHUNK_CLUSTERS = 13;  // as in cpu_kernels/select/tail_clusters.py
constant constexpr long CLUSTERS_RECENT = 128;  // RECENT there
constant constexpr int LOOKUP_APART = 8;        // these three as in cpu_kernels/select/cluster_items.py
constant constexpr long BY_THRESHOLD = -1, EVERYTHING = -2;

struct SqueezedState {
    device const half *centroids;
    device const int *cluster_starts;
    long n_clusters;
    long n_clustered_chunks;
    long n_bytes;
    float threshold;
    float least_share;
    int rules;
    long mean_values;  // this and the following fields are for the estimate, on the CPU only
    long spread;
    long n_estimated;
};

// The state of the lookup in two levels begins with this one.
inline device SqueezedState &squeezed_state(device const Head &head) {
    return *reinterpret_cast<device SqueezedState *>(head.state);
}

inline long first_tail_item(device const SqueezedState &state) {
    return (state.n_clusters + ITEMS_STEP - 1) / ITEMS_STEP * ITEMS_STEP;
}

// The tail's chunks that are looked up for one token.
inline long used_chunks(device const Head &head) {
    return min(squeezed_state(head).n_clustered_chunks, max(head.n_tail - 1 - CLUSTERS_RECENT, 0l) / long(CHUNK_ROWS));
}

inline long count_items(device const Head &head) {
    return first_tail_item(squeezed_state(head)) + used_chunks(head) * ITEMS_STEP;
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
    float query[HEADS][PIECES][8], row[PIECES][8], products[HEADS];
    for (uint g = 0; g < GROUP; g += HEADS) {
        load_queries(queries, g, part, query);
        for (long base = range.start + team.simd * SLOTS; base < range.stop; base += team.n_simds * SLOTS) {
            long i = base + slot;
            bool wanted = i < range.stop && (!sizes || sizes[i] > 0.0f);
            clear(row);
            if (wanted) {
                load_vector(centroids + i * HEAD_DIM, part, row);
            }
            dot_slot(query, row, products);
            if (wanted && part == 0) {
                write_scores(head, first + i, g, products);
            }
        }
    }
}

// A share of the scores of the document's clusters, of all or of those that have a size, and of the tail's.
inline void score_clusters(device const Head &head, device const float *queries, device const float *sizes, uint share,
                           uint n_shares, thread const Team &team) {
    device const SqueezedState &state = squeezed_state(head);
    Range clusters = share_of(state.n_clusters, share, n_shares);
    score_centroids(head, queries, state.centroids, sizes, clusters, 0, team);
    Range chunks = share_of(used_chunks(head), share, n_shares);
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
    for (long i = team.index; i < count_items(head); i += team.n_threads) {
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

// Set the importance of n items for one token: the sum of S_i over the group.
inline void weigh_items(device const Head &head, long n, thread const Team &team) {
    device const float *sizes = sizes_of(head);
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
            importance_of(head)[i] = sum;
        }
    }
}

// The document's rows in clusters.
inline long clustered_rows(device const SqueezedState &state) {
    return state.n_clusters > 0 ? state.cluster_starts[state.n_clusters] : 0;
}

// The rows of clusters that a step with n_lookup centroids should select.
inline float wanted_rows(device const Head &head, long n_lookup, thread const Team &team) {
    device const SqueezedState &state = squeezed_state(head);
    float of_tail = 0.0f;
    for (long chunk = team.index; chunk < used_chunks(head); chunk += team.n_threads) {
        of_tail += float(int(CHUNK_ROWS) - chunk_starts(head, chunk)[0]);
    }
    long n_clustered = clustered_rows(state) + long(team_sum(of_tail, team));
    long n_exact = head.n_document + head.n_tail - n_clustered;
    long n_bytes = state.n_bytes - (state.rules & LOOKUP_APART ? 0l : n_lookup * long(HEAD_DIM) * 2l);
    float spare = float(n_bytes - n_exact * long(TOKEN_BYTES)) / float(TOKEN_BYTES);
    return max(spare, state.least_share * float(n_clustered));
}

// The number above which importance selects, of n items.
inline float least_of(device const Head &head, long n, float threshold, float wanted, thread const Team &team) {
    long n_bytes = squeezed_state(head).n_bytes;
    if (n_bytes == EVERYTHING) {
        return -1.0f;
    }
    return n_bytes == BY_THRESHOLD ? threshold * float(GROUP)
                                   : find_least(importance_of(head), sizes_of(head), n, wanted, team);
}

// The rows of an item whose importance is above `least`. After the items come rows outside clusters: those of the
// document, and then of each chunk of the tail.
inline Candidate cluster_candidate(device const Head &head, long i, float least) {
    device const SqueezedState &state = squeezed_state(head);
    long first_tail = first_tail_item(state), n_items = count_items(head);
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
        return document_rows(head, clustered_rows(state), head.n_document, ANY_ORDER);
    }
    long chunk = i - n_items - 1, row = chunk * CHUNK_ROWS;
    if (chunk < used_chunks(head)) {
        return tail_rows(head, row, row + chunk_starts(head, chunk)[0], ANY_ORDER, 0);
    }
    if (chunk < state.n_clustered_chunks) {  // not due
        return tail_rows(head, row, row + CHUNK_ROWS, ANY_ORDER, 0);
    }
    return rest_of_chunk(head, chunk, 0, 0);
}

// Select the best clusters among the items that have a size, and all rows outside clusters, for one token.
// n_lookup: centroids that are looked up, without those of the tail. The caller counts their bytes.
inline void select_clusters(device const Head &head, long n_lookup, thread Selection &selection,
                            thread const Team &team) {
    long n_items = count_items(head), n_of_tail = used_chunks(head) * CHUNK_CLUSTERS;
    weigh_items(head, n_items, team);
    threadgroup_barrier(mem_flags::mem_device);
    selection.n_bytes += n_of_tail * HEAD_DIM * 2;
    float wanted = wanted_rows(head, n_lookup + n_of_tail, team);
    float least = least_of(head, n_items, squeezed_state(head).threshold, wanted, team);
    long n_candidates = n_items + 1 + count_chunks(head);
    for (long base = 0; base < n_candidates; base += team.n_threads) {
        long i = base + team.index;
        append_spans(i < n_candidates ? cluster_candidate(head, i, least) : no_candidate(), selection, team);
    }
}

inline void squeezed_select(device const Head &head, device const float *queries, uint n_tokens,
                            thread Selection &selection, thread const Team &team) {
    if (n_tokens > 1) {
        dense_select(head, queries, n_tokens, selection, team);
        return;
    }
    start_items(head, team);
    threadgroup_barrier(mem_flags::mem_device);
    long n_clusters = squeezed_state(head).n_clusters;
    selection.n_bytes += n_clusters * HEAD_DIM * 2;
    select_clusters(head, n_clusters, selection, team);
}
