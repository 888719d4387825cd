"""Halt the background reader while another process computes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from ...settings import state_folder
from ...system.locks import Busy, do_not_wait, locked

#: The folder whose lock is shared by all processes that compute.
_LOCKED = "computing"


@contextmanager
def computing() -> Iterator[None]:
    """Halt the background reader meanwhile. Also a decorator of functions."""
    folder = state_folder() / _LOCKED
    with ExitStack() as stack:
        with suppress(OSError):  # without a folder for the lock, both compute at once
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            stack.enter_context(locked(folder, shared=True))
        yield


class Computing:
    """Halts the background reader from `note(True)` to `note(False)`, in any threads."""

    def __init__(self) -> None:
        self._held = ExitStack()

    def note(self, computes: bool) -> None:
        """Note whether this process computes now."""
        self._held.close()
        if computes:
            self._held.enter_context(computing())


def others_compute() -> bool:
    """Return whether a process computes."""
    with suppress(OSError):
        try:
            with locked(state_folder() / _LOCKED, waiting=do_not_wait):
                return False
        except Busy:
            return True
    return False
