"""A conversation with a model, over a document or over nothing: questions in, streamed answers out."""

from __future__ import annotations

import codecs
import math
import time
from collections.abc import Generator
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Self, cast

from ..errors import OctavoError
from .llama import Llama
from .prompt import Prompt
from .recorder import Recorder

#: Why an answer ended; see `Answer`.
FinishReason = Literal["stop", "length", "context", "interrupted"]

#: Most tokens of an answer, if nobody asks for more: small models may repeat themselves without end.
MAX_TOKENS = 1024


@dataclass(frozen=True)
class Sampling:
    """How answers are drawn; the defaults of llama.cpp, but for `max_tokens`.

    Parameters
    ----------
    max_tokens : int, optional
        Most tokens of an answer; None for as many as fit the context, or a whole context if it has no end.
    temperature : float
        Temperature; 0 always takes the likeliest token.
    top_p : float
        Draw from the likeliest tokens whose probabilities add up to this share; 1 is off.
    top_k : int
        Draw from the k likeliest tokens; 0 is off.
    min_p : float
        Draw from tokens that have at least this share of the likeliest one's probability; 0 is off.
    repeat_penalty : float
        What the logits of the last 64 tokens are divided by; 1 is off.
    seed : int, optional
        Makes answers repeatable; by default each run draws others.

    Raises
    ------
    OctavoError
        A value is out of its range.
    """

    max_tokens: int | None = MAX_TOKENS
    temperature: float = 0.8
    top_p: float = 0.95
    top_k: int = 40
    min_p: float = 0.05
    repeat_penalty: float = 1.0
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.max_tokens is not None and self.max_tokens < 1:
            raise OctavoError(f"An answer has at least 1 token: max_tokens cannot be {self.max_tokens}.")
        if not 0 <= self.temperature < math.inf:
            raise OctavoError(f"A temperature is 0 or more, and finite: {self.temperature} is not.")
        if not 0 <= self.top_p <= 1:
            raise OctavoError(f"top_p is a share, from 0 to 1: {self.top_p} is not.")
        if self.top_k < 0:
            raise OctavoError(f"top_k is 0 or more: {self.top_k} is not.")
        if not 0 <= self.min_p <= 1:
            raise OctavoError(f"min_p is a share, from 0 to 1: {self.min_p} is not.")
        if not 0 < self.repeat_penalty < math.inf:
            raise OctavoError(f"A repeat penalty is above 0, and finite: {self.repeat_penalty} is not.")
        if self.seed is not None and not 0 <= self.seed < 2**32 - 1:
            raise OctavoError(f"A seed is a number from 0 to {2**32 - 2}: {self.seed} is not.")


@dataclass(frozen=True)
class Timing:
    """What an answer took.

    Parameters
    ----------
    prompt_tokens : int
        Tokens of the question that were read, with those of the chat template around it.
    answer_tokens : int
        Tokens that were drawn, the one that ends the answer included.
    first_token_s : float
        Seconds from the question to the first token.
    decode_s : float
        Seconds from the first token to the last.
    """

    prompt_tokens: int
    answer_tokens: int
    first_token_s: float
    decode_s: float

    @property
    def decode_tokens_per_s(self) -> float:
        """Tokens per second after the first token; 0 if there was only one."""
        return (self.answer_tokens - 1) / self.decode_s if self.answer_tokens > 1 else 0.0


@dataclass(frozen=True)
class Answer:
    """An answer, and what it took.

    Parameters
    ----------
    text : str
        The text, as it was streamed.
    finish_reason : {"stop", "length", "context", "interrupted"}
        Why it ended: the model ended it ("stop"), it has as many tokens as were allowed ("length"), the context is
        full ("context"), or the caller took no more of it ("interrupted").
    timing : Timing
        Tokens and seconds.
    bytes_read : float
        Bytes of keys, values and centroids that attention read for each token after the first, on average; 0 if there
        was only one token.
    kv_share : float
        The same as a share of the keys and values of all tokens in the context at the end, but for layers whose window
        slides.
    covered : float, optional
        Share of the attention that these tokens paid to what was read exactly, on average over the heads; the rest is
        estimated. None if the attention estimates nothing.
    """

    text: str
    finish_reason: FinishReason
    timing: Timing
    bytes_read: float
    kv_share: float
    covered: float | None = None


class Session:
    """A conversation with a model whose context holds a document, or nothing.

    A session is a context manager; at its end it closes the model.

    Parameters
    ----------
    llama : Llama
        The model, on octavo's attention. What it holds is the document.
    sampling : Sampling
        How answers are drawn.
    system : str
        What the model is told before the first question (see `Prompt`).
    recorder : Recorder, optional
        Keeps queries of the last answer's steps, for those who ask where it comes from.

    Attributes
    ----------
    llama : Llama
        The model.
    sampling : Sampling
        How answers are drawn.
    n_document : int
        Tokens of the document, the prompt's head included; 0 without a document.
    answer : Answer or None
        The last answer, as far as it came. None before the first, and while the model reads a question.
    """

    def __init__(self, llama: Llama, sampling: Sampling, system: str = "", recorder: Recorder | None = None) -> None:
        self.llama = llama
        self.sampling = sampling
        self.n_document: int = llama.n_tokens
        self.prompt = Prompt(llama, self.n_document > 0, system)
        self.answer: Answer | None = None
        self._unread: list[int] = []  # tokens of the last answer that the model has not read yet
        self._last: _Turn | None = None
        self._closed = False
        self._recorder = recorder
        llama.context.record(recorder)
        if sampling.seed is not None:
            llama.set_seed(sampling.seed)

    @property
    def n_tokens(self) -> int:
        """Tokens that the context holds: the document, questions and answers."""
        return int(self.llama.n_tokens)

    @property
    def n_ctx(self) -> int:
        """Tokens that the model can look back on."""
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
            The question is empty or does not fit the context any more, or the session is closed.
        """
        for _ in self.stream(question):
            pass
        return cast(Answer, self.answer)

    def stream(self, question: str) -> Generator[str, None, None]:
        """Answer a question piece by piece.

        After the last piece, `answer` holds the whole answer. If the caller stops before, the pieces that it took stay
        in the conversation.

        Parameters
        ----------
        question : str
            The question. The model remembers the questions and answers before it.

        Yields
        ------
        str
            The next piece of the answer's text, which may be empty.

        Raises
        ------
        OctavoError
            When the first piece is taken: the question is empty or does not fit the context any more, or the session
            is closed.
        """
        turn = _Turn(question, self.llama.n_tokens, self._unread)
        tokens = self._question_tokens(question)
        llama, sampling, start = self.llama, self.sampling, self.llama.n_tokens + len(tokens)
        room = min(llama.longest - start, llama.n_ctx())
        limit = room if sampling.max_tokens is None else min(sampling.max_tokens, room)
        self.answer, self._last = None, turn
        recorder = self._recorder
        if recorder is not None:
            recorder.clear()
        text, meter = _Text(self.prompt.stop), _Meter(llama, len(tokens))
        reason: FinishReason = "interrupted"
        generated = llama.generate(
            tokens,
            reset=False,
            temp=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            min_p=sampling.min_p,
            repeat_penalty=sampling.repeat_penalty,
        )
        try:
            for token in generated:
                meter.count()
                if recorder is not None and meter.n_tokens == 1:
                    recorder.forget_question()
                self._unread = [token]
                if llama.ends(token):
                    reason, self._unread = "stop", []
                    break
                piece = text.add(llama.piece(token))
                if text.stopped:
                    reason = "stop"
                elif meter.n_tokens >= limit:
                    reason = "length" if limit == sampling.max_tokens else "context"
                yield piece
                if reason != "interrupted":
                    break
            yield text.rest()
        finally:
            generated.close()
            if meter.n_tokens:
                self.answer = meter.answer(text.shown, reason)
            if llama.n_tokens < start:  # stopped while it read the question: as if it had not been put
                llama.rewind(start - len(tokens))
            elif text.stopped:
                self._unread = []
                llama.rewind(start + text.n_tokens)

    def regenerate(self) -> Generator[str, None, None]:
        """Answer the last question anew, piece by piece as `stream` does. The answer before is forgotten.

        Raises
        ------
        OctavoError
            There was no question, or this attention cannot go back.
        """
        if self._last is None:
            raise OctavoError("There is no question to answer again.")
        self.llama.rewind(self._last.start)
        self._unread = self._last.unread
        return self.stream(self._last.question)

    def _question_tokens(self, question: str) -> list[int]:
        """Tokens that the model has to read before it answers."""
        if self._closed:
            raise OctavoError("This conversation is closed: open it again.")
        if not question.strip():
            raise OctavoError("The question is empty.")
        is_first = self.llama.n_tokens == self.n_document
        tokens = self.prompt.first_question(question) if is_first else self.prompt.next_question(question)
        tokens = self._unread + tokens
        n_tokens = self.llama.n_tokens + len(tokens)
        if n_tokens >= self.llama.longest:
            raise OctavoError(
                f"The question does not fit: {n_tokens:,} tokens, and the context holds "
                f"{self.llama.longest:,}. Use /clear to forget the conversation, or give a larger context with -c."
            )
        return tokens

    def clear(self) -> None:
        """Forget all questions and answers. The document stays."""
        self.llama.rewind(self.n_document)
        self._unread, self._last = [], None

    def close(self) -> None:
        """Free the model. A closed session answers no more questions."""
        self._closed = True
        self.llama.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


@dataclass(frozen=True)
class _Turn:
    """A question, how many tokens the context held before it, and those of the answer before that were not read."""

    question: str
    start: int
    unread: list[int]


class _Meter:
    """Counts tokens, seconds, and bytes that attention reads, from the question on."""

    def __init__(self, llama: Llama, n_prompt: int) -> None:
        self._context, self._n_prompt = llama.context, n_prompt
        self._start = time.perf_counter()
        self._first_token_s = self._last_token_s = 0.0
        self._bytes_read = self._counted_bytes = 0
        self._coverage = (self._context.coverage,) * 2
        self.n_tokens = 0

    def count(self) -> None:
        """A token was drawn. What attention reads is counted from the first token on."""
        self._last_token_s = time.perf_counter() - self._start
        self.n_tokens += 1
        if self.n_tokens == 1:
            self._first_token_s = self._last_token_s
            self._context.bytes_read = 0
            self._coverage = (self._context.coverage,) * 2
        else:
            self._bytes_read, self._counted_bytes = self._context.bytes_read, self._context.counted_bytes_read
            self._coverage = self._coverage[0], self._context.coverage

    def answer(self, text: str, reason: FinishReason) -> Answer:
        """The answer of which this was measured."""
        cache = self._context.cache
        n_steps = max(self.n_tokens - 1, 1)
        decode_s = self._last_token_s - self._first_token_s
        timing = Timing(self._n_prompt, self.n_tokens, self._first_token_s, decode_s)
        kv_share = self._counted_bytes / n_steps / (cache.n_tokens * cache.counted_row_bytes)
        n_covered, covered = (after - before for before, after in zip(*self._coverage, strict=True))
        share = covered / n_covered if n_covered else None
        return Answer(text, reason, timing, self._bytes_read / n_steps, kv_share, share)


class _Text:
    """The text of an answer as it comes: whole characters, and nothing from the text `stop` on."""

    def __init__(self, stop: str | None) -> None:
        self._stop = stop
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._text, self._n_shown = "", 0
        self._starts: list[int] = []
        self.shown = ""
        self.stopped = False

    def add(self, piece: bytes) -> str:
        """Add a token's bytes; returns what can be shown now. Text that may begin `stop` is held back."""
        self._starts.append(len(self._text))
        self._text += self._decoder.decode(piece)
        sure = len(self._text)
        if self._stop is not None:
            found = self._text.find(self._stop)
            self.stopped = found >= 0
            lengths = range(min(len(self._stop) - 1, len(self._text)), 0, -1)
            held = next((n for n in lengths if self._text.endswith(self._stop[:n])), 0)
            sure = found if self.stopped else sure - held
        return self._show(sure)

    @property
    def n_tokens(self) -> int:
        """Tokens that begin before what was shown ends."""
        return sum(start < self._n_shown for start in self._starts)

    def rest(self) -> str:
        """What was held back, if the answer did not end at `stop`."""
        if self.stopped:
            return ""
        self._text += self._decoder.decode(b"", final=True)
        return self._show(len(self._text))

    def _show(self, stop: int) -> str:
        """The text up to a position, as far as it was not shown before."""
        shown = self._text[self._n_shown : stop]
        if self._n_shown == 0 and self._stop is not None:
            shown = shown.lstrip()  # the blank after "Answer:"
        self._n_shown = stop
        self.shown += shown
        return shown
