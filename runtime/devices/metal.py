"""A Mac's GPU: attention runs in Metal kernels (metal/), over the memory that the CPU uses too.

llama.cpp computes the rest on its own Metal backend. Of each attention node it tells us when it has computed it, over
the batch alone, and is done waiting; then we take its queries and new rows, compute it anew over the cache, wait, and
overwrite its output. So there are two synchronisations a layer and step: llama.cpp's at the node, and one of ours.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...cpu_kernels.compile import Shape
from ...cpu_kernels.methods.streaming import native_select_recent
from ...cpu_kernels.spans import CHUNK_ROWS
from ...errors import OctavoError
from ...metal.attention import LayerStep, Work, attend
from ...metal.gpu import Gpu, open_gpu
from ...metal.library import LONGEST_HEAD, library
from ...metal.memory import Memory
from ...metal.records import FIRST_THAT_SCORES, GpuHeads, Method
from ..cache.kv_cache import KVCache
from ..cache.memory import Memory as AnyMemory
from ..graph import ggml
from ..graph import hook as seam
from ..graph.nodes import AttentionNode
from ..methods.method import Assignment
from . import device
from .scratch import Scratch

#: All of a model's layers: what llama.cpp takes any negative number for.
_ALL_LAYERS = -1


class MetalDevice:
    """The GPU of this machine. Raises OctavoError where there is none."""

    name = device.METAL

    def __init__(self) -> None:
        self.gpu = open_gpu()

    def model_arguments(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """llama.cpp computes all layers on the GPU, too, where the user does not say otherwise."""
        return {"n_gpu_layers": _ALL_LAYERS} | arguments

    def set_parameters(self, params: Any) -> None:
        """llama.cpp's cache of one batch is where its graph runs."""
        params.offload_kqv = True

    def check_nodes(self, nodes: Sequence[AttentionNode]) -> None:
        """Refuses heads that are longer than shaders are written for."""
        longest = max(node.head_dim for node in nodes)
        if longest > LONGEST_HEAD:
            raise device.UnsupportedModel(
                f"The Metal kernels read heads of up to {LONGEST_HEAD} numbers, and this model's have {longest}: use "
                "--device cpu."
            )

    def check_assignments(self, assignments: Sequence[Assignment]) -> None:
        """Refuses selectors that no shader is written for."""
        for assignment in assignments:
            if assignment.selector.metal is None:
                name = type(assignment.selector).__name__
                raise OctavoError(f"The Metal kernels do not have {name}: load the model with --device cpu.")

    def new_memory(self) -> Memory:
        """Memory for one context, which CPU and GPU share."""
        return Memory(self.gpu)

    def new_attention(
        self,
        cache: KVCache,
        memory: AnyMemory,
        nodes: Sequence[AttentionNode],
        kv_type: str,
        n_ubatch: int,
        n_threads: int,
        interruption: device.Interruption,
    ) -> MetalAttention:
        """Its part of a context. Raises OctavoError where a kernel cannot be compiled."""
        assert isinstance(memory, Memory)
        return MetalAttention(self.gpu, cache, memory, nodes, kv_type, n_ubatch, interruption)


class MetalAttention:
    """What the GPU sees of one context, and the function that llama.cpp calls for each attention node.

    memory, work : what the GPU sees of the cache, and what all layers work in
    Python runs once for a layer and step; an exception in it abandons the graph, and `finish` raises it again.
    """

    interruptible = 1

    def __init__(
        self,
        gpu: Gpu,
        cache: KVCache,
        memory: Memory,
        nodes: Sequence[AttentionNode],
        kv_type: str,
        n_ubatch: int,
        interruption: device.Interruption,
    ) -> None:
        self._gpu, self._cache, self.memory, self._nodes = gpu, cache, memory, nodes
        self._interruption = interruption
        self._shapes = [node.shape(kv_type) for node in nodes]
        for shape in self._shapes:
            library(gpu, shape)
        self._heads = GpuHeads(memory, *cache.tables.shape)
        self.work = Work(memory, self._shapes, [node.n_kv_head for node in nodes], n_ubatch)
        self._scratch = Scratch(cache, memory, nodes)
        self._captured: list[np.ndarray] | None = None
        self._problem: BaseException | None = None
        self._callback = _callback(weakref.ref(self))
        self.step = seam.new_step(len(nodes))
        self.step["attend"] = ctypes.cast(self._callback, ctypes.c_void_p).value
        self.rearranged()

    def rearranged(self) -> None:
        """The cache serves other selectors."""
        self._scratch.forget()
        self._select = np.zeros(0, np.int64)  # what `_methods` was found for
        self._method_of: dict[tuple[int, Shape], int] = {}
        for assignment in self._cache.assignments:
            for shape in {layer.shape for layer in self._cache.layers}:
                method, native = assignment.selector.metal, assignment.selector.native_select
                if method is not None:
                    self._method_of[native(shape).address, shape] = method

    def capture(self, arrays: list[np.ndarray] | None) -> None:
        """Leave copies of the scaled queries in these arrays."""
        self._captured = arrays

    def start(self, n_tokens: int) -> None:
        """Give the GPU the records of all heads as they are now."""
        cache, self._problem = self._cache, None
        self.memory.tidy()
        if self._scratch.make_room():
            self.work.make_room(self._scratch.n_spans)
        heads = cache.heads
        if not np.array_equal(heads["select"], self._select):
            self._select, self._methods = heads["select"].copy(), self._find_methods()
        methods = self._methods
        self._heads.update(heads, cache.tables, methods)
        # What the dispatches of each layer depend on, of all layers at once.
        first = cache.first_heads
        pieces = -(-heads["n_tail"] // CHUNK_ROWS) - (heads["n_tail"] - n_tokens) // CHUNK_ROWS
        self._n_pieces = np.maximum.reduceat(pieces, first).tolist()
        self._n_rows = np.add.reduceat(heads["n_document"] + heads["n_tail"], first).tolist()
        self._highest_method = np.maximum.reduceat(methods, first).tolist()
        self._has_coarse = np.logical_or.reduceat(methods == Method.COARSE, first).tolist()
        self.step["next_layer"] = 0

    def finish(self) -> None:
        """Take back what the GPU counted, or raise what stopped it."""
        problem, self._problem = self._problem, None
        if problem is not None:
            raise problem
        self._heads.take_back(self._cache.heads)

    def _find_methods(self) -> np.ndarray:
        """The method of each head, from the compiled selector that its record names: (n_heads,) int64."""
        numbers = []
        for layer_number, layer in enumerate(self._cache.layers):
            for address in self._cache.layer_heads(layer_number)["select"].tolist():
                key = address, layer.shape
                if key not in self._method_of and address == native_select_recent(layer.shape).address:
                    self._method_of[key] = Method.RECENT  # while a profile has any head stream
                numbers.append(self._method_of[key])
        return np.array(numbers, np.int64)

    def called(self, node_address: int, number: int) -> bool:
        """Attention node `number` is due. False abandons the graph."""
        if self._problem is not None or self._interruption.came:
            return False
        try:
            self._attend(ggml.Tensor.from_address(node_address), number)
        except BaseException as problem:
            self._problem = problem
            return False
        return not self._interruption.came

    def _attend(self, node: ggml.Tensor, number: int) -> None:
        """Compute a node whose inputs are there."""
        own, work = self._nodes[number], self.work
        n_tokens = int(node.src[0].contents.ne[1])
        self._load_queries(node.src[0].contents, number, n_tokens)
        if own.appends:
            for name, tensor in (("new_keys", node.src[1]), ("new_values", node.src[2])):
                _load_rows(tensor.contents, work.view(name, (own.n_kv_head, n_tokens, own.head_dim)))
        has_sinks = bool(node.src[4])
        if has_sinks:
            sinks = ggml.strided(node.src[4].contents, np.float32, (own.n_head,), (4,))
            work.view("sinks", (own.n_head,))[:] = sinks
        attend(self._gpu, self.memory, work, self.layer_step(number, n_tokens, has_sinks))
        ggml.write(node, work.view("out", (n_tokens, own.n_head, own.head_dim)))

    def attend_alone(self, number: int, queries: np.ndarray, keys: np.ndarray, values: np.ndarray) -> np.ndarray:
        """One node's step on given inputs."""
        own, n_tokens = self._nodes[number], queries.shape[1]
        for name, array in (("queries", queries), ("new_keys", keys), ("new_values", values)):
            self.work.view(name, array.shape)[...] = array
        attend(self._gpu, self.memory, self.work, self.layer_step(number, n_tokens, has_sinks=False))
        return self.work.view("out", (n_tokens, own.n_head, own.head_dim)).copy()

    def layer_step(self, number: int, n_tokens: int, has_sinks: bool) -> LayerStep:
        """What a node computes in the step that `start` began."""
        own = self._nodes[number]
        first = self._cache.first_heads[own.kv_layer]
        return LayerStep(
            shape=self._shapes[number],
            heads=self._heads.records[first : first + own.n_kv_head],
            n_tokens=n_tokens,
            n_pieces=self._n_pieces[own.kv_layer] if own.appends else 0,
            n_rows=self._n_rows[own.kv_layer],
            scores=self._highest_method[own.kv_layer] >= FIRST_THAT_SCORES,
            is_coarse=self._has_coarse[own.kv_layer],
            softcap=own.softcap,
            has_sinks=has_sinks,
        )

    def _load_queries(self, tensor: ggml.Tensor, number: int, n_tokens: int) -> None:
        """Scale the queries and lay those of a KV head together."""
        own, group = self._nodes[number], self._shapes[number].group
        shape = own.n_kv_head, n_tokens, group, own.head_dim
        strides = group * tensor.nb[2], tensor.nb[1], tensor.nb[2], tensor.nb[0]
        scaled = self.work.view("queries", shape)
        np.multiply(ggml.strided(tensor, np.float32, shape, strides), np.float32(own.scale), out=scaled)
        if self._captured is not None:
            self._captured[number][...] = scaled


def _load_rows(tensor: ggml.Tensor, rows: np.ndarray) -> None:
    """Copy a batch's new keys or values. rows : (n_kv_head, n_tokens, head_dim) f16"""
    rows[...] = ggml.strided(tensor, np.float16, rows.shape, (tensor.nb[2], tensor.nb[1], tensor.nb[0]))


def _callback(attention: weakref.ref[MetalAttention]) -> Any:
    """For llama.cpp to call. It holds no context: one that its own callback holds would outlive its last user."""

    @seam.Callback
    def call(node: int, number: int, *_: int) -> int:
        own = attention()
        return own is not None and own.called(node, number)

    return call
