"""How fast the GPU reads memory: the floor of every kernel of decode."""

from __future__ import annotations

from typing import Any

import numpy as np

from .attention import median_seconds
from .gpu import Gpu
from .library import compile_kernels, text_of
from .memory import Memory

_KERNEL, _GROUPS, _THREADS = "read_memory", 1024, 256


def read_bandwidth(gpu: Gpu, n_bytes: int) -> float:
    """Bytes per second, of reads of n_bytes.

    Raises OctavoError where the GPU reports an error, or gives no memory.
    """
    memory = Memory(gpu)
    data, out = memory.allocate(n_bytes), memory.new((_GROUPS * _THREADS,), np.uint32)
    data[:] = 0  # pages that nobody wrote are all one
    count = np.uint32(n_bytes // 16).tobytes()

    def encode(encoder: Any) -> None:
        encoder.setComputePipelineState_(state)
        encoder.setBuffer_offset_atIndex_(*memory.binding(data), 0)
        encoder.setBytes_length_atIndex_(count, len(count), 1)
        encoder.setBuffer_offset_atIndex_(*memory.binding(out), 2)
        size = gpu.Metal.MTLSize
        encoder.dispatchThreadgroups_threadsPerThreadgroup_(size(_GROUPS, 1, 1), size(_THREADS, 1, 1))

    with gpu.autorelease_pool():
        state = compile_kernels(gpu, text_of("bandwidth"), [_KERNEL], "bandwidth")[_KERNEL]
        return n_bytes / median_seconds(gpu, encode)
