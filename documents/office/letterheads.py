"""Read letterheads: the text on top and at the foot of all pages, once, without the numbers of pages."""

from __future__ import annotations

import re

#: Parts the head, the text and the foot of a document; and replaces the number of a page.
SEPARATOR, PAGE = "\ue004", "\ue005"

#: What parts a number of a page from other text in a line.
_PARTED = re.compile(r"\t+| {3,}| [|·•–—-] ")  # noqa: RUF001

#: Words for pages, and a number of a page, or two ("page 3 of 9"), with such words around it.
_WORDS = (
    r"pages?|pg?|seiten?|blatt|s|sider?|sid[ao]r?|sivu|p[áa]g(?:ina)?s?|folio|feuille|hoja|bladzijden?|blz|bls|stron[ay]?"
    r"|str(?:an[ay]|ánka|anica)?|oldal|sayfa|halaman|hal|trang|lpp|psl|lk|n[ro]|страница|стр|сторінка|стор|σελίδα|σελ"
    r"|第|ページ|頁|页|쪽|페이지|صفحة|עמוד|หน้า|पृष्ठ"
)
_NUMBER = re.compile(
    rf"[(,;]?\s*(?:\b(?:{_WORDS})[.:]?\s*)?{PAGE}(?:[^{PAGE}]{{0,12}}{PAGE})?(?:\s*(?:{_WORDS}|[^\W\d_]{{1,2}})\b)?\)?",
    re.IGNORECASE,
)


def without_page_numbers(line: str) -> str:
    """Return a line of a head or foot without the numbers of pages and the words that belong to them."""
    if PAGE not in line:
        return line
    rest = " ".join(filter(None, (_NUMBER.sub("", part).strip() for part in _PARTED.split(line))))
    return rest if re.search(r"(?:\w\W*){3}|[\u3040-\u9fff\uac00-\ud7af]", rest) else ""


def with_letterheads(text: str) -> str:
    """Put the head, the text and the foot of a Markdown text together, which separators part.

    A paragraph of head or foot is written once, and not at all if the text has it.

    Parameters
    ----------
    text : str
        The three parts, with a separator after the first and the second.
    """
    head, body, foot = (part.strip("\n") for part in text.split(SEPARATOR))
    written = [body]
    for number, part in ((0, head), (2, foot)):
        blocks = (block for block in dict.fromkeys(part.split("\n\n")) if block.strip() and block.strip() not in body)
        written.insert(number, "\n\n".join(blocks))
    return "\n\n".join(filter(None, written)) + "\n"
