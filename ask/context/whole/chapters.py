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
_CHAPTER = re.compile(r"(chapter|kapitel|chapitre|cap[íi]tulo|capitolo)\b", re.IGNORECASE)
_BELOW = " > "

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
    for _, parts in groupby(indexes.documents, lambda document: without_part(document.name)):
        of_file = list(parts)
        depth = _depth([path for part in of_file for _, path in _paths(texts[part])])
        for part in of_file:
            found += _of_text(part, texts[part], depth)
    return [chapter for chapter in found if chapter.span.stop - chapter.span.start >= _FEWEST]


def _paths(text: TokenText) -> list[tuple[int, tuple[str, ...]]]:
    """Return where headings are, each with those above it."""
    return [(place.offset, tuple(place.heading.split(_BELOW)) if place.heading else ()) for place in text.places]


def _depth(paths: Sequence[tuple[str, ...]]) -> int:
    """Return how deep the headings of chapters are: those that say so, else the first that are several; 0 for none."""
    named = [len(path) for path in paths if path and _CHAPTER.match(path[-1])]
    if named:
        return min(named)
    deepest = max(map(len, paths), default=0)
    return next((n for n in range(1, deepest + 1) if len({path[:n] for path in paths if len(path) >= n}) > 1), 0)


def _of_text(document: SourceText, text: TokenText, depth: int) -> Iterator[Chapter]:
    """Yield the chapters of a text."""
    if not depth:
        yield Chapter("", Span(document, 0, len(text.starts)))
        return
    starts = [(offset, path[:depth]) for offset, path in _paths(text)]
    chapters = [(path, next(places)[0]) for path, places in groupby(starts, lambda place: place[1])]
    ends = [offset for _, offset in chapters[1:]] + [len(text.text)]
    for (path, offset), end in zip(chapters, ends, strict=True):
        if len(path) == depth:
            start, stop = np.searchsorted(text.starts, (offset, end)).tolist()
            yield Chapter(path[-1], Span(document, start, stop))


def written_chapters(findings: Sequence[Finding]) -> str:
    """Write the answer of each chapter below its heading, as Markdown; pieces of a chapter are one."""
    names = {without_part(finding.document.name) for finding in findings}

    def title(finding: Finding) -> str:
        name = without_part(finding.document.name)
        return ", ".join(filter(None, [name if len(names) > 1 or not finding.heading else "", finding.heading]))

    pieces = [(each, "\n\n".join(finding.answer for finding in same)) for each, same in groupby(findings, title)]
    return "\n\n".join(f"## {each}\n\n{answer}" for each, answer in pieces)
