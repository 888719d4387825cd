"""Locks of folders between processes. A process that ends, however it ends, holds none."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

#: What file systems without locks answer. octavo then works without locks.
_NO_LOCKS = {errno.ENOLCK, errno.EBADF, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}


class Busy(Exception):
    """Another process holds the lock."""


@contextmanager
def locked(folder: Path, shared: bool = False, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold the lock of a folder, which is the folder itself: nothing is left of it, and renaming it keeps it.

    Parameters
    ----------
    shared : bool
        Share the lock with others that do so too: those that read.
    waiting : callable, optional
        Is called once if another process holds the lock, before the wait. It may raise `Busy`.

    Raises
    ------
    OSError
        There is no such folder, or none any more.
    """
    while True:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _lock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX, waiting)
            if not os.path.samestat(os.fstat(descriptor), os.stat(folder)):  # renamed, and made again, meanwhile
                continue
            yield
            return
        finally:
            os.close(descriptor)


def _lock(descriptor: int, how: int, waiting: Callable[[], None] | None) -> None:
    """Lock an open folder."""
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


def do_not_wait() -> None:
    """Raise `Busy`: what `locked` calls where one does not wait."""
    raise Busy
