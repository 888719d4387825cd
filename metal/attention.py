"""One layer's attention on the GPU: one command buffer, in which each kernel sees what those before it wrote.

Knows arrays and addresses, not models. The kernels and their arguments are in metal/common.metal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..cpu_kernels.compile import Shape
from ..errors import OctavoError
from .gpu import Gpu, reason
from .library import library
from .memory import Memory
from .records import SELECTED_BYTES, SPAN_BYTES, STEP

#: In how many parts a head's items are scored, and in how many shares, at most, a layer's rows are attended.
N_PARTS, MAX_SHARES = 16, 64

#: Rows that are worth a share of their own, and query rows of a tile of a batch's attention.
SHARE_ROWS, TILE_ROWS = 64, 32

#: Runs that a time is the median of.
_TIMED_RUNS = 7

#: The kernels' arguments from index 2 on.
_ARGUMENTS = ("queries", "spans", "selected", "partials", "out", "sinks", "new_keys", "new_values")


@dataclass(frozen=True)
class LayerStep:
    """What one layer computes in a step.

    heads : its records, a slice of those that the GPU sees    n_tokens : of the step
    n_pieces : chunks that a head's new rows lie in, at most; 0 where the layer appends none
    n_rows : rows stored for all of its heads    scores, is_coarse : whether a head scores items, or in two levels
    """

    shape: Shape
    heads: np.ndarray
    n_tokens: int
    n_pieces: int
    n_rows: int
    scores: bool
    is_coarse: bool
    softcap: float
    has_sinks: bool


class Work:
    """Shared memory that all layers of a context work in, one after another.

    Its arrays have the names of _ARGUMENTS; `view` gives them.
    bindings : the Metal buffer and the offset of each of them
    """

    def __init__(self, memory: Memory, shapes: list[Shape], kv_heads: list[int], n_ubatch: int) -> None:
        self._memory = memory
        self._n_kv_head = max(kv_heads)
        row = max(shape.head_dim * n for shape, n in zip(shapes, kv_heads, strict=True))
        wide_row = max(shape.head_dim * shape.group * n for shape, n in zip(shapes, kv_heads, strict=True))
        partial = max(shape.group * (shape.head_dim + 2) for shape in shapes)
        n_head = max(shape.group * n for shape, n in zip(shapes, kv_heads, strict=True))
        self._flat = {
            "queries": memory.new((n_ubatch * wide_row,), np.float32),
            "selected": memory.allocate(self._n_kv_head * SELECTED_BYTES),
            "partials": memory.new(((MAX_SHARES + self._n_kv_head) * partial,), np.float32),
            "out": memory.new((n_ubatch * wide_row,), np.float32),
            "sinks": memory.new((n_head,), np.float32),
            "new_keys": memory.new((n_ubatch * row,), np.float16),
            "new_values": memory.new((n_ubatch * row,), np.float16),
        }
        self.make_room(0)

    def make_room(self, span_capacity: int) -> None:
        """Have room for so many spans of a head."""
        self.span_capacity = span_capacity
        self._flat["spans"] = self._memory.allocate(max(self._n_kv_head * span_capacity, 1) * SPAN_BYTES)
        self.bindings = [self._memory.binding(self._flat[name]) for name in _ARGUMENTS]

    def selected_rows(self, n_kv_head: int) -> np.ndarray:
        """What the heads of the last layer attended: (n_kv_head,) int32."""
        pairs: np.ndarray = self.view("selected", (n_kv_head * SELECTED_BYTES,)).view(np.int32).reshape(-1, 2)
        return pairs[:, 1]

    def view(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """The first elements of a buffer, in some shape."""
        return self._flat[name][: int(np.prod(shape))].reshape(shape)


@dataclass(frozen=True)
class Dispatch:
    """One kernel of a step, and its threadgroups."""

    kernel: str
    width: int
    height: int = 1


def dispatches(layer: LayerStep) -> Iterator[Dispatch]:
    """The kernels of a layer's step, in their order."""
    n_kv_head, group, n_tokens = len(layer.heads), layer.shape.group, layer.n_tokens
    if layer.n_pieces:
        yield Dispatch("append_rows", layer.n_pieces, n_kv_head)
    if n_tokens == 1 and layer.scores:
        yield Dispatch("score_items", N_PARTS, n_kv_head)
        if layer.is_coarse:
            yield Dispatch("keep_clusters", n_kv_head)
            yield Dispatch("score_kept", N_PARTS, n_kv_head)
    yield Dispatch("select_spans", n_kv_head)
    if n_tokens == 1:
        yield Dispatch("attend_shares", _count_shares(layer) + n_kv_head)
        yield Dispatch("merge_shares", group, n_kv_head)
    else:
        yield Dispatch("attend_tiles", -(-n_tokens * group // TILE_ROWS), n_kv_head)


def attend(gpu: Gpu, memory: Memory, work: Work, layer: LayerStep) -> None:
    """Compute a layer's attention and wait for it.

    Raises OctavoError where the GPU reports an error.
    """
    with gpu.autorelease_pool():
        _compute(gpu, lambda encoder: _encode(gpu, memory, work, layer, encoder, dispatches(layer)))


def seconds_of(gpu: Gpu, memory: Memory, work: Work, layer: LayerStep, chosen: Sequence[Dispatch]) -> float:
    """What the GPU takes for some kernels of a step that was computed before: the median of some runs."""
    with gpu.autorelease_pool():
        return median_seconds(gpu, lambda encoder: _encode(gpu, memory, work, layer, encoder, chosen))


def median_seconds(gpu: Gpu, encode: Callable[[Any], None]) -> float:
    """What the GPU takes for what `encode` encodes, the median of some runs after a first one. Needs a pool."""
    runs = [_compute(gpu, encode) for _ in range(_TIMED_RUNS + 1)][1:]
    return float(np.median([commands.GPUEndTime() - commands.GPUStartTime() for commands in runs]))


def _compute(gpu: Gpu, encode: Callable[[Any], None]) -> Any:
    """Have the GPU run what `encode` encodes; the command buffer, once it is done."""
    commands = gpu.queue.commandBuffer()
    encoder = commands.computeCommandEncoder() if commands is not None else None
    if encoder is None:
        raise OctavoError("Metal takes no more commands: close other programs, or use --device cpu.")
    try:
        encode(encoder)
    finally:
        encoder.endEncoding()  # an encoder must not go without it
    commands.commit()
    commands.waitUntilCompleted()
    if commands.status() == gpu.Metal.MTLCommandBufferStatusError:
        raise OctavoError(
            f"The GPU could not compute attention: {reason(commands.error())}. Try again, or use --device cpu."
        )
    return commands


def _count_shares(layer: LayerStep) -> int:
    return int(np.clip(-(-layer.n_rows // SHARE_ROWS), 1, MAX_SHARES))


def _encode(gpu: Gpu, memory: Memory, work: Work, layer: LayerStep, encoder: Any, chosen: Iterable[Dispatch]) -> None:
    Metal, pipelines, capacity = gpu.Metal, library(gpu, layer.shape), work.span_capacity
    numbers = (len(layer.heads), layer.n_tokens, _count_shares(layer), capacity, layer.softcap, layer.has_sinks)
    step = np.array(numbers, STEP).tobytes()
    buffers = memory.buffers
    encoder.useResources_count_usage_(buffers, len(buffers), Metal.MTLResourceUsageRead | Metal.MTLResourceUsageWrite)
    encoder.setBuffer_offset_atIndex_(*memory.binding(layer.heads), 0)
    encoder.setBytes_length_atIndex_(step, len(step), 1)
    for index, (buffer, offset) in enumerate(work.bindings, 2):
        encoder.setBuffer_offset_atIndex_(buffer, offset, index)
    for dispatch in chosen:
        pipeline = pipelines[dispatch.kernel]
        encoder.setComputePipelineState_(pipeline.state)
        groups, threads = Metal.MTLSize(dispatch.width, dispatch.height, 1), Metal.MTLSize(pipeline.threads, 1, 1)
        encoder.dispatchThreadgroups_threadsPerThreadgroup_(groups, threads)
