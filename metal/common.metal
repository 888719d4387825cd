// Shared by all shaders: their records, the constants of a shape, and loads and products of stored rows.
//
// shader_library.py joins the text of a library: macros with its shape, this file, selection.metal, the parts
// of methods (methods/*.metal, by name), macros that call them, and then the files with kernels.
//   HEAD_DIM    elements of a key, a multiple of 8, at most 576
//   VALUE_DIM   elements of a value, likewise
//   LATENT      1 if a value is the first part of its key, and only the key is stored; else 0
//   GROUP       query heads of a KV head
//   HEADS       of these, as many as a lane computes for at once in decode; it takes one block of them after another
//   TILE        queries that a threadgroup computes for at once in a batch
//   QUANTISED   1 if rows are q8_0, rotated before they are rounded, 0 if they are f16 (see cpu_kernels/rows/rows.py)
//
// Arguments have the same index in all kernels:
//   0 heads     (n_kv_head) Heads of the layer        5 partials    (shares, GROUP, VALUE_DIM + 2) f32 (see decode.metal)
//   1 step      settings of the step                  6 out         (n_tokens, n_kv_head * GROUP, VALUE_DIM) f32
//   2 queries   (n_kv_head, n_tokens, GROUP,          7 sinks       (n_kv_head * GROUP) f32, if step.has_sinks
//               HEAD_DIM) f32, scaled; after          8 new_keys    (n_kv_head, n_tokens, HEAD_DIM) f16
//               rotate_queries, as keys are stored
//   3 spans     (n_kv_head, span_capacity) Spans      9 new_values  (n_kv_head, n_tokens, VALUE_DIM) f16
//   4 selected  (n_kv_head) Selected
//
// A method is one part, methods/NAME.metal. It declares `struct NameState`, the method's STATE record of
// cpu_kernels/methods/NAME.py, and defines NAME_select and whichever of the other functions it needs. The kernels call
// them through the macros CALL_SELECT and so on, which pick the method by its number. All threads of a threadgroup call
// a function together. `queries` are one head's, scaled; of one token they are (GROUP, HEAD_DIM) f32.
//
// void NAME_append(device uchar *chunk, thread const NewRows &rows, uint index, uint n_threads)
//     Add stored rows of a chunk to its extras. Row 0 starts them. `index` is the thread's number.
// void NAME_score(device const Head &head, device const float *queries, uint share, uint n_shares,
//                 thread const Team &team)
//     Score one share of the head's items (pages, rows, clusters) for one token, into the head's scratch.
// void NAME_narrow(device const Head &head, thread long &n_bytes, thread const Team &team)
//     Set to 0 the sizes of items without a second scoring, for one token, by the scores of the first. Add the bytes
//     read to n_bytes. One threadgroup serves a head.
// void NAME_score_narrowed: as NAME_score
//     Score one share of the items that NAME_narrow kept.
// void NAME_select(device const Head &head, device const float *queries, uint n_tokens, thread Selection &selection,
//                  thread const Team &team)
//     Append the spans that a step of n_tokens tokens attends. One threadgroup serves a head. For one token the scores
//     exist already; for more tokens this function scores. All query heads and all tokens attend to the same spans.
// void NAME_finish(device const Head &head, uint g, uint column, thread float &value)
//     Complete one element of query head g's output of one token. Each thread calls it alone.
//
// Scores never fall below LOWEST_SCORE, which means "none": infinities are never written.

#include <metal_stdlib>
using namespace metal;

constant constexpr uint LANES = 32;        // of a simd group
constant constexpr uint CHUNK_ROWS = 256;  // as in cpu_kernels/layout/head.py
constant constexpr int ANY_ORDER = -1;
constant constexpr float LOWEST_SCORE = -1e30f;

// Scales of a q8_0 row: of a latent key those of its two parts, which differ in size.
constant constexpr uint SCALES = LATENT ? 2 : 1;

constant constexpr uint ROW_BYTES = QUANTISED ? HEAD_DIM + 4 * SCALES : 2 * HEAD_DIM;  // of a key
constant constexpr uint VALUE_BYTES = LATENT ? ROW_BYTES : QUANTISED ? VALUE_DIM + 4 : 2 * VALUE_DIM;
constant constexpr uint TOKEN_BYTES = LATENT ? ROW_BYTES : ROW_BYTES + VALUE_BYTES;
constant constexpr uint VALUE_ELEMENTS = LATENT ? HEAD_DIM : VALUE_DIM;  // of the stored row that holds a value

// A key has PARTS of 8 elements, and a value VALUE_PARTS. The lanes of a slot read a row: lane i the parts i, i + SLOT
// and so on, PIECES of a key and VALUE_PIECES of a value. A simd group reads SLOTS rows at once.
constant constexpr uint PARTS = HEAD_DIM / 8;
constant constexpr uint VALUE_PARTS = VALUE_DIM / 8;
constant constexpr uint MOST_PARTS = PARTS > VALUE_PARTS ? PARTS : VALUE_PARTS;
constant constexpr uint SLOT = MOST_PARTS <= 1    ? 1
                               : MOST_PARTS <= 2  ? 2
                               : MOST_PARTS <= 4  ? 4
                               : MOST_PARTS <= 8  ? 8
                               : MOST_PARTS <= 16 ? 16
                                                  : LANES;
constant constexpr uint SLOTS = LANES / SLOT;
constant constexpr uint PIECES = (PARTS + SLOT - 1) / SLOT;
constant constexpr uint VALUE_PIECES = (VALUE_PARTS + SLOT - 1) / SLOT;

// Where all lanes of a simd group work on a row of numbers, lane i has the numbers i, i + LANES and so on: COLUMNS of a
// value.
constant constexpr uint COLUMNS = (VALUE_DIM + LANES - 1) / LANES;

struct Chunk {
    device uchar *bytes;
};

// HEAD, with the fields of cpu_kernels/layout/head.py.
struct Head {
    long shape;
    long score;
    long select;  // here the number of the method that selects
    long finish;
    long append;  // here the number of the method that the chunks' extras belong to
    long after_step;
    long estimate;
    long rank;
    long pick;
    device uchar *state;  // the method's own record
    device const uchar *document_keys;
    device const uchar *document_values;
    long n_document;
    long document_position;
    long document_pages;
    device const Chunk *tail_chunks;
    long tail_position;
    long n_tail;
    long n_dropped;
    long window;
    device float *scratch;
    long scratch_items;
    long bytes_read;
    long n_covered;
    long covered;
    float softcap;
    int chunked;
};

// Stored rows, in a run or in a list.
struct Span {
    device const uchar *keys;
    device const uchar *values;
    device const int *rows;  // null for a run; else n_rows rows of the tail, in the chunk of `keys` and `values`
    int first;               // rows of all spans before it
    int n_rows;
    int position;  // of its first row in the sequence, or ANY_ORDER: every token sees all of it
    int window;    // newest rows that a token sees of a span with a position; 0 for all. Below 0: it sees the rows of
                   // its own chunk, which has as many positions and begins at a multiple of them
};

struct Selected {
    int n_spans;
    int n_rows;
};

// The oldest position in the window of a token at a position; a window of 0 shows all positions.
inline int oldest_seen(int position, int window) {
    if (window < 0) {
        return position / -window * -window;
    }
    return window > 0 ? position - window + 1 : 0;
}

struct Step {
    uint n_kv_head;
    uint n_tokens;
    uint n_shares;
    uint span_capacity;
    float softcap;
    uint has_sinks;
    uint first_tile;  // of the tiles that this dispatch of attend_tiles computes
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

// The factor of an element of a stored row of n.
inline float scale_of(device const uchar *row, uint column, uint n) {
#if QUANTISED
    return reinterpret_cast<device const float *>(row + n)[LATENT && column >= VALUE_DIM];
#else
    return 1.0f;
#endif
}

// Eight neighbours of a stored row, without its scale, exact in f16. Rows of q8_0 are
// aligned to 4 bytes.
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

// Lane `first` of a slot's pieces of a stored row of n elements; nothing where there is none.
template <uint N>
inline void load_row(device const uchar *row, uint first, uint n, thread float (&values)[N][8]) {
    for (uint piece = 0; piece < N; piece++) {
        uint part = first + piece * SLOT;
        if (part < n / 8) {
            load_elements(row, part, values[piece]);
            float scale = scale_of(row, 8 * part, n);
            for (uint i = 0; i < 8; i++) {
                values[piece][i] *= scale;
            }
        }
    }
}

// Rotate LENGTH numbers as cpu_kernels/rows/rotation.py does, all lanes of a simd group together. Two rotations cancel.
template <uint LENGTH>
inline void rotate(thread float (&values)[(LENGTH + LANES - 1) / LANES], uint lane) {
    constexpr uint n = (LENGTH + LANES - 1) / LANES;
    constexpr uint block = LENGTH & (~LENGTH + 1);  // the largest power of two that divides LENGTH
    for (uint distance = 1; distance < min(block, LANES); distance *= 2) {
        for (uint i = 0; i < n; i++) {
            float other = simd_shuffle_xor(values[i], ushort(distance));
            values[i] = lane & distance ? other - values[i] : values[i] + other;
        }
    }
    for (uint distance = 1; distance < block / LANES; distance *= 2) {
        for (uint i = 0; i < n; i += 2 * distance) {
            for (uint j = i; j < i + distance; j++) {
                float first = values[j], second = values[j + distance];
                values[j] = first + second;
                values[j + distance] = first - second;
            }
        }
    }
    for (uint i = 0; i < n; i++) {
        values[i] *= sqrt(float(block)) / float(block);
    }
}

// The largest size of numbers, by those of each lane of a simd group; NaN if one of them is not finite.
inline float largest_size(float largest, bool is_finite) {
    largest = simd_max(largest);
    return simd_all(is_finite) ? largest : NAN;
}

// A number as an element of 8 bits, if the largest one becomes 127: its scale is largest / 127.
inline char rounded(float value, float largest) {
    return largest > 0.0f ? char(int(rint(value * (127.0f / largest)))) : char(0);
}

// Lane `first` of a slot's pieces of an f16 vector as long as a key; nothing where there is none.
inline void load_vector(device const half *vector, uint first, thread float (&values)[PIECES][8]) {
    for (uint piece = 0; piece < PIECES; piece++) {
        uint part = first + piece * SLOT;
        if (part < PARTS) {
            load_halves(vector, part, values[piece]);
        }
    }
}

// Lane `first` of a slot's pieces of the queries of HEADS query heads from head g on; 0 where there is none.
inline void load_queries(device const float *queries, uint g, uint first, thread float (&values)[HEADS][PIECES][8]) {
    for (uint h = 0; h < HEADS; h++) {
        for (uint piece = 0; piece < PIECES; piece++) {
            uint part = first + piece * SLOT;
            bool exists = g + h < GROUP && part < PARTS;
            for (uint i = 0; i < 8; i++) {
                values[h][piece][i] = exists ? queries[(g + h) * HEAD_DIM + 8 * part + i] : 0.0f;
            }
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

// Products of queries with the row of a slot: in each of its lanes, for each query head.
inline void dot_slot(thread const float (&query)[HEADS][PIECES][8], thread const float (&row)[PIECES][8],
                     thread float (&products)[HEADS]) {
    for (uint h = 0; h < HEADS; h++) {
        float sum = 0.0f;
        for (uint piece = 0; piece < PIECES; piece++) {
            for (uint i = 0; i < 8; i++) {
                sum = fma(query[h][piece][i], row[piece][i], sum);
            }
        }
        products[h] = slot_sum(sum);
    }
}

inline void clear(thread float (&values)[8]) {
    for (uint i = 0; i < 8; i++) {
        values[i] = 0.0f;
    }
}

template <uint N>
inline void clear(thread float (&values)[N][8]) {
    for (uint i = 0; i < N; i++) {
        clear(values[i]);
    }
}

// Rows of a chunk from start to stop, as f32, in threadgroup memory. A value is VALUE_ELEMENTS after the one before.
struct NewRows {
    uint start;
    uint stop;
    threadgroup const float *keys;
    threadgroup const float *values;
};

// A chunk holds keys, then values if these are stored, then the extras of the head's method.
inline device uchar *key_in(device uchar *chunk, long row) {
    return chunk + row * ROW_BYTES;
}

inline device uchar *value_in(device uchar *chunk, long row) {
    return chunk + (LATENT ? 0 : CHUNK_ROWS * ROW_BYTES) + row * VALUE_BYTES;
}

inline device uchar *extras_of(device uchar *chunk) {
    return chunk + CHUNK_ROWS * TOKEN_BYTES;
}

inline device uchar *chunk_at(device const Head &head, long number) {
    return head.tail_chunks[number].bytes;
}

inline long count_chunks(device const Head &head) {
    return (head.n_tail + CHUNK_ROWS - 1) / CHUNK_ROWS;
}
