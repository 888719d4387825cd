"""Measure how fast the GPU reads memory, which bounds the time of every decode kernel."""

from __future__ import annotations

from typing import Any

import numpy as np

from .attention import median_seconds
from .gpu import Gpu
from .shader_library import compile_kernels, text_of
from .shared_memory import SharedMemory

_KERNEL, _GROUPS, _THREADS = "read_memory", 1024, 256


def read_bandwidth(gpu: Gpu, n_bytes: int) -> float:
    """Measure how fast the GPU reads memory.

    Returns
    -------
    float
        Bytes per second.

    Raises
    ------
    OctavoError
        The GPU reports an error, or has no memory left.
    """
    memory = SharedMemory(gpu)
    data, out = memory.allocate(n_bytes), memory.new((_GROUPS * _THREADS,), np.uint32)
    data[:] = 0  # otherwise the system maps one page of zeros everywhere
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
