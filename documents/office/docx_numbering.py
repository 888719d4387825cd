"""Write the numbers of headings and lists of a Word document, which it only implies, into its text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple
from xml.etree.ElementTree import Element, SubElement

from ..html.list_numbers import in_form
from .docx_styles import Styles

_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"

#: Marks the label of an item of a list, between characters that nothing else uses: its depth, then the label.
_LABEL = "\ue002{}{}\ue003"
_LABELS = re.compile("\ue002(\\d)([^\ue003]*)\ue003[ \t]*")
_BETWEEN_ITEMS = re.compile("(^\ue002[^\n]*\n)\n(?=\ue002)", re.MULTILINE)

#: Levels of numbers that Word has.
_LEVELS = 9


class _Level(NamedTuple):
    """How a level of a list is numbered: from which number on, in which form, as which text, and after which levels.

    A legal level has the numbers of all levels in Arabic. One that restarts after 0 is numbered through.
    """

    start: int
    form: str
    text: str
    is_legal: bool
    restarts_after: int


class _Lists:
    """The lists of a document: their levels, by number of the list, and the styles that belong to them."""

    def __init__(self, numbering: Element, styles: Element) -> None:
        self.styles = {str(style.get(f"{_WORD}styleId")): style for style in styles.iter(f"{_WORD}style")}
        self.abstract = {_value(number, "abstractNumId"): dict[int, _Level]() for number in numbering}
        self.of_styles: dict[tuple[str, str], int] = {}
        links: dict[str, str] = {}
        for abstract in numbering.iter(f"{_WORD}abstractNum"):
            name = str(abstract.get(f"{_WORD}abstractNumId"))
            links[name] = _value(abstract, "numStyleLink")
            self.abstract[name] = {_number(level, "ilvl"): _level(level) for level in abstract.iter(f"{_WORD}lvl")}
            for level in abstract.iter(f"{_WORD}lvl"):
                self.of_styles[name, _value(level, "pStyle")] = _number(level, "ilvl")
        self.lists = {
            str(number.get(f"{_WORD}numId")): _value(number, "abstractNumId")
            for number in numbering.iter(f"{_WORD}num")
        }
        for number, name in self.lists.items():
            if (style := self.styles.get(links.get(name, ""))) is not None:
                linked = _value(style, f"pPr/{_WORD}numPr/{_WORD}numId")
                self.lists[number] = self.lists.get(linked, name)
        self.restarts = {
            (str(number.get(f"{_WORD}numId")), _number(override, "ilvl")): int(_value(override, "startOverride"))
            for number in numbering.iter(f"{_WORD}num")
            for override in number.iter(f"{_WORD}lvlOverride")
            if _value(override, "startOverride").isdigit()
        }

    def of(self, paragraph: Element) -> tuple[str, int] | None:
        """Return the list of a paragraph and its level in it, by itself or by its style; None without one."""
        numbers = paragraph.find(f"{_WORD}pPr/{_WORD}numPr")
        number = "" if numbers is None else _value(numbers, "numId")
        level = "" if numbers is None else _value(numbers, "ilvl")
        name = style = _value(paragraph, f"pPr/{_WORD}pStyle")
        for _ in range(_LEVELS):  # styles may be based on each other in a circle
            if number or (element := self.styles.get(style)) is None:
                break
            number = _value(element, f"pPr/{_WORD}numPr/{_WORD}numId")
            level = level or _value(element, f"pPr/{_WORD}numPr/{_WORD}ilvl")
            name, style = style, _value(element, "basedOn")
        if number not in self.lists:  # 0 takes a paragraph out of the list of its style
            return None
        own = self.of_styles.get((self.lists[number], name), 0)
        return number, min(int(level) if level.isdigit() else own, _LEVELS - 1)


def number_paragraphs(parts: Sequence[Element], numbering: Element, styles: Element, known: Styles) -> None:
    """Write the label of each paragraph of a list before its text; headings get theirs as plain text.

    Parameters
    ----------
    parts : sequence of Element
        The document and its notes.
    known : Styles
        Finds headings.
    """
    lists = _Lists(numbering, styles)
    paragraphs = [paragraph for part in parts for paragraph in part.iter(f"{_WORD}p")]
    named = [lists.of(paragraph) for paragraph in paragraphs]
    last = {place[0]: number for number, place in enumerate(named) if place is not None}
    counts: dict[str, dict[int, int]] = {}
    begun: set[tuple[str, int]] = set()
    begins_cell = {cell.find(f"{_WORD}p") for cell in (each for part in parts for each in part.iter(f"{_WORD}tc"))}
    opened: list[tuple[str, int]] = []  # the lists that a paragraph is in, from the outermost on, and their levels
    for number, (paragraph, place) in enumerate(zip(paragraphs, named, strict=True)):
        text = "".join(node.text or "" for node in paragraph.iter(f"{_WORD}t"))
        if paragraph in begins_cell:
            opened = []
        if place is None:
            opened = opened if text.strip() == "" else []
            continue
        name, level = place
        levels = lists.abstract.get(lists.lists[name], {})
        if level not in levels:
            continue
        count = counts.setdefault(lists.lists[name], {})
        for deeper in [each for each in count if each > level]:
            if level < levels[deeper].restarts_after:
                del count[deeper]
        if (name, level) in lists.restarts and (name, level) not in begun:
            count.pop(level, None)
            levels[level] = levels[level]._replace(start=lists.restarts[name, level])
        begun.add((name, level))
        count[level] = count[level] + 1 if level in count else levels[level].start
        label = _label(levels, count, level)
        if _is_heading(lists, known, paragraph):
            _put_first(paragraph, f"{label} " if label and levels[level].form != "bullet" else "")
            opened = []
            continue
        names = [each for each, _ in opened]
        outer = opened[: names.index(name)] if name in names else opened
        opened = [*(each for each in outer if last[each[0]] > number), (name, level)]
        depth = level + sum(above + 1 for _, above in opened[:-1])
        if text.strip() and label:
            _put_first(paragraph, _LABEL.format(min(depth, _LEVELS), label))


def place_labels(text: str) -> str:
    """Make the items of a Markdown text of their labels."""
    text = _BETWEEN_ITEMS.sub(r"\1", text)
    return _LABELS.sub(lambda mark: "  " * int(mark[1]) + f"{mark[2]} ", text)


def _is_heading(lists: _Lists, known: Styles, paragraph: Element) -> bool:
    if known.heading_level(paragraph) is not None:
        return True
    style = lists.styles.get(_value(paragraph, f"pPr/{_WORD}pStyle"))
    return style is not None and _value(style, "name").lower().startswith(("heading", "title"))


def _put_first(paragraph: Element, text: str) -> None:
    run = Element(f"{_WORD}r")
    SubElement(run, f"{_WORD}t").text = text
    paragraph.insert(0 if paragraph.find(f"{_WORD}pPr") is None else 1, run)


def _label(levels: dict[int, _Level], count: dict[int, int], level: int) -> str:
    """Return the label of a paragraph: the numbers of its level and of those above, as the level's text says."""
    if levels[level].form == "bullet":
        return "-"

    def number(mark: re.Match[str]) -> str:
        above = int(mark[1]) - 1
        if above not in levels:
            return ""
        form = "decimal" if levels[level].is_legal and levels[above].form != "none" else levels[above].form
        return in_form(count.get(above, levels[above].start), form)

    return re.sub(r"%([1-9])", number, levels[level].text).strip()


def _level(level: Element) -> _Level:
    start = _value(level, "start")
    restart, legal = _value(level, "lvlRestart"), level.find(f"{_WORD}isLgl")
    return _Level(
        int(start) if start.isdigit() else 1,
        _value(level, "numFmt") or "decimal",
        _value(level, "lvlText"),
        legal is not None and legal.get(f"{_WORD}val", "1") not in ("0", "false", "off"),
        int(restart) if restart.isdigit() else _LEVELS,
    )


def _number(element: Element, name: str) -> int:
    text = str(element.get(f"{_WORD}{name}"))
    return int(text) if text.isdigit() else 0


def _value(element: Element, path: str) -> str:
    """Return the value of a property; nothing without it."""
    found = element.find(f"{_WORD}{path}")
    return "" if found is None else str(found.get(f"{_WORD}val") or "")
