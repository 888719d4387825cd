"""Write parsed HTML as Markdown, in one walk over its elements, without what a page does not show."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..left_out import LeftOut
from ..markdown import as_text
from ..markdown_table import markdown_table
from ..scripts import lowered, raised, struck
from ..xml_text import words
from .formulas import formula
from .html_tables import grid_of, rows_of
from .list_numbers import in_form
from .markdown_writer import UNSEEN, MarkdownWriter

#: Elements without text.
_SILENT = {"datalist", "head", "iframe", "metadata", "nav", "noscript", "object", "rp", "script", "style", "template"}
_SILENT |= {"desc"}

#: Elements on lines of their own, those with a blank line before and after, and those of a site, outside articles.
_LINES = {"address", "center", "dt", "fieldset", "foreignobject", "form", "legend", "menu", "optgroup"}
_LINES |= {"option", "summary"}
BLOCKS = {"article", "aside", "caption", "details", "dialog", "div", "dl", "figcaption", "figure", "footer", "header"}
BLOCKS |= {"hgroup", "main", "p", "search", "section", "tbody", "td", "tfoot", "th", "thead", "tr"}
_OF_SITES = ("aside", "footer", "header")
_ARTICLES = {"article", "blockquote", "details", "dialog", "fieldset", "figure", "main", "section", "td", "th"}

#: Headings, and marks of emphasis and code.
_HEADINGS = {f"h{level}": "#" * level for level in range(1, 7)}
_MARKS = {
    "b": "**",
    "strong": "**",
    "i": "*",
    "em": "*",
    "del": "~~",
    "s": "~~",
    "strike": "~~",
    "code": "`",
    "kbd": "`",
    "samp": "`",
}
_MARKS["q"] = '"'

#: Links without information: to a heading itself, and back from a note.
_SIGNS_OF_LINKS = {"¶", "#", "§", "🔗", "↩", "↩\ufe0e", "↩\ufe0f", "↑", "^"}

#: Kinds of inputs of forms that show no value, and those that can be ticked.
_WITHOUT_VALUE = ("hidden", "password", "submit", "button", "reset", "image", "file")
_TICKED = ("checkbox", "radio")

#: Forms of the numbers of lists, by attributes and by styles.
_FORMS = {"a": "lowerLetter", "A": "upperLetter", "i": "lowerRoman", "I": "upperRoman"}
_FORMS |= {"lower-alpha": "lowerLetter", "lower-latin": "lowerLetter", "lower-roman": "lowerRoman", "none": "none"}
_FORMS |= {"upper-alpha": "upperLetter", "upper-latin": "upperLetter", "upper-roman": "upperRoman"}
_FORMS |= {"decimal": "decimal", "decimal-leading-zero": "decimalZero", "lower-greek": "lowerGreek"}
_FORMS |= {"hebrew": "hebrew1", "hangul": "ganada", "katakana": "aiueoFullWidth", "katakana-iroha": "irohaFullWidth"}
_FORMS |= {"arabic-indic": "arabicIndic", "persian": "persian", "bengali": "bengali", "thai": "thaiNumbers"}
_FORMS |= {"devanagari": "hindiNumbers", "cjk-decimal": "ideographDigital", "cjk-ideographic": "chineseCounting"}
_FORMS |= {"simp-chinese-informal": "chineseCounting", "trad-chinese-informal": "chineseCounting"}
_FORMS |= {"japanese-informal": "japaneseCounting", "korean-hangul-formal": "koreanCounting"}
_FORMS |= {"cjk-heavenly-stem": "ideographTraditional", "cjk-earthly-branch": "ideographZodiac"}
_LIST_STYLE = re.compile(r"(?:^|;)\s*list-style(?:-type)?\s*:([^;]*)", re.IGNORECASE)

#: Styles that hide an element until it is opened, and for good; those that begin a line, that raise or lower
#: text, that make it white, and that colour the ground.
_CLOSED = re.compile(r"(^|;)(display:none|visibility:(hidden|collapse))")
_OF_HIDDEN = {"aria-hidden", "epub:type", "hidden", "role", "style"}  # attributes
_UNSEEN = re.compile(
    r"(^|;)((opacity|font-size):0(\.0+)?(px|pt|r?em|%)?(;|!|$)|mso-hide:all|(left|top):-\d{3,}(px|em))"
)
_OWN_LINE = re.compile(r"(^|;)display:(block|flex|grid|list-item|table|table-row)(;|!|$)")
_OWN_CELL = re.compile(r"(^|;)display:table-cell(;|!|$)")
_SIDE = re.compile(r"(^|;)vertical-align:(super|sub)(;|!|$)")
_STRUCK = re.compile(r"(^|;)text-decoration(-line)?:[^;]*line-through")
_WHITE = re.compile(r"(^|;)color:(#fff(fff)?|white|rgb\(255,255,255\)|transparent)(;|!|$)")
_GROUND = re.compile(r"(^|;)background")

#: The numbers of lines of code, and what programs that colour it call them.
_LINE_NUMBERS, _NUMBERS = re.compile(r"line-?no|line-?num|gutter|\bln\b", re.IGNORECASE), re.compile(r"[\d\s]*")

#: Notes that readers of books show where they are referred to.
_NOTE = re.compile("(foot|end|rear)note")

#: Elements whose buttons are titles.
_TITLES = ("dt", "h1", "h2", "h3", "h4", "h5", "h6", "legend", "summary")

#: Attributes that name the elements that a button opens, and a name in them.
_OPENING = ("aria-controls", "data-bs-target", "data-target", "onclick")
_NAMED = re.compile(r"[\w:.-]+")

#: A formula as Wikipedia writes it.
_DISPLAYED = re.compile(r"\{\\(?:display|text)style (.*)\}", re.DOTALL)

#: What ends an element that was begun.
_End = Callable[[], None] | None


def _done() -> None:
    """Stand for the end of an element that is written whole, or left out."""


@dataclass
class Page:
    """A page before it is read, and the texts that it does not show.

    Parameters
    ----------
    root : lxml.etree.Element
        Its parsed elements.
    is_site : bool
        Whether it is a page of a site, whose header, footer and margins belong to the site.
    has_ground : bool
        Whether a style sheet may colour the ground of white text.
    left_out : LeftOut
        Counts what the page does not show.
    """

    root: Any
    is_site: bool
    has_ground: bool
    left_out: LeftOut

    @cached_property
    def has_article(self) -> bool:
        """Return whether the page marks its text, so that anything beside it is a margin."""
        return next(self.root.iter("article", "main"), None) is not None

    @cached_property
    def opened(self) -> frozenset[str]:
        """Return the names of the elements that something on the page opens."""
        root = self.root
        names = [name for key in _OPENING for value in root.xpath(f".//@{key}") for name in _NAMED.findall(value)]
        tabs = root.xpath('.//*[@role="tab" or @data-toggle or @data-bs-toggle]/@href')
        names += [link[1:] for link in tabs if link.startswith("#")]
        names += root.xpath('.//*[@aria-expanded or @role="tab"]/@id')  # of labels
        return frozenset(names)


class HTMLElements:
    """The elements of a page, and the text that becomes of them.

    Parameters
    ----------
    page : Page
        The page.
    labels : list of str
        Labels of pages that begin before the next text.
    in_line : bool
        Whether the text is one line, such as a heading or a cell of a table.
    """

    def __init__(self, page: Page, labels: list[str], in_line: bool = False) -> None:
        self.page = page
        self.out = MarkdownWriter(labels, in_line)
        self._lists: list[tuple[int, str, int] | None] = []  # the next number, its form, and the step to the one after
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
        if tag in _SILENT or self._is_left_out(node):
            return _done
        style = _style(node)
        if not style or not _STRUCK.search(style):
            return self._begin_styled(node, tag, style)
        self.out.begin_mark("~~")
        end = self._begin_styled(node, tag, style)
        if end is _done:
            self.out.end_mark()
            return _done
        return lambda: self._end_strike(end)

    def _end_strike(self, end: _End) -> None:
        if end is not None:
            end()
        self.out.end_mark()

    def _begin_styled(self, node: Any, tag: str, style: str) -> _End:
        if not style or tag in BLOCKS or not _OWN_LINE.search(style):
            self.out.has_blank |= bool(style) and _OWN_CELL.search(style) is not None
            return self._begin_element(node, tag, style)
        self.out.need(1)
        end = self._begin_element(node, tag, style)
        if end is _done:
            self.out.need(1)
            return _done
        return lambda: self._end_line(end)

    def _begin_element(self, node: Any, tag: str, style: str) -> _End:
        if style and (tag == "a" or tag not in _OWN) and (side := _SIDE.search(style)):
            return self._sup(node) if side[2] == "super" else self._sub(node)
        if tag in _MARKS:
            is_power = len(node) == 1 and node[0].tag in ("sub", "sup")
            if is_power and not f"{node.text or ''}{node[0].tail or ''}".strip():
                return None  # it has a mark of its own
            self.out.begin_mark(_MARKS[tag])
            return self.out.end_mark
        if tag in _HEADINGS and not self.out.in_line:
            if title := self._line(node):
                self.out.block([f"{_HEADINGS[tag]} {title}"])
            return _done
        if tag in _OWN:
            end: _End = _OWN[tag](self, node)
            return end
        if tag in BLOCKS or tag in _LINES or tag in _HEADINGS:
            return self._begin_block(node, tag)
        return None

    def _begin_line(self) -> _End:
        self.out.need(1)
        return lambda: self.out.need(1)

    def _end_line(self, end: _End) -> None:
        if end is not None:
            end()
        self.out.need(1)

    def _begin_block(self, node: Any, tag: str) -> _End:
        if tag in _OF_SITES and self._is_of_site(node, tag):
            return _done
        if tag == "dialog" and node.get("open") is None and node.get("id") not in self.page.opened:
            self._note_hidden(node)
            return _done
        breaks = 1 if tag in _LINES else 2
        self.out.need(breaks)
        if tag not in _ARTICLES:
            return lambda: self.out.need(breaks)
        self._n_articles += 1
        return self._end_article

    def _is_of_site(self, node: Any, tag: str) -> bool:
        """Return whether a header, footer or margin is of the site, not of a part of the page or of its text."""
        if not self.page.is_site or self._n_articles or _NOTE.search(kind_of(node)):
            return False
        if tag == "aside":
            return self.page.has_article
        has_title = tag == "header" and node.find(".//h1") is not None
        return not (has_title and all(node in title.iterancestors() for title in node.getroottree().iter("h1")))

    def _end_article(self) -> None:
        self._n_articles -= 1
        self.out.need(2)

    def _line(self, node: Any) -> str:
        inner = HTMLElements(self.page, self.out.labels, in_line=True)
        inner._n_articles = self._n_articles + 1
        inner.walk(node)
        text = inner.out.text().strip()
        around = (node, node.getparent()) if node.tag in ("td", "th") else (node,)
        return struck(text) if any(each is not None and _STRUCK.search(_style(each)) for each in around) else text

    def _is_left_out(self, node: Any) -> bool:
        """Return whether an element is hidden, or only begins a page, which is marked."""
        if _OF_HIDDEN.isdisjoint(names := node.keys()):
            return False
        if "pagebreak" in kind_of(node):
            label = (node.get("title") or node.get("aria-label") or "".join(node.itertext())).strip()
            self.out.labels += [label] if label else []
            return True
        if node.tag in ("html", "body"):  # a script shows them once all is loaded
            return False
        style = _style(node)
        is_closed = "hidden" in names or node.get("aria-hidden") == "true" or _CLOSED.search(style)
        is_white = not self.page.has_ground and _WHITE.search(style) is not None
        is_hidden = (is_closed and not self._can_be_opened(node)) or _UNSEEN.search(style) is not None
        if is_hidden or (is_white and not _has_ground(node)):
            self._note_hidden(node)
            return True
        return False

    def _can_be_opened(self, node: Any) -> bool:
        """Return whether a hidden element is a panel of tabs or of an accordion, a note, or shown by a search."""
        if node.get("hidden") == "until-found" or "tabpanel" in kind_of(node) or _NOTE.search(kind_of(node)):
            return True
        if node.get("id") in self.page.opened or node.get("aria-labelledby") in self.page.opened:
            return True
        before = node.getprevious()
        buttons = () if before is None else before.iter("button") if before.tag in _TITLES else (before,)
        return any(each.tag == "button" and self._opens(each) for each in buttons)

    def _note_hidden(self, node: Any) -> None:
        is_read_elsewhere = node.get("aria-hidden") == "true"  # or a sign
        self.page.left_out["hidden passage"] += not is_read_elsewhere and any(map(str.strip, node.itertext()))

    def _opens(self, node: Any) -> bool:
        """Return whether a button names what it opens, as in accordions and tabs, and is not a command."""
        if any(key in node.attrib for key in ("aria-controls", "aria-expanded", "data-bs-target", "data-target")):
            return True
        if node.get("role") == "tab" or next(node.iterancestors(*_TITLES), None) is not None:
            return True
        panel = node.getnext()
        is_command = node.get("type") in ("submit", "reset") or next(node.iterancestors("form"), None) is not None
        return not is_command and panel is not None and panel.tag in ("div", "section") and bool(words(panel))

    def _button(self, node: Any) -> _End:
        return self._begin_line() if self._opens(node) else _done

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
        if any(each.tag == "a" for each in (*node.iter(), *node.iterancestors())):  # to a note
            return None if text.startswith("(") else self._begin_note()
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
        self._n_articles += 1
        return self._end_quote

    def _end_quote(self) -> None:
        self._n_articles -= 1
        self.out.end_level(2)

    def _ul(self, node: Any) -> _End:
        form = _form_of(node)
        return self._begin_list(node, (1, form, 1) if form not in ("", "none") else None)

    def _ol(self, node: Any) -> _End:
        step = -1 if "reversed" in node.attrib else 1
        first = len(node.findall("li")) if step < 0 else 1
        return self._begin_list(node, (_whole(node.get("start"), first), _form_of(node) or "decimal", step))

    def _begin_list(self, node: Any, numbers: tuple[int, str, int] | None) -> _End:
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
            following, form, step = numbers
            number = _whole(node.get("value"), following)
            sign = in_form(number, _form_of(node) or form)
            bullet = f"{sign}. " if sign else "- "
            self._lists[-1] = (number + step, form, step)
        if (label := node.get("octavo-label")) is not None:  # of a program that numbers lists itself
            bullet = f"{label} " if label else "  "
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
        lines = self._code(node).split("\n")
        if any(line.strip() for line in lines) and not any(map(_has_line_numbers, (node, node.getparent()))):
            fence = "```" if not any(line.lstrip().startswith("```") for line in lines) else "````"
            self.out.block([fence, *(line.rstrip(" \t") for line in lines), fence])
        return _done

    def _code(self, node: Any) -> str:
        text = re.sub("\n?\0+\n?", "\n", "".join(self._parts_of_code(node)))
        return UNSEEN.sub("", text).removeprefix("\n").removesuffix("\n")

    def _parts_of_code(self, node: Any) -> Iterator[str]:
        """Yield the text of code as it is written, with a null where a line begins without a break."""
        yield node.text or ""
        for child in node:
            tag = child.tag
            if tag == "br":
                yield "\n"
            elif isinstance(tag, str) and not (
                tag in _SILENT or tag == "button" or self._is_left_out(child) or _has_line_numbers(child)
            ):
                is_line = tag in BLOCKS or tag in _LINES or tag == "li" or _OWN_LINE.search(_style(child))
                yield from ("\0" if is_line else "", *self._parts_of_code(child), "\0" if is_line else "")
            yield child.tail or ""

    def _table(self, node: Any) -> _End:
        rows = rows_of(node)
        if self.out.in_line:
            self.out.need(1)
            lines = (" ".join(filter(None, map(self._line, cells))) for _, cells in rows)
            self.out.string(", ".join(filter(None, lines)))
            self.out.need(1)
            return _done
        has_code = len(rows) == 1 and next(node.iter("pre"), None) is not None  # beside the numbers of its lines
        if has_code or (grid := grid_of(node, rows, self._line)) is None:  # it lays out the page
            return self._begin_block(node, "div")
        for caption in node.iterchildren("caption"):
            if title := self._line(caption):
                self.out.block([as_text(title)])
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
        else:
            self.page.left_out["picture"] += not {node.get("width"), node.get("height")} & {
                "0",
                "1",
            }  # that counts visits
        return _done

    _image = _img

    def _svg(self, node: Any) -> _End:
        self.out.has_blank = True
        return self._end_text

    def _end_text(self) -> None:
        self.out.has_blank = True

    def _text(self, node: Any) -> _End:
        return self._svg(node) if next(node.iterancestors("svg"), None) is not None else None

    def _title(self, node: Any) -> _End:
        return self._svg(node) if next(node.iterancestors("svg"), None) is not None else _done

    def _tspan(self, node: Any) -> _End:
        self.out.has_blank |= any(node.get(key) not in (None, "0") for key in ("x", "y", "dy"))
        return None

    def _switch(self, node: Any) -> _End:
        for other in list(node)[1:]:  # a drawing shows the first that the program knows
            node.remove(other)
        return None

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
_NAMES = [
    "a",
    "blockquote",
    "br",
    "button",
    "dd",
    "hr",
    "image",
    "img",
    "input",
    "li",
    "math",
    "ol",
    "pre",
    "rt",
    "select",
]
_NAMES += ["sub", "sup", "svg", "switch", "table", "text", "textarea", "title", "tspan", "ul"]
_OWN = {name: getattr(HTMLElements, f"_{name}") for name in _NAMES}


def kind_of(node: Any) -> str:
    """Return the role that an element declares."""
    return f"{node.get('epub:type') or ''} {node.get('role') or ''}"


def _has_ground(node: Any) -> bool:
    """Return whether an element, or one around it, has a colour or a picture behind its text."""
    for each in (node, *node.iterancestors()):
        if each.get("bgcolor") or each.get("background"):
            return True
        if _GROUND.search(_style(each)):
            return True
    return False


def _as_formula(tex: str) -> str:
    """Return TeX as a formula in a line, without what Wikipedia puts around it."""
    tex = " ".join(tex.split())
    displayed = _DISPLAYED.fullmatch(tex)
    return f"${(displayed[1] if displayed else tex).strip()}$"


def _style(node: Any) -> str:
    return style.replace(" ", "").lower() if (style := node.get("style")) else ""


def _form_of(node: Any) -> str:
    """Return the form of numbers that a list or an item has; nothing if it does not say."""
    declared = _LIST_STYLE.search(node.get("style") or "")
    names = [node.get("type") or "", *(declared[1].lower().split() if declared else ())]
    return next((_FORMS[name] for name in reversed(names) if name in _FORMS), "")


def _has_line_numbers(node: Any) -> bool:
    """Return whether an element has nothing but the numbers of lines of code."""
    is_named = _LINE_NUMBERS.search(node.get("class") or "") is not None
    return is_named and _NUMBERS.fullmatch("".join(node.itertext())) is not None


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
