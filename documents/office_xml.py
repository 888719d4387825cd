"""Read files of XML: OpenDocument (ODT, ODS, ODP) and FictionBook (FB2), by their elements in HTML."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from html import escape
from xml.etree.ElementTree import Element

from ..errors import OctavoError
from .archive import Archive
from .document import Document
from .html import parse, to_markdown
from .markdown import document_of

#: What becomes of elements of OpenDocument and of FictionBook; the text of those that are absent stays.
_BLOCKS = {
    "p": "p",
    "list": "ul",
    "list-item": "li",
    "list-header": "li",
    "table": "table",
    "table-row": "tr",
    "tr": "tr",
}
_BLOCKS |= {"table-cell": "td", "covered-table-cell": "td", "td": "td", "th": "th", "table-header-rows": "thead"}
_BLOCKS |= {"v": "p", "text-author": "p", "cite": "blockquote", "epigraph": "blockquote", "poem": "blockquote"}
_BLOCKS |= {"stanza": "p", "text-box": "div", "frame": "div", "section": "div", "body": "div", "emphasis": "em"}
_BLOCKS |= {"strong": "b", "note": "div"}
_SILENT = {"tracked-changes", "annotation", "binary", "image", "desc", "forms", "settings", "creator", "date-string"}

#: Columns beyond which an empty cell only fills the rest of a sheet, and most copies of a cell or row with text.
_FILLED, _MOST_COPIES = 100, 20_000

#: A list of one item, as cells of slides have it.
_ONE_ITEM = re.compile(r"^\s*<ul>\s*<li>((?:(?!</?li>).)*)</li>\s*</ul>\s*$", re.DOTALL)

_FICTION = re.compile(rb"<(?:\w+:)?FictionBook\b")


def read_opendocument(archive: Archive) -> Document:
    """Read a text, a table or slides of OpenDocument."""
    try:
        root = ElementTree.fromstring(archive.read("content.xml"))
    except (ElementTree.ParseError, ValueError, LookupError) as problem:
        raise archive.damaged() from problem
    body = next((node for node in root.iter() if _name(node) == "body"), root)
    return _document(_opendocument(body), archive.name)


def is_fiction_book(content: bytes, name: str) -> bool:
    """Return whether a file is a FictionBook."""
    return _FICTION.search(content[:2048]) is not None and content.lstrip(b"\xef\xbb\xbf \r\n\t").startswith(b"<")


def read_fiction_book(content: bytes, name: str) -> Document:
    """Read a FictionBook: title and authors, chapters, and notes.

    Raises
    ------
    OctavoError
        The file is damaged.
    """
    try:
        root = ElementTree.fromstring(content)
    except (ElementTree.ParseError, ValueError, LookupError) as problem:
        raise OctavoError(f"{name} is damaged: download or save it again.") from problem
    written = ""
    for about in (node for node in root.iter() if _name(node) == "title-info"):
        title = next((_words(node) for node in about if _name(node) == "book-title"), "")
        authors = " / ".join(_words(node) for node in about if _name(node) == "author")
        written += f"<h1>{escape(title)}</h1><p>{escape(authors)}</p>"
    written += "".join(_fiction(node, 1) for node in root if _name(node) == "body")
    return _document(written, name)


def _document(written: str, name: str) -> Document:
    text, pages = to_markdown(parse(written, name), is_site=False)
    return document_of(text, pages)


def _name(node: Element) -> str:
    """Return the name of an element, in any namespace; nothing for a comment."""
    return node.tag.rpartition("}")[2] if isinstance(node.tag, str) else ""


def _words(node: Element) -> str:
    return " ".join(" ".join(node.itertext()).split())


def _attribute(node: Element, name: str) -> str:
    """Return an attribute in any namespace."""
    return next((text for key, text in node.attrib.items() if key.rpartition("}")[2] == name), "")


def _count(node: Element, name: str) -> int:
    text = _attribute(node, name)
    return int(text) if text.isascii() and text.isdigit() and 0 < len(text) < 9 else 1


def _copies(text: str, number: int) -> str:
    """Return copies of a cell or row."""
    if number > _MOST_COPIES:
        raise OctavoError(f"A table repeats a cell or row {number:,} times: delete the copies.")
    return text * number


def _inner(node: Element, write: object) -> str:
    """Return the text and the elements within an element, as HTML."""
    parts = [escape(node.text or "")]
    for child in node:
        parts += [write(child), escape(child.tail or "")]  # type: ignore[operator]
    return "".join(parts)


def _opendocument(node: Element, is_sheet: bool = False) -> str:
    """Return an element of OpenDocument as HTML. A table right in a spreadsheet is a sheet."""
    name = _name(node)
    if name in _SILENT or not name:
        return ""
    if name in ("s", "tab", "line-break"):
        return "<br>" if name == "line-break" else " " * _count(node, "c")
    inner = _inner(node, lambda child: _opendocument(child, name == "spreadsheet"))
    if name == "p" and _attribute(node, "style-name") == "Title":
        return f"<h1>{inner}</h1>"
    if name == "h":
        level = min(_count(node, "outline-level"), 6)
        return f"<h{level}>{inner}</h{level}>"
    if name == "note-citation":
        return f"[{inner}]"
    if name == "note-body":
        return f" ({re.sub('<[^<>]*>', ' ', inner).strip()})"
    if name == "note":
        return inner
    if name == "page":
        return f"<h2>{escape(_attribute(node, 'name'))}</h2>{inner}"
    if name in ("table-cell", "covered-table-cell"):  # covered cells stand for those that others span
        inner, n_columns = _ONE_ITEM.sub(r"\1", inner), _count(node, "number-columns-repeated")
        return _copies(f"<td>{inner}</td>", n_columns) if inner or n_columns <= _FILLED else ""
    if name == "table-row":
        has_text = re.search(r">[^<>]*[^<>\s]", inner) is not None
        return _copies(f"<tr>{inner}</tr>", _count(node, "number-rows-repeated")) if has_text else ""
    if name == "table" and is_sheet and "<td>" in inner:
        return f"<h2>{escape(_attribute(node, 'name'))}</h2><table>{inner}</table>"
    tag = _BLOCKS.get(name)
    return f"<{tag}>{inner}</{tag}>" if tag else inner


def _fiction(node: Element, depth: int) -> str:
    """Return an element of a FictionBook as HTML."""
    name = _name(node)
    if name in _SILENT or not name:
        return ""
    if name in ("title", "subtitle"):
        level = min(depth + (name == "subtitle"), 6)
        return f"<h{level}>{escape(_words(node))}</h{level}>"
    inner = _inner(node, lambda child: _fiction(child, depth + (name == "section")))
    if name == "a" and _attribute(node, "type") == "note":
        return inner if inner.startswith("[") else f"[{inner}]"
    tag = _BLOCKS.get(name)
    return f"<{tag}>{inner}</{tag}>" if tag else inner
