"""Hold samples (a question about a text, as token ids) and outcomes (a model's answer). Knows no model."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ..ask.sources.find_sources import TokenText


@dataclass(frozen=True)
class Sample:
    """Tokens that a model reads and predicts after a text.

    Parameters
    ----------
    prompt : list of int
        Tokens to read after the text; at least one.
    continuation : list of int
        Tokens that follow the prompt, predicted one by one. If empty, the model writes its own.
    n_predict : int
        Largest number of tokens that the model writes.
    stop : str
        Text at which the model stops writing; empty for none.
    answers : tuple of str
        Accepted answers, one of which is enough; or expected strings, all of which count. The task decides.
    classes : tuple of str
        Names of classes, for tasks whose answer is one of them.
    kind : str
        Name of the sample's dataset, if the task has several.
    position : float, optional
        Place of the answer in the text, from 0 to 1; None if there is no single place.
    passage : str
        The passage of the text that has the answer, if the task knows it.
    text : TokenText, optional
        The part of the text that answers may come from, if the task asks for sources.
    question : str
        The prompt as text, if the task asks for sources.
    """

    prompt: list[int]
    continuation: list[int] = field(default_factory=list)
    n_predict: int = 0
    stop: str = ""
    answers: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    kind: str = ""
    position: float | None = None
    passage: str = ""
    text: TokenText | None = None
    question: str = ""

    @property
    def n_tokens(self) -> int:
        """Largest number of tokens after the text."""
        return len(self.prompt) + max(len(self.continuation), self.n_predict)


@dataclass(frozen=True)
class Text:
    """A text and its samples.

    Parameters
    ----------
    tokens : list of int
        Tokens of the text.
    samples : list of Sample
        Questions about the text.
    continues : bool
        Whether each sample follows the one before it. Otherwise each follows the text alone.
    name, document : str
        Name and text of a user's document that must be indexed; empty for other texts.
    depth : int
        Depth in the results, so that texts of different lengths share a row; 0 for the text's length.
    """

    tokens: list[int]
    samples: list[Sample]
    continues: bool = False
    name: str = ""
    document: str = ""
    depth: int = 0

    @property
    def n_tokens(self) -> int:
        """Largest number of tokens of the text with its samples."""
        after = [sample.n_tokens for sample in self.samples]
        return len(self.tokens) + (sum(after) if self.continues else max(after))


@dataclass
class Outcome:
    """A model's answer to a sample under one attention.

    Parameters
    ----------
    tokens : list of int
        Tokens that were predicted or written.
    text : str
        Written text, up to the stop.
    log_probs : float32 array, shape (n_steps, n_vocab)
        Log-probabilities from which `tokens` were predicted or chosen; one more step than tokens if the last step
        ended the answer.
    bytes_read : list of int
        Bytes of keys and values that each step read, those of the selection included, but not those of layers whose
        window slides. A step is one token, or the batch of a prompt.
    attention : float32 array, shape (n_steps, n_layers, n), optional
        Output of each layer's attention, if the task compares it.
    first_token_s, seconds : float
        Time until the first token and in all.
    attended : float32 array, shape (n_parts, n_tokens), optional
        Attention of the answer to the text (`Recorder.attended`), if the task asks for sources.
    sentences : list of (str, float32 array)
        The answer's sentences, and the attention of each.
    """

    tokens: list[int]
    text: str
    log_probs: np.ndarray
    bytes_read: list[int]
    attention: np.ndarray | None
    first_token_s: float
    seconds: float
    attended: np.ndarray | None = None
    sentences: list[tuple[str, np.ndarray]] = field(default_factory=list)

    def comparable(self, dense: Outcome, forced: bool) -> int:
        """Return the number of first steps at which both outcomes followed the same tokens, and so can be compared.

        Parameters
        ----------
        forced : bool
            Whether the sample prescribes the tokens, so that both always followed the same ones.
        """
        n = min(len(self.log_probs), len(dense.log_probs))
        if forced:
            return n
        pairs = enumerate(zip(self.tokens, dense.tokens, strict=False))
        first_difference = next((i for i, (own, other) in pairs if own != other), n)
        return min(n, first_difference + 1)
