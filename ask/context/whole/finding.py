"""What one part or document answers to a question about all of them, and the file that keeps such answers.

`found.json` in the folder of an index has answers to earlier questions, each under a hash of all that it depends on. So
a question that was interrupted, or that is asked again, goes only to the parts that have not answered yet.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from ....errors import OctavoError
from ....library.source_text import SourceText
from ....system.files import read_json, write_json
from ...sources.find_sources import Passage

#: The file, and most answers in it: the oldest ones are forgotten.
FOUND, _MOST_KEPT = "found.json", 500


@dataclass(frozen=True)
class Finding:
    """What a part or a document answers.

    Parameters
    ----------
    document : SourceText
        The document, or the part of one.
    answer : str
        Its answer.
    passages : tuple of Passage
        Where that comes from, the likeliest first; none if no passage is likely.
    is_read : bool
        Whether the document was read; else it answered from passages.
    """

    document: SourceText
    answer: str
    passages: tuple[Passage, ...] = ()
    is_read: bool = True

    def as_json(self) -> dict[str, Any]:
        """Return it in JSON's types, for programs."""
        sources = [passage.as_json() for passage in self.passages]
        return {"document": self.document.name, "answer": self.answer, "read": self.is_read, "sources": sources}


class PartsAnswered(NamedTuple):
    """How many parts or documents have answered.

    Parameters
    ----------
    done, total : int
        Those that have answered, and all.
    sentences : sequence of str
        The news, for people.
    found : sequence of Finding
        The new answers.
    seconds : float, optional
        The time of all, at most, once that is known.
    """

    done: int
    total: int
    sentences: Sequence[str]
    found: Sequence[Finding] = ()
    seconds: float | None = None


class KeptAnswer(NamedTuple):
    """An answer as it is kept."""

    answer: str
    passages: tuple[Passage, ...]


class KeptFindings:
    """The answers that are kept beside an index.

    Parameters
    ----------
    folder : Path
        The folder of the index.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / FOUND

    @cached_property
    def _known(self) -> dict[str, Any]:
        """Return the answers that were there when they were first looked up."""
        return self._read()

    def get(self, key: str) -> KeptAnswer | None:
        """Return the answer under a key; None without one, or if the file is damaged."""
        try:
            kept = self._known[key]
            return KeptAnswer(
                str(kept["answer"]), tuple(Passage(**{**passage, "marks": ()}) for passage in kept["sources"])
            )
        except (OctavoError, KeyError, TypeError):
            return None

    def add(self, question: str, new: Mapping[str, KeptAnswer]) -> None:
        """Keep answers to a question by their keys. A folder that cannot be written keeps none."""
        kept: dict[str, Any] = {}
        with suppress(OctavoError):
            kept = self._read()
        for key, answer in new.items():
            sources = [asdict(passage) for passage in answer.passages]
            kept.pop(key, None)
            kept[key] = {"question": question, "answer": answer.answer, "sources": sources}
        with suppress(OctavoError):
            write_json(self._path, dict(list(kept.items())[-_MOST_KEPT:]))
        self.__dict__.pop("_known", None)

    def _read(self) -> dict[str, Any]:
        """Return the content of the file; nothing if it does not exist. Raise DamagedError if it is damaged."""
        return read_json(self._path) if self._path.exists() else {}


def key_of(*parts: Any) -> str:
    """Return a hash of all that an answer depends on."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]
