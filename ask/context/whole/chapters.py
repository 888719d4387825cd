"""The chapters of documents, by their headings: a question about each chapter goes to each of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from ....library.document_parts import without_part
from ....library.source_text import SourceText
from ...search.ranking import Span
from ...sources.find_sources import TokenText
from ..answer_context import Steps
from ..document_set import DocumentSet
from .finding import Finding

#: What headings of chapters begin with, and the mark between the headings of a path.
_NAMES = "(?:chapter|kapitel|chapitre|cap[íi]tulo|capitolo)"
_CHAPTER = re.compile(rf"{_NAMES}\b", re.IGNORECASE)
_BELOW = " > "

#: Such a line in a text whose headings have no marks.
_LINE = re.compile(rf"^[ \t]*({_NAMES}[ \t]+(?:\d+|[IVXLC]+)\b[^\n]{{0,60}})$", re.IGNORECASE | re.MULTILINE)

#: Where headings are, each with those above it; nothing above or in the place of one that is not known.
_Paths = list[tuple[int, tuple[str, ...]]]

#: Fewest tokens of a chapter: a heading without a text has fewer.
_FEWEST = 32


class Chapter(NamedTuple):
    """A chapter, or the piece of one that a part of a long document has."""

    heading: str
    span: Span


def chapters_of(indexes: DocumentSet) -> Steps[list[Chapter]]:
    """Return the chapters of documents in order; a document without headings as a chapter without one.

    Yields
    ------
    None
        After each document.
    """
    texts: dict[SourceText, TokenText] = {}
    for document in indexes.documents:
        texts[document] = indexes.whole(document).text_of(document)
        yield None
    found: list[Chapter] = []
    for _, parts in groupby(indexes.documents, lambda document: document.of_file):
        paths = {part: _paths(texts[part]) for part in parts}
        depth, before = _depth([path for of_part in paths.values() for _, path in of_part]), tuple[str, ...]()
        for part, of_part in paths.items():
            found += _of_text(part, texts[part], [(0, before), *of_part], depth)
            before = of_part[-1][1] if of_part else before
    return [chapter for chapter in found if chapter.span.stop - chapter.span.start >= _FEWEST]


def _paths(text: TokenText) -> _Paths:
    """Return the headings of a text."""
    if not any(place.heading for place in text.places):
        return [(line.start(), (line[1].strip(),)) for line in _LINE.finditer(text.text)]
    return [(place.offset, tuple(place.heading.split(_BELOW)) if place.heading else ()) for place in text.places]


def _depth(paths: Sequence[tuple[str, ...]]) -> int:
    """Return how deep the headings of chapters are: those that say so, else the first that are several; 0 for none."""
    named = [len(path) for path in paths if path and _CHAPTER.match(path[-1])]
    if named:
        return min(named)
    deepest = max(map(len, paths), default=0)
    return next((n for n in range(1, deepest + 1) if len({path[:n] for path in paths if len(path) >= n}) > 1), 0)


def _of_text(document: SourceText, text: TokenText, paths: _Paths, depth: int) -> Iterator[Chapter]:
    """Yield the chapters of a text by its headings; the first one's may be in the part before."""
    if not depth:
        yield Chapter("", Span(document, 0, len(text.starts)))
        return
    chapters = [(path, next(same)[0]) for path, same in groupby(paths, lambda place: place[1][:depth])]
    ends = [offset for _, offset in chapters[1:]] + [len(text.text)]
    for (path, offset), end in zip(chapters, ends, strict=True):
        if len(path) == depth:
            start, stop = np.searchsorted(text.starts, (offset, end)).tolist()
            yield Chapter(path[-1], Span(document, start, stop))


def written_chapters(findings: Sequence[Finding]) -> tuple[str, list[tuple[int, int]]]:
    """Write the answer of each chapter below its heading, as Markdown; pieces of a chapter are one.

    Return the text, and where each answer begins and ends.
    """
    files = {finding.document.of_file for finding in findings}

    def title(finding: Finding) -> str:
        name = without_part(finding.document.name)
        return ", ".join(filter(None, [name if len(files) > 1 or not finding.heading else "", finding.heading]))

    text, places = "", list[tuple[int, int]]()
    for heading, same in groupby(findings, title):
        text += f"## {heading}\n\n"
        for finding in same:
            places.append((len(text), len(text) + len(finding.answer)))
            text += f"{finding.answer}\n\n"
    return text.removesuffix("\n\n"), places
