"""Extract slides of PowerPoint (PPTX): texts, tables, numbers of charts, and notes, under a heading for each slide."""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from typing import Any

from ...errors import OctavoError
from ..archive import Archive
from ..document import Document
from ..html.list_numbers import in_form
from ..left_out import LeftOut
from ..markdown import as_text, document_of
from ..markdown_table import markdown_table, repeat_merged
from ..xml_text import attribute, element_name
from .charts import chart_rows, chart_titles
from .docx_drawings import diagram_texts
from .docx_styles import CODE_FONT
from .hidden_shapes import remove_hidden_shapes
from .package import office_package
from .reading_order import Box, in_reading_order
from .sheet_notes import drawn_words, remark

_DRAWING = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_COMPATIBLE = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"

#: The names of numbers of paragraphs: a form, and the signs around it.
_NUMBER = re.compile(r"(\w*?)(Period|ParenR|ParenBoth|Plain|Minus|)$")
_FORMS = {"alphaLc": "lowerLetter", "alphaUc": "upperLetter", "romanLc": "lowerRoman", "romanUc": "upperRoman"}
_FORMS |= {"ea1Chs": "chineseCounting", "ea1Cht": "chineseCounting", "circleNumDb": "decimalEnclosedCircle"}
_FORMS |= {"thaiAlpha": "thaiLetters", "thaiNum": "thaiNumbers", "hindiNum": "hindiNumbers"}
_FORMS |= {"arabicDb": "decimalFullWidth", "hindiAlpha1": "hindiVowels"}
_FORMS |= {"ea1JpnKor": "japaneseCounting", "ea1JpnChsDb": "chineseCounting"}
_FORMS |= {"arabic1": "arabicAlpha", "arabic2": "arabicAbjad", "hebrew2": "hebrew1"}
_CLOSINGS = {"Minus": "{}-", "Period": "{}.", "ParenR": "{})", "ParenBoth": "({})", "Plain": "{}", "": "{}."}


def extract_slides(archive: Archive) -> Document:
    """Extract slides.

    Raises
    ------
    OctavoError
        The file is damaged.
    """
    from pptx import Presentation

    left_out = LeftOut()
    try:
        package = office_package(archive)
        main = Presentation(io.BytesIO(package.packed(package.names))).part
        links = main._element.xpath("./p:sldIdLst/p:sldId/@r:id")
        slides = [
            _slide(number, main.related_part(link).slide, left_out)
            for number, link in enumerate(links, 1)
            if link in main.rels
        ]
        left_out["missing slide"] += len(links) - len(slides)
    except (MemoryError, OctavoError):
        raise
    except Exception as problem:  # python-pptx trusts its input: it may raise anything
        raise archive.damaged() from problem
    return document_of("\n".join(filter(None, slides)), notices=left_out.notices(archive.name))


def _slide(number: int, slide: Any, left_out: LeftOut) -> str:
    if slide._element.get("show") in ("0", "false"):
        left_out["hidden slide"] += 1
        return ""
    _choose_newer(slide._element)
    remove_hidden_shapes(slide._element, left_out)
    title = slide.shapes.title
    title = None if title is None or not title.has_text_frame else title
    words = " ".join(_text(title.text_frame).split()) if title is not None else ""
    own = None if title is None else title._element
    shapes = [shape for shape in slide.shapes if shape._element is not own]
    parts = [part for shape in in_reading_order(shapes, _box) for part in _shape(shape, slide.part, left_out)]
    if slide.has_notes_slide and (frame := slide.notes_slide.notes_text_frame) and frame.text.strip():
        parts.append(f"Notes: {_lines(frame)}")
    links = (link for link in slide.part.rels.values() if not link.is_external and link.reltype.endswith("/comments"))
    comments = (node for link in links for node in ElementTree.fromstring(link.target_part.blob))
    parts += (remark(node) for node in comments)
    head = f"## Slide {number}: {words}" if words else f"## Slide {number}"
    return "\n\n".join([head, *(part.strip("\n") for part in parts if part.strip())]) + "\n"


def _choose_newer(slide: Any) -> None:
    """Put what new programs show in place of its alternatives, which python-pptx skips."""
    for alternatives in list(slide.iter(f"{_COMPATIBLE}AlternateContent")):
        sides = [side for name in ("Choice", "Fallback") for side in alternatives.findall(f"{_COMPATIBLE}{name}")]
        parent = alternatives.getparent()
        place = parent.index(alternatives)
        parent.remove(alternatives)
        for child in list(sides[0]) if sides else ():
            parent.insert(place, child)
            place += 1


def _box(shape: Any) -> Box | None:
    """Return where a shape is; None if neither it nor its layout says so."""
    holders = (shape._element, *shape._element.iterchildren("{*}spPr", "{*}grpSpPr"))
    own = next((node for holder in holders for node in holder.iterchildren("{*}xfrm")), None)
    places = () if own is None else own.iterchildren("{*}off", "{*}ext")
    sides = {side: number for node in places for side, number in node.items()}
    try:
        if len(sides) == 4:
            return float(sides["x"]), float(sides["y"]), float(sides["cx"]), float(sides["cy"])
        base = getattr(shape, "_base_placeholder", None)
    except Exception:  # python-pptx trusts that each place and layout is whole: it may raise anything
        return None
    return None if base is None else _box(base)


def _shape(shape: Any, part: Any, left_out: LeftOut) -> Iterator[str]:
    if hasattr(shape, "shapes"):
        for inner in in_reading_order(list(shape.shapes), _box):
            yield from _shape(inner, part, left_out)
    elif shape.has_text_frame:
        yield _lines(shape.text_frame)
    elif getattr(shape, "has_table", False):
        rows = ([cell for cell in row.cells if not cell.is_spanned] for row in shape.table.rows)
        cells = [[(_text(cell.text_frame), *_spans(cell)) for cell in row] for row in rows]
        yield markdown_table(repeat_merged(cells))
    elif getattr(shape, "has_chart", False):
        chart = shape.chart
        yield from map(as_text, chart_titles(chart._chartSpace))
        yield markdown_table(chart_rows(chart._chartSpace))
    elif (diagram := _found(shape, "relIds", "dm")) in part.rels:
        yield "\n".join(f"- {text}" for text in diagram_texts(ElementTree.fromstring(part.related_part(diagram).blob)))
    else:
        is_object, is_picture = (next(shape._element.iter(name), None) is not None for name in ("{*}oleObj", "{*}blip"))
        left_out["embedded object"] += is_object
        left_out["picture"] += is_picture and not is_object
        if description := " ".join(_found(shape, "cNvPr", "descr").split()):
            yield f"![{description}]"


def _found(shape: Any, name: str, key: str) -> str:
    """Return an attribute of the first element of a name that has it; nothing without it."""
    values = (attribute(node, key) for node in shape._element.iter(f"{{*}}{name}"))
    return next(filter(None, values), "")


def _spans(cell: Any) -> tuple[int, int]:
    """Return how many columns and rows a cell spans."""
    return (cell.span_width, cell.span_height) if cell.is_merge_origin else (1, 1)


def _text(frame: Any) -> str:
    """Return the paragraphs of a frame, one a line."""
    return "\n".join(filter(None, (drawn_words(paragraph._p) for paragraph in frame.paragraphs)))


def _lines(frame: Any) -> str:
    """Return the paragraphs of a frame: those with numbers, and the deeper ones, as items of lists."""
    lines: list[str] = []
    counts: dict[int, int] = {}
    forms: dict[int, str] = {}
    for paragraph in frame.paragraphs:
        about = paragraph._p.find(f"{_DRAWING}pPr")
        level, text = int(0 if about is None else about.get("lvl") or 0), drawn_words(paragraph._p)
        numbered = [] if about is None else about.findall(f"{_DRAWING}buAutoNum")
        form = "".join(map(str, sorted(numbered[0].items()))) if numbered else ""
        for deeper in [each for each in counts if each > level or (each == level and forms[level] != form)]:
            del counts[deeper]
        forms[level] = form
        if not text:
            continue
        if code := _code(paragraph):
            lines.append(f"```\n{code}\n```")
            continue
        label = "- " * bool(level)
        if numbered:
            form, closing = _NUMBER.match(numbered[0].get("type") or "").groups()  # type: ignore[union-attr]
            counts[level] = counts[level] + 1 if level in counts else int(numbered[0].get("startAt") or 1)
            label = _CLOSINGS[closing].format(in_form(counts[level], _FORMS.get(form, "decimal"))) + " "
        lines.append("  " * (level - 1 + bool(numbered) * (level > 0)) + label + (text if label else as_text(text)))
    return "\n".join(lines).replace("\n```\n```\n", "\n")


def _code(paragraph: Any) -> str:
    """Return the lines of a paragraph that is in a font for code; nothing of another."""
    runs = [node for node in paragraph._p if element_name(node) in ("r", "fld", "br")]
    fonts = [node.find(f"{_DRAWING}rPr/{_DRAWING}latin") for node in runs if element_name(node) != "br"]
    if not all(font is not None and CODE_FONT.search(font.get("typeface") or "") for font in fonts):
        return ""
    return "".join("\n" if element_name(node) == "br" else node.findtext(f"{_DRAWING}t") or "" for node in runs)
