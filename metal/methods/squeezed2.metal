// Squeezed2: `squeezed` with a lookup in two levels. See cpu_kernels/methods/squeezed2.py.
//
// Coarse clusters are the items of the first lookup. The second one has the items of squeezed.metal; clusters that the
// first lookup dropped have no size.

constant constexpr float COARSE_KEPT = 0.5f;  // as in cpu_kernels/layout/scores.py

struct Squeezed2State {
    SqueezedState clusters;
    device const half *coarse_centroids;
    device const int *coarse_starts;
    long n_coarse;
    float coarse_threshold;
};

inline device const Squeezed2State &squeezed2_state(device const Head &head) {
    return *reinterpret_cast<device const Squeezed2State *>(head.state);
}

inline void squeezed2_score(device const Head &head, device const float *queries, uint share, uint n_shares,
                            thread const Team &team) {
    device const Squeezed2State &state = squeezed2_state(head);
    Range range = share_of(state.n_coarse, share, n_shares);
    score_centroids(head, queries, state.coarse_centroids, nullptr, range, 0, team);
}

// Centroids that are looked up, without those of the tail: all coarse ones, and those of the clusters that are kept.
inline long count_lookup(device const Head &head, thread const Team &team) {
    device const Squeezed2State &state = squeezed2_state(head);
    uint n_kept = 0;
    for (long i = team.index; i < state.clusters.n_clusters; i += team.n_threads) {
        n_kept += uint(list_of(head)[i]);
    }
    return state.n_coarse + long(team_prefix(uint2(n_kept, 0), team).total.x);
}

// Keep the clusters in the best coarse clusters, for one token. The other clusters get no size.
inline void squeezed2_narrow(device const Head &head, thread long &n_bytes, thread const Team &team) {
    device const Squeezed2State &state = squeezed2_state(head);
    device const int *starts = state.clusters.cluster_starts;
    device float *sizes = sizes_of(head);
    for (long i = team.index; i < state.n_coarse; i += team.n_threads) {
        sizes[i] = float(starts[state.coarse_starts[i + 1]] - starts[state.coarse_starts[i]]);
        importance_of(head)[i] = 0.0f;
    }
    threadgroup_barrier(mem_flags::mem_device);
    weigh_items(head, state.n_coarse, team);
    threadgroup_barrier(mem_flags::mem_device);
    float wanted = COARSE_KEPT * float(clustered_rows(state.clusters));
    float least = least_of(head, state.n_coarse, state.coarse_threshold, wanted, team);
    device int *kept = list_of(head);
    for (long i = team.index; i < state.n_coarse; i += team.n_threads) {
        bool keeps = !(importance_of(head)[i] <= least);  // keep a NaN, so that it reaches the output
        for (int cluster = state.coarse_starts[i]; cluster < state.coarse_starts[i + 1]; cluster++) {
            kept[cluster] = keeps;
        }
    }
    threadgroup_barrier(mem_flags::mem_device);
    start_items(head, team);
    for (long i = team.index; i < state.clusters.n_clusters; i += team.n_threads) {
        if (!kept[i]) {
            sizes[i] = 0.0f;
        }
    }
    threadgroup_barrier(mem_flags::mem_device);
    n_bytes += count_lookup(head, team) * HEAD_DIM * 2;
}

inline void squeezed2_score_narrowed(device const Head &head, device const float *queries, uint share, uint n_shares,
                                     thread const Team &team) {
    score_clusters(head, queries, sizes_of(head), share, n_shares, team);
}

inline void squeezed2_select(device const Head &head, device const float *queries, uint n_tokens,
                             thread Selection &selection, thread const Team &team) {
    if (n_tokens > 1) {
        dense_select(head, queries, n_tokens, selection, team);
    } else {
        select_clusters(head, count_lookup(head, team), selection, team);
    }
}
