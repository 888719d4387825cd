"""Find which of several documents a question is about, or which excerpts of them."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path

from ...ask.context.context import Context
from ...ask.context.context_chooser import ContextChooser
from ...ask.context.document_set import DocumentSet
from ...ask.context.excerpts import CannotLayOut
from ...library.source_text import SourceText
from ...runtime.query_recorder import QueryHead
from ...runtime.store.model_library import Library
from ...settings import EXCERPTS, WHOLE
from ..engine.engine import Engine
from ..engine.tasks import Report, reported
from ..request_error import RequestError
from .open_document import Opened, OpenExcerpts
from .served_document import ReadDocument
from .served_library import ServedLibrary
from .unread_finder import UnreadFinder


class DocumentFinder:
    """Find documents by the model's retrieval heads, as `octavo ask FOLDER` does.

    Parameters
    ----------
    documents : ServedLibrary
        The library's documents.
    heads : sequence of QueryHead
        Retrieval heads; without any, words alone decide.
    """

    def __init__(self, engine: Engine, documents: ServedLibrary, library: Library, heads: Sequence[QueryHead]) -> None:
        self._engine, self._documents, self._library, self._heads = engine, documents, library, heads
        self._unread = UnreadFinder(engine, documents, library)
        self._last: DocumentSet | None = None

    async def open(
        self,
        references: Sequence[str],
        reads: str,
        question: str,
        before: str = "",
        *,
        report: Report | None = None,
    ) -> Opened:
        """Open the text to answer a question from.

        While one of the documents is still being read, that is passages of all of them, found by words. A request that
        reads whole documents waits until they are read.

        Parameters
        ----------
        references : sequence of str
            Ids, names and patterns of documents, at least one (`ServedLibrary.find`).
        reads : str
            What to read, one of READS (settings.py).
        before : str
            The question before, which counts less: the question may refer to it.
        report : callable, optional
            Receives how far documents, passages or excerpts are read, if the model reads them now.

        Raises
        ------
        RequestError
            A document is missing, or could not be read; the model's keys cannot be laid out as excerpts; or the server
            is stopping.
        OctavoError
            An index is damaged.
        """
        await self._documents.adopt(references)
        named = self._documents.find(references)
        if reads == WHOLE and named.unread:
            for upload in named.unread:
                await self._documents.wait(upload.file.parent.name, report)
            named = self._documents.find(references)
        found, unread = named
        if unread:
            return await self._unread.open(named, question, before, report=report)
        if len(found) == 1 and reads != EXCERPTS:
            return await self._documents.open_at(found[0])

        def choose() -> Generator[None, None, Context]:
            chooser, engine = ContextChooser(self._engine.llama, self._set_of(found), reads), self._engine
            steps = reported(chooser.choose(question, before, None, lambda: engine.room), report)
            return (yield from engine.sequences.aside(steps))

        try:
            context = await self._engine.run_steps(choose())
        except CannotLayOut as problem:
            raise RequestError(str(problem), param="reads") from problem
        opened = {document: await self._documents.open_at(self._of(found, document)) for document in context.documents}
        if context.share.kind == "excerpts":
            return OpenExcerpts(context, opened)
        return next(iter(opened.values()))

    async def text(self, reference: str) -> str:
        """Return the text of a document, whole even if it is read in parts; blanks stand for parts that are missing.

        Raise RequestError if the document is unknown or cannot be read, OctavoError if an index is damaged.
        """
        found, unread = self._documents.find([reference])
        texts = [await self._unread.text(upload) for upload in unread]
        text = "".join(texts)
        for document in found:
            opened = await self._documents.open_at(document)
            if opened.offset > len(text):
                text += "[…]".ljust(opened.offset - len(text))
            text += opened.text(self._engine.llama).text
        return text

    @staticmethod
    def _of(found: Sequence[ReadDocument], text: SourceText) -> ReadDocument:
        """Return the document with a text."""
        return next(document for document in found if document.described["sha256"] == text.sha256)

    def _set_of(self, found: Sequence[ReadDocument]) -> DocumentSet:
        """Return the set of these documents: the last one, if it is equal."""
        folders = {
            SourceText(document.described["sha256"], document.name, Path(document.name)): document.folder
            for document in found
        }
        if self._last is None or list(self._last.folders.values()) != list(folders.values()):
            self._last = DocumentSet(self._engine.llama, self._library, folders, self._heads, lambda document: None)
        return self._last
