"""Extract DOCX of Word and LibreOffice: headings by style, numbers and lists, tables and notes."""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ElementTree
import zipfile

from ..archive import Archive
from ..document import Document
from ..html.formulas import formula
from ..html.html import parse, to_markdown
from ..markdown import document_of
from .docx_drawings import place_drawings
from .docx_hidden import hidden_runs
from .docx_numbering import number_paragraphs, place_labels

#: Parts of a file; newer versions of Word number the first.
_MAIN = re.compile(r"word/document\d*\.xml")
_STYLES_PART, _NUMBERING = "word/styles.xml", "word/numbering.xml"

#: Names of the elements of text, and of formulas, which mammoth does not know.
_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_MATH = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"

#: Elements of text, and of fields, such as the number of a page.
_TEXTS = {f"{_WORD}t", f"{_WORD}tab", f"{_WORD}br"}
_FIELDS = {f"{_WORD}fldSimple", f"{_WORD}fldChar", f"{_WORD}instrText"}

_NOTES = ("word/footnotes.xml", "word/endnotes.xml")

#: Elements that only hold text, such as the values of fields, and those that are blanks by another name.
_WRAPPERS, _BLANKS = {"fldSimple", "bdo", "dir"}, {"cr": "br", "br": "br", "ptab": "tab"}

#: The beginning of names of elements in a file that is strict about the standard.
_STRICT = re.compile(rb"http://purl\.oclc\.org/ooxml/(\w+)/")

#: Styles that mammoth does not know.
_STYLES = """
p[style-name='Title'] => h1:fresh
p[style-name='Subtitle'] => p:fresh
p[style-name='Quote'] => blockquote > p:fresh
p[style-name='Intense Quote'] => blockquote > p:fresh
"""


def extract_docx(archive: Archive) -> Document:
    """Extract a Word document.

    Raises
    ------
    OctavoError
        The document is damaged.
    """
    import mammoth

    main = next(part for part in archive.names if _MAIN.fullmatch(part))
    for part in (main, _STYLES_PART, _NUMBERING, *_NOTES):
        if part in archive:
            archive.read(part)  # refuses damaged or encrypted parts
    try:
        html = mammoth.convert_to_html(
            io.BytesIO(_simplified(archive, main)),
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


def _simplified(archive: Archive, main: str) -> bytes:
    """Return a file with its formulas, drawings and numbers of paragraphs written as text, without hidden text."""
    root = _tree(archive, main)
    styles = _tree(archive, _STYLES_PART) if _STYLES_PART in archive else ElementTree.Element("none")
    links = f"word/_rels/{main.removeprefix('word/')}.rels"
    relations = _tree(archive, links) if links in archive else None
    place_drawings(root, relations, lambda path: _tree(archive, path) if path in archive else None)
    parts = {main: root} | {name: _tree(archive, name) for name in _NOTES if name in archive}
    for part in parts.values():
        _simplify(part, styles)
    if _NUMBERING in archive:
        number_paragraphs(root, _tree(archive, _NUMBERING), styles)
        parts[_NUMBERING] = ElementTree.Element(f"{_WORD}numbering")  # numbers are text now
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive.content)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            if name.endswith((".xml", ".rels")):  # skip pictures
                new.writestr(name, ElementTree.tostring(parts[name]) if name in parts else archive.read(name))
    return out.getvalue()


def _simplify(root: ElementTree.Element, styles: ElementTree.Element) -> None:
    """Write what mammoth does not know as what it knows, and take hidden text out."""
    hidden = hidden_runs(root, styles)
    for parent in reversed(list(root.iter())):
        for number, child in reversed(list(enumerate(parent))):
            name = child.tag.removeprefix(_WORD)
            if child in hidden:
                parent[number] = ElementTree.Element(f"{_WORD}r")
            elif name in _WRAPPERS:
                parent[number : number + 1] = list(child)
            elif name in _BLANKS:
                child.tag, child.attrib = f"{_WORD}{_BLANKS[name]}", {}
            elif name == "ruby":
                base, reading = (_text(child, part) for part in ("rubyBase", "rt"))
                parent[number] = _with_text("t", f"{base}({reading})" if reading else base)
            elif child.tag == f"{_MATH}oMathPara":  # its formulas have been written
                parent[number : number + 1] = child.findall(f"{_WORD}r")
            elif child.tag == f"{_MATH}oMath":
                follows = number > 0 and parent[number - 1].tag.startswith(_MATH)
                parent[number] = ElementTree.Element(f"{_WORD}r")
                parent[number].append(_with_text("t", " " * follows + formula(child)))


def _text(element: ElementTree.Element, part: str) -> str:
    found = element.find(f"{_WORD}{part}")
    return "" if found is None else "".join(node.text or "" for node in found.iter(f"{_WORD}t"))


def _with_text(name: str, text: str) -> ElementTree.Element:
    element = ElementTree.Element(f"{_WORD}{name}")
    element.text = text
    return element


def _tree(archive: Archive, path: str) -> ElementTree.Element:
    """Parse a part of a file, with the names that Word gives to elements."""
    return archive.parse(_STRICT.sub(rb"http://schemas.openxmlformats.org/\1/2006/", archive.read(path)))
