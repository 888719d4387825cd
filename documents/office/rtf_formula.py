"""Build the elements of a formula of RTF, whose controls are named after those of Word's own XML: \\mf is m:f."""

from __future__ import annotations

from xml.etree.ElementTree import Element, SubElement

from ..html.formulas import formula
from ..xml_text import element_name

_MATH = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"

#: Controls of formulas that are not elements, but say how text looks.
_LOOKS = {"mnor", "mlit", "maln", "mbrk"}


def begin_formula() -> Element:
    """Return an empty formula."""
    return Element(f"{_MATH}oMath")


def begin_element(parent: Element, control: str, number: int | None) -> Element:
    """Return the element that a control begins in a formula, or the one around it."""
    if not control.startswith("m") or number is not None or control in _LOOKS:
        return parent
    return SubElement(parent, f"{_MATH}{control[1:]}")


def add_text(element: Element, text: str) -> None:
    """Write text into an element: that of a run is shown, that of others is their value."""
    if element_name(element) == "r":
        if len(element) == 0:
            SubElement(element, f"{_MATH}t").text = ""
        element[0].text = (element[0].text or "") + text
    elif text.strip():
        element.set(f"{_MATH}val", element.get(f"{_MATH}val", "") + text.strip())


def written_formula(element: Element) -> str:
    """Return a formula in a line, as TeX; nothing unless it is whole."""
    return formula(element) if element_name(element) == "oMath" else ""
