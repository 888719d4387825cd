"""Say why a document cannot be opened; of a name that does not exist, which similar one does."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from difflib import get_close_matches

from ..errors import OctavoError

#: Share of the letters that two names must have in common: "missing.txt" and "island.txt" share .67.
_ALIKE = 0.8


def opening_problem(path: str | os.PathLike[str], problem: OSError) -> OctavoError:
    """Return the error for a document that the system refuses to open."""
    meant = similar_path(os.fspath(path)) if problem.errno == errno.ENOENT else ""
    guess = f" Did you mean {meant}?" if meant else ""
    return OctavoError(f"The document {path} cannot be opened: {problem.strerror}.{guess}")


def similar_path(path: str) -> str:
    """Return a path that exists and is written nearly like one that does not; "" if there is none.

    Each of its names may be mistyped, or in other letters: `Reprots/q3.PDF` is Reports/q3.pdf.
    """
    folder, name = os.path.split(path.rstrip(os.sep))
    if os.path.lexists(path):
        return path
    if folder and not os.path.isdir(folder):
        folder = similar_path(folder)
        if not os.path.isdir(folder):
            return ""
        if os.path.lexists(os.path.join(folder, name)):
            return os.path.join(folder, name)
    there: dict[str, str] = {}
    with suppress(OSError):  # of a folder that may not be listed
        there = {each.casefold(): each for each in sorted(os.listdir(folder or ".")) if not each.startswith(".")}
    near = get_close_matches(name.casefold(), there, 1, _ALIKE)
    return os.path.join(folder, there[near[0]]) if near else ""
