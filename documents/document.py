"""A document as it was read: its text, and where pages and headings begin."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Place(NamedTuple):
    """Where a part of a text lies in its document, from an offset on up to the next place.

    Parameters
    ----------
    offset : int
        First character of the part.
    page : str or None
        The page's label, as it is printed; None for a document without pages.
    heading : str or None
        The headings above the part, from the outermost one on: "Methods > Data". None before the first heading.
    """

    offset: int
    page: str | None
    heading: str | None


@dataclass(frozen=True)
class Document:
    """A document as it was read.

    Parameters
    ----------
    text : str
        The text, in Markdown.
    places : tuple of Place
        Where pages and headings begin, by rising offset.
    notices : tuple of str
        Sentences that a reader should know, such as that pages without text were left out.
    name : str
        What messages call it: the name of its file.
    path : str or None
        Where its file lies, if it has one that can be read again.
    mtime_ns, n_bytes : int
        When that file was changed last, as `os.stat` says it, and its size.
    part : (int, int) or None
        Which characters of the file's text these are, if the document is a part of a long one.
    first_line : int
        The line of the file's text that it begins in, from 1.
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

    def place(self, offset: int) -> Place | None:
        """Return where a character lies; None if it lies before all places, or there are none."""
        return place_at(self.places, offset)


def place_at(places: Sequence[Place], offset: int) -> Place | None:
    """Return which of some places, by rising offset, a character lies in; None if it lies before all of them."""
    number = bisect_right(places, offset, key=lambda place: place.offset)
    return places[number - 1] if number else None
