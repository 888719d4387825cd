"""Extract EPUB: the parts of a book in reading order."""

from __future__ import annotations

import posixpath
from urllib.parse import unquote
from xml.etree.ElementTree import Element

from ...errors import OctavoError
from ..archive import Archive
from ..document import Document
from ..markdown import document_of
from ..xml_text import element_name
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
        The book is damaged, or its text is protected.
    """
    _refuse_protection(archive)
    package_path = next((root.get("full-path") for root in _elements(archive, _CONTAINER, "rootfile")), None)
    if package_path is None:
        raise archive.damaged()
    folder = posixpath.dirname(package_path)
    hrefs = {entry.get("id"): entry.get("href") for entry in _elements(archive, package_path, "item")}
    text, pages = "", []
    for name in dict.fromkeys(reference.get("idref") for reference in _elements(archive, package_path, "itemref")):
        href = hrefs.get(name)
        path = posixpath.normpath(posixpath.join(folder, unquote(href))) if href else ""
        if path not in archive:
            continue  # read the rest of a book that lacks a part
        part, own_pages = to_markdown(
            parse(decode_html(archive.read(path), archive.name)[0], archive.name), is_site=False
        )
        if part.strip():
            text += "\n" if text else ""
            pages += [(len(text) + offset, label) for offset, label in own_pages]
            text += part
    head = _head(archive, package_path, text)
    return document_of(head + text, [(len(head) + offset, label) for offset, label in pages])


def _head(archive: Archive, package_path: str, text: str) -> str:
    """Return a book's title and authors as its first lines, but for what its first pages have."""
    beginning = " ".join(text[:_TITLE_PAGES].casefold().split())
    head = ""
    for element, line in (("title", "# {}\n\n"), ("creator", "{}\n\n")):
        names = (" ".join("".join(node.itertext()).split()) for node in _elements(archive, package_path, element))
        missing = [name for name in dict.fromkeys(names) if name and name.casefold() not in beginning]
        head += line.format(" / ".join(missing)) if missing else ""
    return head


def _refuse_protection(archive: Archive) -> None:
    """Raise OctavoError if anything except fonts is encrypted."""
    if _ENCRYPTION not in archive:
        return
    methods = [method.get("Algorithm") for method in _elements(archive, _ENCRYPTION, "EncryptionMethod")]
    if any(method not in _OF_FONTS for method in methods):
        raise OctavoError(f"{archive.name} is protected (DRM): octavo reads books that are not.")


def _elements(archive: Archive, path: str, name: str) -> list[Element]:
    """Return an XML file's elements of a name, in any namespace."""
    return [node for node in archive.xml(path).iter() if element_name(node) == name]
