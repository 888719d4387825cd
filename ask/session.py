"""A conversation with a model, over a document or over nothing: questions in, streamed answers out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import cast

from ..documents.document import STANDARD_INPUT
from ..errors import OctavoError
from ..library.question_words import needs_whole
from ..library.source_text import SourceText
from ..prompts.thought_form import Thinking, Thoughts
from ..prompts.thought_splitter import Part, without_thoughts
from ..runtime.llama import Llama
from ..runtime.query_recorder import QueryHead, Recorder
from ..runtime.store.model_library import Library
from ..settings import Sampling, check_whole
from ..system.threads import release_threads
from ..system.working_time import working_time
from .answer.answer import Answer
from .answer.generated_answer import GeneratedAnswer
from .answer.notices import notices_of_changed, notices_of_end, notices_of_settings, notices_of_unfounded, unfounded
from .chats.chat_file import Conversation, Kind, OtherText, Turn
from .chats.history import History, Message
from .chats.question_tokens import question_tokens
from .chats.saved_chats import ChatFiles
from .context.answer_context import Context, Rest, at_once
from .context.context_chooser import ContextChooser
from .context.whole.finding import Finding
from .context.whole.whole_context import WholeContext, listed_answer
from .one_thread import OneThread
from .search.ranking import Candidate
from .sources.answer_marks import AnswerMarks
from .sources.find_sources import Passage


class Session(AbstractContextManager["Session"]):
    """A conversation with a model, over documents or over nothing. `open_document` and others return one.

    The chooser of its documents chooses the context of each answer. If it differs from the context before, the model
    evaluates the conversation again after it. A context that serves every question is attached at once.

    A session is a context manager; at its end it closes the model. One thread at a time uses it, and `lock` is
    for those that take turns. A new answer ends one that was not drawn to its end.

    Parameters
    ----------
    llama : Llama
        The model, on octavo's attention. It is empty, or holds the document of a session without a chooser.
    sampling : Sampling
        How to draw answers.
    system : str
        Read before the first question (see `ConversationTokens`).
    chooser : ContextChooser, optional
        Chooses the context of each answer among documents.
    heads : sequence of QueryHead, optional
        Retrieval heads, by which `sources` finds where an answer comes from; None without sources.
    library : Library, optional
        The model's indexes; conversations are kept beside them.
    notice : callable, optional
        Receives a warning about a budget that the attention cannot keep.

    Attributes
    ----------
    n_document : int
        Tokens of the context, the prompt's head included; 0 without one.
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
        chooser: ContextChooser | None = None,
        heads: Sequence[QueryHead] | None = None,
        library: Library | None = None,
        notice: Callable[[str], None] | None = None,
    ) -> None:
        self.llama, self.sampling, self.system, self.library = llama, sampling, system, library
        self.about: tuple[str, ...] = ()
        self.answer: Answer | None = None
        self._chooser, self._context, self._warn = chooser, None if chooser is None else chooser.always, notice
        if self._context is not None:
            llama.attach(self._context.index)
        self.n_document: int = llama.n_tokens
        self._has_document = chooser is not None or self.n_document > 0
        self._thoughts = Thoughts.of(llama)
        self._closed, self._thread, self.lock = False, OneThread(), threading.Lock()
        self.think(sampling.think)
        self._unread: list[int] = []  # tokens of the last answer that the model has not evaluated yet
        self._history: History | None = History()  # None for a conversation that an older octavo saved
        self._last: Turn | None = None
        self._marks: AnswerMarks | None = None
        self._recorder = None if heads is None else Recorder(llama.context.nodes, llama.context.shapes, heads)
        llama.context.record(self._recorder)
        if sampling.seed is not None:
            llama.set_seed(sampling.seed)
        if chooser is None or self._context is not None:
            self._warn_of_settings()
        release_threads()  # the first question may come from another thread

    def think(self, think: bool | None) -> None:
        """Turn the model's thinking on or off from the next question on; None leaves it to its chat template."""
        with self._thread.held(ends_answer=False):
            self.sampling = replace(self.sampling, think=think)
            self.thinking = Thinking(self._thoughts, think, self.sampling.think_budget)
            self.prompt = self.llama.prompt(self._has_document, self.system, options=self.thinking.options)

    @property
    def documents(self) -> list[Path]:
        """Return the files of all documents."""
        return [] if self._chooser is None else [document.path for document in self._chooser.documents]

    @property
    def path(self) -> Path:
        """Return the file of the document that the last answer came from; of excerpts, the likeliest one's.

        Before the first question, return the first document's. Raise OctavoError without documents.
        """
        paths = self.read_from or self.documents
        if not paths:
            raise OctavoError("This conversation has no document.")
        return paths[0]

    @property
    def read_from(self) -> list[Path]:
        """Return the files of the last answer, its sources' first: one, if it was a whole document."""
        return [] if self._context is None else [document.path for document in self._context.documents]

    @property
    def names(self) -> dict[str, str]:
        """Return the names of the last answer's documents, which differ, by the paths that `read_from` returns."""
        return {} if self._context is None else {str(each.path): each.name for each in self._context.documents}

    @property
    def found(self) -> list[Candidate]:
        """Return the documents that the last question may be about, the likeliest first; none if there is no choice."""
        return [] if self._context is None else list(self._context.candidates)

    @property
    def rest(self) -> Rest:
        """Return what happens to the text that the last answer was not given from."""
        return "indexed" if self._chooser is None else self._chooser.rest

    @property
    def needs_whole(self) -> bool:
        """Return whether the last question was about a whole, and answered from less."""
        asked = self._last is not None and needs_whole(self._last.question)
        return asked and self._context is not None and self._context.share.share < 1

    @property
    def findings(self) -> list[Finding]:
        """Return what each part or document answered to the last question, if all were asked; else nothing."""
        return list(self._context.findings) if isinstance(self._context, WholeContext) else []

    @property
    def has_one_context(self) -> bool:
        """Return whether all questions are answered from the same text."""
        return self._chooser is None or (self._context is not None and self._context.serves_all)

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
        with self._thread.held():  # until the answer is taken
            for _ in self.stream_parts(question):
                pass
            return cast(Answer, self.answer)

    def stream(self, question: str) -> Generator[str, None, None]:
        """Answer a question piece by piece, without the model's thoughts.

        After the last piece, `answer` holds the whole answer. If the caller stops earlier, the pieces that it took
        stay in the conversation.

        Yields
        ------
        str
            The next piece of the answer's text. It may be empty, as while the model thinks.

        Raises
        ------
        OctavoError
            The question is empty or no longer fits the context, or the session is closed. The first piece raises it.
        """
        return without_thoughts(self.stream_parts(question))

    def stream_parts(self, question: str, marks: bool = False) -> Generator[Part, None, None]:
        """Answer a question piece by piece as `stream` does, the model's thoughts included.

        With `marks`, each sentence ends with the numbers of the passages in `sources` that it comes from (see `Part`).
        """
        return self._thread.drawn(self._answer(question, False, marks))

    def _choose_context(self, chooser: ContextChooser, question: str) -> None:
        llama, asked_before = self.llama, self._history.last_question if self._history is not None else ""
        with llama.context.unrecorded(), self._restoring() as before:  # the search is not part of the answer
            context = at_once(chooser.choose(question, asked_before, filter(None, [self._context])))
            llama.reset()
            if self._context is not None and context.key == self._context.key:
                llama.attach(context.index)
                before.resume(llama, self.n_document)
            else:
                self._attach(context, before.tokens)
            self._context = context

    def _attach(self, context: Context, tokens: Sequence[int] = ()) -> None:
        """Let the empty model continue a conversation with some tokens after another context."""
        llama = self.llama
        llama.attach(context.index)
        if llama.n_tokens + len(tokens) >= llama.longest:
            likeliest = f"{context.documents[0].name}, which the question is about"
            raise OctavoError(f"The conversation does not fit after {likeliest}: /clear forgets it.")
        self.n_document, self._context = llama.n_tokens, context
        self._warn_of_settings()
        llama.prefill(tokens)
        self._last = None  # its place in the context has moved

    def _warn_of_settings(self) -> None:
        """Send a warning, once, if what the user chose cannot be had with the context."""
        context, chosen = self.llama.context, (self.llama.attention, self.sampling.draft)
        if self._warn is not None and (warnings := notices_of_settings(*chosen, context.cache, context.no_drafts)):
            self._warn(f"Note: {' '.join(warnings.values())}")
            self._warn = None

    def _answer(self, question: str, is_again: bool = False, with_marks: bool = False) -> Generator[Part, None, None]:
        """Choose the context of an answer, unless the question is asked again, and draw the answer."""
        began = working_time()
        if self._closed:
            raise OctavoError("This conversation is closed: open it again.")
        if not question.strip():
            raise OctavoError("The question is empty.")
        if not is_again and self._chooser is not None and not self.has_one_context:
            self._choose_context(self._chooser, question)
        self._check_document()
        llama, unread, read = self.llama, self._unread, self._context.documents if self._context is not None else ()
        asked = self._history and self._history.asked(question, read)
        tokens = question_tokens(llama, self.prompt, asked, unread, self.n_document, question)
        turn, self._history = Turn(question, llama.n_tokens, unread), asked
        if isinstance(self._context, WholeContext) and self._context.listed:
            self._last = turn
            yield from self._answer_with_list(self._context, tokens, began, with_marks)
            return
        sampling = self.sampling.settled(self._has_document)
        if self.findings and self.sampling.temperature is None:
            sampling = replace(sampling, temperature=0.0)  # as the parts answered: the same question, the same answer
        generated = GeneratedAnswer(
            llama, sampling, self.prompt, self.thinking, tokens, self._recorder, began, question
        )
        self.answer, self._last = None, turn
        llama.context.keep_state()
        if self._recorder is not None:
            self._recorder.steps.clear()
        try:
            yield from self._parts(generated, question, with_marks)
            self._check_document()
        finally:
            if (answer := generated.answer()) is not None:
                self._take(answer, generated, question)
            if llama.n_tokens < generated.start:  # stopped while it read the question: undo the question
                llama.rewind(turn.start)
                self._unread = turn.unread
            elif generated.stream.was_cut_back:
                self._unread = []
                llama.rewind(generated.start + generated.stream.n_shown_tokens)
            else:
                self._unread = generated.unread()
            release_threads()

    def _parts(self, generated: GeneratedAnswer, question: str, with_marks: bool) -> Generator[Part, None, None]:
        """Return the parts of an answer, perhaps with marks, and find its sources from now on."""
        context, recorder, self._marks = self._context, self._recorder, None
        if context is None or recorder is None or self.llama.context.cache.document is None:
            return generated.parts()
        self._marks = AnswerMarks(generated.stream, context.finder(recorder, question))
        with_marks = with_marks and recorder.covers(context.index)  # else `sources` raises an error
        return self._marks.stream(generated.parts()) if with_marks else generated.parts()

    def _answer_with_list(
        self, context: WholeContext, tokens: list[int], began: float, with_marks: bool
    ) -> Generator[Part, None, None]:
        """Answer with a list that code has written: the model reads it with the next question."""
        written, self._marks = self.prompt.document(context.listed), None
        self.answer = listed_answer(context, len(tokens), len(written), began)
        if self._history is not None:
            self._history.answer(context.listed, "", [(token, self.llama.piece(token)) for token in written])
        self._unread = [*tokens, *written]
        for part in context.listed_parts():
            yield part if with_marks else Part(part.text)
        release_threads()

    def _take(self, answer: Answer, generated: GeneratedAnswer, question: str) -> None:
        """Keep an answer in the conversation, with notices about it."""
        llama, history, found = self.llama, self._history, list[str]()
        if self.n_document:
            asked = [] if history is None else [said["content"] for said in history.messages if said["role"] == "user"]
            document = map(llama.piece, llama.input_ids[: self.n_document].tolist())
            found = unfounded(answer.text, [self.system, question, *asked], document)
        said = notices_of_end(generated.stream, llama.n_ctx(), not self.thinking.is_off)
        said |= notices_of_unfounded(found)
        said |= notices_of_changed(() if self._context is None else self._context.documents)
        share = None if self._context is None else self._context.share
        if self._marks is not None and self._context is not None and len(self._context.documents) > 1:
            with suppress(OctavoError):  # no head may see the whole context
                self._context = self._context.using(self._marks.sources(most=3))
        self.answer = replace(answer, read=share, unfounded=found, notices=said)
        if history is not None:
            history.answer(answer.text, answer.reasoning, generated.tokens)

    def regenerate(self) -> Generator[str, None, None]:
        """Answer the last question anew, piece by piece as `stream` does. The old answer is forgotten.

        Raises
        ------
        OctavoError
            There was no question, or this attention cannot return to it.
        """
        return without_thoughts(self.regenerate_parts())

    def regenerate_parts(self, marks: bool = False) -> Generator[Part, None, None]:
        """Answer the last question anew as `regenerate` does, the model's thoughts included (see `stream_parts`)."""
        with self._thread.held():
            last, question = self._last, self._history.last_question if self._history is not None else ""
            if last is not None:
                self.llama.rewind(last.start)
                self._unread, question = last.unread, last.question
            elif not question:
                raise OctavoError("There is no question to answer again.")
            if self._history is not None:
                self._history.forget_last()
        return self._thread.drawn(self._answer(question, last is not None, marks))

    def sources(self, most: int = 3) -> list[Passage]:
        """Find the passages of the document that the last answer comes from.

        They have most attention of one of its sentences, or else its names, numbers or phrases (docs/sources.md).

        Parameters
        ----------
        most : int
            Most passages, at least 1, unless sentences are marked with more.

        Returns
        -------
        list of Passage
            Those that sentences are marked with, in order, and then the largest shares; none if none is likely.
            Passages of a collection name their document.

        Raises
        ------
        OctavoError
            There is no document or no answer yet, the document was opened with `sources=False`, or no retrieval head
            sees the whole document, as in models whose windows all slide.
        """
        if self._chooser is None:
            raise OctavoError("There is no document that answers could come from.")
        check_whole("most", most, 1)
        if self._recorder is None:
            raise OctavoError("Sources are not recorded: open the document with sources=True.")
        with self._thread.held(ends_answer=False):
            if self.answer is None:
                raise OctavoError("There is no answer yet, so it has no sources.")
            if self._marks is not None:
                return self._named(self._marks.sources(most))
        context = self._context
        return self._named(context.rows) if isinstance(context, WholeContext) and context.listed else []

    def passages_for_question(self, n: int = 3) -> list[Passage]:
        """Find passages of the last answer's text that share words with its question; none without a document."""
        return self._named(self._context.passages_for(self._last.question, n)) if self._context and self._last else []

    def _named(self, found: Sequence[tuple[SourceText, Passage]]) -> list[Passage]:
        return [each if self.has_one_context else replace(each, document=str(source.path)) for source, each in found]

    def _check_document(self) -> None:
        if (document := self.llama.context.cache.document) is not None:
            document.check()

    def conversation(self, with_rows: bool = True) -> Conversation:
        """Return a copy of the questions and answers so far, perhaps without keys and values."""
        history = self._history and self._history.copy()
        return Conversation.of(self.llama, self.n_document, self._unread, self._last, history, with_rows)

    def resume(self, conversation: Conversation) -> None:
        """Resume a conversation in place of this one, which stays if the resumption fails.

        Raises
        ------
        OctavoError
            It was over another document, or does not fit the context.
        """
        with self._thread.held():
            context = None
            if self._chooser is not None:
                context = self._chooser.followed_by(conversation.follows) or self._context
                if context is None:
                    raise OtherText("This conversation was over another document, or with another prompt.")
            with self._restoring():
                if context is None or (self._context is not None and context.key == self._context.key):
                    self.llama.rewind(self.n_document)
                else:
                    self.llama.reset()
                    self._attach(context)
                conversation.resume(self.llama, self.n_document)
            self._history = conversation.history and conversation.history.copy()
            self._unread, self._last, self.answer = conversation.unread, conversation.last, None

    @contextmanager
    def _restoring(self) -> Iterator[Conversation]:
        """Yield the conversation, and return to it if the block fails."""
        llama, document, n_document = self.llama, self.llama.context.cache.document, self.n_document
        before, history, context = self.conversation(), self._history, self._context
        try:
            yield before
        except BaseException:
            if document is None and n_document:  # the model has evaluated its text, without an index
                llama.rewind(n_document)
            else:
                llama.reset()
            if document is not None:
                llama.attach(document)
            before.resume(llama, n_document)
            self.n_document, self._context, self._history = n_document, context, history
            self._unread, self._last = before.unread, before.last
            raise

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
        with self._thread.held():
            spoken = {} if self._history is None else {**self._history.spoken}
            if not messages:
                self.clear()
            self._history, self._last = History([*messages], spoken), None

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Lend the empty model to another conversation, and resume this one if that fails."""
        with self._thread.held():
            try:
                with self._restoring():
                    self.llama.context.record(None)
                    self.llama.reset()
                    yield
            except BaseException:
                self.llama.context.record(self._recorder)
                raise

    def clear(self) -> None:
        """Forget all questions and answers. The document stays."""
        with self._thread.held():
            self.llama.rewind(self.n_document)
            self._unread, self._last, self._history = [], None, History()

    @property
    def has_turns(self) -> bool:
        """Return whether there are questions and answers that the next question continues."""
        return self.llama.n_tokens > self.n_document or bool(self._history and self._history.messages)

    def save(self, name: str, kind: Kind = "named", with_rows: bool = True) -> Path:
        """Save the conversation with its keys and values, so that `load` resumes it at once.

        Parameters
        ----------
        name : str
            A name, or the path of a file. A conversation of this name is replaced.
        kind : {"named", "chat", "question"}
            Who keeps it. Of a single question only the texts are kept.
        with_rows : bool
            Whether to keep keys and values. Without them `load` reads the texts again.

        Returns
        -------
        Path
            The file.

        Raises
        ------
        OctavoError
            The file cannot be written.
        """
        return ChatFiles(self.llama, self.library).save(name, self._kept(kind, with_rows), self.about, kind)

    def _kept(self, kind: Kind, with_rows: bool) -> Conversation:
        """Return the conversation as it is kept: of passages without rows, as these depend on the question."""
        with self._thread.held(ends_answer=False):
            return self.conversation(with_rows and kind != "question" and self.rest == "indexed")

    def keep(self, name: str | None = None, kind: Kind = "chat", with_rows: bool = True) -> str | None:
        """Save the conversation as the last one about its documents, if it can be continued. Return its name.

        Parameters
        ----------
        name : str, optional
            The name of the file to replace. By default a new one is chosen, from the document's or of the words of
            the first question; a single question replaces the last one about the same documents.
        kind : {"chat", "question"}
            Who keeps it: `chat`, or `ask`. What the user named stays so.
        with_rows : bool
            As of `save`.

        Raises
        ------
        OctavoError
            The file cannot be written.
        """
        if self.library is None or STANDARD_INPUT in self.about or not self.has_turns:
            return None
        return ChatFiles(self.llama, self.library).keep(self._kept(kind, with_rows), self.about, name, kind)

    def load(self, name: str) -> bool:
        """Resume a saved conversation, in place of this one.

        If its documents have other texts by now, its questions and answers follow the new text.

        Parameters
        ----------
        name : str
            Its name, or the path of a file.

        Returns
        -------
        bool
            Whether the text is the same as then.

        Raises
        ------
        OctavoError
            The name is unknown, or the conversation was over another document or with another model.
        """
        with self._thread.held():
            conversation, documents = ChatFiles(self.llama, self.library).load(name)
            try:
                self.resume(conversation)
            except OtherText:
                history = conversation.history
                if not documents or history is None or not self.prompt.has_template:
                    raise
                if documents != self.about:
                    names = ", ".join(documents) or "no document"
                    raise OctavoError(f"This conversation was over another document: it is about {names}.") from None
                self.clear()
                self._history, self.answer = history.copy(), None
                return False
        return True

    def close(self) -> None:
        """Free the model. A closed session answers no more questions."""
        with self._thread.held():
            self._closed = True
            self.llama.close()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
