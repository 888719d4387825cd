"""Read HTML as Markdown, without scripts, styles and navigation."""

from __future__ import annotations

import codecs
import re
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..errors import OctavoError
from .document import Document
from .encodings import decode, decode_as, is_damaged_utf_8, loses_little
from .markdown import document_of

if TYPE_CHECKING:
    from bs4 import BeautifulSoup, Tag

#: Elements without text.
_SILENT = ["script", "style", "template", "noscript", "svg", "iframe", "object", "button"]
_SILENT += ["nav", "aside", "head", "title"]

#: Links without information: to a heading itself, and back from a note.
_SIGNS_OF_LINKS = {"¶", "#", "§", "🔗", "↩", "↩\ufe0e", "↩\ufe0f", "↑", "^"}

#: Elements of a site, unless they are in an article.
_OF_SITES = ["header", "footer"]

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
    from bs4 import BeautifulSoup

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about XHTML read as HTML, and text that looks like a path
        try:
            soup = BeautifulSoup(text.translate(_UNWRITTEN), "lxml")
        except (RecursionError, AssertionError, ValueError) as problem:
            raise OctavoError(f"{name} cannot be read as HTML: save its text in another format.") from problem
    depth, tag = 0, soup.find(True)
    while tag is not None:
        depth = max(depth, sum(1 for _ in tag.parents))
        if depth > _MOST_NESTED:
            raise OctavoError(f"The elements of {name} are nested {depth} deep: save its text in another format.")
        tag = tag.find_next(True)
    return soup


def to_markdown(soup: BeautifulSoup) -> tuple[str, list[tuple[int, str]]]:
    """Convert parsed HTML to Markdown, and return the starts of its pages, if it marks them."""
    from bs4.element import PreformattedString

    for node in soup.find_all(string=lambda text: isinstance(text, PreformattedString)):
        node.extract()  # comments and declarations
    for tag in soup.find_all(_SILENT):
        tag.decompose()
    for tag in soup.find_all(_OF_SITES):
        if not tag.decomposed and tag.find_parent(["article", "main", "section"]) is None:
            tag.decompose()
    for table in soup.find_all("table"):
        if table.find("table") or all(len(row.find_all(["td", "th"])) < 2 for row in table.find_all("tr")):
            _unwrap_layout(table)
    for cell in soup.find_all(string=re.compile(r"\|")):
        if cell.find_parent("table") and cell.find_parent("pre") is None:
            cell.replace_with(cell.replace("|", "\\|"))
    for tag in soup.find_all(True):
        if not tag.decomposed:
            _simplify(soup, tag)
    for node in soup.find_all(string=re.compile(r"[^\S ]|  ")):
        if node.find_parent(["pre", "textarea"]) is None:
            node.replace_with(re.sub(r"\s+", " ", node))
    text = _converter().convert_soup(soup)
    text = "\n".join(line.rstrip(" \t") for line in text.split("\n"))
    text = _BLANKS_AFTER_PAGES.sub(r"\1", text)
    return _take_pages(re.sub(r"\n{3,}", "\n\n", text).strip() + "\n")


def _unwrap_layout(table: Tag) -> None:
    """Flatten a table that contains tables, or has only one column: it serves as layout."""
    for part in table.find_all(["thead", "tbody", "tr", "td", "th"]):
        if part.find_parent("table") is table:
            part.name = "div"
    table.name = "div"


def _simplify(soup: BeautifulSoup, tag: Tag) -> None:
    """Remove a hidden or empty element, mark one that begins a page, and write formulas as TeX."""
    style = str(tag.get("style") or "").replace(" ", "").lower()
    if tag.has_attr("hidden") or "display:none" in style or "visibility:hidden" in style:
        tag.decompose()
        return
    if tag.name == "a" and tag.get_text(strip=True) in _SIGNS_OF_LINKS:
        tag.decompose()
        return
    if tag.name == "math" and (tex := tag.find("annotation")):
        tag.replace_with(soup.new_string(f"${tex.get_text(strip=True)}$"))
        return
    if "pagebreak" in _kind(tag):
        label = str(tag.get("title") or tag.get("aria-label") or tag.get_text(strip=True))
        tag.replace_with(soup.new_string(_PAGE.format(label.strip()) if label.strip() else ""))


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
