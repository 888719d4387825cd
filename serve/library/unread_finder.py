"""Find passages by words, in documents that are read and in those that are being read."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from ...ask.context.passages import PassageFinder
from ...documents.document import Document
from ...library.background.reading_queue import QueuedDocument
from ...library.document_work import KeepText
from ...library.source_text import SourceFile, SourceText
from ...library.text_store import TEXTS, TextStore, is_gone
from ...runtime.store.model_library import Library
from ...system.files import FileVersion
from ...workers.work import name_of
from ...workers.worker_process import Died, WorkerProcess
from ..engine.engine import Engine
from ..engine.tasks import Report, reported
from ..request_error import RequestError
from .open_document import OpenDocument, OpenExcerpts, OpenText
from .served_library import Found, ServedLibrary


class _Origin(NamedTuple):
    """The document of a text: its id for clients, and where the text stands in its file."""

    id: str
    offset: int = 0
    first_line: int = 1


class UnreadFinder:
    """Finds passages that share words with a question, and has the model read only these.

    The texts are kept in the library's `TextStore`: those of uploads from the first question on, and of documents that
    are named with them, too.
    """

    def __init__(self, engine: Engine, documents: ServedLibrary, library: Library) -> None:
        self._engine, self._documents, self._texts = engine, documents, library.folder / TEXTS
        self._adding = asyncio.Lock()  # two questions must not keep the same text
        self._opened = WeakValueDictionary[Any, OpenExcerpts]()  # as long as conversations over them are in memory

    async def open(
        self, found: Found, question: str, before: str = "", *, report: Report | None = None
    ) -> OpenExcerpts:
        """Open the passages that a question is about, with less weight on the one before.

        `report` receives how far they are read.

        Raises
        ------
        RequestError
            A document cannot be read, or was removed; or the server is stopping.
        OctavoError
            The texts cannot be kept.
        """
        store = await self._open_store()
        try:
            origins = {await self._kept(store, upload): _Origin(upload.file.parent.name) for upload in found.unread}
            for document in found.read:
                opened = await self._documents.open_at(document)
                first_line = opened.described.get("first_line", 1)
                origins[await self._kept_of_index(store, opened)] = _Origin(opened.id, opened.offset, first_line)
            finder = PassageFinder(self._engine.llama, store, list(origins))
            return await self._find(finder, origins, question, before, report)
        finally:
            store.close()

    async def text(self, upload: QueuedDocument) -> str:
        """Return the text of an upload. Raise RequestError if it cannot be read."""
        store = await self._open_store()
        try:
            return store.document((await self._kept(store, upload)).number).text
        finally:
            store.close()

    async def _open_store(self) -> TextStore:
        return await asyncio.to_thread(TextStore, self._texts)

    async def _find(
        self,
        finder: PassageFinder,
        origins: Mapping[SourceText, _Origin],
        question: str,
        before: str,
        report: Report | None,
    ) -> OpenExcerpts:
        """Find passages, and read them in batches, unless a conversation holds them."""
        engine = self._engine
        plan = await asyncio.to_thread(lambda: finder.plan(*finder.search(question, before)))
        places = [(piece.text, piece.start, piece.stop) for piece in plan.pieces]
        key = (*(origin.id for origin in origins.values()), *places)
        opened = self._opened.get(key)
        if opened is None:
            steps = finder.evaluate(plan, lambda: engine.room)
            context = await engine.run_steps(engine.sequences.aside(reported(steps, report)))
            texts: dict[SourceText, OpenDocument | OpenText] = {}
            for document in context.documents:
                document_id, offset, first_line = origins[document]
                text = replace(context.text_of(document), first_line=first_line)
                texts[document] = OpenText(document_id, document.name, text, offset)
            opened = self._opened[key] = OpenExcerpts(context, texts)
        return opened

    async def _kept(self, store: TextStore, upload: QueuedDocument) -> SourceText:
        """Keep the text of an upload, unless that was done before."""
        file = SourceFile(upload.file, self._documents.extraction)
        async with self._adding:
            version = file.version
            if version and store.find(version) is None and file.is_file:
                await self._keep(upload)
            kept = store.find(version) if version else None
            if kept is None or not file.is_file:  # it was removed in the meantime, and its text with it
                await asyncio.to_thread(store.forget, is_gone)
                raise RequestError(f"There is no document {upload.name}.", 404, "not_found")
        return kept

    async def _keep(self, upload: QueuedDocument) -> None:
        """Keep the text of an upload."""
        settings = {"texts": str(self._texts), "extraction": vars(self._documents.extraction)}
        process = WorkerProcess(name_of(KeepText), settings)
        try:
            result = await asyncio.to_thread(process.do, {"path": str(upload.file)}, lambda message: None)
        except Died as problem:
            result = {"error": f"reading it ended with {problem}."}
        finally:
            await asyncio.to_thread(process.end)
        if "error" in result:
            raise RequestError(f"{upload.name} could not be read: {result['error']}")

    async def _kept_of_index(self, store: TextStore, opened: OpenDocument) -> SourceText:
        """Keep the text that an index was made of, unless that was done before."""
        version = FileVersion(str(opened.path), 0, opened.n_tokens)

        def keep() -> SourceText:
            text = opened.text(self._engine.llama)
            return store.add(Document(text.text, tuple(text.places), (), opened.name, *version))

        async with self._adding:
            kept = store.find(version)
            return await asyncio.to_thread(keep) if kept is None else kept
