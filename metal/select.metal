// Selection: which stored rows a head attends, as spans. One threadgroup for each head, for all of its queries.
//
// The methods are those of cpu_kernels/select.py, streaming.py, pages.py, partial.py and clusters.py, which name their
// sources. A NaN among scores makes a head attend everything, so that it shows. Zero or negative importance is never
// above a threshold of 0 or more.

// A threadgroup, and memory in which its simd groups exchange what each has.
struct Team {
    uint index;
    uint n_threads;
    uint lane;
    uint simd;
    uint n_simds;
    threadgroup float *floats;  // LANES each
    threadgroup uint2 *pairs;
};

// The largest value of all threads, in each of them.
inline float team_max(float value, thread const Team &team) {
    value = simd_max(value);
    if (team.lane == 0) {
        team.floats[team.simd] = value;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    value = simd_max(team.lane < team.n_simds ? team.floats[team.lane] : LOWEST_SCORE);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return value;
}

inline float team_sum(float value, thread const Team &team) {
    value = simd_sum(value);
    if (team.lane == 0) {
        team.floats[team.simd] = value;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    value = simd_sum(team.lane < team.n_simds ? team.floats[team.lane] : 0.0f);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return value;
}

// Sums of pairs over the threads before this one, and over all threads.
struct Prefix {
    uint2 before;
    uint2 total;
};

inline uint2 simd_before(uint2 value) {
    return uint2(simd_prefix_exclusive_sum(value.x), simd_prefix_exclusive_sum(value.y));
}

inline Prefix team_prefix(uint2 value, thread const Team &team) {
    uint2 before = simd_before(value);
    if (team.lane == LANES - 1) {
        team.pairs[team.simd] = before + value;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint2 sums = team.lane < team.n_simds ? team.pairs[team.lane] : uint2(0, 0);
    uint2 starts = simd_before(sums);
    uint2 own = uint2(simd_shuffle(starts.x, ushort(team.simd)), simd_shuffle(starts.y, ushort(team.simd)));
    uint2 total = uint2(simd_sum(sums.x), simd_sum(sums.y));
    threadgroup_barrier(mem_flags::mem_threadgroup);
    Prefix prefix = {own + before, total};
    return prefix;
}

// What a span candidate is; none where n_rows is not above 0.
struct Candidate {
    device const uchar *keys;
    device const uchar *values;
    long n_rows;
    int position;
    int window;
};

inline Candidate no_candidate() {
    Candidate none = {nullptr, nullptr, 0, ANY_ORDER, 0};
    return none;
}

inline Candidate document_rows(device const Head &head, long start, long stop, int position) {
    Candidate rows = {head.document_keys + start * ROW_BYTES, head.document_values + start * ROW_BYTES, stop - start,
                      position, int(head.window)};
    return rows;
}

// Rows of the tail that lie in one chunk.
inline Candidate tail_rows(device const Head &head, long start, long stop, int position, int window) {
    if (start >= stop) {
        return no_candidate();
    }
    Candidate rows = {tail_row(head, head.key_offset, start), tail_row(head, head.value_offset, start), stop - start,
                      position, window};
    return rows;
}

// All rows of the tail from one on that lie in a chunk, with their positions.
inline Candidate rest_of_chunk(device const Head &head, long chunk, long first, int window) {
    long start = max(first, chunk * long(CHUNK_ROWS));
    long stop = min(head.n_tail, (chunk + 1) * long(CHUNK_ROWS));
    return tail_rows(head, start, stop, int(head.tail_position + start), window);
}

// The oldest row of the tail that the step's first token sees, below 0 for one before the tail.
inline long first_visible_row(device const Head &head, uint n_tokens, long window) {
    return window > 0 ? head.n_tail - long(n_tokens) - window + 1 : -head.tail_position;
}

// Append the threads' candidates to the spans, in the order of the threads.
inline void append_spans(Candidate candidate, device Span *spans, thread Selected &selected, thread const Team &team) {
    bool taken = candidate.n_rows > 0;
    Prefix prefix = team_prefix(uint2(taken, taken ? uint(candidate.n_rows) : 0u), team);
    if (taken) {
        Span span = {candidate.keys, candidate.values, nullptr, selected.n_rows + int(prefix.before.y),
                     int(candidate.n_rows), candidate.position, candidate.window};
        spans[selected.n_spans + int(prefix.before.x)] = span;
    }
    selected.n_spans += int(prefix.total.x);
    selected.n_rows += int(prefix.total.y);
}

// Every row that the step's tokens may see: dense attention, inside the layer's window.
inline void select_all(device const Head &head, uint n_tokens, device Span *spans, thread Selected &selected,
                       thread const Team &team) {
    long first_visible = first_visible_row(head, n_tokens, head.window);
    int window = int(head.window);
    long n_chunks = count_chunks(head);
    for (long base = 0; base <= n_chunks; base += team.n_threads) {
        long i = base + team.index;
        Candidate candidate = no_candidate();
        if (i == 0) {
            long first = 0, position = head.document_position;
            if (position != ANY_ORDER) {
                first = max(0l, first_visible + head.tail_position - position);
                position += first;
            }
            candidate = document_rows(head, first, head.n_document, int(position));
        } else if (i <= n_chunks) {
            candidate = rest_of_chunk(head, i - 1, max(0l, first_visible), window);
        }
        append_spans(candidate, spans, selected, team);
    }
}

// Sinks, and the newest rows that each token sees.
inline void select_recent(device const Head &head, uint n_tokens, device Span *spans, thread Selected &selected,
                          thread const Team &team) {
    long n_sinks = min(head.n_sinks, head.n_tail);
    long first = max(max(n_sinks, head.n_dropped), first_visible_row(head, n_tokens, head.n_recent));
    long n_chunks = count_chunks(head);
    for (long base = 0; base <= n_chunks; base += team.n_threads) {
        long i = base + team.index;
        Candidate candidate = no_candidate();
        if (i == 0) {
            candidate = tail_rows(head, 0, n_sinks, int(head.tail_position), 0);
        } else if (i <= n_chunks) {
            candidate = rest_of_chunk(head, i - 1, first, int(head.n_recent));
        }
        append_spans(candidate, spans, selected, team);
    }
}

// The softmax of a query head's scores over the items that have a size, or over all: exp(score - top) / total.
struct Softmax {
    float top;
    float total;
};

inline Softmax softmax_of(device const Head &head, uint g, long n, device const float *sizes,
                          thread const Team &team) {
    device float *scores = scores_of(head, g);
    float top = LOWEST_SCORE;
    for (long i = team.index; i < n; i += team.n_threads) {
        if (!sizes || sizes[i] > 0.0f) {
            float score = capped(scores[i], head.softcap);
            scores[i] = score;
            top = max(top, score);
        }
    }
    top = team_max(top, team);
    float total = 0.0f;
    for (long i = team.index; i < n; i += team.n_threads) {
        if (!sizes) {
            total += exp(scores[i] - top);
        } else if (sizes[i] > 0.0f) {
            total += sizes[i] * exp(scores[i] - top);
        }
    }
    Softmax softmax = {top, team_sum(total, team)};
    return softmax;
}

// Add up the shares of all query heads; whether all are numbers. A thread reads later only what it wrote here.
inline bool add_shares(device const Head &head, long n, thread Softmax (&softmax)[GROUP], thread const Team &team) {
    device float *importance = head.scratch;
    bool are_numbers = true;
    for (uint g = 0; g < GROUP; g++) {
        softmax[g] = softmax_of(head, g, n, nullptr, team);
        are_numbers = are_numbers && !isnan(softmax[g].total);
        device const float *scores = scores_of(head, g);
        for (long i = team.index; i < n; i += team.n_threads) {
            float share = exp(scores[i] - softmax[g].top) / softmax[g].total;
            importance[i] = g == 0 ? share : importance[i] + share;
        }
    }
    return are_numbers;
}

// The k largest of n numbers of at least 0: those whose bits are above `bits`, and the first n_equal that have them.
struct Top {
    int bits;
    uint n_equal;
};

inline Top find_top(device const float *values, long n, long k, thread const Team &team) {
    Top top = {-1, 0};
    if (k >= n) {
        return top;
    }
    int low = 0, high = 0x7f800001;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        uint count = 0;
        for (long i = team.index; i < n; i += team.n_threads) {
            count += uint(as_type<int>(values[i]) >= middle);
        }
        if (long(team_prefix(uint2(count, 0), team).total.x) >= k) {
            low = middle;
        } else {
            high = middle;
        }
    }
    uint above = 0;
    for (long i = team.index; i < n; i += team.n_threads) {
        above += uint(as_type<int>(values[i]) > low);
    }
    top.bits = low;
    top.n_equal = uint(k) - team_prefix(uint2(above, 0), team).total.x;
    return top;
}

// Whether this thread's number is among the largest, and how many before it are. `seen` counts over the blocks.
struct Choice {
    bool taken;
    uint before;
};

inline Choice choose(float value, bool is_one, Top top, thread uint2 &seen, thread const Team &team) {
    int bits = as_type<int>(value);
    bool above = is_one && bits > top.bits, equal = is_one && bits == top.bits;
    Prefix prefix = team_prefix(uint2(above, equal), team);
    uint2 before = seen + prefix.before;
    Choice choice = {above || (equal && before.y < top.n_equal), before.x + min(before.y, top.n_equal)};
    seen += prefix.total;
    return choice;
}

// The n_selected pages with the highest bounds, the newest always among them.
inline void select_pages(device const Head &head, device Span *spans, thread Selected &selected, thread long &n_bytes,
                         thread const Team &team) {
    long n = count_pages(head);
    Softmax softmax[GROUP];
    if (!add_shares(head, n, softmax, team)) {
        select_all(head, 1, spans, selected, team);
        return;
    }
    device float *importance = head.scratch;
    if ((n - 1) % team.n_threads == team.index) {
        importance[n - 1] = MAXFLOAT;
    }
    n_bytes += n * HEAD_DIM * 4;
    Top top = find_top(importance, n, head.n_selected, team);
    uint2 seen = uint2(0, 0);
    for (long base = 0; base < n; base += team.n_threads) {
        long page = base + team.index;
        Choice choice = choose(page < n ? importance[page] : 0.0f, page < n, top, seen, team);
        Candidate candidate = no_candidate();
        if (choice.taken) {
            long start = page * PAGE_ROWS;
            candidate = tail_rows(head, start, min(start + long(PAGE_ROWS), head.n_tail), ANY_ORDER, 0);
        }
        append_spans(candidate, spans, selected, team);
    }
}

// Nothing is left out: no query head gives anything to the mean value.
inline void leave_nothing(device const Head &head, thread const Team &team) {
    if (head.reallocation) {
        for (uint g = team.index; g < GROUP; g += team.n_threads) {
            head.reallocation[g] = 1.0f;
        }
    }
}

// The mean of all values, from the sums of chunks.
inline void leave_mean(device const Head &head, thread long &n_bytes, thread const Team &team) {
    long n_chunks = count_chunks(head);
    for (uint column = team.index; column < HEAD_DIM; column += team.n_threads) {
        float sum = 0.0f;
        for (long chunk = 0; chunk < n_chunks; chunk++) {
            sum += reinterpret_cast<device const float *>(head.tail_chunks[chunk].bytes + head.sum_offset)[column];
        }
        head.reallocation[GROUP + column] = sum / float(head.n_tail);
    }
    n_bytes += n_chunks * HEAD_DIM * 4;
}

// The n_selected best rows, the newest n_recent among them: a list for each chunk, of rows that rise.
inline void select_rows(device const Head &head, device Span *spans, thread Selected &selected, thread long &n_bytes,
                        thread const Team &team) {
    long n = head.n_tail;
    Softmax softmax[GROUP];
    if (!add_shares(head, n, softmax, team)) {
        leave_nothing(head, team);
        select_all(head, 1, spans, selected, team);
        return;
    }
    device float *importance = head.scratch;
    long n_recent = min(head.n_recent, n);
    for (long i = team.index; i < n; i += team.n_threads) {
        if (i >= n - n_recent) {
            importance[i] = MAXFLOAT;
        }
    }
    n_bytes += n * min(head.n_components, long(HEAD_DIM)) * 2 + measured_chunks(head).n * HEAD_DIM * 8;
    Top top = find_top(importance, n, max(head.n_selected, n_recent), team);
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
    if (head.reallocation) {
        for (uint g = 0; g < GROUP; g++) {
            float sum = team_sum(kept[g], team);
            if (team.index == 0) {
                head.reallocation[g] = sum / softmax[g].total;
            }
        }
        leave_mean(head, n_bytes, team);
    }
    threadgroup_barrier(mem_flags::mem_device);
    for (long chunk = team.index; chunk < count_chunks(head); chunk += team.n_threads) {
        int ends[2];
        for (int side = 0; side < 2; side++) {  // the first of the list that is not before the chunk, or the next one
            int low = 0, high = n_listed;
            while (low < high) {
                int middle = (low + high) / 2;
                if (list[middle] < (chunk + side) * long(CHUNK_ROWS)) {
                    low = middle + 1;
                } else {
                    high = middle;
                }
            }
            ends[side] = low;
        }
        device const uchar *bytes = head.tail_chunks[chunk].bytes;
        Span span = {bytes + head.key_offset, bytes + head.value_offset, list + ends[0], ends[0], ends[1] - ends[0],
                     ANY_ORDER, 0};
        spans[chunk] = span;
    }
    selected.n_spans = int(count_chunks(head));
    selected.n_rows = n_listed;
}

// Sizes of the document's clusters, 0 for what is not a cluster up to the tail's first item, and of the tail's; no item
// has any importance yet. Returns how many items there are.
inline long start_clusters(device const Head &head, thread const Team &team) {
    long tail = tail_items(head.n_clusters), n_items = tail + head.n_clustered * ITEMS_STEP;
    device float *sizes = sizes_of(head);
    for (long i = team.index; i < n_items; i += team.n_threads) {
        float size = 0.0f;
        if (i < head.n_clusters) {
            size = float(head.cluster_starts[i + 1] - head.cluster_starts[i]);
        } else if (i >= tail && (i - tail) % ITEMS_STEP < CHUNK_CLUSTERS) {
            device const int *starts = chunk_starts(head, (i - tail) / ITEMS_STEP) + (i - tail) % ITEMS_STEP;
            size = float(starts[1] - starts[0]);
        }
        sizes[i] = size;
        head.scratch[i] = 0.0f;
    }
    return n_items;
}

// Raise the items' importance to what one token makes of them: the sum of S_i over the group. A NaN stays.
inline void raise_importance(device const Head &head, long n, thread const Team &team) {
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
            float before = head.scratch[i];
            head.scratch[i] = sum <= before || isnan(before) ? before : sum;
        }
    }
}

// Score, for one token of many, what score_items or score_kept score for one.
inline void score_token(device const Head &head, device const float *queries, bool coarse, thread const Team &team) {
    Lane at = lane_at(team.lane, team.simd, team.n_simds);
    if (coarse) {
        Share all = {0, head.n_coarse};
        score_centroids(head, queries, head.coarse_centroids, nullptr, all, 0, at);
    } else {
        Share all = {0, head.n_clusters}, chunks = {0, head.n_clustered};
        score_centroids(head, queries, head.centroids, sizes_of(head), all, 0, at);
        score_tail_clusters(head, queries, chunks, tail_items(head.n_clusters), at);
    }
    threadgroup_barrier(mem_flags::mem_device);
}

// The coarse clusters whose importance is above the coarse threshold: the clusters of the others lose their size.
inline void keep_clusters_of(device const Head &head, device const float *queries, uint n_tokens, thread long &n_bytes,
                             thread const Team &team) {
    device float *sizes = sizes_of(head);
    for (long i = team.index; i < head.n_coarse; i += team.n_threads) {
        int start = head.coarse_starts[i], stop = head.coarse_starts[i + 1];
        sizes[i] = float(head.cluster_starts[stop] - head.cluster_starts[start]);
        head.scratch[i] = 0.0f;
    }
    threadgroup_barrier(mem_flags::mem_device);
    for (uint token = 0; token < n_tokens; token++) {
        if (n_tokens > 1) {
            score_token(head, queries + token * GROUP * HEAD_DIM, true, team);
        }
        raise_importance(head, head.n_coarse, team);
        threadgroup_barrier(mem_flags::mem_device);
    }
    float least = head.coarse_threshold * float(GROUP);
    uint n_kept = 0;
    device int *kept = list_of(head);
    for (long i = team.index; i < head.n_coarse; i += team.n_threads) {
        bool keeps = !(head.scratch[i] <= least);
        for (int cluster = head.coarse_starts[i]; cluster < head.coarse_starts[i + 1]; cluster++) {
            kept[cluster] = keeps;
            n_kept += uint(keeps);
        }
    }
    n_kept = team_prefix(uint2(n_kept, 0), team).total.x;
    threadgroup_barrier(mem_flags::mem_device);
    start_clusters(head, team);
    for (long i = team.index; i < head.n_clusters; i += team.n_threads) {
        if (!kept[i]) {
            sizes[i] = 0.0f;
        }
    }
    threadgroup_barrier(mem_flags::mem_device);
    n_bytes += (head.n_coarse + n_kept) * HEAD_DIM * 2;
}

// Rows of a document's or the tail's items whose importance is above `least`, and rows that are in no cluster: first
// those of the items, then the document's exact rows, then of each chunk what its clusters leave.
inline Candidate cluster_candidate(device const Head &head, long i, float least, long n_items) {
    long tail = tail_items(head.n_clusters);
    if (i < n_items) {
        bool is_cluster = i < head.n_clusters || (i >= tail && (i - tail) % ITEMS_STEP < CHUNK_CLUSTERS);
        if (!is_cluster || sizes_of(head)[i] <= 0.0f || head.scratch[i] <= least) {
            return no_candidate();
        }
        if (i < head.n_clusters) {
            return document_rows(head, head.cluster_starts[i], head.cluster_starts[i + 1], ANY_ORDER);
        }
        long chunk = (i - tail) / ITEMS_STEP;
        device const int *starts = chunk_starts(head, chunk) + (i - tail) % ITEMS_STEP;
        return tail_rows(head, chunk * CHUNK_ROWS + starts[0], chunk * CHUNK_ROWS + starts[1], ANY_ORDER, 0);
    }
    if (i == n_items) {
        long first = head.n_clusters > 0 ? head.cluster_starts[head.n_clusters] : 0;
        return document_rows(head, first, head.n_document, ANY_ORDER);
    }
    long chunk = i - n_items - 1;
    if (chunk < head.n_clustered) {
        long row = chunk * CHUNK_ROWS;
        return tail_rows(head, row, row + chunk_starts(head, chunk)[0], ANY_ORDER, 0);
    }
    return rest_of_chunk(head, chunk, 0, 0);
}

// The clusters whose importance is above the threshold, and all rows that are in no cluster.
inline void select_clusters(device Head &head, device const float *queries, uint n_tokens, device Span *spans,
                            thread Selected &selected, thread long &n_bytes, thread const Team &team) {
    bool two_levels = head.method == COARSE;
    long n_items = tail_items(head.n_clusters) + head.n_clustered * ITEMS_STEP;
    if (two_levels && n_tokens > 1) {
        keep_clusters_of(head, queries, n_tokens, n_bytes, team);
    } else if (!two_levels) {
        start_clusters(head, team);
        threadgroup_barrier(mem_flags::mem_device);
    }
    for (uint token = 0; token < n_tokens; token++) {
        if (n_tokens > 1) {
            score_token(head, queries + token * GROUP * HEAD_DIM, false, team);
        }
        raise_importance(head, n_items, team);
        threadgroup_barrier(mem_flags::mem_device);
    }
    n_bytes += ((two_levels ? 0 : head.n_clusters) + head.n_clustered * CHUNK_CLUSTERS) * HEAD_DIM * 2;
    float least = head.threshold * float(GROUP);
    long n_candidates = n_items + 1 + count_chunks(head);
    uint of_tail = 0;
    for (long base = 0; base < n_candidates; base += team.n_threads) {
        long i = base + team.index;
        Candidate candidate = i < n_candidates ? cluster_candidate(head, i, least, n_items) : no_candidate();
        if (i >= tail_items(head.n_clusters) && i < n_items) {
            of_tail += uint(candidate.n_rows);
        }
        append_spans(candidate, spans, selected, team);
    }
    of_tail = team_prefix(uint2(of_tail, 0), team).total.x;
    if (team.index == 0) {
        head.n_selected = n_tokens == 1 ? long(of_tail) : -1;
    }
}

// One token's lookup of the first of two levels, for heads that have them; score_kept is next.
// threadgroups (n_kv_head)
kernel void keep_clusters(device Head *heads [[buffer(0)]],
                          device const float *all_queries [[buffer(2)]],
                          uint3 place [[threadgroup_position_in_grid]],
                          uint index [[thread_index_in_threadgroup]],
                          uint lane [[thread_index_in_simdgroup]],
                          uint simd [[simdgroup_index_in_threadgroup]],
                          uint n_simds [[simdgroups_per_threadgroup]]) {
    threadgroup float floats[LANES];
    threadgroup uint2 pairs[LANES];
    Team team = {index, n_simds * LANES, lane, simd, n_simds, floats, pairs};
    device Head &head = heads[place.x];
    if (head.method == COARSE) {
        long n_bytes = 0;
        keep_clusters_of(head, all_queries + place.x * GROUP * HEAD_DIM, 1, n_bytes, team);
        if (index == 0) {
            head.bytes_read += n_bytes;
        }
    }
}

// What each head attends; counts what selecting and attending read.
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
    threadgroup float floats[LANES];
    threadgroup uint2 pairs[LANES];
    Team team = {index, n_simds * LANES, lane, simd, n_simds, floats, pairs};
    device Head &head = heads[place.x];
    device const float *queries = all_queries + place.x * step.n_tokens * GROUP * HEAD_DIM;
    device Span *spans = all_spans + place.x * step.span_capacity;
    Selected selected = {0, 0};
    long n_bytes = 0;
    bool one = step.n_tokens == 1;
    if (head.method == RECENT) {
        select_recent(head, step.n_tokens, spans, selected, team);
    } else if (head.method == PAGES && one) {
        select_pages(head, spans, selected, n_bytes, team);
    } else if (head.method == ROWS && one) {
        select_rows(head, spans, selected, n_bytes, team);
    } else if (head.method == CLUSTERS || head.method == COARSE) {
        select_clusters(head, queries, step.n_tokens, spans, selected, n_bytes, team);
    } else {
        leave_nothing(head, team);
        select_all(head, step.n_tokens, spans, selected, team);
    }
    if (index == 0) {
        all_selected[place.x] = selected;
        head.bytes_read += n_bytes + selected.n_rows * 2l * ROW_BYTES;
    }
}
