"""A conversation over many documents: each answer is given from the document of its question, or from excerpts."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path

from ..errors import OctavoError
from ..library.background.computing import computing
from ..prompts.thought_splitter import Part
from ..runtime.llama import Llama
from ..runtime.query_recorder import QueryHead, Recorder
from ..runtime.store.model_library import Library
from ..settings import Sampling
from ..system.working_time import working_time
from .answer.answer import Basis
from .chats.chat_file import Conversation, OtherText
from .context.answer_context import Finder, FoundText, Rest
from .search.question_kinds import asks_about_whole
from .search.ranking import Candidate
from .session import Session
from .sources.find_sources import Passage


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
    finder : Finder
        Finds the text of an answer among the documents.
    system : str
        Read before the first question.
    heads : sequence of QueryHead, optional
        Retrieval heads, by which `sources` finds where an answer comes from; None without sources.
    library : Library
        The model's indexes.

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
        finder: Finder,
        system: str,
        heads: Sequence[QueryHead] | None,
        library: Library,
    ) -> None:
        recorder = None if heads is None else Recorder(llama.context.nodes, llama.context.shapes, heads)
        super().__init__(llama, sampling, system, recorder, library, has_document=True)
        self.found: list[Candidate] = []
        self.path = finder.documents[0].path
        self._finder = finder
        self._current: FoundText | None = None

    @property
    def _rows_return(self) -> bool:
        """Return whether the text of the conversation is there next time: passages depend on the question."""
        return self.rest == "indexed"

    @property
    def read_from(self) -> list[Path]:
        """Return the files of the last answer, the likeliest first: of a whole document, one."""
        return [] if self._current is None else [document.path for document in self._current.documents]

    @property
    def rest(self) -> Rest:
        """Return what becomes of the text that was not read for the last answer."""
        return self._finder.rest

    @property
    def needs_whole(self) -> bool:
        """Return whether the last question was about a whole, and answered from less."""
        asked = self._last is not None and asks_about_whole(self._last.question)
        return asked and self._current is not None and self._current.basis.share < 1

    @property
    def _basis(self) -> Basis | None:
        """Return what the model read for the last answer."""
        return None if self._current is None else self._current.basis

    @property
    def documents(self) -> list[Path]:
        """Return the files of all documents."""
        return [document.path for document in self._finder.documents]

    def stream_parts(self, question: str) -> Generator[Part, None, None]:
        """Find the text for a question, and answer it piece by piece, as `Session.stream_parts` does.

        Each question is looked for anew. In the search the question before it counts, too, but less.
        """
        began = working_time()
        with computing():
            if not self._closed and question.strip():
                self._find(question, self._history.last_question if self._history is not None else "")
            yield from self._answer(question, began)

    def sources(self, most: int = 3) -> list[Passage]:
        """Find the passages that the last answer comes from. See `Session.sources`."""
        attended, current = self._attended(), self._current
        assert current is not None  # there is an answer
        found = current.passages(attended, most)
        return [replace(passage, document=str(document.path)) for document, passage in found]

    def resume(self, conversation: Conversation) -> None:
        """Continue a conversation after its document. See `Session.resume`."""
        text = self._finder.followed_by(conversation.follows)
        if text is None and self._current is None:
            raise OtherText("This conversation was over another document, or with another prompt.")
        if text is None or text == self._current:
            super().resume(conversation)
            return
        before, last, current, path = self.conversation(), self._last, self._current, self.path
        try:
            self._attach(text, Conversation(conversation.follows, [], [], [], None))
            super().resume(conversation)
        except BaseException:
            self._current, self.path = current, path
            self._attach(current, before)
            self._unread, self._last = before.unread, last
            raise

    def _find(self, question: str, asked_before: str) -> None:
        """Attach the text for a question. If that fails, the conversation stays as it is."""
        only = self._finder.only
        if only is not None and self._current is not None:
            return
        before, last = self.conversation(), self._last
        with self.llama.context.unrecorded():  # the search is not part of the answer
            try:
                text, found = (
                    (only, []) if only is not None else self._finder.find(question, self._current, asked_before)
                )
                self._attach(text, before)
            except BaseException:
                self._attach(self._current, before)
                self._last = last
                raise
        self.found = found

    def _attach(self, text: FoundText | None, conversation: Conversation) -> None:
        """Continue a conversation after a text, or after nothing."""
        llama = self.llama
        llama.reset()
        if text is None:
            self.n_document = 0
            return
        likeliest = text.documents[0]
        llama.attach(text.index)
        if text == self._current:
            self.n_document = llama.n_tokens
            conversation.resume(llama, llama.n_tokens)
            return
        if llama.n_tokens + len(conversation.tokens) >= llama.longest:
            raise OctavoError(
                f"The conversation does not fit after {likeliest.name}, which the question is about: /clear forgets it."
            )
        self.n_document = llama.n_tokens
        llama.prefill(conversation.tokens)
        self.path, self._current = likeliest.path, text
        self._last = None  # its place in the context has moved
