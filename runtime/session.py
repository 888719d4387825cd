"""A conversation over one document: questions in, streamed answers out."""

from __future__ import annotations

import codecs
import time
from collections.abc import Generator
from dataclasses import dataclass

from ..errors import OctavoError
from .llama import Llama
from .prompt import Prompt


@dataclass(frozen=True)
class Sampling:
    """How answers are sampled; the names and defaults of llama.cpp.

    n_predict : most tokens of an answer, -1 for as many as fit
    """

    n_predict: int = -1
    temperature: float = 0.8
    top_p: float = 0.95
    top_k: int = 40
    seed: int | None = None


@dataclass
class Timing:
    """What the last answer took."""

    prompt_tokens: int = 0
    answer_tokens: int = 0
    first_token_s: float = 0.0
    decode_s: float = 0.0

    @property
    def decode_tokens_per_s(self) -> float:
        """Speed after the first token; 0 where there was no second one."""
        return (self.answer_tokens - 1) / self.decode_s if self.answer_tokens > 1 else 0.0


class Session:
    """Asks a model whose context holds a document, or nothing.

    An answer that the caller stops taking stays in the history as far as it was given.
    """

    def __init__(self, llama: Llama, sampling: Sampling) -> None:
        self.llama = llama
        self.sampling = sampling
        self.has_document = llama.n_tokens > 0
        self.prompt = Prompt(llama, self.has_document)
        self.timing = Timing()
        self._n_document = llama.n_tokens
        self._unread: list[int] = []  # sampled tokens that the model has not read yet
        if sampling.seed is not None:
            llama.set_seed(sampling.seed)

    @property
    def is_new(self) -> bool:
        """Whether nothing was asked since the document, or since `clear`."""
        return self.llama.n_tokens == self._n_document

    def clear(self) -> None:
        """Forget all questions and answers; the document stays."""
        self._forget(self._n_document)
        self._unread = []

    def ask(self, question: str) -> Generator[str, None, None]:
        """Stream the answer to a question, in pieces of text.

        Raises OctavoError where the question does not fit the context any more.
        """
        llama, sampling = self.llama, self.sampling
        tokens = self.prompt.first_question(question) if self.is_new else self.prompt.next_question(question)
        tokens = self._unread + tokens
        room = llama.n_ctx() - llama.n_tokens - len(tokens)
        if room < 1:
            raise OctavoError(
                f"The question does not fit: {llama.n_tokens + len(tokens):,} tokens, and the context holds "
                f"{llama.n_ctx():,}. Use /clear to forget the conversation, or give a larger context with -c."
            )
        limit = room if sampling.n_predict < 0 else min(sampling.n_predict, room)
        self.timing = Timing(prompt_tokens=len(tokens))
        before, start = llama.n_tokens, time.perf_counter()
        answer = _Answer(self.prompt.stop)
        tokens_out = llama.generate(
            tokens, reset=False, temp=sampling.temperature, top_p=sampling.top_p, top_k=sampling.top_k
        )
        try:
            for token in tokens_out:
                self._count_token(start)
                self._unread = [token]
                if llama.ends(token):
                    self._unread = []
                    break
                yield answer.add(llama.piece(token))
                if answer.stopped:
                    self._unread = []
                    self._forget(before + len(tokens) + answer.n_tokens)
                    break
                if self.timing.answer_tokens >= limit:
                    break
            yield answer.rest()
        finally:
            tokens_out.close()
            if llama.n_tokens < before + len(tokens):  # stopped while it read the question: as if never asked
                self._forget(before)

    def _forget(self, n_tokens: int) -> None:
        """Keep the first n_tokens tokens only."""
        self.llama.rewind(n_tokens)

    def _count_token(self, start: float) -> None:
        now = time.perf_counter() - start
        self.timing.answer_tokens += 1
        if self.timing.answer_tokens == 1:
            self.timing.first_token_s = now
        self.timing.decode_s = now - self.timing.first_token_s


class _Answer:
    """The text of an answer as it comes: whole characters, and nothing from the text `stop` on."""

    def __init__(self, stop: str | None) -> None:
        self._stop = stop
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._text, self._given = "", 0
        self._starts: list[int] = []
        self.stopped = False

    def add(self, piece: bytes) -> str:
        """Take a token's bytes; gives what can be shown now. Text that may begin `stop` is held back."""
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
        return sum(start < self._given for start in self._starts)

    def rest(self) -> str:
        """What was held back, where the answer ended otherwise."""
        if self.stopped:
            return ""
        self._text += self._decoder.decode(b"", final=True)
        return self._show(len(self._text))

    def _show(self, stop: int) -> str:
        shown = self._text[self._given : stop]
        if self._given == 0 and self._stop is not None:
            shown = shown.lstrip()  # the blank after "Answer:"
        self._given = stop
        return shown
