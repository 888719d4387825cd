"""Give libraries the parts of an Office file (OOXML) as Office finds them, which is more patient than they are."""

from __future__ import annotations

import posixpath
import re
import xml.etree.ElementTree as ElementTree
from urllib.parse import unquote
from xml.etree.ElementTree import Element

from ..archive import Archive

_TYPES = "[Content_Types].xml"
_OF_TYPES = "{http://schemas.openxmlformats.org/package/2006/content-types}"

#: The beginning of names in a file that is strict about the standard, and of those that it says nothing about.
_STRICT, _PROPERTIES = b"http://purl.oclc.org/ooxml/", "docprops/"
_OF_STRICT, _USUAL = re.compile(re.escape(_STRICT) + rb"(\w+)/"), rb"http://schemas.openxmlformats.org/\1/2006/"

#: The parts that name all others.
_MAIN = re.compile(r"(?:word/document|ppt/presentation|xl/workbook)\d*\.xml", re.IGNORECASE)

#: Kinds of links to parts without text.
_UNUSED = {"theme", "themeOverride", "tags", "presProps", "viewProps", "tableStyles", "printerSettings", "customXml"}

#: Slide shows and templates, which have the same parts as presentations.
_OF_SLIDES = re.compile(r"application/vnd\.[\w.-]+\.(?:slideshow|template|presentation)(?:\.macroEnabled)?\.main\+xml")
_PRESENTATION = "application/vnd.openxmlformats-officedocument.presentationml.presentation.main+xml"


def office_package(archive: Archive) -> Archive:
    """Return a file of Office with the parts that have text, and with links that all lead to a part.

    Names of the strict standard become the usual ones. Parts that are not XML, such as pictures, are empty.
    """
    names = [name for name in archive.names if not name.endswith("/") and not name.lower().startswith(_PROPERTIES)]
    known = {name.lower(): name for name in names}
    parts = {name: b"" for name in names if not _is_xml(name)}
    parts |= {name: archive.read(name) for name in names if name.endswith(".rels") or name == _TYPES}
    mains = (archive.read(name) for name in names if _MAIN.fullmatch(name))
    if any(_STRICT in content for content in (*parts.values(), *mains)):
        written = {name: archive.read(name) for name in filter(_is_xml, names)}
        parts |= {name: _OF_STRICT.sub(_USUAL, content) for name, content in written.items()}
    linked: set[str] = set()
    for name in [name for name in parts if name.endswith(".rels")]:
        links = archive.parse(parts[name])
        folder = posixpath.dirname(posixpath.dirname(name))
        for link in list(links):
            if not _is_used(link, name) or not _is_whole(link, folder, known, parts):
                links.remove(link)
            else:
                linked.add(_path_of(str(link.get("Target")), folder))
        parts[name] = ElementTree.tostring(links)
    without = {name for name in archive.names if name not in known.values()}
    without |= {name for name in names if name.startswith("ppt/") and _part_of(name) not in linked}
    parts = {name: content for name, content in parts.items() if name not in without}
    if _TYPES in parts:
        present = {lower: name for lower, name in known.items() if name not in without}
        parts[_TYPES] = _types(archive.parse(parts[_TYPES]), present)
    return archive.with_parts(parts, without)


def links_of(archive: Archive, part: str) -> dict[str, tuple[str, str]]:
    """Return the kind and the path of each part that a part refers to, by the names that it has for them."""
    folder, name = posixpath.split(part)
    path = f"{folder}/_rels/{name}.rels"
    return {
        str(link.get("Id")): (
            str(link.get("Type")).rpartition("/")[2],
            _path_of(str(link.get("Target")), folder),
        )
        for link in (archive.xml(path) if path in archive else ())
    }


def _path_of(target: str, folder: str) -> str:
    """Return the path of a part that a link of a part in a folder leads to."""
    return posixpath.normpath(posixpath.join("/", folder, target)).lstrip("/")


def _part_of(name: str) -> str:
    """Return the part that links are of, by the name of their file; the name of any other part."""
    folder, name_in_it = posixpath.split(name)
    return f"{posixpath.dirname(folder)}/{name_in_it.removesuffix('.rels')}" if name.endswith(".rels") else name


def _is_used(link: Element, name: str) -> bool:
    """Return whether a link matters to a text: a slide knows its layout, so that the masters need not."""
    kind = str(link.get("Type")).rpartition("/")[2]
    return kind not in _UNUSED and not (kind == "slideLayout" and name.startswith("ppt/slideMasters/"))


def _is_xml(name: str) -> bool:
    return name.lower().endswith((".xml", ".rels"))


def _is_whole(link: Element, folder: str, known: dict[str, str], parts: dict[str, bytes]) -> bool:
    """Return whether a link leads to a part, which it names as the file does from now on."""
    target = link.get("Target")
    if target is None or link.get("Id") is None or link.get("Type") is None:
        return False
    if link.get("TargetMode") == "External":
        return True
    path = _path_of(target, folder)
    if path in parts:
        return True
    if path.lower().startswith(_PROPERTIES):
        return False
    found = known.get(path.lower()) or known.get(unquote(path).lower())
    if found is not None:
        link.set("Target", f"/{found}")
    elif "." in posixpath.basename(path) and not _is_xml(path):  # a picture, whose description alone matters
        parts[path] = b""
        known[path.lower()] = path
    return found is not None or path in parts


def _types(root: Element, known: dict[str, str]) -> bytes:
    """Return the types of all parts."""
    for node in list(root):
        part, kind = node.get("PartName"), node.get("ContentType", "")
        found = None if part is None else known.get(part.lstrip("/").lower())
        if not kind or (part is None and node.get("Extension") is None) or (part is not None and found is None):
            root.remove(node)
            continue
        if found is not None:
            node.set("PartName", f"/{found}")
        node.set("ContentType", _OF_SLIDES.sub(_PRESENTATION, kind))
    typed = {str(node.get("Extension")).lower() for node in root}
    for extension in sorted({name.rpartition(".")[2] for name in known if "." in posixpath.basename(name)} - typed):
        kind = "application/xml" if extension == "xml" else "application/octet-stream"
        ElementTree.SubElement(root, f"{_OF_TYPES}Default", Extension=extension, ContentType=kind)
    return ElementTree.tostring(root)
