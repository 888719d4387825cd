"""Extract OpenDocument (ODT, ODS, ODP, and flat files of XML): headings, lists, tables, notes, formulas, charts."""

from __future__ import annotations

import posixpath
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from html import escape
from xml.etree.ElementTree import Element

from ...errors import OctavoError
from ..archive import Archive
from ..document import Document
from ..html.formulas import formula
from ..html.html import parse, to_markdown, too_deep
from ..left_out import LeftOut
from ..markdown import document_of
from ..xml_text import attribute, element_name, inner_html, words
from .letterheads import PAGE, SEPARATOR, with_letterheads, without_page_numbers
from .opendocument_styles import Styles, whole
from .reading_order import in_reading_order
from .sheets import Merged, Row, shown_cells

#: What becomes of elements; the text of those that are absent stays.
_TAGS = {"list-item": "li", "list-header": "li", "table-header-rows": "thead", "text-box": "div", "section": "div"}
_TAGS |= {"body": "div", "ruby-text": "rt"}
_SILENT = {
    "tracked-changes",
    "annotation",
    "image",
    "desc",
    "forms",
    "settings",
    "creator",
    "date-string",
    "binary-data",
    "page-thumbnail",
    "",
}
_SILENT |= {"covered-table-cell"}  # of a cell that spans it

#: What a slide, a sheet and a page of a text may have beside lines of text: each may be hidden.
_SHAPES = {
    "frame",
    "g",
    "custom-shape",
    "rect",
    "ellipse",
    "circle",
    "caption",
    "polygon",
    "regular-polygon",
    "control",
}
_SHAPES |= {"line", "polyline", "path", "connector", "measure", "scene"}

#: Between two lines of code, which are paragraphs.
_NEXT_LINE = re.compile(r"</pre>\s*<pre>")

#: Frames of a slide's notes, and of the slide, that say what every slide says.
_OF_ALL_SLIDES = ("page-number", "date-time", "header", "footer")

#: The sign of a negative number, and the first digit or sign of a currency of a text in HTML.
_SIGN, _DIGIT = re.compile(r"[-\u2212\u2013(]"), re.compile(r"((?:^|>)\s*)([^<>\s])")

#: What says that a row or column is hidden; and the HTML of a cell without text.
_HIDDEN, _BARE = ("collapse", "filter"), re.compile(r"(?:\s|<(?!img)[^<>]*>)*")

#: Most copies of a cell or row with text, most characters that all copies add to a file, and how many each adds itself.
_MOST_COPIES, _MOST_ADDED, _EACH = 20_000, 16_000_000, 50

#: Most columns of a table in a text that stay although they are empty.
_MOST_EMPTY = 100

#: Most blanks in a row that stay.
_MOST_BLANKS = 100

#: A list of one item, as cells of slides have it.
_ONE_ITEM = re.compile(r"^\s*<ul>\s*<li[^<>]*>((?:(?!</?li).)*)</li>\s*</ul>\s*$", re.DOTALL)

#: A length, in a unit, and how many of each make an inch.
_LENGTH, _UNITS = re.compile(r"(-?\d*\.?\d+)(cm|mm|in|pt|px)"), {"cm": 2.54, "mm": 25.4, "pt": 72.0, "px": 96.0}

#: A time of day, or a duration.
_TIME = re.compile(r"(-?)P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:[.,]\d*)?)S)?)?")

#: The language that a formula is written in, and a reference in one.
_LANGUAGE, _REFERENCE = re.compile(r"^(?:[a-z]+:)?=?"), re.compile(r"\[([^\]]*)\]")


def extract_opendocument(archive: Archive) -> Document:
    """Extract a text, a table or slides of OpenDocument.

    Raises
    ------
    OctavoError
        The file is damaged, or its elements are nested too deeply.
    """
    content = archive.xml("content.xml")
    styles = [archive.xml("styles.xml")] if "styles.xml" in archive else []
    return _extract(archive.name, content, styles, lambda path: archive.xml(path) if path in archive else None)


def extract_flat_opendocument(content: bytes, name: str) -> Document:
    """Extract a file of OpenDocument that is one file of XML (FODT, FODS, FODP)."""
    try:
        root = ElementTree.fromstring(content)
    except (ElementTree.ParseError, ValueError, LookupError) as problem:
        raise OctavoError(f"{name} is damaged: download or save it again.") from problem
    return _extract(name, root, [], lambda path: None)


def _extract(name: str, content: Element, styles: list[Element], part: Callable[[str], Element | None]) -> Document:
    left_out = LeftOut()
    try:
        written = _OpenDocument([*styles, content], part, left_out).html(content)
    except RecursionError as problem:
        raise too_deep(name) from problem
    written = _NEXT_LINE.sub("\n", written)
    text, _ = to_markdown(parse(written, name), is_site=False)
    return document_of(with_letterheads(text) if SEPARATOR in text else text, notices=left_out.notices(name))


@dataclass
class _Grid:
    """The cells of a table as HTML, by row and column, the merged ones, and the hidden rows and columns."""

    rows: dict[int, Row] = field(default_factory=dict)
    merged: list[Merged] = field(default_factory=list)
    hidden: list[int] = field(default_factory=list)
    columns: set[int] = field(default_factory=set)
    styles: list[tuple[int, str]] = field(default_factory=list)  # of the cells of columns, up to a column each
    n_rows: int = 0
    n_columns: int = 0


class _OpenDocument:
    """A file: what its styles say, and how far its lists are numbered."""

    def __init__(self, trees: list[Element], part: Callable[[str], Element | None], left_out: LeftOut) -> None:
        self.part, self.left_out = part, left_out
        self.styles = Styles(trees)
        self.n_slides = 0
        self.opened: set[str] = set()
        self.room = _MOST_ADDED
        self.counts: dict[str, dict[int, int]] = {"": {}}  # of lists, by their names and styles
        self.is_head = self.is_slide = False
        self.charts: list[str] | None = None  # of the open table
        self.grid = _Grid()  # of the open table

    def html(self, content: Element) -> str:
        body = _body(content)
        if not any(element_name(node) == "text" for node in body):
            return self._html(body)
        head, foot = self._head("header"), self._head("footer")
        return f"{head}<p>{SEPARATOR}</p>{self._html(body)}<p>{SEPARATOR}</p>{foot}"

    def _head(self, kind: str) -> str:
        """Return the heads or feet of pages of the kinds that are used, and of those that follow them."""
        self.is_head = True
        pages, first = self.styles.master_pages, self.styles.pages
        used = first | {attribute(page, "next-style-name") for page in pages if attribute(page, "name") in first}
        heads = (
            node
            for page in pages
            if attribute(page, "name") in used
            for node in page
            if element_name(node).startswith(kind) and attribute(node, "display") != "false"
        )
        written = "".join(self._inner(node) for node in heads)
        self.is_head = False
        return written

    def _inner(self, node: Element, style: str = "", depth: int = 0, is_sheet: bool = False) -> str:
        return inner_html(node, lambda child: self._html(child, style, depth, is_sheet))

    def _html(self, node: Element, style: str = "", depth: int = 0, is_sheet: bool = False) -> str:
        """Return an element as HTML: in lists of a style and a depth. A table right in a spreadsheet is a sheet."""
        name = element_name(node)
        if self._is_hidden(node, name):
            self.left_out["hidden passage"] += 1
            return ""
        if name in _SHAPES and self._is_hidden_shape(node):
            self.left_out["hidden shape"] += 1
            return ""
        if name in _SILENT:
            self.left_out["remark"] += name == "annotation"
            self.left_out["deleted passage"] += sum(element_name(each) == "deletion" for each in node.iter())
            return ""
        if name in ("s", "tab", "line-break"):
            blank = "\t" if name == "tab" else " " * min(whole(node, "c"), _MOST_BLANKS)
            return "<br>" if name == "line-break" else blank
        if name in ("page-number", "page-count", "chapter") and (self.is_head or self.is_slide):
            return PAGE if self.is_head else ""
        if name in ("p", "h", "span"):
            return self._paragraph(node, name, style, depth)
        if name == "list":
            return self._list(node, style, depth + 1)
        if name == "frame":
            return self._frame(node, style, depth)
        if name == "page":
            return self._slide(node)
        if name == "table":
            return self._table(node, is_sheet)
        if name == "table-row":
            self._row(node)
            return ""
        if name == "table-column":
            self._column(node)
            return ""
        if name == "shapes" and self.charts is not None:
            self.charts.append(self._inner(node))
            return ""
        inner = self._inner(node, style, depth, name == "spreadsheet")
        if name == "note-citation":
            return f"[{inner}]"
        if name == "note-body":
            return f" ({re.sub('<[^<>]*>', ' ', inner).strip()})"
        tag = _TAGS.get(name)
        return f"<{tag}>{inner}</{tag}>" if tag else inner

    def _is_hidden(self, node: Element, name: str) -> bool:
        """Return whether a page does not show a text: hidden as such, or by its style, or by a field in it."""
        if name in ("section", "hidden-text", "hidden-paragraph"):
            return attribute(node, "display") == "none" or attribute(node, "is-hidden") == "true"
        if name not in ("p", "h", "span") or not "".join(node.itertext()).strip():
            return False
        if any(element_name(each) == "hidden-paragraph" and attribute(each, "is-hidden") == "true" for each in node):
            return True
        family, own = "text" if name == "span" else "paragraph", attribute(node, "style-name")
        properties = (each for style in self.styles.chain(family, own) for each in style)
        return any(element_name(e) == "text-properties" and attribute(e, "display") == "none" for e in properties)

    def _is_hidden_shape(self, node: Element) -> bool:
        """Return whether a frame or another shape is hidden, by itself or with its layer."""
        return attribute(node, "display") == "none" or attribute(node, "layer") in self.styles.hidden_layers

    def _paragraph(self, node: Element, name: str, style: str, depth: int) -> str:
        inner, own = self._inner(node, style, depth), attribute(node, "style-name")
        if name == "span":
            script = self.styles.script(own)
            inner = f"<{script}>{inner}</{script}>" if script else inner
        if self.styles.is_struck("text" if name == "span" else "paragraph", own):
            inner = f"<del>{inner}</del>"
        if name == "span":
            return inner
        inner = inner.replace("</sup><sup>", "").replace("</sub><sub>", "").replace("</del><del>", "")
        if self.is_head:
            return f"<p>{without_page_numbers(inner)}</p>"
        if name == "h":
            level = whole(node, "outline-level")
            if attribute(node, "is-list-header") != "true" and not style and inner.strip():
                inner = f"{self.styles.number('', level, self.counts['']) or ''} {inner}"
            return f"<h{min(level, 6)}>{inner}</h{min(level, 6)}>"
        if self.styles.is_named(own, "Title"):
            return f"<h1>{inner}</h1>"
        return f"<pre>{inner}</pre>" if inner.strip() and self.styles.is_code(node) else f"<p>{inner}</p>"

    def _list(self, node: Element, style: str, depth: int) -> str:
        """Return a list with the numbers of its items. A heading may be an item, for its number."""
        paragraph = next((each for each in node.iter() if element_name(each) in ("p", "h")), None)
        named = attribute(node, "style-name") or style
        style = named or (self.styles.list_of(attribute(paragraph, "style-name")) if paragraph is not None else "")
        if depth == 1:
            self._begin_list(node, style)
        written, counts = "", self.counts.setdefault(style, {})
        for item in node:
            first = next(iter(item), None)
            kind = "" if first is None else element_name(first)
            label: str | None = ""
            if element_name(item) == "list-item" and kind != "list":
                start = attribute(item, "start-value")
                label = self.styles.number(style, depth, counts, int(start) if start.isdigit() else None)
            inner = self._inner(item, style, depth)
            if first is not None and any(element_name(each) == "h" for each in item.iter()):
                mark = f"{label} " if label and kind == "h" else ""
                written += inner.replace(">", f">{escape(mark)}", 1)
            elif inner.strip():
                mark = "-" if label is None else escape(label)
                written += f'<li octavo-label="{mark}">{inner}</li>'
        return f"<ul>{written}</ul>" if "<li" in written else written

    def _begin_list(self, node: Element, style: str) -> None:
        """Continue the numbers of an earlier list, if this one does so, or begin anew."""
        before = attribute(node, "continue-list")
        if before and before in self.counts:
            self.counts[style] = self.counts[before]
        elif attribute(node, "continue-numbering") != "true" or style not in self.counts:
            self.counts[style] = {}
        if name := attribute(node, "id"):
            self.counts[name] = self.counts[style]

    def _frame(self, node: Element, style: str, depth: int) -> str:
        """Return the first that can be read of a frame, as the others are its pictures; a formula stays in its line."""
        for child in node:
            name = element_name(child)
            if name == "object":
                return self._object(child)
            if name not in ("image", "title", "desc", "plugin", "object-ole", ""):
                return f"<div>{self._html(child, style, depth)}</div>"
        names = {element_name(child) for child in node}
        kind = "embedded object" if names & {"object-ole", "plugin"} else "picture"
        self.left_out[kind] += kind != "picture" or "image" in names
        about = next((words(each) for each in node if element_name(each) in ("desc", "title") and words(each)), "")
        return f'<img alt="{escape(about)}">' if about else ""

    def _object(self, node: Element) -> str:
        """Return a chart as a table of its numbers, after the table around it, and a formula in a line."""
        path = posixpath.normpath(posixpath.join(attribute(node, "href"), "content.xml"))
        root = next(iter(node), None)
        if root is None:
            root = None if path in self.opened else self.part(path)
            self.opened.add(path)
        if root is None:
            return ""
        if element_name(root) == "math":
            return escape(formula(root))
        charts, self.charts = self.charts, None
        written = self._html(_body(root))
        self.charts = charts
        if charts is None:
            return written
        charts.append(written)
        return ""

    def _table(self, node: Element, is_sheet: bool) -> str:
        own = attribute(node, "style-name")
        if self.styles.value("table", own, "display") == "false" or attribute(node, "display") == "false":
            self.left_out["hidden sheet" if is_sheet else "hidden passage"] += 1
            return ""
        outer, charts = self.grid, self.charts
        grid = self.grid = _Grid()
        self.charts = [] if charts is None else charts
        rest, name = self._inner(node), attribute(node, "name")
        of_table = "".join(self.charts) if charts is None else ""
        self.grid, self.charts = outer, charts
        lays_out = not is_sheet and any("<table" in text for row in grid.rows.values() for text in row.values())
        merged = [] if lays_out else grid.merged  # a page repeats none of its parts
        cells = shown_cells(name, grid.rows, merged, grid.hidden, grid.columns, self.left_out)
        n_columns = min(grid.n_columns - len(grid.columns), _MOST_EMPTY)
        width = 2 if is_sheet else max([n_columns, *map(len, cells)])  # one column alone is taken for a page
        rows = "".join(
            f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}{'<td></td>' * (width - len(row))}</tr>" for row in cells
        )
        title = f"<h2>{escape(name)}</h2>" if is_sheet and (rows or of_table) else ""
        return f"{title}<table>{rest}{rows}</table>{of_table}"

    def _column(self, node: Element) -> None:
        grid, number = self.grid, whole(node, "number-columns-repeated")
        if attribute(node, "visibility") in _HIDDEN:
            grid.columns |= {*range(grid.n_columns, grid.n_columns + min(number, _MOST_COPIES))}
        grid.n_columns += number
        grid.styles.append((grid.n_columns, attribute(node, "default-cell-style-name")))

    def _row(self, node: Element) -> None:
        """Put the cells of a row into the grid. Of the hidden ones, those that are merged may be shown elsewhere."""
        grid, number = self.grid, whole(node, "number-rows-repeated")
        is_hidden, row, column = attribute(node, "visibility") in _HIDDEN, dict[int, str](), 0
        of_row = attribute(node, "default-cell-style-name")
        for cell in node:
            n_columns = whole(cell, "number-columns-repeated")
            if element_name(cell) == "table-cell":
                across, down = (whole(cell, f"number-{kind}-spanned") for kind in ("columns", "rows"))
                is_visible = not (is_hidden or column in grid.columns)
                if is_visible or across * down > 1:
                    of_column = next((style for stop, style in grid.styles if column < stop), "")
                    text = self._cell(cell, of_row or of_column)
                else:
                    text = escape(words(cell) or _value(cell))
                if text:
                    row |= dict.fromkeys(range(column, column + self._copies([text], n_columns)), text)
                if text and across * down > 1:
                    grid.merged.append((grid.n_rows, grid.n_rows + down - 1, column, column + across - 1))
            column += n_columns
        n_copies = 0 if not row else min(number, _MOST_COPIES) if is_hidden else self._copies(row.values(), number)
        for place in range(grid.n_rows, grid.n_rows + n_copies):
            grid.rows[place] = dict(row)
        grid.hidden += range(grid.n_rows, grid.n_rows + min(number, _MOST_COPIES)) if is_hidden else ()
        grid.n_rows += number

    def _cell(self, node: Element, default_style: str) -> str:
        """Return a cell as HTML; nothing if it has neither text nor the description of a picture."""
        inner, style = self._inner(node), attribute(node, "style-name") or default_style
        inner = _ONE_ITEM.sub(r"\1", inner)
        text = ("" if _BARE.fullmatch(inner) else inner) if inner else escape(_value(node))
        if self.styles.is_coloured(style) and attribute(node, "value").startswith("-") and not _SIGN.search(text):
            text = _DIGIT.sub(r"\1-\2", text, count=1)
        return f"<del>{text}</del>" if text and self.styles.is_struck("table-cell", style) else text

    def _copies(self, cells: Collection[str], number: int) -> int:
        """Return how often cells are repeated, if there is room for that."""
        self.room -= sum(len(text) + _EACH for text in cells) * (number - 1)
        if self.room < 0 or number > _MOST_COPIES:
            raise OctavoError(f"A table repeats a cell or row {number:,} times: delete the copies.")
        return number

    def _slide(self, node: Element) -> str:
        """Return a slide under its title, or its name, with its notes."""
        self.n_slides += 1
        if self.styles.value("drawing-page", attribute(node, "style-name"), "visibility") == "hidden":
            self.left_out["hidden slide"] += 1
            return ""
        titles = (each for each in node if attribute(each, "class") == "title" and not self._is_hidden_shape(each))
        title = next(filter(words, titles), None)
        about = attribute(node, "name") if title is None else words(title)
        self.is_slide = True
        shapes = [each for each in node if each is not title and element_name(each) != "notes"]
        parts = [self._html(each) for each in in_reading_order(shapes, _box) if not _is_of_all_slides(each)]
        frames = (each for notes in node if element_name(notes) == "notes" for each in notes)
        notes = "".join(self._html(each) for each in frames if not _is_of_all_slides(each))
        self.is_slide = False
        parts += [f"<p>Notes:</p>{notes}"] if re.search(r">[^<>]*[^<>\s]", notes) else []
        return f"<h2>Slide {self.n_slides}: {escape(about)}</h2>{''.join(parts)}"


def _body(root: Element) -> Element:
    return next((node for node in root.iter() if element_name(node) == "body"), root)


def _is_of_all_slides(node: Element) -> bool:
    return attribute(node, "class") in _OF_ALL_SLIDES


def _box(node: Element) -> tuple[float, float, float, float] | None:
    """Return where a shape is, in inches: left, top, width and height; None if it does not say."""
    found = [_LENGTH.fullmatch(attribute(node, name)) for name in ("x", "y", "width", "height")]
    lengths = [float(each[1]) / _UNITS.get(each[2], 1.0) for each in found if each]
    return (lengths[0], lengths[1], lengths[2], lengths[3]) if len(lengths) == 4 else None


def _value(cell: Element) -> str:
    """Return the value of a cell without text, as LibreOffice shows it; its formula where it has no value."""
    kind, value, code = (attribute(cell, name) for name in ("value-type", "value", "formula"))
    is_number = re.fullmatch(r"-?\d*\.?\d+(E[-+]?\d+)?", value) is not None
    if code and is_number and not float(value):
        return _formula(code)  # programs that calculate write the text, too
    if kind in ("float", "percentage", "currency") and is_number:
        number = f"{float(value) * (100 if kind == 'percentage' else 1):.15g}"
        sign = {"percentage": "%", "currency": f" {attribute(cell, 'currency')}"}.get(kind, "")
        return f"{number}{sign}".strip()
    if kind == "time" and (found := _TIME.fullmatch(attribute(cell, "time-value"))):
        days, hours, minutes, rest = (float((part or "0").replace(",", ".")) for part in found.groups()[1:])
        whole_minutes, seconds = divmod(((days * 24 + hours) * 60 + minutes) * 60 + rest, 60)
        shown = f"{found[1]}{whole_minutes // 60:02.0f}:{whole_minutes % 60:02.0f}"
        return f"{shown}:{seconds:02.0f}" if seconds else shown
    if kind == "date" and (date := attribute(cell, "date-value")):
        return date.removesuffix("T00:00:00").replace("T", " ")
    if kind in ("boolean", "string"):
        return attribute(cell, "boolean-value").upper() or attribute(cell, "string-value")
    return code and _formula(code)


def _formula(code: str) -> str:
    """Return a formula as LibreOffice shows it."""
    return "=" + _REFERENCE.sub(_place, _LANGUAGE.sub("", code))


def _place(reference: re.Match[str]) -> str:
    """Return a reference of a formula as LibreOffice shows it: a point only parts a sheet from a cell."""
    return ":".join(place.removeprefix(".") for place in reference[1].split(":"))
