"""Keep what an owner measures of a model in one file, from which an interrupted run continues.

A report is JSON. Its head says what all its measurements share: model, version, processor, threads. `speed` and
`quality` are lists of pieces. A piece has what it measures, the seconds that it should take, and as `result` the
content of `octavo bench -o json` or `octavo eval -o json`; null until it is measured. All pieces are in the file before
the first one runs, and each result is written when it is there.
"""

from __future__ import annotations

import getpass
import json
import re
import socket
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from ..cpu_kernels.numba_support.machine import cpu_name
from ..errors import OctavoError
from ..runtime.store.model_library import Library
from ..settings import ModelSettings
from ..system.files import read_json, write_json
from ..system.processors import default_threads
from ..version import __version__

#: The form of the file. Raise it when a report of before would be misread.
FORM = 1

Piece = dict[str, Any]
Part = Literal["speed", "quality"]

#: The folders of a path, with slashes or as on Windows, before its last name.
_FOLDERS = re.compile(r"(?:[A-Za-z]:\\|(?<![\w./:-])~?/)(?:[^\s/\\:'\"]+[/\\])*(?=[^\s/\\:'\"])")

#: Names of users and machines are left out from this length on: a shorter one is part of other words.
_LEAST_NAME = 3


class Report:
    """The measurements of one model, version and machine, in a file.

    Parameters
    ----------
    path : Path
        The file; `plan` makes it if it does not exist.
    settings : ModelSettings
        The located model, and how it runs.
    library : Library
        The model's, which knows the hash of its file.

    Raises
    ------
    OctavoError
        The file is not a report, or one of another model, version, machine or setting.
    """

    def __init__(self, path: Path, settings: ModelSettings, library: Library) -> None:
        self.path = path
        head = {
            "report": FORM,
            "octavo": __version__,
            "model": {"name": library.model_path.name, "sha256": library.model_hash},
            "cpu": cpu_name(),
            "threads": settings.n_threads or default_threads(),
            "cache_type": settings.cache_type,
            "device": settings.device,
            "rope": f"{settings.rope_scaling} {settings.rope_scale:g}" if settings.rope_scaling else None,
        }
        head = without_names(head)
        self.content: dict[str, Any] = read_report(path) if path.exists() else {**head, "speed": [], "quality": []}
        for name, value in head.items():
            if self.content.get(name) != value:
                raise OctavoError(
                    f"{path} was measured with another {name} ({self.content.get(name)}, and now {value}): give "
                    "another file with --report."
                )

    def pieces(self, part: Part) -> list[Piece]:
        """Return all pieces of a part, measured or not."""
        pieces: list[Piece] = self.content[part]
        return pieces

    def matching(self, part: Part, given: Piece, depths: Collection[int]) -> list[Piece]:
        """Return the pieces of a part with these settings, at these depths; without depths, at all."""
        return [
            piece
            for piece in self.pieces(part)
            if all(_same(piece[name], value) for name, value in given.items())
            and (not depths or piece["depth"] in depths)
        ]

    def settings(self, part: Part, new: Piece, given: Piece) -> Piece:
        """Return how a part is measured: as all of it is so far.

        Parameters
        ----------
        new : dict
            The settings of a report that has nothing yet.
        given : dict
            The settings that the user gave.

        Raises
        ------
        OctavoError
            The report has other settings than those that the user gave.
        """
        if not self.pieces(part):
            return new
        if found := self.matching(part, given, ()):
            return {name: found[0][name] for name in new}
        piece = self.pieces(part)[0]
        name = next(name for name, value in given.items() if not _same(piece[name], value))
        raise OctavoError(
            f"The {part} of {self.path} is measured with {_setting(name, piece[name])}, not with "
            f"{_setting(name, given[name])}: give another file with --report."
        )

    def plan(self, part: Part, pieces: Sequence[Piece]) -> None:
        """Add the pieces that the report lacks, and write it."""
        known = [_question(piece) for piece in self.pieces(part)]
        self.pieces(part).extend({**piece, "result": None} for piece in pieces if _question(piece) not in known)
        write_json(self.path, self.content)

    def measure(self, pieces: Iterable[Piece], how: Callable[[Piece], dict[str, Any]]) -> None:
        """Measure pieces that have no result, and write each result when it is there, without names of the owner."""
        for piece in missing(pieces):
            piece["result"] = without_names(how(piece))
            write_json(self.path, self.content)


def missing(pieces: Iterable[Piece]) -> list[Piece]:
    """Return the pieces without a result."""
    return [piece for piece in pieces if piece["result"] is None]


def _same(one: Any, other: Any) -> bool:
    """Return whether two values of a setting are the same: lists in any order."""
    return sorted(one) == sorted(other) if isinstance(one, list) else bool(one == other)


def _setting(name: str, value: Any) -> str:
    """Return a setting and its value in words."""
    words = ", ".join(value) or "none" if isinstance(value, list) else json.dumps(value)
    return f"{name} {words}"


def _question(piece: Piece) -> Piece:
    return {name: value for name, value in piece.items() if name not in ("estimated_s", "result")}


def read_report(path: Path) -> dict[str, Any]:
    """Read a report.

    Raises
    ------
    OctavoError
        The file is not a report, or has another form.
    """
    content = read_json(path)
    if content.get("report") != FORM or not all(isinstance(content.get(part), list) for part in ("speed", "quality")):
        raise OctavoError(f"{path} is not a report of octavo {__version__}: give another file with --report.")
    return content


def without_names(value: Any) -> Any:
    """Return JSON without folders, users' names and names of machines: a report may be published."""
    names = {Path.home().name, socket.gethostname(), socket.gethostname().partition(".")[0]}
    with suppress(OSError, KeyError, ImportError):  # a user without a name
        names.add(getpass.getuser())
    words = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True) if len(name) >= _LEAST_NAME)
    personal = re.compile(rf"(?<!\w)(?:{words})(?!\w)") if words else None

    def cleaned(inner: Any) -> Any:
        if isinstance(inner, dict):
            return {name: cleaned(each) for name, each in inner.items()}
        if isinstance(inner, list):
            return [cleaned(each) for each in inner]
        if not isinstance(inner, str):
            return inner
        text = _FOLDERS.sub("", inner)
        return personal.sub("-", text) if personal else text

    return cleaned(value)
