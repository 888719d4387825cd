"""Find which of several documents a question is about."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..convert.documents import Source
from ..convert.shelf import Shelf, Shelved
from ..runtime.recorder import QueryHead
from ..runtime.store.library import Library
from .engine import Engine


class Finder:
    """Looks for documents by the model's heads that retrieve, as `octavo ask FOLDER` does.

    Parameters
    ----------
    engine : Engine
        What has the model read a question, in a turn of its own.
    library : Library
        The model's library.
    heads : sequence of QueryHead
        The heads that retrieve; without any, words alone decide.
    """

    def __init__(self, engine: Engine, library: Library, heads: Sequence[QueryHead]) -> None:
        self._engine, self._library, self._heads = engine, library, heads
        self._paths: tuple[Path, ...] = ()
        self._shelf: Shelf | None = None  # of the documents that were looked through last

    async def find(self, paths: Sequence[Path], question: str) -> Path:
        """Return the index of the document that a question is about.

        Parameters
        ----------
        paths : sequence of Path
            Indexes of the documents, at least two.
        question : str
            The question.

        Raises
        ------
        OctavoError
            An index is damaged, or the server is stopping.
        """
        found: list[Path] = []
        await self._engine.run(lambda: found.append(self._best(tuple(paths), question)))
        return found[0]

    def _best(self, paths: tuple[Path, ...], question: str) -> Path:
        """Look for the document, in the engine's thread."""
        if self._shelf is None or self._paths != paths:
            shelved = [Shelved(Source(path.name), path) for path in paths]
            self._shelf = Shelf(self._engine.llama, self._library, shelved, self._heads, lambda document: None)
            self._paths = paths
        with self._engine.sequences.aside():
            return self._shelf.look(question).found[0].document.folder
