"""A conversation with a model, over a document or over nothing: questions in, streamed answers out."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from types import TracebackType
from typing import Self, cast

import numpy as np

from ..errors import OctavoError, PromptError
from ..library.background.computing import computing
from ..prompts.thinking import Thinking
from ..prompts.thought_form import Thoughts
from ..prompts.thought_splitter import Part
from ..runtime.llama import Llama
from ..runtime.query_recorder import Recorder
from ..runtime.sequences.sequence import n_common
from ..runtime.store.model_library import Library
from ..settings import Sampling
from ..system.threads import release_threads
from ..system.working_time import working_time
from .answer.answer import Answer, Basis
from .answer.generated_answer import GeneratedAnswer
from .answer.grounding import unfounded
from .answer.notices import notices_of_end, notices_of_unfounded
from .chats.chat_file import Conversation, Turn
from .chats.history import History, Message
from .chats.kept_on_disk import KeptOnDisk
from .sources.find_sources import Passage


class Session(KeptOnDisk):
    """A conversation with a model whose context holds a document, or nothing.

    A session is a context manager; at its end it closes the model.

    Parameters
    ----------
    llama : Llama
        The model, on octavo's attention, which holds the document.
    sampling : Sampling
        How to draw answers.
    system : str
        Read before the first question (see `ConversationTokens`).
    recorder : Recorder, optional
        Storage queries of the last answer's steps, for its sources.
    library : Library, optional
        The model's indexes; conversations are kept beside them.
    has_document : bool, optional
        Whether questions are about a document; by default whether the model holds one.

    Attributes
    ----------
    llama : Llama
        The model.
    sampling : Sampling
        How to draw answers.
    n_document : int
        Tokens of the document, the prompt's head included; 0 without a document.
    answer : Answer or None
        The last answer so far. None before the first, and while the model reads a question.
    about : tuple of str
        Absolute paths of the documents, folders and patterns that were opened.
    """

    def __init__(
        self,
        llama: Llama,
        sampling: Sampling,
        system: str = "",
        recorder: Recorder | None = None,
        library: Library | None = None,
        has_document: bool | None = None,
    ) -> None:
        self.llama, self.sampling, self.system, self.library = llama, sampling, system, library
        self.n_document: int = llama.n_tokens
        self._has_document = self.n_document > 0 if has_document is None else has_document
        self._thoughts = Thoughts.of(llama)
        self.think(sampling.think)
        self.answer: Answer | None = None
        self._unread: list[int] = []  # tokens of the last answer that the model has not read yet
        self._history: History | None = History()  # None for a conversation that an older octavo saved
        self._last: Turn | None = None
        self._closed = False
        self._recorder = recorder
        llama.context.record(recorder)
        if sampling.seed is not None:
            llama.set_seed(sampling.seed)
        release_threads()  # the first question may come from another thread

    def think(self, think: bool | None) -> None:
        """Turn the model's thinking on or off from the next question on; None leaves it to its chat template."""
        self.sampling = replace(self.sampling, think=think)
        self.thinking = Thinking(self._thoughts, think, self.sampling.think_budget)
        self.prompt = self.llama.prompt(self._has_document, self.system, options=self.thinking.options)

    @property
    def _basis(self) -> Basis | None:
        """Return what the model read for the last answer; None without a document."""
        return None

    @property
    def n_tokens(self) -> int:
        """Return the number of tokens in the context: document, questions and answers."""
        return int(self.llama.n_tokens)

    @property
    def n_ctx(self) -> int:
        """Return the number of tokens that the model can look back on."""
        return int(self.llama.n_ctx())

    def ask(self, question: str) -> Answer:
        """Answer a question.

        Parameters
        ----------
        question : str
            The question. The model remembers the questions and answers before it.

        Returns
        -------
        Answer
            The whole answer.

        Raises
        ------
        OctavoError
            The question is empty or no longer fits the context, or the session is closed.
        """
        for _ in self.stream(question):
            pass
        return cast(Answer, self.answer)

    def stream(self, question: str) -> Generator[str, None, None]:
        """Answer a question piece by piece, without the model's thoughts.

        After the last piece, `answer` holds the whole answer. If the caller stops earlier, the pieces that it took
        stay in the conversation.

        Parameters
        ----------
        question : str
            The question. The model remembers the questions and answers before it.

        Yields
        ------
        str
            The next piece of the answer's text. It may be empty, as while the model thinks.

        Raises
        ------
        OctavoError
            The question is empty or no longer fits the context, or the session is closed. The first piece raises it.
        """
        return _without_thoughts(self.stream_parts(question))

    def stream_parts(self, question: str) -> Generator[Part, None, None]:
        """Answer a question piece by piece as `stream` does, the model's thoughts included.

        Yields
        ------
        Part
            The next piece: its `text`, which may be empty, and whether it `is_thought`.
        """
        return self._stream(question)

    def _stream(self, question: str) -> Generator[Part, None, None]:
        """Yield the parts for `stream_parts`; meanwhile nothing is read in the background."""
        with computing():
            yield from self._answer(question, working_time())

    def _answer(self, question: str, began: float) -> Generator[Part, None, None]:
        """Read a question that was asked at a time, and yield the parts of its answer."""
        self._check_document()
        unread, tokens = self._unread, self._question_tokens(question)
        llama, turn = self.llama, Turn(question, self.llama.n_tokens, unread)
        sampling = self.sampling.settled(self._has_document)
        generated = GeneratedAnswer(
            llama, sampling, self.prompt, self.thinking, tokens, self._recorder, began, question
        )
        self.answer, self._last = None, turn
        llama.context.keep_state()
        if self._recorder is not None:
            self._recorder.clear()
        try:
            yield from generated.parts()
            self._check_document()
        finally:
            if (answer := generated.answer()) is not None:
                found = self._unfounded(answer.text, question)
                said = {
                    **notices_of_end(generated.stream, self.n_ctx, not self.thinking.is_off),
                    **notices_of_unfounded(found),
                }
                self.answer = replace(answer, read=self._basis, unfounded=found, notices=said)
                if self._history is not None:
                    self._history.answer(answer.text, answer.reasoning, generated.tokens)
            if llama.n_tokens < generated.start:  # stopped while it read the question: undo the question
                llama.rewind(turn.start)
                self._unread = turn.unread
            elif generated.stream.stopped_by is not None:
                self._unread = []
                llama.rewind(generated.start + generated.stream.n_shown_tokens)
            else:
                self._unread = generated.unread()
            release_threads()

    def _unfounded(self, answer: str, question: str) -> list[str]:
        """Return the names and numbers of an answer that are not in the document, nor in a question."""
        if not self.n_document:
            return []
        messages = self._history.messages if self._history else []
        asked = [message["content"] for message in messages if message["role"] == "user"]
        document = map(self.llama.piece, self.llama.input_ids[: self.n_document].tolist())
        return unfounded(answer, [self.system, question, *asked], document)

    def regenerate(self) -> Generator[str, None, None]:
        """Answer the last question anew, piece by piece as `stream` does. The old answer is forgotten.

        Raises
        ------
        OctavoError
            There was no question, or this attention cannot return to it.
        """
        return _without_thoughts(self.regenerate_parts())

    def regenerate_parts(self) -> Generator[Part, None, None]:
        """Answer the last question anew as `regenerate` does, the model's thoughts included."""
        if self._last is None:
            question = self._history.last_question if self._history is not None else ""
            if self._history is None or not question:
                raise OctavoError("There is no question to answer again.")
            self._history.forget_last()  # of a conversation of which only the texts are known
            return self.stream_parts(question)
        self.llama.rewind(self._last.start)
        self._unread = self._last.unread
        if self._history is not None:
            self._history.forget_last()
        return self._stream(self._last.question)

    def sources(self, most: int = 3) -> list[Passage]:
        """Find the passages of the document that the last answer comes from.

        The answer's tokens attended to them more than any token does, by the retrieval heads (docs/sources.md).

        Parameters
        ----------
        most : int
            Most passages to return, at least 1.

        Returns
        -------
        list of Passage
            Those with the largest shares first; none if the answer does not come from the document. Passages of a
            collection name their document.

        Raises
        ------
        OctavoError
            There is no document or no answer yet, the document was opened with `sources=False`, or no retrieval head
            sees the whole document, as in models whose windows all slide.
        """
        raise OctavoError("There is no document that answers could come from.")

    def _attended(self) -> np.ndarray:
        """Return the attention of the last answer to the document's tokens (`Recorder.attended`)."""
        if self._recorder is None:
            raise OctavoError("Sources are not recorded: open the document with sources=True.")
        document = self.llama.context.cache.document
        if self.answer is None or document is None:
            raise OctavoError("There is no answer yet, so it has no sources.")
        return self._recorder.attended(document)

    def _check_document(self) -> None:
        """Raise OctavoError if the document's index changed while it was open."""
        if not self._closed and (document := self.llama.context.cache.document) is not None:
            document.check()

    def _question_tokens(self, question: str) -> list[int]:
        """Return the tokens that the model has to read before it answers."""
        if self._closed:
            raise OctavoError("This conversation is closed: open it again.")
        if not question.strip():
            raise OctavoError("The question is empty.")
        tokens, n_kept = self._after_context(question)
        n_tokens = n_kept + len(tokens)
        if n_tokens >= self.llama.longest:
            raise OctavoError(
                f"The question does not fit: {n_tokens:,} tokens, and the context holds "
                f"{self.llama.longest:,}. Use /clear to forget the conversation, or give a larger context with `n_ctx`."
            )
        if n_kept < self.llama.n_tokens:
            self.llama.rewind(n_kept)
        return tokens

    def _after_context(self, question: str) -> tuple[list[int], int]:
        """Return the tokens of a question that the model has not read, and the number of tokens before them.

        The context holds more tokens than that if the template now writes an earlier answer in another way.
        """
        llama = self.llama
        if self._history is not None:
            self._history.ask(question)
        if self._history is not None and self.prompt.has_template:
            with suppress(PromptError):
                tokens = self._history.tokens(self.prompt)
                n_same = n_common(llama.sequence.tokens[self.n_document :], tokens[:-1])
                return tokens[n_same:], self.n_document + n_same
        is_first = llama.n_tokens == self.n_document
        asked = self.prompt.first_question(question) if is_first else self.prompt.next_question(question)
        return self._unread + asked, llama.n_tokens

    def conversation(self) -> Conversation:
        """Return a copy of the questions and answers so far."""
        history = self._history and self._history.copy()
        return Conversation.of(self.llama, self.n_document, self._unread, self._last, history)

    def resume(self, conversation: Conversation) -> None:
        """Resume a conversation in place of this one, which stays if the resumption fails.

        Raises
        ------
        OctavoError
            It was over another document, or does not fit the context.
        """
        before, history = self.conversation(), self._history
        self.clear()
        try:
            conversation.resume(self.llama, self.n_document)
        except BaseException:
            before.resume(self.llama, self.n_document)
            self._unread, self._last, self._history = before.unread, before.last, history
            raise
        self._history = conversation.history and conversation.history.copy()
        self._unread, self._last, self.answer = conversation.unread, conversation.last, None

    def recall(self, messages: Sequence[Message]) -> None:
        """Continue a conversation of which only the texts are known, in place of this one.

        Parameters
        ----------
        messages : sequence of dict
            Questions and answers in turns, in OpenAI's form; none for a new conversation.

        Raises
        ------
        OctavoError
            The model has no chat template, by which it could read them.
        """
        if messages and not self.prompt.has_template:
            raise OctavoError("This model has no chat template, so it cannot continue a conversation from its texts.")
        spoken = {} if self._history is None else self._history.spoken
        if not messages:
            self.clear()
        self._history, self._last = History(messages, spoken), None

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Lend the empty model to another conversation, and resume this one if that fails."""
        llama, document, before = self.llama, self.llama.context.cache.document, self.conversation()
        llama.context.record(None)
        llama.reset()
        try:
            yield
        except BaseException:
            llama.reset()
            if document is not None:
                llama.attach(document)
            before.resume(llama, self.n_document)
            llama.context.record(self._recorder)
            raise

    def clear(self) -> None:
        """Forget all questions and answers. The document stays."""
        self.llama.rewind(self.n_document)
        self._unread, self._last, self._history = [], None, History()

    def close(self) -> None:
        """Free the model. A closed session answers no more questions."""
        self._closed = True
        self.llama.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _without_thoughts(parts: Generator[Part, None, None]) -> Generator[str, None, None]:
    """Yield the texts of an answer's parts; an empty one for each part of a thought."""
    with closing(parts):
        for part in parts:
            yield "" if part.is_thought else part.text
