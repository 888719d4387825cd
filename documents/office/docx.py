"""Extract DOCX of Word and LibreOffice: headings by style, numbers and lists, tables and notes."""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ElementTree

from ..archive import Archive
from ..document import Document
from ..html.formulas import formula
from ..html.html import parse, to_markdown
from ..left_out import LeftOut
from ..markdown import document_of
from ..xml_text import element_name
from .docx_chunks import mark_chunks, place_chunks
from .docx_drawings import place_drawings
from .docx_hidden import hidden_runs
from .docx_letterheads import place_letterheads
from .docx_numbering import number_paragraphs, place_labels
from .docx_styles import STYLE_MAP, Styles, name_styles
from .equation_fields import equation
from .hidden_shapes import remove_hidden_shapes
from .letterheads import with_letterheads
from .package import links_of, office_package

#: Parts of a file; newer versions of Word number the first.
_MAIN = re.compile(r"word/document\d*\.xml")
_STYLES_PART, _NUMBERING, _SETTINGS = "word/styles.xml", "word/numbering.xml", "word/settings.xml"
_TYPES = "[Content_Types].xml"
_HEADS = re.compile(r"word/(?:header|footer)\d*\.xml")

#: Names of the elements of text, and of formulas, which mammoth does not know.
_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_MATH = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_LINK = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"

#: Elements that refer to a note, or to a remark.
_REFERENCES = [f"{_WORD}{kind}Reference" for kind in ("footnote", "endnote", "comment")]

#: Of the properties of text, of paragraphs and of styles those that matter to HTML; and the numbers of revisions.
_KEPT = {
    f"{_WORD}{parent}": {f"{_WORD}{name}" for name in names.split()}
    for parent, names in {
        "rPr": "rStyle b i strike vertAlign ins del",
        "pPr": "pStyle rPr",
        "style": "name",
        "styles": "style",
    }.items()
}
_REVISION = f"{_WORD}rsid"

_NOTES = ("word/footnotes.xml", "word/endnotes.xml")

#: Elements that only hold text, such as the values of fields, and those that are blanks by another name.
_WRAPPERS, _BLANKS = {"fldSimple", "bdo", "dir"}, {"cr": "br", "br": "br", "ptab": "tab"}

#: Styles that mammoth does not know.
_STYLES = f"""{STYLE_MAP}
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
    left_out = LeftOut()
    return document_of(_text_of(archive, left_out), notices=left_out.notices(archive.name))


def _text_of(archive: Archive, left_out: LeftOut) -> str:
    import mammoth

    packed, chunks = _simplified(office_package(archive), left_out)
    try:
        html = mammoth.convert_to_html(
            io.BytesIO(packed),
            style_map=_STYLES,
            convert_image=mammoth.images.img_element(lambda image: {"src": ""}),
        ).value
    except MemoryError:
        raise
    except Exception as problem:  # mammoth trusts its input: it may raise anything
        raise archive.damaged() from problem
    text, _ = to_markdown(parse(html, archive.name), is_site=False)
    return place_chunks(with_letterheads(place_labels(text)), chunks, archive, left_out, _text_of)


def _simplified(archive: Archive, left_out: LeftOut) -> tuple[bytes, list[str]]:
    """Return a file with its formulas, drawings and numbers of paragraphs written as text, without hidden text.

    Returns
    -------
    packed : bytes
        The file.
    chunks : list of str
        The paths of the documents in it, which have marks in its text.
    """
    main = next(part for part in archive.names if _MAIN.fullmatch(part))
    root = archive.xml(main)
    styles = _styles(archive)
    heads = {name: archive.xml(name) for name in archive.names if _HEADS.fullmatch(name)}
    for name, part in {main: root, **heads}.items():
        remove_hidden_shapes(part, left_out)
        place_drawings(part, _targets(archive, name), lambda path: _optional(archive, path))
    targets = _targets(archive, main)
    place_letterheads(root, targets, _optional(archive, _SETTINGS), heads)
    chunks = mark_chunks(root, targets)
    parts = {main: root} | {name: archive.xml(name) for name in _NOTES if name in archive}
    for note in (note for name in _NOTES for note in parts.get(name, ())):
        note.set(f"{_WORD}id", note.get(f"{_WORD}id", ""))  # mammoth wants one
    for part in parts.values():
        _count(part, left_out)
        _simplify(part, styles, left_out)
    named = Styles(styles)
    if _NUMBERING in archive:
        number_paragraphs(list(parts.values()), archive.xml(_NUMBERING), styles, named)
        parts[_NUMBERING] = ElementTree.Element(f"{_WORD}numbering")  # numbers are text now
    notes = {(f"{note.tag}Reference", note.get(f"{_WORD}id")) for name in _NOTES for note in parts.get(name, ())}
    for name, part in parts.items():
        name_styles(part, named)
        _without_loose_ends(part, _targets(archive, name), notes)
    _without_loose_ends(styles, {}, set())
    parts[_STYLES_PART] = styles
    written = archive.with_parts({name: ElementTree.tostring(part) for name, part in parts.items()})
    return written.packed(name for name in archive.names if name in parts or name.endswith((".rels", _TYPES))), chunks


def _styles(archive: Archive) -> ElementTree.Element:
    """Return the styles, each with a kind and a name, which mammoth wants."""
    styles = _optional(archive, _STYLES_PART)
    if styles is None:
        return ElementTree.Element("none")
    for style in styles.findall(f"{_WORD}style"):
        if style.get(f"{_WORD}styleId") is None:
            styles.remove(style)
        elif style.get(f"{_WORD}type") is None:
            style.set(f"{_WORD}type", "paragraph")
    return styles


def _without_loose_ends(root: ElementTree.Element, targets: dict[str, str], notes: set[tuple[str, str | None]]) -> None:
    """Take out what mammoth would parse in vain, and links and references to notes that lead nowhere."""
    for parent in root.iter():
        kept = _KEPT.get(parent.tag)
        for child in list(parent):
            is_lost = child.tag in _REFERENCES and (child.tag, child.get(f"{_WORD}id")) not in notes
            if is_lost or (kept is not None and child.tag not in kept):
                parent.remove(child)
                continue
            for key, name in list(child.attrib.items()):
                if key.startswith(_REVISION) or (key.startswith(_LINK) and name not in targets):
                    del child.attrib[key]


def _count(root: ElementTree.Element, left_out: LeftOut) -> None:
    """Count what mammoth leaves out."""
    for node in root.iter():
        name = element_name(node)
        left_out["picture"] += name in ("blip", "imagedata")
        left_out["embedded object"] += name == "OLEObject"
        left_out["remark"] += node.tag == f"{_WORD}commentReference"
        left_out["deleted passage"] += node.tag == f"{_WORD}del" and node.find(f".//{_WORD}delText") is not None


def _simplify(root: ElementTree.Element, styles: ElementTree.Element, left_out: LeftOut) -> None:
    """Write what mammoth does not know as what it knows, and take hidden text out."""
    hidden = hidden_runs(root, styles)
    for parent in reversed(list(root.iter())):
        for number, child in reversed(list(enumerate(parent))):
            name = child.tag.removeprefix(_WORD)
            if child in hidden:
                left_out["hidden passage"] += number == 0 or parent[number - 1] not in hidden
                parent[number] = ElementTree.Element(f"{_WORD}r")
            elif (choices := child.find(f"{_WORD}fldChar/{_WORD}ffData/{_WORD}ddList")) is not None:
                parent.insert(number, ElementTree.Element(f"{_WORD}r"))
                parent[number].append(_with_text("t", _chosen(choices)))
            elif name == "p":
                _write_equations(child)
            elif name == "pict" and (art := _word_art(child)):
                parent[number] = _with_text("t", art)
            elif name == "tr":
                child[0:0] = [_empty_cell() for _ in range(_skipped(child, "gridBefore"))]
                child.extend(_empty_cell() for _ in range(_skipped(child, "gridAfter")))
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


def _chosen(choices: ElementTree.Element) -> str:
    """Return the choice in a list of a form: the first by default."""
    entries = [str(entry.get(f"{_WORD}val")) for entry in choices.findall(f"{_WORD}listEntry")]
    marks = (choices.find(f"{_WORD}{name}") for name in ("result", "default"))
    chosen = next((str(mark.get(f"{_WORD}val")) for mark in marks if mark is not None), "0")
    return entries[int(chosen)] if chosen.isdigit() and int(chosen) < len(entries) else ""


def _write_equations(paragraph: ElementTree.Element) -> None:
    """Write the formulas of fields, whose code may be in several runs."""
    codes: list[ElementTree.Element] = []
    for node in (*paragraph.iter(), ElementTree.Element(f"{_WORD}fldChar")):
        if node.tag == f"{_WORD}instrText":
            codes.append(node)
        elif node.tag == f"{_WORD}fldChar":
            if (formula := equation("".join(code.text or "" for code in codes))) is not None:
                codes[0].tag, codes[0].text = f"{_WORD}t", formula
            codes = []


def _word_art(drawing: ElementTree.Element) -> str:
    return " ".join(node.get("string", "") for node in drawing.iter() if element_name(node) == "textpath").strip()


def _skipped(row: ElementTree.Element, side: str) -> int:
    """Return how many columns are left of the first cell of a row, or right of the last."""
    found = row.find(f"{_WORD}trPr/{_WORD}{side}")
    number = "" if found is None else str(found.get(f"{_WORD}val"))
    return int(number) if number.isdigit() and len(number) < 3 else 0


def _empty_cell() -> ElementTree.Element:
    cell = ElementTree.Element(f"{_WORD}tc")
    ElementTree.SubElement(cell, f"{_WORD}p")
    return cell


def _text(element: ElementTree.Element, part: str) -> str:
    found = element.find(f"{_WORD}{part}")
    return "" if found is None else "".join(node.text or "" for node in found.iter(f"{_WORD}t"))


def _with_text(name: str, text: str) -> ElementTree.Element:
    element = ElementTree.Element(f"{_WORD}{name}")
    element.text = text
    return element


def _targets(archive: Archive, part: str) -> dict[str, str]:
    return {name: path for name, (_, path) in links_of(archive, part).items()}


def _optional(archive: Archive, path: str) -> ElementTree.Element | None:
    return archive.xml(path) if path in archive else None
