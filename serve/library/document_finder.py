"""Choose the context of a request to the server among documents of its library."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakSet

from ...ask.context.answer_context import Context, Steps
from ...ask.context.context_chooser import ContextChooser
from ...ask.context.document_set import DocumentSet
from ...ask.context.excerpts import CannotLayOut
from ...ask.context.growing_indexes import GrowingIndexes
from ...ask.context.passages import PassageFinder
from ...ask.context.whole.finding import PartsAnswered
from ...ask.sources.find_sources import TokenText
from ...documents.document import Document
from ...errors import OctavoError
from ...library.background.reading_queue import QueuedDocument
from ...library.catalogue import DAMAGED
from ...library.document_work import KeepText
from ...library.file_texts import FileTexts
from ...library.open_index import Indexer
from ...library.source_text import SAME, SourceFile, SourceText
from ...library.text_store import TEXTS, Piece, TextStore
from ...progress import Silent, of_many
from ...runtime.query_recorder import QueryHead
from ...runtime.store.library_snapshot import LibrarySnapshot
from ...runtime.store.model_library import Library
from ...settings import EXCERPTS, WHOLE, WHOLE_OFF, ReadSettings
from ...system.files import DamagedError, FileVersion
from ...workers.work import name_of
from ...workers.worker_process import Died
from ..engine.engine import Engine
from ..engine.tasks import Report, reported
from ..request_error import RequestError, without_folders
from .file_workers import FileWorkers
from .known_documents import Found
from .served_document import ServedDocument, with_id
from .served_library import ServedLibrary

_Result = TypeVar("_Result")

#: Most uploads whose texts are extracted at once, for questions.
_EXTRACTED_AT_ONCE = 2

#: Most looks at the documents of a request: an index and a text may be damaged, or be damaged again.
_LOOKS = 4


class _RemovedError(RequestError):
    """A document was removed after it was found."""


class DocumentFinder:
    """Choose contexts, as `octavo ask` does. The engine computes the steps; texts are kept beside the event loop.

    Parameters
    ----------
    documents : ServedLibrary
        The library's documents.
    heads : sequence of QueryHead
        Retrieval heads; without any, words alone decide.
    reading : ReadSettings
        How the background reader reads uploads.
    """

    def __init__(
        self,
        engine: Engine,
        documents: ServedLibrary,
        library: Library,
        heads: Sequence[QueryHead],
        reading: ReadSettings,
    ) -> None:
        self._engine, self._documents, self._library, self._heads = engine, documents, library, heads
        self._set: DocumentSet | None = None
        self._known = WeakSet[Context]()  # as long as conversations over them are in memory
        self._planning = asyncio.Lock()  # two questions must not keep the same text
        settings = {"texts": str(library.folder / TEXTS), "extraction": vars(documents.extraction)}
        self._extractors = FileWorkers(settings, _EXTRACTED_AT_ONCE)
        indexer = Indexer(engine.llama, LibrarySnapshot(library), reading, lambda sentence: None)
        indexer.begun(ServedDocument("", "", Path()))  # settles its kinds now: requests change the model's attention
        texts, reading = FileTexts(library, Silent()), replace(reading, background=False)
        self._growing = _Unread(indexer, texts, reading, of_many(Silent(), 1))
        documents.when_removed = self._forget

    async def open(
        self,
        references: Sequence[str],
        reads: str,
        question: str,
        before: str = "",
        *,
        whole: str = WHOLE_OFF,
        report: Report | None = None,
        notice: Callable[[str], None] = lambda sentence: None,
    ) -> Context:
        """Choose the context of an answer.

        If a document is not indexed yet, use the prefilled part of the likeliest one, and BM25 passages of all
        documents. A request that needs a whole document waits until all are indexed.

        Parameters
        ----------
        references : sequence of str
            Ids, names and patterns of documents, at least one (`ServedLibrary.find`).
        reads : str
            What an answer is given from, one of READS (settings.py).
        before : str
            The question before, which counts less: the question may refer to it.
        whole : str
            Whether all parts or documents are asked, one of WHOLES (settings.py).
        report : callable, optional
            Receives how far documents, passages or excerpts are read, if the model reads them now, and how many parts
            have answered.
        notice : callable, optional
            Receives sentences about the choice, in another thread.

        Raises
        ------
        RequestError
            A document is missing, or could not be read; the model's keys cannot be laid out as excerpts; or the server
            is stopping.
        OctavoError
            An index is damaged, or texts cannot be kept.
        """
        await self._documents.adopt(references)
        asking = partial(ContextChooser, self._engine.llama, whole=whole, notice=notice, report=report or _ignore)

        async def opened(found: Found) -> Context:
            if reads == WHOLE and found.unread:
                for document_id in found.unread:
                    await self._documents.wait(document_id, report)
                found = (await self._documents.look()).find(references)
            if found.unread:
                context = await self._of_texts(found, asking, reads, question, before, report)
            elif len(found.read) == 1 and reads != EXCERPTS and self._fits(found.read[0]):
                return await self._documents.open_at(found.read[0])
            else:
                if all(map(self._fits, found.read)):
                    chooser = asking(self._set_of(found.read), reads)
                else:
                    chooser = asking(self._set_of(found.read), EXCERPTS, whole=WHOLE_OFF)
                context = await self._evaluate(self._choose(chooser, question, before), report)
            if isinstance(context.key, SourceText):  # a whole document, or a part of one
                return await self._documents.open_text(context.key)
            self._known.add(context)
            return context

        return await self._whole(references, opened)

    async def _whole(
        self, references: Sequence[str], look: Callable[[Found], Awaitable[_Result]], *, leaves_out: bool = False
    ) -> _Result:
        """Return what a look at documents gives. If one turns out to be damaged, look again at whole ones.

        Indexes are made again in the background, and their documents are unread meanwhile. Texts are kept again. If one
        was removed, look again at the others of its folder or pattern; `leaves_out` leaves out ids that are unknown.
        """
        n_left = _LOOKS
        while True:
            known = await self._documents.look()
            found = known.find(list(filter(known.knows, references)) if leaves_out else references)
            try:
                return await look(found)
            except OctavoError as problem:
                n_left -= 1
                if not n_left or (isinstance(problem, RequestError) and not isinstance(problem, _RemovedError)):
                    raise
                if isinstance(problem, _RemovedError):
                    continue
                if not await self._documents.heal(found.read):
                    if not isinstance(problem, DamagedError):
                        raise
                    await self._keep_again(found)

    async def text(self, reference: str) -> str:
        """Return the text of a document, whole even if it is read in parts; blanks stand for parts that are missing.

        Raise RequestError if the document is unknown or cannot be read, OctavoError if an index is damaged.
        """

        async def read(found: Found) -> str:
            text = ""
            for named in found.unread.items():
                with closing(await self._open_store()) as store:
                    kept = await self._keep(store, *named)
                    text += (await asyncio.to_thread(store.document, kept.number)).text
            for document in found.read:
                context = await self._documents.open_at(document)
                if document.offset > len(text):
                    text += "[…]".ljust(document.offset - len(text))
                text += context.text_of(document).text
            return text

        return await self._whole([reference], read)

    def _fits(self, document: ServedDocument) -> bool:
        """Return whether a document leaves room for a question: it may have been indexed with a longer context."""
        return bool(document.described["tokens"] < self._engine.llama.n_ctx())

    async def search(
        self, references: Sequence[str], question: str, most: int
    ) -> list[tuple[ServedDocument, str, float]]:
        """Find the passages of documents that share words with a question, the best first. Uses no model.

        Each comes with its document, and with its score by BM25, which has no upper bound. Documents that are missing
        are left out.

        Raise RequestError if a document could not be read.
        """
        await self._documents.adopt(references)

        async def searched(found: Found) -> list[tuple[ServedDocument, str, float]]:
            with closing(await self._open_store()) as store:
                documents = {document.number: document for document in await self._kept(store, found)}
                pieces = (await asyncio.to_thread(store.search, question, list(documents)))[:most]
                numbers = {piece.text for piece in pieces}
                texts = await asyncio.to_thread(lambda: {number: store.document(number) for number in numbers})
            return [(documents[piece.text], _shown(texts[piece.text], piece), piece.score) for piece in pieces]

        return await self._whole(references, searched, leaves_out=True)

    def _forget(self, is_removed: Callable[[SourceText], bool]) -> None:
        """Close removed documents, and forget the conversations over them. Any thread may call it."""
        if self._set is not None and any(map(is_removed, self._set.documents)):
            self._set = None
        self._growing.close_indexes()
        self._engine.forget(is_removed)

    def _set_of(self, found: Sequence[ServedDocument]) -> DocumentSet:
        """Return the set of these documents: the last one, if it is equal. Another file may have a text by now."""
        last, now = self._set, [(document.version, document.folder) for document in found]
        if last is None or [(document.version, folder) for document, folder in last.folders.items()] != now:
            named = self._documents.named_apart(found)
            folders: dict[SourceText, Path] = {document: document.folder for document in named}
            llama, library = self._engine.llama, self._library
            last = self._set = DocumentSet(llama, library, folders, self._heads, lambda document: None)
        return last

    def _choose(self, chooser: ContextChooser, question: str, before: str) -> Steps[Context]:
        return chooser.choose(question, before, list(self._known), lambda: self._engine.room)

    async def _of_texts(
        self,
        found: Found,
        asking: Callable[..., ContextChooser],
        reads: str,
        question: str,
        before: str,
        report: Report | None,
    ) -> Context:
        """Choose passages of the texts, behind the part of the likeliest one that is read; or ask all documents."""
        with closing(await self._open_store()) as store:
            finder = PassageFinder(self._engine.llama, store, await self._kept(store, found))
            chooser = asking(finder, reads, None if reads == EXCERPTS else self._growing)
            steps = self._choose(chooser, question, before)
            async with self._planning:
                planned = await asyncio.to_thread(_first_step, steps)
            context = planned or await self._evaluate(steps, report)

        def text_of(document: SourceText) -> TokenText:
            assert isinstance(document, ServedDocument)
            return replace(context.text_of(document), first_line=document.described.get("first_line", 1))

        return replace(context, text_of=text_of)

    async def _evaluate(self, steps: Steps[Context], report: Report | None) -> Context:
        """Take the steps in the engine's thread."""

        def evaluate() -> Generator[None, None, Context]:
            return (yield from self._engine.sequences.aside(reported(steps, report)))

        try:
            return await self._engine.run_steps(evaluate())
        except CannotLayOut as problem:
            raise RequestError(str(problem), param="reads") from problem

    async def _open_store(self) -> TextStore:
        """Open the texts: a search needs a connection of its own. Damaged ones are extracted again elsewhere."""
        return await asyncio.to_thread(TextStore, self._library.folder / TEXTS, heals=False)

    async def _kept(self, store: TextStore, found: Found) -> list[ServedDocument]:
        """Return documents whose texts are kept."""
        unread = [await self._keep(store, *named) for named in found.unread.items()]
        read = [await self._keep_indexed(store, document) for document in found.read]
        return self._documents.named_apart([*unread, *read])

    async def _keep_again(self, found: Found) -> None:
        """Keep the texts of documents again: one of them is damaged."""
        for upload in found.unread.values():
            await self._extract(upload)
        with closing(await self._open_store()) as store:
            for document in found.read:
                await self._keep_indexed(store, document, again=True)

    async def _keep(self, store: TextStore, document_id: str, upload: QueuedDocument) -> ServedDocument:
        """Keep the text of a document that is being read, unless that was done before."""
        file = SourceFile(upload.file, self._documents.extraction)
        version = file.version
        if version and await asyncio.to_thread(store.find, version) is None:
            await self._extract(upload)
        kept = await asyncio.to_thread(store.find, version) if version else None
        if kept is None or not file.is_file:  # it was removed in the meantime, and its text with it
            await asyncio.to_thread(store.forget, lambda source: source == upload.path)
            raise _RemovedError(f"There is no document {upload.name}.", 404, "not_found")
        values = kept.version, kept.number, kept.length, kept.notices
        state = DAMAGED if self._documents.is_made_again(document_id) else SAME
        return ServedDocument(kept.sha256, upload.name, upload.file, file, None, *values, id=document_id, state=state)

    async def _extract(self, upload: QueuedDocument) -> None:
        """Extract the text of an upload, unless that is removed meanwhile."""
        try:
            result = await self._extractors.do_once(name_of(KeepText), upload.path) or {}
        except Died as problem:
            result = {"error": f"reading it ended with {problem}."}
        if "error" in result:
            raise RequestError(f"{upload.name} could not be read: {without_folders(result['error'])}")

    async def _keep_indexed(self, store: TextStore, document: ServedDocument, again: bool = False) -> ServedDocument:
        """Keep the text that an index was made of, unless that was done before, and need not be done again."""
        context = await self._documents.open_at(document)
        version = FileVersion(str(document.folder), 0, len(context.index.tokens))

        def keep() -> SourceText:
            text = context.text_of(document)
            places, n_bytes = tuple(text.places), version.n_bytes
            return store.add(Document(text.text, places, name=document.name, path=version.path, n_bytes=n_bytes))

        async with self._planning:
            kept = await asyncio.to_thread(store.find, version)
            if kept is None or again:
                kept = await asyncio.to_thread(keep)
        return replace(document, number=kept.number, length=kept.length)


def _ignore(news: PartsAnswered) -> None:
    """Report it to no client."""


class _Unread(GrowingIndexes):
    """The indexes of documents that the library lists as unread."""

    def missing(self, documents: Iterable[SourceText]) -> list[SourceText]:
        """Return the documents that have no index by now; all, if they were read since the library listed them."""
        documents = list(documents)
        return super().missing(documents) or documents

    def whole(self, document: SourceText, piece: Piece) -> Context | None:
        """Return a document, or the part of it with a piece; None if its index is missing or damaged."""
        try:
            return super().whole(document, piece)
        except DamagedError:
            return None

    def part_of(self, document: SourceText, described: dict[str, Any]) -> SourceText:
        """Return a part of a document, by its description in a manifest."""
        part, whole = super().part_of(document, described), with_id(document)
        return ServedDocument(
            part.sha256,
            part.name,
            part.path,
            part.file,
            version=part.version,
            id=whole.id,
            manifest={"document": described},
            state=whole.state,
        )

    def heal(self, document: SourceText, damaged: SourceText) -> None:
        """Leave a damaged index to the background reader: the engine computes for others."""


def _shown(document: Document, piece: Piece) -> str:
    """Return a piece of a document, below the head of the table that it begins in."""
    return f"{document.table_heads.head(piece.start)}{document.text[piece.start : piece.stop].strip()}"


def _first_step(steps: Steps[Context]) -> Context | None:
    """Take the first step of a choice, which uses no model; return a context that is known already."""
    try:
        next(steps)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    return None
