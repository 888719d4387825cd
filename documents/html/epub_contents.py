"""Make headings of the lines that a book's table of contents names, where the book has them as paragraphs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice, takewhile
from typing import Any, NamedTuple

from ..xml_text import attribute, element_name, words

#: Elements that may be a heading, and those that hold them.
_LINES, _HEADINGS = ("p", "div", "center", "dt", "td", "li", "blockquote"), ("h1", "h2", "h3", "h4", "h5", "h6")

#: Most lines of a heading, such as a number, a title and an author.
_MOST_LINES = 4


class Entry(NamedTuple):
    """A line of a table of contents: the file and the element that it leads to, its title, and its level from 1."""

    path: str
    element: str
    title: str
    level: int


def contents_of_links(root: Any) -> Iterator[tuple[str, str, int]]:
    """Yield the titles, links and levels of a page with a table of contents."""
    tables = [nav for nav in root.iter("nav") if "toc" in (nav.get("epub:type") or nav.get("role") or "")]
    for table in tables[:1] or root.iter("nav"):
        for link in table.iter("a"):
            level = sum(1 for above in link.iterancestors("ol", "ul") if table in above.iterancestors())
            yield words(link), link.get("href") or "", max(level, 1)
        return


def contents_of_points(root: Any, level: int = 0) -> Iterator[tuple[str, str, int]]:
    """Yield the titles, links and levels of the points of a table of contents."""
    for node in root:
        name = element_name(node)
        if name == "navPoint":
            title = next((words(child) for child in node if element_name(child) == "navLabel"), "")
            href = next((attribute(child, "src") for child in node if element_name(child) == "content"), "")
            yield title, href, level + 1
        if name in ("navMap", "navPoint"):
            yield from contents_of_points(node, level + (name == "navPoint"))


def mark_headings(root: Any, entries: list[Entry]) -> None:
    """Make the lines that entries name headings, or put a heading in their place if the lines are not there."""
    nodes = root.xpath("//*[@name or @id]") if any(entry.element for entry in entries) else ()
    named = {name: node for node in nodes for key in ("name", "id") if (name := node.get(key))}
    for entry in entries:
        start = named.get(entry.element) if entry.element else next(root.iter("body"), root)
        if start is None or not entry.title:
            continue
        following = _lines_from(start)
        lines = list(islice(following, 1))
        if lines and lines[0].tag in _HEADINGS:  # as in most books
            continue
        lines += islice(following, _MOST_LINES - 1)
        own = list(takewhile(lambda line: line.tag not in _HEADINGS, lines))
        parts = (own[first:last] for first in range(len(own)) for last in range(first + 1, len(own) + 1))
        has_heading = any(line.tag in _HEADINGS for line in lines[:2])
        if part := next((part for part in parts if _same(" ".join(map(words, part)), entry.title)), None):
            _join(part, f"h{min(entry.level, 6)}")
        elif lines and not has_heading and not any(_same(words(line), entry.title) for line in lines):
            heading = root.makeelement(f"h{min(entry.level, 6)}")
            heading.text = entry.title
            lines[0].addprevious(heading)


def _lines_from(start: Any) -> Iterator[Any]:
    """Yield the lines of a page from an element on: paragraphs and headings with text and without others in them."""
    above = next((each for each in (start, *start.iterancestors()) if each.tag in (*_LINES, *_HEADINGS)), start)
    for node in _following(above):
        has_inner = next(node.iterdescendants(*_LINES, *_HEADINGS), None) is not None
        if node.tag in (*_LINES, *_HEADINGS) and not has_inner and words(node):
            yield node


def _following(start: Any) -> Iterator[Any]:
    """Yield an element, those in it, and those after it."""
    yield from start.iter("*")
    while start is not None:
        for after in start.itersiblings("*"):
            yield from after.iter("*")
        start = start.getparent()


def _same(line: str, title: str) -> bool:
    """Return whether two texts have the same letters and numbers."""
    return re.findall(r"\w", line.casefold()) == re.findall(r"\w", title.casefold())


def _join(lines: list[Any], tag: str) -> None:
    """Make lines one heading."""
    lines[0].tag = tag
    for line in lines[1:]:
        line.tag, line.text, line.tail = "span", f" {line.text or ''}", None
        lines[0].append(line)
