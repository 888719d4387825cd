"""Find the hidden text of a Word document: marked as hidden, or white on nothing."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree.ElementTree import Element

_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"

#: What may colour the ground on which text is white: of a run or paragraph, of a table, box or page.
_SHADES = [f"{_WORD}shd", f"{_WORD}highlight"]
_GROUNDS = [f"{_WORD}tbl", f"{_WORD}txbxContent"]

#: Most styles that are based on one another.
_MOST_STYLES = 10


def hidden_runs(root: Element, styles: Element) -> set[Element]:
    """Return the runs of text that a page does not show."""
    of_styles = {str(style.get(f"{_WORD}styleId")): style for style in styles.iter(f"{_WORD}style")}
    on_ground = {paragraph for tag in _GROUNDS for each in root.iter(tag) for paragraph in each.iter(f"{_WORD}p")}
    is_coloured = root.find(f"{_WORD}background") is not None
    hidden = set()
    for paragraph in root.iter(f"{_WORD}p"):
        own = list(_with_styles(paragraph.find(f"{_WORD}pPr"), of_styles))
        for run in paragraph.iter(f"{_WORD}r"):
            properties = [*_with_styles(run.find(f"{_WORD}rPr"), of_styles), *own[1:]]
            vanish = next((mark for each in properties if (mark := each.find(f".//{_WORD}vanish")) is not None), None)
            colour = next((mark for each in properties if (mark := each.find(f".//{_WORD}color")) is not None), None)
            is_white = colour is not None and str(colour.get(f"{_WORD}val")).upper() == "FFFFFF"
            shades = (each.find(f".//{shade}") for each in (*properties, *own) for shade in _SHADES)
            bare = not is_coloured and paragraph not in on_ground and all(shade is None for shade in shades)
            if (vanish is not None and vanish.get(f"{_WORD}val", "1") not in ("0", "false", "off")) or (
                is_white and bare
            ):
                hidden.add(run)
    return hidden


def _with_styles(properties: Element | None, styles: dict[str, Element]) -> Iterator[Element]:
    """Yield the properties of a run or paragraph, then its style, and those on which that is based."""
    yield Element("none") if properties is None else properties
    style = None if properties is None else next((mark for mark in properties if mark.tag.endswith("Style")), None)
    for _ in range(_MOST_STYLES):  # they may be based on each other in a circle
        found = None if style is None else styles.get(str(style.get(f"{_WORD}val")))
        if found is None:
            return
        yield found
        style = found.find(f"{_WORD}basedOn")
