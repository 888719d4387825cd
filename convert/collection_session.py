"""A conversation over many documents: each question is answered from the document that it is about."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path

from ..errors import OctavoError
from ..runtime.conversation import Conversation
from ..runtime.llama import Llama
from ..runtime.recorder import QueryHead
from ..runtime.session import Sampling
from ..runtime.store.library import Library
from .document_session import Document
from .shelf import Found, Shelf, Shelved


class Collection(Document):
    """Documents that are open for questions. `open_collection` returns one.

    For each question the document is found that it is about, and the model answers from it. When that is another one
    than before, the conversation so far is read again after it.

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

    Attributes
    ----------
    path : Path
        The file of the document that the last question was answered from.
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
    ) -> None:
        first = shelf.documents[0]
        index, described = shelf.open(first)
        llama.attach(index)
        super().__init__(llama, sampling, Path(first.source.path), system, described, heads, library)
        self.found: list[Found] = []
        self._shelf, self._current = shelf, first

    @property
    def documents(self) -> list[Path]:
        """Return the files of all documents."""
        return [Path(document.source.path) for document in self._shelf.documents]

    def stream(self, question: str) -> Generator[str, None, None]:
        """Find the document that a question is about, and answer it piece by piece, as `Session.stream` does.

        A question that goes on with a conversation is looked for together with the question before it.
        """
        if not self._closed and question.strip():
            self._find(f"{self._last.question}\n{question}" if self._last else question)
        yield from self._stream(question)

    def _find(self, question: str) -> None:
        """Attach the document that a question is about. If that fails, the conversation stays as it is."""
        if len(self._shelf.documents) == 1:
            return
        before, last = self.conversation(), self._last
        with self.llama.context.unrecorded():  # what is read to find it is no answer
            try:
                found = self._shelf.route(question)
                self._attach(found[0].document, before)
            except BaseException:
                self._attach(self._current, before)
                self._last = last
                raise
        self.found = found

    def _attach(self, document: Shelved, conversation: Conversation) -> None:
        """Go on with a conversation after a document."""
        llama = self.llama
        index, described = self._shelf.open(document)
        llama.reset()
        llama.attach(index)
        if document is self._current:
            conversation.resume(llama, llama.n_tokens)
            return
        if llama.n_tokens + len(conversation.tokens) >= llama.longest:
            raise OctavoError(
                f"The conversation does not fit after {document.name}, which the question is about: /clear forgets it."
            )
        self.n_document = llama.n_tokens
        llama.read(conversation.tokens)
        self.path, self._described, self._current = Path(document.source.path), described, document
        self._last = None  # its place in the context is another one now
        vars(self).pop("_text", None)
