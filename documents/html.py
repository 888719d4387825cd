"""Read HTML as Markdown, without scripts, styles and navigation."""

from __future__ import annotations

import codecs
import re
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..errors import OctavoError
from .document import Document
from .docx_numbering import in_form
from .encodings import decode, decode_as, is_damaged_utf_8, loses_little
from .html_tables import set_text, simplify_tables
from .markdown import document_of

if TYPE_CHECKING:
    from bs4 import BeautifulSoup, Tag

#: Elements without text.
_SILENT = ["script", "style", "template", "noscript", "svg", "iframe", "object", "button"]
_SILENT += ["nav", "head", "title", "datalist", "rp"]

#: Links without information: to a heading itself, and back from a note.
_SIGNS_OF_LINKS = {"¶", "#", "§", "🔗", "↩", "↩\ufe0e", "↩\ufe0f", "↑", "^"}

#: Elements of a site, unless they are in an article.
_OF_SITES = ["header", "footer", "aside"]

#: The beginning of HTML, the tags that any HTML has, and the file names of partial pages.
_BEGINNING = re.compile(r"<(!doctype\s+html|html|head|body)\b", re.IGNORECASE)
_TAG, _NAMES = re.compile(r"<[a-z][a-z1-6]*(\s[^<>]*)?>", re.IGNORECASE), (".html", ".htm", ".xhtml")

#: Encodings that browsers use in place of those that pages name.
_WIDER = {"iso8859-1": "cp1252", "ascii": "cp1252", "iso8859-9": "cp1254", "iso8859-11": "cp874", "shift_jis": "cp932"}
_WIDER |= {"gb2312": "gb18030", "gbk": "gb18030", "euc_kr": "cp949", "big5": "big5hkscs"}

#: Marks a page break within a text, as in EPUBs: between characters that nothing else uses.
_PAGE = "\ue000{}\ue001"
_PAGES = re.compile("\ue000([^\ue001]*)\ue001")
_BLANKS_AFTER_PAGES = re.compile("^((?:\ue000[^\ue001]*\ue001)+)\\s+", re.MULTILINE)
_UNWRITTEN = str.maketrans("", "", "\0\ue000\ue001")

#: Characters that only say where a word may break, or how a formula is meant.
_BREAKS = str.maketrans("", "", "\u00ad\u200b\u2060\u2061\u2062\u2063\u2064\ufeff")

#: Kinds of inputs of forms that show no value, and those that can be ticked.
_WITHOUT_VALUE = ("hidden", "password", "submit", "button", "reset", "image", "file")
_TICKED = ("checkbox", "radio")

#: Forms of the numbers of lists, and the attribute that has an item's number.
_FORMS = {"a": "lowerLetter", "A": "upperLetter", "i": "lowerRoman", "I": "upperRoman"}
_NUMBER = "data-octavo-number"


#: The links of an element of a parsed page, and the links back.
_LINKS = [("previous_element", "next_element"), ("previous_sibling", "next_sibling")]
_LINKS += [(back, forth) for forth, back in _LINKS]

#: Most nested elements of an HTML file: text needs a tenth, and each level takes some of Python's stack.
_MOST_NESTED = 300


def read_html(content: bytes, name: str) -> Document:
    """Read an HTML file.

    Parameters
    ----------
    content : bytes
        The file, in the encoding that it names, or in one that can be determined.

    Raises
    ------
    OctavoError
        The file's elements are nested too deeply.
    """
    written, notices = decode_html(content, name)
    soup = parse(written, name)
    title = soup.title.get_text(" ", strip=True) if soup.title else ""
    text, pages = to_markdown(soup)
    if title and not re.search(r"^# ", text, re.MULTILINE):
        head = f"# {title}\n\n"
        text, pages = head + text, [(offset + len(head), label) for offset, label in pages]
    return document_of(text, pages, notices)


def markdown_of_html(text: str, name: str) -> str:
    """Return a part of a document that is HTML as Markdown."""
    return to_markdown(parse(text, name), is_site=False)[0] if text.strip() else ""


def is_html(content: bytes, name: str) -> bool:
    """Return whether a file is HTML: by its beginning, or by its name if it has any tags."""
    is_wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    text = content[:8192].decode("utf-16" if is_wide else "utf-8", errors="ignore").lstrip("\ufeff \t\r\n")
    if name.lower().endswith(_NAMES) and _TAG.search(text):
        return True
    while text.startswith(("<!--", "<?")):
        text = text.partition("-->" if text.startswith("<!--") else ">")[2].lstrip()
    return _BEGINNING.match(text) is not None


def decode_html(content: bytes, name: str) -> tuple[str, tuple[str, ...]]:
    """Decode a page by the encoding that it names, or one that can be determined, or as browsers do: windows-1252.

    Returns
    -------
    text : str
        The page.
    notices : tuple of str
        The encoding, if the page does not name it, and whether bytes are lost.

    Raises
    ------
    OctavoError
        The file is not text.
    """
    from bs4.dammit import EncodingDetector

    named = EncodingDetector.find_declared_encoding(content, is_html=True)
    has_mark = content.startswith((codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    with suppress(LookupError, UnicodeError):
        if named and not has_mark and not named.startswith("utf-16"):  # an ASCII name rules out UTF-16
            encoding = codecs.lookup(named).name
            encoding = _WIDER.get(encoding, encoding)
            if is_damaged_utf_8(content) if encoding == "utf-8" else loses_little(content, encoding):
                return decode_as(encoding, content, name)
    return decode(content, name, last="cp1252")


def parse(text: str, name: str) -> BeautifulSoup:
    """Parse HTML or XHTML, however broken.

    Raises
    ------
    OctavoError
        The elements are nested too deeply.
    """
    from bs4 import BeautifulSoup, Tag

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about XHTML read as HTML, and text that looks like a path
        try:
            soup = BeautifulSoup(text.translate(_UNWRITTEN), "lxml")
        except (RecursionError, AssertionError, ValueError) as problem:
            raise OctavoError(f"{name} cannot be read as HTML: save its text in another format.") from problem
    layer: list[Tag] = [soup]
    depth = 0
    while layer := [child for tag in layer for child in tag.contents if isinstance(child, Tag)]:
        depth += 1
        if depth > _MOST_NESTED:
            raise OctavoError(f"The elements of {name} are nested {depth} deep: save its text in another format.")
    return soup


def to_markdown(soup: BeautifulSoup, is_site: bool = True) -> tuple[str, list[tuple[int, str]]]:
    """Convert parsed HTML to Markdown, and return the starts of its pages, if it marks them.

    Parameters
    ----------
    is_site : bool
        Whether it is a page of a site, whose header, footer and margins belong to the site.
    """
    for tag in soup.find_all(_SILENT + _OF_SITES * is_site):
        if not tag.decomposed and (
            tag.name not in _OF_SITES or tag.find_parent(["article", "main", "section"]) is None
        ):
            tag.decompose()
    for tag in soup.find_all(True):
        if not tag.decomposed:
            _simplify(soup, tag)
    simplify_tables(soup)
    _simplify_strings(soup)
    text = _converter().convert_soup(soup).translate(_BREAKS)
    text = "\n".join(line.rstrip(" \t") for line in text.split("\n"))
    text = _BLANKS_AFTER_PAGES.sub(r"\1", text)
    return _take_pages(re.sub(r"\n{3,}", "\n\n", text).strip() + "\n")


def _simplify(soup: BeautifulSoup, tag: Tag) -> None:
    """Remove a hidden or empty element, mark one that begins a page, and write formulas, forms and readings as text."""
    style = str(tag.get("style") or "").replace(" ", "").lower()
    is_hidden = tag.has_attr("hidden") or "display:none" in style or "visibility:hidden" in style
    if is_hidden or (tag.name == "a" and tag.get_text(strip=True) in _SIGNS_OF_LINKS):
        tag.decompose()
    elif tag.name == "math" and (tex := tag.find("annotation")):
        set_text(tag, f"${tex.get_text(strip=True)}$")
    elif tag.name == "rt":
        reading = tag.get_text(strip=True)
        set_text(tag, f"({reading})" if reading else "")
    elif tag.name in ("input", "select", "textarea"):
        before, after = (side if isinstance(side, str) else "" for side in (tag.previous_sibling, tag.next_sibling))
        blanks = ("" if before[-1:].isspace() else " "), ("" if after[:1].isspace() else " ")
        set_text(tag, _value(tag).join(blanks))
    elif tag.name in _OF_SITES:
        tag.name = "div"
    elif tag.name == "ol":
        number, form = _whole(tag.get("start"), 1), _FORMS.get(str(tag.get("type")), "decimal")
        for item in tag.find_all("li", recursive=False):
            number = _whole(item.get("value"), number)
            item[_NUMBER] = in_form(number, form)
            number += 1
    elif "pagebreak" in _kind(tag):
        label = str(tag.get("title") or tag.get("aria-label") or tag.get_text(strip=True))
        set_text(tag, _PAGE.format(label.strip()) if label.strip() else "")


def _whole(attribute: object, otherwise: int) -> int:
    """Return the number that an attribute is."""
    text = str(attribute)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else otherwise


def _value(tag: Tag) -> str:
    """Return what a field of a form shows: its text, whether it is ticked, or the options that are chosen."""
    if tag.name == "select":
        options = tag.find_all("option")
        chosen = [option for option in options if option.has_attr("selected")]
        if not chosen and not tag.has_attr("multiple"):
            chosen = options[:1]
        return ", ".join(option.get_text(" ", strip=True) for option in chosen)
    if tag.name == "textarea":
        return tag.get_text()
    kind = "button" if tag.get("role") == "button" else str(tag.get("type") or "text").lower()
    if kind in _TICKED:
        return "[x]" if tag.has_attr("checked") else "[ ]"
    return "" if kind in _WITHOUT_VALUE else str(tag.get("value") or "")


def _simplify_strings(soup: BeautifulSoup) -> None:
    """Make blanks one space each, except in code, and escape the signs of columns in tables."""
    from bs4.element import NavigableString, PreformattedString, Tag

    waiting: list[tuple[Tag, bool, bool]] = [(soup, False, False)]
    while waiting:
        parent, is_code, is_cell = waiting.pop()
        is_code, is_cell = is_code or parent.name in ("pre", "textarea"), is_cell or parent.name == "table"
        for number, child in enumerate(parent.contents):
            if isinstance(child, Tag):
                waiting.append((child, is_code, is_cell))
                continue
            text = "" if isinstance(child, PreformattedString) else str(child)  # comments and declarations
            if not is_code:
                text = re.sub(r"\s+", " ", text)
                text = text.replace("|", "\\|") if is_cell else text
            if text != str(child):  # in place: replace_with would search all siblings for the child
                new = parent.contents[number] = NavigableString(text)
                new.parent = parent
                for forth, back in _LINKS:
                    if (other := getattr(child, forth)) is not None:
                        setattr(new, forth, other)
                        setattr(other, back, new)


def _kind(tag: Tag) -> str:
    """Return the role that an element declares."""
    return f"{tag.get('epub:type') or ''} {tag.get('role') or ''}"


def _converter() -> Any:
    from markdownify import ATX, MarkdownConverter

    class Converter(MarkdownConverter):
        """Write links and pictures as their words: their targets are useless without a network."""

        def convert_a(self, el: Any, text: str, parent_tags: Any) -> str:
            return f"[{text}]" if "noteref" in _kind(el) and not text.startswith("[") else text

        def convert_sup(self, el: Any, text: str, parent_tags: Any) -> str:
            if text.startswith("["):
                return text
            if el.find("a") or el.find_parent("a"):  # to a note
                return f"[{text}]"
            return f"^{text}" if re.fullmatch(r"[-+\u2212]?\d+|[a-z]", text) else text

        def convert_li(self, el: Any, text: str, parent_tags: Any) -> str:
            if not text.strip() or not el.get(_NUMBER):
                otherwise: Any = super()
                return str(otherwise.convert_li(el, text, parent_tags))
            bullet = f"{el[_NUMBER]}. "
            return bullet + text.strip().replace("\n", "\n" + " " * len(bullet)) + "\n"

        def convert_img(self, el: Any, text: str, parent_tags: Any) -> str:
            return str(el.attrs.get("alt") or "")

    return Converter(
        heading_style=ATX,
        bullets="-",
        escape_asterisks=False,
        escape_underscores=False,
        escape_misc=False,
        wrap=False,
        table_infer_header=True,
        strip_pre="strip_one",  # the alternative backtracks
    )


def _take_pages(text: str) -> tuple[str, list[tuple[int, str]]]:
    """Remove the marks of pages from a text; return it, with their places and labels."""
    pages: list[tuple[int, str]] = []
    parts, end, length = [], 0, 0
    for mark in _PAGES.finditer(text):
        parts.append(text[end : mark.start()])
        length += mark.start() - end
        pages.append((length, mark[1]))
        end = mark.end()
    return "".join([*parts, text[end:]]), pages
