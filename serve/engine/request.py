"""A request to the model, and its answer token by token, independent of the API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

from ...ask.answer.answer import FinishReason
from ...prompts.thought_form import Stage, Thinking
from ...settings import Sampling

if TYPE_CHECKING:
    from ...ask.context.answer_context import Context
    from ...ask.sources.find_sources import Passage
    from ...library.source_text import SourceText
    from ...runtime.methods.attention import Attention
    from .grammar import Grammar


@dataclass(frozen=True, kw_only=True)
class Generation:
    """How to generate an answer, from a request's body.

    Parameters
    ----------
    frequency_penalty, presence_penalty : float
        Subtracted from a token's logit for each occurrence, and once if it occurred at all.
    logit_bias : mapping of int to float
        Added to the logits of tokens.
    stop : sequence of str
        Texts that end the answer and are not part of it.
    n_logprobs : int, optional
        Number of the likeliest tokens to report with each token; None for no log probabilities.
    of_prompt : bool
        Whether to report the log probabilities of the prompt's tokens, too.
    answers : bool
        Whether to answer; otherwise the model only reads the prompt.
    attention : Attention, optional
        Words of the attention; by default the server's.
    sources : bool
        Whether to report the passages that the answer comes from.
    limits_thoughts : bool
        Whether the limit of the answer's tokens counts those of thoughts, as clients of the APIs expect.
    client : str
        Identity of the client: a client with many requests waits behind those with few.
    reports_progress : bool
        Whether to report how far the prompt is read.
    prediction : sequence of int
        Tokens of a text that the answer may resemble, for drafts.
    """

    sampling: Sampling = field(default_factory=Sampling)
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    stop: Sequence[str] = ()
    n_logprobs: int | None = None
    of_prompt: bool = False
    answers: bool = True
    attention: Attention | None = None
    sources: bool = False
    limits_thoughts: bool = False
    client: str = ""
    reports_progress: bool = False
    prediction: Sequence[int] = ()

    def settled(self, has_documents: bool) -> Self:
        """Return these settings with a temperature, for an answer over documents or without."""
        return replace(self, sampling=self.sampling.settled(has_documents))


@dataclass(frozen=True, kw_only=True)
class Request:
    """A prompt, and how to generate its answer.

    Parameters
    ----------
    tokens : sequence of int
        The prompt, after the document if there is one.
    generation : Generation
        How to generate the answer.
    context : Context, optional
        Text before the prompt.
    grammar : Grammar, optional
        What the answer follows; thoughts before it are free.
    thinking : Thinking
        How the model thinks; by default everything that it writes is the answer.
    stage : Stage
        Where in the answer the text begins.
    call_texts : mapping of int to str
        Texts of control tokens that are part of the answer's text; other control tokens have none.
    asked : str, optional
        The question, if the answer ends when the model repeats itself without end (ask/answer/repeats.py).
    notices : sequence of str
        What a user should know about the choice of the context, as sentences.
    """

    tokens: Sequence[int]
    generation: Generation = field(default_factory=Generation)
    context: Context | None = None
    grammar: Grammar | None = None
    thinking: Thinking = field(default_factory=lambda: Thinking(None, None, None))
    stage: Stage = Stage.ANSWER
    call_texts: Mapping[int, str] = field(default_factory=dict)
    asked: str | None = None
    notices: Sequence[str] = ()

    @property
    def ignored(self) -> Sequence[str]:
        """Return the parts of the answer's form that are not enforced."""
        return () if self.grammar is None else self.grammar.ignored

    @property
    def n_prompt(self) -> int:
        """Return the number of tokens before the answer."""
        return len(self.tokens) + (len(self.context.index.tokens) if self.context else 0)

    def numbered(self, number: int) -> Request:
        """Return the request for one of several answers, each with another seed."""
        sampling = self.generation.sampling
        if not number or sampling.seed is None:
            return self
        sampling = replace(sampling, seed=(sampling.seed + number) % (2**32 - 1))
        return replace(self, generation=replace(self.generation, sampling=sampling))


@dataclass(frozen=True)
class TokenLogprob:
    """A token, its natural log probability, and the likeliest tokens in its place.

    Parameters
    ----------
    logprob : float or None
        None for the first token of all, which nothing predicts.
    top : sequence of (int, bytes, float)
        The likeliest tokens: number, text, log probability.
    """

    token: int
    text: bytes
    logprob: float | None
    top: Sequence[tuple[int, bytes, float]] = ()


@dataclass(frozen=True)
class AnswerPart:
    """A part of an answer or of a thought: its text, which may be empty, and log probabilities if requested.

    Tokens of thoughts have none. Before the answer, an empty part may report how far prefill is. The part that ends a
    sentence has the sentence's sources, if the request asks for sources.
    """

    text: str
    logprobs: Sequence[TokenLogprob] = ()
    is_thought: bool = False
    progress: PromptProgress | None = None
    sources: Sequence[tuple[SourceText, Passage]] | None = None


@dataclass(frozen=True)
class PromptProgress:
    """How far prefill is: tokens of the prompt, those from a cache, those that are done, and the seconds it took."""

    total: int
    cached: int
    done: int
    seconds: float


@dataclass(frozen=True)
class Usage:
    """Tokens and seconds of an answer.

    Parameters
    ----------
    prompt_tokens : int
        Tokens before the answer, those of the document included.
    cached_tokens : int
        Those of them that came from a cache.
    answer_tokens : int
        Tokens of the answer, and of the thoughts before it.
    thought_tokens : int
        Those of them that are thoughts.
    prompt_s, answer_s : float
        Seconds from the beginning of the work to the first token, and from there to the last.
    waited_s : float
        Seconds in the queue.
    attention : str
        Words of the attention.
    kv_share : float
        Mean share of the keys and values that a step read.
    drafted_tokens, accepted_tokens : int
        Tokens that were drafted, and the ones among them that the model drew.
    """

    prompt_tokens: int
    cached_tokens: int
    answer_tokens: int
    thought_tokens: int
    prompt_s: float
    answer_s: float
    waited_s: float
    attention: str
    kv_share: float
    drafted_tokens: int = 0
    accepted_tokens: int = 0


@dataclass
class Totals:
    """Counters since the start, for /metrics."""

    requests: int = 0
    failed: int = 0
    cancelled: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    answer_tokens: int = 0
    prompt_seconds: float = 0.0
    answer_seconds: float = 0.0

    def add(self, usage: Usage) -> None:
        """Count an answer that has ended."""
        self.prompt_tokens += usage.prompt_tokens
        self.cached_tokens += usage.cached_tokens
        self.answer_tokens += usage.answer_tokens
        self.prompt_seconds += usage.prompt_s
        self.answer_seconds += usage.answer_s


@dataclass(frozen=True)
class End:
    """The end of an answer.

    Parameters
    ----------
    stopped_by : str, optional
        The stop text that ended it, if one did.
    thought_cut : bool
        Whether a thought was ended at its limit.
    notices : mapping of str to str
        What a user should know about it, as sentences, by kind (ask/answer/notices.py).
    """

    reason: FinishReason
    usage: Usage
    sources: Sequence[tuple[SourceText, Passage]] = ()
    prompt_logprobs: Sequence[TokenLogprob] = ()
    stopped_by: str | None = None
    thought_cut: bool = False
    notices: Mapping[str, str] = field(default_factory=dict)
