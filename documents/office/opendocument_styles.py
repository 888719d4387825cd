"""Look up the styles of an OpenDocument file: of hidden, raised and lowered text, of code, and of numbered lists."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple
from xml.etree.ElementTree import Element

from ..html.list_numbers import form_of, in_form
from ..xml_text import attribute, element_name
from .docx_styles import CODE_FONT

#: Forms of numbers, as OpenDocument and as Word name them.
_FORMS = {"1": "decimal", "a": "lowerLetter", "A": "upperLetter", "i": "lowerRoman", "I": "upperRoman"}

#: Names of styles of code.
_OF_CODE = ("Preformatted_20_Text", "Preformatted Text", "Source_20_Code", "Source_20_Text")

#: Formats of numbers. One for negative numbers names another for the rest.
_NUMBERS = ("number-style", "currency-style", "percentage-style")

#: The properties of the text of a style.
_TEXT = "text-properties"

#: Most styles that are based on one another.
_MOST_STYLES = 20


class _Level(NamedTuple):
    """How a level of a list is numbered: the form of its numbers, the text around them, the levels shown, the first."""

    form: str
    prefix: str
    suffix: str
    n_shown: int
    start: int


class Styles:
    """The styles of a file.

    Parameters
    ----------
    trees : iterable of Element
        The parts of the file that have styles.
    """

    def __init__(self, trees: Iterable[Element]) -> None:
        self._styles: dict[tuple[str, str], Element] = {}
        self._lists: dict[str, Element] = {}
        self._levels: dict[str, dict[int, _Level]] = {}  # of the lists that were asked for
        self._coloured: set[str] = set()  # formats of numbers that are negative
        self._strikes: dict[tuple[str, str], bool] = {}  # of the styles that were asked for
        self.pages = {"Standard"}  # the kinds of pages that paragraphs begin
        self.master_pages: list[Element] = []
        self.hidden_layers: set[str] = set()
        for node in (node for tree in trees for part in tree if element_name(part) != "body" for node in part.iter()):
            name = element_name(node)
            if name == "style":
                self._styles[attribute(node, "family"), attribute(node, "name")] = node
                self.pages.add(attribute(node, "master-page-name"))
            elif name in ("list-style", "outline-style"):
                self._lists[attribute(node, "name") if name == "list-style" else ""] = node
            elif name == "master-page":
                self.master_pages.append(node)
            elif name in _NUMBERS and any(attribute(each, "color") for each in node if element_name(each) == _TEXT):
                self._coloured.add(attribute(node, "name"))
            elif name == "layer" and attribute(node, "display") == "none":
                self.hidden_layers.add(attribute(node, "name"))

    def chain(self, family: str, name: str) -> Iterator[Element]:
        """Yield a style and those that it is based on."""
        for _ in range(_MOST_STYLES):  # they may be based on one another in a circle
            style = self._styles.get((family, name))
            if style is None:
                return
            yield style
            name = attribute(style, "parent-style-name")

    def value(self, family: str, name: str, wanted: str) -> str:
        """Return a property of a style, by itself or by those that it is based on; nothing without it."""
        for style in self.chain(family, name):
            for node in style.iter():
                if text := attribute(node, wanted):
                    return text
        return ""

    def is_named(self, name: str, *names: str) -> bool:
        """Return whether a style of paragraphs has one of these names, or is based on one that has."""
        return name in names or any(attribute(style, "parent-style-name") in names for style in self.chain(_P, name))

    def is_code(self, paragraph: Element) -> bool:
        """Return whether the style of a paragraph is one of code, or all of its text is in a font for code."""
        name = attribute(paragraph, "style-name")
        if self.is_named(name, *_OF_CODE) or self._has_code_font(_P, name):
            return True
        is_bare = (paragraph.text or "").strip() or any((child.tail or "").strip() for child in paragraph)
        return not is_bare and all(
            element_name(child) == "span" and self._has_code_font("text", attribute(child, "style-name"))
            for child in paragraph
        )

    def _has_code_font(self, family: str, name: str) -> bool:
        own = [style for style in self.chain(family, name) if attribute(style, "name") != "Standard"]
        fonts = (attribute(node, "font-name") for style in own for node in style if element_name(node) == _TEXT)
        return CODE_FONT.search(next(filter(None, fonts), "")) is not None

    def list_of(self, paragraph: str) -> str:
        """Return the style of the lists of paragraphs of a style."""
        return self.value(_P, paragraph, "list-style-name")

    def script(self, span: str) -> str:
        """Return the HTML element for text above or below the line; nothing for other text."""
        position = self.value("text", span, "text-position").split(" ")[0]
        if position.rstrip("%").lstrip("-").isdigit():
            return "" if position in ("0%", "-0%") else "sub" if position.startswith("-") else "sup"
        return {"super": "sup", "sub": "sub"}.get(position, "")

    def is_struck(self, family: str, name: str) -> bool:
        """Return whether a style strikes text out."""
        if (family, name) not in self._strikes:
            lines = (self.value(family, name, f"text-line-through-{kind}") for kind in ("style", "type"))
            self._strikes[family, name] = next(filter(None, lines), "none") != "none"
        return self._strikes[family, name]

    def is_coloured(self, cell: str) -> bool:
        """Return whether a style of cells shows negative numbers in a colour."""
        return bool(self._coloured) and self.value("table-cell", cell, "data-style-name") in self._coloured

    def _levels_of(self, style: str) -> dict[int, _Level]:
        if style not in self._levels:
            self._levels[style] = {whole(level, "level"): _level(level) for level in self._lists.get(style, ())}
        return self._levels[style]

    def number(self, style: str, level: int, counts: dict[int, int], start: int | None = None) -> str | None:
        """Count an item of a list, and return its number; nothing for one without; None for one with a bullet.

        Parameters
        ----------
        style : str
            The style of the list; nothing is that of headings.
        counts : dict of int to int
            The numbers of the last items of each level of the list.
        start : int, optional
            The number of this item.
        """
        own = self._levels_of(style)
        found = own.get(level)
        for deeper in [each for each in counts if each > level]:
            del counts[deeper]
        if found is None:
            counts[level] = counts.get(level, 0) + 1
            return None
        counts[level] = start if start is not None else counts[level] + 1 if level in counts else found.start
        if not found.form:
            return None if style else ""
        shown = range(level - min(found.n_shown, level) + 1, level + 1)
        levels = [(each, own.get(each)) for each in shown]
        text = ".".join(in_form(counts.get(each, of.start), of.form) for each, of in levels if of and of.form)
        suffix = found.suffix or ("." if style and text.isalnum() and not found.prefix else "")
        return f"{found.prefix}{text}{suffix}".strip()


_P = "paragraph"


def whole(node: Element, name: str) -> int:
    """Return the number that an attribute is; 1 without it."""
    text = attribute(node, name)
    return int(text) if text.isascii() and text.isdigit() and 0 < len(text) < 9 else 1


def _level(node: Element) -> _Level:
    form = attribute(node, "num-format") if element_name(node) != "list-level-style-bullet" else ""
    return _Level(
        _FORMS.get(form) or (form and form_of(form)),
        attribute(node, "num-prefix"),
        attribute(node, "num-suffix"),
        whole(node, "display-levels"),
        whole(node, "start-value"),
    )
