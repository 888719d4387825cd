"""Extract OpenDocument (ODT, ODS, ODP): headings, lists, tables, notes, and the numbers of charts."""

from __future__ import annotations

import posixpath
import re
from html import escape
from xml.etree.ElementTree import Element

from ...errors import OctavoError
from ..archive import Archive
from ..document import Document
from ..html.formulas import formula
from ..html.html import parse, to_markdown, too_deep
from ..markdown import document_of
from ..xml_text import attribute, element_name, inner_html, words

#: What becomes of elements; the text of those that are absent stays.
_TAGS = {"p": "p", "list-item": "li", "list-header": "li", "table": "table", "table-header-rows": "thead"}
_TAGS |= {"text-box": "div", "frame": "div", "section": "div", "body": "div"}
_SILENT = {"tracked-changes", "annotation", "image", "desc", "forms", "settings", "creator", "date-string", ""}
_SILENT |= {"covered-table-cell"}  # of a cell that spans it

#: Columns beyond which an empty cell only fills the rest of a sheet; most copies of a cell or row with text; and most
#: characters that all copies add to a file.
_FILLED, _MOST_COPIES, _MOST_ADDED = 100, 20_000, 16_000_000

#: Most blanks in a row that stay.
_MOST_BLANKS = 100

#: A list of one item, as cells of slides have it.
_ONE_ITEM = re.compile(r"^\s*<ul>\s*<li>((?:(?!</?li>).)*)</li>\s*</ul>\s*$", re.DOTALL)


def extract_opendocument(archive: Archive) -> Document:
    """Extract a text, a table or slides of OpenDocument.

    Raises
    ------
    OctavoError
        The file is damaged, or its elements are nested too deeply.
    """
    try:
        written = _OpenDocument(archive).html()
    except RecursionError as problem:
        raise too_deep(archive.name) from problem
    return document_of(*to_markdown(parse(written, archive.name), is_site=False))


class _OpenDocument:
    """A file: what its styles say, and how far its lists are numbered."""

    def __init__(self, archive: Archive) -> None:
        self.archive = archive
        self.content = archive.xml("content.xml")
        trees = [self.content, *([archive.xml("styles.xml")] if "styles.xml" in archive else [])]
        nodes = [node for tree in trees for node in tree.iter() if element_name(node) in ("style", "list-style")]
        self.parents = {attribute(node, "name"): attribute(node, "parent-style-name") for node in nodes}
        self.numbers = {  # the form of numbers of each level of a list
            (attribute(node, "name"), _whole(level, "level")): attribute(level, "num-format")
            for node in nodes
            for level in node
            if element_name(level) == "list-level-style-number"
        }
        self.n_slides = 0
        self.opened: set[str] = set()
        self.room = _MOST_ADDED

    def html(self) -> str:
        return self._html(_body(self.content), "", 0)

    def _html(self, node: Element, style: str, depth: int, is_sheet: bool = False) -> str:
        """Return an element as HTML: in lists of a style and a depth. A table right in a spreadsheet is a sheet."""
        name = element_name(node)
        if name in _SILENT:
            return ""
        if name in ("s", "tab", "line-break"):
            return "<br>" if name == "line-break" else " " * min(_whole(node, "c"), _MOST_BLANKS)
        if name == "object":
            return self._object(attribute(node, "href"))
        if name == "page":
            return self._slide(node)
        if name == "list":
            style, depth = attribute(node, "style-name") or style, depth + 1
        inner = inner_html(node, lambda child: self._html(child, style, depth, name == "spreadsheet"))
        if name == "list":
            return self._list(inner, style, depth)
        if name == "list-item" and (start := attribute(node, "start-value")):
            return f'<li value="{escape(start)}">{inner}</li>'
        if name == "p" and "Title" in (own := attribute(node, "style-name"), self.parents.get(own)):
            return f"<h1>{inner}</h1>"
        if name == "h":
            level = min(_whole(node, "outline-level"), 6)
            return f"<h{level}>{inner}</h{level}>"
        if name == "table" and is_sheet and "<td" in inner:
            return f"<h2>{escape(attribute(node, 'name'))}</h2><table>{inner}</table>"
        tag = _TAGS.get(name)
        return f"<{tag}>{inner}</{tag}>" if tag else self._note_or_cell(node, name, inner)

    def _note_or_cell(self, node: Element, name: str, inner: str) -> str:
        """Return a note, or a cell or row of a table, as HTML."""
        if name == "note-citation":
            return f"[{inner}]"
        if name == "note-body":
            return f" ({re.sub('<[^<>]*>', ' ', inner).strip()})"
        if name == "table-cell":
            inner, n_columns = _ONE_ITEM.sub(r"\1", inner), _whole(node, "number-columns-repeated")
            spans = _whole(node, "number-columns-spanned"), _whole(node, "number-rows-spanned")
            cell = f'<td colspan="{spans[0]}" rowspan="{spans[1]}">{inner}</td>'
            return self._copies(cell, n_columns) if inner or n_columns <= _FILLED else ""
        if name == "table-row":
            has_text = re.search(r">[^<>]*[^<>\s]", inner) is not None
            return self._copies(f"<tr>{inner}</tr>", _whole(node, "number-rows-repeated")) if has_text else ""
        return inner

    def _copies(self, text: str, number: int) -> str:
        self.room -= len(text) * (number - 1)
        if self.room < 0 or number > _MOST_COPIES:
            raise OctavoError(f"A table repeats a cell or row {number:,} times: delete the copies.")
        return text * number

    def _list(self, inner: str, style: str, depth: int) -> str:
        form = self.numbers.get((style, depth), "")
        return f'<ol type="{escape(form)}">{inner}</ol>' if form else f"<ul>{inner}</ul>"

    def _slide(self, node: Element) -> str:
        """Return a slide under its title, or its name, with its notes."""
        self.n_slides += 1
        title = next((each for each in node if attribute(each, "class") == "title" and words(each)), None)
        about = attribute(node, "name") if title is None else words(title)
        parts = [self._html(each, "", 0) for each in node if each is not title and element_name(each) != "notes"]
        notes = "".join(self._html(each, "", 0) for each in node if element_name(each) == "notes")
        parts += [f"<p>Notes:</p>{notes}"] if re.search(r">[^<>]*[^<>\s]", notes) else []
        return f"<h2>Slide {self.n_slides}: {escape(about)}</h2>{''.join(parts)}"

    def _object(self, reference: str) -> str:
        """Return a chart as a table of its numbers, and a formula in a line."""
        path = posixpath.normpath(posixpath.join(reference, "content.xml"))
        if path in self.opened or path not in self.archive:
            return ""
        self.opened.add(path)
        root = self.archive.xml(path)
        return escape(formula(root)) if element_name(root) == "math" else self._html(_body(root), "", 0)


def _body(root: Element) -> Element:
    return next((node for node in root.iter() if element_name(node) == "body"), root)


def _whole(node: Element, name: str) -> int:
    """Return the number that an attribute is; 1 without it."""
    text = attribute(node, name)
    return int(text) if text.isascii() and text.isdigit() and 0 < len(text) < 9 else 1
