"""Take the hidden shapes out of slides, Word documents and drawings of sheets: those that the Selection Pane hides."""

from __future__ import annotations

from typing import Any

from ..left_out import LeftOut
from ..xml_text import element_name

#: Elements that are a shape, or hold nothing but one: of drawings, of Word's drawings, and of VML.
_SHAPES = {"sp", "pic", "grpSp", "graphicFrame", "cxnSp", "contentPart", "wsp", "wgp", "wpc", "drawing"}
_SHAPES |= {"AlternateContent", "shape", "rect", "roundrect", "oval", "group"}

#: Elements that name a shape, and say whether it is hidden.
_NAMES = ("cNvPr", "docPr")


def remove_hidden_shapes(root: Any, left_out: LeftOut) -> None:
    """Take hidden shapes out of a tree of ElementTree or of lxml, with all that they hold, and count them."""
    waiting = [(root, False)]
    while waiting:
        parent, is_repeated = waiting.pop()
        for child in list(parent):
            if element_name(child) in _SHAPES and _is_hidden(child):
                left_out["hidden shape"] += not is_repeated
                parent.remove(child)
            else:
                waiting.append((child, is_repeated or element_name(child) == "Fallback"))  # for old programs


def _is_hidden(shape: Any) -> bool:
    """Return whether a shape is hidden: by the first name within it, which is its own, or by its style of VML.

    Excel hides the drawing of a control that it draws itself, and notes which one that is.
    """
    if "visibility:hidden" in (shape.get("style") or "").replace(" ", ""):
        return True
    name = next((node for node in shape.iter() if element_name(node) in _NAMES), None)
    if name is None or name.get("hidden") not in ("1", "true"):
        return False
    return all(element_name(node) != "compatExt" for node in name.iter())
