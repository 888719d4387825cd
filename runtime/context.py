"""A llama.cpp context whose KV cache and attention are ours."""

from __future__ import annotations

import ctypes
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import llama_cpp
import numpy as np
from llama_cpp import _internals as internals

from octavo.cpu_kernels.compile import Shape
from octavo.cpu_kernels.decode import partial_size
from octavo.cpu_kernels.layer import WORK, scratch_bytes
from octavo.cpu_kernels.select import padded, selection_scratch_bytes
from octavo.cpu_kernels.spans import SPAN

from . import ggml, seam
from .architecture import AttentionNode, silent_llama_cpp
from .cache import KVCache
from .document import Document
from .errors import OctavoError
from .selectors import Assignment
from .tail import CacheLayer, Rows

#: Batches from this size on can be interrupted between two nodes of the graph.
_INTERRUPTIBLE = 8

_ABORTED = 2  # what llama_decode returns after its abort callback


class Context(internals.LlamaContext):
    """Drop-in for llama-cpp-python's LlamaContext: one sequence, of any length that memory holds.

    llama.cpp's own cache holds one batch and is cleared before each; `cache` holds the sequence.
    """

    def __init__(
        self,
        *,
        model: Any,
        params: Any,
        nodes: list[AttentionNode],
        n_ctx: int,
        assign: Callable[[list[CacheLayer]], list[Assignment]],
        kv_type: str,
        verbose: bool,
    ) -> None:
        self._exit_stack = ExitStack()  # the base class's; `close` needs it even where this is interrupted
        self.nodes = nodes
        self.kv_type = kv_type
        self._n_ctx = n_ctx
        self.shapes = [Shape(node.head_dim, node.n_head // node.n_kv_head, kv_type) for node in nodes]
        layers = cache_layers(nodes, kv_type)
        self.cache = KVCache(layers, n_ctx, assign(layers))
        self._step = np.zeros(1, seam.STEP)
        self._work = np.zeros(1, WORK)
        self._layers = np.zeros(len(nodes), seam.LAYER)
        n_threads = max(params.n_threads, params.n_threads_batch)
        self._buffers = self._allocate(params.n_ubatch, n_threads)
        self._fill_tables()
        params.cb_eval = llama_cpp.ggml_backend_sched_eval_callback(seam.take_over.address)
        params.cb_eval_user_data = self._step.ctypes.data
        params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED
        params.type_k = params.type_v = ggml.TYPE_F16
        params.offload_kqv = params.op_offload = False
        with nullcontext() if verbose else silent_llama_cpp():
            super().__init__(model=model, params=params, verbose=verbose)
        self._interruption = _Interruption()
        self._abort = _abort_callback(self._interruption)

    def _allocate(self, n_ubatch: int, n_threads: int) -> dict[str, np.ndarray]:
        """Memory that the step works in."""
        n_kv_head = max(node.n_kv_head for node in self.nodes)
        scratch = max(scratch_bytes(shape) for shape in self.shapes)
        partial = max(4 * partial_size(shape) for shape in self.shapes)
        return {
            "queries": np.empty(n_ubatch * max(node.n_head * node.head_dim for node in self.nodes), np.float32),
            "n_spans": np.zeros(n_kv_head, np.int64),
            "n_rows": np.zeros(n_kv_head, np.int64),
            "partials": np.empty(n_threads * n_kv_head * partial, np.uint8),
            "scratch": np.empty((n_threads, -(-scratch // 64) * 64), np.uint8),
        }

    def _fill_tables(self) -> None:
        """The records that the native step follows; see seam.py."""
        operations = ggml.check_layout()
        step = self._step[0]
        step["layers"], step["n_layers"] = self._layers.ctypes.data, len(self.nodes)
        step["flash_attention"], step["custom"] = operations
        for name, array in self._buffers.items():
            self._work[name] = array.ctypes.data
        self._work["scratch_bytes"] = self._buffers["scratch"].shape[1]
        for layer, node, shape in zip(self._layers, self.nodes, self.shapes, strict=True):
            layer["work"] = self._work.ctypes.data
            layer["run"] = seam.compiled_layer(shape).address
            layer["heads"] = self.cache.layer_heads(node.kv_layer).ctypes.data
            layer["n_kv_head"], layer["appends"] = node.n_kv_head, node.appends
            layer["scale"], layer["softcap"] = node.scale, node.softcap
        self._n_items = self._n_spans = -1

    def attach(self, document: Document | None) -> None:
        """Start over with a document's keys and values, or with nothing."""
        try:
            self.cache.attach(document)
        except BaseException:
            self.cache.attach(None)
            raise

    def use(self, assignments: list[Assignment]) -> None:
        """Attend by other selectors from the next step on.

        Raises OctavoError where rows after the document were forgotten, or are to be.
        """
        before, document = self.cache.assignments, self.cache.document
        self._n_items = self._n_spans = -1
        rows = self.cache.all_rows(assignments)
        try:
            self._rearrange(assignments, document, rows)
        except OctavoError:
            self._rearrange(before, document, rows)
            raise

    def _rearrange(self, assignments: list[Assignment], document: Document | None, rows: list[Rows]) -> None:
        self.cache.attach(None)
        self.cache.arrange(assignments)
        self.cache.attach(document)
        if rows:
            self.cache.append_rows(rows)

    def _make_room(self) -> None:
        """Have enough memory for selectors to write in, and some for the steps to come."""
        n_items, n_spans = self.cache.max_items, self.cache.max_spans
        if n_items <= self._n_items and n_spans <= self._n_spans:
            return
        self._n_items, self._n_spans = padded(n_items + n_items // 4), n_spans + n_spans // 4
        n_kv_head = max(node.n_kv_head for node in self.nodes)
        size = selection_scratch_bytes(max(shape.group for shape in self.shapes), self._n_items)
        scratch, spans = np.empty((n_kv_head, size), np.uint8), np.empty((n_kv_head, self._n_spans), SPAN)
        self.cache.heads["scratch_items"] = self._n_items
        for node in self.nodes:
            addresses = scratch.ctypes.data + np.arange(node.n_kv_head) * scratch.strides[0]
            self.cache.layer_heads(node.kv_layer)["scratch"] = addresses
        self._work["spans"], self._work["span_capacity"] = spans.ctypes.data, spans.shape[1]
        self._selection_buffers = scratch, spans  # kept alive

    def decode(self, batch: internals.LlamaBatch) -> None:
        """Run a batch that follows what the cache holds, and add it to the cache."""
        n_tokens, n_past = batch.n_tokens(), self.cache.n_tokens
        if batch.batch.pos[0] != n_past or batch.batch.pos[n_tokens - 1] != n_past + n_tokens - 1:
            raise OctavoError(f"octavo keeps one sequence: a batch must go on at position {n_past}.")
        if n_past + n_tokens > self._n_ctx:
            raise OctavoError(
                f"{n_past + n_tokens:,} tokens do not fit the context of {self._n_ctx:,}: give a larger one (n_ctx)."
            )
        self.cache.reserve(n_tokens)
        self._make_room()
        self._work["arrived"] = self._step["next_layer"] = 0
        llama_cpp.llama_memory_clear(self.memory, False)
        try:
            self._run(batch, interruptible=n_tokens >= _INTERRUPTIBLE)
        except BaseException:
            self.cache.truncate(n_past)
            raise
        self.cache.settle()

    def _run(self, batch: internals.LlamaBatch, interruptible: bool) -> None:
        if not interruptible:
            super().decode(batch)
            return
        llama_cpp.llama_set_abort_callback(self.ctx, self._abort, None)
        try:
            with self._watched_signals(), silent_llama_cpp():
                code = llama_cpp.llama_decode(self.ctx, batch.batch)
        finally:
            llama_cpp.llama_set_abort_callback(self.ctx, llama_cpp.ggml_abort_callback(0), None)
        if code:
            raise OctavoError(f"llama.cpp could not compute a batch (llama_decode returned {code}).")

    @contextmanager
    def _watched_signals(self) -> Iterator[None]:
        """Between the nodes of a graph, a Ctrl-C only sets a flag, which abandons the graph; it acts after that."""
        self._interruption.came = False
        handler = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is not threading.main_thread() or not callable(handler):
            yield  # a signal that is ignored, or that C code handles, is not ours
            return

        def remember(*_: Any) -> None:
            self._interruption.came = True

        signal.signal(signal.SIGINT, remember)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, handler)
        if self._interruption.came:
            handler(signal.SIGINT, None)
            raise KeyboardInterrupt

    def n_ctx(self) -> int:
        """The longest sequence."""
        return self._n_ctx

    def kv_cache_clear(self) -> None:
        """Forget everything, an attached document too."""
        self.kv_cache_seq_rm(-1, 0, -1)

    def kv_cache_seq_rm(self, seq_id: int, p0: int, p1: int) -> bool:
        """Forget the tokens from position p0 on.

        False where that is not at the end, cuts into a document, or needs rows that were evicted.
        """
        n_tokens = self.cache.n_tokens
        p0 = max(p0, 0)
        if 0 <= p1 < n_tokens and p1 > p0:
            return False
        return p0 >= n_tokens or self.cache.truncate(p0)

    def kv_cache_seq_cp(self, seq_id_src: int, seq_id_dst: int, p0: int, p1: int) -> None:
        raise OctavoError("octavo keeps one sequence in a context: sequences cannot be copied.")

    def kv_cache_seq_keep(self, seq_id: int) -> None:
        """There is one sequence, and it is kept."""

    def kv_cache_seq_shift(self, seq_id: int, p0: int, p1: int, shift: int) -> None:
        raise OctavoError("octavo cannot shift positions in its cache.")

    def get_state_size(self) -> int:
        return self.cache.n_tail * self.cache.row_bytes

    @property
    def bytes_read(self) -> int:
        """Bytes of keys, values and centroids that attention read since this was last set to 0."""
        return int(self.cache.heads["bytes_read"].sum())

    @bytes_read.setter
    def bytes_read(self, value: int) -> None:
        self.cache.heads["bytes_read"] = value

    @contextmanager
    def observed(self, wants: Callable[[str], bool], take: Callable[[str, np.ndarray], bool]) -> Iterator[None]:
        """Look at tensors of the graph while batches are computed.

        wants(name) : whether a tensor of this name is wanted, such as "l_out-3" or "result_norm"
        take(name, values) : gets them, (rows, columns) f32, and says whether the rest of the graph is to be computed.
            An exception that it raises is raised again when the observation ends
        """
        problems: list[BaseException] = []

        @_Observer
        def observe(address: int, ask: int, *_: int) -> int:
            tensor = ggml.Tensor.from_address(address)
            name = tensor.name.decode("utf-8", "replace")
            try:
                return wants(name) if ask else take(name, _floats(tensor))
            except BaseException as problem:
                problems.append(problem)
                return 0

        self._step["observer"] = ctypes.cast(observe, ctypes.c_void_p).value
        try:
            yield
        finally:
            self._step["observer"] = 0
        if problems:
            raise problems[0]

    @contextmanager
    def captured_queries(self, n_tokens: int) -> Iterator[list[np.ndarray]]:
        """Keep the scaled queries of a batch of n_tokens: for each node (n_kv_head, n_tokens, group, head_dim) f32."""
        arrays = [
            np.zeros((node.n_kv_head, n_tokens, shape.group, shape.head_dim), np.float32)
            for node, shape in zip(self.nodes, self.shapes, strict=True)
        ]
        self._layers["captured_queries"] = [array.ctypes.data for array in arrays]
        try:
            yield arrays
        finally:
            self._layers["captured_queries"] = 0


#: What the step calls to observe the graph: see seam.STEP.
_Observer = ctypes.CFUNCTYPE(*[ctypes.c_int64] * 5)


def cache_layers(nodes: list[AttentionNode], kv_type: str) -> list[CacheLayer]:
    """The caches of a model's attentions."""
    return [
        CacheLayer(node.n_kv_head, node.head_dim, node.window, kv_type, node.n_head // node.n_kv_head, node.softcap)
        for node in nodes
        if node.appends
    ]


def _floats(tensor: ggml.Tensor) -> np.ndarray:
    """A copy of a contiguous tensor of f32: (rows, columns)."""
    n_columns, n_rows = tensor.ne[0], tensor.ne[1] * tensor.ne[2] * tensor.ne[3]
    values = (ctypes.c_float * (n_columns * n_rows)).from_address(tensor.data)
    return np.frombuffer(values, np.float32).reshape(n_rows, n_columns).copy()


@dataclass
class _Interruption:
    """Whether a Ctrl-C came while a graph was computed. Not a threading.Event: a signal may come inside its lock."""

    came: bool = False


def _abort_callback(interruption: _Interruption) -> Any:
    """For llama.cpp to call between the nodes of a graph, so that Python sees signals; True abandons the graph.

    It does not know the context: a context that its own callback knows would outlive its last user.
    """

    @llama_cpp.ggml_abort_callback
    def abort(_: Any) -> bool:
        return interruption.came

    return abort
