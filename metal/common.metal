// What all shaders share: the records that they read, the constants of a shape, and loads of stored rows.
//
// The text of a library is this file and then the others, after macros that say its shape:
//   HEAD_DIM    elements of a key, a multiple of 8, at most 256
//   GROUP       query heads of a KV head
//   QUANTISED   1 where rows are q8_0, 0 where they are f16 (see cpu_kernels/rows.py)
// Arguments have the same index in all kernels:
//   0 heads     (n_kv_head) Heads of the layer        5 partials  (shares, GROUP, HEAD_DIM + 2) f32 (see decode.metal)
//   1 step      what is to be computed                6 out       (n_tokens, n_kv_head * GROUP, HEAD_DIM) f32
//   2 queries   (n_kv_head, n_tokens, GROUP,          7 sinks     (n_kv_head * GROUP) f32, if step.has_sinks
//               HEAD_DIM) f32, scaled                 8 new_keys, 9 new_values (n_kv_head, n_tokens, HEAD_DIM) f16
//   3 spans     (n_kv_head, span_capacity) Spans
//   4 selected  (n_kv_head) Selected
// Scores below LOWEST_SCORE do not occur: it stands for "none" where others would write an infinity.

#include <metal_stdlib>
using namespace metal;

constant constexpr uint LANES = 32;        // of a simd group
constant constexpr uint CHUNK_ROWS = 256;  // as in cpu_kernels/spans.py
constant constexpr uint PAGE_ROWS = 16;    // as in cpu_kernels/pages.py
constant constexpr uint ITEMS_STEP = 16;   // as in cpu_kernels/select.py
constant constexpr uint CHUNK_CLUSTERS = 13;  // as in cpu_kernels/online.py
constant constexpr uint MEASURED_CHUNKS = 8;  // as in cpu_kernels/partial.py
constant constexpr uint CHUNK_PAGES = CHUNK_ROWS / PAGE_ROWS;
constant constexpr int ANY_ORDER = -1;
constant constexpr float LOWEST_SCORE = -1e30f;

constant constexpr uint ROW_BYTES = QUANTISED ? HEAD_DIM + 4 : 2 * HEAD_DIM;

// A row is read by PARTS lanes, 8 elements each, of a slot of SLOT lanes; a simd group reads SLOTS rows at once.
constant constexpr uint PARTS = HEAD_DIM / 8;
constant constexpr uint SLOT =
    PARTS <= 1 ? 1 : PARTS <= 2 ? 2 : PARTS <= 4 ? 4 : PARTS <= 8 ? 8 : PARTS <= 16 ? 16 : LANES;
constant constexpr uint SLOTS = LANES / SLOT;

// How a head selects: `Method` in metal/records.py.
constant constexpr long ALL = 0, RECENT = 1, PAGES = 2, ROWS = 3, CLUSTERS = 4, COARSE = 5;

struct Chunk {
    device uchar *bytes;
};

// HEAD in cpu_kernels/spans.py, which says what each field is.
struct Head {
    long method;  // there the compiled selector
    long score;
    long settle;
    device const uchar *document_keys;
    device const uchar *document_values;
    long n_document;
    long document_position;
    device const Chunk *tail_chunks;
    long key_offset;
    long value_offset;
    long page_offset;
    long column_offset;
    long moment_offset;
    long sum_offset;
    long cluster_offset;
    long slot_offset;
    long tail_position;
    long n_tail;
    long n_dropped;
    long window;
    device const half *centroids;
    device const int *cluster_starts;
    long n_clusters;
    device const half *coarse_centroids;
    device const int *coarse_starts;
    long n_coarse;
    long n_clustered;
    long n_selected;
    long n_recent;
    long n_sinks;
    long n_components;
    device float *scratch;
    long scratch_items;
    float threshold;
    float coarse_threshold;
    float softcap;
    device float *reallocation;
    long bytes_read;
};

// Stored rows, in a run or in a list.
struct Span {
    device const uchar *keys;
    device const uchar *values;
    device const int *rows;  // null for a run; else n_rows rows of the tail, in the chunk of `keys` and `values`
    int first;               // rows of all spans before it
    int n_rows;
    int position;  // of its first row in the sequence, or ANY_ORDER: every token sees all of it
    int window;    // newest rows that a token sees of a span with a position; 0 for all
};

struct Selected {
    int n_spans;
    int n_rows;
};

struct Step {
    uint n_kv_head;
    uint n_tokens;
    uint n_shares;
    uint span_capacity;
    float softcap;
    uint has_sinks;
};

// Eight neighbours of an f16 row; 16 bytes, aligned.
inline void load_halves(device const half *row, uint part, thread float (&values)[8]) {
    uint4 bits = *reinterpret_cast<device const uint4 *>(row + 8 * part);
    for (uint i = 0; i < 4; i++) {
        half2 pair = as_type<half2>(bits[i]);
        values[2 * i] = float(pair.x);
        values[2 * i + 1] = float(pair.y);
    }
}

// What a stored row's elements are multiplied by.
inline float scale_of(device const uchar *row) {
#if QUANTISED
    return *reinterpret_cast<device const float *>(row + HEAD_DIM);
#else
    return 1.0f;
#endif
}

// Eight neighbours of a stored row, before its scale: numbers that f16 holds. Rows of q8_0 are aligned to 4 bytes.
inline void load_elements(device const uchar *row, uint part, thread float (&values)[8]) {
#if QUANTISED
    device const uint *words = reinterpret_cast<device const uint *>(row + 8 * part);
    for (uint i = 0; i < 2; i++) {
        char4 bytes = as_type<char4>(words[i]);
        for (uint j = 0; j < 4; j++) {
            values[4 * i + j] = float(bytes[j]);
        }
    }
#else
    load_halves(reinterpret_cast<device const half *>(row), part, values);
#endif
}

// One element of a stored row.
inline float element(device const uchar *row, uint column) {
#if QUANTISED
    return float(reinterpret_cast<device const char *>(row)[column]) * scale_of(row);
#else
    return float(reinterpret_cast<device const half *>(row)[column]);
#endif
}

// A lane's part of the queries of a group, 0 for a lane that has none.
inline void load_queries(device const float *queries, uint part, thread float (&values)[GROUP][8]) {
    for (uint g = 0; g < GROUP; g++) {
        for (uint i = 0; i < 8; i++) {
            values[g][i] = part < PARTS ? queries[g * HEAD_DIM + 8 * part + i] : 0.0f;
        }
    }
}

// The sum over the lanes of a slot, in each of them. All lanes of the simd group take part.
inline float slot_sum(float value) {
    for (ushort step = SLOT / 2; step > 0; step /= 2) {
        value += simd_shuffle_xor(value, step);
    }
    return value;
}

inline float capped(float score, float softcap) {
    return softcap == 0.0f ? score : softcap * precise::tanh(score / softcap);
}

inline device const uchar *tail_row(device const Head &head, long offset, long row) {
    return head.tail_chunks[row / CHUNK_ROWS].bytes + offset + row % CHUNK_ROWS * ROW_BYTES;
}

inline long count_chunks(device const Head &head) {
    return (head.n_tail + CHUNK_ROWS - 1) / CHUNK_ROWS;
}

// How many chunks the spread of keys is measured over, and among how many from the first on: full ones, if there are.
struct Measured {
    long n;
    long n_chunks;
};

inline Measured measured_chunks(device const Head &head) {
    long n_chunks = max(head.n_tail / CHUNK_ROWS, 1l);
    Measured measured = {min(n_chunks, long(MEASURED_CHUNKS)), n_chunks};
    return measured;
}

inline long count_pages(device const Head &head) {
    return (head.n_tail + PAGE_ROWS - 1) / PAGE_ROWS;
}

// The first item of the tail's clusters, after n_before clusters.
inline long tail_items(long n_before) {
    return (n_before + ITEMS_STEP - 1) / ITEMS_STEP * ITEMS_STEP;
}

inline device const half *chunk_centroids(device const Head &head, long chunk) {
    return reinterpret_cast<device const half *>(head.tail_chunks[chunk].bytes + head.cluster_offset);
}

inline device const int *chunk_starts(device const Head &head, long chunk) {
    return reinterpret_cast<device const int *>(chunk_centroids(head, chunk) + CHUNK_CLUSTERS * HEAD_DIM);
}

// Where a head's selection works: for each item its importance, its size, and GROUP scores; then a list.
inline device float *sizes_of(device const Head &head) {
    return head.scratch + head.scratch_items;
}

inline device float *scores_of(device const Head &head, uint g) {
    return head.scratch + (2 + g) * head.scratch_items;
}

inline device int *list_of(device const Head &head) {
    return reinterpret_cast<device int *>(head.scratch + (2 + GROUP) * head.scratch_items);
}
