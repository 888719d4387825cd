"""Find the headings and the code of a Word document by its styles, also by those that are its author's own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree.ElementTree import Element, SubElement

_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"

#: The marks of text that is struck out, once and twice, and the values that turn a mark off.
_STRIKES, _OFF = (f"{_WORD}strike", f"{_WORD}dstrike"), ("0", "false", "off")

#: Most styles that are based on one another.
_MOST_STYLES = 10

#: Names of styles of headings and of code, and of fonts for code.
_HEADING = re.compile(r"heading ([1-9])$", re.IGNORECASE)
_OF_CODE = re.compile(r"(source code|html preformatted|preformatted text|code( block)?)$", re.IGNORECASE)
CODE_FONT = re.compile(r"courier|consol|mono(?!type)|menlo|monaco|typewriter", re.IGNORECASE)

#: Names that mammoth receives in place of the styles, and what it makes of them.
_HEADING_STYLE, _CODE_STYLE = "OctavoHeading", "OctavoCode"
STYLE_MAP = "".join(f"p.{_HEADING_STYLE}{level} => h{level}:fresh\n" for level in range(1, 7))
STYLE_MAP += f"p.{_CODE_STYLE} => pre:separator('\\n')\n"


class Styles:
    """The styles of a document, by their names in its parts."""

    def __init__(self, styles: Element) -> None:
        self._styles = {str(style.get(f"{_WORD}styleId")): style for style in styles.iter(f"{_WORD}style")}
        self.may_strike = any(next(styles.iter(tag), None) is not None for tag in _STRIKES)

    def chain(self, properties: Element | None, name: str) -> Iterator[Element]:
        """Yield properties, then the style that they name as `pStyle` or `rStyle`, and those that it is based on."""
        if properties is not None:
            yield properties
        style = _value(properties, name)
        for _ in range(_MOST_STYLES):  # they may be based on one another in a circle
            found = self._styles.get(style)
            if found is None:
                return
            yield found
            style = _value(found, "basedOn")

    def heading_level(self, paragraph: Element) -> int | None:
        """Return the level of a heading, from 1; None of other text."""
        for each in self.chain(paragraph.find(f"{_WORD}pPr"), "pStyle"):
            own = each if each.tag == f"{_WORD}pPr" else each.find(f"{_WORD}pPr")
            if (level := _value(own, "outlineLvl")).isdigit():
                return int(level) + 1 if int(level) < 6 else None
            if named := _HEADING.match(_value(each, "name")):
                return min(int(named[1]), 6)
        return None

    def side(self, run: Element) -> str:
        """Return where text is that is not in its line, by properties or their style: superscript or subscript."""
        for each in self.chain(run, "rStyle"):
            own = each if each.tag == f"{_WORD}rPr" else each.find(f"{_WORD}rPr")
            if side := _value(own, "vertAlign"):
                return side
            if (height := _value(own, "position")).strip("-0"):
                return "subscript" if height.startswith("-") else "superscript"
        return ""

    def is_struck(self, paragraph: Element, run: Element) -> bool:
        """Return whether a run of text is struck out, once or twice, by itself, its style, or its paragraph's style."""
        of_run = self.chain(run.find(f"{_WORD}rPr"), "rStyle")
        of_paragraph = self.chain(paragraph.find(f"{_WORD}pPr"), "pStyle")
        for each in (*of_run, *of_paragraph):
            own = each if each.tag == f"{_WORD}rPr" else each.find(f"{_WORD}rPr")
            marks = (
                [node for node in own if node.tag in _STRIKES] if own is not None and each.tag != f"{_WORD}pPr" else []
            )
            if marks:
                return any(mark.get(f"{_WORD}val", "1") not in _OFF for mark in marks)
        return False

    def is_code(self, paragraph: Element) -> bool:
        """Return whether the style of a paragraph is one of code, or all of its text is in a font for code."""
        of_paragraph = list(self.chain(paragraph.find(f"{_WORD}pPr"), "pStyle"))[1:]
        own = [style for style in of_paragraph if style.get(f"{_WORD}default") != "1"]
        if any(_OF_CODE.match(_value(style, "name")) or _has_code_font(style) for style in own):
            return True
        runs = [run for run in paragraph.iter(f"{_WORD}r") if run.find(f"{_WORD}t") is not None]
        return bool(runs) and all(
            any(map(_has_code_font, self.chain(run.find(f"{_WORD}rPr"), "rStyle"))) for run in runs
        )


def name_styles(root: Element, styles: Styles) -> None:
    """Give headings and code the styles that mammoth knows, and raised, lowered and struck-out text its marks."""
    for run in root.iter(f"{_WORD}rPr"):
        if run.find(f"{_WORD}vertAlign") is None and (side := styles.side(run)):
            SubElement(run, f"{_WORD}vertAlign").set(f"{_WORD}val", side)
    if styles.may_strike or next(root.iter(_STRIKES[1]), None) is not None:
        _mark_strikes(root, styles)
    for paragraph in root.iter(f"{_WORD}p"):
        level = styles.heading_level(paragraph)
        if level is None and not styles.is_code(paragraph):
            continue
        properties = paragraph.find(f"{_WORD}pPr")
        if properties is None:
            properties = Element(f"{_WORD}pPr")
            paragraph.insert(0, properties)
        style = properties.find(f"{_WORD}pStyle")
        style = SubElement(properties, f"{_WORD}pStyle") if style is None else style
        style.set(f"{_WORD}val", _CODE_STYLE if level is None else f"{_HEADING_STYLE}{level}")


def _mark_strikes(root: Element, styles: Styles) -> None:
    """Write that text is struck out where mammoth looks for it."""
    for paragraph in root.iter(f"{_WORD}p"):
        for run in paragraph.iter(f"{_WORD}r"):
            if styles.is_struck(paragraph, run):
                properties = run.find(f"{_WORD}rPr")
                if properties is None:
                    properties = Element(f"{_WORD}rPr")
                    run.insert(0, properties)
                properties.insert(0, Element(_STRIKES[0]))  # mammoth takes the first


def _has_code_font(properties: Element) -> bool:
    fonts = properties.find(f".//{_WORD}rFonts")
    return fonts is not None and CODE_FONT.search(str(fonts.get(f"{_WORD}ascii"))) is not None


def _value(element: Element | None, name: str) -> str:
    """Return the value of a property; nothing without it."""
    found = None if element is None else element.find(f"{_WORD}{name}")
    return "" if found is None else str(found.get(f"{_WORD}val") or "")
