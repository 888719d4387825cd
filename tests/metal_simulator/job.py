"""Describe one run of a kernel: the engine's inputs, and the way of results back to the caller's arrays."""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

Buffers = Mapping[int, np.ndarray | bytes]


class Address(NamedTuple):
    """Place the address of one buffer's byte in another buffer.

    Parameters
    ----------
    buffer : int
        Index of the buffer that holds the address.
    offset : int
        Byte in `buffer` where the 8 bytes of the address begin.
    target : int
        Index of the buffer that the address points into. It may be any index, also one that no parameter has.
    target_offset : int
        Byte in `target` that the address points to.
    """

    buffer: int
    offset: int
    target: int
    target_offset: int = 0


@dataclass(frozen=True)
class Job:
    """Hold the checked inputs of one run, in this process or in another."""

    kernel: int
    buffers: Buffers
    groups: tuple[int, int, int]
    threads: tuple[int, int, int]
    schedule: int
    timeout: int
    constants: dict[int, bytes]
    threadgroup_memory: tuple[int, ...]
    addresses: tuple[Address, ...]


def size_of(buffer: np.ndarray | bytes) -> int:
    return buffer.nbytes if isinstance(buffer, np.ndarray) else len(buffer)


def flat(buffer: np.ndarray) -> np.ndarray:
    """View an array as bytes."""
    return buffer.reshape(-1).view(np.uint8)


def aligned_copy(buffer: np.ndarray | bytes) -> np.ndarray:
    """Copy a buffer to an address that is a multiple of 256, as in Metal."""
    contents = flat(buffer) if isinstance(buffer, np.ndarray) else np.frombuffer(buffer, np.uint8)
    memory = np.empty(contents.size + 256, np.uint8)
    start = -memory.ctypes.data % 256
    copy = memory[start : start + contents.size]
    copy[:] = contents
    return copy


def return_arrays(job: Job, memory: Mapping[int, np.ndarray]) -> None:
    """Copy results into the caller's arrays, except addresses."""
    for index, buffer in job.buffers.items():
        if not isinstance(buffer, np.ndarray) or not buffer.flags.writeable:
            continue
        contents = flat(buffer)
        for address in job.addresses:
            if address.buffer == index:
                place = slice(address.offset, address.offset + 8)
                memory[index][place] = contents[place]
        contents[:] = memory[index]


def encode(path: Path, job: Job) -> bytes:
    """Encode a job for runner.cpp, which describes the format."""
    parts: list[bytes] = []

    def number(*values: int) -> None:
        parts.append(struct.pack(f"<{len(values)}Q", *values))

    def contents(value: bytes) -> None:
        number(len(value))
        parts.append(value)

    contents(str(path).encode())
    contents(f"msl_kernel_{job.kernel}".encode())
    number(*job.groups, *job.threads, job.schedule, job.timeout)
    number(len(job.constants))
    for index, value in job.constants.items():
        number(index)
        contents(value)
    number(*job.threadgroup_memory)
    number(len(job.buffers))
    for index, buffer in job.buffers.items():
        number(index, isinstance(buffer, np.ndarray))
        contents(buffer.tobytes() if isinstance(buffer, np.ndarray) else buffer)
    number(len(job.addresses))
    for address in job.addresses:
        number(*address)
    return b"".join(parts)
