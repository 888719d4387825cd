"""Read the documents in a Word document: files of other formats that Word converts when it opens it (`w:altChunk`)."""

from __future__ import annotations

import email
import email.policy
import re
from collections.abc import Callable
from xml.etree.ElementTree import Element, SubElement

from ...errors import OctavoError
from ..archive import Archive
from ..encodings import decode
from ..html.html import decode_html, markdown_of_html
from ..kinds import ZIP
from ..left_out import LeftOut
from .rtf import html_of_rtf

_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_LINK = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"

#: Replaces a document in the text, with its number.
_MARK = "\ue006{}\ue006"
_MARKS = re.compile("\ue006(\\d+)\ue006")


def mark_chunks(root: Element, targets: dict[str, str]) -> list[str]:
    """Put a paragraph with a mark in place of each document, and return the paths of these."""
    paths: list[str] = []
    for parent in list(root.iter()):
        for number, child in enumerate(parent):
            if child.tag == f"{_WORD}altChunk":
                parent[number] = Element(f"{_WORD}p")
                run = SubElement(parent[number], f"{_WORD}r")
                SubElement(run, f"{_WORD}t").text = _MARK.format(len(paths))
                paths.append(targets.get(str(child.get(_LINK)), ""))
    return paths


def place_chunks(
    text: str, paths: list[str], archive: Archive, left_out: LeftOut, read_word: Callable[[Archive, LeftOut], str]
) -> str:
    """Put the Markdown of each document in place of its mark.

    Parameters
    ----------
    left_out : LeftOut
        Counts what the documents have beside their text, and those that cannot be read.
    read_word : callable
        Returns the Markdown of a Word document.
    """
    return _MARKS.sub(lambda mark: _read(paths[int(mark[1])], archive, left_out, read_word), text)


def _read(path: str, archive: Archive, left_out: LeftOut, read_word: Callable[[Archive, LeftOut], str]) -> str:
    try:
        content = archive.read(path)
        if content.startswith(ZIP):
            return read_word(Archive(content, archive.name), left_out).strip()
        if content.startswith(b"{\\rtf"):
            return markdown_of_html(html_of_rtf(content, left_out), archive.name, left_out).strip()
        if path.endswith((".mht", ".mhtml", ".eml")):
            page = email.message_from_bytes(content, policy=email.policy.default).get_body(("html", "plain"))
            content = b"" if page is None else page.get_content().encode()
        if path.endswith(".txt"):
            return decode(content, archive.name)[0].strip()
        return markdown_of_html(decode_html(content, archive.name)[0], archive.name, left_out).strip()
    except (OctavoError, RecursionError, KeyError, AttributeError):
        left_out["embedded object"] += 1
        return ""
