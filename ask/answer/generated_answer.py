"""An answer that a session's model generates: the model draws tokens, and evaluates those that the stream forces."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing

from ...prompts.conversation_tokens import ConversationTokens
from ...prompts.thought_form import Stage, Thinking
from ...prompts.thought_splitter import Part
from ...runtime.drafting import drafting, new_drafter
from ...runtime.llama import Llama
from ...runtime.query_recorder import Recorder
from ...settings import Sampling
from .answer import Answer, Timing
from .answer_stream import AnswerStream, Meter


class GeneratedAnswer:
    """An answer that a model generates after a question.

    Parameters
    ----------
    llama : Llama
        The model, whose context holds the tokens before the question.
    tokens : sequence of int
        Tokens of the question, up to the beginning of the answer.
    recorder : Recorder, optional
        Storage for the queries of the answer's steps.
    asked : float
        When the question was asked, by `working_time`.
    question : str
        Its text.

    Attributes
    ----------
    stream : AnswerStream
        The answer so far.
    tokens : list of (int, bytes)
        Its tokens so far, those of thoughts included, with their bytes.
    start : int
        Number of tokens before them in the context.
    """

    def __init__(
        self,
        llama: Llama,
        sampling: Sampling,
        prompt: ConversationTokens,
        thinking: Thinking,
        tokens: Sequence[int],
        recorder: Recorder | None,
        asked: float,
        question: str,
    ) -> None:
        self._llama, self._sampling, self._recorder, self._asked = llama, sampling, recorder, asked
        self._prompt, stage = list(tokens), Stage.ANSWER
        self._thoughts = thoughts = thinking.thoughts if prompt.has_template else None
        room = min(llama.longest - llama.n_tokens - len(tokens), llama.n_ctx())
        budget = thinking.budget(room, sampling.max_tokens)
        if thoughts is not None:
            self._prompt, stage = thoughts.begin(llama, tokens, budget)
            room -= len(self._prompt) - len(tokens)
        self.stream = AnswerStream(
            room,
            sampling.max_tokens,
            prompt.stops,
            strips=not prompt.has_template,
            thoughts=thoughts,
            think_budget=budget,
            stage=stage,
            question=question,
        )
        self._drafter = new_drafter(llama, sampling.draft)
        self.tokens: list[tuple[int, bytes]] = []
        self.start = llama.n_tokens + len(self._prompt)
        self._meter = Meter()

    def parts(self) -> Generator[Part, None, None]:
        """Generate the answer; yield at least one part for each token, perhaps an empty one."""
        llama, stream, context = self._llama, self.stream, self._llama.context
        with drafting(llama, self._drafter), closing(self._drawn()) as drawn:
            for token in drawn:
                self._meter.count(context.bytes_read, *context.cache.table.counters)
                piece = llama.piece(token)
                parts = stream.feed(token, piece, llama.ends(token))
                if self._recorder is not None and (stream.turned or stream.n_tokens == 1):
                    del self._recorder.steps[:-1]  # the question, and the thoughts: the answer alone has sources
                if not stream.ended_by_model:
                    self.tokens.append((token, piece))
                yield from parts or [Part("")]
                if stream.ended:
                    return

    def _drawn(self) -> Generator[int, None, None]:
        """Yield tokens without end: the forced ones, or drawn ones. Drawing a token evaluates the tokens before it."""
        sampling, unread, forced = self._sampling, self._prompt, self.stream.forced_tokens
        while True:
            generated = self._llama.generate(
                unread,
                reset=False,
                temp=sampling.temperature,
                top_p=sampling.top_p,
                top_k=sampling.top_k,
                min_p=sampling.min_p,
                repeat_penalty=sampling.repeat_penalty,
            )
            with closing(generated):
                for token in generated:
                    yield token
                    if forced:
                        break
            unread = [token]
            while forced:
                unread.append(forced.pop(0))
                yield unread[-1]

    def answer(self) -> Answer | None:
        """Return the answer so far with its figures; None before its first token."""
        stream, meter, cache = self.stream, self._meter, self._llama.context.cache
        if not stream.n_tokens:
            return None
        n_read, n_counted, n_covered, covered = meter.grown
        n_steps = max(stream.n_tokens - 1, 1)
        timing = Timing(
            prompt_tokens=len(self._prompt),
            answer_tokens=stream.n_tokens - stream.n_thought,
            first_token_s=meter.first - self._asked,
            decode_s=meter.last - meter.first,
            thought_tokens=stream.n_thought,
            drafted_tokens=self._drafter.n_drafted,
            accepted_tokens=self._drafter.n_accepted,
        )
        return Answer(
            stream.text,
            stream.reason,
            timing,
            bytes_read=n_read / n_steps,
            kv_share=n_counted / n_steps / (cache.n_tokens * cache.table.counted_row_bytes),
            covered=covered / n_covered if n_covered else None,
            reasoning=stream.reasoning,
            thought_cut=stream.thought_cut,
        )

    def unread(self) -> list[int]:
        """Return the tokens that the model has not evaluated, and those that end a thought in the middle."""
        unread = [token for token, _ in self.tokens[self._llama.n_tokens - self.start :]]
        if self._thoughts is not None and self.stream.is_thinking:
            unread += self._thoughts.closing
        return unread
