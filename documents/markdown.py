"""Find the headings of a Markdown text, and turn it into a document."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from html import unescape

from .document import Document, Place
from .left_out import LeftOut

#: Lines that open or close a block of code, that are headings, and that make the line before a heading.
_FENCE = re.compile(r" {0,3}(```+|~~~+)")
_HEADING = re.compile(r" {0,3}(#{1,6})[ \t](.*)")
_UNDERLINE = re.compile(r" {0,3}(?!-- $)(=+|-{2,})[ \t]*$")  # "-- " begins the sender's lines in mail

#: Beginnings of lines of a text without marks that Markdown takes for headings and for code.
_TAKEN = re.compile(r"#{1,6}(?=\s|$)|```|~~~|(?==+\s*$|-{2,}\s*$)")

#: Properties of a page before its text, in YAML or TOML.
_PROPERTIES = re.compile(
    r"(---|\+\+\+)[ \t]*\r?\n(?=(?:[ \t]*#[^\n]*\n)*[ \t]*[\w\"'-]+[ \t]*[:=])(?s:.*?\n)(?:\1|\.\.\.)[ \t]*(?:\r?\n|\Z)"
)

#: Pictures that are in a text: in line, as HTML, as the target of a reference, and anywhere else.
_IN_LINE = re.compile(r"!\[([^\]]*)\]\(\s*<?data:[^)\s>]*>?[^)]*\)")
_IN_HTML = re.compile(r"<img\b[^>]*?\bsrc\s*=\s*([\"'])data:(?:(?!\1).)*\1[^>]*>", re.IGNORECASE | re.DOTALL)
_DESCRIPTION = re.compile(r"\balt\s*=\s*([\"'])(.*?)\1", re.IGNORECASE | re.DOTALL)
_TARGET = re.compile(r"^ {0,3}(\[[^\]]+\]:)[ \t]*<?data:\S+[^\n]*$", re.MULTILINE)
_ELSEWHERE = re.compile(r"(data:[\w.+-]+/[\w.+-]+(?:;[\w.=-]+)*;base64,)[A-Za-z0-9+/=%]{64,}")

#: Separates the headings of a path.
_BELOW = " > "


def document_of(
    text: str,
    pages: Sequence[tuple[int, str]] = (),
    notices: Sequence[str] = (),
    found: Iterable[tuple[int, int, str]] | None = None,
) -> Document:
    """Turn a text into a document with its headings as places.

    Parameters
    ----------
    pages : sequence of (int, str)
        Starts of pages, by rising offset, and their labels.
    found : iterable of (int, int, str), optional
        The headings, as `headings` finds them in Markdown, of a text in other mark-up.
    """
    path: list[tuple[int, str]] = []
    places: list[Place] = []
    marks: list[tuple[int, int | None, str]] = [(offset, None, label) for offset, label in pages]
    marks += [(offset, level, title) for offset, level, title in (headings(text) if found is None else found)]
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
    properties = _PROPERTIES.match(text)
    offset, fence, before = properties.end() if properties else 0, "", ""
    for line in text[offset:].splitlines(keepends=True):
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


def without_pictures(text: str, left_out: LeftOut) -> str:
    """Return a Markdown text with only the descriptions of the pictures that it holds, and count the others."""
    if "data:" not in text:
        return text

    def described(description: str) -> str:
        left_out["picture"] += not description.strip()
        return f"![{description}]" if description.strip() else ""

    def of_html(tag: re.Match[str]) -> str:
        found = _DESCRIPTION.search(tag[0])
        return described(" ".join(unescape(found[2]).split()) if found else "")

    text = _IN_HTML.sub(of_html, _IN_LINE.sub(lambda picture: described(picture[1]), text))
    text, n_targets = _TARGET.subn(r"\1", text)
    text, n_others = _ELSEWHERE.subn(r"\1...", text)
    left_out["picture"] += n_targets + n_others
    return text


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
