"""A conversation over many documents: each question is answered from the one that it is about, or from excerpts."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path

from ..documents.document import Place
from ..errors import OctavoError
from ..runtime.llama import Llama
from ..runtime.query_recorder import QueryHead
from ..runtime.store.model_library import Library
from ..settings import WHOLE, Sampling
from .conversation import Conversation
from .document_session import Document
from .document_set import Shelf, Shelved
from .excerpts import EXCERPT_TOKENS, LaidOut, lay_out
from .passages import Passage, TokenText
from .ranking import Found, Look


class Collection(Document):
    """Documents that are open for questions. `open_documents` returns one.

    For each question octavo finds the document that it is about, or the excerpts of all documents that it is about,
    laid out as one text. The model answers from that. If it is another text than before, the model reads the
    conversation so far again after it.

    Parameters
    ----------
    llama : Llama
        A model that has read the documents. It is empty.
    sampling : Sampling
        How answers are drawn.
    shelf : Shelf
        The documents.
    system : str
        What the model is told before the first question.
    heads : sequence of QueryHead, optional
        As in `Document`.
    library : Library
        The model's indexes.
    reads : str
        What answers are given from, one of READS (settings.py).

    Attributes
    ----------
    path : Path
        The file of the document that the last question was answered from; of excerpts, that of the likeliest one.
    found : list of Found
        The documents that the last question may be about, the likeliest first.
    """

    def __init__(
        self,
        llama: Llama,
        sampling: Sampling,
        shelf: Shelf,
        system: str,
        heads: Sequence[QueryHead] | None,
        library: Library,
        reads: str = WHOLE,
    ) -> None:
        first = shelf.documents[0]
        index, described = shelf.open(first)
        llama.attach(index)
        super().__init__(llama, sampling, Path(first.source.path), system, described, heads, library)
        self.found: list[Found] = []
        self._shelf, self._reads = shelf, reads
        self._current: Shelved | LaidOut = first

    @property
    def read_from(self) -> list[Path]:
        """Return the files that the last answer was given from, the likeliest first: of a whole document, one."""
        if not isinstance(self._current, LaidOut):
            return [self.path]
        return [Path(document.source.path) for document in self._current.documents]

    @property
    def documents(self) -> list[Path]:
        """Return the files of all documents."""
        return [Path(document.source.path) for document in self._shelf.documents]

    def stream(self, question: str) -> Generator[str, None, None]:
        """Find what a question is about, and answer it piece by piece, as `Session.stream` does.

        A question that goes on with a conversation is looked for together with the question before it.
        """
        if not self._closed and question.strip():
            self._find(f"{self._last.question}\n{question}" if self._last else question)
        yield from self._stream(question)

    def sources(self, most: int = 3) -> list[Passage]:
        """Find the passages that the last answer comes from, as `Document.sources` does. Each names its document."""
        if not isinstance(self._current, LaidOut):
            return [replace(each, document=str(self.path)) for each in super().sources(most)]
        found = self._current.passages(self._attended(), self._text_on_shelf, most)
        return [replace(each, document=str(document.source.path)) for document, each in found]

    def _text_on_shelf(self, document: Shelved) -> tuple[TokenText, list[Place]]:
        """Text and places of a document."""
        index, described = self._shelf.open(document)
        return self._text_of(index.tokens, described)

    def _find(self, question: str) -> None:
        """Attach what a question is about. If that fails, the conversation stays as it is."""
        if len(self._shelf.documents) == 1 and self._reads == WHOLE:
            return
        before, last = self.conversation(), self._last
        with self.llama.context.unrecorded():  # what is read to find it is no answer
            try:
                look = self._shelf.look(question)
                self._attach(self._place(look), before)
            except BaseException:
                self._attach(self._current, before)
                self._last = last
                raise
        self.found = look.found

    def _place(self, look: Look) -> Shelved | LaidOut:
        """Return what the model reads: the likeliest document, or the likeliest excerpts."""
        if self._reads == WHOLE:
            return look.found[0].document
        excerpts, current = look.excerpts(EXCERPT_TOKENS), self._current
        if isinstance(current, LaidOut) and current.excerpts == excerpts:
            return current
        return lay_out(self.llama, self._shelf, excerpts)

    def _attach(self, place: Shelved | LaidOut, conversation: Conversation) -> None:
        """Continue a conversation after a document, or after excerpts."""
        llama, likeliest = self.llama, place.documents[0] if isinstance(place, LaidOut) else place
        index, described = self._shelf.open(likeliest)
        if isinstance(place, LaidOut):
            index = place.index
        llama.reset()
        llama.attach(index)
        if place is self._current:
            conversation.resume(llama, llama.n_tokens)
            return
        if llama.n_tokens + len(conversation.tokens) >= llama.longest:
            what = "the excerpts" if isinstance(place, LaidOut) else likeliest.name
            raise OctavoError(
                f"The conversation does not fit after {what}, which the question is about: /clear forgets it."
            )
        self.n_document = llama.n_tokens
        llama.read(conversation.tokens)
        self.path, self._described, self._current = Path(likeliest.source.path), described, place
        self._last = None  # its place in the context is another one now
        vars(self).pop("_text", None)
