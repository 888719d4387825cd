"""Find which of several documents a question is about, or which excerpts of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from ...ask.document_set import Shelf, Shelved
from ...ask.excerpts import EXCERPT_TOKENS, CannotLayOut, LaidOut, lay_out
from ...library.open_index import Source
from ...runtime.query_recorder import QueryHead
from ...runtime.store.model_library import Library
from ...settings import EXCERPTS
from ..engine.engine import Engine
from ..http.api_error import RequestError
from .open_document import Opened, OpenExcerpts
from .served_library import Documents

_Found = TypeVar("_Found")


class Finder:
    """Looks for documents by the model's heads that retrieve, as `octavo ask FOLDER` does.

    Parameters
    ----------
    engine : Engine
        What has the model read a question, in a turn of its own.
    documents : Documents
        The documents that are read.
    library : Library
        The model's library.
    heads : sequence of QueryHead
        The heads that retrieve; without any, words alone decide.
    """

    def __init__(self, engine: Engine, documents: Documents, library: Library, heads: Sequence[QueryHead]) -> None:
        self._engine, self._documents, self._library, self._heads = engine, documents, library, heads
        self._paths: tuple[Path, ...] = ()
        self._shelf: Shelf | None = None  # of the documents that were looked through last

    async def open(self, references: Sequence[str], reads: str, question: str) -> Opened:
        """Open what a question is to be answered from.

        Parameters
        ----------
        references : sequence of str
            Ids, names and patterns of documents, at least one (`Documents.find`).
        reads : str
            The one document that the question is about, or excerpts of all: one of READS (settings.py).
        question : str
            The question.

        Raises
        ------
        RequestError
            A document is not there, the model's keys cannot be laid out as excerpts, or the server is stopping.
        OctavoError
            An index is damaged.
        """
        ids = self._documents.find(references)
        if reads == EXCERPTS:
            laid_out = await self._look(ids, lambda shelf: self._lay_out(shelf, question))
            places = {each: each.folder for each in laid_out.documents}
            opened = {each: await self._documents.open_at(path, ids[path]) for each, path in places.items()}
            return OpenExcerpts(laid_out, opened)
        if len(ids) == 1:
            path = next(iter(ids))
        else:
            path = await self._look(ids, lambda shelf: shelf.look(question).found[0].document.folder)
        return await self._documents.open_at(path, ids[path])

    async def _look(self, paths: Iterable[Path], find: Callable[[Shelf], _Found]) -> _Found:
        """Have something found among documents, in the engine's thread."""
        found: list[_Found] = []

        def look() -> None:
            shelf = self._shelf_of(tuple(paths))
            with self._engine.sequences.aside():
                found.append(find(shelf))

        await self._engine.run(look)
        return found[0]

    def _shelf_of(self, paths: tuple[Path, ...]) -> Shelf:
        """Return the shelf of the documents that have these indexes."""
        if self._shelf is None or self._paths != paths:
            shelved = [Shelved(Source(path.name), path) for path in paths]
            self._shelf = Shelf(self._engine.llama, self._library, shelved, self._heads, lambda document: None)
            self._paths = paths
        return self._shelf

    def _lay_out(self, shelf: Shelf, question: str) -> LaidOut:
        """Lay out the excerpts that a question is about."""
        excerpts = shelf.look(question).excerpts(EXCERPT_TOKENS)
        try:
            return lay_out(self._engine.llama, shelf, excerpts)
        except CannotLayOut as problem:
            raise RequestError(str(problem), param="reads") from problem
