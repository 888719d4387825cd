"""Lock folders against other processes. The lock ends with its process."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

#: Errors of file systems without locks. octavo then works without locks.
_NO_LOCKS = {errno.ENOLCK, errno.EBADF, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}


class Busy(Exception):
    """Another process holds the lock."""


@contextmanager
def locked(folder: Path, shared: bool = False, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold the lock of a folder, which is the folder itself: the lock leaves no file, and renaming keeps it.

    Parameters
    ----------
    shared : bool
        Share the lock with others that share it: for readers.
    waiting : callable, optional
        Called once before waiting for another process that holds the lock. It may raise `Busy`.

    Raises
    ------
    OSError
        The folder does not exist, or was removed meanwhile.
    """
    how = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    while True:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            try:
                try:
                    fcntl.flock(descriptor, how | fcntl.LOCK_NB)
                except BlockingIOError:
                    if waiting is not None:
                        waiting()
                    fcntl.flock(descriptor, how)
            except OSError as problem:
                if problem.errno not in _NO_LOCKS:
                    raise
            if not os.path.samestat(os.fstat(descriptor), os.stat(folder)):  # renamed and made again meanwhile
                continue
            yield
            return
        finally:
            os.close(descriptor)


@contextmanager
def locked_new(folder: Path, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Make a folder that only its owner can open, unless it exists, and hold its lock; see `locked`.

    Raise OctavoError if it cannot be made.
    """
    with ExitStack() as lock:
        while True:
            from .files import make_private  # here: it imports NumPy, and help needs none

            make_private(folder)
            try:
                lock.enter_context(locked(folder, waiting=waiting))
                break
            except FileNotFoundError:  # another process removed it just now
                continue
        yield


def is_locked(folder: Path) -> bool:
    """Return whether a process holds the lock of a folder alone. Raise OSError if the folder does not exist."""
    try:
        with locked(folder, shared=True, waiting=do_not_wait):
            return False
    except Busy:
        return True


def do_not_wait() -> None:
    """Raise `Busy`: a `waiting` that does not wait."""
    raise Busy
