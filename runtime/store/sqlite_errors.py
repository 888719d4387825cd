"""Report what SQLite cannot do."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...errors import OctavoError


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
