"""One KV head as methods see it: a document, a tail in chunks with extras, a state, and room to select in."""

from types import SimpleNamespace

import numpy as np
from helpers import oracle
from helpers.kernel_inputs import Room, address, before_a_hole, normal, read_rows, split_of, store_pair

from octavo.cpu_kernels.layout.head import ANY_ORDER, HEAD
from octavo.cpu_kernels.layout.hooks import split_counts
from octavo.cpu_kernels.layout.scores import padded, selection_scratch_bytes
from octavo.cpu_kernels.layout.spans import SPAN
from octavo.cpu_kernels.methods import h2o, quest, sparq
from octavo.cpu_kernels.methods.quest import PAGE_ROWS
from octavo.cpu_kernels.methods.select_top import SELECTION
from octavo.cpu_kernels.methods.sparq import MEASURED_CHUNKS
from octavo.cpu_kernels.numba_support.compile import native
from octavo.cpu_kernels.numba_support.shape import F16, Q4_0
from octavo.cpu_kernels.rows.tiles import CHUNK_ROWS
from octavo.runtime.cache.tail import chunk_bytes
from octavo.runtime.document.stored_rows import as_floats


def page_bounds(keys):
    """Bounds of pages as they are stored: (n_pages, 2, head_dim) f16."""
    return oracle.page_bounds(keys, PAGE_ROWS).astype(np.float16)


def read_in_f32(shape, stored):
    """What stored keys stand for, f64, but rotated back in f32, to the last bit as kernels do it."""
    if not shape.rotated:
        return read_rows(shape, stored)
    rows = stored.view(np.uint16 if shape.kv_type == Q4_0 else np.int8)
    return as_floats(rows, split_of(shape)).astype(np.float64)


def read_pair_in_f32(shape, keys, values):
    """As `read_pair`, but rotated back in f32."""
    floats = read_in_f32(shape, keys)
    return floats, floats[:, : shape.value_dim] if shape.latent else read_in_f32(shape.of_values, values)


def transposed(shape, stored):
    """Copies of chunks' keys as SparQ stores them, (n_chunks, copy_bytes) uint8; 0xFF where there is no row.

    stored : rows as `store_rows` returns them. Of q8_0 and q4_0 a copy has the scales, f16, and then the columns, int8
    """
    if shape.quantised:
        elements, scales = _as_bytes(read_in_f32(shape, stored))
        parts = scales.astype(np.float16), elements.astype(np.int8)
    else:
        parts = (stored.view(np.float16),)
    copies = []
    for first in range(0, len(stored), CHUNK_ROWS):
        copy = []
        for part in parts:
            own = part[first : first + CHUNK_ROWS]
            columns = np.full((part.shape[1], CHUNK_ROWS, part.itemsize), 0xFF, np.uint8)
            columns[:, : len(own)] = np.ascontiguousarray(own.T)[..., None].view(np.uint8)
            copy.append(columns.ravel())
        copies.append(np.concatenate(copy))
    return np.array(copies)


def as_copied(shape, keys):
    """What the transposed copy of stored keys stands for: of q8_0 and q4_0, scales are rounded to f16."""
    if shape.kv_type == F16:
        return keys.astype(np.float16)
    elements, scales = _as_bytes(keys)
    return elements.astype(np.float64) * scales.astype(np.float16)


def _as_bytes(keys):
    """Keys as int8, but in f32, and their scales: the numbers in f32, as kernels compute them."""
    keys = keys.astype(np.float32)
    largest = np.abs(keys).max(axis=1, keepdims=True)
    finite = np.isfinite(largest)
    with np.errstate(divide="ignore", invalid="ignore"):
        elements = np.where(finite & (largest > 0), np.rint(keys * (np.float32(127) / largest)), np.float32(0))
    return elements, np.where(finite, largest / np.float32(127), np.float32(np.nan))


def sums_of_chunks(values):
    """Sums of each chunk's values as they are stored, (n_chunks, head_dim) f32."""
    return np.array([values[i : i + CHUNK_ROWS].sum(axis=0) for i in range(0, len(values), CHUNK_ROWS)], np.float32)


def moments_of_chunks(keys):
    """Sums of each chunk's keys and of their squares as they are stored, (n_chunks, 2, head_dim) f32."""
    return np.stack([sums_of_chunks(keys), sums_of_chunks(keys**2)], axis=1)


#: SparQ without a transposed copy of the keys, as a kernel module.
ONE_COPY = SimpleNamespace(STATE=sparq.STATE, HOOKS=sparq.HOOKS_OF_ONE_COPY, extras_bytes=sparq.moments_bytes)


def extras_of(method, shape, stored_keys, stored_values):
    """The extras of one chunk that a method's `append` hook makes of stored rows: a list of arrays."""
    keys, values = read_pair_in_f32(shape, stored_keys, stored_values)
    if method is quest:
        return [page_bounds(keys)]
    if method in (sparq, ONE_COPY):
        sums = [moments_of_chunks(keys), sums_of_chunks(values)]
        return sums if method is ONE_COPY else [*sums, transposed(shape, stored_keys)]
    return []


def extras_offset(shape):
    """The offset of the extras in a chunk, in bytes."""
    return CHUNK_ROWS * shape.token_bytes


def chunk_table(shape, chunks):
    """The CHUNK records of chunks, each in one piece of memory."""
    offsets = [0, 0 if shape.latent else CHUNK_ROWS * shape.row_bytes, extras_offset(shape)]
    return np.array([chunk.address for chunk in chunks], np.int64)[:, None] + offsets


class Head:
    """A KV head: its rows, numbered from 0, are those of the document and then those of the tail.

    keys : (n_rows, head_dim)    values : (n_rows, value_dim); by default the first columns of the keys
    n_document : how many of them are the document's
    method : kernel module whose STATE and extras it has; None for neither
    fields : values of its HEAD record or of its state
    n_items : number of items that fit its scratch; None for one item a row in chunks
    """

    def __init__(
        self, shape, keys, values=None, n_document=0, n_items=None, document_position=ANY_ORDER, method=None, **fields
    ):
        self.shape, self.n_document, self.n_tail = shape, n_document, len(keys) - n_document
        self.method = method
        self._extras_bytes = method.extras_bytes(shape) if hasattr(method, "extras_bytes") else 0
        stored = store_pair(shape, keys, keys[:, : shape.value_dim] if values is None else values)
        self.keys, self.values = read_pair_in_f32(shape, *stored)
        self.document = [before_a_hole(rows[:n_document]) for rows in stored]
        self._tail(*(rows[n_document:] for rows in stored))
        self.record = np.zeros(1, HEAD)
        self.address = address(self.record)
        self.state = np.zeros(1, getattr(method, "STATE", SELECTION))
        self.n_items = len(self.chunks) * CHUNK_ROWS if n_items is None else padded(n_items)
        self.scratch = Room(selection_scratch_bytes(shape.group, self.n_items))
        self.set(
            shape=shape.packed,
            state=address(self.state),
            document_keys=address(self.document[0]),
            document_values=address(self.document[1]),
            n_document=n_document,
            document_position=document_position,
            tail_position=n_document + max(document_position, 0),
            n_tail=self.n_tail,
            tail_chunks=address(self._table),
            scratch=self.scratch.address,
            scratch_items=self.n_items,
        )
        if method is quest:
            self.set(n_recent=1, item_rows=PAGE_ROWS, item_bytes=4 * shape.head_dim)
        self.set(**fields)

    def set(self, **fields):
        """Set fields of the HEAD record, or of the method's state."""
        for name, value in fields.items():
            (self.record if name in HEAD.names else self.state)[name] = value

    def connect(self, hooks):
        """Compile a method's hooks, and point the record at them."""
        self.set(**{name: native(hook).address for name, hook in hooks._asdict().items() if hook})

    def _tail(self, keys, values):
        """Lay the tail out in chunks; what no row fills is poisoned."""
        self._value_offset = 0 if self.shape.latent else CHUNK_ROWS * self.shape.row_bytes
        self._extras_offset = extras_offset(self.shape)
        size = chunk_bytes(self.shape, self._extras_bytes)
        self.chunks = []
        for first in range(0, len(keys), CHUNK_ROWS):
            chunk, own = Room(size), slice(first, first + CHUNK_ROWS)
            parts = [(0, keys[own]), (self._value_offset, values[own])]
            offset = self._extras_offset
            for array in extras_of(self.method, self.shape, keys[own], values[own]):
                parts.append((offset, array))
                offset += array.nbytes
            for offset, stored in parts:
                chunk.bytes[offset : offset + stored.nbytes] = np.ascontiguousarray(stored).view(np.uint8).ravel()
            self.chunks.append(chunk)
        self._table = chunk_table(self.shape, self.chunks)
        self.gpu_table = self._table[:, 0].copy()  # which holds the addresses of chunks alone

    def score(self, kernel, query, n_parts=1):
        """Each part's share of the scores of one token; returns all, (group, n_items) f32."""
        for part in range(n_parts):
            kernel(self.shape, self.address, address(query), part, n_parts)
        self.scratch.check()
        return self.scratch.view(np.float32, self.shape.group, self.n_items, at=8 * self.n_items)

    def select(self, kernel, queries, most):
        """The spans, at most so many, of (n_tokens, group, head_dim) queries; one token must have been scored."""
        room = Room(most * SPAN.itemsize)
        n_spans = kernel(self.shape, self.address, address(queries), len(queries), room.address)
        room.check()
        self.scratch.check()
        assert n_spans <= most
        return room.view(SPAN)[:n_spans].copy()

    def pick(self, rank, pick, query, most, n_parts=1):
        """The spans, at most so many, that a scored token attends, ranked and picked in so many parts."""
        room = Room(most * SPAN.itemsize)
        for part in range(n_parts):
            rank(self.shape, self.address, address(query), part, n_parts)
        counts = [split_counts(pick(self.shape, self.address, room.address, i, n_parts)) for i in range(n_parts)]
        room.check()
        self.scratch.check()
        n_spans, n_rows = np.sum(counts, axis=0)
        spans = room.view(SPAN)[:n_spans].copy()
        assert spans["n_rows"].sum() == n_rows
        return spans[spans["n_rows"] > 0]

    def score_and_select(self, score, select, queries, most):
        if len(queries) == 1:
            self.score(score, queries)
        return self.select(select, queries, most)

    def rows(self, spans):
        """The rows of spans, in their order. Checks that values belong to their keys and positions to their rows."""
        numbers = []
        for span in spans:
            assert span["n_rows"] > 0
            base, number, last = self._place(span["keys"], span["values"])
            within = np.arange(span["n_rows"])
            if span["rows"]:
                within = int32_at(span["rows"], span["n_rows"])
                assert span["position"] == ANY_ORDER
            rows = number + within
            assert rows.min() >= base
            assert rows.max() <= last, "over the end of the document or of a chunk"
            position = int(self.record["document_position" if rows[0] < self.n_document else "tail_position"][0])
            if span["position"] != ANY_ORDER:
                assert span["position"] == position + rows[0] - (self.n_document if rows[0] >= self.n_document else 0)
            numbers += rows.tolist()
        return numbers

    def _place(self, keys, values):
        """Where a span's first row is: first row of the document or chunk that it is in, its own number, the last."""
        row_bytes = self.shape.row_bytes
        places = [(address(self.document[0]), address(self.document[1]), 0, self.n_document)]
        for i, chunk in enumerate(self.chunks):
            first = self.n_document + i * CHUNK_ROWS
            n_rows = min(CHUNK_ROWS, self.n_document + self.n_tail - first)
            places.append((chunk.address, chunk.address + self._value_offset, first, n_rows))
        for first_key, first_value, first, n_rows in places:
            within, rest = divmod(int(keys) - first_key, row_bytes)
            if rest == 0 and 0 <= within < n_rows:
                assert values == first_value + within * self.shape.value_bytes, "values of other rows"
                return first, first + within, first + n_rows - 1
        raise AssertionError("a span lies nowhere in the head")

    def pages(self):
        """The rows of each page of the tail."""
        end = self.n_document + self.n_tail
        return [range(first, min(first + PAGE_ROWS, end)) for first in range(self.n_document, end, PAGE_ROWS)]

    def slots(self, chunk):
        """Positions and attention of a chunk's rows, views."""
        return h2o.positions_and_attention(self.shape, self.chunks[chunk].bytes[self._extras_offset :])


def int32_at(address_of_first, n):
    import ctypes

    return np.frombuffer((ctypes.c_int32 * int(n)).from_address(int(address_of_first)), np.int32).astype(np.int64)


def queries_of(rng, shape, n_tokens=1, spread=0.3):
    return normal(rng, n_tokens, shape.group, shape.head_dim, spread=spread)


def partial_scores(head, query, n_components, **rules):
    """The oracle's scores of all rows, by the copy of their keys if there is one."""
    spread = oracle.spread(head.keys, CHUNK_ROWS, MEASURED_CHUNKS)
    keys = head.keys if head.method is ONE_COPY else as_copied(head.shape, head.keys)
    return oracle.partial_scores(query, keys, n_components, spread, **rules)


def random_head(rng, shape, n_document, n_tail, **fields):
    """A head whose keys drift, so that neighbours are alike."""
    n_rows = n_document + n_tail
    drift = np.repeat(normal(rng, -(-n_rows // 8), shape.head_dim), 8, axis=0)[:n_rows]
    keys = normal(rng, n_rows, shape.head_dim, spread=0.5) + drift
    return Head(shape, keys, normal(rng, n_rows, shape.value_dim), n_document, **fields)


def head_with_constant_components(rng, shape, n_rows, **fields):
    """A head, and (1, group, head_dim) queries, whose components are largest where all its keys are the same."""
    keys, n = normal(rng, n_rows, shape.head_dim), shape.head_dim // 4
    keys[:, :n] = np.where(np.arange(n) % 2, -8, 8)
    queries = np.zeros((1, shape.group, shape.head_dim), np.float32)
    queries[..., :n] = 3 * rng.choice([-1, 1], queries[..., :n].shape)
    queries[..., -n:] = rng.choice([-1, 1], queries[..., -n:].shape) / np.sqrt(n)
    return Head(shape, keys, method=sparq, n_components=n, **fields), queries


def head_of_unlike_chunks(rng, shape, n_rows, method=sparq, **fields):
    """A head each of whose chunks has other components that vary much, around a mean that is not 0."""
    n_chunks = -(-n_rows // CHUNK_ROWS)
    spreads = np.exp(normal(rng, n_chunks, shape.head_dim))
    keys = normal(rng, n_rows, shape.head_dim) * np.repeat(spreads, CHUNK_ROWS, axis=0)[:n_rows]
    return Head(shape, keys + normal(rng, shape.head_dim, spread=3), method=method, **fields)


def assert_largest(chosen, values, k):
    """That these indices, rising, are of the k largest; those that rounding could exchange may be exchanged."""
    assert np.array_equal(chosen, np.unique(chosen))
    assert len(chosen) == min(k, len(values))
    if len(chosen) in (0, len(values)):
        return
    least = np.sort(values)[-k]
    slack = 1e-3 * least + 1e-30 if np.isfinite(least) else 0
    assert (values[chosen] >= least - slack).all()
    assert (np.delete(values, chosen) <= least + slack).all()
