"""An answer as it comes: its text, tokens and times."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ...prompts.thought_form import Stage, Thoughts
from ...prompts.thought_splitter import Part, ThoughtSplitter, n_begun
from ...runtime.llama import Llama
from ...system.working_time import working_time

#: Why an answer ended; see `Answer`.
FinishReason = Literal["stop", "length", "context", "loop", "interrupted"]


@dataclass(frozen=True)
class Timing:
    """Tokens and seconds of an answer.

    Parameters
    ----------
    prompt_tokens : int
        Tokens of the question, with the chat template around it.
    answer_tokens : int
        Tokens of the answer, the one that ends it included.
    thought_tokens : int
        Tokens of the thoughts before the answer, with the tags around them.
    first_token_s : float
        Seconds from the question to the first token; what is read for the question before it counts. Kernels that are
        compiled meanwhile, once, do not count.
    decode_s : float
        Seconds from the first token to the last.
    """

    prompt_tokens: int
    answer_tokens: int
    first_token_s: float
    decode_s: float
    thought_tokens: int = 0

    @property
    def decode_tokens_per_s(self) -> float:
        """Tokens per second after the first token; 0 if there was only one."""
        n_tokens = self.thought_tokens + self.answer_tokens
        return (n_tokens - 1) / self.decode_s if n_tokens > 1 else 0.0


@dataclass(frozen=True)
class Basis:
    """What the model read for an answer.

    Parameters
    ----------
    kind : {"document", "part", "excerpts"}
        A whole document; a part of one, perhaps with passages of all of it; or excerpts alone.
    n_passages : int
        Number of excerpts; 0 for none.
    share : float
        Share of the text of the documents that the answer comes from.
    is_begun : bool
        Whether the part is the beginning of a document that is being read.
    """

    kind: Literal["document", "part", "excerpts"]
    n_passages: int = 0
    share: float = 1.0
    is_begun: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return it in JSON's types, for programs."""
        return {"kind": self.kind, "passages": self.n_passages or None, "share": round(self.share, 4)}


@dataclass(frozen=True)
class Answer:
    """An answer with its figures.

    Parameters
    ----------
    text : str
        The text, as it was streamed, without the model's thoughts.
    finish_reason : {"stop", "length", "context", "loop", "interrupted"}
        Why it ended: the model ended it ("stop"), it reached the token limit ("length"), the context is full
        ("context"), the model repeated itself without end ("loop"), or the caller stopped taking pieces
        ("interrupted").
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
    reasoning : str
        What the model thought before it answered; "" if it did not.
    thought_cut : bool
        Whether the thought was ended at its limit.
    read : Basis, optional
        What the model read for it; None in a conversation without a document.
    unfounded : sequence of str
        Its names and numbers that are not in the text that the model read (`unfounded`).
    """

    text: str
    finish_reason: FinishReason
    timing: Timing
    bytes_read: float
    kv_share: float
    covered: float | None = None
    reasoning: str = ""
    thought_cut: bool = False
    read: Basis | None = None
    unfounded: Sequence[str] = ()


class Meter:
    """Count tokens, seconds, and bytes that attention reads, from the question on."""

    def __init__(self, llama: Llama, n_prompt: int, began: float) -> None:
        self._context, self._n_prompt, self._start = llama.context, n_prompt, began
        self._first_token_s = self._last_token_s = 0.0
        self._bytes_read = self._counted_bytes = 0
        self._coverage = (self._context.coverage,) * 2
        self.n_tokens = 0

    def count(self) -> None:
        """Count a drawn token. Bytes count from the first token on."""
        self._last_token_s = working_time() - self._start
        self.n_tokens += 1
        if self.n_tokens == 1:
            self._first_token_s = self._last_token_s
            self._context.bytes_read = 0
            self._coverage = (self._context.coverage,) * 2
        else:
            self._bytes_read, self._counted_bytes = self._context.bytes_read, self._context.counted_bytes_read
            self._coverage = self._coverage[0], self._context.coverage

    def answer(self, text: Text, reason: FinishReason, thought_cut: bool) -> Answer:
        """Return the measured answer."""
        cache = self._context.cache
        n_steps = max(self.n_tokens - 1, 1)
        decode_s, n_thought = self._last_token_s - self._first_token_s, min(text.n_thought, self.n_tokens)
        timing = Timing(self._n_prompt, self.n_tokens - n_thought, self._first_token_s, decode_s, n_thought)
        kv_share = self._counted_bytes / n_steps / (cache.n_tokens * cache.table.counted_row_bytes)
        n_covered, covered = (after - before for before, after in zip(*self._coverage, strict=True))
        share = covered / n_covered if n_covered else None
        read = self._bytes_read / n_steps
        return Answer(text.shown, reason, timing, read, kv_share, share, text.reasoning, thought_cut)


class Text:
    """Collect the text of an answer as it comes, in whole characters, up to a stop text, and the thoughts before it.

    Parameters
    ----------
    stops : sequence of str
        Texts that end it. Thoughts may contain them.
    strips : bool
        Whether to leave out blanks before the first letter.
    thoughts : Thoughts, optional
        How the model thinks; without it, everything is the answer.
    stage : Stage
        Where the text begins.

    Attributes
    ----------
    shown, reasoning : str
        The answer so far, and the thoughts.
    n_thought : int
        Number of tokens of thoughts and of tags.
    n_answer : int
        Number of tokens of the answer.
    """

    def __init__(
        self,
        stops: Sequence[str] = (),
        strips: bool = False,
        thoughts: Thoughts | None = None,
        stage: Stage = Stage.BEFORE,
    ) -> None:
        self._stops, self._strips = [stop for stop in stops if stop], strips
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._splitter = ThoughtSplitter(thoughts.form if thoughts else None, stage)
        self._marks, self._texts = (thoughts.marks, thoughts.texts) if thoughts else ({}, {})
        self._text, self._n_shown = "", 0
        self._starts: list[int] = []
        self.shown = self.reasoning = ""
        self.stopped_by: str | None = None
        self.n_thought = self.n_answer = self._n_unclear = 0

    def add(self, piece: bytes, token: int = -1) -> list[Part]:
        """Add a token's bytes; return the parts to show now. Text that may begin a tag or one of `stops` is held back.

        Parameters
        ----------
        token : int
            The token's number, by which tags are known that are control tokens.
        """
        mark, began, answered = self._marks.get(token), self.stage is Stage.BEFORE, self.in_answer
        self._starts.append(len(self._text))
        text = self._decoder.decode(piece) if mark is None else self._decoder.decode(b"", final=True) + mark
        n_before = len(self._text)
        parts = self._collect(self._splitter.add(text))
        if self.in_answer and (answered or len(self._text) > n_before):
            self.n_answer += 1 + (self._n_unclear if began else 0)
        elif self.stage is Stage.BEFORE:
            self._n_unclear += 1
            return parts
        else:
            self.n_thought += 1 + self._n_unclear
        self._n_unclear = 0
        return parts

    @property
    def stage(self) -> Stage:
        """Return where in the answer the text is."""
        return self._splitter.stage

    @property
    def in_answer(self) -> bool:
        """Return whether the answer itself has begun, and no other thought after it."""
        return self.stage in (Stage.ANSWER, Stage.WRAPPED)

    @property
    def is_thinking(self) -> bool:
        """Return whether the text is inside a thought."""
        return self.stage is Stage.THOUGHT

    @property
    def may_be_cut(self) -> bool:
        """Return whether the text is inside a thought, at the end of a character."""
        return self.is_thinking and not self._decoder.getstate()[0]

    def is_tag(self, token: int) -> bool:
        """Return whether a token may end the thought that the text is in. In other places it may end the answer."""
        return self.is_thinking and token in self._marks

    def continues(self, piece: bytes, token: int) -> bool:
        """Return whether with a further token there may still come a thought, or the tag that opens the answer."""
        return self._splitter.continues(self._marks.get(token) or piece.decode(errors="replace"))

    @property
    def stopped(self) -> bool:
        """Return whether one of `stops` ended it; `stopped_by` is that text."""
        return self.stopped_by is not None

    @property
    def n_tokens(self) -> int:
        """Return the number of tokens that begin before the end of the shown text."""
        return sum(start < self._n_shown for start in self._starts)

    def rest(self) -> list[Part]:
        """Return what was held back, unless a stop text ended the answer."""
        if self.stopped:
            return []
        parts = self._collect([*self._splitter.add(self._decoder.decode(b"", final=True)), *self._splitter.rest()])
        held = "" if self.stopped else self._show(len(self._text))
        return [*parts, Part(held)] if held else parts

    def _collect(self, parts: Sequence[Part]) -> list[Part]:
        """Collect new parts; return those to show now."""
        shown = []
        for text, is_thought in parts:
            text = text.translate(self._texts)
            if is_thought:
                self.reasoning += text
                shown.append(Part(text, True))
            elif not self.stopped:
                self._text += text
                if answer := self._show(self._sure()):
                    shown.append(Part(answer))
        return shown

    def _sure(self) -> int:
        """Return the end of the text that can be shown: up to a stop text, or to what may begin one."""
        found = [(place, stop) for stop in self._stops if (place := self._text.find(stop, self._n_shown)) >= 0]
        if found:
            place, self.stopped_by = min(found)
            return place
        return len(self._text) - n_begun(self._text[self._n_shown :], self._stops)

    def _show(self, stop: int) -> str:
        """Return the text up to a position, without the part that was shown before."""
        shown = self._text[self._n_shown : stop]
        if self._n_shown == 0 and self._strips:
            shown = shown.lstrip()  # the blank after "Answer:"
        self._n_shown = stop
        self.shown += shown
        return shown
