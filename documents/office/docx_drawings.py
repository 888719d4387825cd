"""Put the text of a Word document's drawings, which mammoth skips, where it reads it: boxes, charts, diagrams."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from xml.etree.ElementTree import Element, SubElement

from ..xml_text import element_name
from .charts import chart_rows, chart_titles

_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_COMPATIBLE = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
_SIDES = ("Fallback", "Choice")


def place_drawings(root: Element, targets: dict[str, str], part: Callable[[str], Element | None]) -> None:
    """Put the text of boxes in place of their drawings, and that of charts and diagrams after the paragraph.

    Parameters
    ----------
    targets : dict of str to str
        The paths of the parts that the document refers to, by the names that it has for them.
    part : callable
        Returns a part by its path; None if it is missing.
    """
    for parent in reversed(list(root.iter())):
        for number, child in reversed(list(enumerate(parent))):
            if child.tag == f"{_COMPATIBLE}AlternateContent":
                parent[number : number + 1] = _alternative(child)
    for parent in reversed(list(root.iter())):
        for number, child in reversed(list(enumerate(parent))):
            if child.tag == f"{_WORD}drawing" and (boxes := list(_boxes(child))):
                parent[number] = Element(f"{_WORD}pict")
                parent[number].extend(boxes)
            elif child.tag == f"{_WORD}p":
                names = [name for drawing in child.iter(f"{_WORD}drawing") for name in _parts(drawing)]
                found = (part(targets.get(name, "")) for name in names)
                parent[number + 1 : number + 1] = [block for each in found if each is not None for block in _text(each)]


def _alternative(choices: Element) -> list[Element]:
    """Return what older programs show, if it has text, as Word repeats it there; otherwise what newer ones show."""
    old, new = ([node for side in choices.findall(f"{_COMPATIBLE}{name}") for node in side] for name in _SIDES)
    return old if not new or any(node.tag == f"{_WORD}t" for each in old for node in each.iter()) else new


def _boxes(node: Element) -> Iterator[Element]:
    for child in node:
        if child.tag == f"{_WORD}txbxContent":
            yield child
        else:
            yield from _boxes(child)


def _parts(drawing: Element) -> Iterator[str]:
    """Yield the names of the parts that a drawing shows: of a chart, and of the data of a diagram."""
    for node in drawing.iter():
        wanted = {"chart": "id", "relIds": "dm"}.get(element_name(node))
        yield from (name for key, name in node.attrib.items() if wanted and key.rpartition("}")[2] == wanted)


def _text(part: Element) -> list[Element]:
    """Return a chart as its title and a table, and a diagram as paragraphs."""
    if element_name(part) == "chartSpace":
        table = Element(f"{_WORD}tbl")
        for cells in chart_rows(part):
            row = SubElement(table, f"{_WORD}tr")
            for cell in cells:
                SubElement(row, f"{_WORD}tc").append(paragraph_of(cell))
        return [*map(paragraph_of, chart_titles(part)), table]
    return [paragraph_of(text) for text in diagram_texts(part)]


def diagram_texts(data: Any) -> list[str]:
    """Return the texts of a diagram (SmartArt), by the part that has its data."""
    return [text for text in map(_words, (node for node in data.iter() if element_name(node) == "pt")) if text]


def _words(node: Any) -> str:
    return " ".join("".join(inner.text or "" for inner in node.iter() if element_name(inner) == "t").split())


def paragraph_of(text: str) -> Element:
    """Return a paragraph of DOCX with a text."""
    made = Element(f"{_WORD}p")
    SubElement(SubElement(made, f"{_WORD}r"), f"{_WORD}t").text = text
    return made
