"""Write a document's text with the pages and headings of its parts."""

from __future__ import annotations

from itertools import pairwise

from .document import Document


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
