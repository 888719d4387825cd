"""Extract notebooks (IPYNB): text, code, and what code printed, without pictures."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

from ..document import Document, Place
from ..html.html import markdown_of_html
from ..kinds import notebook_cells
from ..markdown import document_of

#: Colours of terminals.
_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def extract_notebook(content: bytes, name: str) -> Document:
    """Extract a notebook. A place is a cell, by its number, below its heading."""
    notebook = json.loads(content)
    language = str(_dict(_dict(notebook.get("metadata")).get("kernelspec")).get("language") or "")
    text, starts = "", list[tuple[int, str]]()
    for number, cell in enumerate(notebook_cells(notebook), 1):
        if written := _cell(cell, language, name):
            text += "\n\n" if text else ""
            starts.append((len(text), f"Cell {number}"))
            text += written
    document = document_of(text + "\n", starts)
    below = (" > ".join(filter(None, (place.heading, place.page))) for place in document.places)
    places = (Place(place.offset, None, heading) for place, heading in zip(document.places, below, strict=True))
    return replace(document, places=tuple(places))


def _cell(cell: dict[str, Any], language: str, name: str) -> str:
    kind, text = cell.get("cell_type"), _joined(cell.get("source", cell.get("input", ""))).strip("\n")
    if kind == "heading":
        return f"{'#' * int(cell.get('level', 1))} {text}"
    if kind != "code":
        return text
    outputs = (_output(_dict(output), name) for output in cell.get("outputs") or ())
    return "\n\n".join(filter(None, (_fenced(text, language), *outputs)))


def _output(output: dict[str, Any], name: str) -> str:
    """Return what code printed or returned; nothing for pictures."""
    if output.get("output_type") in ("error", "pyerr"):
        return _fenced(f"{output.get('ename')}: {output.get('evalue')}")
    data = _dict(output.get("data")) or output
    if markdown := _joined(data.get("text/markdown", "")).strip():
        return markdown
    if plain := _joined(data.get("text/plain", data.get("text", ""))).strip("\n"):
        return _fenced(plain)
    return markdown_of_html(_joined(data.get("text/html", "")), name).strip()


def _fenced(text: str, language: str = "") -> str:
    """Return a block of code."""
    text = _ESCAPES.sub("", text)
    fence = "`" * max(3, 3, *(len(run) + 1 for run in re.findall("`{3,}", text)))
    return f"{fence}{language}\n{text}\n{fence}" if text.strip() else ""


def _joined(text: Any) -> str:
    return "".join(map(str, text)) if isinstance(text, list) else str(text)


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
