"""What the tests of the kernels share: shapes, inputs, poisoned memory with guards, and rows as they are stored."""

import ctypes
import itertools
import mmap
import threading

import numpy as np
import pytest
from helpers import oracle

from octavo.cpu_kernels.layout.spans import ALL_HEADS
from octavo.cpu_kernels.numba_support.machine_features import HAS_AMX
from octavo.cpu_kernels.numba_support.shape import F16, FLAT_Q8_0, NIBBLES, Q4_0, Q8_0, Shape
from octavo.cpu_kernels.rows import q4_0, rows
from octavo.cpu_kernels.rows.tiles import ROWS_AT_ONCE

HEAD_DIMS = [8, 40, 64, 72, 80, 96, 128, 256]
#: The shape of most tests that are not about shapes, with each type of keys and values. With q4_0 it is that of the
#: tiny models, whose tests compile the same kernels.
SHAPE, QUANTISED, ROTATED = Shape(64, 3), Shape(64, 3, Q8_0), Shape(64, 2, Q4_0)
FLAT = Shape(64, 3, FLAT_Q8_0)
#: Each type for tests that are not about types: q4_0 for the slow ones, because kernels take seconds to compile.
EACH = [pytest.param(SHAPE, id="f16"), pytest.param(QUANTISED, id="q8_0")]
EACH.append(pytest.param(Shape(64, 3, Q4_0), id="q4_0", marks=pytest.mark.slow))
KV_TYPES = [F16, Q8_0, pytest.param(Q4_0, marks=pytest.mark.slow)]
THREADS = [1, 2, 5]  # 5: more than the cores of a small machine
SAME = 2e-5  # relative: f32 sums of some hundred products
#: The same of products on AMX. It keeps 16 bits of each factor, so up to 2**-15 of it are lost, and leaves out the
#: product of both lower halves, as much again.
SAME_PRODUCTS = 3 * 2.0**-15 if HAS_AMX else SAME
SAME_IN_BATCHES = 2 * SAME_PRODUCTS if HAS_AMX else SAME  # of keys and queries, and then of weights and values

_GUARD_BYTES, _GUARD, _POISON = 256, 0xA5, 0xFF

HOSTILE_SCORES = {
    "all high": [10000] * 300,
    "all low": [-10000] * 300,
    "rising": list(range(-10000, 10001, 40)),
    "one high, first": [10000] + [-10000] * 299,
    "one high, last": [-10000] * 299 + [10000],
    "one low among high": [10000] * 150 + [-10000] + [10000] * 149,
    "steps up": [-10000] * 130 + [0] * 130 + [10000] * 130,
    "steps down": [10000] * 130 + [0] * 130 + [-10000] * 130,
    "close together, far from 0": [9992, 10000] * 140,
    "all the same": [0] * 300,
}


def shapes(few, groups=range(1, 17)):
    """A test's shapes: a few, each compiled in seconds, and every other one for the slow tests.

    few : (head_dim, group, kv_type)    groups : of the slow ones
    """
    others = [sizes for sizes in itertools.product(HEAD_DIMS, groups, (F16, Q8_0, Q4_0)) if sizes not in few]
    named = [pytest.param(Shape(*sizes), id="{}-{}-{}".format(*sizes)) for sizes in few]
    slow = [pytest.param(Shape(*sizes), id="{}-{}-{}".format(*sizes), marks=pytest.mark.slow) for sizes in others]
    return named + slow


#: For the quick tests: short and long vectors, one head and many, each type.
FEW = [
    (64, 3, F16),
    (72, 8, F16),
    (256, 5, F16),
    (8, 16, Q8_0),
    (40, 1, Q8_0),
    (64, 3, Q8_0),
    (128, 4, Q8_0),
    (64, 2, Q4_0),
    (72, 1, Q4_0),
]


#: Heads of 512, as Gemma 4 has.
LONG = [(512, 8, F16), (512, 2, Q8_0), (512, 2, Q4_0)]

#: Keys and values of different lengths, and latent keys, whose first part is the value.
UNLIKE = [
    Shape(96, 3, F16, 64),
    Shape(40, 5, F16, 72),
    Shape(192, 4, F16, 128),
    Shape(72, 2, Q8_0, 40),
    Shape(64, 3, Q8_0, 96),
    Shape(96, 4, Q4_0, 64),
    Shape(40, 2, Q4_0, 72),
    Shape(96, 17, F16, 64, latent=True),
    Shape(576, 20, F16, 512, latent=True),
    Shape(72, 3, Q8_0, 40, latent=True),
    Shape(576, 16, Q8_0, 512, latent=True),
    Shape(96, 2, Q4_0, 64, latent=True),
    Shape(320, 33, Q4_0, 256, latent=True),
]
_NAMES = [f"{shape.head_dim}-{shape.value_dim}-{shape.group}-{shape.kv_type}" for shape in UNLIKE]
UNLIKE = [pytest.param(shape, id=name + "-latent" * shape.latent) for shape, name in zip(UNLIKE, _NAMES, strict=True)]


def normal(rng, *shape, spread=1.0, dtype=np.float32):
    return (rng.standard_normal(shape) * spread).astype(dtype)


def halves(rng, *shape):
    return normal(rng, *shape, dtype=np.float16)


def address(array):
    return array.ctypes.data


def as_bf16(array):
    """What bf16 holds of an array, as f32."""
    bits = array.astype(np.float32).view(np.uint32) + np.uint32(1 << 15)
    return (bits & np.uint32(0xFFFF0000)).view(np.float32)


def relative_error(actual, expected):
    """The largest error of a row of the last axis, relative to the row's largest element; inf for a NaN."""
    error = np.abs(actual - expected).max(axis=-1) / np.abs(expected).max(axis=-1)
    return np.where(np.isnan(error), np.inf, error).max(initial=0.0)


def same_in_batches(shape):
    """The largest error of a batch of `random_prefill`: scores spread, as their errors do, by the root of head_dim."""
    return SAME_IN_BATCHES * max(1, shape.head_dim / 128) ** 0.5


class Room:
    """What a kernel gets to write on. What it leaves, or reads before it wrote, is a NaN or -1; guards lie around it.

    `filled`: with these f32 to begin with
    """

    def __init__(self, n_bytes=None, filled=None):
        n_bytes = n_bytes if filled is None else filled.nbytes
        self._memory = np.full(n_bytes + 2 * _GUARD_BYTES, _GUARD, np.uint8)
        self.bytes = self._memory[_GUARD_BYTES : _GUARD_BYTES + n_bytes]
        self.bytes[:] = _POISON if filled is None else np.ascontiguousarray(filled).view(np.uint8).ravel()
        self.address = address(self.bytes)

    def view(self, dtype, *shape, at=0):
        """An array over the room, or over its part from byte `at` on; a shape of none takes all."""
        n_bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize if shape else len(self.bytes) - at
        return self.bytes[at : at + n_bytes].view(dtype).reshape(shape or -1)

    def floats(self, *shape):
        return self.view(np.float32, *shape)

    def check(self):
        around = np.concatenate([self._memory[:_GUARD_BYTES], self._memory[-_GUARD_BYTES:]])
        assert (around == _GUARD).all(), "written outside of its room"


def before_a_hole(array):
    """A copy that ends where memory that nobody may read begins: a kernel that reads on crashes."""
    page = mmap.PAGESIZE
    size = -(-array.nbytes // page) * page
    memory = mmap.mmap(-1, size + page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(start + size), ctypes.c_size_t(page), 0) == 0
    copy = np.frombuffer(memory, array.dtype, array.size, size - array.nbytes).reshape(array.shape)
    copy[:] = array
    return copy


# Rows as they are stored.


def split_of(shape):
    """The columns of a latent key that are its value; 0 for other rows."""
    return shape.value_dim if shape.latent else 0


def store_pair(shape, keys, values):
    """Keys and values as they are stored; the same array if values are the first part of their keys."""
    stored = store_rows(shape, keys)
    return stored, stored if shape.latent else store_rows(shape.of_values, values)


def read_pair(shape, keys, values):
    """What stored keys and values stand for, f64."""
    floats = read_rows(shape, keys)
    return floats, floats[:, : shape.value_dim] if shape.latent else read_rows(shape.of_values, values)


def store_rows(shape, floats):
    """Keys, (n, head_dim) of any float, as they are stored: (n, row_bytes) uint8, just before a hole."""
    if shape.kv_type == F16:
        return before_a_hole(np.ascontiguousarray(floats, np.float16).view(np.uint8))
    if shape.kv_type == Q4_0:
        return before_a_hole(oracle.pack(np.asarray(floats, np.float64), split_of(shape)))
    if shape.rotated:
        floats = oracle.rotate(np.asarray(floats, np.float64), split_of(shape))
    floats = np.asarray(floats, np.float32)
    if shape.latent:  # two rows, whose scales come last
        parts = [store_rows(Shape(p.shape[1], 1, FLAT_Q8_0), p) for p in np.split(floats, [shape.value_dim], axis=1)]
        return before_a_hole(np.hstack([*(p[:, :-4] for p in parts), *(p[:, -4:] for p in parts)]))
    finite = np.isfinite(floats).all(axis=1, keepdims=True)
    scales = np.where(
        finite, np.abs(floats).max(axis=1, keepdims=True, initial=0) / np.float32(127), np.float32(np.nan)
    )
    elements = np.rint(np.where(finite, floats, 0) / np.where(scales > 0, scales, 1)).astype(np.int8)
    return before_a_hole(np.hstack([elements.view(np.uint8), scales.view(np.uint8)]))


def read_as_stored(shape, stored):
    """As `read_rows`, but rotated as the rows are stored."""
    floats = read_rows(shape, stored)
    return oracle.rotate(floats, split_of(shape)) if shape.rotated else floats


def read_rows(shape, stored):
    """What stored keys stand for: (n, head_dim) f64."""
    if shape.kv_type == F16:
        return np.ascontiguousarray(stored).view(np.float16).astype(np.float64)
    if shape.kv_type == Q4_0:
        return oracle.rotate(oracle.unpack(stored, shape.head_dim), split_of(shape))
    elements = np.ascontiguousarray(stored[:, : shape.head_dim]).view(np.int8)
    scales = np.ascontiguousarray(stored[:, shape.head_dim :]).view(np.float32).astype(np.float64)
    floats = elements * _by_column(shape, scales)
    return oracle.rotate(floats, split_of(shape)) if shape.rotated else floats


def _by_column(shape, scales):
    """The scale of each column of rows with one scale, or with one for each part."""
    return np.repeat(scales, [shape.value_dim, shape.head_dim - shape.value_dim], axis=1) if shape.latent else scales


class LoadedQuery:
    """A group's query as `load_query` leaves it. floats : (group, head_dim) f64, what that stands for."""

    def __init__(self, shape, query):
        self._query, self._room = query, Room(rows.query_bytes(shape))
        self.address = rows.load_query(shape, address(query), self._room.address)
        self._room.check()
        if shape.kv_type == F16:
            assert self.address == address(query)
            self.floats = query.astype(np.float64)
            return
        if shape.kv_type == Q4_0:
            self._read_nibble_query(shape)
            return
        size = shape.group * shape.head_dim
        elements = self._room.view(np.int8, shape.group, shape.head_dim)
        scales = self._room.view(np.float32, 2, shape.group, at=size).T
        self.scales = _by_column(shape, scales) if shape.latent else scales[:, :1]
        self.floats = elements * self.scales.astype(np.float64)
        if shape.rotated:
            self.floats = oracle.rotate(self.floats, split_of(shape))

    def _read_nibble_query(self, shape):
        """Read the elements, which lie as a block's codes do, and rotate them back."""
        blocks, at_once = q4_0.nibble_blocks(shape.head_dim), q4_0.blocks_at_once(shape.head_dim)
        elements = self._room.view(np.int8, shape.group, len(blocks) // at_once, 2, at_once, NIBBLES // 2)
        elements = elements.swapaxes(2, 3).reshape(shape.group, len(blocks), 2, NIBBLES // 2)
        parts = [elements[:, i, :, : length // 2].reshape(shape.group, -1) for i, (_, length) in enumerate(blocks)]
        self.scales = self._room.view(np.float32, shape.group, 1, at=q4_0.nibble_query(shape, 0).scales)
        self.floats = oracle.rotate(np.hstack(parts) * self.scales.astype(np.float64), split_of(shape))


def list_of_addresses(shape, stored, numbers):
    """The addresses of these rows, filled up with the last one to what is summed at once, and what is asked for ahead.

    That need not be rows: nobody reads it.
    """
    addresses = address(stored) + np.asarray(numbers, np.int64) * stored.strides[0]
    filling = -len(addresses) % ROWS_AT_ONCE
    ahead = np.arange(rows.rows_ahead(shape), dtype=np.int64)
    return before_a_hole(np.concatenate([addresses, np.repeat(addresses[-1:], filling), ahead]))


def rows_with_scores(scores, head_dim):
    """A query and f16 keys whose scores are exactly these, whole numbers below 2048 or multiples of 8."""
    query, keys = np.zeros(head_dim, np.float32), np.zeros((len(scores), head_dim), np.float16)
    query[1] = 1
    keys[:, 1] = scores
    assert (keys[:, 1] == scores).all()
    return query, keys


def random_pieces(rng, n_rows, n_cuts):
    """All rows in pieces, in any order: runs, and lists that are out of order. Some pieces may be empty."""
    cuts = [0, *sorted(rng.integers(0, n_rows, n_cuts, endpoint=True).tolist()), n_rows]
    pieces = [range(a, b) for a, b in itertools.pairwise(cuts)]
    rng.shuffle(pieces)
    return [piece if rng.random() < 0.5 else rng.permutation(piece) for piece in pieces]


class SpanOf:
    """A piece of stored rows as a SPAN: a range is a run, an array of row numbers is a list."""

    def __init__(self, keys, values, piece, position, window=0, base=0, heads=ALL_HEADS):
        """base : the row that a list's numbers count from    heads : bits of the query heads that attend it"""
        first, listed = (piece.start, 0) if isinstance(piece, range) else (base, 1)
        if listed:
            self._numbers = before_a_hole(np.asarray(piece, np.int64).astype(np.int32) - np.int32(base))
            listed = address(self._numbers)
        place = address(keys) + first * keys.strides[0], address(values) + first * values.strides[0]
        self.record = (*place, len(piece), position, window, listed, heads, 0)


# Threads.


def in_threads(n_threads, work):
    """Run work(ith) in real threads; an exception in one of them is raised here."""
    problems = []

    def guarded(ith):
        try:
            work(ith)
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=guarded, args=(ith,), daemon=True) for ith in range(n_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a thread hangs at a barrier"
    if problems:
        raise problems[0]
