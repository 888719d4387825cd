"""Put the letterheads of a Word document, which mammoth skips, before and after its text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree.ElementTree import Element, SubElement

from .docx_drawings import paragraph_of
from .letterheads import PAGE, SEPARATOR, without_page_numbers

_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_LINKS = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"

#: Fields that change from page to page.
_OF_PAGES = re.compile(r"\s*(PAGE|NUMPAGES|SECTIONPAGES|STYLEREF)\b")

_NOT = ("0", "false", "off")


def place_letterheads(
    root: Element, targets: dict[str, str], settings: Element | None, heads: dict[str, Element]
) -> None:
    """Put each letterhead that a page shows before or after the text, parted by a separator.

    Parameters
    ----------
    root : Element
        The document.
    targets : dict of str to str
        The paths of its parts, by the names that it has for them.
    settings : Element, optional
        The settings of the document.
    heads : dict of str to Element
        Heads and feet by their paths, sorted.
    """
    body = root.find(f"{_WORD}body")
    if body is None:
        return
    has_even = settings is not None and _is_on(settings, "evenAndOddHeaders")
    shown = _shown(root, targets, has_even)
    wanted = [(path, part) for path, part in heads.items() if path in shown]
    above = [block for path, part in wanted if "header" in path for block in _blocks(part)]
    below = [block for path, part in wanted if "footer" in path for block in _blocks(part)]
    end = len(body) - (len(body) > 0 and body[-1].tag == f"{_WORD}sectPr")
    body[end:end] = [paragraph_of(SEPARATOR), *below]
    body[0:0] = [*above, paragraph_of(SEPARATOR)]


def _shown(root: Element, targets: dict[str, str], has_even: bool) -> set[str]:
    """Return the paths of heads and feet that a page shows."""
    shown: set[str] = set()
    current: dict[tuple[str, str], str] = {}  # sections take over those of the section before
    for section in root.iter(f"{_WORD}sectPr"):
        for link in section:
            kind = link.tag.removeprefix(_WORD)
            if kind in ("headerReference", "footerReference"):
                current[kind, str(link.get(f"{_WORD}type"))] = targets.get(str(link.get(f"{_LINKS}id")), "")
        kinds = {"default"} | ({"first"} if _is_on(section, "titlePg") else set()) | ({"even"} if has_even else set())
        shown |= {path for (_, kind), path in current.items() if kind in kinds}
    return shown


def _is_on(parent: Element, name: str) -> bool:
    mark = parent.find(f"{_WORD}{name}")
    return mark is not None and mark.get(f"{_WORD}val", "1") not in _NOT


def _blocks(part: Element) -> list[Element]:
    """Return the paragraphs and tables of a head or foot, without numbers of pages."""
    for paragraph in part.iter(f"{_WORD}p"):
        line = "".join(_line(paragraph))
        if PAGE in line:
            for child in [child for child in paragraph if child.tag != f"{_WORD}pPr"]:
                paragraph.remove(child)
            SubElement(SubElement(paragraph, f"{_WORD}r"), f"{_WORD}t").text = without_page_numbers(line)
        for run in list(paragraph):  # pictures and links that only the part of the letterhead knows
            _without_links(run)
    return [child for child in part if child.tag in (f"{_WORD}p", f"{_WORD}tbl", f"{_WORD}sdt")]


def _line(paragraph: Element) -> Iterator[str]:
    """Yield the texts of a line, with a mark in place of each field that changes from page to page."""
    depth, instruction, is_result = 0, "", False
    for node in paragraph.iter():
        if node.tag == f"{_WORD}fldSimple" and _OF_PAGES.match(str(node.get(f"{_WORD}instr"))):
            yield PAGE
            for text in node.iter(f"{_WORD}t"):
                text.text = ""
        elif node.tag == f"{_WORD}fldChar":
            kind = node.get(f"{_WORD}fldCharType")
            depth += {"begin": 1, "end": -1}.get(str(kind), 0)
            is_result = kind == "separate" and _OF_PAGES.match(instruction) is not None
            if kind == "begin":
                instruction = ""
            if kind == "end" and _OF_PAGES.match(instruction):
                yield PAGE
                instruction = ""
        elif node.tag == f"{_WORD}instrText":
            instruction += node.text or ""
        elif node.tag == f"{_WORD}pgNum":
            yield PAGE
        elif node.tag in (f"{_WORD}tab", f"{_WORD}ptab"):
            yield "\t"
        elif node.tag == f"{_WORD}t" and not is_result:
            yield node.text or ""


def _without_links(run: Element) -> None:
    for node in run.iter():
        for key in [key for key in node.attrib if key.startswith(_LINKS)]:
            del node.attrib[key]
