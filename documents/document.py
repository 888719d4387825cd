"""Represent a document: its name, its text, and the starts of its pages, headings and sentences."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from ..errors import shown
from ..system.files import FileVersion
from .table_heads import TableHeads

#: The name of a document from standard input.
STANDARD_INPUT = "-"

#: What octavo reads, for messages.
READS = "octavo reads text, HTML, PDF, EPUB, Office files, mail, notebooks and subtitles (docs/documents.md)."

#: Ends of sentences: after a mark, at an empty line, and before a Markdown block that begins a line.
_ENDS = re.compile(
    r"([.!?\u2026][\"'\u201d\u2019)\]*_]*\s+(?=[^a-z]))|[\u3002\uff01\uff1f]+|\n\s*\n"
    r"|\n(?=[ \t]*(?:[-*+|#>]|\d+[.)])[ \t])"
)

#: Words before marks that do not end a sentence.
_ABBREVIATION = re.compile(r"\b(Mr|Mrs|Ms|Dr|St|No|vs|cf|e\.g|i\.e|[A-Z])$")

#: Cut longer sentences at line ends, or else at blanks.
_LONGEST = 400


class Place(NamedTuple):
    """The page and headings of a part of a text, from an offset up to the next place.

    Parameters
    ----------
    offset : int
        First character of the part.
    page : str or None
        The page's printed label; None for a document without pages.
    heading : str or None
        The headings above the part, from the outermost on: "Methods > Data". None before the first heading.
    """

    offset: int
    page: str | None
    heading: str | None


@dataclass(frozen=True)
class Document:
    """A document's text and origin.

    Parameters
    ----------
    text : str
        The text, in Markdown.
    places : tuple of Place
        Starts of pages and headings, by rising offset.
    notices : tuple of str
        Sentences for the reader, such as that pages without text were left out.
    left_out : tuple of str
        What its file has beyond the text, each with its page and the reason: "page 2, repeated: The Island Log".
    name : str
        Its name in messages: the name of its file.
    path : str or None
        Path of its file, if the file can be read again.
    mtime_ns, n_bytes : int
        Time of that file's last change, as in `os.stat`, and its size, when the text was taken from it.
    mark, content : str
        More of that version of the file (`FileVersion`).
    part : (int, int) or None
        Range of characters in the file's text, if the document is a part of a long one.
    split : int
        Largest number of tokens of the parts of that document; 0 of a whole one.
    first_line : int
        The line of the file's text that it begins in, from 1.
    needed_password : bool
        Whether its file is encrypted.
    """

    text: str
    places: tuple[Place, ...] = ()
    notices: tuple[str, ...] = ()
    name: str = ""
    path: str | None = None
    mtime_ns: int = 0
    n_bytes: int = 0
    part: tuple[int, int] | None = None
    first_line: int = 1
    needed_password: bool = False
    split: int = 0
    mark: str = ""
    content: str = ""
    left_out: tuple[str, ...] = ()

    @property
    def version(self) -> FileVersion | None:
        """Return the version of the file that the text was taken from; None without a file."""
        if self.path is None:
            return None
        return FileVersion(self.path, self.mtime_ns, self.n_bytes, self.mark, self.content)

    @property
    def notices_when_kept(self) -> tuple[str, ...]:
        """Return the notices for a reader whose disk will hold the text."""
        if not self.needed_password:
            return self.notices
        in_clear = (
            f"{self.name} is encrypted, but octavo keeps its text in clear on this disk, readable by you alone, and "
            f"answers from it without the password: `octavo remove {self.name}` removes it."
        )
        return (*self.notices, in_clear)

    @cached_property
    def table_heads(self) -> TableHeads:
        """Return the tables of the text, and their heads."""
        return TableHeads(self.text, self.name)

    def place(self, offset: int) -> Place | None:
        """Return the place of a character; None before the first place."""
        return place_at(self.places, offset)


def hash_text(text: str) -> str:
    """Return the SHA-256 of a document's text, in hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()


def document_name(path: str | os.PathLike[str]) -> str:
    """Return a document's name in messages: the name of its file."""
    if os.fspath(path) == STANDARD_INPUT:
        return "Standard input"
    with suppress(OSError):
        if os.fspath(path).startswith("/dev/") and stat.S_ISFIFO(os.stat(path).st_mode):
            return "Pipe"  # a shell's <(...) has only a number
    return shown(Path(path).name or os.fspath(path))


def place_at(places: Sequence[Place], offset: int) -> Place | None:
    """Return the place that contains a character; places are by rising offset; None before the first."""
    number = bisect_right(places, offset, key=lambda place: place.offset)
    return places[number - 1] if number else None


def sentence_ends(text: str) -> list[int]:
    """Return where sentences of a text end, in Markdown or any other, but for the last one; blanks after it count."""
    return [
        end.end()
        for end in _ENDS.finditer(text)
        if not (end[0].startswith(".") and _ABBREVIATION.search(text[max(end.start() - 4, 0) : end.start()]))
    ]


def sentences(text: str) -> list[int]:
    """Return the beginnings of a text's sentences, long ones cut, and its end.

    Returns
    -------
    list of int
        Rising offsets of characters, from 0 to the length of the text.
    """
    made: list[int] = []
    for start, stop in pairwise([0, *sentence_ends(text), len(text)]):
        made.append(start)
        while stop - made[-1] > _LONGEST:
            first, last = made[-1] + _LONGEST // 4, made[-1] + _LONGEST
            cut = max(text.rfind("\n", first, last), -1) + 1 or text.rfind(" ", first, last) + 1 or last
            made.append(cut)
    return [*dict.fromkeys([*made, len(text)])] if text else [0, 0]


def marked_text(document: Document, start: int = 0, stop: int | None = None) -> str:
    """Return a part of a text, in which a line that begins with --- says the page and the headings of what follows.

    Parameters
    ----------
    start, stop : int
        Characters of the text; by default all of them.
    """
    text, end = document.text, len(document.text) if stop is None else stop
    places = [place for place in document.places if start <= place.offset < end or place.offset == end == len(text)]
    before = document.place(start)
    if before is not None and before.offset < start < end:
        places.insert(0, before._replace(offset=start))
    bounds = [place.offset for place in places] + [end]
    written = text[start : bounds[0]]
    for place, (first, last) in zip(places, pairwise(bounds), strict=True):
        page = f"page {place.page}" if place.page else ""
        is_within_line = first > start and text[first - 1] != "\n"
        written += "\n" * is_within_line + f"--- {', '.join(filter(None, (page, place.heading)))}\n{text[first:last]}"
    return written if written.endswith("\n") else f"{written}\n"
