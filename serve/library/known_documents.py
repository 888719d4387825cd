"""What documents a library had at one look: those that are indexed, and those that are being read."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from fnmatch import fnmatch
from glob import has_magic
from pathlib import Path
from typing import Any, NamedTuple

from ...library.background.reading_queue import QueuedDocument
from ...library.expand_paths import composed, distinct_names
from ...library.source_text import CHANGED, GONE
from ..request_error import RequestError, without_folders
from .file_json import document_as_json, upload_as_json
from .served_document import ServedDocument, origin_of
from .upload_folder import UploadFolder, is_in_folder


class Found(NamedTuple):
    """The documents of a request: those that are indexed, and by id those that are still being read."""

    read: list[ServedDocument]
    unread: dict[str, QueuedDocument]


#: A document with its id.
_Named = tuple[str, ServedDocument | QueuedDocument]


class KnownDocuments:
    """The documents of one look.

    Parameters
    ----------
    versions : sequence of ServedDocument
        The indexed documents, with older versions of their files, the newest first.
    read : sequence of ServedDocument
        Those of them that count.
    unread : mapping of str to QueuedDocument
        Those that are being read or could not be, by id, the newest first. What is indexed of them does not count.
    uploads : UploadFolder
        What clients told of their uploads.
    notices_of : callable
        Returns what the kept text of a document that is being read lacks, in sentences.
    """

    def __init__(
        self,
        versions: Sequence[ServedDocument],
        read: Sequence[ServedDocument],
        unread: Mapping[str, QueuedDocument],
        uploads: UploadFolder,
        notices_of: Callable[[QueuedDocument], Sequence[str]],
    ) -> None:
        self.versions, self.unread, self._uploads, self._notices_of = versions, unread, uploads, notices_of
        self.read = [document for document in read if document.id not in unread]
        self._by_id: defaultdict[str, list[ServedDocument]] = defaultdict(list)
        for document in self.read:
            self._by_id[document.id].append(document)

    def __len__(self) -> int:
        """Return how many documents clients see."""
        return len(self._by_id) + len(self.unread)

    def find(self, references: Sequence[str]) -> Found:
        """Find documents by a request's names, each once.

        Parameters
        ----------
        references : sequence of str
            Ids, names, folders, which stand for the documents in them, and patterns of names, such as "*.pdf".

        Raises
        ------
        RequestError
            A name is unknown, a pattern fits no document, or a document could not be read.
        """
        named = [each for name in references for each in self._named(name)]
        read = {each.folder: each for _, each in named if isinstance(each, ServedDocument)}
        return Found(list(read.values()), {name: each for name, each in named if isinstance(each, QueuedDocument)})

    def ids(self, references: Sequence[str]) -> list[list[str]]:
        """Return the ids of the documents that each of a request's names means; none of an unknown one."""
        found = []
        for reference in references:
            named: Sequence[_Named] = ()
            with suppress(RequestError):
                named = self._named(reference)
            found.append([document_id for document_id, _ in named])
        return found

    def knows(self, reference: str) -> bool:
        """Return whether a document has an id or a name, or names fit a pattern."""
        try:
            return bool(self._named(reference))
        except RequestError as problem:
            return problem.status != 404

    def with_text(self, sha256: str) -> ServedDocument | None:
        """Return the indexed document with a text; None without one."""
        return next((document for document in self.read if document.sha256 == sha256), None)

    def files(self) -> list[dict[str, Any]]:
        """Describe all documents for clients, the newest first. It looks at files that are being read."""
        found = [self._described(document_id) for document_id in (*self.unread, *self._by_id)]
        return sorted(found, key=lambda file: -file["created_at"])

    def describe(self, document_id: str) -> dict[str, Any]:
        """Describe a document for clients. Raise RequestError if the document is unknown."""
        original = self._uploads.copied(document_id)
        if original not in self.unread and original not in self._by_id:
            raise RequestError(f"There is no file {document_id}.", 404, "not_found")
        return self._described(original)

    def _described(self, document_id: str) -> dict[str, Any]:
        if (upload := self.unread.get(document_id)) is not None:
            folders = self._folders_of(document_id, upload)
            return upload_as_json(document_id, upload, folders, self._notices_of(upload))
        first, *others = self._by_id[document_id]
        parts = first.parts([first, *others])
        return document_as_json(parts, self._folders_of(document_id, first), self._is_upload(first))

    def file_of(self, document_id: str) -> tuple[Path, str]:
        """Return the file of a document, and the hash of the bytes that were indexed, or its first digits, if known.

        Raise RequestError if the file is not there, or has changed.
        """
        original = self._uploads.copied(document_id)
        if (upload := self.unread.get(original)) is not None:
            return upload.file, _content_of(original) if upload.is_upload else ""
        for each in self._by_id.get(original, ()):
            if each.version is not None and os.path.isfile(each.version.path):
                content = each.version.content or (_content_of(original) if self._is_upload(each) else "")
                if each.state == CHANGED:
                    raise RequestError(f"{each.file_name} has changed since it was indexed.", 404, "not_found")
                return Path(each.version.path), content
        raise RequestError("The file of this document is not there.", 404, "not_found")

    def _is_upload(self, document: ServedDocument) -> bool:
        return self._uploads.holds(document.described.get("path", ""))

    def _folders_of(self, document_id: str, document: ServedDocument | QueuedDocument) -> list[str]:
        """Return the folders that a document is in: its file's, and the ones that clients uploaded it from."""
        files = document.files if isinstance(document, ServedDocument) else [document.file]
        origins = [origin_of(file) for file in files if not self._uploads.holds(str(file))]
        uploaded = [name for copy in self._uploads.copies(document_id) for name in self._uploads.folders_of(copy)]
        return list(dict.fromkeys([*origins, *uploaded]))

    def _named(self, reference: str) -> Sequence[_Named]:
        """Return the documents with an id, or else with a name, or in a folder, or with names that fit a pattern.

        A folder and a pattern return their documents by name, and parts in order. Raise RequestError if several files
        of this machine have the name.
        """
        reading = {name: upload for name, upload in self.unread.items() if not upload.problem}
        reference = composed(self._uploads.copied(reference))
        if of_id := self._by_id.get(reference):
            return [(each.id, each) for each in of_id[0].parts(of_id)]
        if reference in reading:
            return [(reference, reading[reference])]
        if named := self._newest_named(reference, reading):
            return named
        read: list[_Named] = [(each.id, each) for each in self.read]
        found = [named for named in (*read, *reading.items()) if is_in_folder(self._folders_of(*named), reference)]
        if not found and has_magic(reference):
            fitting = [each for each in self.read if any(fnmatch(composed(name), reference) for name in each.names)]
            found += [(each.id, each) for each in fitting]
            found += [(name, upload) for name, upload in reading.items() if fnmatch(composed(upload.name), reference)]
        if not found:
            raise self._not_found(reference)
        return sorted(found, key=_place)

    def _not_found(self, reference: str) -> RequestError:
        """Return why a reference means no document."""
        for name, upload in self.unread.items():
            if upload.problem and reference in (name, composed(upload.name)):
                return RequestError(f"{upload.name} could not be read: {without_folders(upload.problem)}")
        if older := next((each for each in self.versions if each.id == reference), None):
            changed = f"{older.file_name} has changed, and was indexed again: name the file, or its new id."
            return RequestError(changed, 404, "not_found")
        return RequestError(f"There is no document {reference}: upload it to /v1/files first.", 404, "not_found")

    def _newest_named(self, name: str, reading: Mapping[str, QueuedDocument]) -> Sequence[_Named]:
        """Return the document with a name, or all parts of it. None without one.

        Of uploads with the same name, the last one counts. A file of this machine has the end of its path as a name,
        too; raise RequestError if several files that are there have the name, and no upload does.
        """
        found: list[tuple[float, Sequence[_Named]]] = []
        paths = set[str]()
        for document_id, upload in reading.items():
            given = self._uploads.names_of(document_id)
            if name in given or name == composed(upload.name) or self._ends_with(upload.path, name):
                found.append((given.get(name, upload.asked), [(document_id, upload)]))
                paths.add("" if name in given or upload.is_upload else upload.path)
        for document in self.read:
            given = self._uploads.names_of(document.id)
            is_at_end = any(self._ends_with(str(path), name) for path in (document.of_file, *document.copies))
            if name in given or name in map(composed, document.names) or is_at_end:
                made = datetime.fromisoformat(document.manifest["created"]).timestamp()
                parts = [document] if name == composed(document.name) else document.parts(self._by_id[document.id])
                at = given.get(name, 0.0 if document.state == GONE else made)
                found.append((at, [(each.id, each) for each in parts]))
                if document.state != GONE:
                    paths.add("" if name in given or self._is_upload(document) else document.of_file)
        if len(paths) > 1 and "" not in paths:
            listed = ", ".join(sorted(distinct_names(paths).values()))
            raise RequestError(f"Several documents are named {name}: {listed}. Give one of these names.")
        return max(found, key=lambda each: each[0], default=(0.0, []))[1]

    def _ends_with(self, path: str, name: str) -> bool:
        """Return whether a name is the end of the path of a file, and that is not an upload."""
        return composed(path).endswith(f"/{name}") and not self._uploads.holds(path)


def _place(named: _Named) -> tuple[str, str, int]:
    """Return what documents are sorted by."""
    document = named[1]
    if isinstance(document, ServedDocument):
        return document.file_name, document.of_file, document.offset
    return document.name, document.path, 0


def _content_of(document_id: str) -> str:
    """Return the first digits of the hash of an upload's bytes, from its id."""
    return document_id.removeprefix("file-")
