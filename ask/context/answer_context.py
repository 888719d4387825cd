"""Find the text to answer a question from: a whole document, or excerpts of several, from their indexes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from ...documents.document import Place
from ...library.document_parts import n_parts_of
from ...library.source_text import SourceText
from ...runtime.document.index import Index
from ...runtime.llama import Llama
from ...settings import BY_QUESTION, EXCERPTS, WHOLE
from ..answer.answer import Basis
from ..chats.chat_file import hash_tokens
from ..search.question_kinds import needs_whole
from ..search.ranking import Candidate
from ..sources.find_sources import Passage, TokenText, passages, text_and_places
from .document_set import DocumentSet
from .excerpts import CannotLayOut, LaidOut, lay_out, n_excerpt_tokens

#: Texts that are kept for the sources of further answers.
_KEPT_TEXTS = 4


#: The text that was not read for an answer: it has an index, is being read in the background, or is left unread.
Rest = Literal["indexed", "being read", "unread"]


class Named(Protocol):
    """A document with a name for messages and a path for users."""

    @property
    def name(self) -> str: ...

    @property
    def path(self) -> Path: ...


class FoundText(Protocol):
    """The text of an answer: an index that the model attaches, and the documents that it comes from."""

    @property
    def documents(self) -> Sequence[Named]:
        """Return its documents, the likeliest first."""

    @property
    def index(self) -> Index:
        """Return its index."""

    @property
    def basis(self) -> Basis:
        """Return how much of its documents it is."""

    def passages(self, attended: np.ndarray, most: int) -> list[tuple[Any, Passage]]:
        """Find the passages of its documents with most attention. See `LaidOut.passages`."""


class Finder(Protocol):
    """Finds the text of an answer among documents."""

    @property
    def documents(self) -> Sequence[Named]:
        """Return all documents."""

    @property
    def only(self) -> FoundText | None:
        """Return the text of every answer; None if it depends on the question."""

    @property
    def rest(self) -> Rest:
        """Return what becomes of the documents' text that was not read for an answer."""

    def find(self, question: str, current: FoundText | None, before: str = "") -> tuple[FoundText, list[Candidate]]:
        """Find the text for a question, and the documents that it may be about, the likeliest first.

        Parameters
        ----------
        current : FoundText or None
            The text of the answer before, which is returned if it is the same.
        before : str
            The question before, which counts less: the question may refer to it.

        Raises
        ------
        OctavoError
            The text cannot be opened.
        """

    def followed_by(self, tokens_hash: str) -> FoundText | None:
        """Return the text with these tokens; None if there is none."""


@dataclass(frozen=True)
class WholeText:
    """A whole document, from its index."""

    finder: IndexFinder
    document: SourceText

    @property
    def documents(self) -> list[SourceText]:
        """Return the document."""
        return [self.document]

    @property
    def index(self) -> Index:
        """Return its index. Raise OctavoError if it can neither be opened nor made again."""
        return self.finder.document_set.open(self.document)[0]

    @property
    def basis(self) -> Basis:
        """Return that it is whole, or a part of a document that is longer than the context."""
        n_parts = n_parts_of(self.document.name)
        return Basis("document") if n_parts == 1 else Basis("part", share=1 / n_parts)

    def passages(self, attended: np.ndarray, most: int) -> list[tuple[SourceText, Passage]]:
        """Find the passages with most attention. See `LaidOut.passages`."""
        text, places = self.finder.text(self.document)
        of_text = attended[:, self.finder.document_set.n_prefix(self.document) :]
        return [(self.document, passage) for passage in passages(text, places, of_text, most)]


@dataclass(frozen=True)
class Excerpts:
    """Excerpts of documents, from their indexes."""

    finder: IndexFinder
    laid_out: LaidOut

    @property
    def documents(self) -> list[SourceText]:
        """Return their documents, the likeliest first."""
        return self.laid_out.documents

    @property
    def index(self) -> Index:
        """Return the index of the excerpts."""
        return self.laid_out.index

    @property
    def basis(self) -> Basis:
        """Return the number of excerpts, and their share of the documents' tokens."""
        excerpts, texts = self.laid_out.excerpts, self.finder.document_set.texts
        n_read = sum(excerpt.stop - excerpt.start for excerpt in excerpts)
        return Basis("excerpts", len(excerpts), n_read / sum(len(texts[document]) for document in self.documents))

    def passages(self, attended: np.ndarray, most: int) -> list[tuple[SourceText, Passage]]:
        """Find the passages with most attention. See `LaidOut.passages`."""
        return self.laid_out.passages(attended, self.finder.text, most)


def reads_whole(reads: str, question: str) -> bool:
    """Return whether a question over several documents is answered from one of them, whole; `reads` is one of READS."""
    return reads == WHOLE or (reads == BY_QUESTION and needs_whole(question))


class IndexFinder:
    """Finds documents, or excerpts, by the words and the keys of their indexes.

    Parameters
    ----------
    document_set : DocumentSet
        The documents.
    reads : str
        Text to answer from, one of READS (settings.py).
    """

    rest: Rest = "indexed"

    def __init__(self, llama: Llama, document_set: DocumentSet, reads: str = BY_QUESTION) -> None:
        self.document_set = document_set
        self._llama, self._reads = llama, reads
        self._texts: dict[SourceText, tuple[TokenText, list[Place]]] = {}

    @property
    def documents(self) -> list[SourceText]:
        """Return all documents."""
        return self.document_set.documents

    @property
    def only(self) -> WholeText | None:
        """Return the only document, if it is read whole."""
        is_only = len(self.documents) == 1 and self._reads != EXCERPTS
        return WholeText(self, self.documents[0]) if is_only else None

    def find(self, question: str, current: FoundText | None, before: str = "") -> tuple[FoundText, list[Candidate]]:
        """Find the likeliest document, or the likeliest excerpts. See `Finder.find`."""
        ranking = self.document_set.rank(question, before)
        if not reads_whole(self._reads, question):
            excerpts = ranking.excerpts(n_excerpt_tokens(self._llama))
            if isinstance(current, Excerpts) and current.laid_out.excerpts == excerpts:
                return current, ranking.candidates
            try:
                return Excerpts(self, lay_out(self._llama, self.document_set, excerpts)), ranking.candidates
            except CannotLayOut:
                if self._reads == EXCERPTS:
                    raise
        return WholeText(self, ranking.candidates[0].document), ranking.candidates

    def followed_by(self, tokens_hash: str) -> WholeText | None:
        """Return the document with these tokens; None for excerpts, or for a document of another set."""
        for document in self.documents:
            if hash_tokens(self.document_set.tokens(document)) == tokens_hash:
                return WholeText(self, document)
        return None

    def text(self, document: SourceText) -> tuple[TokenText, list[Place]]:
        """Return the text of a document, and the places of its pages and headings. The last ones are kept."""
        if document not in self._texts:
            index, described = self.document_set.open(document)
            self._texts[document] = text_and_places(self._llama, index.tokens[index.n_prefix :], described)
            while len(self._texts) > _KEPT_TEXTS:
                del self._texts[next(iter(self._texts))]
        return self._texts[document]
