"""Read DOCX of Word and LibreOffice: headings by style, lists, tables and notes."""

from __future__ import annotations

import io
import xml.etree.ElementTree as ElementTree
import zipfile

from .archive import Archive
from .document import Document
from .html import parse, to_markdown
from .markdown import document_of

_DOCUMENT = "word/document.xml"

#: Names of the elements of text, and of formulas, which mammoth does not know.
_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_MATH = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"

#: Styles that mammoth does not know.
_STYLES = """
p[style-name='Title'] => h1:fresh
p[style-name='Subtitle'] => p:fresh
p[style-name='Quote'] => blockquote > p:fresh
p[style-name='Intense Quote'] => blockquote > p:fresh
"""


def read_docx(archive: Archive, content: bytes) -> Document:
    """Read a Word document.

    Raises
    ------
    OctavoError
        The document is damaged.
    """
    import mammoth

    for part in (_DOCUMENT, "word/styles.xml", "word/numbering.xml", "word/footnotes.xml"):
        if part in archive:
            archive.read(part)  # refuses damaged or encrypted parts
    if b":oMath" in archive.read(_DOCUMENT):
        content = _with_formulas(archive, content)
    try:
        html = mammoth.convert_to_html(
            io.BytesIO(content), style_map=_STYLES, convert_image=mammoth.images.img_element(lambda image: {"src": ""})
        ).value
    except MemoryError:
        raise
    except Exception as problem:  # mammoth trusts its input: it may raise anything
        raise archive.damaged() from problem
    text, pages = to_markdown(parse(html, archive.name))
    return document_of(text, pages)


def _with_formulas(archive: Archive, content: bytes) -> bytes:
    """Return a file with its formulas written as text."""
    try:
        root = ElementTree.fromstring(archive.read(_DOCUMENT))
    except (ElementTree.ParseError, ValueError, LookupError) as problem:
        raise archive.damaged() from problem
    for parent in list(root.iter()):
        for number, child in enumerate(parent):
            if child.tag in (f"{_MATH}oMath", f"{_MATH}oMathPara"):
                run = ElementTree.Element(f"{_WORD}r")
                ElementTree.SubElement(run, f"{_WORD}t").text = f"${_formula(child)}$"
                parent[number] = run
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            if name.endswith((".xml", ".rels")):  # skip pictures
                new.writestr(name, ElementTree.tostring(root) if name == _DOCUMENT else archive.read(name))
    return out.getvalue()


def _formula(element: ElementTree.Element) -> str:
    """Return a formula, or a part of it, in one line."""
    kind = element.tag.removeprefix(_MATH)
    if kind == "t":
        return element.text or ""
    parts = {child.tag.removeprefix(_MATH): _formula(child) for child in element}
    if kind == "f":
        return f"({parts.get('num', '')})/({parts.get('den', '')})"
    if kind == "rad":
        return f"√({parts.get('e', '')})"
    if kind in ("sSup", "sSub", "sSubSup", "nary"):
        sign = element.find(f"{_MATH}naryPr/{_MATH}chr")
        before = parts.get("e", "") if kind != "nary" else "∫" if sign is None else sign.get(f"{_MATH}val", "")
        marks = (f"{mark}{{{parts[part]}}}" for part, mark in (("sub", "_"), ("sup", "^")) if parts.get(part))
        return before + "".join(marks) + (f" {parts.get('e', '')}" if kind == "nary" else "")
    return "".join(_formula(child) for child in element)
