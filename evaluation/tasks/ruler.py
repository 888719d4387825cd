"""What the tasks of RULER share: the prompt, what fills a text, and the score (Hsieh et al. 2024, arXiv 2404.06654).

The tasks are written from the paper: section 3 says what they are, table 5 has their sizes, tables 7 and 8 their words.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from uuid import UUID

import numpy as np

from ...errors import OctavoError
from ...runtime.llama import Llama
from ..prose import Prose, prose_of
from ..samples import Outcome, Sample, Text
from .task import Task
from .task_data import NOVEL
from .text_scores import recall

#: Fills texts that hide something in noise (section 3.1, footnote 3).
NOISE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.\n"

#: What keys and values may be.
WORD, NUMBER, UUID_ = KINDS = ("word", "number", "uuid")

#: An answer may be longer than what is expected by this factor, and by so many tokens more.
_LONGER, _MORE = 2, 16


class Page:
    """A task's prompt, in the model's chat template if it has one (appendix D), and material to fill a text with.

    Parameters
    ----------
    llama : Llama
        Model whose tokens and chat template are used.
    prose : Prose
        Essays, and a source of words.

    Attributes
    ----------
    prose : Prose
        The same.
    """

    def __init__(self, llama: Llama, prose: Prose) -> None:
        prompt = llama.prompt(has_document=False)
        self.prose = prose
        self._head = prompt.head() if prompt.has_template else prose.head()
        self._tail = prompt.tail() if prompt.has_template else prose.pieces(" ")

    def begin(self, instruction: str) -> list[int]:
        """Return the tokens before what is hidden.

        Parameters
        ----------
        instruction : str
            First line of the task.

        Returns
        -------
        list of int
        """
        return self._head + self.prose.pieces(f"{instruction}\n")

    def ask(self, question: str, prefix: str, answers: Sequence[str], position: float | None = None) -> Sample:
        """Ask for what is hidden, and begin the answer.

        Parameters
        ----------
        question : str
            Last line of the task.
        prefix : str
            First words of the answer.
        answers : sequence of str
            What the answer should contain.
        position : float, optional
            Place of the answer in the text, from 0 to 1.

        Returns
        -------
        Sample
        """
        pieces = self.prose.pieces
        prompt = pieces(f"\n{question}") + self._tail + pieces(prefix)
        length = _LONGER * len(pieces(" ".join(answers))) + _MORE
        return Sample(prompt, n_predict=length, answers=tuple(answers), position=position)

    def noise(self, n_tokens: int) -> list[list[int]]:
        """Return as many lines of noise as fit into some tokens.

        Parameters
        ----------
        n_tokens : int
            Largest number of tokens of all lines.

        Returns
        -------
        list of list of int
        """
        line = self.prose.pieces(NOISE)
        return [line] * (n_tokens // len(line))

    def draw(self, kind: str, n: int, rng: np.random.Generator) -> list[str]:
        """Draw different keys or values.

        Parameters
        ----------
        kind : str
            WORD (two words joined), NUMBER (seven digits) or UUID_.
        n : int
            How many.
        rng : numpy.random.Generator
            Source of randomness.

        Returns
        -------
        list of str
        """
        made: dict[str, None] = {}
        while len(made) < n:
            if kind == NUMBER:
                one = str(rng.integers(1_000_000, 10_000_000))
            elif kind == UUID_:
                one = str(UUID(bytes=rng.bytes(16), version=4))
            else:
                one = "-".join(self.words[i] for i in rng.integers(len(self.words), size=2))
            made[one] = None
        return list(made)

    @cached_property
    def words(self) -> list[str]:
        """All words of the prose of four to nine small letters."""
        return sorted(set(re.findall(r"\b[a-z]{4,9}\b", self.prose.text)))


@dataclass(frozen=True)
class Ruler(Task):
    """A task of RULER. A subclass makes one text at a time."""

    metric = "recall"
    samples = 20
    data = NOVEL

    def texts(self, llama: Llama, data: Path, depth: int, n_samples: int, seed: int) -> list[Text]:
        """Make texts of at most `depth` tokens (see `Task.texts`)."""
        page = Page(llama, prose_of(llama, data))
        texts: list[Text] = []
        while n_samples > 0:
            texts.append(self.text(page, depth, n_samples, np.random.default_rng([seed, depth, len(texts)])))
            n_samples -= len(texts[-1].samples)
        return texts

    @abstractmethod
    def text(self, page: Page, depth: int, most: int, rng: np.random.Generator) -> Text:
        """Make one text with its samples.

        Parameters
        ----------
        page : Page
            The prompt, and what to fill the text with.
        depth : int
            Largest number of tokens of the text.
        most : int
            Largest number of samples.
        rng : numpy.random.Generator
            Source of randomness.

        Returns
        -------
        Text

        Raises
        ------
        OctavoError
            If there is too little room, or too little to fill it with.
        """

    def score(self, sample: Sample, outcome: Outcome, dense: Outcome) -> dict[str, float]:
        """Return the share of the expected strings that the answer contains (see `Task.score`)."""
        return {"score": recall(outcome.text, sample.answers)}

    def too_small(self, depth: int) -> OctavoError:
        """Return the error for texts that have no room for what the task hides.

        Parameters
        ----------
        depth : int
            Largest number of tokens of a text.

        Returns
        -------
        OctavoError
        """
        return OctavoError(f"{depth:,} tokens have no room for what {self.name} hides in them: give larger --depths.")
