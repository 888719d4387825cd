"""Open the GPU of a Mac through pyobjc, which is imported only then."""

from __future__ import annotations

import platform
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, NamedTuple

from ..errors import OctavoError


class Frameworks(NamedTuple):
    """The parts of pyobjc that octavo uses.

    Parameters
    ----------
    Metal : module
        The module of pyobjc-framework-Metal, or a substitute with the same names.
    autorelease_pool : callable
        Returns a context that frees, at its end, the objects that Metal made in it.
    """

    Metal: Any
    autorelease_pool: Callable[[], AbstractContextManager[Any]]


def frameworks() -> Frameworks:
    """Import Metal. Raise ImportError without pyobjc-framework-Metal. Tests replace this function."""
    import Metal
    import objc

    return Frameworks(Metal, objc.autorelease_pool)


class Gpu:
    """A Mac's GPU, and the command queue that all contexts of a process share.

    Raises
    ------
    OctavoError
        There is no GPU, or it lacks simd groups or GPU addresses (Apple silicon, macOS 13).
    """

    def __init__(self, frameworks: Frameworks) -> None:
        self.Metal, self.autorelease_pool = frameworks
        with self.autorelease_pool():
            self.device = self.Metal.MTLCreateSystemDefaultDevice()
            if self.device is None:
                raise OctavoError('This Mac has no GPU that Metal knows: use `device="cpu"`.')
            needed = self.Metal.MTLGPUFamilyApple7, self.Metal.MTLGPUFamilyMetal3
            if not all(self.device.supportsFamily_(family) for family in needed):
                raise OctavoError(
                    f"octavo's Metal kernels need Apple silicon and macOS 13 or newer, and {self.device.name()} is "
                    'not that: use `device="cpu"`.'
                )
            self.queue = self.device.newCommandQueue()
        if self.queue is None:
            raise OctavoError(f'Metal gives no command queue on {self.device.name()}: use `device="cpu"`.')
        self.libraries: dict[Any, Any] = {}

    @property
    def name(self) -> str:
        """Return Metal's name of the GPU, such as "Apple M2"."""
        return str(self.device.name())

    @property
    def working_set(self) -> int:
        """Return the bytes that the GPU should use at most, as macOS recommends."""
        return int(self.device.recommendedMaxWorkingSetSize())


@cache
def open_gpu() -> Gpu:
    """Open the GPU of this machine. Raise OctavoError with advice if there is none."""
    try:
        found = frameworks()
    except ImportError as problem:
        if platform.system() == "Darwin":
            advice = 'install pyobjc-framework-Metal with pip, or use `device="cpu"`'
        else:
            advice = 'it needs a Mac with Apple silicon; use `device="cpu"`'
        raise OctavoError(f"There is no Metal here: {advice}.") from problem
    return Gpu(found)


def is_available() -> bool:
    """Return whether this is Apple silicon with a GPU that octavo can use."""
    if (platform.system(), platform.machine()) != ("Darwin", "arm64"):
        return False
    try:
        open_gpu()
    except OctavoError:
        return False
    return True


def reason(error: Any) -> str:
    """Return the message of an NSError, or of None."""
    return "Metal does not say why" if error is None else str(error.localizedDescription()).strip()
