"""What a request asks of the model, and what comes back: token by token, whatever API it came by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from ...ask.session import Sampling

if TYPE_CHECKING:
    from ..library.open_document import Opened, Source

#: Why an answer ended: the model ended it or a stop text came, as many tokens as were allowed, or the context is full.
Reason = Literal["stop", "length", "context"]


@dataclass(frozen=True)
class Request:
    """What is to be generated.

    Parameters
    ----------
    tokens : sequence of int
        The prompt: after the document, if there is one.
    document : OpenDocument or OpenExcerpts, optional
        What comes before the prompt.
    sampling : Sampling
        How tokens are drawn; `max_tokens` None for as many as fit the context.
    frequency_penalty, presence_penalty : float
        What is taken off a token's logit for each time that it came, and if it came at all.
    logit_bias : mapping of int to float
        What is added to the logits of tokens.
    stop : sequence of str
        Texts that end the answer, and are no part of it.
    grammar : str, optional
        GBNF grammar that the answer follows.
    n_logprobs : int, optional
        How many of the likeliest tokens are told with each token; None for no log probabilities at all.
    of_prompt : bool
        Whether the log probabilities of the prompt's tokens are told, too.
    answers : bool
        Whether there is to be an answer; otherwise only the prompt is read.
    attention : str, optional
        How tokens attend; by default as the server was told.
    sources : bool
        Whether the passages that the answer comes from are told.
    client : str
        Who asks: a client that asks much waits behind those that ask little.
    """

    tokens: Sequence[int]
    document: Opened | None = None
    sampling: Sampling = field(default_factory=Sampling)
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    stop: Sequence[str] = ()
    grammar: str | None = None
    n_logprobs: int | None = None
    of_prompt: bool = False
    answers: bool = True
    attention: str | None = None
    sources: bool = False
    client: str = ""

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
