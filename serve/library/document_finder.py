"""Find which of several documents a question is about, or which excerpts of them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import TypeAlias, TypeVar

from ...ask.document_set import DocumentSet
from ...ask.excerpts import EXCERPT_TOKENS, CannotLayOut, LaidOut, lay_out_in_batches
from ...library.indexed_document import IndexedDocument
from ...runtime.query_recorder import QueryHead
from ...runtime.store.model_library import Library
from ...settings import EXCERPTS
from ..engine.engine import Engine
from ..engine.tasks import once
from ..http.api_error import RequestError
from .open_document import Opened, OpenExcerpts
from .served_document import ReadDocument
from .served_library import ServedLibrary

_Result = TypeVar("_Result")
_Steps: TypeAlias = Generator[None, None, _Result]


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
        self._last: DocumentSet | None = None

    async def open(self, references: Sequence[str], reads: str, question: str) -> Opened:
        """Open the text to answer a question from.

        Parameters
        ----------
        references : sequence of str
            Ids, names and patterns of documents, at least one (`ServedLibrary.find`).
        reads : str
            The document that the question is about, or excerpts of all: one of READS (settings.py).

        Raises
        ------
        RequestError
            A document is missing, the model's keys cannot be laid out as excerpts, or the server is stopping.
        OctavoError
            An index is damaged.
        """
        found = self._documents.find(references)
        if reads == EXCERPTS:
            laid_out = await self._search(found, lambda document_set: self._lay_out(document_set, question))
            opened = {
                document: await self._documents.open_at(document.folder, self._id(found, document))
                for document in laid_out.documents
            }
            return OpenExcerpts(laid_out, opened)
        if len(found) == 1:
            return await self._documents.open_at(found[0].folder, found[0].id)
        best = await self._search(
            found, lambda document_set: once(lambda: document_set.rank(question).candidates[0].document)
        )
        return await self._documents.open_at(best.folder, self._id(found, best))

    @staticmethod
    def _id(found: Sequence[ReadDocument], indexed: IndexedDocument) -> str:
        """Return the id of a document for clients."""
        return next(document.id for document in found if document.folder == indexed.folder)

    async def _search(self, found: Sequence[ReadDocument], find: Callable[[DocumentSet], _Steps[_Result]]) -> _Result:
        """Search documents in the engine's thread."""

        def search() -> _Steps[_Result]:
            return (yield from self._engine.sequences.aside(find(self._set_of(found))))

        return await self._engine.run_steps(search())

    def _set_of(self, found: Sequence[ReadDocument]) -> DocumentSet:
        """Return the set of these documents: the last one, if it is equal."""
        documents = [IndexedDocument(document.name, Path(document.name), document.folder) for document in found]
        if self._last is None or self._last.documents != documents:
            self._last = DocumentSet(self._engine.llama, self._library, documents, self._heads, lambda document: None)
        return self._last

    def _lay_out(self, document_set: DocumentSet, question: str) -> _Steps[LaidOut]:
        """Lay out the excerpts that a question is about."""
        excerpts = document_set.rank(question).excerpts(EXCERPT_TOKENS)
        yield
        engine = self._engine
        try:
            return (yield from lay_out_in_batches(engine.llama, document_set, excerpts, lambda: engine.room))
        except CannotLayOut as problem:
            raise RequestError(str(problem), param="reads") from problem
