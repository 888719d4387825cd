"""The server's library: indexed documents, documents that are being read, and uploads."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ...ask.answer.answer import ContextShare
from ...ask.context.answer_context import Context
from ...convert.identity import find_index, identity, usable_settings
from ...convert.pipeline import prefill_attention_share
from ...errors import OctavoError
from ...library import catalogue
from ...library.background.reading_queue import STOPPED, QueuedDocument, ReadingQueue, start_reader
from ...library.document_parts import with_file_name
from ...library.expand_paths import distinct_names
from ...library.file_texts import FileTexts, forget_texts
from ...library.reading_job import ReadingJob
from ...library.source_text import SAME, SourceFile, SourceText, state_of_file
from ...progress import Silent
from ...runtime.llama import Llama
from ...runtime.store.index_files import note_use, open_index
from ...runtime.store.library_snapshot import FoundIndex, LibrarySnapshot
from ...runtime.store.model_library import Library, folder_name
from ...settings import PREFILLS
from ...system.files import PARTIAL, DamagedError
from ..engine.request import PromptProgress
from ..engine.tasks import Report
from ..request_error import RequestError, without_folders
from .damaged_indexes import DamagedIndexes
from .known_documents import KnownDocuments
from .mapped_documents import MappedDocuments
from .served_document import ServedDocument, of_current_versions, with_id
from .upload_folder import UploadFolder, file_name, find_upload, uploads_of

_log = logging.getLogger(__name__)

#: Seconds between looks at what the background reader does, and between attempts to start it.
_LOOK, _START = 0.25, 5.0

#: Seconds between looks for indexes that other processes have removed.
_LOOK_FOR_REMOVED = 5.0


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
        self._folder, self._has_taken = UploadFolder(uploads_of(library)), False
        self._looks = threading.Lock()
        self._damaged = DamagedIndexes(library, self._queue, self._folder, self._queue_file)
        self._damaged.when_noted = lambda is_noted: self.when_removed(is_noted)
        self._listed, self._fitting = list[FoundIndex](), list[ServedDocument]()
        self._texts = FileTexts(library, Silent())
        self._last_look: asyncio.Task[KnownDocuments] | None = None
        self._next_look: asyncio.Task[KnownDocuments] | None = None
        self._queueing = asyncio.Lock()  # two uploads must not get the same place
        self._watching: asyncio.Task[None] | None = None
        self._looks_again, self._started = False, -_START
        self._looking: asyncio.Task[None] | None = None
        self.mapped = MappedDocuments(self._map_index)
        self.when_removed: Callable[[Callable[[SourceText], bool]], None] = lambda is_removed: None
        self.others: Sequence[Library] = ()

    async def look(self) -> KnownDocuments:
        """Look at the library, beside the event loop. Requests that ask before a look begins share it."""
        if self._next_look is None:
            self._next_look = asyncio.create_task(self._look_after(self._last_look))
        return await asyncio.shield(self._next_look)

    async def _look_after(self, before: asyncio.Task[KnownDocuments] | None) -> KnownDocuments:
        if before is not None and not before.done():
            await asyncio.wait({before})
        self._last_look, self._next_look = self._next_look, None
        return await asyncio.to_thread(self.look_now)

    def look_now(self) -> KnownDocuments:
        """Look at the queue, the indexes, and the files of documents; take the uploads that were read."""
        with self._looks:  # in turns: each compares with the indexes of the one before
            return self._look_now()

    def _look_now(self) -> KnownDocuments:
        queued = self._damaged.queued()  # before the indexes: an upload that ends meanwhile counts as being read
        self._folder.refresh()  # another server may have taken uploads
        before, snapshot = self._fitting, LibrarySnapshot(self._library)
        versions = self._versions_in(snapshot)
        if self._damaged.look(snapshot, before, versions, queued):
            return self._look_now()
        if self._read_spares(versions):
            return self._look_now()
        read = of_current_versions(versions)
        for upload in queued:
            if upload.folders:
                self._take(upload, read)
        newest = sorted(queued, key=lambda upload: (-upload.asked, -upload.place))
        unread = {self._damaged.id_of(upload): upload for upload in newest if not upload.folders}
        return KnownDocuments(versions, read, unread, self._folder, self._notices_of)

    def _notices_of(self, upload: QueuedDocument) -> Sequence[str]:
        """Return what the text of a document that is being read lacks; nothing if its text is not kept yet."""
        with suppress(OctavoError):  # the texts are damaged, and kept again for the next question
            if (kept := self._texts.find(SourceFile(upload.file, self.extraction))) is not None:
                return kept.notices
        return ()

    def _versions_in(self, snapshot: LibrarySnapshot) -> list[ServedDocument]:
        """Return each document whose index fits the model's attention, the newest first."""
        pairs = zip(snapshot.indexes, self._listed, strict=False)
        is_same = all(found[0] == before[0] and found[1] is before[1] for found, before in pairs)
        if not is_same or len(snapshot.indexes) != len(self._listed):  # a manifest that changes is read again
            self._listed, self._fitting = snapshot.indexes, []
            for folder, manifest in snapshot.indexes:
                described = manifest["document"]
                of_text = (find_index(self._llama, snapshot, described["sha256"], each) for each in self._identities)
                if folder in of_text:
                    self._fitting.append(ServedDocument.indexed(self._id_of(described), folder, manifest))
        return self._fitting

    def _take(self, upload: QueuedDocument, read: Sequence[ServedDocument]) -> None:
        """Take the indexes of an upload from the queue; they may be those of another document with its text."""
        document_id, names = upload.file.parent.name, {Path(folder).name for folder in json.loads(upload.folders)}
        self._folder.note_read(document_id)
        original = next((each for each in read if each.folder.name in names), None)
        is_spare = original is not None and not self._is_upload(original)
        if original is not None and (is_spare or original.id != document_id):
            with suppress(OctavoError):
                self._folder.note_copy(document_id, original.id, is_spare)
        self._queue.remove(upload)
        self._has_taken = True

    def _read_spares(self, versions: Sequence[ServedDocument]) -> bool:
        """Have uploads read whose text had the index of a file that has another text now, or no index any more.

        Return whether there are any.
        """
        n_read = 0
        for document_id, file in self._folder.spares():
            original = self._folder.copied(document_id)
            of_original = (each for each in versions if each.id == original)
            if self._damaged.has(original) or any(state_of_file(each.described) == SAME for each in of_original):
                continue
            with suppress(OctavoError):
                self._folder.note_unread(document_id)
                self._queue_file(file)
                n_read += 1
        if n_read:
            with suppress(RuntimeError):  # the loop is closed: the next server has them read
                self._damaged.when_queued()
        return n_read > 0

    def _is_upload(self, document: ServedDocument) -> bool:
        return self._folder.holds(document.described.get("path", ""))

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

    async def adopt(self, references: Sequence[str]) -> None:
        """Begin to read the uploads that a request names and that were made for another model."""
        if not self.others:
            return
        known = await self.look()
        for reference in references:
            if not known.knows(reference):
                file = await asyncio.to_thread(find_upload, self.others, reference)
                if file is not None:
                    await self.add_bytes(file.name, await asyncio.to_thread(file.read_bytes))

    def named_apart(self, documents: Sequence[ServedDocument]) -> list[ServedDocument]:
        """Return documents with names that distinguish files of one name, by their folders or the clients' ones."""
        paths = {document.of_file: self._path_for_clients(document) for document in documents}
        names = distinct_names(paths.values())
        return [replace(each, name=with_file_name(each.name, names[paths[each.of_file]])) for each in documents]

    def _path_for_clients(self, document: ServedDocument) -> str:
        """Return the path of a file; an upload's has the folder from which a client uploaded it."""
        path, folders = Path(document.of_file), self._folder.folders_of(document.id)
        return str(path.parent.joinpath(*folders[:1], path.name)) if self._folder.holds(document.of_file) else str(path)

    async def open_at(self, document: ServedDocument) -> Context:
        """Open an indexed document. Raise OctavoError if its index is damaged."""
        return await asyncio.to_thread(self.mapped.open, document)

    async def open_text(self, text: SourceText) -> Context:
        """Open the indexed document with a text.

        Raise RequestError if the document was removed, OctavoError if its index is damaged.
        """
        if (document := (await self.look()).with_text(text.sha256)) is not None:
            return await self.open_at(document)
        raise RequestError(f"There is no document {text.name}.", 404, "not_found")

    def _map_index(self, document: ServedDocument) -> Context:
        try:
            index, manifest = open_index(document.folder, self._library.model_hash)
        except DamagedError as problem:
            self._damaged.note(document, str(problem))
            raise
        note_use(document.folder)
        return Context.of_whole(self._llama, index, manifest["document"], document, self._share(document))

    def _share(self, document: ServedDocument) -> ContextShare:
        """Return the share of its file's tokens that a document has, which may be a part."""
        if "part" not in document.described:
            return ContextShare("document")
        n_tokens = sum(part.described["tokens"] for part in document.parts(self._fitting))
        return ContextShare("part", share=document.described["tokens"] / n_tokens)

    async def heal(self, documents: Sequence[ServedDocument]) -> bool:
        """Have damaged indexes of some documents made again. Return whether there are any.

        Raise RequestError if one of these cannot be made again.
        """

        def look() -> bool:
            n_damaged = 0
            for document in documents:
                try:
                    self._map_index(document)
                except DamagedError:
                    n_damaged += 1
            return n_damaged > 0

        return await asyncio.to_thread(look)

    def is_made_again(self, document_id: str) -> bool:
        """Return whether the index of a document was damaged, and is made again."""
        return self._damaged.has(document_id)

    def know_all(self) -> None:
        """Learn what documents there are, so that prompts that begin with one find it."""
        self.mapped.know(self.look_now().read)

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
        known = await self.look()
        document_id = self._folder.copied(own_id)
        upload = known.unread.get(document_id)
        read = next((document for document in known.read if document.id == document_id), None)
        if read is not None and not self._is_upload(read):
            await asyncio.to_thread(self._folder.store, own_id, name, data, is_spare=True)
        elif read is None and (upload is None or upload.problem):
            if upload is not None:
                await asyncio.to_thread(self._queue.remove, upload)
            document_id = own_id
            file = await asyncio.to_thread(self._folder.store, document_id, name, data)
            async with self._queueing:
                await asyncio.to_thread(self._queue_file, file)
            self._watch()
        await asyncio.to_thread(self._folder.note_upload, own_id, file_name(name), folder)
        return document_id

    def resume(self) -> None:
        """Have the uploads read that an earlier server left."""
        queued = {upload.file.parent.name for upload in self._damaged.queued()}
        for document_id, file in self._folder.unread():
            if document_id not in queued:  # an older octavo left it, or the queue was deleted
                self._queue_file(file)
        self._damaged.when_queued = partial(asyncio.get_running_loop().call_soon_threadsafe, self._watch)
        self._watch()
        self._looking = asyncio.create_task(self._look_for_removed())

    async def _look_for_removed(self) -> None:
        """Close the documents whose indexes other processes remove, as `octavo remove` does."""
        while True:
            await asyncio.sleep(_LOOK_FOR_REMOVED)
            with _going_on("look for removed documents"):
                await asyncio.to_thread(self._close_removed)

    def _close_removed(self) -> None:
        if folders := self.mapped.close_removed():
            self.when_removed(lambda text: with_id(text).folder in folders)

    def _queue_file(self, file: Path) -> None:
        self._queue.add_upload(file, self._library.folder, self._job.anywhere(self._library).as_json())

    def _watch(self) -> None:
        """Keep the background reader running until all uploads are read."""
        self._looks_again = True
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._until_read())

    async def _until_read(self) -> None:
        self._started = -_START
        pause: float | None = 0.0
        while pause is not None:
            await asyncio.sleep(pause)
            pause = _START
            with _going_on("look at uploads"):
                pause = await self._watch_once()

    async def _watch_once(self) -> float | None:
        """Look at the uploads; returns the seconds until the next look, None if all are read."""
        self._looks_again = False
        queued = await asyncio.to_thread(self._damaged.queued)
        await self._clear_failed(queued)
        if self._has_taken or any(upload.folders for upload in queued):
            self._has_taken = False
            await asyncio.to_thread(self.mapped.know, (await self.look()).read)
        pending = [upload for upload in queued if upload.is_pending]
        if pending and time.monotonic() > self._started + _START:
            self._started = time.monotonic()
            try:
                await asyncio.to_thread(start_reader)
            except OSError as problem:
                for upload in pending:
                    self._queue.fail(upload, f"It cannot be read: {problem.strerror}.", may_succeed=True)
        if pending:
            return _LOOK
        return 0 if self._has_taken or self._looks_again else None  # an upload that comes from now on begins this anew

    async def _clear_failed(self, queued: Sequence[QueuedDocument]) -> None:
        """Remove the files of uploads that cannot be read, and the indexes of their first parts."""
        problems = [upload for upload in queued if upload.problem not in ("", STOPPED) and not upload.may_succeed]
        failed = {each.file.parent.name: each for each in problems if self._folder.is_unread(each.file)}
        for name in failed:  # at once: a client may upload it again
            await asyncio.to_thread(self._folder.remove, name)
        with suppress(OctavoError):
            for name in failed:
                await self._remove_indexes(name)  # of its first parts
            if failed:
                await self._forget_texts(upload.path for upload in failed.values())

    async def wait(self, document_id: str, report: Report | None = None) -> None:
        """Wait until a document is read; `report` receives how far it is. Raise RequestError if it cannot be read."""
        while True:
            queued = [upload for upload in await asyncio.to_thread(self._damaged.queued) if not upload.folders]
            upload = next((each for each in queued if self._damaged.id_of(each) == document_id), None)
            if upload is None:
                return
            if upload.problem:
                raise RequestError(f"{upload.name} could not be read: {without_folders(upload.problem)}")
            await asyncio.to_thread(self._queue.await_document, upload)
            self._watch()
            if report is not None and upload.total:
                report(PromptProgress(upload.total, upload.before, upload.done, time.time() - upload.began))
            await asyncio.sleep(_LOOK)

    def ids_of(self, document_id: str) -> Sequence[str]:
        """Return the ids of a document and of its copies, the document's own first."""
        return self._folder.copies(self._folder.copied(document_id))

    async def remove(self, document_id: str) -> None:
        """Remove a document's index and its uploaded file; stop reading it.

        Raise RequestError if the document is unknown.
        """
        known, document_id = await self.look(), self._folder.copied(document_id)
        upload = known.unread.get(document_id)
        sources = [*self._folder.files(document_id), *([] if upload is None else [upload.path])]
        sources += [str(each.folder) for each in known.versions if each.id == document_id]  # as texts of indexes are
        for spare, _ in self._folder.spares():
            if self._folder.copied(spare) == document_id:
                self._folder.note_copy(spare, document_id, is_spare=False)  # no look has it read
        if upload is not None:
            self._folder.note_read(document_id)  # no server resumes it
            await asyncio.to_thread(self._queue.end, upload)
            for partial in self._library.folder.glob(f"{folder_name(upload.name)}-*{PARTIAL}"):
                with suppress(OctavoError):
                    catalogue.remove(partial)
        if not await self._remove_indexes(document_id) and upload is None:
            raise RequestError(f"There is no file {document_id}.", 404, "not_found")
        await asyncio.to_thread(self._folder.remove, document_id)
        self.when_removed(lambda text: with_id(text).id == document_id)
        await self._forget_texts(sources)

    async def _forget_texts(self, sources: Iterable[str]) -> None:
        """Forget the texts and the recognised pages of these files alone. Others may be on another drive."""
        await asyncio.to_thread(forget_texts, [self._library.folder], set(sources).__contains__)

    async def _remove_indexes(self, document_id: str) -> int:
        """Remove the indexes of a document, or of its parts, and of older versions of its file; return how many."""
        documents = (await self.look()).versions
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


@contextmanager
def _going_on(what: str) -> Iterator[None]:
    """Log why something cannot be done now: a disk may be full for a while."""
    try:
        yield
    except (OctavoError, OSError) as problem:
        _log.warning("The server could not %s, and tries again. %s", what, problem)


def _id_of_bytes(data: bytes) -> str:
    """Return the id of a file with these bytes."""
    return f"file-{hashlib.sha256(data).hexdigest()[:24]}"
