"""The state of a request that the model works on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ...ask.answer.answer import Text
from ...ask.answer.repeats import LoopWatch
from ...runtime.llama import Llama
from ...runtime.sequences.sequence import TokenSequence
from ...system.working_time import working_time
from .request import End, Piece, Reading, Reason, Request, TokenLogprob, Usage
from .sampler import TokenSampler

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...prompts.thought_splitter import Part
    from ..library.open_document import Source


class RunningRequest:
    """A request from its arrival to the end of its answer.

    Parameters
    ----------
    tell : callable
        Receives each `Piece`, and the `End` or an exception.

    Attributes
    ----------
    sequence : TokenSequence or None
        The sequence of its tokens.
    unread : list of int
        Tokens of the prompt that are still to be read.
    next_token : int or None
        The last drawn token, which is still to be read.
    n_cached : int
        Tokens of the prompt that came from a cache.
    cancelled, ended : bool
        Whether its client has gone, and whether the answer has ended.
    prompt_logprobs : list of TokenLogprob
        Log probabilities of the prompt's tokens read so far.
    last_logits : float32 array, shape (n_vocab,), or None
        Logits after these tokens, if the request asks for log probabilities.
    put, started : float
        Times of its arrival and of its beginning, by `working_time`.
    """

    def __init__(self, request: Request, tell: Callable[[Piece | End | BaseException], None]) -> None:
        self.request, self.tell = request, tell
        self.sequence: TokenSequence | None = None
        self.unread: list[int] = []
        self.next_token: int | None = None
        self.n_cached, self.cancelled, self.ended = 0, False, False
        self.prompt_logprobs: list[TokenLogprob] = []
        self.last_logits: np.ndarray | None = None
        self.put = working_time()
        self._text = Text(request.stop, thoughts=request.thinking.thoughts, stage=request.stage)
        self._watch = None if request.asked is None else LoopWatch(request.asked)
        self._loops = False
        self._given: list[int] = []  # tokens that come next
        self._sampler: TokenSampler | None = None
        self.started = self._first = self._last = self.put
        self._n_drawn = self._room = self._budget = 0
        self._logprobs: list[TokenLogprob] = []
        self._bytes_before = 0

    def start(self, llama: Llama, sequence: TokenSequence, unread: list[int], longest: int) -> None:
        """Begin on a sequence that holds the prompt except `unread`, and may grow to `longest` tokens."""
        self._sampler = TokenSampler(llama, self.request)
        self.sequence, self.unread = sequence, unread
        self.n_cached = self.request.n_prompt - len(unread)
        self._room = longest - self.request.n_prompt
        self._budget = self.request.thinking.budget(self._room, self.request.sampling.max_tokens)

    def draw(self, llama: Llama, number: int) -> None:
        """Draw a token from the logits of token `number` of the last step (-1: the last), and send the new text."""
        token, logprob = self._next(llama, number)
        self._last = working_time()
        if self._n_drawn == 0:
            self._first, self._bytes_before = self._last, self._bytes_read()
        self._n_drawn += 1
        self.next_token = token
        text, was_in_answer = self._text, self._text.in_answer
        ends = llama.ends(token) and not text.is_tag(token)
        mark = self.request.marks.get(token)
        parts = [] if ends else text.add(llama.piece(token) if mark is None else mark.encode(), token)
        if self._watch is not None:
            self._loops = self._watch.add("".join(part.text for part in parts if not part.is_thought))
        if text.in_answer != was_in_answer and self.sequence is not None and self.sequence.recorder is not None:
            self.sequence.recorder.forget_question()  # and the thoughts: sources are those of the answer
        if logprob is not None and text.in_answer and (not ends or self.request.of_prompt):  # lm-eval expects them all
            self._logprobs.append(logprob)
        if ends:
            self._end("stop", text.rest())
        elif (reason := self._reason_to_end()) is not None:
            self._end(reason, [*parts, *text.rest()])
        else:
            self._tell(parts)
            if text.may_be_cut and text.n_thought >= self._budget:
                self._given, self._budget = list(self._closing), self._room

    def _next(self, llama: Llama, number: int) -> tuple[int, TokenLogprob | None]:
        """Return the next token: of those that end a thought at its limit, or a drawn one."""
        assert self._sampler is not None
        if self._given:
            return self._given.pop(0), None
        return self._sampler.draw(number, lambda token: self._text.continues(llama.piece(token), token))

    def _reason_to_end(self) -> Reason | None:
        """Return why the answer ends here; None if it continues."""
        most, text = self.request.sampling.max_tokens, self._text
        if text.stopped:
            return "stop"
        if self._loops:
            return "loop"
        if most is not None and (self._n_drawn if self.request.limits_thoughts else text.n_answer) >= most:
            return "length"
        return "context" if self._n_drawn >= self._room else None

    def _tell(self, parts: Sequence[Part]) -> None:
        """Send parts; log probabilities go with the answer's last one."""
        logprobs, self._logprobs = self._logprobs, []
        for part in parts:
            self.tell(Piece(part.text, (), part.is_thought) if part.is_thought else Piece(part.text, logprobs))
            logprobs = logprobs if part.is_thought else []
        if logprobs:
            self.tell(Piece("", logprobs))

    def _end(self, reason: Reason, parts: Sequence[Part]) -> None:
        self._tell(parts)
        self._reason: Reason = reason
        self.ended = True

    def report(self) -> None:
        """Send how far the prompt is read."""
        n_prompt, seconds = self.request.n_prompt, working_time() - self.started
        self.tell(Piece("", reading=Reading(n_prompt, self.n_cached, n_prompt - len(self.unread), seconds)))

    def end_at_once(self) -> None:
        """End without an answer, as requested."""
        self._first = self._last = working_time()
        self._end("length", [])

    def end(self, sources: Sequence[Source]) -> End:
        """Return the end of an answer."""
        return End(self._reason, self._usage(), sources, self.prompt_logprobs, self._text.stopped_by)

    def fail(self, problem: BaseException) -> None:
        """Send the failure to the client."""
        self.ended = True
        self.tell(problem)

    def close(self) -> None:
        """Free the samplers."""
        if self._sampler is not None:
            self._sampler.close()
            self._sampler = None

    @property
    def _closing(self) -> Sequence[int]:
        """Return the tokens that end a thought."""
        thoughts = self.request.thinking.thoughts
        return thoughts.closing if thoughts else ()

    def _bytes_read(self) -> int:
        """Return the bytes that the sequence's attention has read, without sliding layers."""
        assert self.sequence is not None
        cache = self.sequence.cache
        return int(cache.table.heads["bytes_read"][cache.table.counted].sum())

    def _usage(self) -> Usage:
        assert self.sequence is not None
        cache, n_steps = self.sequence.cache, max(self._n_drawn - 1, 1)
        stored = n_steps * cache.n_tokens * cache.table.counted_row_bytes
        return Usage(
            prompt_tokens=self.request.n_prompt,
            cached_tokens=self.n_cached,
            answer_tokens=self._n_drawn,
            thought_tokens=min(self._text.n_thought, self._n_drawn),
            prompt_s=self._first - self.started,
            answer_s=self._last - self._first,
            waited_s=self.started - self.put,
            attention=str(self.sequence.attention),
            kv_share=(self._bytes_read() - self._bytes_before) / stored if self._n_drawn > 1 else 0.0,
        )
