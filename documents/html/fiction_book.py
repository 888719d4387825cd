"""Extract FictionBook (FB2), also zipped: title and authors, chapters, and notes."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from html import escape
from xml.etree.ElementTree import Element

from ...errors import OctavoError
from ..archive import Archive
from ..document import Document
from ..left_out import LeftOut
from ..markdown import document_of
from ..xml_text import attribute, element_name, inner_html, words
from .html import parse, to_markdown, too_deep

#: What becomes of elements; the text of those that are absent stays.
_TAGS = {"p": "p", "table": "table", "tr": "tr", "td": "td", "th": "th", "v": "p", "text-author": "p", "stanza": "p"}
_TAGS |= {"cite": "blockquote", "epigraph": "blockquote", "poem": "blockquote", "section": "div", "body": "div"}
_TAGS |= {"annotation": "blockquote", "subtitle": "p"}
_TAGS |= {"emphasis": "em", "strong": "b", "sup": "sup", "sub": "sub", "code": "code", "strikethrough": "s"}


def extract_zipped_book(archive: Archive) -> Document:
    """Extract a FictionBook that is the only file of an archive."""
    return extract_fiction_book(archive.read(archive.names[0]), archive.name)


def extract_fiction_book(content: bytes, name: str) -> Document:
    """Extract a FictionBook.

    Raises
    ------
    OctavoError
        The file is damaged, or its elements are nested too deeply.
    """
    try:
        root = ElementTree.fromstring(content)
    except (ElementTree.ParseError, ValueError, LookupError) as problem:
        raise OctavoError(f"{name} is damaged: download or save it again.") from problem
    written = ""
    for about in (node for node in root.iter() if element_name(node) == "title-info"):
        title = next((words(node) for node in about if element_name(node) == "book-title"), "")
        authors = " / ".join(words(node) for node in about if element_name(node) == "author")
        written += f"<h1>{escape(title)}</h1><p>{escape(authors)}</p>"
        for series in (node for node in about if element_name(node) == "sequence"):
            written += f"<p>{escape(' '.join(filter(None, (series.get('name'), series.get('number')))))}</p>"
    shown = [node for node in root.iter() if element_name(node) == "annotation"]  # the first is the book's
    bodies = [node for node in root if element_name(node) == "body"]
    try:
        written += "".join(_as_html(node, 1) for node in (*shown[:1], *bodies))
    except RecursionError as problem:
        raise too_deep(name) from problem
    left_out = LeftOut(picture=sum(element_name(node) == "image" for body in bodies for node in body.iter()))
    text, pages = to_markdown(parse(written.replace("</pre><pre>", "\n"), name), is_site=False, left_out=left_out)
    return document_of(text, pages, left_out.notices(name))


def _as_html(node: Element, depth: int) -> str:
    name = element_name(node)
    if name in ("binary", "image", ""):
        return ""
    if name == "title" or (name == "subtitle" and any(map(str.isalnum, words(node)))):
        level = min(depth + (name == "subtitle"), 6)
        return f"<h{level}>{escape(words(node))}</h{level}>"
    inner = inner_html(node, lambda child: _as_html(child, depth + (name == "section")))
    if name == "p" and len(node) == 1 and element_name(node[0]) == "code" and not (node.text or node[0].tail):
        return f"<pre>{inner.removeprefix('<code>').removesuffix('</code>')}</pre>"
    if name == "a" and attribute(node, "type") == "note":
        return inner if inner.startswith("[") else f"[{inner}]"
    tag = _TAGS.get(name)
    return f"<{tag}>{inner}</{tag}>" if tag else inner
