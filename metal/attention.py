"""Compute one layer's attention on the GPU: in a command buffer, whose kernels run in order, or in several.

macOS stops a command buffer that keeps the GPU from drawing for some seconds. So a batch over many rows is cut into
command buffers, which run one after another.

This module knows arrays and addresses, not models. common.metal describes the kernels' arguments.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..cpu_kernels.numba_support.shape import Shape
from ..errors import OctavoError
from .gpu import Gpu, reason
from .records import GPU_STEP, SELECTED_BYTES, SPAN_BYTES
from .shader_library import heads_at_once, library, tile_queries
from .shared_memory import SharedMemory

#: Threadgroups that score a head's items, and the most shares that a layer's rows are divided into.
SCORE_SHARES, MAX_SHARES = 16, 64

#: Fewest rows of a share.
SHARE_ROWS = 64

#: Multiply-adds of a command buffer at most. A GPU of 0.3 trillion a second, an eighth of what an M1 can do, computes
#: them in a quarter of a second.
LARGEST_COMMANDS = 1 << 36

#: Runs to take the median time of.
_TIMED_RUNS = 7

#: The kernels' arguments from index 2 on.
_ARGUMENTS = ("queries", "spans", "selected", "partials", "out", "sinks", "new_keys", "new_values")


@dataclass(frozen=True)
class LayerStep:
    """One layer's computation in a step.

    Parameters
    ----------
    heads : HEAD array, shape (n_kv_head,)
        The layer's records: a slice of those that the GPU sees.
    n_pieces : int
        Most chunks with a head's new rows; 0 if the layer appends none.
    n_rows : int
        Rows of all heads together.
    scores, narrows : bool
        Whether a head's method scores items, and whether one then narrows them down.
    softcap : float
        Soft-cap of the scores; 0 for none.
    """

    shape: Shape
    heads: np.ndarray
    n_tokens: int
    n_pieces: int
    n_rows: int
    scores: bool
    narrows: bool
    softcap: float
    has_sinks: bool


class Work:
    """Shared memory that all layers of a context use, one after another: arrays with the names of _ARGUMENTS.

    Attributes
    ----------
    bindings : list of tuple
        Metal buffer and offset of each array.
    span_capacity : int
        Capacity of each head in spans.
    """

    def __init__(self, memory: SharedMemory, shapes: list[Shape], kv_heads: list[int], n_ubatch: int) -> None:
        self._memory = memory
        self._n_kv_head = max(kv_heads)
        layers = list(zip(shapes, kv_heads, strict=True))
        key = max(shape.head_dim * n for shape, n in layers)
        value = max(shape.value_dim * n for shape, n in layers)
        query = max(shape.head_dim * shape.group * n for shape, n in layers)
        out = max(shape.value_dim * shape.group * n for shape, n in layers)
        partial = max(shape.group * (shape.value_dim + 2) for shape in shapes)
        n_head = max(shape.group * n for shape, n in layers)
        self._flat = {
            "queries": memory.new((n_ubatch * query,), np.float32),
            "selected": memory.allocate(self._n_kv_head * SELECTED_BYTES),
            "partials": memory.new(((MAX_SHARES + self._n_kv_head) * partial,), np.float32),
            "out": memory.new((n_ubatch * out,), np.float32),
            "sinks": memory.new((n_head,), np.float32),
            "new_keys": memory.new((n_ubatch * key,), np.float16),
            "new_values": memory.new((n_ubatch * value,), np.float16),
        }
        self.make_room(0)

    def make_room(self, span_capacity: int) -> None:
        """Grow to this capacity in spans of a head."""
        self.span_capacity = span_capacity
        self._flat["spans"] = self._memory.allocate(max(self._n_kv_head * span_capacity, 1) * SPAN_BYTES)
        self.bindings = [self._memory.binding(self._flat[name]) for name in _ARGUMENTS]

    def view(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """View the first elements of an array in a shape."""
        return self._flat[name][: int(np.prod(shape))].reshape(shape)


@dataclass(frozen=True)
class Dispatch:
    """One kernel of a step, the size of its grid in threadgroups, and the first tile of `attend_tiles`."""

    kernel: str
    width: int
    height: int = 1
    first: int = 0


def dispatches(layer: LayerStep) -> Iterator[Dispatch]:
    """Yield the kernels of a layer's step in their order."""
    n_kv_head, group, n_tokens = len(layer.heads), layer.shape.group, layer.n_tokens
    if layer.n_pieces:
        yield Dispatch("append_rows", layer.n_pieces, n_kv_head)
    if n_tokens == 1 and layer.scores:
        yield Dispatch("score_items", SCORE_SHARES, n_kv_head)
        if layer.narrows:
            yield Dispatch("narrow_items", n_kv_head)
            yield Dispatch("score_narrowed", SCORE_SHARES, n_kv_head)
    yield Dispatch("select_spans", n_kv_head)
    if layer.shape.rotated:
        yield Dispatch("rotate_queries", n_tokens * group, n_kv_head)
    if n_tokens == 1:
        yield Dispatch("attend_shares", _count_shares(layer) + n_kv_head, -(-group // heads_at_once(layer.shape)))
        yield Dispatch("merge_shares", group, n_kv_head)
    else:
        n_tiles, most = -(-n_tokens * group // tile_queries(layer.shape)), _most_tiles(layer)
        for first in range(0, n_tiles, most):
            yield Dispatch("attend_tiles", min(most, n_tiles - first), n_kv_head, first)


def _most_tiles(layer: LayerStep) -> int:
    """Return how many tiles of all heads a command buffer computes at most."""
    of_a_tile = tile_queries(layer.shape) * layer.n_rows * (layer.shape.head_dim + layer.shape.value_dim)
    return max(LARGEST_COMMANDS // max(of_a_tile, 1), 1)


def attend(gpu: Gpu, memory: SharedMemory, work: Work, layer: LayerStep) -> None:
    """Compute a layer's attention and wait for it.

    Parameters
    ----------
    work : Work
        The queries and new rows; receives the output.

    Raises
    ------
    OctavoError
        The GPU reports an error.
    """
    parts: list[list[Dispatch]] = [[]]
    for dispatch in dispatches(layer):
        if dispatch.first:
            parts.append([])
        parts[-1].append(dispatch)
    with gpu.autorelease_pool():
        for part in parts:
            _compute(gpu, partial(_encode, gpu, memory, work, layer, part))


def seconds_of(gpu: Gpu, memory: SharedMemory, work: Work, layer: LayerStep, chosen: Sequence[Dispatch]) -> float:
    """Measure kernels of a step that was computed before.

    Returns
    -------
    float
        Median time on the GPU, in seconds.
    """
    with gpu.autorelease_pool():
        return median_seconds(gpu, partial(_encode, gpu, memory, work, layer, chosen))


def median_seconds(gpu: Gpu, encode: Callable[[Any], None]) -> float:
    """Return the median time, in seconds, of the commands of `encode`, after a first run. Needs an autorelease pool."""
    runs = [_compute(gpu, encode) for _ in range(_TIMED_RUNS + 1)][1:]
    return float(np.median([commands.GPUEndTime() - commands.GPUStartTime() for commands in runs]))


def wait_seconds(gpu: Gpu) -> float:
    """Return the median time, in seconds, of a command buffer without kernels: to make it, and to wait for it."""
    seconds = []
    with gpu.autorelease_pool():
        for _ in range(_TIMED_RUNS + 1):
            start = time.perf_counter()
            _compute(gpu, lambda encoder: None)
            seconds.append(time.perf_counter() - start)
    return float(np.median(seconds[1:]))


def _compute(gpu: Gpu, encode: Callable[[Any], None]) -> Any:
    """Run the commands of `encode` on the GPU, and return the finished command buffer."""
    commands = gpu.queue.commandBuffer()
    encoder = commands.computeCommandEncoder() if commands is not None else None
    if encoder is None:
        raise OctavoError('Metal takes no more commands: close other programs, or use `device="cpu"`.')
    try:
        encode(encoder)
    finally:
        encoder.endEncoding()  # Metal aborts if an encoder is freed before this
    commands.commit()
    commands.waitUntilCompleted()
    if commands.status() == gpu.Metal.MTLCommandBufferStatusError:
        raise OctavoError(
            f'The GPU could not compute attention: {reason(commands.error())}. Try again, or use `device="cpu"`.'
        )
    return commands


def _count_shares(layer: LayerStep) -> int:
    """Return how many shares the layer's rows are divided into."""
    return int(np.clip(-(-layer.n_rows // SHARE_ROWS), 1, MAX_SHARES))


def _encode(
    gpu: Gpu, memory: SharedMemory, work: Work, layer: LayerStep, chosen: Iterable[Dispatch], encoder: Any
) -> None:
    Metal, pipelines, capacity = gpu.Metal, library(gpu, layer.shape), work.span_capacity
    numbers = (len(layer.heads), layer.n_tokens, _count_shares(layer), capacity, layer.softcap, layer.has_sinks)
    buffers = memory.buffers
    encoder.useResources_count_usage_(buffers, len(buffers), Metal.MTLResourceUsageRead | Metal.MTLResourceUsageWrite)
    encoder.setBuffer_offset_atIndex_(*memory.binding(layer.heads), 0)
    for index, (buffer, offset) in enumerate(work.bindings, 2):
        encoder.setBuffer_offset_atIndex_(buffer, offset, index)
    for dispatch in chosen:
        step = np.array((*numbers, dispatch.first), GPU_STEP).tobytes()
        encoder.setBytes_length_atIndex_(step, len(step), 1)
        pipeline = pipelines[dispatch.kernel]
        encoder.setComputePipelineState_(pipeline.state)
        groups, threads = Metal.MTLSize(dispatch.width, dispatch.height, 1), Metal.MTLSize(pipeline.threads, 1, 1)
        encoder.dispatchThreadgroups_threadsPerThreadgroup_(groups, threads)
