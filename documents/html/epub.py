"""Extract EPUB: the parts of a book in reading order."""

from __future__ import annotations

import posixpath
import unicodedata
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any
from urllib.parse import unquote
from xml.etree.ElementTree import Element

from ...errors import OctavoError
from ..archive import Archive
from ..document import Document
from ..left_out import LeftOut
from ..markdown import document_of
from ..xml_text import element_name
from .epub_contents import Entry, contents_of_links, contents_of_points, mark_headings
from .html import decode_html, parse, to_markdown

_CONTAINER, _ENCRYPTION = "META-INF/container.xml", "META-INF/encryption.xml"

#: Characters in which a book has its title and its authors, if it has a title page.
_TITLE_PAGES = 2000

#: Ways to obfuscate fonts; they do not protect text.
_OF_FONTS = ("http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC")


def extract_epub(archive: Archive) -> Document:
    """Extract a book.

    Raises
    ------
    OctavoError
        The book is damaged, its text is protected, or it has only pictures.
    """
    _refuse_protection(archive)
    package_name = next((root.get("full-path") or "" for root in _elements(archive.xml(_CONTAINER), "rootfile")), "")
    if (package_path := _path(archive, "", package_name)) is None:
        raise archive.damaged()
    folder, package = posixpath.dirname(package_path), archive.xml(package_path)
    items = {entry.get("id"): entry for entry in _elements(package, "item")}
    contents = _contents(archive, folder, list(items.values()))
    text, pages, left_out = "", list[tuple[int, str]](), LeftOut()
    spine = dict.fromkeys(reference.get("idref") for reference in _elements(package, "itemref"))
    paths = [_path(archive, folder, items[name].get("href") or "") for name in spine if name in items]
    left_out["missing chapter"] = paths.count(None)  # the rest of the book is read

    @cache
    def sheet(folder: str, href: str) -> str | None:
        path = _path(archive, folder, href)
        return None if path is None else archive.read(path).decode("utf-8", errors="replace")

    for path in dict.fromkeys(filter(None, paths)):
        if path.lower().endswith((".jpg", ".jpeg", ".png", ".gif", ".webp")):
            left_out["picture"] += 1
            continue
        root = parse(decode_html(archive.read(path), archive.name)[0], archive.name)
        _put_sheets(root, posixpath.dirname(path), sheet)
        if own := [entry for entry in contents if entry.path == path]:
            mark_headings(root, own)
        part, own_pages = to_markdown(root, is_site=False, left_out=left_out)
        if part.strip():
            text += "\n" if text else ""
            pages += [(len(text) + offset, label) for offset, label in own_pages]
            text += part
    if not text and left_out["picture"]:
        raise OctavoError(
            f"{archive.name} has only pictures: make a PDF of it, whose pages octavo can recognise (OCR)."
        )
    head = _head(package, text)
    pages = [(len(head) + offset, label) for offset, label in pages]
    return document_of(head + text, pages, left_out.notices(archive.name))


def _path(archive: Archive, folder: str, href: str) -> str | None:
    """Return the file that a link in a folder of a book names; None if there is none.

    Programs write names of files in other forms than links: with %20 in both, in capitals, or with letters and accents
    apart. A link may name a place in the file, too.
    """
    paths = []
    for name in (unquote(href), href, unquote(href.partition("#")[0]), href.partition("#")[0]):
        path = posixpath.normpath(posixpath.join(folder, name.replace("\\", "/"))).lstrip("/")
        if path in archive:
            return path
        paths.append(_comparable(path))
    names = {_comparable(name): name for name in archive.names}
    return next((names[path] for path in paths if path in names), None)


def _put_sheets(root: Any, folder: str, sheet: Callable[[str, str], str | None]) -> None:
    """Put the style sheets that a page names in the place of their names, as they may hide text."""
    for link in list(root.iter("link")):
        is_sheet = (link.get("rel") or "").lower() == "stylesheet"
        if is_sheet and (text := sheet(folder, link.get("href") or "")) is not None:
            link.tag, link.text = "style", text


def _comparable(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def _contents(archive: Archive, folder: str, items: list[Element]) -> list[Entry]:
    """Return the table of contents: a page of links, or the points that older books have; empty without one."""
    entries: list[Entry] = []
    for item in sorted(items, key=lambda item: "nav" not in (item.get("properties") or "").split()):
        path = _path(archive, folder, item.get("href") or "")
        is_page = "nav" in (item.get("properties") or "").split()
        if entries or path is None or not (is_page or item.get("media-type") == "application/x-dtbncx+xml"):
            continue
        with suppress(OctavoError):  # a book can be read without it
            if is_page:
                found = contents_of_links(parse(decode_html(archive.read(path), archive.name)[0], archive.name))
            else:
                found = contents_of_points(archive.xml(path))
            for title, href, level in found:
                file, _, place = href.partition("#")
                target = path if not file else _path(archive, posixpath.dirname(path), file)
                entries += [Entry(target, unquote(place), title, level)] if target else []
    return entries


def _head(package: Element, text: str) -> str:
    """Return a book's title and authors as its first lines, but for what its first pages have."""
    beginning = " ".join(text[:_TITLE_PAGES].casefold().split())
    head = ""
    for element, line in (("title", "# {}\n\n"), ("creator", "{}\n\n")):
        names = (" ".join("".join(node.itertext()).split()) for node in _elements(package, element))
        missing = [name for name in dict.fromkeys(names) if name and name.casefold() not in beginning]
        head += line.format(" / ".join(missing)) if missing else ""
    return head


def _refuse_protection(archive: Archive) -> None:
    """Raise OctavoError if anything except fonts is encrypted."""
    if _ENCRYPTION not in archive:
        return
    methods = [method.get("Algorithm") for method in _elements(archive.xml(_ENCRYPTION), "EncryptionMethod")]
    if any(method not in _OF_FONTS for method in methods):
        raise OctavoError(f"{archive.name} is protected (DRM): octavo reads books that are not.")


def _elements(root: Element, name: str) -> list[Element]:
    """Return the elements of a name, in any namespace."""
    return [node for node in root.iter() if element_name(node) == name]
