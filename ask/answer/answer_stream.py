"""Draw an answer: token by token, and part by part."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing

from ...prompts.conversation_tokens import ConversationTokens
from ...prompts.thinking import Thinking
from ...prompts.thought_form import Stage
from ...prompts.thought_splitter import Part
from ...runtime.llama import Llama
from ...runtime.query_recorder import Recorder
from ...settings import Sampling
from .answer import Answer, FinishReason, Meter, Text
from .repeats import LoopWatch


class Draws:
    """The tokens that follow a prompt. The model draws them, unless a caller gives some.

    Parameters
    ----------
    prompt : sequence of int
        Tokens to read first, at least one.
    """

    def __init__(self, llama: Llama, sampling: Sampling, prompt: Sequence[int]) -> None:
        self._llama, self._sampling, self._unread = llama, sampling, list(prompt)
        self._given: Sequence[int] = ()

    def give(self, tokens: Sequence[int]) -> None:
        """Let these tokens come next."""
        self._given = tokens

    def __iter__(self) -> Generator[int, None, None]:
        """Yield tokens without end. The model reads a token when the next one is drawn."""
        sampling = self._sampling
        while True:
            generated = self._llama.generate(
                self._unread,
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
                    if self._given:
                        break
            self._unread, given, self._given = [token, *self._given], self._given, ()
            yield from given


class DrawnAnswer:
    """An answer that a model draws.

    Parameters
    ----------
    llama : Llama
        The model, which holds what comes before the question.
    sampling : Sampling
        How to draw.
    prompt : ConversationTokens
        The form of the prompt.
    thinking : Thinking
        Settings of thoughts.
    question : sequence of int
        Tokens of the question, up to the beginning of the answer.
    recorder : Recorder, optional
        Storage for the queries of the answer's steps.
    began : float
        When the question was asked, by `time.perf_counter`.
    asked : str
        Its text.

    Attributes
    ----------
    text : Text
        The text so far, and the thoughts.
    tokens : list of (int, bytes)
        The tokens of both so far, with their bytes.
    start : int
        Number of tokens before them in the context.
    """

    def __init__(
        self,
        llama: Llama,
        sampling: Sampling,
        prompt: ConversationTokens,
        thinking: Thinking,
        question: Sequence[int],
        recorder: Recorder | None,
        began: float,
        asked: str = "",
    ) -> None:
        self._llama, self._sampling, self._recorder = llama, sampling, recorder
        self._thoughts = thoughts = thinking.thoughts if prompt.has_template else None
        self._room = min(llama.longest - llama.n_tokens - len(question), llama.n_ctx())
        self._budget = thinking.budget(self._room, sampling.max_tokens)
        read, stage = list(question), Stage.ANSWER
        if thoughts is not None:
            stage = thoughts.stage_after(llama, read)
            if stage is Stage.THOUGHT and self._budget == 0:
                read += thoughts.closing
                self._room -= len(thoughts.closing)
                stage = thoughts.stage_after(llama, read)
        self.text = Text(prompt.stops, not prompt.has_template, thoughts, stage)
        self.tokens: list[tuple[int, bytes]] = []
        self.start = llama.n_tokens + len(read)
        self._meter, self._draws = Meter(llama, len(read), began), Draws(llama, sampling, read)
        self._watch, self._loops = LoopWatch(asked), False
        self._reason: FinishReason = "interrupted"
        self._was_cut = False  # whether a thought was

    def parts(self) -> Generator[Part, None, None]:
        """Draw the answer, and yield at least one part."""
        text, in_answer = self.text, False
        with closing(iter(self._draws)) as draws:
            for token in draws:
                self._meter.count()
                ends = self._llama.ends(token) and not text.is_tag(token)
                parts = [] if ends else text.add(piece := self._llama.piece(token), token)
                if self._recorder is not None and (self._meter.n_tokens == 1 or text.in_answer != in_answer):
                    self._recorder.forget_question()  # and the thoughts: sources are those of the answer
                in_answer = text.in_answer
                if ends:
                    self._reason = "stop"
                    break
                self.tokens.append((token, piece))
                self._loops = self._watch.add("".join(part.text for part in parts if not part.is_thought))
                self._reason = self._reason_to_end()
                if self._reason == "interrupted":
                    self._limit_thought()
                yield from parts or [Part("")]
                if self._reason != "interrupted":
                    break
            yield from text.rest() or [Part("")]  # at least one, also of an empty answer

    def _reason_to_end(self) -> FinishReason:
        """Return why the answer ends here; "interrupted" if it continues."""
        most = self._sampling.max_tokens
        if self.text.stopped:
            return "stop"
        if self._loops:
            return "loop"
        if most is not None and self.text.n_answer >= most:
            return "length"
        return "context" if self._meter.n_tokens >= self._room else "interrupted"

    def _limit_thought(self) -> None:
        """End a thought that has reached its budget."""
        text = self.text
        if self._thoughts is not None and not self._was_cut and text.may_be_cut and text.n_thought >= self._budget:
            self._was_cut = True
            self._draws.give(self._thoughts.closing)

    def answer(self) -> Answer | None:
        """Return what was drawn, with its figures; None if nothing was."""
        return self._meter.answer(self.text, self._reason, self._was_cut) if self._meter.n_tokens else None

    def unread(self) -> list[int]:
        """Return the tokens that the model has not read, and those that end a thought in the middle."""
        unread = [token for token, _ in self.tokens[self._llama.n_tokens - self.start :]]
        if self._thoughts is not None and self.text.is_thinking:
            unread += self._thoughts.closing
        return unread
