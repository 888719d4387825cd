"""Measure the memory that is left: of the machine, of a container's limit (cgroups), and of `ulimit -v`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType

import psutil

from ..errors import NoRoom, OctavoError
from .control_groups import control_groups

#: Bytes of memory to leave to everything else: before a long task, and in the middle of it.
SPARE_BYTES, LEAST_SPARE_BYTES = 256 << 20, 64 << 20

#: Memory of loading a model besides the model: llama.cpp's buffers, libraries, and the address space of threads.
LOADING_BYTES = 512 << 20

#: The default of `check_free`: nothing else needs memory.
NOTHING: Mapping[str, int] = MappingProxyType({})

#: Files of control groups, by version: limits, the usage, and the entries of the statistics that count reclaimable file
#: pages. Beyond memory.high the system slows a process down.
_FILES = {
    1: (("memory.limit_in_bytes",), "memory.usage_in_bytes", ("total_inactive_file", "total_active_file")),
    2: (("memory.max", "memory.high"), "memory.current", ("inactive_file", "active_file")),
}


@dataclass(frozen=True)
class FreeMemory:
    """Memory that is left.

    Parameters
    ----------
    where : str
        The end of a sentence: "are free", or "are left of ..." and the limit.
    """

    n_bytes: int
    where: str


def free_memory() -> FreeMemory:
    """Return the tightest of all limits on memory."""
    found = [FreeMemory(int(psutil.virtual_memory().available), "are free"), *_of_cgroups(), *_of_ulimit()]
    return min(found, key=lambda free: free.n_bytes)


def check_limits(model: str, n_bytes: int) -> None:
    """Check that this process's limits let it load a model, which may be larger than memory: it can be mapped.

    Raises
    ------
    OctavoError
        It cannot.
    """
    limit = min([*_of_cgroups(), *_of_ulimit()], key=lambda free: free.n_bytes, default=None)
    if limit is not None and n_bytes + LOADING_BYTES > limit.n_bytes:
        raise OctavoError(
            f"{model} needs {_gib(n_bytes + LOADING_BYTES)} of memory, but only {_gib(limit.n_bytes)} {limit.where}: "
            "raise the limit, or give a smaller model with `model`."
        )


def check_free(what: str, n_bytes: int, others: Mapping[str, int] = NOTHING, spare: int = SPARE_BYTES) -> None:
    """Check that memory suffices for something, and for everything that comes with it.

    Parameters
    ----------
    what : str
        Its name in the message, which begins with it.
    others : mapping of str to int
        Other memory in use then: names and bytes.
    spare : int
        Bytes to leave free.

    Raises
    ------
    OctavoError
        Less is left; the message has the figures.
    """
    free, needs = free_memory(), {**others, "the rest": spare}
    if n_bytes + sum(needs.values()) > free.n_bytes:
        besides = " and ".join(f"{name} {_gib(size)}" for name, size in needs.items() if size)
        raise NoRoom(
            f"{what} needs {_gib(n_bytes)} more, besides {besides}, but only {_gib(free.n_bytes)} of memory "
            f"{free.where}: close other programs, or give a shorter text."
        )


def private_bytes() -> int:
    """Return the bytes of this process's memory that no file backs."""
    used = psutil.Process().memory_info()
    return int(used.rss - getattr(used, "shared", 0))


def _gib(n_bytes: float) -> str:
    """Format a size for a message."""
    return f"{n_bytes / 2**30:.2f} GiB"


def _of_ulimit() -> Iterator[FreeMemory]:
    """Yield the address space that is left, if it is limited."""
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        yield FreeMemory(max(soft - psutil.Process().memory_info().vms, 0), "are left of `ulimit -v`")


def _of_cgroups() -> Iterator[FreeMemory]:
    """Yield the memory left under the limits of this process's control groups."""
    for folder, version in control_groups("memory"):
        limits, usage, of_files = _FILES[version]
        for limit in limits:
            with suppress(OSError, ValueError):
                most = int((folder / limit).read_text())  # "max" is not a number
                statistics = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
                taken_back = sum(int(statistics.get(name, 0)) for name in of_files)
                left = most - int((folder / usage).read_text()) + taken_back
                if most < 1 << 60:  # larger numbers mean no limit in version 1
                    yield FreeMemory(max(left, 0), "are left of this container's limit")
