"""Open files of SQLite, and report what it cannot do."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from ..errors import OctavoError
from .files import make_private


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
        with self._reporting():
            self._db = sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)

    def _reporting(self) -> AbstractContextManager[None]:
        """Report where SQLite fails."""
        return sqlite_errors(self._what, self._path, self._remedy)


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
        raise OctavoError(
            f"{what} in {path} cannot be used: {problem}. If the file is damaged, delete it: {remedy}."
        ) from problem
