"""Check the Metal kernels on this Mac: compile them, compare them with the CPU's, and time them.

The report holds all problems; only a missing GPU raises an exception. Layers hold random keys and values, and
take the steps of a model's layer: a batch, and one token. Last, a whole model takes steps on each device, and by
llama.cpp alone; "auto" then takes the faster device for this model.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np

from ..cpu_kernels.numba_support.machine import cpu_name
from ..cpu_kernels.numba_support.shape import F16, Q8_0, Shape
from ..errors import OctavoError
from ..metal.attention import dispatches, seconds_of, wait_seconds
from ..metal.bandwidth import read_bandwidth
from ..metal.shader_library import Pipeline, has_method, library
from ..progress import Progress
from ..runtime.devices import CPU, METAL
from ..runtime.devices.choose import keep_measured_steps
from ..runtime.devices.cpu_device import CpuDevice
from ..runtime.devices.metal_device import MetalDevice, MetalExecutor
from ..runtime.document.cache_layer import CacheLayer
from ..runtime.methods import AUTO, LLAMA_CPP, METHODS
from ..runtime.methods.attention import Attention
from ..runtime.methods.method import Method, Storage
from ..settings import ModelSettings
from ..version import __version__
from .bench import Bench, BenchSettings
from .device_layer import DeviceLayer, largest_error, random_document, random_step

#: Shapes of the attention in today's models, and how keys and values are stored.
_HEAD_DIMS, _GROUPS, _CACHE_TYPES = (64, 80, 96, 128, 256), (1, 3, 8), (F16, Q8_0)

#: Keys and values of different lengths, heads of 512, and latent keys, by head_dim, group, kv_type, value_dim, latent.
_UNLIKE = tuple(
    Shape(head_dim, group, kv_type, value_dim, latent)
    for kv_type in _CACHE_TYPES
    for head_dim, group, value_dim, latent in ((192, 4, 128, False), (512, 8, 512, False), (576, 20, 512, True))
)

_BUDGET = 0.25


#: Largest acceptable error of an output, relative to its largest element. With f16 it comes from another order of f32
#: sums. With q8_0 it is larger: the CPU rounds queries to 8 bits, and the GPU does not.
TOLERANCE = {F16: 2e-3, Q8_0: 5e-2}

#: Tokens of a batch when a cache is filled for timing, and tokens that a whole model decodes at each depth.
_BATCH, _DECODED = 512, 16

#: Rows of the document, and tokens of each step, that are compared.
_DOCUMENT_ROWS, _STEPS = 1500, (300, 1, 20, 1)


@dataclass(frozen=True)
class Examination:
    """Shapes and sizes to examine.

    Parameters
    ----------
    shapes : tuple of Shape
        Shapes to compile the kernels for.
    compared : tuple of Shape
        Shapes whose steps are compared with the CPU's.
    timed : tuple of Shape
        Shapes whose kernels are timed.
    n_kv_head, n_rows : int
        KV heads of a timed layer, and rows of each.
    bandwidth_bytes : int
        Bytes to read to measure the bandwidth.
    depths : tuple of int
        Tokens that the steps of a whole model attend to.
    """

    shapes: tuple[Shape, ...]
    compared: tuple[Shape, ...]
    timed: tuple[Shape, ...]
    n_kv_head: int = 8
    n_rows: int = 32_768
    bandwidth_bytes: int = 1 << 30
    depths: tuple[int, ...] = (2048, 7500)


#: The examination of `octavo doctor --metal`.
EXAMINATION = Examination(
    shapes=(*(Shape(*sizes) for sizes in product(_HEAD_DIMS, _GROUPS, _CACHE_TYPES)), *_UNLIKE),
    compared=(*(Shape(*sizes) for sizes in product(_HEAD_DIMS, (3,), _CACHE_TYPES)), *_UNLIKE),
    timed=(*(Shape(*sizes) for sizes in product((64, 128), (4,), _CACHE_TYPES)), *_UNLIKE),
)


@cache
def methods() -> dict[str, Method]:
    """Return the methods that Metal has, each with a small budget and without dense layers."""
    found = {name: Attention(name, budget=_BUDGET).new_method().for_metal() for name in METHODS if has_method(name)}
    return {
        name: replace(method, **{"dense_layers": 0}) if method.dense_layers else method
        for name, method in found.items()
    }


class Doctor:
    """Examine this Mac's GPU.

    Parameters
    ----------
    model : ModelSettings, optional
        A model's file, and how it runs, to time whole steps; None times none.

    Raises
    ------
    OctavoError
        There is no GPU that Metal knows.
    """

    def __init__(self, progress: Progress, examination: Examination, model: ModelSettings | None = None) -> None:
        self.metal, self.model = MetalDevice(), model
        self.gpu, self.progress, self.examination = self.metal.gpu, progress, examination

    def run(self) -> dict[str, Any]:
        """Compile, compare and time the kernels; return the content of `octavo doctor --metal -o json`."""
        kernels = self._kernels()
        comparisons = self._comparisons()
        bandwidth = read_bandwidth(self.gpu, self.examination.bandwidth_bytes)
        return {
            "octavo": __version__,
            "machine": self._machine(),
            "kernels": kernels,
            "comparisons": comparisons,
            "read_bandwidth_gb_s": round(bandwidth / 1e9, 2),
            "wait_us": round(wait_seconds(self.gpu) * 1e6, 1),
            "times": self._times(bandwidth),
            "steps": self._steps(self.model) if self.model else [],
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
            "working_set_bytes": self.gpu.working_set,
        }

    def _kernels(self) -> list[dict[str, Any]]:
        """Compile every kernel for every shape, and read its limits from the GPU."""
        self.progress.start("Compiling shaders", len(self.examination.shapes), "shapes")
        rows: list[dict[str, Any]] = []
        for shape in self.examination.shapes:
            columns = _shape_columns(shape)
            try:
                pipelines = library(self.gpu, shape)
                rows += [{**columns, "kernel": name, **self._limits(each)} for name, each in pipelines.items()]
            except OctavoError as problem:
                rows.append({**columns, "kernel": "all", "problem": str(problem)})
            self.progress.advance(1)
        return rows

    def _limits(self, pipeline: Pipeline) -> dict[str, Any]:
        """Read the limits of a compiled kernel, and check them."""
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
        """Compare the steps of each method on each shape with the CPU's."""
        todo = [(shape, name) for shape in self.examination.compared for name in methods()]
        self.progress.start("Comparing with the CPU", len(todo), "methods")
        rows: list[dict[str, Any]] = []
        for shape, name in todo:
            rows += [{"attention": name, **_shape_columns(shape), **row} for row in self._compare(shape, name)]
            self.progress.advance(1)
        return rows

    def _compare(self, shape: Shape, name: str) -> Iterator[dict[str, Any]]:
        """Take the same steps on both devices, until one fails."""
        rng = np.random.default_rng(0)
        layer = _layer(2, shape)
        n_ctx = _DOCUMENT_ROWS + sum(_STEPS)
        method, devices = methods()[name], (CpuDevice(), self.metal)
        cpu, metal = (DeviceLayer(device, layer, method, n_ctx, max(_STEPS)) for device in devices)
        if method.storage is Storage.MAPPED and shape.kv_type == F16:
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
        """Time each kernel of a decode step alone, and the whole step."""
        todo = [(shape, name) for shape in self.examination.timed for name in methods()]
        self.progress.start("Timing", len(todo), "methods")
        rows: list[dict[str, Any]] = []
        for shape, name in todo:
            if shape.kv_type == F16 or methods()[name].storage is not Storage.MAPPED:
                rows += self._time(shape, name, bandwidth)
            self.progress.advance(1)
        return rows

    def _steps(self, model: ModelSettings) -> list[dict[str, Any]]:
        """Time the steps of a model over random rows on each device, and keep what `auto` takes, for later choices."""
        kinds = [Attention.parse(kind) for kind in (LLAMA_CPP, AUTO)]
        settings = BenchSettings([*self.examination.depths], kinds, _DECODED, fill="random")
        rows: list[dict[str, Any]] = []
        for device in (METAL, CPU):
            bench = Bench(replace(model, device=device), None, settings, self.progress)
            columns = ("attention", "depth", "decode_ms", "step_without_context_ms")
            rows += [{"device": device, **{name: row[name] for name in columns}} for row in bench.run()]
            bench.close()
        own = [row for row in rows if row["attention"] == AUTO]
        keep_measured_steps(str(model.model), {row["device"]: row["decode_ms"] for row in own})  # at the deepest
        return rows

    def _time(self, shape: Shape, name: str, bandwidth: float) -> Iterator[dict[str, Any]]:
        """Time a decode step of one method on one shape. bandwidth : of the GPU, in bytes a second."""
        rng = np.random.default_rng(0)
        layer = _layer(1 if shape.latent else self.examination.n_kv_head, shape)
        n_rows, batch = self.examination.n_rows, min(_BATCH, self.examination.n_rows)
        timed = DeviceLayer(self.metal, layer, methods()[name], n_rows + 1, batch)
        if methods()[name].storage is Storage.MAPPED and shape.kv_type == F16:
            timed.cache.attach(random_document(layer, n_rows, rng))
        else:
            for _ in range(n_rows // batch):
                timed.step(*random_step(layer, batch, rng))
        timed.cache.table.heads["bytes_read"] = 0
        timed.step(*random_step(layer, 1, rng))
        attention, n_read = timed.attention, int(timed.cache.table.heads["bytes_read"].sum())
        assert isinstance(attention, MetalExecutor)
        step = attention.layer_step(0, 1, has_sinks=False)
        selected = attention.work.view("selected", (8 * layer.n_kv_head,)).view(np.int32)
        n_attended = shape.token_bytes * int(selected[1::2].sum())
        whole = list(dispatches(step))
        for kernel, chosen in [*((each.kernel, [each]) for each in whole), ("all", whole)]:
            seconds = seconds_of(self.gpu, attention.memory, attention.work, step, chosen)
            n_bytes = {"attend_shares": n_attended, "score_items": n_read - n_attended, "all": n_read}.get(kernel)
            row: dict[str, Any] = {
                "attention": name,
                **_shape_columns(shape),
                "rows": n_rows,
                "kernel": kernel,
                "ms": round(seconds * 1e3, 4),
                "bytes": n_bytes,
            }
            if n_bytes is not None:
                row["share_of_read_bandwidth"] = round(n_bytes / seconds / bandwidth, 3)
            yield row


def _layer(n_kv_head: int, shape: Shape) -> CacheLayer:
    sizes = n_kv_head, shape.head_dim, 0, shape.kv_type, shape.group
    return CacheLayer(*sizes, value_dim=shape.value_dim, latent=shape.latent)


def _shape_columns(shape: Shape) -> dict[str, Any]:
    return {name: getattr(shape, name) for name in ("head_dim", "value_dim", "latent", "group", "kv_type")}
