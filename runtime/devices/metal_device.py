"""Run attention on a Mac's GPU, in Metal kernels (metal/), over memory that it shares with the CPU.

llama.cpp computes the rest of the model on its own Metal backend. It calls octavo when it has computed an attention
node, over the batch alone, and has waited for it. octavo then takes the node's queries and new rows, computes attention
over the cache, waits, and overwrites the node's output. So each layer of a step synchronises twice: llama.cpp at the
node, then octavo.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ...cpu_kernels.numba_support.memory import Callback
from ...cpu_kernels.rows.tiles import CHUNK_ROWS
from ...errors import OctavoError
from ...metal.attention import LayerStep, Work, attend
from ...metal.gpu import Gpu, open_gpu
from ...metal.records import GpuHeads, State
from ...metal.shader_library import LONGEST_HEAD, defines, has_method, library, method_names
from ...metal.shared_memory import SharedMemory
from ..cache.drafted_rows import DraftedRows
from ..cache.kv_cache import KVCache
from ..graph import ggml, hook
from ..methods.method import Assignment
from . import METAL
from .protocol import ExecutorArguments, UnsupportedModel

#: llama.cpp's number for all layers of a model.
_ALL_LAYERS = -1


class MetalDevice:
    """The GPU of this machine: a `Device` (see protocol.py).

    Raises
    ------
    OctavoError
        This machine has no GPU that octavo can use.
    """

    name, on_gpu = METAL, True

    def __init__(self) -> None:
        self.gpu = open_gpu()

    @property
    def working_set(self) -> float:
        """Return what macOS recommends: beyond it, memory is moved in and out in each step."""
        return self.gpu.working_set

    def model_arguments(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Make llama.cpp compute all layers on the GPU, unless the user chooses otherwise."""
        return {"n_gpu_layers": _ALL_LAYERS} | arguments

    def fit_assignments(self, assignments: Sequence[Assignment]) -> list[Assignment]:
        """Leave out optional parts that no shader computes, and refuse required ones."""
        for assignment in assignments:
            if not (has_method(assignment.method.name) and assignment.method.on_metal):
                name = type(assignment.method).__name__
                raise OctavoError(f'The Metal kernels do not have {name}: load the model with `device="cpu"`.')
        return [replace(assignment, method=assignment.method.for_metal()) for assignment in assignments]

    def compile_ahead(self, assignments: Sequence[Assignment], weight_types: Collection[int] = ()) -> None:
        """Do nothing: shaders are compiled elsewhere."""

    def new_memory(self) -> SharedMemory:
        """Return memory for one context, shared by CPU and GPU."""
        return SharedMemory(self.gpu)

    def new_executor(self, arguments: ExecutorArguments) -> MetalExecutor:
        """Return the executor of a context. Refuse heads that are too long for the shaders."""
        longest = max(shape.longest for shape in arguments.shapes)
        if longest > LONGEST_HEAD:
            raise UnsupportedModel(
                f"The Metal kernels read heads of up to {LONGEST_HEAD} numbers, and this model's have {longest}: use "
                '`device="cpu"`.'
            )
        return MetalExecutor(self.gpu, arguments)


class MetalExecutor:
    """The GPU's part of one context; llama.cpp calls it at each attention node.

    Python runs once for each layer and step. An exception abandons the graph, and `finish` raises it again.

    Attributes
    ----------
    work : Work
        Memory that all layers work in.

    Raises
    ------
    OctavoError
        A kernel cannot be compiled.
    """

    interruptible, together = 1, False

    def __init__(self, gpu: Gpu, arguments: ExecutorArguments) -> None:
        self._gpu, self._nodes, self._n_ubatch = gpu, arguments.nodes, arguments.n_ubatch
        self._interruption, self._shapes = arguments.interruption, arguments.shapes
        for shape in self._shapes:
            library(gpu, shape)
        self._places: WeakKeyDictionary[KVCache, tuple[SharedMemory, GpuHeads, Work]] = WeakKeyDictionary()
        self._captured: Sequence[np.ndarray | None] = ()
        self._problem: BaseException | None = None
        self._callback = _callback(weakref.ref(self))
        self.step = hook.new_step(len(self._nodes))
        self.step["attend"] = ctypes.cast(self._callback, ctypes.c_void_p).value
        self.follow(arguments.cache)

    def follow(self, cache: KVCache) -> None:
        """Work in the memory of another cache, so that the GPU finds everything that a step reads in one place."""
        self._cache = cache
        if cache not in self._places:
            memory = cache.memory
            assert isinstance(memory, SharedMemory)
            work = Work(memory, list(self._shapes), [node.n_kv_head for node in self._nodes], self._n_ubatch)
            self._places[cache] = memory, GpuHeads(memory, *cache.table.tables.shape[:2]), work
        self.memory, self._heads, self.work = self._places[cache]
        self._generation = -1

    def start_together(self, caches: Sequence[KVCache]) -> None:
        """Refuse: on Metal, sequences take turns."""
        raise NotImplementedError

    def start_drafted(self, rows: DraftedRows) -> None:
        """Refuse: on Metal, a token that is predicted from is a step of its own."""
        raise NotImplementedError

    def capture(self, arrays: Sequence[np.ndarray | None] | None) -> None:
        self._captured = arrays or ()

    def start(self, n_tokens: int, attention_share: float = 0.0) -> None:
        """Send the current records of all heads to the GPU."""
        cache, self._problem = self._cache, None
        self.memory.tidy()
        if cache.table.make_room(self.memory):
            self.work.make_room(cache.table.n_spans)
        if cache.table.generation != self._generation:
            self._follow_methods()
        heads, first = cache.table.heads, cache.table.first_heads
        self._heads.update(heads, cache.table.tables[:, :, 0], self._selecting, self._appending)
        # for the dispatches: chunks that the new rows lie in, and stored rows, of all layers at once
        pieces = -(-heads["n_tail"] // CHUNK_ROWS) - (heads["n_tail"] - n_tokens) // CHUNK_ROWS
        self._n_pieces = np.maximum.reduceat(pieces, first).tolist()
        self._n_rows = np.add.reduceat(heads["n_document"] + heads["n_tail"], first).tolist()
        self.step["next_layer"] = 0

    def finish(self) -> None:
        """Take over the GPU's counters, or raise the exception that stopped it."""
        problem, self._problem = self._problem, None
        if problem is not None:
            raise problem
        self._heads.take_back(self._cache.table.heads)

    def _follow_methods(self) -> None:
        """Find each head's methods, and the layers with methods that score or narrow."""
        table, names = self._cache.table, method_names()
        self._generation = table.generation
        self._selecting, self._appending = np.zeros((2, len(table.heads)), np.int64)
        for i, group in enumerate(table.groups):
            self._selecting[group.heads.numbers] = names.index(group.method.name)
            if i < len(table.assignments):  # a temporary method leaves the heads' extras to the first one
                self._appending[group.heads.numbers] = names.index(group.method.name)
        self._heads.serve(
            [State(group.heads.numbers, group.heads.state, group.method.document_arrays) for group in table.groups]
        )
        self._scores, self._narrows = (
            np.logical_or.reduceat([defines(names[number], function) for number in self._selecting], table.first_heads)
            for function in ("score", "narrow")
        )

    def called(self, node_address: int, number: int) -> bool:
        """Compute attention node `number` from its finished inputs. False abandons the graph."""
        if self._problem is not None or self._interruption.came:
            return False
        try:
            self._attend(ggml.Tensor.from_address(node_address), number)
        except BaseException as problem:
            self._problem = problem
            return False
        return not self._interruption.came

    def _attend(self, node: ggml.Tensor, number: int) -> None:
        """Compute a node from its tensors, and write its output."""
        attention, shape, work = self._nodes[number], self._shapes[number], self.work
        n_tokens = int(node.src[0].contents.ne[1])
        self._load_queries(node.src[0].contents, number, n_tokens)
        if attention.appends:
            rows = [("new_keys", node.src[1], shape.head_dim), ("new_values", node.src[2], shape.value_dim)]
            for name, tensor, length in rows[: 1 if shape.latent else 2]:
                _load_rows(tensor.contents, work.view(name, (attention.n_kv_head, n_tokens, length)))
        has_sinks = bool(node.src[4])
        if has_sinks:
            sinks = ggml.strided(node.src[4].contents, np.float32, (attention.n_head,), (4,))
            work.view("sinks", (attention.n_head,))[:] = sinks
        attend(self._gpu, self.memory, work, self.layer_step(number, n_tokens, has_sinks))
        ggml.write(node, work.view("out", (n_tokens, attention.n_head, shape.value_dim)))

    def attend_alone(self, number: int, queries: np.ndarray, keys: np.ndarray, values: np.ndarray) -> np.ndarray:
        node, n_tokens = self._nodes[number], queries.shape[1]
        for name, array in (("queries", queries), ("new_keys", keys), ("new_values", values)):
            self.work.view(name, array.shape)[...] = array
        attend(self._gpu, self.memory, self.work, self.layer_step(number, n_tokens, has_sinks=False))
        return self.work.view("out", (n_tokens, node.n_head, self._shapes[number].value_dim)).copy()

    def layer_step(self, number: int, n_tokens: int, has_sinks: bool) -> LayerStep:
        """Describe a node's computation in the step that `start` began."""
        node = self._nodes[number]
        first = self._cache.table.first_heads[node.kv_layer]
        return LayerStep(
            shape=self._shapes[number],
            heads=self._heads.records[first : first + node.n_kv_head],
            n_tokens=n_tokens,
            n_pieces=self._n_pieces[node.kv_layer] if node.appends else 0,
            n_rows=self._n_rows[node.kv_layer],
            scores=bool(self._scores[node.kv_layer]),
            narrows=bool(self._narrows[node.kv_layer]),
            softcap=node.softcap,
            has_sinks=has_sinks,
        )

    def _load_queries(self, tensor: ggml.Tensor, number: int, n_tokens: int) -> None:
        """Scale the queries, and copy them so that those of a KV head are adjacent."""
        node, group = self._nodes[number], self._shapes[number].group
        shape = node.n_kv_head, n_tokens, group, node.head_dim
        strides = group * tensor.nb[2], tensor.nb[1], tensor.nb[2], tensor.nb[0]
        scaled = self.work.view("queries", shape)
        np.multiply(ggml.strided(tensor, np.float32, shape, strides), np.float32(node.scale), out=scaled)
        captured = self._captured[number] if self._captured else None
        if captured is not None:
            captured[...] = scaled


def _load_rows(tensor: ggml.Tensor, rows: np.ndarray) -> None:
    """Copy a batch's new keys or values. rows : (n_kv_head, n_tokens, length) f16"""
    rows[...] = ggml.strided(tensor, np.float16, rows.shape, (tensor.nb[2], tensor.nb[1], tensor.nb[0]))


def _callback(attention: weakref.ref[MetalExecutor]) -> Any:
    """Return the function that llama.cpp calls. It holds the executor weakly, to avoid a cycle."""

    @Callback
    def call(node: int, number: int, *_: int) -> int:
        executor = attention()
        return executor is not None and executor.called(node, number)

    return call
