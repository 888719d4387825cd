"""Open zip archives (EPUB, DOCX) without trusting them. Nothing is written to disk."""

from __future__ import annotations

import io
import xml.etree.ElementTree as ElementTree
import zipfile
import zlib
from collections.abc import Collection, Iterable
from copy import copy

from ..errors import OctavoError

#: Most files of an archive; most unpacked bytes of all files that shrink by half; and the largest ratio beyond that:
#: text shrinks to a tenth, seldom to a fiftieth, and pictures hardly.
_MOST_FILES, _MOST_BYTES, _MOST_RATIO = 20_000, 256 << 20, 200

#: Most bytes of XML and HTML, whose elements take ten times as many, and names of files of it that are read in pieces.
_MOST_XML, _IN_PIECES = 64 << 20, ("xl/worksheets/", "xl/sharedStrings")


class Archive:
    """A zip archive, whose files are read into memory.

    Raises
    ------
    OctavoError
        The archive is damaged, or unpacks to more than a document can be.
    """

    def __init__(self, content: bytes, name: str) -> None:
        self.name = name
        try:
            self._archive = zipfile.ZipFile(io.BytesIO(content))
        except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError, RuntimeError, EOFError) as problem:
            raise self.damaged() from problem
        files = self._archive.infolist()
        n_bytes = sum(file.file_size for file in files)
        limit = max(_MOST_BYTES, 2 * len(content))
        if len(files) > _MOST_FILES or n_bytes > min(limit, max(_MOST_RATIO * len(content), 1 << 20)):
            raise OctavoError(
                f"{name} unpacks to {n_bytes / 2**20:,.0f} MiB in {len(files):,} files, which no document needs: it is "
                "refused as a zip bomb may do the same. Save the document's text in another format."
            )
        n_xml = sum(file.file_size for file in files if _is_tree(path_in_archive(file.filename)))
        if n_xml > _MOST_XML:
            raise OctavoError(
                f"{name} has {n_xml / 2**20:,.0f} MiB of text with its marks, and octavo reads at most "
                f"{_MOST_XML >> 20}: split it, or save it as plain text."
            )
        self._files = {path_in_archive(file.filename): file for file in files}
        self._parts: dict[str, bytes] = {}  # in place of files

    @property
    def names(self) -> list[str]:
        """Return the paths of its files, sorted."""
        return sorted({*self._files, *self._parts})

    def __contains__(self, path: str) -> bool:
        return (path := path_in_archive(path)) in self._parts or path in self._files

    def with_parts(self, parts: dict[str, bytes], without: Collection[str] = ()) -> Archive:
        """Return the archive with other files in place of its own, and without some of them."""
        changed = copy(self)
        changed._files = {path: file for path, file in self._files.items() if path not in without}
        changed._parts = self._parts | parts
        return changed

    def packed(self, names: Iterable[str]) -> bytes:
        """Return some of its files as an archive."""
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            for name in names:
                archive.writestr(zipfile.ZipInfo(name), self.read(name))
        return out.getvalue()

    def read(self, path: str) -> bytes:
        """Return a file of the archive.

        Raises
        ------
        OctavoError
            The file is missing, encrypted, or damaged.
        """
        path = path_in_archive(path)
        if path in self._parts:
            return self._parts[path]
        file = self._files.get(path)
        if file is None:
            raise self.damaged()
        try:
            with self._archive.open(file) as opened:
                content = opened.read(file.file_size + 1)
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, ValueError) as problem:
            raise self.damaged() from problem
        except RuntimeError as problem:  # zipfile's error for a file that needs a password
            raise OctavoError(f"{self.name} is encrypted: save it without a password.") from problem
        if len(content) != file.file_size:
            raise self.damaged()
        return content

    def xml(self, path: str) -> ElementTree.Element:
        """Parse an XML file of the archive; raise OctavoError for a damaged one."""
        return self.parse(self.read(path))

    def parse(self, content: bytes) -> ElementTree.Element:
        """Parse XML that a file of the archive holds. Expat limits the expansion of entities."""
        try:
            return ElementTree.fromstring(content)
        except (ElementTree.ParseError, ValueError, LookupError) as problem:
            raise self.damaged() from problem

    def damaged(self) -> OctavoError:
        """Return the error about a damaged archive."""
        return OctavoError(f"{self.name} is damaged: download or save it again.")


def path_in_archive(name: str) -> str:
    """Return the path of a file by its name, which some programs write as paths of Windows or from the root on."""
    return name.replace("\\", "/").lstrip("/")


def _is_tree(path: str) -> bool:
    """Return whether a file of an archive becomes a tree of elements as a whole."""
    return path.endswith((".xml", ".html", ".htm", ".xhtml", ".rels")) and not path.startswith(_IN_PIECES)
