"""The server's library: indexed documents, documents that are being read, and uploads."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from fnmatch import fnmatch
from glob import has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ...ask.answer.answer import ContextShare
from ...ask.context.answer_context import Context
from ...convert.identity import find_index, identity, usable_settings
from ...convert.pipeline import prefill_attention_share
from ...errors import OctavoError
from ...library import catalogue
from ...library.background.reading_queue import STOPPED, QueuedDocument, ReadingQueue, start_reader
from ...library.batch.job import ReadingJob
from ...library.expand_paths import composed
from ...library.file_state import CHANGED
from ...library.file_texts import forget_texts
from ...library.source_text import SourceText
from ...runtime.llama import Llama
from ...runtime.store.index_files import note_use, open_index
from ...runtime.store.library_snapshot import LibrarySnapshot
from ...runtime.store.model_library import Library, folder_name
from ...settings import PREFILLS
from ...system.files import PARTIAL
from ..engine.request import PromptProgress
from ..engine.tasks import Report
from ..request_error import RequestError, without_folders
from .file_json import document_as_json, upload_as_json
from .mapped_documents import MappedDocuments
from .served_document import ServedDocument, of_current_versions, with_id
from .upload_folder import UploadFolder, file_name, find_upload, is_in_folder, uploads_of

if TYPE_CHECKING:
    from collections.abc import Iterator


#: Seconds between looks at what the background reader does, and between attempts to start it.
_LOOK, _START = 0.25, 5.0

#: Seconds between looks for indexes that other processes have removed.
_LOOK_FOR_REMOVED = 5.0


class Found(NamedTuple):
    """The documents of a request: those that are indexed, and uploads that are still being read."""

    read: list[ServedDocument]
    unread: list[QueuedDocument]


class ServedLibrary:
    """The documents of one model's library. Its coroutines belong to the server's loop.

    Attributes
    ----------
    mapped : MappedDocuments
        The documents that are open.
    when_removed : callable
        Receives a function that says of a document whether it was removed.
    others : sequence of Library
        Libraries of the server's other models. Their uploads are read for this model once a request names them.
    """

    def __init__(self, llama: Llama, library: Library, job: ReadingJob) -> None:
        self._llama, self._library, self._job, self._queue = llama, library, job, ReadingQueue()
        self.extraction = job.reading.extraction
        shares = {0.0, *(prefill_attention_share(prefill, llama) for prefill in PREFILLS)}
        self._identities = [
            identity(llama, settings, share) for settings in usable_settings(llama) for share in sorted(shares)
        ]
        self._folder = UploadFolder(uploads_of(library))
        self._has_taken = False
        self._watching: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        self.mapped = MappedDocuments(self._map_index)
        self.when_removed: Callable[[Callable[[SourceText], bool]], None] = lambda is_removed: None
        self.others: Sequence[Library] = ()

    def _uploads(self) -> dict[str, QueuedDocument]:
        """Return the uploads that are being read or could not be, by id, newest first; take those that were read."""
        uploads = self._queue.uploads(self._library.folder)
        self._folder.refresh()  # another server may have taken uploads
        for upload in uploads:
            if upload.folders:
                self._take(upload)
        newest = sorted(uploads, key=lambda upload: (-upload.asked, -upload.place))
        return {upload.file.parent.name: upload for upload in newest if not upload.folders}

    def _take(self, upload: QueuedDocument) -> None:
        """Take the indexes of an upload from the queue; they may be those of another document with its text."""
        document_id, names = upload.file.parent.name, {Path(folder).name for folder in json.loads(upload.folders)}
        self._folder.note_read(document_id)
        original = next((each.id for each in self._indexes() if each.folder.name in names), document_id)
        if original != document_id:
            with suppress(OctavoError):
                self._folder.note_copy(document_id, original)
        self._queue.remove(upload)
        self._has_taken = True

    async def look(self) -> None:
        """See what became of the files of documents, beside the event loop: those that were touched are read."""
        await asyncio.to_thread(self._indexes)

    def _indexes(self) -> list[ServedDocument]:
        """Return the documents, the newest first, without older versions of their files."""
        return of_current_versions(list(self._all_indexes()))

    def _all_indexes(self) -> Iterator[ServedDocument]:
        """Yield each document whose index fits the model's attention, the newest first."""
        snapshot = LibrarySnapshot(self._library)
        for folder, manifest in snapshot.indexes:
            described = manifest["document"]
            sha256 = described["sha256"]
            if any(find_index(self._llama, snapshot, sha256, settings) == folder for settings in self._identities):
                yield ServedDocument.indexed(self._id_of(described), folder, manifest)

    def _documents(self) -> tuple[list[ServedDocument], dict[str, QueuedDocument]]:
        """Return the indexed documents, without the first parts of uploads that are being read; and these uploads."""
        uploads = self._uploads()
        return [document for document in self._indexes() if document.id not in uploads], uploads

    def _id_of(self, described: dict[str, Any]) -> str:
        """Return the id of a document from its content: that of an upload's file, else its text, or its file's version.

        All parts of a file have the same id.
        """
        path = described.get("path", "")
        if self._folder.holds(path):
            return Path(path).parent.name
        if "part" in described:
            version = described.get("content") or f"{described.get('mtime_ns')} {described.get('bytes')}"
            return _id_of_bytes(os.fsencode(f"{path} {version}"))
        return f"file-{described['sha256'][:24]}"

    def _folders_of(self, document_id: str, origin: str = "") -> list[str]:
        """Return the folders that a document is in: that of its file, and those that clients uploaded it from."""
        uploaded = [name for copy in self._folder.copies(document_id) for name in self._folder.folders_of(copy)]
        return list(dict.fromkeys([*([origin] if origin else []), *uploaded]))

    def _is_upload(self, document: ServedDocument) -> bool:
        return self._folder.holds(document.described.get("path", ""))

    def _folders_of_read(self, document: ServedDocument) -> list[str]:
        return self._folders_of(document.id, "" if self._is_upload(document) else document.origin)

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
        documents = self._documents()
        named = [each for name in references for each in self._named(name, *documents)]
        read = {each.folder: each for each in named if isinstance(each, ServedDocument)}
        unread = {each.file: each for each in named if isinstance(each, QueuedDocument)}
        return Found(list(read.values()), list(unread.values()))

    def ids(self, references: Sequence[str]) -> list[list[str]]:
        """Return the ids of the documents that each of a request's names means now; none of an unknown one."""
        documents, found = self._documents(), []
        for reference in references:
            named: Sequence[ServedDocument | QueuedDocument] = ()
            with suppress(RequestError):
                named = self._named(reference, *documents)
            found.append([each.id if isinstance(each, ServedDocument) else each.file.parent.name for each in named])
        return found

    def knows(self, reference: str) -> bool:
        """Return whether a document has an id or a name, or names fit a pattern."""
        try:
            return bool(self._named(reference, *self._documents()))
        except RequestError as problem:
            return problem.status != 404

    async def adopt(self, references: Sequence[str]) -> None:
        """Begin to read the uploads that a request names and that were made for another model."""
        for reference in references if self.others else ():
            if not self.knows(reference) and (file := find_upload(self.others, reference)) is not None:
                await self.add_bytes(file.name, await asyncio.to_thread(file.read_bytes))

    def file_of(self, document_id: str) -> tuple[Path, str]:
        """Return the file of a document, and the hash of the bytes that were indexed, or its first digits, if known.

        Raise RequestError if the file is not there, or has changed.
        """
        upload, document_id = self._uploads().get(document_id), self._folder.copied(document_id)
        if upload is not None:
            return upload.file, _content_of(document_id)
        for each in self._indexes():
            if each.id == document_id and each.version is not None and os.path.isfile(each.version.path):
                content = each.version.content or (_content_of(document_id) if self._is_upload(each) else "")
                if each.state == CHANGED:
                    raise RequestError(f"{each.file_name} has changed since it was indexed.", 404, "not_found")
                return Path(each.version.path), content
        raise RequestError("The file of this document is not there.", 404, "not_found")

    async def open_at(self, document: ServedDocument) -> Context:
        """Open an indexed document. Raise OctavoError if its index is damaged."""
        return await asyncio.to_thread(self.mapped.open, document)

    async def open_text(self, text: SourceText) -> Context:
        """Open the indexed document with a text.

        Raise RequestError if the document was removed, OctavoError if its index is damaged.
        """
        for document in self._indexes():
            if document.sha256 == text.sha256:
                return await self.open_at(document)
        raise RequestError(f"There is no document {text.name}.", 404, "not_found")

    def _named(
        self, reference: str, finished: Sequence[ServedDocument], uploads: Mapping[str, QueuedDocument]
    ) -> Sequence[ServedDocument | QueuedDocument]:
        """Return the documents with an id, or else with a name, or in a folder, or with names that fit a pattern.

        Of several with the same name, the newest counts, which is one that is being read if there is any.
        """
        reading = {name: upload for name, upload in uploads.items() if not upload.problem}
        reference = composed(self._folder.copied(reference))
        for document in finished:
            if document.id == reference:
                return document.parts(other for other in finished if other.id == reference)
        if reference in reading:
            return [reading[reference]]
        if named := self._newest_named(reference, finished, reading):
            return named
        found: list[ServedDocument | QueuedDocument] = []
        found += [document for document in finished if is_in_folder(self._folders_of_read(document), reference)]
        found += [upload for name, upload in reading.items() if is_in_folder(self._folders_of(name), reference)]
        if not found and has_magic(reference):
            found += [document for document in finished if fnmatch(composed(document.name), reference)]
            found += [
                other for other in finished if fnmatch(composed(other.file_name), reference) and other not in found
            ]
            found += [upload for upload in reading.values() if fnmatch(composed(upload.name), reference)]
        for name, upload in uploads.items():
            if not found and upload.problem and reference in (name, composed(upload.name)):
                raise RequestError(f"{upload.name} could not be read: {without_folders(upload.problem)}")
        if not found and (older := next((each for each in self._all_indexes() if each.id == reference), None)):
            changed = f"{older.file_name} has changed, and was indexed again: name the file, or its new id."
            raise RequestError(changed, 404, "not_found")
        if not found:
            raise RequestError(f"There is no document {reference}: upload it to /v1/files first.", 404, "not_found")
        return found

    def _newest_named(
        self, name: str, finished: Sequence[ServedDocument], reading: Mapping[str, QueuedDocument]
    ) -> Sequence[ServedDocument | QueuedDocument]:
        """Return the document with a name, or all parts of it: the one that got the name last. None without one."""
        found: list[tuple[float, Sequence[ServedDocument | QueuedDocument]]] = []
        for document_id, upload in reading.items():
            given = self._folder.names_of(document_id)
            if name in given or name == composed(upload.name):
                found.append((given.get(name, upload.asked), [upload]))
        for document in finished:
            given = self._folder.names_of(document.id)
            if name in given or name in (composed(document.name), composed(document.file_name)):
                made = datetime.fromisoformat(document.manifest["created"]).timestamp()
                parts = [document] if name == composed(document.name) else document.parts(finished)
                found.append((given.get(name, made), parts))
        return max(found, key=lambda each: each[0], default=(0.0, []))[1]

    def _map_index(self, document: ServedDocument) -> Context:
        index, manifest = open_index(document.folder, self._library.model_hash)
        note_use(document.folder)
        return Context.of_whole(self._llama, index, manifest["document"], document, self._share(document))

    def _share(self, document: ServedDocument) -> ContextShare:
        """Return the share of its file's tokens that a document has, which may be a part."""
        if "part" not in document.described:
            return ContextShare("document")
        n_tokens = sum(part.described["tokens"] for part in document.parts(self._documents()[0]))
        return ContextShare("part", share=document.described["tokens"] / n_tokens)

    def know_all(self) -> None:
        """Learn what documents there are, so that prompts that begin with one find it."""
        self.mapped.know(self._documents()[0])

    async def add_bytes(self, name: str, data: bytes, folder: str = "") -> str:
        """Store an upload for the background reader; return its id, which depends on the bytes alone.

        Parameters
        ----------
        name : str
            The client's file name; its folders are ignored.
        folder : str
            The client's folder that it comes from, such as "papers/2024".

        Raises
        ------
        OctavoError
            It cannot be stored.
        """
        own_id = await asyncio.to_thread(_id_of_bytes, data)
        document_id = self._folder.copied(own_id)
        finished, uploads = self._documents()
        upload = uploads.get(document_id)
        is_read = any(document.id == document_id for document in finished)
        if not is_read and (upload is None or upload.problem):
            if upload is not None:
                self._queue.remove(upload)
            document_id = own_id
            file = await asyncio.to_thread(self._folder.store, document_id, name, data)
            self._queue_upload(file)
            self._watch()
        await asyncio.to_thread(self._folder.note_upload, document_id, file_name(name), folder)
        return document_id

    def resume(self) -> None:
        """Have the uploads read that an earlier server left."""
        queued = self._uploads()
        for document_id, file in self._folder.unread():
            if document_id not in queued:  # an older octavo left it, or the queue was deleted
                self._queue_upload(file)
        self._watch()
        self._looking = asyncio.create_task(self._look_for_removed())

    async def _look_for_removed(self) -> None:
        """Close the documents whose indexes other processes remove, as `octavo remove` does."""
        while True:
            await asyncio.sleep(_LOOK_FOR_REMOVED)
            await asyncio.to_thread(self._close_removed)

    def _close_removed(self) -> None:
        if folders := self.mapped.close_removed():
            self.when_removed(lambda text: with_id(text).folder in folders)

    def _queue_upload(self, file: Path) -> None:
        self._queue.add_upload(file, self._library.folder, self._job.anywhere(self._library).as_json())

    def _watch(self) -> None:
        """Keep the background reader running until all uploads are read."""
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._until_read())

    async def _until_read(self) -> None:
        started = -_START
        while True:
            await self._clear_failed()
            if self._has_taken:
                self._has_taken = False
                await asyncio.to_thread(self.know_all)
            pending = [upload for upload in self._uploads().values() if not upload.problem]
            if not pending and not self._has_taken:
                return  # at once: an upload that comes from now on begins this anew
            if pending and time.monotonic() > started + _START:
                started = time.monotonic()
                try:
                    start_reader()
                except OSError as problem:
                    for upload in pending:
                        self._queue.fail(upload, f"It cannot be read: {problem.strerror}.", may_succeed=True)
            await asyncio.sleep(_LOOK if pending else 0)

    async def _clear_failed(self) -> None:
        """Remove the files of uploads that cannot be read, and the indexes of their first parts."""
        uploads = [upload for upload in self._uploads().values() if upload.problem not in ("", STOPPED)]
        failed = {each.file.parent.name: each for each in uploads if not each.may_succeed and each.file.exists()}
        for name in failed:  # at once: a client may upload it again
            self._folder.remove(name)
        with suppress(OctavoError):
            for name in failed:
                await self._remove_indexes(name)  # of its first parts
            if failed:
                await self._forget_texts(upload.path for upload in failed.values())

    async def wait(self, document_id: str, report: Report | None = None) -> None:
        """Wait until a document is read; `report` receives how far it is. Raise RequestError if it cannot be read."""
        while (upload := self._uploads().get(document_id)) is not None:
            if upload.problem:
                raise RequestError(f"{upload.name} could not be read: {without_folders(upload.problem)}")
            self._queue.await_document(upload)
            self._watch()
            if report is not None and upload.total:
                report(PromptProgress(upload.total, upload.before, upload.done, time.time() - upload.began))
            await asyncio.sleep(_LOOK)

    def list(self) -> list[dict[str, Any]]:
        """Describe all documents for clients, the newest first."""
        by_id: defaultdict[str, list[ServedDocument]] = defaultdict(list)
        finished, uploads = self._documents()
        for document in finished:
            by_id[document.id].append(document)
        indexed = [
            document_as_json(first.parts(documents), self._folders_of_read(first), self._is_upload(first))
            for documents in by_id.values()
            for first in documents[:1]
        ]
        begun = [upload_as_json(upload, self._folders_of(name)) for name, upload in uploads.items()]
        return sorted([*begun, *indexed], key=lambda file: -file["created_at"])

    def describe(self, document_id: str) -> dict[str, Any]:
        """Describe a document for clients. Raise RequestError if the document is unknown."""
        files = self.list()
        original = self._folder.copied(document_id)
        for file in files:
            if file["id"] == original:
                return file
        raise RequestError(f"There is no file {document_id}.", 404, "not_found")

    def ids_of(self, document_id: str) -> Sequence[str]:
        """Return the ids of a document and of its copies, the document's own first."""
        return self._folder.copies(self._folder.copied(document_id))

    async def remove(self, document_id: str) -> None:
        """Remove a document's index and its uploaded file; stop reading it.

        Raise RequestError if the document is unknown.
        """
        upload, document_id = self._uploads().get(document_id), self._folder.copied(document_id)
        sources = [*self._folder.files(document_id), *([] if upload is None else [upload.path])]
        sources += [str(each.folder) for each in self._indexes() if each.id == document_id]  # as texts of indexes are
        if upload is not None:
            self._folder.note_read(document_id)  # no server resumes it
            await asyncio.to_thread(self._queue.end, upload)
            for partial in self._library.folder.glob(f"{folder_name(upload.name)}-*{PARTIAL}"):
                with suppress(OctavoError):
                    catalogue.remove(partial)
        if not await self._remove_indexes(document_id) and upload is None:
            raise RequestError(f"There is no file {document_id}.", 404, "not_found")
        self._folder.remove(document_id)
        self.when_removed(lambda text: with_id(text).id == document_id)
        await self._forget_texts(sources)

    async def _forget_texts(self, sources: Iterable[str]) -> None:
        """Forget the texts and the recognised pages of these files alone. Others may be on another drive."""
        await asyncio.to_thread(forget_texts, [self._library.folder], set(sources).__contains__)

    async def _remove_indexes(self, document_id: str) -> int:
        """Remove the indexes of a document, or of its parts, and of older versions of its file; return how many."""
        documents = list(self._all_indexes())
        files = {each.version.path for each in documents if each.id == document_id and each.version}
        folders = [each.folder for each in documents if each.id == document_id or str(each.path) in files]
        for folder in folders:
            await asyncio.to_thread(catalogue.remove, folder)
        await asyncio.to_thread(self._close_removed)
        return len(folders)

    async def close(self) -> None:
        """Leave uploads to the background reader."""
        for task in filter(None, (self._watching, self._looking)):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def _id_of_bytes(data: bytes) -> str:
    """Return the id of a file with these bytes."""
    return f"file-{hashlib.sha256(data).hexdigest()[:24]}"


def _content_of(document_id: str) -> str:
    """Return the first digits of the hash of an upload's bytes, from its id."""
    return document_id.removeprefix("file-")
