"""Extract files of office programs that are one file of XML: of Word and Excel 2003, flat DOCX, notes of Evernote."""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ElementTree
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from html import escape
from xml.etree.ElementTree import Element

from ...errors import OctavoError
from ..archive import Archive
from ..document import Document
from ..html.html import parse, to_markdown
from ..left_out import LeftOut
from ..markdown import document_of
from ..scripts import Run, struck, with_marks
from ..xml_text import attribute, element_name, words
from .docx import extract_docx
from .number_formats import shown_value
from .sheets import Merged, shown_cells, text_of_sheet

_WORD_2003 = b"http://schemas.microsoft.com/office/word/2003/wordml"
_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_W, _LINKS = f"{{{_WORD}}}", "http://schemas.openxmlformats.org/package/2006/relationships"
_RELATION = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"

#: Formats of numbers that Excel 2003 calls by a name.
_FORMATS = {"Fixed": "0.00", "Standard": "#,##0.00", "Percent": "0.00%", "Currency": "$#,##0.00"}
_FORMATS |= {"Euro Currency": "[$€] #,##0.00", "Scientific": "0.00E+00", "General Number": "General"}
_FORMATS |= {"Short Date": "d.m.yy", "Short Time": "h:mm"}

#: The attribute of a font that strikes text out.
_STRUCK = "StrikeThrough"

#: A format of durations, and the time from which they count.
_DURATION, _BEGINNING = re.compile(r"\[[hms]", re.IGNORECASE), datetime(1899, 12, 31)

#: Elements of Word 2003 that only hold paragraphs, and the declaration that notes of Evernote have within.
_HOLDERS, _DECLARATIONS = {"sect", "sub-section"}, re.compile(r"<\?xml[^>]*>|<!DOCTYPE[^>]*>")


def extract_word_xml(content: bytes, name: str) -> Document:
    """Extract a Word document of one file: of Word 2003, or a DOCX whose parts are in one file of XML."""
    root = _parsed(content.replace(_WORD_2003, _WORD.encode()), name)
    files: dict[str, Element] = {}
    if element_name(root) == "package":
        for part in root:
            data = next((node for node in part if element_name(node) == "xmlData"), None)
            if data is not None and len(data):
                files[attribute(part, "name").removeprefix("/")] = data[0]
    else:
        files = _parts_of_word_2003(root)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for path, part in files.items():
            archive.writestr(path, ElementTree.tostring(part))
    return extract_docx(Archive(packed.getvalue(), name))


def _parts_of_word_2003(root: Element) -> dict[str, Element]:
    """Return a document of Word 2003 as the parts of a DOCX: notes and letterheads have parts of their own there."""
    links = Element(f"{{{_LINKS}}}Relationships")
    notes = {kind: Element(f"{_W}{kind}s") for kind in ("footnote", "endnote")}
    files = {"word/document.xml": root, "word/_rels/document.xml.rels": links}
    for parent in reversed(list(root.iter())):  # inner ones first
        for number, child in reversed(list(enumerate(parent))):
            name = child.tag.removeprefix(_W)
            if element_name(child) in _HOLDERS:
                parent[number : number + 1] = list(child)
            elif name in notes and parent.tag == f"{_W}r":
                child.set(f"{_W}id", str(len(notes[name]) + 1))
                notes[name].append(child)
                parent[number] = Element(f"{_W}{name}Reference", {f"{_W}id": str(len(notes[name]))})
            elif name in ("hdr", "ftr"):
                kind = {"hdr": "header", "ftr": "footer"}[name]
                part, page = f"{kind}{len(links) + 1}", {"odd": "default"}.get(attribute(child, "type"))
                ElementTree.SubElement(links, "Relationship", Id=part, Type=kind, Target=f"{part}.xml")
                files[f"word/{part}.xml"] = child
                about = {f"{_W}type": page or attribute(child, "type"), f"{_RELATION}id": part}
                parent[number] = Element(f"{_W}{kind}Reference", about)
            elif name == "listPr" and (label := child.find("{*}t")) is not None:
                own = attribute(label, "val") if any(map(str.isalnum, attribute(label, "val"))) else "-"
                ElementTree.SubElement(ElementTree.SubElement(child, f"{_W}r"), f"{_W}t").text = f"{own} "
        label_run = parent.find(f"{_W}pPr/{_W}listPr/{_W}r")
        if label_run is not None:
            parent.insert(1, label_run)
    root.tag = f"{_W}document"
    styles = root.find(f"{_W}styles")
    files |= {} if styles is None else {"word/styles.xml": styles}
    return files | {f"word/{kind}s.xml": part for kind, part in notes.items() if len(part)}


def extract_sheets_xml(content: bytes, name: str) -> Document:
    """Extract the sheets of an Excel 2003 file of XML."""
    left_out = LeftOut()
    root = _parsed(content, name)
    styles = [(attribute(style, "ID"), each) for style in root.iter() for each in style]
    formats = {name: attribute(each, "Format") for name, each in styles if element_name(each) == "NumberFormat"}
    struck_out = {name for name, each in styles if element_name(each) == "Font" and attribute(each, _STRUCK) == "1"}
    written = [_sheet(sheet, formats, struck_out, left_out) for sheet in root if element_name(sheet) == "Worksheet"]
    return document_of("\n".join(filter(None, written)), notices=left_out.notices(name))


def _sheet(sheet: Element, formats: dict[str, str], struck_out: set[str], left_out: LeftOut) -> str:
    if any(element_name(node) == "Visible" and words(node) != "SheetVisible" for node in sheet.iter()):
        left_out["hidden sheet"] += 1
        return ""
    from openpyxl.utils import get_column_letter

    rows: dict[int, dict[int, str]] = {}
    merged: list[Merged] = []
    hidden: list[int] = []
    columns: set[int] = set()
    notes: list[str] = []
    number = column = -1
    for node in (node for node in sheet.iter() if element_name(node) == "Column"):
        first = _place(node, column)
        column = first + _whole(attribute(node, "Span"))
        columns |= {*range(first, column + 1)} if attribute(node, "Hidden") == "1" else set()
    for row in (node for node in sheet.iter() if element_name(node) == "Row"):
        number = _place(row, number)
        hidden += [number] if attribute(row, "Hidden") == "1" else []
        column, rows[number] = -1, {}
        for cell in (node for node in row if element_name(node) == "Cell"):
            column = _place(cell, column)
            of = {element_name(node): node for node in cell}
            style = attribute(cell, "StyleID")
            is_text = "Data" in of and attribute(of["Data"], "Type") == "String"
            value = _value(of["Data"], formats.get(style, "")) if "Data" in of else ""
            value = value if value or is_text else attribute(cell, "Formula")
            rows[number][column] = struck(value) if style in struck_out else value
            if "Comment" in of and number not in hidden:
                notes.append(f"\n[Remark on {get_column_letter(column + 1)}{number + 1}: {words(of['Comment'])}]\n")
            across, down = (_whole(attribute(cell, f"Merge{way}")) for way in ("Across", "Down"))
            if across or down:
                merged.append((number, number + down, column, column + across))
            column += across
        number += _whole(attribute(row, "Span"))
    name = attribute(sheet, "Name")
    return text_of_sheet(name, shown_cells(name, rows, merged, hidden, columns, left_out), "".join(notes))


def _value(data: Element, named: str) -> str:
    """Return the text that a cell shows, by its value and the name of its format, or the format itself."""
    text, kind, code = with_marks(_runs(data)), attribute(data, "Type"), _FORMATS.get(named, named or "General")
    with suppress(ValueError):
        if kind == "Number":
            return shown_value(float(text), code)
        if kind == "DateTime":
            moment = datetime.fromisoformat(text).replace(tzinfo=None)
            if _DURATION.search(code):
                return shown_value(moment - _BEGINNING, code)
            return shown_value(moment.time() if moment.year < 1900 else moment, code)
        if kind == "Boolean":
            return shown_value(text == "1")
    return shown_value(text, code)


def _runs(node: Element, side: int = 0, is_struck: bool = False) -> Iterator[Run]:
    """Yield the texts of a cell."""
    yield Run(node.text or "", side, is_struck)
    for child in node:
        name = element_name(child)
        yield from _runs(child, {"Sup": 1, "Sub": -1}.get(name, side), is_struck or name == "S")
        yield Run(child.tail or "", side, is_struck)


def _place(node: Element, before: int) -> int:
    """Return the number of a row or cell, from 0: the next one, or the one that it names."""
    return (_whole(attribute(node, "Index")) or before + 2) - 1


def _whole(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 8 else 0


def extract_evernote(content: bytes, name: str) -> Document:
    """Extract exported notes of Evernote (ENEX), each under its title."""
    parts: list[str] = []
    left_out = LeftOut()
    for note in (node for node in _parsed(content, name) if element_name(node) == "note"):
        of = {element_name(node): node.text or "" for node in note}
        about = ", ".join(node.text or "" for node in note if element_name(node) == "tag")
        body = _DECLARATIONS.sub("", of.get("content", ""))
        body = re.sub(r'<en-todo[^>]*checked="true"[^>]*/?>', "[x] ", body)
        body = re.sub(r"<en-todo[^>]*/?>", "[ ] ", body)
        left_out["attachment"] += sum(element_name(node) == "resource" for node in note)
        parts.append(f"<h1>{escape(of.get('title', ''))}</h1><p>{escape(about)}</p>{body}")
    text, _ = to_markdown(parse("".join(parts), name), is_site=False, left_out=left_out)
    return document_of(text, notices=left_out.notices(name))


def _parsed(content: bytes, name: str) -> Element:
    try:
        return ElementTree.fromstring(content)
    except (ElementTree.ParseError, ValueError, LookupError) as problem:
        raise OctavoError(f"{name} is damaged: download or save it again.") from problem
