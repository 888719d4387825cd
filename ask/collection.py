"""A conversation over many documents: each answer is given from the document of its question, or from excerpts."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path

from ..documents.document import Place
from ..errors import OctavoError
from ..library.indexed_document import IndexedDocument
from ..runtime.llama import Llama
from ..runtime.query_recorder import QueryHead, Recorder
from ..runtime.store.model_library import Library
from ..settings import WHOLE, Sampling
from .conversation import Conversation, hash_tokens
from .document_set import DocumentSet
from .excerpts import EXCERPT_TOKENS, LaidOut, lay_out
from .passages import Passage, TokenText, passages
from .ranking import Candidate, Ranking
from .session import Session
from .thought_splitter import Part


class Collection(Session):
    """Documents that are open for questions. `open_documents` returns one.

    For each question octavo finds the document that it is about, or excerpts of all documents that it is about, laid
    out as one text. The model answers from that text. If it differs from the text before, the model then reads the
    conversation again after it. Before the first question the model holds no text.

    Parameters
    ----------
    llama : Llama
        A model that has read the documents. It is empty.
    sampling : Sampling
        How to draw answers.
    document_set : DocumentSet
        The documents.
    system : str
        Read before the first question.
    heads : sequence of QueryHead, optional
        Retrieval heads, by which `sources` finds where an answer comes from; None without sources.
    library : Library
        The model's indexes.
    reads : str
        Text to answer from, one of READS (settings.py).

    Attributes
    ----------
    path : Path
        File of the document that the last answer came from; of excerpts, that of the likeliest one. Before the first
        question, that of the first document.
    found : list of Candidate
        The documents that the last question may be about, the likeliest first.
    """

    def __init__(
        self,
        llama: Llama,
        sampling: Sampling,
        document_set: DocumentSet,
        system: str,
        heads: Sequence[QueryHead] | None,
        library: Library,
        reads: str = WHOLE,
    ) -> None:
        recorder = None if heads is None else Recorder(llama.context.nodes, llama.context.shapes, heads)
        super().__init__(llama, sampling, system, recorder, library, has_document=True)
        self.found: list[Candidate] = []
        self.path = document_set.documents[0].path
        self._document_set, self._reads = document_set, reads
        self._current: IndexedDocument | LaidOut | None = None
        self._texts: dict[IndexedDocument, tuple[TokenText, list[Place]]] = {}

    @property
    def read_from(self) -> list[Path]:
        """Return the files of the last answer, the likeliest first: of a whole document, one."""
        if isinstance(self._current, LaidOut):
            return [document.path for document in self._current.documents]
        return [] if self._current is None else [self.path]

    @property
    def documents(self) -> list[Path]:
        """Return the files of all documents."""
        return [document.path for document in self._document_set.documents]

    def stream_parts(self, question: str) -> Generator[Part, None, None]:
        """Find the text for a question, and answer it piece by piece, as `Session.stream_parts` does.

        The search for a question in a conversation includes the question before it.
        """
        if not self._closed and question.strip():
            self._find(f"{self._last.question}\n{question}" if self._last else question)
        yield from self._stream(question)

    def sources(self, most: int = 3) -> list[Passage]:
        """Find the passages that the last answer comes from. See `Session.sources`."""
        attended, current = self._attended(), self._current
        if isinstance(current, LaidOut):
            found = current.passages(attended, self._text, most)
            return [replace(passage, document=str(document.path)) for document, passage in found]
        assert current is not None  # there is an answer
        text, places = self._text(current)
        of_text = attended[:, self._document_set.n_prefix(current) :]
        return [replace(passage, document=str(self.path)) for passage in passages(text, places, of_text, most)]

    def _text(self, document: IndexedDocument) -> tuple[TokenText, list[Place]]:
        """Return text and places of a document of the last answer."""
        if document not in self._texts:
            index, described = self._document_set.open(document)
            self._texts[document] = self._text_of(index.tokens[index.n_prefix :], described)
        return self._texts[document]

    def resume(self, conversation: Conversation) -> None:
        """Continue a conversation after its document. See `Session.resume`."""
        document = self._followed_by(conversation)
        if document is None and self._current is None:
            raise OctavoError("This conversation was over another document, or with another prompt.")
        if document is None or document == self._current:
            super().resume(conversation)
            return
        before, last, current, path = self.conversation(), self._last, self._current, self.path
        try:
            self._attach(document, Conversation(conversation.follows, [], [], [], None))
            super().resume(conversation)
        except BaseException:
            self._current, self.path = current, path
            self._attach(current, before)
            self._unread, self._last = before.unread, last
            raise

    def _followed_by(self, conversation: Conversation) -> IndexedDocument | None:
        """Return the document of a conversation; None for excerpts, or for a document of another set."""
        for document in self._document_set.documents:
            if hash_tokens(self._document_set.tokens(document)) == conversation.follows:
                return document
        return None

    def _find(self, question: str) -> None:
        """Attach the text for a question. If that fails, the conversation stays as it is."""
        documents = self._document_set.documents
        is_only = len(documents) == 1 and self._reads == WHOLE
        if is_only and self._current is not None:
            return
        before, last = self.conversation(), self._last
        with self.llama.context.unrecorded():  # the search is not part of the answer
            try:
                if is_only:
                    self._attach(documents[0], before)
                    return
                ranking = self._document_set.rank(question)
                self._attach(self._place(ranking), before)
            except BaseException:
                self._attach(self._current, before)
                self._last = last
                raise
        self.found = ranking.candidates

    def _place(self, ranking: Ranking) -> IndexedDocument | LaidOut:
        """Return the text for the model: the likeliest document, or the likeliest excerpts."""
        if self._reads == WHOLE:
            return ranking.candidates[0].document
        excerpts, current = ranking.excerpts(EXCERPT_TOKENS), self._current
        if isinstance(current, LaidOut) and current.excerpts == excerpts:
            return current
        return lay_out(self.llama, self._document_set, excerpts)

    def _attach(self, place: IndexedDocument | LaidOut | None, conversation: Conversation) -> None:
        """Continue a conversation after a document, after excerpts, or after nothing."""
        llama = self.llama
        llama.reset()
        if place is None:
            self.n_document = 0
            return
        likeliest = place.documents[0] if isinstance(place, LaidOut) else place
        llama.attach(place.index if isinstance(place, LaidOut) else self._document_set.open(place)[0])
        if place is self._current:
            self.n_document = llama.n_tokens
            conversation.resume(llama, llama.n_tokens)
            return
        if llama.n_tokens + len(conversation.tokens) >= llama.longest:
            what = "the excerpts" if isinstance(place, LaidOut) else likeliest.name
            raise OctavoError(
                f"The conversation does not fit after {what}, which the question is about: /clear forgets it."
            )
        self.n_document = llama.n_tokens
        llama.read(conversation.tokens)
        self.path, self._current = likeliest.path, place
        self._last = None  # its place in the context has moved
        self._texts.clear()
