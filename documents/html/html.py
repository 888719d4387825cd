"""Extract HTML as Markdown, without scripts, styles and navigation."""

from __future__ import annotations

import codecs
import re
from html import escape
from itertools import dropwhile
from typing import Any

from ...errors import OctavoError
from ..document import Document
from ..encodings import decode, decode_as, is_damaged_utf_8, loses_little, named_encoding
from ..left_out import LeftOut
from ..markdown import document_of, headings
from .html_elements import HTMLElements, Page
from .style_sheets import apply_style_sheets

#: Where XML and HTML name their encoding, and bytes within which browsers look for it.
_NAMED = re.compile(
    rb"""^\s*<\?xml[^>]*?encoding\s*=\s*["']([^"'>]+)|<\s*meta[^>]+charset\s*=\s*["']?([^>"'\s/;]+)""", re.IGNORECASE
)
_WHERE_NAMED = 4096

#: Text of XHTML that has no marks, and prefixes of its elements.
_CDATA = re.compile(r"<!\[CDATA\[(.*?)\]\]>", re.DOTALL)
_PREFIX = re.compile(r"""\sxmlns:([\w-]+)=["']http://www\.w3\.org/(?:1999/xhtml|1998/Math/MathML|2000/svg)["']""")

#: The elements of a head.
_OF_HEADS = {"meta", "title", "link", "style", "script", "base", "noscript", "template"}

#: Most nested elements of an HTML file: text needs a tenth.
_MOST_NESTED = 300


def extract_html(content: bytes, name: str) -> Document:
    """Extract an HTML file.

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
    page = parse(written, name)
    titles = (title for title in page.iter("title") if title.getparent().tag != "svg")
    title = " ".join("".join(next((each.itertext() for each in titles), ())).split())
    left_out = LeftOut()
    text, pages = to_markdown(page, left_out=left_out)
    if title and not re.search(r"^# ", text, re.MULTILINE):
        head = f"# {title}\n\n"
        text, pages = head + text, [(offset + len(head), label) for offset, label in pages]
    return document_of(text, pages, (*notices, *left_out.notices(name)))


def markdown_of_html(text: str, name: str, left_out: LeftOut | None = None) -> str:
    """Return a part of a document that is HTML as Markdown, with its headings below those of the document."""
    written = to_markdown(parse(text, name), is_site=False, left_out=left_out)[0] if text.strip() else ""
    starts = [start for start, level, _ in headings(written) if level < 6 and written.startswith("#", start)]
    return "#".join(written[start:stop] for start, stop in zip([0, *starts], [*starts, None], strict=True))


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
    found = _NAMED.search(content[:_WHERE_NAMED])
    named = (found[1] or found[2]).decode("latin-1").lower() if found else ""
    has_mark = content.startswith((codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    if named and not has_mark and not named.startswith("utf-16"):  # an ASCII name rules out UTF-16
        encoding = named_encoding(named)
        is_right = is_damaged_utf_8(content) if encoding == "utf-8" else encoding and loses_little(content, encoding)
        if encoding and is_right:
            return decode_as(encoding, content, name)
    return decode(content, name, last="cp1252")


def parse(text: str, name: str) -> Any:
    """Parse HTML or XHTML, however broken.

    Raises
    ------
    OctavoError
        The elements are nested too deeply.
    """
    from lxml import etree

    parser = etree.HTMLParser(encoding="utf-8", huge_tree=True, remove_comments=True, remove_pis=True)
    text = _without_prefixes(_CDATA.sub(lambda data: escape(data[1], quote=False), text.replace("\0", "")))
    content = text.encode("utf-8", errors="replace")
    try:
        root = etree.fromstring(content, parser) if content.strip() else None
    except (etree.LxmlError, ValueError) as problem:
        raise OctavoError(f"{name} cannot be read as HTML: save its text in another format.") from problem
    root = etree.Element("html") if root is None else root
    _fill_body(root)
    depth = 0
    for event, _ in etree.iterwalk(root, events=("start", "end")):
        depth += 1 if event == "start" else -1
        if depth > _MOST_NESTED:
            raise too_deep(name)
    return root


def _fill_body(root: Any) -> None:
    """Move what does not belong in the head into the body: the parser knows no `<section>`."""
    head, body = root.find("head"), root.find("body")
    if head is None:
        return
    strays = list(dropwhile(lambda child: child.tag in _OF_HEADS, head))
    if not strays:
        return
    if body is None:
        body = root.makeelement("body")
        head.addnext(body)
    strays[-1].tail, body.text = f"{strays[-1].tail or ''}{body.text or ''}", None
    for number, stray in enumerate(strays):
        body.insert(number, stray)


def _without_prefixes(text: str) -> str:
    """Return XHTML in which elements of pages, formulas and drawings have no prefix, as the parser knows none."""
    for prefix in set(_PREFIX.findall(text)):
        text = re.sub(rf"<(/?){re.escape(prefix)}:(?=\w)", r"<\1", text)
    return text


def _open_shadow_roots(root: Any) -> None:
    """Put what the shadow root of an element shows in its place, with its own content in the slots."""
    for template in list(root.iter("template")):
        host = template.getparent()
        if template.get("shadowrootmode") is None or host is None:
            continue
        template.tag = "span"
        own = {slot.get("name") or "": slot for slot in list(template.iter("slot"))[::-1]}
        for child in [child for child in host if child is not template]:
            slot = own.get(child.get("slot") or "")
            if slot is not None and "filled" not in slot.attrib:
                for otherwise in list(slot):
                    slot.remove(otherwise)
                slot.text = ""
                slot.set("filled", "")
            host.remove(child) if slot is None else slot.append(child)


def too_deep(name: str) -> OctavoError:
    """Return the error about elements within elements without end."""
    return OctavoError(f"The elements of {name} are nested too deeply: save its text in another format.")


def to_markdown(root: Any, is_site: bool = True, left_out: LeftOut | None = None) -> tuple[str, list[tuple[int, str]]]:
    """Convert parsed HTML to Markdown, and return the starts of its pages, if it marks them.

    Parameters
    ----------
    is_site : bool
        Whether it is a page of a site, whose header, footer and margins belong to the site.
    left_out : LeftOut, optional
        Counts what a page does not show.
    """
    counted = LeftOut()
    elements = HTMLElements(Page(root, is_site, apply_style_sheets(root), counted), labels=[])
    _open_shadow_roots(root)
    elements.walk(root)
    if is_site and not elements.out.text():  # all that there is stands in what looks like margins
        return to_markdown(root, is_site=False, left_out=left_out)
    if left_out is not None:
        left_out.update(counted)
    elements.out.begin_pages()
    return elements.out.text() + "\n", elements.out.pages
