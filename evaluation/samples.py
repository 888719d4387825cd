"""What a task asks a model about a text, and what the model made of it. Token ids and numbers: no model here."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Sample:
    """What is read and predicted after a text.

    prompt : at least one token, read after the text
    continuation : the tokens that follow and are predicted one by one; where there are none the model writes its own
    n_predict : most tokens that it writes    stop : text that ends what it writes; empty for none
    answers : what it should write; one of them is enough
    position : where in the text it is to be found, from 0 to 1; None where that is not one place
    """

    prompt: list[int]
    continuation: list[int] = field(default_factory=list)
    n_predict: int = 0
    stop: str = ""
    answers: tuple[str, ...] = ()
    position: float | None = None

    @property
    def n_tokens(self) -> int:
        """Most tokens that it takes after the text."""
        return len(self.prompt) + max(len(self.continuation), self.n_predict)


@dataclass(frozen=True)
class Text:
    """A text, and samples of it.

    continues : whether each sample follows the one before; else each follows the text alone
    name, document : of a user's document, which is to be indexed: what it is called, and its text
    """

    tokens: list[int]
    samples: list[Sample]
    continues: bool = False
    name: str = ""
    document: str = ""

    @property
    def n_tokens(self) -> int:
        """Most tokens that it takes with its samples."""
        after = [sample.n_tokens for sample in self.samples]
        return len(self.tokens) + (sum(after) if self.continues else max(after))


@dataclass
class Outcome:
    """What came of a sample under one attention.

    tokens : those that were predicted, or written    text : what was written, up to the stop
    log_probs : (n_steps, n_vocab) f32, the distributions that `tokens` were predicted by, or chosen from; one more
        where the last one ended the answer
    bytes_read : what each step of one token read of keys and values, what selection takes included
    attention : (n_steps, n_layers, n) f32, what attention gave in each layer; None where nobody asked
    first_token_s, seconds : until the first token, and in all
    """

    tokens: list[int]
    text: str
    log_probs: np.ndarray
    bytes_read: list[int]
    attention: np.ndarray | None
    first_token_s: float
    seconds: float

    def comparable(self, dense: Outcome, forced: bool) -> int:
        """Steps that both took after the same tokens."""
        n = min(len(self.log_probs), len(dense.log_probs))
        if forced:
            return n
        pairs = enumerate(zip(self.tokens, dense.tokens, strict=False))
        differs = next((i for i, (own, other) in pairs if own != other), n)
        return min(n, differs + 1)


def divergence(dense: Outcome, other: Outcome, n: int) -> np.ndarray:
    """KL divergence from dense of the first n steps' distributions: (n,) f64."""
    p, q = dense.log_probs[:n].astype(np.float64), other.log_probs[:n].astype(np.float64)
    kl: np.ndarray = (np.exp(p) * (p - q)).sum(axis=1)
    return kl


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Logarithms of the probabilities of one step's logits: (n_vocab,) f32."""
    wide = logits.astype(np.float64)
    wide -= wide.max()
    probabilities: np.ndarray = (wide - np.log(np.exp(wide).sum())).astype(np.float32)
    return probabilities
