"""Extract the text boxes of a sheet of Excel (XLSX), and the remarks on its cells."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from xml.etree.ElementTree import Element

from ..archive import Archive
from ..xml_text import attribute, element_name


def sheet_notes(archive: Archive, sheet: str) -> str:
    """Return the text boxes and remarks of a sheet as paragraphs.

    Parameters
    ----------
    sheet : str
        The path of the sheet in its file.
    """
    folder, name = posixpath.split(sheet)
    links = f"{folder}/_rels/{name}.rels"
    if links not in archive:
        return ""
    parts: list[str] = []
    for link in archive.xml(links):
        path = posixpath.normpath(posixpath.join("/", folder, link.get("Target", ""))).removeprefix("/")
        kind = link.get("Type", "").rpartition("/")[2]
        if kind in ("drawing", "comments", "threadedComment") and path in archive:
            parts += (_boxes if kind == "drawing" else _remarks)(archive.xml(path))
    return "".join(f"\n{part}\n" for part in parts)


def remark(node: Element, about: str = "") -> str:
    """Return a remark with what it is about, as those of PDFs; nothing if it is empty."""
    text = " ".join("".join(each.text or "" for each in node.iter() if element_name(each) in ("t", "text")).split())
    return f"[Remark{about}: {text}]" if text else ""


def _remarks(root: Element) -> Iterator[str]:
    """Yield remarks; those in threads are repeated for old programs, with words that say so."""
    for node in root.iter():
        if element_name(node) in ("comment", "threadedComment"):
            text = remark(node, f" on {attribute(node, 'ref')}")
            if text and "[Threaded comment]" not in text:
                yield text


def _boxes(root: Element) -> Iterator[str]:
    for node in root.iter():
        if element_name(node) == "p":
            text = "".join(each.text or "" for each in node.iter() if element_name(each) == "t")
            if text.strip():
                yield " ".join(text.split())
