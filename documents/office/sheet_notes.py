"""Extract the text boxes of a sheet of Excel (XLSX), and the remarks on its cells."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from xml.etree.ElementTree import Element

from ..archive import Archive
from ..html.formulas import formula
from ..left_out import LeftOut
from ..markdown import as_text
from ..scripts import Run, with_marks
from ..xml_text import attribute, element_name
from .hidden_shapes import remove_hidden_shapes
from .package import links_of


def sheet_notes(archive: Archive, sheet: str, left_out: LeftOut) -> str:
    """Return the text boxes and remarks of a sheet as paragraphs.

    Parameters
    ----------
    sheet : str
        The path of the sheet in its file.
    left_out : LeftOut
        Counts its pictures, charts and hidden shapes.
    """
    parts: list[str] = []
    for kind, path in links_of(archive, sheet).values():
        if kind in ("drawing", "comments", "threadedComment") and path in archive:
            root = archive.xml(path)
            if kind == "drawing":
                remove_hidden_shapes(root, left_out)
            parts += _boxes(root, left_out) if kind == "drawing" else _remarks(root)
    return "".join(f"\n{part}\n" for part in parts)


def remark(node: Element, about: str = "") -> str:
    """Return a remark with what it is about, as those of PDFs; nothing if it is empty."""
    text = " ".join("".join(each.text or "" for each in node.iter() if element_name(each) in ("t", "text")).split())
    return f"[Remark{about}: {text}]" if text else ""


def drawn_words(paragraph: Any) -> str:
    """Return a paragraph of a drawing or slide in a line, with marks of powers and struck-out text, formulas in TeX."""
    runs: list[Run] = []
    for node in paragraph:
        name = element_name(node)
        if name in ("r", "fld"):
            text = "".join(each.text or "" for each in node.iter() if element_name(each) == "t")
            about = node.find("{*}rPr")
            height, strike = ("" if about is None else about.get(key) or "" for key in ("baseline", "strike"))
            side = 0 if not height.strip("-0%.") else -1 if height.startswith("-") else 1
            runs.append(Run(text, side, strike not in ("", "noStrike")))
        else:
            runs.append(Run(" " if name == "br" else formula(node) if name in ("m", "oMath", "oMathPara") else ""))
    return " ".join(with_marks(runs).split())


def _remarks(root: Element) -> Iterator[str]:
    """Yield remarks; those in threads are repeated for old programs, with words that say so."""
    for node in root.iter():
        if element_name(node) in ("comment", "threadedComment"):
            text = remark(node, f" on {attribute(node, 'ref')}")
            if text and "[Threaded comment]" not in text:
                yield text


def _boxes(node: Element, left_out: LeftOut) -> Iterator[str]:
    """Yield the paragraphs of text boxes, without what old programs show instead of what they do not know."""
    name = element_name(node)
    if name == "p":
        if text := drawn_words(node):
            yield as_text(text)
        return
    left_out["picture"] += name == "pic"
    left_out["chart"] += name == "chart"
    for child in node:
        if element_name(child) != "Fallback":
            yield from _boxes(child, left_out)
