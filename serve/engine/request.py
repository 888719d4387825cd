"""What a request asks of the model, and what comes back: token by token, whatever API it came by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from ...settings import Sampling

if TYPE_CHECKING:
    from ...runtime.methods.attention import Attention
    from ..library.open_document import Opened, Source

#: Why an answer ended: the model ended it or a stop text came, as many tokens as were allowed, or the context is full.
Reason = Literal["stop", "length", "context"]


@dataclass(frozen=True, kw_only=True)
class Generation:
    """How an answer is generated, as a request's body says.

    Parameters
    ----------
    sampling : Sampling
        How tokens are drawn; `max_tokens` None for as many as fit the context.
    frequency_penalty, presence_penalty : float
        Subtracted from a token's logit for each time that it came, and once if it came at all.
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
        How tokens attend; by default as the server was started.
    sources : bool
        Whether to report the passages that the answer comes from.
    client : str
        Who asks: a client that asks much waits behind those that ask little.
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
    client: str = ""


@dataclass(frozen=True, kw_only=True)
class Request(Generation):
    """What the engine is to generate: `Generation`, and the prompt that it follows.

    Parameters
    ----------
    tokens : sequence of int
        The prompt: after the document, if there is one.
    document : OpenDocument or OpenExcerpts, optional
        What comes before the prompt.
    grammar : str, optional
        GBNF grammar that the answer follows.
    """

    tokens: Sequence[int]
    document: Opened | None = None
    grammar: str | None = None

    @property
    def n_prompt(self) -> int:
        """Return how many tokens come before the answer."""
        return len(self.tokens) + (self.document.n_tokens if self.document else 0)


@dataclass(frozen=True)
class TokenLogprob:
    """A token, its natural log probability, and the likeliest tokens in its place.

    Parameters
    ----------
    token : int
        Its number.
    text : bytes
        Its text.
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
class Piece:
    """A piece of an answer: its text, which may be empty, and its tokens' log probabilities if they were asked for."""

    text: str
    logprobs: Sequence[TokenLogprob] = ()


@dataclass(frozen=True)
class Usage:
    """What an answer took.

    Parameters
    ----------
    prompt_tokens : int
        Tokens before the answer, those of the document included.
    cached_tokens : int
        Those of them that were not computed for this request.
    answer_tokens : int
        Tokens that were drawn.
    prompt_s, answer_s : float
        Seconds from when the model took up the request to the first token, and from there to the last.
    waited_s : float
        Seconds in the queue before.
    attention : str
        How tokens attended.
    kv_share : float
        Share of the keys and values that a step read, on average.
    """

    prompt_tokens: int
    cached_tokens: int
    answer_tokens: int
    prompt_s: float
    answer_s: float
    waited_s: float
    attention: str
    kv_share: float


@dataclass(frozen=True)
class End:
    """The end of an answer; `stopped_by` is the stop text that ended it, if one did."""

    reason: Reason
    usage: Usage
    sources: Sequence[Source] = ()
    prompt_logprobs: Sequence[TokenLogprob] = ()
    stopped_by: str | None = None
