"""Split a document that exceeds a model's context into parts that fit, at headings if there are any."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from ..documents.document import Document, Place, place_at

#: Largest distance of a cut from the middle, as a share of the length, to begin a part at a heading or a paragraph.
_REACH = 0.15

#: End of a part's name.
_PART = re.compile(r", part (\d+) of (\d+)$")

#: Borders to cut at without a heading near the middle: the first one that occurs.
_BORDERS = ("\n\n", "\n", ". ", " ")


def parts_of(document: Document, most: int, count: Callable[[str], int]) -> list[Document]:
    """Split a document into parts of about the same length.

    Parameters
    ----------
    most : int
        Largest number of tokens of a part.
    count : callable
        Returns the number of tokens of a text.

    Returns
    -------
    list of Document
        The parts in order, with their headings and pages. Names are like "novel.txt, part 2 of 5".
    """
    ranges = list(ranges_of(document.text, 0, len(document.text), heading_offsets(document.places), most, count))
    return [
        _part(document, start, stop, f"{document.name}, part {number} of {len(ranges)}", most)
        for number, (start, stop) in enumerate(ranges, 1)
    ]


def n_parts_of(name: str) -> int:
    """Return the number of parts of the document that a part of this name belongs to; 1 of a whole document."""
    found = _PART.search(name)
    return int(found[2]) if found else 1


def without_part(name: str) -> str:
    """Return the name of the document that a part of this name belongs to."""
    return _PART.sub("", name)


def with_file_name(part: str, name: str) -> str:
    """Return the name of a part, or of a whole document, with another name of its file."""
    return name + part[len(without_part(part)) :]


def heading_offsets(places: Sequence[Place]) -> list[int]:
    """Return where headings begin."""
    before = ((None, None, None), *places)
    return [place.offset for last, place in zip(before, places, strict=False) if place.heading != last[2]]


def ranges_of(
    text: str, start: int, stop: int, headings: Sequence[int], most: int, count: Callable[[str], int] = len
) -> Iterator[tuple[int, int]]:
    """Yield the bounds of parts of a text: what is too long is cut into two of about the same length.

    Parameters
    ----------
    headings : sequence of int
        Offsets at which a part begins rather than anywhere else.
    most : int
        Largest size of a part.
    count : callable
        Returns the size of a text; by default its characters.
    """
    n_tokens = count(text[start:stop])
    if n_tokens <= most or stop - start < 2:
        yield start, stop
        return
    n_parts = -(-n_tokens // most)
    middle = start + (stop - start) * (n_parts // 2) // n_parts
    cut = _cut(text, start, stop, middle, headings)
    yield from ranges_of(text, start, cut, headings, most, count)
    yield from ranges_of(text, cut, stop, headings, most, count)


def _cut(text: str, start: int, stop: int, middle: int, headings: Sequence[int]) -> int:
    """Return where to cut: at the heading nearest to the middle, or else behind the last border before it."""
    reach = max(int(_REACH * (stop - start)), 1)
    first, last = max(middle - reach, start + 1), min(middle + reach, stop - 1)
    near = [offset for offset in headings if first <= offset <= last]
    if near:
        return min(near, key=lambda offset: abs(offset - middle))
    for border in _BORDERS:
        at = text.rfind(border, first, middle)
        if at >= 0:
            return at + len(border)
    return middle


def _part(document: Document, start: int, stop: int, name: str, most: int) -> Document:
    first = place_at(document.places, start)
    inside = [place._replace(offset=place.offset - start) for place in document.places if start < place.offset < stop]
    places = ([first._replace(offset=0)] if first else []) + inside
    return replace(
        document,
        text=document.text[start:stop],
        places=tuple(places),
        name=name,
        notices=() if start else document.notices,
        left_out=(),
        part=(start, stop),
        split=most,
        first_line=document.text.count("\n", 0, start) + 1,
    )
