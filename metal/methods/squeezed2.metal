// Squeezed2: `squeezed` with a lookup in two levels. See cpu_kernels/methods/squeezed2.py.
//
// Coarse clusters are the items of the first lookup. In the second one the items are those of squeezed.metal, and the
// clusters that the first lookup leaves out have no size.

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

// Keep the clusters in the coarse clusters above their threshold. The other clusters get no size.
inline void keep_clusters(device const Head &head, device const float *queries, uint n_tokens, thread long &n_bytes,
                          thread const Team &team) {
    device const Squeezed2State &state = squeezed2_state(head);
    device const int *starts = state.clusters.cluster_starts;
    device float *sizes = sizes_of(head);
    for (long i = team.index; i < state.n_coarse; i += team.n_threads) {
        sizes[i] = float(starts[state.coarse_starts[i + 1]] - starts[state.coarse_starts[i]]);
        importance_of(head)[i] = 0.0f;
    }
    threadgroup_barrier(mem_flags::mem_device);
    for (uint token = 0; token < n_tokens; token++) {
        if (n_tokens > 1) {
            squeezed2_score(head, queries + token * GROUP * HEAD_DIM, 0, 1, team);
            threadgroup_barrier(mem_flags::mem_device);
        }
        raise_importance(head, state.n_coarse, team);
        threadgroup_barrier(mem_flags::mem_device);
    }
    float least = state.coarse_threshold * float(GROUP);
    uint n_kept = 0;
    device int *kept = list_of(head);
    for (long i = team.index; i < state.n_coarse; i += team.n_threads) {
        bool keeps = !(importance_of(head)[i] <= least);  // keep a NaN, so that it reaches the output
        for (int cluster = state.coarse_starts[i]; cluster < state.coarse_starts[i + 1]; cluster++) {
            kept[cluster] = keeps;
            n_kept += uint(keeps);
        }
    }
    n_kept = team_prefix(uint2(n_kept, 0), team).total.x;
    threadgroup_barrier(mem_flags::mem_device);
    start_items(head, team);
    for (long i = team.index; i < state.clusters.n_clusters; i += team.n_threads) {
        if (!kept[i]) {
            sizes[i] = 0.0f;
        }
    }
    threadgroup_barrier(mem_flags::mem_device);
    n_bytes += (state.n_coarse + n_kept) * HEAD_DIM * 2;
}

inline void squeezed2_narrow(device const Head &head, thread long &n_bytes, thread const Team &team) {
    keep_clusters(head, nullptr, 1, n_bytes, team);
}

inline void squeezed2_score_narrowed(device const Head &head, device const float *queries, uint share, uint n_shares,
                                     thread const Team &team) {
    score_clusters(head, queries, sizes_of(head), share, n_shares, team);
}

inline void squeezed2_select(device const Head &head, device const float *queries, uint n_tokens,
                             thread Selection &selection, thread const Team &team) {
    if (n_tokens > 1) {
        keep_clusters(head, queries, n_tokens, selection.n_bytes, team);
    }
    select_clusters(head, queries, n_tokens, selection, team);
}
