"""Read forms in XFA, whose pages only ask for another program: labels from the template, values from the data."""

from __future__ import annotations

import ctypes
from collections import defaultdict
from typing import Any

from ..xml_text import attribute, element_name, words

#: Where a field's name in the data is, if it is not its own.
_REFERENCE = "ref"


def xfa_text(pdf: Any) -> str:
    """Return the texts of a form that has no pages of its own, and its fields with their values; "" of other files."""
    import pypdfium2.raw as pdfium

    if pdf.get_formtype() != pdfium.FORMTYPE_XFA_FULL:
        return ""
    packets = _packets(pdf)
    values: dict[str, list[str]] = defaultdict(list)
    for each in _elements(packets.get("datasets", b"")):
        if not len(each) and words(each):
            values[element_name(each)].append(words(each))
    lines = []
    for each in _elements(packets.get("template", b"")):
        if element_name(each) in ("field", "draw"):
            label, own = _text(each, "caption"), _text(each, "value")
            value = "; ".join(values[_name_in_data(each)]) or own
            lines.append(f"{label.rstrip(':')}: {value}".rstrip() if label else value)
    return "\n\n".join(line for line in lines if line)


def _packets(pdf: Any) -> dict[str, bytes]:
    """Return the parts of a form by their names."""
    import pypdfium2.raw as pdfium

    packets = {}
    for number in range(pdfium.FPDF_GetXFAPacketCount(pdf.raw)):
        name = ctypes.create_string_buffer(pdfium.FPDF_GetXFAPacketName(pdf.raw, number, None, 0))
        pdfium.FPDF_GetXFAPacketName(pdf.raw, number, name, len(name))
        length = ctypes.c_ulong()
        pdfium.FPDF_GetXFAPacketContent(pdf.raw, number, None, 0, length)
        content = ctypes.create_string_buffer(length.value)
        pdfium.FPDF_GetXFAPacketContent(pdf.raw, number, content, length.value, length)
        packets[name.value.decode("utf-8", "replace")] = content.raw
    return packets


def _elements(content: bytes) -> list[Any]:
    """Return all elements of a part in order, without what refers to other files."""
    from lxml import etree

    parser = etree.XMLParser(resolve_entities=False, no_network=True, recover=True)
    root = etree.fromstring(content, parser) if content.strip() else None
    return [] if root is None else [each for each in root.iter() if element_name(each)]


def _text(field: Any, part: str) -> str:
    """Return the words of a field's label or value."""
    return next((words(each) for each in field if element_name(each) == part), "")


def _name_in_data(field: Any) -> str:
    """Return the name that a field has in the data: its own, or the end of the path that it is bound to."""
    bound = next((attribute(each, _REFERENCE) for each in field if element_name(each) == "bind"), "")
    return bound.rpartition(".")[2].partition("[")[0] or attribute(field, "name")
