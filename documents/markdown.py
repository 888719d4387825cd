"""Find the headings of a Markdown text, and turn it into a document."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from .document import Document, Place

#: Lines that open or close a block of code, that are headings, and that make the line before a heading.
_FENCE = re.compile(r" {0,3}(```+|~~~+)")
_HEADING = re.compile(r" {0,3}(#{1,6})[ \t](.*)")
_UNDERLINE = re.compile(r" {0,3}(?!-- $)(=+|-{2,})[ \t]*$")  # "-- " begins the sender's lines in mail

#: Beginnings of lines of a text without marks that Markdown takes for headings and for code.
_TAKEN = re.compile(r"#{1,6}(?=\s|$)|```|~~~|(?==+\s*$|-{2,}\s*$)")

#: Separates the headings of a path.
_BELOW = " > "


def document_of(text: str, pages: Sequence[tuple[int, str]] = (), notices: Sequence[str] = ()) -> Document:
    """Turn a Markdown text into a document with its headings as places.

    Parameters
    ----------
    pages : sequence of (int, str)
        Starts of pages, by rising offset, and their labels.
    """
    path: list[tuple[int, str]] = []
    places: list[Place] = []
    marks: list[tuple[int, int | None, str]] = [(offset, None, label) for offset, label in pages]
    marks += [(offset, level, title) for offset, level, title in headings(text)]
    page: str | None = None
    for offset, level, name in sorted(marks, key=lambda mark: (mark[0], mark[1] is not None)):
        if level is None:
            page = name
        else:
            path = [*(above for above in path if above[0] < level), (level, name)]
        place = Place(offset, page, _BELOW.join(title for _, title in path) or None)
        if places and places[-1].offset == offset:
            places.pop()
        places.append(place)
    return Document(text, tuple(places), tuple(notices))


def headings(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield the headings of a Markdown text, outside blocks of code.

    Yields
    ------
    offset : int
        First character of the heading's line.
    level : int
        1 for the highest, to 6.
    title : str
        The heading.
    """
    offset, fence, before = 0, "", ""
    for line in text.splitlines(keepends=True):
        opened = _FENCE.match(line)
        if fence:
            if opened and opened[1].startswith(fence):
                fence = ""
        elif opened:
            fence = opened[1]
        elif (heading := _HEADING.match(line.rstrip())) and (title := _without_closing_marks(heading[2])):
            yield offset, len(heading[1]), _plain(title)
        elif (under := _UNDERLINE.match(line.rstrip("\r\n"))) and _may_be_underlined(before):
            yield offset - len(before), 1 if under[1][0] == "=" else 2, _plain(before)
        before = "" if fence or opened else line
        offset += len(line)


def as_text(line: str) -> str:
    """Return a line of a text without marks so that Markdown does not take it for a heading or for code."""
    return f"\\{line}" if _TAKEN.match(line) else line


def _without_closing_marks(title: str) -> str:
    """Return a heading without surrounding blanks and without separate marks at its end."""
    title = title.strip()
    open_title = title.rstrip("#")
    return open_title.rstrip() if not open_title or open_title[-1] in " \t" else title


def _may_be_underlined(line: str) -> bool:
    """Return whether an underline would make a line a heading: it is text, not a list, quote, table or code."""
    return bool(line.strip()) and not re.match(r"\s{4}|\t|\s*([-*+>|#]|\d+[.)])", line) and len(line) < 200


def _plain(title: str) -> str:
    """Return a heading without marks of emphasis, code and links."""
    title = re.sub(r"\[([^\[\]]*)\]\([^()]*\)", r"\1", title)
    return re.sub(r"(\*\*|__|`|\\(?=[^\w\s]))", "", title).strip()
