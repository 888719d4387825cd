"""A conversation over an open document, with the sources of its answers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from ..documents.document import Place
from ..runtime.llama import Llama
from ..runtime.query_recorder import QueryHead, Recorder
from ..runtime.store.model_library import Library
from ..settings import Sampling
from .answer.answer import Basis
from .session import Session
from .sources.find_sources import Passage, TokenText, passages, text_and_places


class Document(Session):
    """A document that is open for questions. `open_document` returns one.

    Parameters
    ----------
    llama : Llama
        A model that holds the document.
    sampling : Sampling
        How to draw answers.
    path : Path
        The document's file.
    system : str
        Read before the first question.
    described : dict
        The index's description of the document.
    heads : sequence of QueryHead, optional
        Retrieval heads, by which `sources` finds where an answer comes from; None without sources.
    library : Library
        The model's indexes.

    Attributes
    ----------
    path : Path
        The document's file.
    """

    def __init__(
        self,
        llama: Llama,
        sampling: Sampling,
        path: Path,
        system: str,
        described: dict[str, Any],
        heads: Sequence[QueryHead] | None,
        library: Library,
    ) -> None:
        context = llama.context
        recorder = None if heads is None else Recorder(context.nodes, context.shapes, heads)
        super().__init__(llama, sampling, system, recorder, library)
        self.path, self._described = path, described

    def sources(self, most: int = 3) -> list[Passage]:
        """Find the passages of the document that the last answer comes from. See `Session.sources`."""
        text, places = self._text
        attended = self._attended()[:, self._n_prefix :]
        return passages(text, places, attended, most)

    @property
    def _basis(self) -> Basis:
        """Return that the model has read the whole document."""
        return Basis("document")

    @property
    def _n_prefix(self) -> int:
        """Return the number of tokens before the document's text."""
        document = self.llama.context.cache.document
        return 0 if document is None else document.n_prefix

    @cached_property
    def _text(self) -> tuple[TokenText, list[Place]]:
        """Return the document's text and places."""
        return text_and_places(self.llama, self.llama.input_ids[self._n_prefix : self.n_document], self._described)
