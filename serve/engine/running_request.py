"""The state of a request that the model works on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ...ask.answer.answer_stream import AnswerStream, Meter
from ...ask.answer.notices import notices_of_changed, notices_of_end, notices_of_settings
from ...ask.sources.answer_marks import AnswerMarks
from ...runtime.drafting import new_drafter
from ...runtime.llama import Llama
from ...runtime.query_recorder import QueryHead, Recorder
from ...runtime.sequences.sequence import TokenSequence
from ...system.working_time import working_time
from .request import AnswerPart, End, PromptProgress, Request, TokenLogprob, Usage
from .sampler import TokenSampler

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...ask.sources.find_sources import Passage
    from ...library.source_text import SourceText
    from ...prompts.thought_splitter import Part


class RunningRequest:
    """A request from its arrival to the end of its answer.

    Parameters
    ----------
    tell : callable
        Receives each `AnswerPart`, and the `End` or an exception.

    Attributes
    ----------
    sequence : TokenSequence or None
        The sequence of its tokens.
    unread : list of int
        Tokens of the prompt that are still to be read.
    steps : list of int
        The ones, by their places in the sequence, that were steps before, and are steps again.
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
    marks : AnswerMarks or None
        Finds the sources of the answer's sentences, if the request asks for sources.
    put, started : float
        Times of its arrival and of its beginning, by `working_time`.
    """

    def __init__(self, request: Request, tell: Callable[[AnswerPart | End | BaseException], None]) -> None:
        self.request, self.tell = request, tell
        self.sequence: TokenSequence | None = None
        self.unread: list[int] = []
        self.steps: list[int] = []
        self.next_token: int | None = None
        self.n_cached, self.cancelled, self.ended = 0, False, False
        self.marks: AnswerMarks | None = None
        self.prompt_logprobs: list[TokenLogprob] = []
        self.last_logits: np.ndarray | None = None
        self.put = working_time()
        self.started = self.put
        self._sampler: TokenSampler | None = None
        self._stream: AnswerStream
        self._meter = Meter()
        self._logprobs: list[TokenLogprob] = []

    def start(self, llama: Llama, sequence: TokenSequence, unread: list[int], steps: list[int], longest: int) -> None:
        """Begin on a sequence that holds the prompt except `unread`, and may grow to `longest` tokens."""
        request, asked = self.request, self.request.generation
        self._sampler = TokenSampler(llama, request)
        self.sequence, self.unread, self.steps, self._n_ctx = sequence, unread, steps, llama.n_ctx()
        self._drafter = sequence.drafter = new_drafter(llama, asked.sampling.draft, asked.prediction)
        self._no_drafts = llama.context.no_drafts
        self.n_cached = request.n_prompt - len(unread)
        room, most = longest - request.n_prompt, asked.sampling.max_tokens
        self._stream = AnswerStream(
            room,
            most,
            asked.stop,
            counts_thoughts=asked.limits_thoughts,
            thoughts=request.thinking.thoughts,
            think_budget=request.thinking.budget(room, most),
            stage=request.stage,
            question=request.asked,
        )

    def take_unread(self, n_tokens: int) -> tuple[list[int], bool]:
        """Return the next tokens to read, at most n_tokens, and whether they are one step."""
        assert self.sequence is not None
        n_before = self.steps[0] - self.sequence.n_tokens if self.steps else n_tokens
        if is_step := n_before == 0:
            self.steps.pop(0)
        n_tokens = 1 if is_step else min(n_tokens, n_before)
        tokens, self.unread = self.unread[:n_tokens], self.unread[n_tokens:]
        return tokens, is_step

    def draw(self, llama: Llama, number: int) -> None:
        """Draw a token from the logits of token `number` of the last step (-1: the last), and send the new text."""
        assert self._sampler is not None
        assert self.sequence is not None
        stream, logprob = self._stream, None
        if stream.forced_tokens:
            token = stream.forced_tokens.pop(0)
        else:
            token, logprob = self._sampler.draw(number, lambda token: stream.may_think(token, llama.piece(token)))
        self._meter.count(self.sequence.cache.table.counters[0])
        self.next_token, mark = token, self.request.call_texts.get(token)
        parts = stream.feed(token, llama.piece(token) if mark is None else mark.encode(), llama.ends(token))
        if stream.turned and self.sequence.recorder is not None:
            del self.sequence.recorder.steps[:-1]  # the question, and the thoughts: the answer alone has sources
        of_prompt = self.request.generation.of_prompt
        if logprob is not None and stream.in_answer and (not stream.ended_by_model or of_prompt):
            self._logprobs.append(logprob)  # lm-eval expects them all
        self._tell(parts if self.marks is None else self.marks.add(parts))
        self.ended = stream.ended

    def find_sources(self, llama: Llama, heads: Sequence[QueryHead]) -> None:
        """Record the queries of retrieval heads, and find the sources of the answer's sentences from now on."""
        context, sequence = self.request.context, self.sequence
        if context is not None and sequence is not None:
            recorder = sequence.recorder = Recorder(llama.context.nodes, llama.context.shapes, heads)
            self.marks = AnswerMarks(self._stream, context.finder(recorder, self.request.asked or ""))

    def _tell(self, parts: Sequence[Part]) -> None:
        """Send parts; log probabilities go with the answer's last one."""
        logprobs, self._logprobs = self._logprobs, []
        for part in parts:
            sources = None if part.marks is None or self.marks is None else self.marks.named(part.marks)
            self.tell(AnswerPart(part.text, () if part.is_thought else logprobs, part.is_thought, sources=sources))
            logprobs = logprobs if part.is_thought else []
        if logprobs:
            self.tell(AnswerPart("", logprobs))

    def report(self) -> None:
        """Send how far the prompt is read."""
        n_prompt, seconds = self.request.n_prompt, working_time() - self.started
        self.tell(
            AnswerPart("", progress=PromptProgress(n_prompt, self.n_cached, n_prompt - len(self.unread), seconds))
        )

    def end_at_once(self) -> None:
        """End without an answer, as requested."""
        assert self.sequence is not None
        self._meter.count(self.sequence.cache.table.counters[0])
        self._stream.reason, self.ended = "length", True

    def end(self, sources: Sequence[tuple[SourceText, Passage]]) -> End:
        """Return the end of an answer."""
        assert self.sequence is not None
        stream, draft = self._stream, self.request.generation.sampling.draft
        return End(
            stream.reason,
            self._usage(),
            sources,
            self.prompt_logprobs,
            stream.stopped_by,
            stream.thought_cut,
            {
                **notices_of_end(stream, self._n_ctx, not self.request.thinking.is_off),
                **notices_of_settings(self.sequence.attention, draft, self.sequence.cache, self._no_drafts),
                **notices_of_changed(() if self.request.context is None else self.request.context.documents),
            },
        )

    def fail(self, problem: BaseException) -> None:
        """Send the failure to the client."""
        self.ended = True
        self.tell(problem)

    def close(self) -> None:
        """Free the samplers."""
        if self._sampler is not None:
            self._sampler.close()
            self._sampler = None

    def _usage(self) -> Usage:
        assert self.sequence is not None
        cache, stream, meter = self.sequence.cache, self._stream, self._meter
        stored = max(stream.n_tokens - 1, 1) * cache.n_tokens * cache.table.counted_row_bytes
        return Usage(
            prompt_tokens=self.request.n_prompt,
            cached_tokens=self.n_cached,
            answer_tokens=stream.n_tokens,
            thought_tokens=stream.n_thought,
            prompt_s=meter.first - self.started,
            answer_s=meter.last - meter.first,
            waited_s=self.started - self.put,
            attention=str(self.sequence.attention),
            kv_share=meter.grown[0] / stored,
            drafted_tokens=self._drafter.n_drafted,
            accepted_tokens=self._drafter.n_accepted,
        )
