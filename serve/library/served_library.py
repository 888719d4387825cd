"""The server's library: indexed documents, documents that are being read, and uploads."""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from fnmatch import fnmatch
from glob import has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...convert.identity import find_index, identity, usable_settings
from ...convert.pipeline import covers_by
from ...errors import OctavoError
from ...library import catalogue
from ...library.batch.job import ReadingJob
from ...library.file_texts import forget_texts
from ...library.text_store import is_gone
from ...runtime.llama import Llama
from ...runtime.sequences.sequence import n_common
from ...runtime.store.index_files import open_index
from ...runtime.store.library_snapshot import LibrarySnapshot
from ...runtime.store.model_library import Library, folder_name
from ...settings import PREFILLS, Extraction
from ...system.files import PARTIAL
from ..engine.request import PromptProgress
from ..engine.tasks import Report
from ..request_error import RequestError
from .file_json import document_as_json, upload_as_json
from .open_document import OpenDocument
from .other_libraries import find_upload
from .pauses import Pauses
from .served_document import ReadDocument
from .upload import Upload
from .upload_folder import UploadFolder, file_name, is_in_folder, uploads_of

if TYPE_CHECKING:
    from collections.abc import Iterator


#: Seconds between reports to a request that waits for a document.
_BETWEEN_REPORTS = 0.5


class Found(NamedTuple):
    """The documents of a request: those that are indexed, and uploads that are still being read."""

    read: list[ReadDocument]
    unread: list[Upload]


class ServedLibrary:
    """The documents of one model's library. Its coroutines belong to the server's loop.

    Attributes
    ----------
    others : sequence of Library
        Libraries of the server's other models. Their uploads are read for this model once a request names them.
    """

    def __init__(self, llama: Llama, library: Library, job: ReadingJob) -> None:
        self._llama, self._library, self._job = llama, library, job
        covers = {0.0, *(covers_by(prefill, llama) for prefill in PREFILLS)}
        self._identities = [
            identity(llama, settings, share) for settings in usable_settings(llama) for share in sorted(covers)
        ]
        self._uploads: dict[str, Upload] = {}
        self._folder = UploadFolder(uploads_of(library))
        self._later_names: dict[str, str] = {}  # of files that were uploaded again, with their ids
        self._tasks: set[asyncio.Task[None]] = set()
        self._one_at_a_time, self._closing = asyncio.Semaphore(1), False
        self.pauses = Pauses()
        self._lock = threading.Lock()
        self._opened: dict[Path, OpenDocument] = {}
        self.when_removed: Callable[[str], None] = lambda document_id: None
        self.others: Sequence[Library] = ()

    @property
    def is_reading(self) -> bool:
        """Return whether an upload is being read."""
        return any(not upload.finished.is_set() for upload in self._uploads.values())

    @property
    def extraction(self) -> Extraction:
        """Return how texts are taken from uploaded files."""
        return self._job.reading.extraction

    def _indexes(self) -> Iterator[ReadDocument]:
        """Yield each document whose index fits the model's attention, the newest first."""
        snapshot = LibrarySnapshot(self._library)
        for folder, manifest in snapshot.indexes:
            described = manifest["document"]
            sha256 = described["sha256"]
            if any(find_index(self._llama, snapshot, sha256, settings) == folder for settings in self._identities):
                yield ReadDocument(self._id_of(described), folder, manifest)

    def _finished(self) -> list[ReadDocument]:
        """Return the indexed documents, without the first parts of an upload that is still being read."""
        return [document for document in self._indexes() if document.id not in self._uploads]

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

    def _is_upload(self, document: ReadDocument) -> bool:
        return self._folder.holds(document.described.get("path", ""))

    def _folders_of_read(self, document: ReadDocument) -> list[str]:
        """Return the folders that an indexed document is in."""
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
        finished = self._finished()
        found = {each.key: each for name in references for each in self._named(name, finished)}
        read = [each for each in found.values() if isinstance(each, ReadDocument)]
        return Found(read, [each for each in found.values() if isinstance(each, Upload)])

    def knows(self, reference: str) -> bool:
        """Return whether a document has an id or a name, or names fit a pattern."""
        try:
            return bool(self._named(reference, self._finished()))
        except RequestError as problem:
            return problem.status != 404

    async def adopt(self, references: Sequence[str]) -> None:
        """Begin to read the uploads that a request names and that were made for another model."""
        for reference in references if self.others else ():
            if not self.knows(reference) and (file := find_upload(self.others, reference)) is not None:
                await self.add_bytes(file.name, await asyncio.to_thread(file.read_bytes))

    def file_of(self, document_id: str) -> Path | None:
        """Return the file of a document, if it is there; None without one."""
        upload, document_id = self._uploads.get(document_id), self._folder.copied(document_id)
        paths = [str(upload.file)] if upload is not None else []
        paths += [each.described.get("path", "") for each in self._indexes() if each.id == document_id]
        return next((Path(path) for path in paths if path and os.path.isfile(path)), None)

    async def open_at(self, document: ReadDocument) -> OpenDocument:
        """Open an indexed document. Raise OctavoError if its index is damaged."""
        return await asyncio.to_thread(self._open, document)

    def _named(self, reference: str, finished: Sequence[ReadDocument]) -> Sequence[ReadDocument | Upload]:
        """Return the documents with an id, or else with a name, or in a folder, or with names that fit a pattern.

        Of several with the same name, the newest counts, which is one that is being read if there is any.
        """
        reading = [upload for upload in reversed(self._uploads.values()) if not upload.problem]
        reference = self._folder.copied(reference)
        for document in finished:
            if document.id == reference:
                return document.parts(other for other in finished if other.id == reference)
        for upload in reading:
            if reference in (upload.id, upload.name):
                return [upload]
        for document in finished:
            if document.name == reference:
                return [document]
        for document in finished:
            if document.file == reference:
                return document.parts(finished)
        found: list[ReadDocument | Upload] = []
        found += [document for document in finished if is_in_folder(self._folders_of_read(document), reference)]
        found += [upload for upload in reading if is_in_folder(self._folders_of(upload.id), reference)]
        if not found and has_magic(reference):
            found += [document for document in finished if fnmatch(document.name, reference)]
            found += [other for other in finished if fnmatch(other.file, reference) and other not in found]
            found += [upload for upload in reading if fnmatch(upload.name, reference)]
        for upload in self._uploads.values():
            if not found and upload.problem and reference in (upload.id, upload.name):
                raise RequestError(f"{upload.name} could not be read: {upload.problem}")
        known = self._later_names.get(reference)
        if not found and known is not None:
            found += next((document.parts(finished) for document in finished if document.id == known), ())
            found += [upload for upload in reading if upload.id == known and not found]
        if not found:
            raise RequestError(f"There is no document {reference}: upload it to /v1/files first.", 404, "not_found")
        return found

    def _open(self, document: ReadDocument) -> OpenDocument:
        path = document.folder
        with self._lock:
            opened = self._opened.get(path)
            if opened is not None:
                with suppress(OctavoError):
                    opened.index.check()
                    return opened
            index, manifest = open_index(path, self._library.model_hash)
            catalogue.note_use(path)
            described = manifest["document"]
            offset = described["part"][0] if "part" in described else 0
            opened = OpenDocument(document.id, path, index, described, offset, self._share(document))
            self._opened[path] = opened
            return opened

    def _share(self, document: ReadDocument) -> float:
        """Return the share of its file's tokens that a document has, which may be a part."""
        if "part" not in document.described:
            return 1.0
        n_tokens = sum(part.described["tokens"] for part in document.parts(self._finished()))
        return float(document.described["tokens"] / n_tokens)

    def open_all(self) -> None:
        """Open all documents, so that prompts that begin with one find it. Leave out those that fail."""
        for document in self._finished():
            with suppress(OctavoError):
                self._open(document)

    def begun_by(self, tokens: np.ndarray) -> OpenDocument | None:
        """Find the longest open document that a prompt begins with."""
        n, found = self.shares_most(tokens, whole=True)
        return found if n else None

    def shares_most(self, tokens: np.ndarray, whole: bool = False) -> tuple[int, OpenDocument | None]:
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
            if n > best and (not whole or n == document.n_tokens):
                best, found = n, document
        return best, found

    async def add_bytes(self, name: str, data: bytes, folder: str = "") -> str:
        """Store an upload, and read it in the background; return its id, which depends on the bytes alone.

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
        upload = self._uploads.get(document_id)
        is_read = any(document.id == document_id for document in self._finished())
        if is_read or (upload is not None and not upload.finished.is_set()):
            self._later_names[file_name(name)] = document_id
        else:
            document_id = f"file-{hashlib.sha256(data).hexdigest()[:24]}"
            file = await asyncio.to_thread(self._folder.store, document_id, name, data)
            self._begin(document_id, file)
        self._folder.add_folder(document_id, folder)
        return document_id

    async def resume(self) -> None:
        """Resume the uploads that a stop of the server interrupted."""
        for document_id, file in self._folder.unread():
            self._begin(document_id, file)

    def _begin(self, document_id: str, file: Path) -> None:
        """Read an upload in the background."""
        self._uploads[document_id] = upload = Upload(file, self._job)
        task = asyncio.create_task(self._read(document_id, upload))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _read(self, document_id: str, upload: Upload) -> None:
        async with self._one_at_a_time:
            with self.pauses.of(upload.process):
                await upload.run()
        if self._uploads.get(document_id) is not upload:
            return
        if upload.is_read:
            self._folder.note_read(document_id)
        if self._closing:
            return
        if upload.problem:
            with suppress(OctavoError):
                await self._remove_indexes(document_id)  # the finished parts of a document that failed
            self._folder.remove(document_id)
            with suppress(OctavoError):
                await self._forget_texts()
            return
        del self._uploads[document_id]
        finished = self._finished()
        original = next((document.id for document in finished if document.folder in upload.folders), document_id)
        if original != document_id:
            with suppress(OctavoError):
                self._folder.note_copy(document_id, original)
        for document in finished:
            if document.id == original:
                with suppress(OctavoError):
                    await self.open_at(document)

    async def wait(self, document_id: str, report: Report | None = None) -> None:
        """Wait until a document is read; `report` receives how far it is. Raise RequestError if it cannot be read."""
        upload = self._uploads.get(document_id)
        if upload is not None:
            with self.pauses.waiting():
                while not upload.finished.is_set():
                    with suppress(TimeoutError):
                        await asyncio.wait_for(upload.finished.wait(), _BETWEEN_REPORTS)
                    if report is not None and (progress := upload.progress) is not None:
                        seconds = time.monotonic() - progress.began
                        report(PromptProgress(progress.total, progress.done_before, progress.done, seconds))
            if upload.problem:
                raise RequestError(f"{upload.name} could not be read: {upload.problem}")

    def list(self) -> list[dict[str, Any]]:
        """Describe all documents for clients, the newest first."""
        by_id: defaultdict[str, list[ReadDocument]] = defaultdict(list)
        for document in self._finished():
            by_id[document.id].append(document)
        finished = [self._as_json(documents) for documents in by_id.values()]
        begun = [upload_as_json(upload, self._folders_of(name)) for name, upload in self._uploads.items()]
        return sorted([*begun, *finished], key=lambda file: -file["created_at"])

    def _as_json(self, documents: Sequence[ReadDocument]) -> dict[str, Any]:
        """Describe a file by its index, or the indexes of its parts."""
        first = documents[0]
        return document_as_json(first.parts(documents), self._folders_of_read(first), self._is_upload(first))

    def describe(self, document_id: str) -> dict[str, Any]:
        """Describe a document for clients. Raise RequestError if the document is unknown."""
        original = self._folder.copied(document_id)
        for file in self.list():
            if file["id"] == original:
                return file
        raise RequestError(f"There is no file {document_id}.", 404, "not_found")

    async def remove(self, document_id: str) -> None:
        """Remove a document's index and its uploaded file; stop reading it.

        Raise RequestError if the document is unknown.
        """
        upload, document_id = self._uploads.pop(document_id, None), self._folder.copied(document_id)
        if upload is not None:
            await upload.cancel()
            for partial in self._library.folder.glob(f"{folder_name(upload.name)}-*{PARTIAL}"):
                with suppress(OctavoError):
                    catalogue.remove(partial)
        if not await self._remove_indexes(document_id) and upload is None:
            raise RequestError(f"There is no file {document_id}.", 404, "not_found")
        self._folder.remove(document_id)
        self.when_removed(document_id)
        await self._forget_texts()

    async def _forget_texts(self) -> None:
        """Forget the texts of files that are gone."""
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
        """Stop all readings. They resume when the server starts again."""
        self._closing = True
        for upload in list(self._uploads.values()):
            await upload.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
