"""A document of the server's library: by id, by name, and with its parts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...ask.sources.find_sources import Passage
from ...documents.document import document_name
from ...errors import shown
from ...library.document_parts import n_parts_of
from ...library.source_text import SAME, SourceText, state_of_version
from ...runtime.store.index_files import USED
from ...runtime.store.manifest import file_version_of, file_versions_of
from ...system.files import FileVersion


@dataclass(frozen=True, eq=False)
class ServedDocument(SourceText):
    """The text of an upload, of an indexed document, or of a part of one that exceeds the context.

    Parameters
    ----------
    id : str
        Id for clients, the same for all parts of a file.
    folder : Path
        Folder of its index, if it has one.
    manifest : dict
        Manifest of its index.
    state : str
        What became of its file since it was indexed (library/source_text.py); DAMAGED (library/catalogue.py) while its
        index is made again.
    used : float
        When its index was last opened, in seconds since the epoch; 0 if that is unknown.
    copies : tuple of Path
        Other files that have this text now.
    """

    id: str = ""
    folder: Path = Path()
    manifest: dict[str, Any] = field(default_factory=dict)
    state: str = SAME
    used: float = 0.0
    copies: tuple[Path, ...] = ()

    @classmethod
    def indexed(cls, document_id: str, folder: Path, manifest: dict[str, Any]) -> ServedDocument:
        """Return the document of an index."""
        described = manifest["document"]
        name = described["name"]
        path = Path(described.get("path", name))
        version = file_version_of(described)
        return cls(described["sha256"], name, path, version=version, id=document_id, folder=folder, manifest=manifest)

    @property
    def described(self) -> dict[str, Any]:
        """Return the manifest's description of the document; of an upload, nothing."""
        described: dict[str, Any] = self.manifest.get("document", {})
        return described

    @property
    def file_name(self) -> str:
        """Return the name of its file, such as "long.txt"; `name` may be that of a part: "long.txt, part 1 of 3"."""
        return shown(self.path.name) if "part" in self.described and "path" in self.described else self.name

    @property
    def n_parts(self) -> int:
        """Return the number of parts of its file; 1 if it has none."""
        return n_parts_of(self.name) if "part" in self.described else 1

    @property
    def offset(self) -> int:
        """Return the offset of its text in the client's file, in characters."""
        start: int = self.described.get("part", (0,))[0]
        return start

    @property
    def files(self) -> Sequence[Path]:
        """Return its files on this machine. All have this text."""
        return (self.path, *self.copies) if "path" in self.described else ()

    @property
    def names(self) -> list[str]:
        """Return the names of its files, and its own if it is a part."""
        return [self.name, self.file_name, *(document_name(path) for path in self.copies)]

    def parts(self, documents: Iterable[ServedDocument]) -> list[ServedDocument]:
        """Return the parts of its file among some documents, in order; the document alone if it has no parts."""
        if "part" not in self.described:
            return [self]
        parts = {  # the file may have been indexed with another context before
            document.name: document
            for document in documents
            if document.id == self.id and document.n_parts == self.n_parts and "part" in document.described
        }
        return sorted(parts.values(), key=lambda part: part.offset)


def origin_of(file: Path) -> str:
    """Return the folder of a file on this machine for clients, with ~ for the user's own."""
    folder, home = file.parent, Path.home()
    in_home = folder.is_relative_to(home)
    return shown(f"~/{folder.relative_to(home)}".removesuffix("/.") if in_home else str(folder))


def of_current_versions(documents: Sequence[ServedDocument]) -> list[ServedDocument]:
    """Return documents with the states of their files and their last uses, without a file's older versions.

    The version that a file has now counts; if none is indexed, the newest one, which is then an older one itself. Of
    the texts that a file has in several encodings, the newest one counts.

    Parameters
    ----------
    documents : sequence of ServedDocument
        The documents, the newest first.
    """
    states: dict[FileVersion, str] = {}
    counts: dict[str, FileVersion] = {}
    documents = list(map(_with_files, documents))
    for version in (document.version for document in documents):
        if version is not None and version not in states:
            states[version] = state_of_version(version)
            best = counts.setdefault(version.path, version)
            if states[version] == SAME != states[best]:
                counts[version.path] = version

    def counted(version: FileVersion | None) -> bool:
        if version is None or version == (best := counts[version.path]):
            return True
        return states[version] == SAME and version.encoding == best.encoding

    current = [each for each in documents if counted(each.version)]
    return [
        replace(each, state=states[each.version] if each.version else SAME, used=_last_used(each.folder))
        for each in current
    ]


def _with_files(document: ServedDocument) -> ServedDocument:
    """Return a document with the files that have its text now, one of them in place of its own if that has changed."""
    versions = file_versions_of(document.described)
    if len(versions) < 2:
        return document
    first, *others = [each for each in versions if state_of_version(each) == SAME] or versions[:1]
    path, copies = Path(first.path), tuple(Path(each.path) for each in others)
    name = document.name if first == versions[0] or "part" in document.described else document_name(path)
    return replace(document, version=first, path=path, name=name, copies=copies)


def _last_used(folder: Path) -> float:
    """Return when an index was last opened, in seconds since the epoch; 0 if that is unknown."""
    with suppress(OSError):
        return (folder / USED).stat().st_mtime
    return 0.0


def with_id(text: SourceText) -> ServedDocument:
    """Return a document of a context of the server, which has an id."""
    assert isinstance(text, ServedDocument)
    return text


def placed(sources: Sequence[tuple[SourceText, Passage]]) -> list[tuple[ServedDocument, Passage]]:
    """Return sources of an answer with their places in the clients' files."""
    found = [(with_id(document), passage) for document, passage in sources]
    return [
        (document, replace(passage, start=passage.start + document.offset, stop=passage.stop + document.offset))
        for document, passage in found
    ]
