"""The server's library: indexed documents, documents that are being read, and uploads."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatch
from glob import has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...ask.answer.answer import Basis
from ...ask.context.answer_context import Context
from ...ask.context.document_set import OpenIndex
from ...ask.search.ranking import Span
from ...convert.identity import find_index, identity, usable_settings
from ...convert.pipeline import prefill_attention_share
from ...errors import OctavoError
from ...library import catalogue
from ...library.background.background_reader import start_reader
from ...library.background.reading_queue import STOPPED, QueuedDocument, ReadingQueue
from ...library.batch.job import ReadingJob
from ...library.file_texts import forget_texts
from ...library.source_text import SourceText
from ...library.text_store import is_gone
from ...runtime.llama import Llama
from ...runtime.sequences.sequence import n_common
from ...runtime.store.index_files import open_index
from ...runtime.store.library_snapshot import LibrarySnapshot
from ...runtime.store.model_library import Library, folder_name
from ...settings import PREFILLS
from ...system.files import PARTIAL
from ..engine.request import PromptProgress
from ..engine.tasks import Report
from ..request_error import RequestError, without_folders
from .file_json import document_as_json, upload_as_json
from .served_document import ServedDocument, with_id
from .upload_folder import UploadFolder, file_name, find_upload, is_in_folder, uploads_of

if TYPE_CHECKING:
    from collections.abc import Iterator


#: Seconds between looks at what the background reader does, and between attempts to start it.
_LOOK, _START = 0.25, 5.0


class Found(NamedTuple):
    """The documents of a request: those that are indexed, and uploads that are still being read."""

    read: list[ServedDocument]
    unread: list[QueuedDocument]


class ServedLibrary:
    """The documents of one model's library. Its coroutines belong to the server's loop.

    Attributes
    ----------
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
        self._later_names: dict[str, str] = {}  # of files that were uploaded again, with their ids
        self._has_taken = False
        self._watching: asyncio.Task[None] | None = None
        self._lock = threading.Lock()
        self._opened: dict[Path, Context] = {}
        self.when_removed: Callable[[Callable[[SourceText], bool]], None] = lambda is_removed: None
        self.others: Sequence[Library] = ()

    def _uploads(self) -> dict[str, QueuedDocument]:
        """Return the uploads that are being read or could not be, by id, newest first; take those that were read."""
        uploads = self._queue.uploads(self._library.folder)
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

    def _indexes(self) -> Iterator[ServedDocument]:
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
            version = f"{path} {described.get('mtime_ns')} {described.get('bytes')}"
            return f"file-{hashlib.sha256(version.encode()).hexdigest()[:24]}"
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

    def file_of(self, document_id: str) -> Path | None:
        """Return the file of a document, if it is there; None without one."""
        upload, document_id = self._uploads().get(document_id), self._folder.copied(document_id)
        paths = [str(upload.file)] if upload is not None else []
        paths += [each.described.get("path", "") for each in self._indexes() if each.id == document_id]
        return next((Path(path) for path in paths if path and os.path.isfile(path)), None)

    async def open_at(self, document: ServedDocument) -> Context:
        """Open an indexed document. Raise OctavoError if its index is damaged."""
        return await asyncio.to_thread(self._open, document)

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
        reference = self._folder.copied(reference)
        for document in finished:
            if document.id == reference:
                return document.parts(other for other in finished if other.id == reference)
        for name, upload in reading.items():
            if reference in (name, upload.name):
                return [upload]
        for document in finished:
            if document.name == reference:
                return [document]
        for document in finished:
            if document.file_name == reference:
                return document.parts(finished)
        found: list[ServedDocument | QueuedDocument] = []
        found += [document for document in finished if is_in_folder(self._folders_of_read(document), reference)]
        found += [upload for name, upload in reading.items() if is_in_folder(self._folders_of(name), reference)]
        if not found and has_magic(reference):
            found += [document for document in finished if fnmatch(document.name, reference)]
            found += [other for other in finished if fnmatch(other.file_name, reference) and other not in found]
            found += [upload for upload in reading.values() if fnmatch(upload.name, reference)]
        for name, upload in uploads.items():
            if not found and upload.problem and reference in (name, upload.name):
                raise RequestError(f"{upload.name} could not be read: {without_folders(upload.problem)}")
        known = self._later_names.get(reference)
        if not found and known is not None:
            found += next((document.parts(finished) for document in finished if document.id == known), ())
            found += [] if found or known not in reading else [reading[known]]
        if not found:
            raise RequestError(f"There is no document {reference}: upload it to /v1/files first.", 404, "not_found")
        return found

    def _open(self, document: ServedDocument) -> Context:
        path = document.folder
        with self._lock:
            opened = self._opened.get(path)
            if opened is not None:
                with suppress(OctavoError):
                    opened.index.check()
                    return opened
            index, manifest = open_index(path, self._library.model_hash)
            catalogue.note_use(path)
            text = OpenIndex(self._llama, index, manifest["document"])
            spans = [Span(document, 0, len(index.tokens) - index.n_prefix)]
            opened = Context(index, spans, [document], self._share(document), lambda _: text.text, document)
            self._opened[path] = opened
            return opened

    def _share(self, document: ServedDocument) -> Basis:
        """Return the share of its file's tokens that a document has, which may be a part."""
        if "part" not in document.described:
            return Basis("document")
        n_tokens = sum(part.described["tokens"] for part in document.parts(self._documents()[0]))
        return Basis("part", share=document.described["tokens"] / n_tokens)

    def open_all(self) -> None:
        """Open all documents, so that prompts that begin with one find it. Leave out those that fail."""
        for document in self._documents()[0]:
            if document.folder not in self._opened:
                with suppress(OctavoError):
                    self._open(document)

    def begun_by(self, tokens: np.ndarray) -> Context | None:
        """Find the longest open document that a prompt begins with."""
        n, found = self.shares_most(tokens, whole=True)
        return found if n else None

    def shares_most(self, tokens: np.ndarray, whole: bool = False) -> tuple[int, Context | None]:
        """Find the open document with the longest common prefix with a prompt; return the length of the prefix, too.

        Parameters
        ----------
        tokens : int32 array, shape (n_tokens,)
            The prompt.
        whole : bool
            Leave out documents of which the prompt has only a part.
        """
        best, found = 0, None
        with self._lock:
            opened = list(self._opened.values())
        for document in opened:
            n = n_common(document.index.tokens, tokens)
            if n > best and (not whole or n == len(document.index.tokens)):
                best, found = n, document
        return best, found

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
        document_id = self._folder.copied(f"file-{hashlib.sha256(data).hexdigest()[:24]}")
        finished, uploads = self._documents()
        upload = uploads.get(document_id)
        is_read = any(document.id == document_id for document in finished)
        if is_read or (upload is not None and not upload.problem):
            self._later_names[file_name(name)] = document_id
        else:
            if upload is not None:
                self._queue.remove(upload)
            document_id = f"file-{hashlib.sha256(data).hexdigest()[:24]}"
            file = await asyncio.to_thread(self._folder.store, document_id, name, data)
            self._queue_upload(file)
            self._watch()
        self._folder.add_folder(document_id, folder)
        return document_id

    def resume(self) -> None:
        """Have the uploads read that an earlier server left."""
        queued = self._uploads()
        for document_id, file in self._folder.unread():
            if document_id not in queued:  # an older octavo left it, or the queue was deleted
                self._queue_upload(file)
        self._watch()

    def _queue_upload(self, file: Path) -> None:
        self._queue.add_upload(file, self._library.folder, self._job.anywhere(self._library).as_json())

    def _watch(self) -> None:
        """Keep the background reader running until all uploads are read."""
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._until_read())

    async def _until_read(self) -> None:
        started, pending = -_START, True
        while pending or self._has_taken:
            uploads = self._uploads()
            failed = [name for name, upload in uploads.items() if upload.problem not in ("", STOPPED)]
            failed = [name for name in failed if uploads[name].file.exists()]
            for name in failed:  # at once: a client may upload it again
                self._folder.remove(name)
            if self._has_taken:
                self._has_taken = False
                await asyncio.to_thread(self.open_all)
            with suppress(OctavoError):
                for name in failed:
                    await self._remove_indexes(name)  # of its first parts
                if failed:
                    await asyncio.to_thread(forget_texts, [self._library.folder], is_gone)
            pending = any(not upload.problem for upload in uploads.values())
            if pending and time.monotonic() > started + _START:
                started = time.monotonic()
                try:
                    start_reader()
                except OSError as problem:
                    for upload in uploads.values():
                        self._queue.fail(upload, upload.problem or f"It cannot be read: {problem.strerror}.")
            await asyncio.sleep(_LOOK if pending else 0)

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

    async def remove(self, document_id: str) -> None:
        """Remove a document's index and its uploaded file; stop reading it.

        Raise RequestError if the document is unknown.
        """
        upload, document_id = self._uploads().get(document_id), self._folder.copied(document_id)
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
        await asyncio.to_thread(forget_texts, [self._library.folder], is_gone)

    async def _remove_indexes(self, document_id: str) -> int:
        """Remove the indexes of a document or of its parts; return how many there were."""
        folders = [document.folder for document in self._indexes() if document.id == document_id]
        for folder in folders:
            await asyncio.to_thread(catalogue.remove, folder)
            with self._lock:
                self._opened.pop(folder, None)
        return len(folders)

    async def close(self) -> None:
        """Leave uploads to the background reader."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
