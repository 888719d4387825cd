"""Look at elements of XML without their namespaces, and write them as HTML. They are of ElementTree or of lxml."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any


def element_name(node: Any) -> str:
    """Return the name of an element without its namespace; nothing for a comment."""
    return node.tag.rpartition("}")[2].rpartition(":")[2] if isinstance(node.tag, str) else ""


def attribute(node: Any, name: str) -> str:
    """Return an attribute in any namespace; nothing without it."""
    for key, text in node.attrib.items():
        if key.endswith(name) and key.rpartition("}")[2] == name:
            return str(text)
    return ""


def words(node: Any) -> str:
    """Return the text of an element, with one space for any number of blanks."""
    return " ".join(" ".join(node.itertext()).split())


def inner_html(node: Any, write: Callable[[Any], str]) -> str:
    """Return the text and the elements within an element, as HTML."""
    parts = [escape(node.text or "")]
    for child in node:
        parts += [write(child), escape(child.tail or "")]
    return "".join(parts)
