"""Run heads of a layer on the shaders, through the simulator: the dispatches of a step, as the host makes them."""

import ctypes
from functools import cache

import numpy as np
from helpers.kernel_inputs import address
from metal_simulator.simulator import Address, Library

from octavo.cpu_kernels.layout.head import ANY_ORDER, HEAD
from octavo.cpu_kernels.layout.spans import SPAN
from octavo.cpu_kernels.numba_support.shape import Shape
from octavo.cpu_kernels.rows.tiles import CHUNK_ROWS
from octavo.metal.records import GPU_STEP, SELECTED_BYTES
from octavo.metal.shader_library import defines, heads_at_once, method_names, source, tile_queries

#: A Span of the shaders (metal/common.metal).
GPU_SPAN = np.dtype(
    [
        ("keys", "i8"),
        ("values", "i8"),
        ("rows", "i8"),
        ("first", "i4"),
        ("n_rows", "i4"),
        ("position", "i4"),
        ("window", "i4"),
    ]
)

#: Fields of HEAD, and of the methods' states, that are addresses of data.
POINTERS = ("document_keys", "document_values", "tail_chunks", "scratch", "state")
STATE_POINTERS = ("centroids", "cluster_starts", "coarse_centroids", "coarse_starts")


def memory_of(head):
    """Return the memory that a head's records and its table point at."""
    clusters = ("centroids", "starts", "coarse_centroids", "coarse_starts")
    rooms = [*head.chunks, head.scratch]
    return [*head.document, head.gpu_table, head.state, *(room.bytes for room in rooms), *(vars(head)[name]
            for name in clusters if name in vars(head))]  # fmt: skip


@cache
def library(shape: Shape, sanitizer=None) -> Library:
    """Compile the shaders of a shape."""
    return Library(source(shape), sanitizer=sanitizer, name="octavo.metal")


class Layer:
    """Heads (see kernel_heads.py) that attend by methods.

    Parameters
    ----------
    heads : list of Head
        The heads, all of one shape.
    methods : list of str
        Name of each head's method, whose STATE the head has.
    n_score_shares, n_shares, threads : int
        Sizes of the dispatches: small, so that few items make many shares.
    sanitizer : str or None
        The sanitizer that checks each dispatch (see metal_simulator/simulator.py).
    """

    def __init__(self, heads, methods, *, softcap=0.0, sinks=None, n_score_shares=3, n_shares=5, threads=64, schedule=0,
                 sanitizer=None):  # fmt: skip
        self.heads, self.methods, self.shape = heads, methods, heads[0].shape
        self.softcap, self.sinks = softcap, sinks
        self.n_score_shares, self.n_shares, self.threads, self.schedule = n_score_shares, n_shares, threads, schedule
        capacity = max(len(head.chunks) * 24 + len(getattr(head, "sizes", ())) + 32 for head in heads)
        self.spans = np.zeros((len(heads), capacity), GPU_SPAN)
        self.selected = np.full((len(heads), 2), -1, np.int32)
        self.records = np.zeros(len(heads), HEAD)
        self.sanitizer = sanitizer

    def _start(self, queries, n_new, new=None):
        """Prepare the buffers of a step of queries, (n_kv_head, n_tokens, group, head_dim)."""
        n_heads, n_tokens = queries.shape[:2]
        self.n_tokens = n_tokens
        for i, head in enumerate(self.heads):
            self.records[i] = head.record[0]
            self.records[i]["tail_chunks"] = address(head.gpu_table)
        self.records["select"] = self.records["append"] = [method_names().index(name) for name in self.methods]
        step = np.zeros(1, GPU_STEP)
        step[0] = (n_heads, n_tokens, self.n_shares, self.spans.shape[1], self.softcap, self.sinks is not None, 0)
        shape, n_partials = self.shape, self.n_shares + n_heads
        self.out = np.full((n_tokens, n_heads * shape.group, shape.value_dim), np.nan, np.float32)
        self.spans[:], self.selected[:] = 0, -1
        self.lists = []  # of spans that were read back
        empty = [np.zeros((n_heads, n_new or 1, length), np.float16) for length in (shape.head_dim, shape.value_dim)]
        new_keys, new_values = empty if new is None else new
        self.buffers = {
            0: self.records,
            1: step.tobytes(),
            2: np.array(queries, np.float32),  # a copy, which is rotated
            3: self.spans,
            4: self.selected,
            5: np.full((n_partials, shape.group, shape.value_dim + 2), np.nan, np.float32),
            6: self.out,
            7: self.sinks if self.sinks is not None else np.zeros(1, np.float32),
            8: np.ascontiguousarray(new_keys),
            9: np.ascontiguousarray(new_values),
        }
        assert self.selected.itemsize * 2 == SELECTED_BYTES

    def dispatch(self, kernel, threadgroups, threads=None):
        """Run one kernel on this schedule. If there is a sanitizer, it runs on copies of everything first."""
        threads = threads or self.threads
        if self.sanitizer:
            buffers, addresses = self._copies()
            library(self.shape, self.sanitizer).run(kernel, buffers, threadgroups, threads, addresses=addresses)
        library(self.shape).run(kernel, self.buffers, threadgroups, threads, schedule=self.schedule)

    def _copies(self):
        """Copy the buffers, and all memory that records, tables and spans point at, apart from each other."""
        regions = [memory for head in self.heads for memory in memory_of(head)]
        regions = [memory.reshape(-1).view(np.uint8) for memory in regions if memory.size]
        starts = np.array([address(memory) for memory in regions])
        buffers = {index: buffer.copy() if isinstance(buffer, np.ndarray) else buffer
                   for index, buffer in self.buffers.items()}  # fmt: skip
        buffers.update({100 + i: memory.copy() for i, memory in enumerate(regions)})
        addresses = []

        def point(buffer, offset, value):
            for i in np.flatnonzero((starts <= value) & (value < starts + [memory.size for memory in regions])):
                addresses.append(Address(buffer, offset, 100 + int(i), int(value - starts[i])))

        for buffer, records, fields in ((0, self.records, POINTERS), (3, self.spans, ("keys", "values", "rows"))):
            for number, record in enumerate(records.reshape(-1)):
                for field in fields:
                    offset = number * records.itemsize + records.dtype.fields[field][1]
                    point(buffer, offset, int(record[field]))
        for i, memory in enumerate(regions):
            for state in (head.state for head in self.heads if memory.ctypes.data == address(head.state)):
                for field in set(STATE_POINTERS) & set(state.dtype.names):
                    point(100 + i, state.dtype.fields[field][1], int(state[field][0]))
            if any(memory.ctypes.data == address(head.gpu_table) for head in self.heads):
                for number, value in enumerate(memory.view(np.int64)):
                    point(100 + i, 8 * number, int(value))
        return buffers, addresses

    def append(self, keys, values):
        """Store new rows, f16 (n_kv_head, n_tokens, length), for which n_tail counts already."""
        n_heads, n_new = keys.shape[:2]
        self._start(np.zeros((n_heads, n_new, self.shape.group, self.shape.head_dim)), n_new, (keys, values))
        ends = [(int(head.record["n_tail"][0]) - n_new, int(head.record["n_tail"][0])) for head in self.heads]
        pieces = max(-(-stop // CHUNK_ROWS) - start // CHUNK_ROWS for start, stop in ends)
        self.dispatch("append_rows", (pieces, n_heads))
        self.check()

    def select(self, queries):
        """Return what each head selects: SPAN records, as the CPU's methods write them."""
        self._start(queries, 0)
        self._select()
        self.check()
        return [self._spans_of(i) for i in range(len(self.heads))]

    def _select(self):
        n_heads = len(self.heads)
        if self.n_tokens == 1 and any(defines(name, "score") for name in self.methods):
            self.dispatch("score_items", (self.n_score_shares, n_heads))
            if any(defines(name, "narrow") for name in self.methods):
                self.dispatch("narrow_items", n_heads)
                self.dispatch("score_narrowed", (self.n_score_shares, n_heads))
        self.dispatch("select_spans", n_heads)

    def attend(self, queries):
        """Return the attention of (n_kv_head, n_tokens, group, head_dim): (n_tokens, n_kv_head, group, head_dim)."""
        self._start(queries, 0)
        self._select()
        return self._attend()

    def attend_spans(self, queries, spans):
        """Return the attention of one token over spans: of each, address of keys, values, rows or 0; and n_rows."""
        self._start(queries, 0)
        for i, own in enumerate(spans):
            first = 0
            for place, (keys, values, rows, n_rows) in enumerate(own):
                self.spans[i, place] = (keys, values, rows, first, n_rows, ANY_ORDER, 0)
                first += n_rows
            self.selected[i] = len(own), first
        return self._attend()

    def _attend(self):
        n_heads, group = len(self.heads), self.shape.group
        if self.shape.rotated:
            self.dispatch("rotate_queries", (self.n_tokens * group, n_heads), 32)
        if self.n_tokens == 1:
            self.dispatch("attend_shares", (self.n_shares + n_heads, -(-group // heads_at_once(self.shape))))
            self.dispatch("merge_shares", (group, n_heads), 32)
        else:
            self.dispatch("attend_tiles", (-(-self.n_tokens * group // tile_queries(self.shape)), n_heads), 128)
        self.check()
        return self.out.reshape(self.n_tokens, n_heads, group, -1)

    def check(self):
        """Check that nothing was written outside of its room."""
        for head in self.heads:
            head.scratch.check()
            for chunk in head.chunks:
                chunk.check()

    def _spans_of(self, i):
        """Read a head's spans, and check that they count their rows."""
        n_spans, n_rows = self.selected[i]
        own = self.spans[i, :n_spans]
        assert own["first"].tolist() == np.cumsum([0, *own["n_rows"]])[:-1].tolist()
        assert own["n_rows"].sum() == n_rows
        own = own[own["n_rows"] > 0]
        records = np.zeros(len(own), SPAN)
        for record, span in zip(records, own, strict=True):
            for name in ("keys", "values", "n_rows", "position", "window"):
                record[name] = span[name]
            if span["rows"]:  # the shaders list rows of the tail, the CPU rows of the chunk
                listed = (ctypes.c_int32 * int(span["n_rows"])).from_address(int(span["rows"]))
                self.lists.append(np.frombuffer(listed, np.int32) % CHUNK_ROWS)
                record["rows"] = address(self.lists[-1])
        return records
