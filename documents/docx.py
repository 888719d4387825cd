"""Read DOCX of Word and LibreOffice: headings by style, numbers and lists, tables and notes."""

from __future__ import annotations

import io
import xml.etree.ElementTree as ElementTree
import zipfile

from .archive import Archive
from .document import Document
from .docx_numbering import number_paragraphs, place_labels
from .html import parse, to_markdown
from .markdown import document_of

_DOCUMENT, _STYLES_PART, _NUMBERING = "word/document.xml", "word/styles.xml", "word/numbering.xml"

#: Names of the elements of text, and of formulas, which mammoth does not know.
_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_MATH = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"

#: Elements of text, and of fields, such as the number of a page.
_TEXTS = {f"{_WORD}t", f"{_WORD}tab", f"{_WORD}br"}
_FIELDS = {f"{_WORD}fldSimple", f"{_WORD}fldChar", f"{_WORD}instrText"}

#: Styles that mammoth does not know.
_STYLES = """
p[style-name='Title'] => h1:fresh
p[style-name='Subtitle'] => p:fresh
p[style-name='Quote'] => blockquote > p:fresh
p[style-name='Intense Quote'] => blockquote > p:fresh
"""


def read_docx(archive: Archive) -> Document:
    """Read a Word document.

    Raises
    ------
    OctavoError
        The document is damaged.
    """
    import mammoth

    for part in (_DOCUMENT, _STYLES_PART, _NUMBERING, "word/footnotes.xml"):
        if part in archive:
            archive.read(part)  # refuses damaged or encrypted parts
    try:
        html = mammoth.convert_to_html(
            io.BytesIO(_simplified(archive)),
            style_map=_STYLES,
            convert_image=mammoth.images.img_element(lambda image: {"src": ""}),
        ).value
    except MemoryError:
        raise
    except Exception as problem:  # mammoth trusts its input: it may raise anything
        raise archive.damaged() from problem
    text, pages = to_markdown(parse(html, archive.name), is_site=False)
    head, foot = (_repeated(archive, name, text) for name in ("header", "footer"))
    head += "\n" if head else ""
    text = head + place_labels(text) + ("\n" + foot if foot else "")
    return document_of(text, [(len(head) + offset, label) for offset, label in pages])


def _repeated(archive: Archive, name: str, text: str) -> str:
    """Return what stands on the top or the bottom of all pages, once: letterheads, but not numbers and titles."""
    lines: dict[str, None] = {}
    for part in archive.names:
        if part.startswith(f"word/{name}") and part.endswith(".xml"):
            for paragraph in _tree(archive, part).iter(f"{_WORD}p"):
                if not any(node.tag in _FIELDS for node in paragraph.iter()):
                    lines["".join(node.text or " " for node in paragraph.iter() if node.tag in _TEXTS).strip()] = None
    return "\n".join(f"{line}\n" for line in lines if line and line not in text)


def _simplified(archive: Archive) -> bytes:
    """Return a file with its formulas and the numbers of its paragraphs written as text, without hidden text."""
    root = _tree(archive, _DOCUMENT)
    for parent in list(root.iter()):
        for number, child in enumerate(parent):
            if child.tag in (f"{_MATH}oMath", f"{_MATH}oMathPara"):
                run = ElementTree.Element(f"{_WORD}r")
                ElementTree.SubElement(run, f"{_WORD}t").text = f"${_formula(child)}$"
                parent[number] = run
            elif child.tag == f"{_WORD}r" and _is_hidden(child):
                parent[number] = ElementTree.Element(f"{_WORD}r")
    parts = {_DOCUMENT: root}
    if _NUMBERING in archive:
        styles = _tree(archive, _STYLES_PART) if _STYLES_PART in archive else ElementTree.Element("none")
        number_paragraphs(root, _tree(archive, _NUMBERING), styles)
        parts[_NUMBERING] = ElementTree.Element(f"{_WORD}numbering")  # numbers are text now
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive.content)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            if name.endswith((".xml", ".rels")):  # skip pictures
                new.writestr(name, ElementTree.tostring(parts[name]) if name in parts else archive.read(name))
    return out.getvalue()


def _tree(archive: Archive, path: str) -> ElementTree.Element:
    """Parse a part of a file."""
    try:
        return ElementTree.fromstring(archive.read(path))
    except (ElementTree.ParseError, ValueError, LookupError) as problem:
        raise archive.damaged() from problem


def _is_hidden(run: ElementTree.Element) -> bool:
    """Return whether a run of text is hidden."""
    mark = run.find(f"{_WORD}rPr/{_WORD}vanish")
    return mark is not None and mark.get(f"{_WORD}val", "1") not in ("0", "false", "off")


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
