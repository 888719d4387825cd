"""Extract notebooks (IPYNB): text, code, and what code printed, without pictures."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

from ..document import Document, Place
from ..html.html import markdown_of_html
from ..kinds import notebook_cells
from ..left_out import LeftOut
from ..markdown import document_of, without_pictures

#: Colours of terminals.
_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")

#: How Python prints an object that shows itself in another way.
_OBJECT = re.compile(r"<[^<>\n]*>")

_TABLE = re.compile(r"<table\b", re.IGNORECASE)


def extract_notebook(content: bytes, name: str) -> Document:
    """Extract a notebook. A place is a cell, by its number, below its heading."""
    notebook = json.loads(content)
    language = str(_dict(_dict(notebook.get("metadata")).get("kernelspec")).get("language") or "")
    text, starts, left_out = "", list[tuple[int, str]](), LeftOut()
    for number, cell in enumerate(notebook_cells(notebook), 1):
        if written := _cell(cell, language, name, left_out):
            text += "\n\n" if text else ""
            starts.append((len(text), f"Cell {number}"))
            text += written
    document = document_of(text + "\n", starts, left_out.notices(name))
    below = (" > ".join(filter(None, (place.heading, place.page))) for place in document.places)
    places = (Place(place.offset, None, heading) for place, heading in zip(document.places, below, strict=True))
    return replace(document, places=tuple(places))


def _cell(cell: dict[str, Any], language: str, name: str, left_out: LeftOut) -> str:
    kind, text = cell.get("cell_type"), _joined(cell.get("source", cell.get("input", ""))).strip("\n")
    if kind == "heading":
        return f"{'#' * int(cell.get('level', 1))} {text}"
    if kind != "code":
        return without_pictures(text, left_out)
    outputs = (_output(_dict(output), name, left_out) for output in cell.get("outputs") or ())
    return "\n\n".join(filter(None, (_fenced(text, language), *outputs)))


def _output(output: dict[str, Any], name: str, left_out: LeftOut) -> str:
    """Return what code printed or returned, as the notebook shows it; nothing for pictures, which are counted."""
    if output.get("output_type") in ("error", "pyerr"):
        return _fenced(f"{output.get('ename')}: {output.get('evalue')}")
    data = _dict(output.get("data")) or output
    if markdown := _joined(data.get("text/markdown", "")).strip():
        return without_pictures(markdown, left_out)
    plain = _joined(data.get("text/plain", data.get("text", ""))).strip("\n")
    is_object = not plain or _OBJECT.fullmatch(plain.strip()) is not None
    page = _joined(data.get("text/html", ""))
    if is_object or _TABLE.search(page):
        written = markdown_of_html(page, name, left_out).strip()
        if written and (is_object or "| --- |" in written):
            return written
    if is_object and (formula := _joined(data.get("text/latex", "")).strip()):
        return formula
    left_out["picture"] += any(str(kind).startswith("image/") for kind in data)
    return _fenced(plain)


def _fenced(text: str, language: str = "") -> str:
    """Return a block of code."""
    text = _ESCAPES.sub("", text)
    fence = "`" * max(3, 3, *(len(run) + 1 for run in re.findall("`{3,}", text)))
    return f"{fence}{language}\n{text}\n{fence}" if text.strip() else ""


def _joined(text: Any) -> str:
    return "".join(map(str, text)) if isinstance(text, list) else str(text)


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
