"""Do the Metal kernels do on this Mac what they do in simulation? Compile them, compare with the CPU's, time them.

What is found goes into a report; only what makes the whole of it impossible is raised. Layers hold random keys and
values (`fill.random_layer`), and take the steps that a model's layers take: a batch, and one token.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from .. import __version__
from ..convert.clusters import ClusterSettings
from ..convert.progress import Progress
from ..cpu_kernels.compile import F16, Q8_0, Shape
from ..cpu_kernels.machine import cpu_name
from ..errors import OctavoError
from ..metal.attention import dispatches, seconds_of
from ..metal.bandwidth import read_bandwidth
from ..metal.library import Pipeline, library
from ..runtime.cache.index import Index, ThresholdCurve, TwoLevelCurve
from ..runtime.cache.kv_cache import KVCache
from ..runtime.cache.tail import CacheLayer
from ..runtime.devices.cpu import CpuDevice
from ..runtime.devices.device import Device, Interruption
from ..runtime.devices.metal import MetalAttention, MetalDevice
from ..runtime.graph.nodes import AttentionNode
from ..runtime.methods.dense import Dense
from ..runtime.methods.method import Assignment, Selector
from ..runtime.methods.quest import Quest
from ..runtime.methods.sparq import SparQ
from ..runtime.methods.squeezed import Squeezed, Squeezed2
from ..runtime.methods.streaming import Streaming
from .synthetic import random_layer

#: What kernels are compiled for, and what is compared.
HEAD_DIMS, GROUPS, KV_TYPES = (64, 80, 96, 128, 256), (1, 3, 8), (F16, Q8_0)

_BUDGET = 0.25
SELECTORS: dict[str, Selector] = {
    "dense": Dense(),
    "streaming": Streaming(budget=_BUDGET),
    "quest": Quest(budget=_BUDGET, dense_layers=0),
    "sparq": SparQ(budget=_BUDGET),
    "squeezed": Squeezed(budget=_BUDGET),
    "squeezed2": Squeezed2(budget=_BUDGET),
}

#: Those that read a document where its index maps it.
_ON_DOCUMENTS = ("dense", "squeezed", "squeezed2")

#: The largest error of an output, relative to its largest element: what f32 sums in another order come to; and of q8_0,
#: whose queries the CPU rounds to 8 bits and the GPU does not.
TOLERANCE = {F16: 2e-3, Q8_0: 5e-2}

#: Tokens of a batch that fills what is timed.
_BATCH = 512

#: Rows of what is compared: of a document, and then steps of so many tokens.
_DOCUMENT_ROWS, _STEPS = 1500, (300, 1, 20, 1)


@dataclass(frozen=True)
class Plan:
    """What is examined.

    shapes : are compiled    compared : their steps are compared with the CPU's    timed : their kernels are timed, with
    n_kv_head heads of n_rows rows each    bandwidth_bytes : are read to find the bandwidth
    """

    shapes: tuple[Shape, ...]
    compared: tuple[Shape, ...]
    timed: tuple[Shape, ...]
    n_kv_head: int = 8
    n_rows: int = 32_768
    bandwidth_bytes: int = 1 << 30


#: What models of today are made of.
PLAN = Plan(
    shapes=tuple(Shape(*sizes) for sizes in product(HEAD_DIMS, GROUPS, KV_TYPES)),
    compared=tuple(Shape(*sizes) for sizes in product(HEAD_DIMS, (3,), KV_TYPES)),
    timed=tuple(Shape(*sizes) for sizes in product((64, 128), (4,), KV_TYPES)),
)


class Doctor:
    """Examines a GPU. The result is what `octavo doctor --metal -o json` prints.

    Raises OctavoError where there is none.
    """

    def __init__(self, progress: Progress, plan: Plan) -> None:
        self.metal = MetalDevice()
        self.gpu, self.progress, self.plan = self.metal.gpu, progress, plan

    def run(self) -> dict[str, Any]:
        """Examine."""
        kernels = self._kernels()
        comparisons = self._comparisons()
        bandwidth = read_bandwidth(self.gpu, self.plan.bandwidth_bytes)
        return {
            "octavo": __version__,
            "machine": self._machine(),
            "kernels": kernels,
            "comparisons": comparisons,
            "read_bandwidth_gb_s": round(bandwidth / 1e9, 2),
            "times": self._times(bandwidth),
            "ok": not any(row["problem"] for row in kernels + comparisons),
        }

    def _machine(self) -> dict[str, Any]:
        device = self.gpu.device
        return {
            "gpu": self.gpu.name,
            "cpu": cpu_name(),
            "system": platform.platform(),
            "python": platform.python_version(),
            "threadgroup_memory_bytes": int(device.maxThreadgroupMemoryLength()),
            "buffer_bytes": int(device.maxBufferLength()),
            "working_set_bytes": int(device.recommendedMaxWorkingSetSize()),
        }

    def _kernels(self) -> list[dict[str, Any]]:
        """Every kernel of every shape, compiled, and what the GPU says of it."""
        self.progress.start("Compiling shaders", len(self.plan.shapes), "shapes")
        rows: list[dict[str, Any]] = []
        for shape in self.plan.shapes:
            named = {"head_dim": shape.head_dim, "group": shape.group, "kv_type": shape.kv_type}
            try:
                pipelines = library(self.gpu, shape)
                rows += [{**named, "kernel": name, **self._limits(each)} for name, each in pipelines.items()]
            except OctavoError as problem:
                rows.append({**named, "kernel": "all", "problem": str(problem)})
            self.progress.advance(1)
        return rows

    def _limits(self, pipeline: Pipeline) -> dict[str, Any]:
        state, most = pipeline.state, int(self.gpu.device.maxThreadgroupMemoryLength())
        width, n_bytes = int(state.threadExecutionWidth()), int(state.staticThreadgroupMemoryLength())
        problem = None
        if width != 32:
            problem = f"Simd groups have {width} lanes, and the kernels are written for 32."
        elif n_bytes > most:
            problem = f"It needs {n_bytes:,} bytes of threadgroup memory, and there are {most:,}."
        return {
            "threads": pipeline.threads,
            "max_threads": int(state.maxTotalThreadsPerThreadgroup()),
            "simd_width": width,
            "threadgroup_bytes": n_bytes,
            "problem": problem,
        }

    def _comparisons(self) -> list[dict[str, Any]]:
        """Steps of each method on each shape, against the CPU's."""
        todo = [(shape, name) for shape in self.plan.compared for name in SELECTORS]
        self.progress.start("Comparing with the CPU", len(todo), "methods")
        rows: list[dict[str, Any]] = []
        for shape, name in todo:
            for row in self._compare(shape, name):
                named = {"attention": name, "head_dim": shape.head_dim, "group": shape.group, "kv_type": shape.kv_type}
                rows.append({**named, **row})
            self.progress.advance(1)
        return rows

    def _compare(self, shape: Shape, name: str) -> Iterator[dict[str, Any]]:
        rng = np.random.default_rng(0)
        layer = CacheLayer(2, shape.head_dim, 0, shape.kv_type, shape.group)
        n_ctx = _DOCUMENT_ROWS + sum(_STEPS)
        cpu, metal = (Alone(each, layer, SELECTORS[name], n_ctx, max(_STEPS)) for each in (CpuDevice(), self.metal))
        if name in _ON_DOCUMENTS and shape.kv_type == F16:
            document = random_document(layer, _DOCUMENT_ROWS, rng)
            cpu.cache.attach(document)
            metal.cache.attach(document)
        for n_tokens in _STEPS:
            inputs = random_step(layer, n_tokens, rng)
            row: dict[str, Any] = {"tokens": n_tokens, "problem": None}
            try:
                error = largest_error(metal.step(*inputs), cpu.step(*inputs))
            except OctavoError as problem:
                yield {**row, "problem": str(problem)}
                return
            row["largest_error"] = round(error, 7)
            if not error <= TOLERANCE[shape.kv_type]:
                row["problem"] = "The GPU's output differs from the CPU's."
            yield row

    def _times(self, bandwidth: float) -> list[dict[str, Any]]:
        """What each kernel of a decode step takes, alone, and the step as a whole."""
        todo = [(shape, name) for shape in self.plan.timed for name in SELECTORS]
        self.progress.start("Timing", len(todo), "methods")
        rows: list[dict[str, Any]] = []
        for shape, name in todo:
            if shape.kv_type == F16 or name not in _ON_DOCUMENTS:
                rows += self._time(shape, name, bandwidth)
            self.progress.advance(1)
        return rows

    def _time(self, shape: Shape, name: str, bandwidth: float) -> Iterator[dict[str, Any]]:
        rng = np.random.default_rng(0)
        layer = CacheLayer(self.plan.n_kv_head, shape.head_dim, 0, shape.kv_type, shape.group)
        n_rows, batch = self.plan.n_rows, min(_BATCH, self.plan.n_rows)
        alone = Alone(self.metal, layer, SELECTORS[name], n_rows + 1, batch)
        if name in _ON_DOCUMENTS and shape.kv_type == F16:
            alone.cache.attach(random_document(layer, n_rows, rng))
        else:
            for _ in range(n_rows // batch):
                alone.step(*random_step(layer, batch, rng))
        alone.cache.heads["bytes_read"] = 0
        alone.step(*random_step(layer, 1, rng))
        attention, n_read = alone.attention, int(alone.cache.heads["bytes_read"].sum())
        assert isinstance(attention, MetalAttention)
        step = attention.layer_step(0, 1, has_sinks=False)
        n_attended = (
            2
            * shape.row_bytes
            * int(attention.work.view("selected", (8 * layer.n_kv_head,)).view(np.int32)[1::2].sum())
        )
        whole = list(dispatches(step))
        for kernel, chosen in [*((each.kernel, [each]) for each in whole), ("all", whole)]:
            seconds = seconds_of(self.gpu, attention.memory, attention.work, step, chosen)
            n_bytes = {"attend_shares": n_attended, "score_items": n_read - n_attended, "all": n_read}.get(kernel)
            row: dict[str, Any] = {"attention": name, "head_dim": shape.head_dim, "group": shape.group}
            row |= {
                "kv_type": shape.kv_type,
                "rows": n_rows,
                "kernel": kernel,
                "ms": round(seconds * 1e3, 4),
                "bytes": n_bytes,
            }
            if n_bytes is not None:
                row["share_of_read_bandwidth"] = round(n_bytes / seconds / bandwidth, 3)
            yield row


class Alone:
    """One layer on a device, without a model."""

    def __init__(self, device: Device, layer: CacheLayer, selector: Selector, n_ctx: int, n_ubatch: int) -> None:
        heads = np.arange(layer.n_kv_head)
        memory = device.new_memory()
        self.cache = KVCache([layer], n_ctx, [Assignment(selector, heads, np.ones(len(heads)))], memory)
        node = AttentionNode(layer.head_dim, layer.n_kv_head * layer.group, layer.n_kv_head, 0, 1.0, 0.0, 0, True)
        arguments = self.cache, memory, [node], layer.kv_type, n_ubatch, 1, Interruption()
        self.attention = device.new_attention(*arguments)

    def step(self, queries: np.ndarray, keys: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Store new rows and attend: (n_tokens, n_head, head_dim) f32. Raises OctavoError where the GPU reports one."""
        n_tokens = queries.shape[1]
        self.cache.reserve(n_tokens)
        self.attention.start(n_tokens)
        out = self.attention.attend_alone(0, queries, keys, values)
        self.attention.finish()
        self.cache.settle()
        return out


def random_document(layer: CacheLayer, n_tokens: int, rng: np.random.Generator) -> Index:
    """A document of one layer, with thresholds that keep some of its clusters."""
    stored = random_layer(layer, n_tokens, ClusterSettings(), rng)
    n_heads = layer.n_kv_head
    curve = ThresholdCurve(np.array([0.0, 1.0]), np.tile(np.array([4.0, 0.05]) / n_tokens, (n_heads, 1)))
    return Index(np.zeros(n_tokens, np.int32), [stored], curve, TwoLevelCurve(np.full(n_heads, 0.2 / n_tokens), curve))


def random_step(
    layer: CacheLayer, n_tokens: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scaled queries, (n_kv_head, n_tokens, group, head_dim) f32, and new keys and values, (n_kv_head, n_tokens,
    head_dim) f16.
    """
    queries = rng.standard_normal((layer.n_kv_head, n_tokens, layer.group, layer.head_dim), np.float32)
    rows = rng.standard_normal((2, layer.n_kv_head, n_tokens, layer.head_dim), np.float32).astype(np.float16)
    return queries / np.float32(np.sqrt(layer.head_dim)), rows[0], rows[1]


def largest_error(actual: np.ndarray, expected: np.ndarray) -> float:
    """Of an output, relative to the largest element of its head; infinite for one that is not finite."""
    error = np.abs(actual - expected).max(axis=-1) / np.abs(expected).max(axis=-1)
    return float(np.where(np.isfinite(error), error, np.inf).max())
