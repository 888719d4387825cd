"""An answer as it comes: its text, tokens and times."""

from __future__ import annotations

import codecs
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ..runtime.llama import Llama

#: Why an answer ended; see `Answer`.
FinishReason = Literal["stop", "length", "context", "interrupted"]


@dataclass(frozen=True)
class Timing:
    """Tokens and seconds of an answer.

    Parameters
    ----------
    prompt_tokens : int
        Tokens of the question, with the chat template around it.
    answer_tokens : int
        Tokens of the answer, the one that ends it included.
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
    """An answer with its figures.

    Parameters
    ----------
    text : str
        The text, as it was streamed.
    finish_reason : {"stop", "length", "context", "interrupted"}
        Why it ended: the model ended it ("stop"), it reached the token limit ("length"), the context is full
        ("context"), or the caller stopped taking pieces ("interrupted").
    timing : Timing
        Tokens and seconds.
    bytes_read : float
        Bytes of keys, values and centroids that attention read for each token after the first, on average; 0 if there
        was only one token.
    kv_share : float
        The same as a share of the keys and values of all tokens in the context at the end, without sliding layers.
    covered : float, optional
        Share of these tokens' attention to rows that were read exactly, on average over the heads; the rest is
        estimated. None if the attention estimates nothing.
    """

    text: str
    finish_reason: FinishReason
    timing: Timing
    bytes_read: float
    kv_share: float
    covered: float | None = None


class Meter:
    """Count tokens, seconds, and bytes that attention reads, from the question on."""

    def __init__(self, llama: Llama, n_prompt: int) -> None:
        self._context, self._n_prompt = llama.context, n_prompt
        self._start = time.perf_counter()
        self._first_token_s = self._last_token_s = 0.0
        self._bytes_read = self._counted_bytes = 0
        self._coverage = (self._context.coverage,) * 2
        self.n_tokens = 0

    def count(self) -> None:
        """Count a drawn token. Bytes count from the first token on."""
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
        """Return the measured answer."""
        cache = self._context.cache
        n_steps = max(self.n_tokens - 1, 1)
        decode_s = self._last_token_s - self._first_token_s
        timing = Timing(self._n_prompt, self.n_tokens, self._first_token_s, decode_s)
        kv_share = self._counted_bytes / n_steps / (cache.n_tokens * cache.counted_row_bytes)
        n_covered, covered = (after - before for before, after in zip(*self._coverage, strict=True))
        share = covered / n_covered if n_covered else None
        return Answer(text, reason, timing, self._bytes_read / n_steps, kv_share, share)


class Text:
    """Collect the text of an answer as it comes, in whole characters, up to a stop text.

    Parameters
    ----------
    stops : sequence of str
        Texts that end it.
    strips : bool
        Whether to leave out blanks before the first letter.
    """

    def __init__(self, stops: Sequence[str] = (), strips: bool = False) -> None:
        self._stops, self._strips = [stop for stop in stops if stop], strips
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._text, self._n_shown = "", 0
        self._starts: list[int] = []
        self.shown = ""
        self.stopped_by: str | None = None

    def add(self, piece: bytes) -> str:
        """Add a token's bytes; return the text to show now. Text that may begin one of `stops` is held back."""
        self._starts.append(len(self._text))
        self._text += self._decoder.decode(piece)
        found = [(place, stop) for stop in self._stops if (place := self._text.find(stop, self._n_shown)) >= 0]
        if found:
            place, self.stopped_by = min(found)
            return self._show(place)
        return self._show(len(self._text) - max((self._n_begun(stop) for stop in self._stops), default=0))

    def _n_begun(self, stop: str) -> int:
        """Return the number of characters at the end that may begin a stop text."""
        unseen = len(self._text) - self._n_shown
        return next((n for n in range(min(len(stop) - 1, unseen), 0, -1) if self._text.endswith(stop[:n])), 0)

    @property
    def stopped(self) -> bool:
        """Return whether one of `stops` ended it; `stopped_by` is that text."""
        return self.stopped_by is not None

    @property
    def n_tokens(self) -> int:
        """Return the number of tokens that begin before the end of the shown text."""
        return sum(start < self._n_shown for start in self._starts)

    def rest(self) -> str:
        """Return the held-back text, unless a stop text ended the answer."""
        if self.stopped:
            return ""
        self._text += self._decoder.decode(b"", final=True)
        return self._show(len(self._text))

    def _show(self, stop: int) -> str:
        """Return the text up to a position, without the part that was shown before."""
        shown = self._text[self._n_shown : stop]
        if self._n_shown == 0 and self._strips:
            shown = shown.lstrip()  # the blank after "Answer:"
        self._n_shown = stop
        self.shown += shown
        return shown
