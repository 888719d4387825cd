"""Write parsed HTML as Markdown, in one walk over its elements, without what a page does not show."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from ..left_out import LeftOut
from ..markdown_table import markdown_table
from ..scripts import lowered, raised
from .formulas import formula
from .html_tables import grid_of, rows_of
from .markdown_writer import UNSEEN, MarkdownWriter, in_form

#: Elements without text.
_SILENT = {"button", "datalist", "head", "iframe", "nav", "noscript", "object", "rp", "script", "style"}
_SILENT |= {"template", "title"}

#: Elements on lines of their own, those with a blank line before and after, and those of a site, outside articles.
_LINES = {"address", "center", "dt", "fieldset", "form", "legend", "menu", "optgroup", "option", "summary"}
_BLOCKS = {"article", "aside", "caption", "details", "dialog", "div", "dl", "figcaption", "figure", "footer", "header"}
_BLOCKS |= {"hgroup", "main", "p", "search", "section", "tbody", "td", "tfoot", "th", "thead", "tr"}
_OF_SITES, _ARTICLES = ("aside", "footer", "header"), ("article", "main", "section")

#: Headings, and marks of emphasis and code.
_HEADINGS = {f"h{level}": "#" * level for level in range(1, 7)}
_MARKS = {"b": "**", "strong": "**", "i": "*", "em": "*", "del": "~~", "s": "~~", "code": "`", "kbd": "`", "samp": "`"}
_MARKS["q"] = '"'

#: Links without information: to a heading itself, and back from a note.
_SIGNS_OF_LINKS = {"¶", "#", "§", "🔗", "↩", "↩\ufe0e", "↩\ufe0f", "↑", "^"}

#: Kinds of inputs of forms that show no value, and those that can be ticked.
_WITHOUT_VALUE = ("hidden", "password", "submit", "button", "reset", "image", "file")
_TICKED = ("checkbox", "radio")

#: Forms of the numbers of lists.
_FORMS = {"a": "lowerLetter", "A": "upperLetter", "i": "lowerRoman", "I": "upperRoman"}

#: Styles that hide an element, those that make text white, and those that colour what is behind it.
_HIDING = re.compile(
    r"(^|;)(display:none|visibility:hidden|(opacity|font-size):0(\.0+)?(px|pt|em)?(;|!|$)|mso-hide:all)"
)
_WHITE = re.compile(r"(^|;)color:(#fff(fff)?|white|rgb\(255,255,255\)|transparent)(;|!|$)")
_GROUND = re.compile(r"(^|;)background")

#: A formula as Wikipedia writes it.
_DISPLAYED = re.compile(r"\{\\(?:display|text)style (.*)\}", re.DOTALL)

#: What ends an element that was begun.
_End = Callable[[], None] | None


def _done() -> None:
    """Stand for the end of an element that is written whole, or left out."""


class HTMLElements:
    """The elements of a page, and the text that becomes of them.

    Parameters
    ----------
    is_site : bool
        Whether it is a page of a site, whose header, footer and margins belong to the site.
    has_styles : bool
        Whether the page has a style sheet, which may colour the ground of white text.
    labels : list of str
        Labels of pages that begin before the next text.
    left_out : LeftOut
        Counts what a page does not show.
    in_line : bool
        Whether the text is one line, such as a heading or a cell of a table.
    """

    def __init__(
        self, is_site: bool, has_styles: bool, labels: list[str], left_out: LeftOut, in_line: bool = False
    ) -> None:
        self.is_site, self.has_styles, self.left_out = is_site, has_styles, left_out
        self.out = MarkdownWriter(labels, in_line)
        self._lists: list[tuple[int, str] | None] = []
        self._n_articles = 0

    def walk(self, root: Any) -> None:
        """Write what is in an element. Elements may be nested to any depth."""
        self.out.string(root.text)
        opened: list[tuple[Any, Iterator[Any], _End]] = [(root, iter(root), None)]
        while opened:
            node, children, end = opened[-1]
            for child in children:
                ending = self._begin(child) if isinstance(child.tag, str) else _done
                if ending is not _done:
                    self.out.string(child.text)
                    opened.append((child, iter(child), ending))
                    break
                self.out.string(child.tail)
            else:
                opened.pop()
                if end is not None:
                    end()
                if opened:
                    self.out.string(node.tail)

    def _begin(self, node: Any) -> _End:
        tag = node.tag
        if tag in _SILENT or ((names := node.keys()) and self._is_left_out(node, names)):
            return _done
        if tag in _MARKS:
            self.out.begin_mark(_MARKS[tag])
            return self.out.end_mark
        if tag in _HEADINGS and not self.out.in_line:
            if title := self._line(node):
                self.out.block([f"{_HEADINGS[tag]} {title}"])
            return _done
        if tag in _OWN:
            end: _End = _OWN[tag](self, node)
            return end
        return self._begin_block(node, tag) if tag in _BLOCKS or tag in _LINES or tag in _HEADINGS else None

    def _begin_block(self, node: Any, tag: str) -> _End:
        if tag in _OF_SITES and self.is_site and not self._n_articles:
            return _done
        if tag == "dialog" and node.get("open") is None:
            return _done
        breaks = 1 if tag in _LINES else 2
        self.out.need(breaks)
        if tag not in _ARTICLES:
            return lambda: self.out.need(breaks)
        self._n_articles += 1
        return self._end_article

    def _end_article(self) -> None:
        self._n_articles -= 1
        self.out.need(2)

    def _line(self, node: Any) -> str:
        inner = HTMLElements(self.is_site, self.has_styles, self.out.labels, self.left_out, in_line=True)
        inner._n_articles = self._n_articles
        inner.walk(node)
        return inner.out.text().strip()

    def _is_left_out(self, node: Any, names: list[str]) -> bool:
        """Return whether an element is hidden, or only begins a page, which is marked."""
        if "pagebreak" in kind_of(node):
            label = (node.get("title") or node.get("aria-label") or "".join(node.itertext())).strip()
            self.out.labels += [label] if label else []
            return True
        if self._is_hidden(node, names):
            self.left_out["hidden passage"] += bool("".join(node.itertext()).strip())
            return True
        return False

    def _is_hidden(self, node: Any, names: list[str]) -> bool:
        if "hidden" in names or node.get("aria-hidden") == "true":
            return True
        style = (node.get("style") or "").replace(" ", "").lower()
        is_white = not self.has_styles and _WHITE.search(style) is not None
        return _HIDING.search(style) is not None or (is_white and not _has_ground(node))

    def _a(self, node: Any) -> _End:
        text = "".join(node.itertext()).strip()
        if text in _SIGNS_OF_LINKS:
            return _done
        return self._begin_note() if "noteref" in kind_of(node) and not text.startswith("[") else None

    def _begin_note(self) -> _End:
        self.out.begin_mark("[")
        return self._end_note

    def _end_note(self) -> None:
        self.out.end_mark("]")

    def _sup(self, node: Any) -> _End:
        text = "".join(node.itertext()).strip()
        if text.startswith("[") or not text:
            return None
        if node.find(".//a") is not None or next(node.iterancestors("a"), None) is not None:  # to a note
            return self._begin_note()
        return self._script(text, raised(text if node.find(".//sup") is None else self._line(node)))

    def _sub(self, node: Any) -> _End:
        text, before = "".join(node.itertext()).strip(), node.getprevious()
        ends = node.getparent().text if before is None else before.tail or "".join(before.itertext())
        return self._script(text, lowered(text, ends or "", node.tail or ""))

    def _script(self, text: str, written: str) -> _End:
        """Write text above or below the line with its mark; without one, write its elements as any others."""
        if written == text:
            return None
        self.out.put(written)
        return _done

    def _br(self, node: Any) -> _End:
        self.out.break_line()
        return _done

    def _hr(self, node: Any) -> _End:
        if not self.out.in_line:
            self.out.block(["---"])
        return _done

    def _blockquote(self, node: Any) -> _End:
        self.out.need(2)
        self.out.begin_level("> ", "> ")
        return lambda: self.out.end_level(2)

    def _ul(self, node: Any) -> _End:
        return self._begin_list(node, None)

    def _ol(self, node: Any) -> _End:
        return self._begin_list(node, (_whole(node.get("start"), 1), _FORMS.get(node.get("type", ""), "decimal")))

    def _begin_list(self, node: Any, numbers: tuple[int, str] | None) -> _End:
        breaks = 1 if self._lists else 2
        self.out.need(breaks)
        if self._lists:
            self.out.take_blank_line()  # of a paragraph before
        self._lists.append(numbers)
        return lambda: self._end_list(breaks)

    def _end_list(self, breaks: int) -> None:
        self._lists.pop()
        self.out.need(breaks)

    def _li(self, node: Any) -> _End:
        bullet = "- "
        if self._lists and (numbers := self._lists[-1]) is not None:
            number = _whole(node.get("value"), numbers[0])
            bullet = f"{in_form(number, numbers[1])}. "
            self._lists[-1] = (number + 1, numbers[1])
        self.out.begin_level(bullet, " " * len(bullet))
        return lambda: self.out.end_level(1)

    def _dd(self, node: Any) -> _End:
        if node.getparent().tag == "dd":  # libxml2 does not end the one before
            self.out.need(1)
            return None
        self.out.begin_level(":   ", "    ")
        return lambda: self.out.end_level(1)

    def _pre(self, node: Any) -> _End:
        if self.out.in_line:
            return None
        lines = _code(node).removeprefix("\n").removesuffix("\n").split("\n")
        if any(line.strip() for line in lines):
            fence = "```" if not any(line.lstrip().startswith("```") for line in lines) else "````"
            self.out.block([fence, *(line.rstrip(" \t") for line in lines), fence])
        return _done

    def _table(self, node: Any) -> _End:
        rows = rows_of(node)
        if self.out.in_line:
            self.out.need(1)
            lines = (" ".join(filter(None, map(self._line, cells))) for _, cells in rows)
            self.out.string(", ".join(filter(None, lines)))
            self.out.need(1)
            return _done
        if (grid := grid_of(node, rows, self._line)) is None:  # it lays out the page
            return self._begin_block(node, "div")
        for caption in node.iterchildren("caption"):
            if title := self._line(caption):
                self.out.block([title])
        self.out.block(markdown_table(grid).splitlines())
        return _done

    def _math(self, node: Any) -> _End:
        notes = (note for note in node.iter("annotation") if "tex" in note.get("encoding", "tex").lower())
        tex = next(("".join(note.itertext()) for note in notes), "") or node.get("alttext", "")
        self.out.string(_as_formula(tex) if tex.strip() else formula(node))
        return _done

    def _img(self, node: Any) -> _End:
        if description := " ".join(node.get("alt", "").split()):
            is_formula = _DISPLAYED.fullmatch(description)
            self.out.has_blank = True
            self.out.put(_as_formula(description) if is_formula else f"![{description}]")
            self.out.has_blank = True
        return _done

    def _svg(self, node: Any) -> _End:
        for inner in node.iter("title", "text"):
            self.out.has_blank = True
            self.out.string("".join(inner.itertext()))
            self.out.has_blank = True
        return _done

    def _rt(self, node: Any) -> _End:
        if reading := "".join(node.itertext()).strip():
            self.out.string(f"({reading})")
        return _done

    def _input(self, node: Any) -> _End:
        self.out.has_blank = True
        self.out.string(_value(node))
        self.out.has_blank = True
        return _done

    _select = _textarea = _input


#: The methods of elements that have one.
_NAMES = ["a", "blockquote", "br", "dd", "hr", "img", "input", "li", "math", "ol", "pre", "rt", "select", "sub", "sup"]
_OWN = {name: getattr(HTMLElements, f"_{name}") for name in [*_NAMES, "svg", "table", "textarea", "ul"]}


def kind_of(node: Any) -> str:
    """Return the role that an element declares."""
    return f"{node.get('epub:type') or ''} {node.get('role') or ''}"


def _has_ground(node: Any) -> bool:
    """Return whether an element, or one around it, has a colour or a picture behind its text."""
    for each in (node, *node.iterancestors()):
        if each.get("bgcolor") or each.get("background"):
            return True
        if _GROUND.search((each.get("style") or "").replace(" ", "").lower()):
            return True
    return False


def _as_formula(tex: str) -> str:
    """Return TeX as a formula in a line, without what Wikipedia puts around it."""
    tex = " ".join(tex.split())
    displayed = _DISPLAYED.fullmatch(tex)
    return f"${(displayed[1] if displayed else tex).strip()}$"


def _code(node: Any) -> str:
    parts = [node.text or ""]
    for child in node.iterdescendants():
        if isinstance(child.tag, str):
            parts += ["\n"] if child.tag == "br" else [child.text or ""]
        parts.append(child.tail or "")
    return UNSEEN.sub("", "".join(parts))


def _whole(attribute: str | None, otherwise: int) -> int:
    text = attribute or ""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else otherwise


def _value(node: Any) -> str:
    """Return what a field of a form shows: its text, whether it is ticked, or the options that are chosen."""
    if node.tag == "select":
        options = list(node.iter("option"))
        chosen = [option for option in options if option.get("selected") is not None]
        if not chosen and node.get("multiple") is None:
            chosen = options[:1]
        return ", ".join(" ".join("".join(option.itertext()).split()) for option in chosen)
    if node.tag == "textarea":
        return "".join(node.itertext())
    kind = "button" if node.get("role") == "button" else (node.get("type") or "text").lower()
    if kind in _TICKED:
        return "[x]" if node.get("checked") is not None else "[ ]"
    return "" if kind in _WITHOUT_VALUE else node.get("value") or ""
