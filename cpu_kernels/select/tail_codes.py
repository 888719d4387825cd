"""Code each row of a tail online: product quantisation of keys, and the nearest of a few mean values.

Blocks of BLOCK_ROWS rows get their codes once they are full and RECENT rows have followed them. A chunk's extras are,
for each block,
  mean : of the block's keys, (head_dim,) f16. Codes represent the difference of a key from it
  codes : n_codes for each row's key, and one for its value, the number of the nearest of CODES mean values
all means first, then all codes.

The codebooks and the mean values of codes belong to the head. They are found once TRAINED rows are stored, on these
rows, and again each time the sequence has doubled. So they depend on the rows alone, and not on the history of the
cache.

The error of a score is the errors of the columns times the query there. Queries are large where the mean of the keys
is, because this mean turns them towards the first token or away from it. So a column is weighted by the square of the
mean, and at least by a share of the squares of all columns. That needs nothing but the rows.
"""

from __future__ import annotations

import numpy as np
from numba import float32

from ..layout.head import chunk_at, chunk_extras, head_at, tail_key, tail_value
from ..layout.scores import fill
from ..numba_support.compile import kernel
from ..numba_support.machine_features import LANES
from ..numba_support.memory import borrow, give_back
from ..numba_support.shape import Shape
from ..numba_support.vector import CACHE_LINE, prefetch_line
from ..numba_support.views import array_at, record_at
from ..rows.rows import narrow_row, widen_row, widen_value
from ..rows.tiles import CHUNK_ROWS
from .codebooks import deal_columns, nearest, nearest_of_many, train
from .product_quantisation import BLOCK_ROWS, CODES, HALF_BLOCK, write_codes

#: Blocks of a chunk.
BLOCKS = CHUNK_ROWS // BLOCK_ROWS

#: Rows at which codebooks are first found, and newest rows, which have no codes yet.
TRAINED, RECENT = 512, 32

#: Least weight of a key's column, as a share of the mean over all columns.
_LEAST_WEIGHT = 0.1

#: Most rows, evenly spaced, to find codebooks on, and to find mean values on.
KEY_SAMPLE, VALUE_SAMPLE = 2048, 1024

#: Most rows, evenly spaced, to measure the errors of codes on.
ERROR_SAMPLE = 256

#: Number of this layout of codes and state, and of how they are found. Indexes keep both: raise it with any change.
LAYOUT = 1

#: The longest head_dim and value_dim, and the most columns of a part.
LONGEST, MOST_COLUMNS = 576, 8

#: Per-head state, besides rows and their extras. The record of a method that uses it begins with these fields.
STATE = np.dtype(
    [
        ("n_codes", "i8"),  # codes of a key
        ("n_coded", "i8"),  # blocks with codes
        ("trained", "i8"),  # rows that the codebooks were found on; 0 for none
        ("order", "i4", (LONGEST,)),  # columns of the parts
        ("weights", "f4", (LONGEST,)),  # of the columns, in this order
        ("errors", "f4", (LONGEST,)),  # mean squared error of the codes in each column
        ("codebooks", "f4", (CODES * LONGEST,)),
        ("values", "f4", (CODES * LONGEST,)),  # mean values, (value_dim, CODES)
    ],
    align=True,
)
_OFFSETS = {name: place[1] for name, place in (STATE.fields or {}).items()}

#: Offsets of arrays in the record.
ORDER, WEIGHTS, ERRORS = (_OFFSETS[name] for name in ("order", "weights", "errors"))
CODEBOOKS, VALUES = (_OFFSETS[name] for name in ("codebooks", "values"))


def extras_bytes(shape: Shape, n_codes: int) -> int:
    """Return the size of a chunk's extras."""
    return BLOCKS * (2 * shape.head_dim + (n_codes + 1) * HALF_BLOCK)


@kernel
def mean_of(shape, head, block):
    """Return the address of the mean key of a block, (head_dim,) f16. Those of a chunk are adjacent."""
    return chunk_extras(chunk_at(head, block // BLOCKS)) + block % BLOCKS * 2 * shape.head_dim


@kernel
def codes_of(shape, head, block, n_codes):
    """Return the address of the codes of a block."""
    first = chunk_extras(chunk_at(head, block // BLOCKS)) + BLOCKS * 2 * shape.head_dim
    return first + block % BLOCKS * (n_codes + 1) * HALF_BLOCK


@kernel
def prefetch_codes(shape, head, block, n_codes):
    """Prefetch the codes of a block."""
    start = codes_of(shape, head, block, n_codes)
    for address in range(start, start + (n_codes + 1) * HALF_BLOCK, CACHE_LINE):
        prefetch_line(address)


@kernel
def ready_blocks(n_rows):
    """Return how many blocks of n_rows rows are full and have none of the newest rows."""
    return max(n_rows - RECENT, 0) // BLOCK_ROWS


@kernel
def tend_codes(shape, head_address, n_tokens, _unused):
    """Find codebooks if they are due, and write the codes of blocks: an `after_step` hook (see hooks.py)."""
    head = head_at(head_address)
    state, n_ready = record_at(head.state, STATE), ready_blocks(head.n_tail)
    due, rows = 0, TRAINED
    while rows <= n_ready * BLOCK_ROWS:
        due, rows = rows, rows * 2
    state.n_coded = min(state.n_coded, ready_blocks(head.n_tail - n_tokens))  # later rows are new
    if due != state.trained:
        state.trained, state.n_coded = due, 0
        if due > 0:
            _find_codebooks(shape, head, due)
    while due > 0 and state.n_coded < n_ready:
        _write_codes(shape, head, state.n_coded)
        state.n_coded += 1
    return 0


@kernel
def _find_mean(shape, head, block, floats):
    """Write the mean of a block's keys. `floats` is the address of 2 * head_dim f32 to work in."""
    total = array_at(floats, (shape.head_dim,), np.float32)
    key = array_at(floats + 4 * shape.head_dim, (shape.head_dim,), np.float32)
    fill(floats, 0, shape.head_dim, float32(0))
    for row in range(block * BLOCK_ROWS, (block + 1) * BLOCK_ROWS):
        widen_row(shape, tail_key(shape, head, row), floats + 4 * shape.head_dim)
        for i in range(shape.head_dim):
            total[i] += key[i]
    for i in range(shape.head_dim):
        total[i] *= float32(1 / BLOCK_ROWS)
    narrow_row(shape, floats, mean_of(shape, head, block))


@kernel
def _dealt_key(shape, head, row, floats):
    """Write the difference of a key from its block's mean, with columns in the order of the parts.

    `floats` is the address of head_dim f32, and of 2 * head_dim more to work in.
    """
    _deal_key(shape, head, row, 0, shape.head_dim, floats, floats, 1)


@kernel
def _deal_key(shape, head, row, first, n_columns, floats, out, stride):
    """Write some columns of the difference of a key from its block's mean, `stride` f32 apart.

    `first` and n_columns count in the order of the parts. `floats` is the address of 3 * head_dim f32, the last two
    thirds to work in.
    """
    head_dim, block = shape.head_dim, row // BLOCK_ROWS
    columns, raw = (
        array_at(head.state + ORDER, (head_dim,), np.int32),
        array_at(floats + 4 * head_dim, (2, head_dim), np.float32),
    )
    dealt = array_at(out, ((n_columns - 1) * stride + 1,), np.float32)
    widen_row(shape, tail_key(shape, head, row), floats + 4 * head_dim)
    widen_row(shape.of_halves, mean_of(shape, head, block), floats + 8 * head_dim)
    for i in range(n_columns):
        dealt[i * stride] = raw[0, columns[first + i]] - raw[1, columns[first + i]]


@kernel
def _copy_value(shape, head, row, floats, out, stride):
    """Write the columns of a value, `stride` f32 apart. `floats` is the address of value_dim f32 to work in."""
    value, copy = (
        array_at(floats, (shape.value_dim,), np.float32),
        array_at(out, ((shape.value_dim - 1) * stride + 1,), np.float32),
    )
    widen_value(shape, tail_value(shape, head, row), floats)
    for i in range(shape.value_dim):
        copy[i * stride] = value[i]


@kernel
def _find_codebooks(shape, head, n_rows):
    """Find the codebooks and the mean values of the first n_rows rows."""
    head_dim, state, n_bytes = shape.head_dim, record_at(head.state, STATE), 16 * shape.longest + _sample_bytes(shape)
    n_codes, size, floats = state.n_codes, shape.head_dim // state.n_codes, borrow(n_bytes)
    samples = floats + 16 * shape.longest
    dealt, variances = (
        array_at(floats, (head_dim,), np.float32),
        array_at(floats + 12 * head_dim, (head_dim,), np.float32),
    )
    order = array_at(head.state + ORDER, (head_dim,), np.int32)
    weights, importance = (
        array_at(head.state + WEIGHTS, (head_dim,), np.float32),
        array_at(samples, (head_dim,), np.float32),
    )
    for i in range(head_dim):
        importance[i], variances[i], order[i] = float32(0), float32(0), i
    for block in range(n_rows // BLOCK_ROWS):
        _find_mean(shape, head, block, floats)
        for i in range(head_dim):
            importance[i] += dealt[i]
    total = float32(0)
    for i in range(head_dim):
        importance[i] *= importance[i]
        total += importance[i]
    least, step = float32(_LEAST_WEIGHT) * total / float32(head_dim), -(-n_rows // KEY_SAMPLE)
    for i in range(head_dim):
        importance[i] = (importance[i] + least) / least if least > 0 else float32(1)
    for row in range(0, n_rows, step):
        _dealt_key(shape, head, row, floats)
        for i in range(head_dim):
            variances[i] += importance[i] * dealt[i] * dealt[i]
    deal_columns(head_dim, n_codes, floats + 12 * head_dim, head.state + ORDER)
    for i in range(head_dim):
        weights[i] = importance[order[i]]
    n, room = n_rows // step // LANES * LANES, samples + KEY_SAMPLE * size * 4
    for part in range(n_codes):
        for i in range(n):
            _deal_key(shape, head, i * step, part * size, size, floats, samples + i * 4, n)
        codebook = head.state + CODEBOOKS + part * size * CODES * 4
        train(samples, n, size, head.state + WEIGHTS + part * size * 4, codebook, room)
    _measure_errors(shape, head, n_rows, n_codes, floats)
    step = -(-n_rows // VALUE_SAMPLE)
    n = n_rows // step // LANES * LANES
    for i in range(n):
        _copy_value(shape, head, i * step, floats, samples + i * 4, n)
    fill(floats, 0, shape.value_dim, float32(1))
    train(samples, n, shape.value_dim, floats, head.state + VALUES, samples + n * shape.value_dim * 4)
    give_back(floats, n_bytes)


@kernel
def _measure_errors(shape, head, n_rows, n_codes, floats):
    """Measure the mean squared error of the codes in each column, over the first n_rows rows."""
    errors, size = array_at(head.state + ERRORS, (shape.head_dim,), np.float32), shape.head_dim // n_codes
    codebooks = array_at(head.state + CODEBOOKS, (n_codes, size, CODES), np.float32)
    order = array_at(head.state + ORDER, (shape.head_dim,), np.int32)
    dealt, step = array_at(floats, (shape.head_dim,), np.float32), -(-n_rows // ERROR_SAMPLE)
    for i in range(shape.head_dim):
        errors[i] = float32(0)
    for row in range(0, n_rows, step):
        _dealt_key(shape, head, row, floats)
        for part in range(n_codes):
            first = part * size * 4
            codebook = head.state + CODEBOOKS + first * CODES
            code = nearest(floats + first, size, head.state + WEIGHTS + first, codebook)
            for i in range(size):
                missed = dealt[part * size + i] - codebooks[part, i, code]
                errors[order[part * size + i]] += missed * missed
    for i in range(shape.head_dim):
        errors[i] /= float32(-(-n_rows // step))


@kernel
def _sample_bytes(shape):
    """Return the size of the working memory to find codebooks."""
    of_keys = KEY_SAMPLE * (MOST_COLUMNS + 1) + (MOST_COLUMNS + 1) * CODES
    of_values = (VALUE_SAMPLE + CODES) * shape.longest + CODES + VALUE_SAMPLE
    return max(of_keys, of_values) * 4


@kernel
def _write_codes(shape, head, block):
    """Write the mean and the codes of a full block."""
    head_dim, state, longest = shape.head_dim, record_at(head.state, STATE), shape.longest
    n_bytes = 4 * (4 * longest + BLOCK_ROWS * (longest + 1))
    floats = borrow(n_bytes)
    ones, points = floats + 12 * longest, floats + 16 * longest
    n_codes, found = state.n_codes, points + BLOCK_ROWS * longest * 4
    size, codes = head_dim // n_codes, codes_of(shape, head, block, n_codes)
    fill(ones, 0, shape.value_dim, float32(1))
    _find_mean(shape, head, block, floats)
    for i in range(BLOCK_ROWS):
        _deal_key(shape, head, block * BLOCK_ROWS + i, 0, head_dim, floats, points + i * 4, BLOCK_ROWS)
    for part in range(n_codes):
        first = part * size * 4
        own, weights = points + first * BLOCK_ROWS, head.state + WEIGHTS + first
        nearest_of_many(own, BLOCK_ROWS, BLOCK_ROWS, size, weights, head.state + CODEBOOKS + first * CODES, found)
        write_codes(codes, part, found)
    for i in range(BLOCK_ROWS):
        _copy_value(shape, head, block * BLOCK_ROWS + i, floats, points + i * 4, BLOCK_ROWS)
    nearest_of_many(points, BLOCK_ROWS, BLOCK_ROWS, shape.value_dim, ones, head.state + VALUES, found)
    write_codes(codes, n_codes, found)
    give_back(floats, n_bytes)
