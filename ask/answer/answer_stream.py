"""An answer as it comes: tokens in, parts of text out, and why it ends.

Knows no model and no server: whoever draws the tokens feeds them, and evaluates those that it is forced to take.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass, field

from ...prompts.thought_form import Stage, Thoughts
from ...prompts.thought_splitter import Part, ThoughtSplitter, n_begun
from ...system.working_time import working_time
from .answer import FinishReason
from .repeated_end import RepeatedEnd
from .repeats import LoopWatch


class AnswerStream:
    """Turn tokens into whole characters of thoughts and of an answer, until it ends.

    Parameters
    ----------
    room : int
        Number of tokens that fit the context.
    max_tokens : int, optional
        Largest number of tokens of the answer; with `counts_thoughts`, of its thoughts, too.
    stops : sequence of str
        Texts that end the answer. Thoughts may contain them.
    strips : bool
        Whether to leave out blanks before the first letter.
    thoughts : Thoughts, optional
        How the model thinks; without it, everything is the answer.
    think_budget : int
        Largest number of tokens of a thought.
    stage : Stage
        Where the text begins.
    question : str, optional
        The question, if the answer ends when it repeats itself (`LoopWatch`).

    Attributes
    ----------
    text, reasoning : str
        The answer and the thoughts so far.
    n_tokens, n_thought, n_answer : int
        Number of tokens so far, of thoughts and tags, and of the answer. The token that ends the answer counts only in
        `n_tokens`, as do first tokens that may become a thought.
    reason : FinishReason
        Why the answer ended; "interrupted" until it ends.
    stopped_by : str or None
        The stop text that ended it.
    ended_by_model : bool
        Whether a token ended it, which is not part of it.
    thought_cut : bool
        Whether a thought was ended at its limit.
    forced_tokens : list of int
        Tokens that must come next: they end a thought at its limit. The caller takes them off.
    turned : bool
        Whether the last token led from a thought into the answer, or back.
    """

    def __init__(
        self,
        room: int,
        max_tokens: int | None = None,
        stops: Sequence[str] = (),
        *,
        strips: bool = False,
        counts_thoughts: bool = False,
        thoughts: Thoughts | None = None,
        think_budget: int = 0,
        stage: Stage = Stage.ANSWER,
        question: str | None = None,
    ) -> None:
        self._room, self._max_tokens, self._think_budget = room, max_tokens, think_budget
        self._stops, self._strips, self._counts_thoughts = [stop for stop in stops if stop], strips, counts_thoughts
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._splitter = ThoughtSplitter(thoughts.form if thoughts else None, stage)
        self._characters, self._texts = (thoughts.characters, thoughts.texts) if thoughts else ({}, {})
        self._closing = thoughts.closing if thoughts else ()
        self._watch = None if question is None else LoopWatch(question)
        self._repeated = None if question is None else RepeatedEnd(question)
        self._written = ""  # the answer, its held end included
        self._starts: list[int] = []  # of the tokens in it
        self._n_shown = self._n_unclear = self._n_blank = self._n_before = 0
        self.text = self.reasoning = ""
        self.n_tokens = self.n_thought = self.n_answer = 0
        self.reason: FinishReason = "interrupted"
        self.stopped_by: str | None = None
        self.ended_by_model = self.thought_cut = self.turned = False
        self.forced_tokens: list[int] = []

    @property
    def ended(self) -> bool:
        """Whether the answer has ended."""
        return self.reason != "interrupted"

    @property
    def in_answer(self) -> bool:
        """Whether the answer itself has begun, and no other thought after it."""
        return self._splitter.stage in (Stage.ANSWER, Stage.WRAPPED)

    @property
    def is_thinking(self) -> bool:
        """Whether the text is inside a thought."""
        return self._splitter.stage is Stage.THOUGHT

    @property
    def was_cut_back(self) -> bool:
        """Whether the model wrote more than the answer: a stop text, or what it repeats without end."""
        return self.stopped_by is not None or self.reason == "loop"

    @property
    def n_shown_tokens(self) -> int:
        """Number of tokens that begin before the end of the shown text."""
        return sum(start < self._n_shown for start in self._starts)

    @property
    def starts(self) -> list[int]:
        """Offsets in the text at which tokens begin: those whose queries are recorded, since the last thought."""
        return [max(start - self._n_blank, 0) for start in self._starts[self._n_before :]]

    def may_think(self, token: int, piece: bytes) -> bool:
        """Return whether a thought, or the tag that opens the answer, may still come with or after a token."""
        return self._splitter.continues(self._characters.get(token) or piece.decode(errors="replace"))

    def feed(self, token: int, piece: bytes, is_end: bool = False) -> list[Part]:
        """Add a token; return the parts to show now. Text that may begin a tag or a stop text is held back.

        Parameters
        ----------
        piece : bytes
            Its bytes, perhaps a part of a character.
        is_end : bool
            Whether the token ends answers. Inside a thought it may be a tag.
        """
        self.n_tokens += 1
        self.turned = False
        if is_end and not (self.is_thinking and token in self._characters):
            self.reason, self.ended_by_model = "stop", True
            return self._rest()
        was_in_answer, n_before = self.in_answer, len(self._written)
        parts = self._add(token, piece)
        self.turned = self.in_answer != was_in_answer
        if self.turned:
            self._n_before = len(self._starts) - 1
        loops = self._watch is not None and self._watch.add(self._written[n_before:])
        n_counted = self.n_tokens if self._counts_thoughts else self.n_answer
        if self.stopped_by is not None:
            self.reason = "stop"
        elif loops:
            self.reason = "loop"
        elif self._max_tokens is not None and n_counted >= self._max_tokens:
            self.reason = "length"
        elif self.n_tokens >= self._room:
            self.reason = "context"
        if self.ended:
            return [*parts, *self._rest()]
        ends_character = not self._decoder.getstate()[0]
        if self.is_thinking and ends_character and not self.thought_cut and self.n_thought >= self._think_budget:
            self.thought_cut = True
            self.forced_tokens += self._closing
        return parts

    def _add(self, token: int, piece: bytes) -> list[Part]:
        """Add a token's text, and count it as one of a thought or of the answer."""
        character, was_in_answer, n_before = self._characters.get(token), self.in_answer, len(self._written)
        self._starts.append(n_before)
        text = self._decoder.decode(b"" if character else piece, final=character is not None) + (character or "")
        parts = self._collect(self._splitter.add(text))
        self._n_unclear += 1
        if self._splitter.stage is not Stage.BEFORE:
            if self.in_answer and (was_in_answer or len(self._written) > n_before):
                self.n_answer += self._n_unclear
            else:
                self.n_thought += self._n_unclear
            self._n_unclear = 0
        return parts

    def _rest(self) -> list[Part]:
        """Return the text that was held back, unless a stop text ended the answer, or it repeats itself without end."""
        if self.was_cut_back:
            return []
        parts = self._collect([*self._splitter.add(self._decoder.decode(b"", final=True)), *self._splitter.rest()])
        held = "" if self.was_cut_back else self._show(is_rest=True)
        return [*parts, Part(held)] if held else parts

    def _collect(self, parts: Sequence[Part]) -> list[Part]:
        """Collect new parts; return those to show now."""
        shown = []
        for text, is_thought, _ in parts:
            text = text.translate(self._texts)
            if is_thought:
                self.reasoning += text
                shown.append(Part(text, True))
            elif self.stopped_by is None:
                self._written += text
                if self._repeated is not None:
                    self._repeated.add(text)
                if answer := self._show():
                    shown.append(Part(answer))
        return shown

    def _show(self, is_rest: bool = False) -> str:
        """Return new text of the answer, up to a stop text.

        Unless it is the rest, what may begin one is held back, and what only repeats the text before.
        """
        found = [(place, stop) for stop in self._stops if (place := self._written.find(stop, self._n_shown)) >= 0]
        end = len(self._written)
        if found:
            end, self.stopped_by = min(found)
        elif not is_rest:
            end -= n_begun(self._written[self._n_shown :], self._stops)
            end = end if self._repeated is None else max(min(end, self._repeated.start), self._n_shown)
        shown = self._written[self._n_shown : end]
        if self._n_shown == 0 and self._strips:
            stripped = shown.lstrip()  # without the blank after "Answer:"
            self._n_blank, shown = len(shown) - len(stripped), stripped
        self._n_shown = end
        self.text += shown
        return shown


@dataclass
class Meter:
    """Measure an answer from its first token to its last: time, and how far counters grow.

    Attributes
    ----------
    first, last : float
        Times of these tokens, by `working_time`.
    grown : list of float
        By how much each counter has grown; empty before the first token.
    """

    first: float = field(default_factory=working_time)
    last: float = field(default_factory=working_time)
    grown: list[float] = field(default_factory=list)
    _before: Sequence[float] = ()

    def count(self, *counters: float) -> None:
        """Note the time of a token, and counters that the steps after the first token increase."""
        self.last = working_time()
        if not self._before:
            self.first, self._before = self.last, counters
        self.grown = [after - before for before, after in zip(self._before, counters, strict=True)]
