"""Open files of SQLite for several processes at once, and report what it cannot do."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from ..errors import NoRoom, OctavoError
from .files import make_private

#: Seconds for which a change waits for another process's.
_PATIENCE = 60

#: File systems of disks that one machine has alone, as /proc/mounts and macOS name them. SQLite's log (WAL) shares
#: memory, so it works on no other: a network drive, or one that is not known, has a journal, for which readers wait.
_LOCAL = {
    *("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs", "jfs", "reiserfs", "tmpfs", "overlay"),
    *("apfs", "hfs", "exfat", "vfat", "msdos", "ntfs3", "fuseblk", "ufs"),
}


class SqliteFile:
    """A file of SQLite that stays open, for any thread.

    Parameters
    ----------
    path : Path
        The file, made if it is missing, in a private folder.
    what, remedy : str
        As in `sqlite_errors`.
    """

    def __init__(self, path: Path, what: str, remedy: str) -> None:
        make_private(path.parent)
        self._path, self._what, self._remedy = path, what, remedy
        self._one_at_once = threading.Lock()
        with self._reporting():
            self._db = sqlite3.connect(
                _address(path), timeout=_PATIENCE, isolation_level=None, check_same_thread=False, uri=True
            )
            with suppress(sqlite3.OperationalError):  # the disk is read-only, or an older octavo uses the file
                self._db.execute(f"PRAGMA journal_mode = {'WAL' if _is_local(path.parent) else 'DELETE'}")

    def _reporting(self) -> AbstractContextManager[None]:
        """Report where SQLite fails."""
        return sqlite_errors(self._what, self._path, self._remedy)

    @contextmanager
    def _transaction(self, how: Literal["DEFERRED", "IMMEDIATE"]) -> Iterator[None]:
        """See one state of the file meanwhile (DEFERRED), or change it as a whole or not at all (IMMEDIATE)."""
        with self._one_at_once:
            self._db.execute(f"BEGIN {how}")
            with self._db:
                yield

    def _erase_forgotten(self) -> None:
        """Leave nothing on the disk of deleted rows: free pages and the log would still hold them.

        While another process reads, the log stays, for as long as it does: it is emptied when the last one closes the
        file.
        """
        self._db.execute("VACUUM")
        self._db.execute("PRAGMA busy_timeout = 1000")
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        self._db.execute(f"PRAGMA busy_timeout = {_PATIENCE * 1000}")


def _address(path: Path) -> str:
    """Return the address of a file: where no log can be written beside it, no process changes it."""
    how = "?immutable=1" if path.exists() and not os.access(path.parent, os.W_OK) else ""
    return f"file:{quote(os.fsencode(path.absolute()))}{how}"


@lru_cache(maxsize=64)
def _is_local(folder: Path) -> bool:
    """Return whether one machine alone has the disk of a folder."""
    import psutil

    real, found = os.path.realpath(folder), ("", "")
    with suppress(OSError, RuntimeError):
        for mounted in psutil.disk_partitions(all=True):
            place = mounted.mountpoint
            if Path(real).is_relative_to(place) and len(place) >= len(found[0]):
                found = place, mounted.fstype
    return found[1] in _LOCAL


def bound(path: str) -> str | bytes:
    """Return a path or a name for a column, as bytes if it is not UTF-8; `os.fsdecode` returns it."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return os.fsencode(path)
    return path


@contextmanager
def sqlite_errors(what: str, path: Path, remedy: str) -> Iterator[None]:
    """Turn an error of SQLite into a message with a remedy.

    Parameters
    ----------
    what : str
        What the file holds, such as "The texts of documents".
    remedy : str
        What follows once a damaged file is deleted.

    Raises
    ------
    OctavoError
        The disk is full, or the file is damaged or cannot be used otherwise.
    """
    try:
        yield
    except sqlite3.Error as problem:
        if getattr(problem, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
            raise NoRoom(f"The disk of {path} is full: free some space.") from problem
        raise OctavoError(
            f"{what} in {path} cannot be used: {problem}. If the file is damaged, delete it: {remedy}."
        ) from problem
