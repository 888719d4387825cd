"""Give libraries the parts of an Office file (OOXML) as Office finds them, which is more patient than they are."""

from __future__ import annotations

import io
import posixpath
import re
import xml.etree.ElementTree as ElementTree
import zipfile
from urllib.parse import unquote
from xml.etree.ElementTree import Element

from ..archive import Archive

_TYPES = "[Content_Types].xml"
_OF_TYPES = "{http://schemas.openxmlformats.org/package/2006/content-types}"

#: The beginning of names in a file that is strict about the standard, and of those that it says nothing about.
_STRICT, _PROPERTIES = re.compile(rb"http://purl\.oclc\.org/ooxml/(\w+)/"), "docprops/"

#: Slide shows and templates, which have the same parts as presentations.
_OF_SLIDES = re.compile(r"application/vnd\.[\w.-]+\.(?:slideshow|template|presentation)(?:\.macroEnabled)?\.main\+xml")
_PRESENTATION = "application/vnd.openxmlformats-officedocument.presentationml.presentation.main+xml"


def office_package(archive: Archive) -> Archive:
    """Return a file of Office with the parts that have text, and with links that all lead to a part.

    Names of the strict standard become the usual ones. Parts that are not XML, such as pictures, are empty.
    """
    parts = {
        name: _STRICT.sub(rb"http://schemas.openxmlformats.org/\1/2006/", archive.read(name)) if _is_xml(name) else b""
        for name in archive.names
        if not name.endswith("/") and not name.lower().startswith(_PROPERTIES)
    }
    known = {name.lower(): name for name in parts}
    for name in [name for name in parts if name.endswith(".rels")]:
        links = archive.parse(parts[name])
        folder = posixpath.dirname(posixpath.dirname(name))
        for link in list(links):
            if not _is_whole(link, folder, known, parts):
                links.remove(link)
        parts[name] = ElementTree.tostring(links)
    if _TYPES in parts:
        parts[_TYPES] = _types(archive.parse(parts[_TYPES]), known)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as made:
        for name, content in parts.items():
            made.writestr(name, content)
    return Archive(packed.getvalue(), archive.name)


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
