"""Run attention on the CPU: in llama.cpp's own threads, inside its graph (see hook.py)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection, Sequence
from typing import Any

import llama_cpp
import numpy as np

from ...cpu_kernels.attend.decode import partial_size
from ...cpu_kernels.layer import WORK, choose_in_layer, scratch_bytes, step_alone
from ...cpu_kernels.layout.head import HEAD
from ...cpu_kernels.layout.spans import SPAN
from ...cpu_kernels.numba_support import background_compile
from ...cpu_kernels.numba_support.compile import native
from ...cpu_kernels.numba_support.vector import CACHE_LINE
from ...cpu_kernels.prefill.attend_batch import attend_tile
from ...cpu_kernels.prefill.integer_strips import INTEGER_STAGES
from ...cpu_kernels.prefill.sparse_prefill import FEWEST_BLOCKS, most_groups, sample_bytes
from ...cpu_kernels.prefill.strips import load_keys, load_queries, load_values
from ...cpu_kernels.prefill.tile_scratch import BLOCK
from ...cpu_kernels.products.weights import KERNELS
from ...cpu_kernels.rows.tiles import CHUNK_ROWS
from ...cpu_kernels.select import kmeans
from ..cache.cache_memory import CpuMemory
from ..cache.drafted_rows import DraftedRows
from ..cache.kv_cache import KVCache
from ..graph import hook
from ..methods.method import Assignment
from . import CPU
from .protocol import ExecutorArguments


class CpuExecutor:
    """The records that the native step reads (see hook.py), and its working memory."""

    interruptible, together = 8, True

    def __init__(self, arguments: ExecutorArguments) -> None:
        self._nodes, self._n_ubatch, self._shapes = arguments.nodes, arguments.n_ubatch, arguments.shapes
        self._memory = arguments.cache.memory
        self._n_kv_head = max(node.n_kv_head for node in self._nodes)
        self.step = hook.new_step(len(self._nodes))
        self._work = np.zeros(1, WORK)
        self._layers = np.zeros(len(self._nodes), hook.LAYER)
        self._spans = np.empty((self._n_kv_head, 0), SPAN)
        # working memory lies on cache lines: elsewhere AMX loads its tiles at half the speed
        scratch = -(-max(scratch_bytes(shape) for shape in self._shapes) // CACHE_LINE) * CACHE_LINE
        partial = max(4 * partial_size(shape) for shape in self._shapes)
        n_floats = self._n_ubatch * max(node.n_head * node.head_dim for node in self._nodes)
        self._buffers: dict[str, np.ndarray] = {
            "queries": self._memory.allocate(4 * n_floats).view(np.float32),
            "n_spans": np.zeros(self._n_kv_head, np.int64),
            "n_rows": np.zeros(self._n_kv_head, np.int64),
            "n_blocks": np.zeros(self._n_kv_head, np.int64),
            "partials": self._memory.allocate(arguments.n_threads * self._n_kv_head * partial),
            "scratch": self._memory.allocate(arguments.n_threads * scratch).reshape(arguments.n_threads, scratch),
        }
        self.step["layers"] = self._layers.ctypes.data
        for name, array in self._buffers.items():
            self._work[name] = array.ctypes.data
        self._work["scratch_bytes"] = self._buffers["scratch"].shape[1]
        for layer, node, shape in zip(self._layers, self._nodes, self._shapes, strict=True):
            layer["work"] = self._work.ctypes.data
            layer["n_kv_head"], layer["appends"] = node.n_kv_head, node.appends
            layer["shape"] = shape.packed
            layer["scale"], layer["softcap"] = node.scale, node.softcap
        self._spans = np.empty((self._n_kv_head, 0), SPAN)
        self._products, self._finder = hook.multiply_weights(self.step, arguments.n_threads, arguments.stored)
        self.follow(arguments.cache)

    def follow(self, cache: KVCache) -> None:
        """Point the layers at another cache's heads."""
        self._cache = cache
        self._layers["heads"] = self._first_heads(cache.table.address)

    def _first_heads(self, address: int) -> np.ndarray:
        """Return the addresses of each node's first HEAD record, of the records at an address."""
        first = self._cache.table.first_heads[[node.kv_layer for node in self._nodes]]
        addresses: np.ndarray = address + first * HEAD.itemsize
        return addresses

    def start(self, n_tokens: int, attention_share: float = 0.0) -> None:
        """Start a step at the first node."""
        self._prepare(self._cache, n_tokens)
        n_rows = self._cache.n_tokens + n_tokens
        self._work["covers"] = attention_share if n_tokens > 1 and n_rows >= FEWEST_BLOCKS * BLOCK else 0
        self._work["rounds"] = attention_share > 0 and n_tokens > 1
        if self._work["rounds"][0] and any(shape.on_integers for shape in self._shapes):
            _ = [stage.native for stage in INTEGER_STAGES]  # here: the background process comes to them last
        if self._work["covers"][0] > 0:
            self._make_room_for_blocks(n_rows // BLOCK + n_rows // CHUNK_ROWS + 8)  # each span may end in a short block
            self._layers["choose"] = native(choose_in_layer).address
        self._connect(n_tokens)
        self._layers["together"] = self._work["arrived"] = self.step["next_layer"] = 0
        self._products.start()

    def start_together(self, caches: Sequence[KVCache]) -> None:
        """Start a step of several caches at the first node, where its threads compute one cache after another."""
        self.follow(caches[0])  # the step of a single token reads the layers' heads
        for cache in caches:
            self._prepare(cache, 1)
        self._start_apart([cache.table.address for cache in caches])

    def start_drafted(self, rows: DraftedRows) -> None:
        """Start a step of a token and its draft at the first node, where its threads compute one after another."""
        self._prepare(rows.cache, 1)
        rows.share_memory()
        self._start_apart([records.ctypes.data for records in rows.records])

    def _start_apart(self, addresses: Sequence[int]) -> None:
        """Start a step whose tokens each have records of all heads, at these addresses."""
        firsts = [self._first_heads(address) for address in addresses]
        self._sequences = np.stack(firsts, axis=1).astype(np.int64, order="C")
        self._layers["sequences"] = (
            self._sequences.ctypes.data + np.arange(len(self._nodes)) * self._sequences.strides[0]
        )
        self._connect(1)
        self._connect(2)
        self._layers["together"] = background_compile.compiled(hook.compiled_together).address
        self._work["arrived"] = self.step["next_layer"] = 0
        self._products.start()

    def _prepare(self, cache: KVCache, n_tokens: int) -> None:
        """Prepare a cache for a step: memory for the selection, and the files of its document."""
        if cache.table.make_room(self._memory) and cache.table.n_spans > self._spans.shape[1]:
            self._spans = np.empty((self._n_kv_head, cache.table.n_spans), SPAN)
            self._work["spans"], self._work["span_capacity"] = self._spans.ctypes.data, self._spans.shape[1]
        if cache.document is not None:
            cache.document.pages.prepare(cache.table, n_tokens)

    def _connect(self, n_tokens: int) -> None:
        """Set the address of the function that attends a token, or a batch, in layers that lack it."""
        name, compiled = ("run_token", hook.compiled_token) if n_tokens == 1 else ("run_batch", hook.compiled_batch)
        if not self._layers[name].any():
            self._layers[name] = background_compile.compiled(compiled).address
            if n_tokens > 1:
                for stage in (load_queries, load_keys, load_values, attend_tile):
                    background_compile.compiled(stage)

    def _make_room_for_blocks(self, n_blocks: int) -> None:
        """Allocate memory to choose among so many blocks of keys in each head, and some more."""
        if n_blocks <= self._work["most_blocks"][0]:
            return
        n_blocks += n_blocks // 4
        size = max(sample_bytes(shape, self._n_ubatch, n_blocks) for shape in self._shapes)
        self._samples = np.empty((self._n_kv_head, size), np.uint8)
        self._chosen = np.empty((self._n_kv_head, most_groups(self._n_ubatch) * n_blocks), np.uint8)
        self._work["most_blocks"] = n_blocks
        for name, array in (("sample", self._samples), ("chosen", self._chosen)):
            self._work[f"{name}_bytes"] = array.shape[1]
        self._work["samples"], self._work["chosen"] = self._samples.ctypes.data, self._chosen.ctypes.data

    def attend_alone(self, number: int, queries: np.ndarray, keys: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Compute one node's step on given inputs, on this thread alone."""
        node, n_tokens = self._nodes[number], queries.shape[1]
        self._buffers["queries"][: queries.size] = queries.reshape(-1)
        out = np.empty((n_tokens, node.n_head, self._shapes[number].value_dim), np.float32)
        heads = self._cache.table.layer_heads[node.kv_layer].ctypes.data
        step_alone(
            self._shapes[number],
            heads,
            node.n_kv_head,
            n_tokens,
            keys.ctypes.data,
            values.ctypes.data,
            np.float32(node.softcap),
            self._work.ctypes.data,
            out.ctypes.data,
        )
        return out

    def selection(self, number: int) -> tuple[np.ndarray, list[np.ndarray]]:
        """Return what a node attended in a step of one token, before the next node runs: for measurements.

        Returns
        -------
        queries : float32 array, shape (n_kv_head, group, head_dim)
            Scaled queries.
        spans : list of SPAN arrays
            The rows that each KV head attended exactly.
        """
        n_kv_head, shape = self._nodes[number].n_kv_head, self._shapes[number]
        n_floats, n_spans = n_kv_head * shape.group * shape.head_dim, self._buffers["n_spans"]
        queries = self._buffers["queries"][:n_floats].reshape(n_kv_head, shape.group, shape.head_dim)
        return queries, [self._spans[i, : n_spans[i]] for i in range(n_kv_head)]

    def finish(self) -> None:
        """Do nothing: a step runs no Python, so it cannot raise."""

    def capture(self, arrays: Sequence[np.ndarray | None] | None) -> None:
        addresses = [0 if array is None else array.ctypes.data for array in arrays or ()]
        self._layers["captured_queries"] = addresses or 0


class CpuDevice:
    """Attention of all models and methods, on llama.cpp's threads."""

    name, on_gpu, working_set = CPU, False, math.inf
    new_memory, new_executor = CpuMemory, CpuExecutor

    def model_arguments(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Keep all layers on the CPU: a layer on a GPU would compute its attention there."""
        if arguments.get("n_gpu_layers") and llama_cpp.llama_supports_gpu_offload():
            warnings.warn("octavo computes all layers on the CPU here: n_gpu_layers is not used.", stacklevel=4)
        return {**arguments, "n_gpu_layers": 0}

    def fit_assignments(self, assignments: Sequence[Assignment]) -> list[Assignment]:
        """Return all assignments: all are supported."""
        return list(assignments)

    def compile_ahead(self, assignments: Sequence[Assignment], weight_types: Collection[int] = ()) -> None:
        """Compile products, the methods' hooks, and other kernels that are needed after the first tokens."""
        hooks = [hook for assignment in assignments for hook in assignment.method.hooks if hook is not None]
        first = [attend_tile, load_values, hook.compiled_token]
        last = [hook.compiled_together, kmeans.improve, *INTEGER_STAGES, choose_in_layer]
        products = [each for kind in sorted(weight_types) if kind in KERNELS for each in KERNELS[kind].stages]
        background_compile.compile_ahead([*products, *first, *hooks, *last])
