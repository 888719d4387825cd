"""An answer with its figures, and the share of the documents that the model used for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

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
    drafted_tokens, accepted_tokens : int
        Tokens that were drafted, and the ones among them that the model drew.
    """

    prompt_tokens: int
    answer_tokens: int
    first_token_s: float
    decode_s: float
    thought_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0

    @property
    def tokens_per_step(self) -> float:
        """Tokens for each step after the first token; 0 if there was only one."""
        n_after = self.thought_tokens + self.answer_tokens - 1
        return n_after / (n_after - self.accepted_tokens) if n_after > 0 else 0.0

    @property
    def decode_tokens_per_s(self) -> float:
        """Tokens per second after the first token; 0 if there was only one."""
        n_tokens = self.thought_tokens + self.answer_tokens
        return (n_tokens - 1) / self.decode_s if n_tokens > 1 else 0.0


@dataclass(frozen=True)
class ContextShare:
    """What the model read for an answer.

    Parameters
    ----------
    kind : {"document", "part", "excerpts", "findings"}
        A whole document; a part of one, perhaps with passages of all of it; excerpts alone; or what each part or
        document answers (ask/context/whole/).
    n_passages : int
        Number of excerpts; 0 for none.
    share : float
        Share of the text of the documents that the answer comes from.
    is_begun : bool
        Whether the part is the beginning of a document that is being read.
    """

    kind: Literal["document", "part", "excerpts", "findings"]
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
    read : ContextShare, optional
        What the model read for it; None in a conversation without a document.
    unfounded : sequence of str
        Its names and numbers that are not in the text that the model read (`unfounded`).
    notices : mapping of str to str
        What a user should know about it, as sentences, by kind (ask/answer/notices.py).
    """

    text: str
    finish_reason: FinishReason
    timing: Timing
    bytes_read: float
    kv_share: float
    covered: float | None = None
    reasoning: str = ""
    thought_cut: bool = False
    read: ContextShare | None = None
    unfounded: Sequence[str] = ()
    notices: Mapping[str, str] = field(default_factory=dict)
