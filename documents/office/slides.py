"""Extract slides of PowerPoint (PPTX): texts, tables, numbers of charts, and notes, under a heading for each slide."""

from __future__ import annotations

import io
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from typing import Any

from ..archive import Archive
from ..document import Document
from ..markdown import document_of
from ..markdown_table import markdown_table, repeat_merged
from .charts import chart_rows, chart_title
from .sheet_notes import remark


def extract_slides(archive: Archive) -> Document:
    """Extract slides.

    Raises
    ------
    OctavoError
        The file is damaged.
    """
    from pptx import Presentation

    try:
        slides = [
            _slide(number, slide) for number, slide in enumerate(Presentation(io.BytesIO(archive.content)).slides, 1)
        ]
    except MemoryError:
        raise
    except Exception as problem:  # python-pptx trusts its input: it may raise anything
        raise archive.damaged() from problem
    return document_of("\n".join(slides))


def _slide(number: int, slide: Any) -> str:
    title = slide.shapes.title
    words = " ".join(title.text_frame.text.split()) if title is not None else ""
    own = None if title is None else title.shape_id
    parts = [part for shape in slide.shapes if shape.shape_id != own for part in _shape(shape)]
    if slide.has_notes_slide and (frame := slide.notes_slide.notes_text_frame) and frame.text.strip():
        parts.append(f"Notes: {_lines(frame)}")
    links = (link for link in slide.part.rels.values() if not link.is_external and link.reltype.endswith("/comments"))
    comments = (node for link in links for node in ElementTree.fromstring(link.target_part.blob))
    parts += (remark(node) for node in comments)
    head = f"## Slide {number}: {words}" if words else f"## Slide {number}"
    return "\n\n".join([head, *(part.strip("\n") for part in parts if part.strip())]) + "\n"


def _shape(shape: Any) -> Iterator[str]:
    if hasattr(shape, "shapes"):
        for inner in shape.shapes:
            yield from _shape(inner)
    elif shape.has_text_frame:
        yield _lines(shape.text_frame)
    elif getattr(shape, "has_table", False):
        rows = ([cell for cell in row.cells if not cell.is_spanned] for row in shape.table.rows)
        yield markdown_table(repeat_merged([[(cell.text, *_spans(cell)) for cell in row] for row in rows]))
    elif getattr(shape, "has_chart", False):
        chart = shape.chart
        yield chart_title(chart._chartSpace)
        yield markdown_table(chart_rows(chart._chartSpace))
    elif description := shape._element.xpath(".//p:cNvPr/@descr"):
        yield f"![{' '.join(description[0].split())}]"


def _spans(cell: Any) -> tuple[int, int]:
    """Return how many columns and rows a cell spans."""
    return (cell.span_width, cell.span_height) if cell.is_merge_origin else (1, 1)


def _lines(frame: Any) -> str:
    """Return the paragraphs of a frame, the deeper ones as items of lists."""
    lines = ((paragraph.level, " ".join(paragraph.text.split())) for paragraph in frame.paragraphs)
    return "\n".join("  " * (level - 1) + "- " * bool(level) + text for level, text in lines if text)
