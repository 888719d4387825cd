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
from ..numba_support.compile import kernel, layout
from ..numba_support.memory import borrow, copy_bytes, give_back
from ..numba_support.shape import Shape
from ..numba_support.vector import CACHE_LINE, prefetch_line
from ..numba_support.views import array_at, record_at
from ..rows.rows import narrow_row, widen_row, widen_value
from ..rows.tiles import CHUNK_ROWS
from .codebooks import deal_columns, nearest_of_many, train, training_bytes, transpose
from .product_quantisation import BLOCK_ROWS, CODES, HALF_BLOCK, write_codes

#: Blocks of a chunk.
BLOCKS = CHUNK_ROWS // BLOCK_ROWS

#: Rows at which codebooks are first found, and newest rows, which have no codes yet.
TRAINED, RECENT = 512, 32

#: Least weight of a key's column, as a share of the mean over all columns.
_LEAST_WEIGHT = 0.1

#: Most rows, evenly spaced, to find codebooks on, and to find mean values on; and rows to measure the errors of codes
#: on. Powers of two, as the numbers of rows are: all are whole blocks.
KEY_SAMPLE, VALUE_SAMPLE, ERROR_SAMPLE = 2048, 1024, 256

#: Number of this layout of codes and state, and of how they are found. Indexes keep both: raise it with any change.
LAYOUT = 1

#: The longest head_dim and value_dim.
LONGEST = 576

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
def _centre_keys(shape, head, first, step, n, rows):
    """Write the differences of n keys from the means of their blocks, row by row.

    The keys are row `first` and others, `step` rows apart. `rows` is the address of (n + 1, head_dim) f32; the last row
    is to work in.
    """
    head_dim = shape.head_dim
    for i in range(n):
        at, row = rows + i * 4 * head_dim, first + i * step
        key_and_mean = array_at(at, (2, head_dim), np.float32)
        widen_row(shape, tail_key(shape, head, row), at)
        widen_row(shape.of_halves, mean_of(shape, head, row // BLOCK_ROWS), at + 4 * head_dim)
        for column in range(head_dim):
            key_and_mean[0, column] -= key_and_mean[1, column]


@kernel
def _deal_part(shape, head, part, size, columns, n, points):
    """Copy the columns of a part, of (head_dim, n) f32 at an address, to (size, n) f32 at another one."""
    order = array_at(head.state + ORDER, (shape.head_dim,), np.int32)
    for i in range(size):
        copy_bytes(points + i * n * 4, columns + order[part * size + i] * n * 4, n * 4)


@kernel
def _find_codebooks(shape, head, n_rows):
    """Find the codebooks and the mean values of the first n_rows rows, TRAINED or a power of two times as many."""
    head_dim, state = shape.head_dim, record_at(head.state, STATE)
    n_codes, size = state.n_codes, head_dim // state.n_codes
    n_keys, n_values = min(n_rows, KEY_SAMPLE), min(n_rows, VALUE_SAMPLE)
    of_points = max(n_keys * size * 4 + training_bytes(n_keys, size), training_bytes(n_values, shape.value_dim))
    of_rows, of_columns = _rows_bytes(shape), 4 * max(n_keys * head_dim, n_values * shape.value_dim)
    n_bytes = of_rows + of_columns + of_points
    rows = borrow(n_bytes)
    columns, points = rows + of_rows, rows + of_rows + of_columns
    _weigh_columns(shape, head, n_rows, n_codes, rows, columns)
    step = n_rows // n_keys
    for i in range(0, n_keys, BLOCK_ROWS):
        _centre_keys(shape, head, i * step, step, BLOCK_ROWS, rows)
        transpose(rows, BLOCK_ROWS, head_dim, columns + i * 4, n_keys)
    for part in range(n_codes):
        codebook = head.state + CODEBOOKS + part * size * CODES * 4
        _deal_part(shape, head, part, size, columns, n_keys, points)
        train(points, n_keys, size, head.state + WEIGHTS + part * size * 4, codebook, points + n_keys * size * 4)
    _measure_errors(shape, head, n_rows, n_codes, rows, columns)
    step = n_rows // n_values
    for i in range(0, n_values, BLOCK_ROWS):
        _widen_values(shape, head, i * step, step, rows)
        transpose(rows, BLOCK_ROWS, shape.value_dim, columns + i * 4, n_values)
    fill(rows, 0, shape.value_dim, float32(1))
    train(columns, n_values, shape.value_dim, rows, head.state + VALUES, points)
    give_back(rows, n_bytes)


@layout
def _rows_bytes(shape):
    """Return the size of a block's rows as f32, and of one more row to work in."""
    return 4 * (BLOCK_ROWS + 1) * shape.longest


@kernel
def _weigh_columns(shape, head, n_rows, n_codes, rows, floats):
    """Write the means of the blocks of n_rows rows; weigh the columns of keys by them, and deal the columns into parts.

    `rows` is the address of the room for a block's rows, and `floats` of 2 * head_dim f32 to work in.
    """
    head_dim, order = shape.head_dim, array_at(head.state + ORDER, (shape.head_dim,), np.int32)
    mean, weights = array_at(rows, (head_dim,), np.float32), array_at(head.state + WEIGHTS, (head_dim,), np.float32)
    importance, variances = (
        array_at(floats, (head_dim,), np.float32),
        array_at(floats + 4 * head_dim, (head_dim,), np.float32),
    )
    for i in range(head_dim):
        importance[i], variances[i], order[i] = float32(0), float32(0), i
    for block in range(n_rows // BLOCK_ROWS):
        _find_mean(shape, head, block, rows)
        for i in range(head_dim):
            importance[i] += mean[i]
    total = float32(0)
    for i in range(head_dim):
        importance[i] *= importance[i]
        total += importance[i]
    least = float32(_LEAST_WEIGHT) * total / float32(head_dim)
    for i in range(head_dim):
        importance[i] = (importance[i] + least) / least if least > 0 else float32(1)
    step, centred = n_rows // min(n_rows, KEY_SAMPLE), array_at(rows, (BLOCK_ROWS, head_dim), np.float32)
    for first in range(0, n_rows, BLOCK_ROWS * step):
        _centre_keys(shape, head, first, step, BLOCK_ROWS, rows)
        for row in range(BLOCK_ROWS):
            for i in range(head_dim):
                variances[i] += importance[i] * centred[row, i] * centred[row, i]
    deal_columns(head_dim, n_codes, floats + 4 * head_dim, head.state + ORDER)
    for i in range(head_dim):
        weights[i] = importance[order[i]]


@kernel
def _measure_errors(shape, head, n_rows, n_codes, rows, columns):
    """Measure the mean squared error of the codes in each column, over the first n_rows rows."""
    head_dim, size, step = shape.head_dim, shape.head_dim // n_codes, n_rows // ERROR_SAMPLE
    errors = array_at(head.state + ERRORS, (head_dim,), np.float32)
    codebooks = array_at(head.state + CODEBOOKS, (n_codes, size, CODES), np.float32)
    order = array_at(head.state + ORDER, (head_dim,), np.int32)
    points = columns + BLOCK_ROWS * head_dim * 4
    found_address = points + BLOCK_ROWS * size * 4
    dealt, found = array_at(points, (size, BLOCK_ROWS), np.float32), array_at(found_address, (BLOCK_ROWS,), np.int32)
    for i in range(head_dim):
        errors[i] = float32(0)
    for first in range(0, n_rows, BLOCK_ROWS * step):
        _centre_keys(shape, head, first, step, BLOCK_ROWS, rows)
        transpose(rows, BLOCK_ROWS, head_dim, columns, BLOCK_ROWS)
        for part in range(n_codes):
            _find_nearest(shape, head, part, size, columns, points, found_address)
            for i in range(size):
                for row in range(BLOCK_ROWS):
                    missed = dealt[i, row] - codebooks[part, i, found[row]]
                    errors[order[part * size + i]] += missed * missed
    for i in range(head_dim):
        errors[i] /= float32(ERROR_SAMPLE)


@kernel
def _find_nearest(shape, head, part, size, columns, points, found):
    """Write the numbers of the nearest centroids of a part for the keys of a block, (head_dim, BLOCK_ROWS) f32.

    `points` is the address of (size, BLOCK_ROWS) f32, which receives the part, and `found` of BLOCK_ROWS int32.
    """
    weights, book = head.state + WEIGHTS + part * size * 4, head.state + CODEBOOKS + part * size * CODES * 4
    _deal_part(shape, head, part, size, columns, BLOCK_ROWS, points)
    nearest_of_many(points, BLOCK_ROWS, BLOCK_ROWS, size, weights, book, found)


@kernel
def _widen_values(shape, head, first, step, rows):
    """Write a block of values, row by row: row `first` and others, `step` rows apart."""
    for i in range(BLOCK_ROWS):
        widen_value(shape, tail_value(shape, head, first + i * step), rows + i * 4 * shape.value_dim)


@kernel
def _write_codes(shape, head, block):
    """Write the mean and the codes of a full block."""
    head_dim, n_codes, of_rows = shape.head_dim, record_at(head.state, STATE).n_codes, _rows_bytes(shape)
    first, size, codes = block * BLOCK_ROWS, head_dim // n_codes, codes_of(shape, head, block, n_codes)
    n_bytes = of_rows + 4 * BLOCK_ROWS * (shape.longest + size + 1)
    rows = borrow(n_bytes)
    columns = rows + of_rows
    points = columns + 4 * BLOCK_ROWS * shape.longest
    found = points + 4 * BLOCK_ROWS * size
    _find_mean(shape, head, block, rows)
    _centre_keys(shape, head, first, 1, BLOCK_ROWS, rows)
    transpose(rows, BLOCK_ROWS, head_dim, columns, BLOCK_ROWS)
    for part in range(n_codes):
        _find_nearest(shape, head, part, size, columns, points, found)
        write_codes(codes, part, found)
    _widen_values(shape, head, first, 1, rows)
    transpose(rows, BLOCK_ROWS, shape.value_dim, columns, BLOCK_ROWS)
    fill(rows, 0, shape.value_dim, float32(1))
    nearest_of_many(columns, BLOCK_ROWS, BLOCK_ROWS, shape.value_dim, rows, head.state + VALUES, found)
    write_codes(codes, n_codes, found)
    give_back(rows, n_bytes)
