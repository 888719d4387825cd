"""Extract files of office programs that are one file of XML: of Word and Excel 2003, flat DOCX, notes of Evernote."""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ElementTree
import zipfile
from html import escape
from xml.etree.ElementTree import Element

from ...errors import OctavoError
from ..archive import Archive
from ..document import Document
from ..html.html import parse, to_markdown
from ..left_out import LeftOut
from ..markdown import document_of
from ..xml_text import attribute, element_name, words
from .docx import extract_docx
from .sheets import text_of_sheet

_WORD_2003 = b"http://schemas.microsoft.com/office/word/2003/wordml"
_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"

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
        for parent in reversed(list(root.iter())):  # inner ones first
            for number, child in reversed(list(enumerate(parent))):
                if element_name(child) in _HOLDERS:
                    parent[number : number + 1] = list(child)
        root.tag = f"{{{_WORD}}}document"
        files["word/document.xml"] = root
        styles = root.find(f"{{{_WORD}}}styles")
        files |= {} if styles is None else {"word/styles.xml": styles}
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for path, part in files.items():
            archive.writestr(path, ElementTree.tostring(part))
    return extract_docx(Archive(packed.getvalue(), name))


def extract_sheets_xml(content: bytes, name: str) -> Document:
    """Extract the sheets of an Excel 2003 file of XML."""
    left_out = LeftOut()
    sheets = (node for node in _parsed(content, name) if element_name(node) == "Worksheet")
    written = [_sheet(sheet, left_out) for sheet in sheets]
    return document_of("\n".join(filter(None, written)), notices=left_out.notices(name))


def _sheet(sheet: Element, left_out: LeftOut) -> str:
    if any(element_name(node) == "Visible" and words(node) != "SheetVisible" for node in sheet.iter()):
        left_out["hidden sheet"] += 1
        return ""
    rows: dict[int, dict[int, str]] = {}
    merged: list[tuple[int, int, int, int]] = []
    number = -1
    for row in (node for node in sheet.iter() if element_name(node) == "Row"):
        number = _place(row, number)
        if attribute(row, "Hidden") == "1":
            left_out["hidden row"] += 1
            continue
        column, rows[number] = -1, {}
        for cell in (node for node in row if element_name(node) == "Cell"):
            column = _place(cell, column)
            data = next((node for node in cell if element_name(node) == "Data"), None)
            rows[number][column] = "" if data is None else "".join(data.itertext())
            across, down = (_whole(attribute(cell, f"Merge{way}")) for way in ("Across", "Down"))
            if across or down:
                merged.append((number, number + down, column, column + across))
            column += across
    return text_of_sheet(attribute(sheet, "Name"), rows, merged)


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
