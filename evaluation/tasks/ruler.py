"""Share the prompt, the filler and the score of RULER's tasks (Hsieh et al. 2024, arXiv 2404.06654).

The tasks follow the paper: section 3 defines them, table 5 has their sizes, tables 7 and 8 their words.
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
from ...prompts.direct_prompt import DirectPrompt
from ...runtime.llama import Llama
from ..prose import Prose, prose_of
from ..samples import Outcome, Sample, Text
from .task import NOVEL, Task
from .text_scores import recall

#: Fills texts that hide something in noise (section 3.1, footnote 3).
NOISE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.\n"

#: Kinds of keys and values.
WORD, NUMBER, UUID_ = KINDS = ("word", "number", "uuid")

#: An answer may be longer than the expected one by this factor, plus this number of tokens.
_LONGER, _MORE = 2, 16


class Page:
    """A task's prompt, in the model's chat template if it has one (appendix D), and material to fill a text."""

    def __init__(self, llama: Llama, prose: Prose) -> None:
        prompt = DirectPrompt(llama, has_document=False)
        self.prose = prose
        self._head = prompt.head() if prompt.has_template else prose.head()
        self._tail = prompt.tail() if prompt.has_template else prose.pieces(" ")

    def begin(self, instruction: str) -> list[int]:
        """Return the tokens before the hidden text. `instruction` is the first line of the task."""
        return self._head + self.prose.pieces(f"{instruction}\n")

    def ask(self, question: str, prefix: str, answers: Sequence[str], position: float | None = None) -> Sample:
        """Ask for the hidden text, and begin the answer.

        Parameters
        ----------
        question : str
            Last line of the task.
        prefix : str
            First words of the answer.
        answers : sequence of str
            Strings that the answer should contain.
        position : float, optional
            Place of the answer in the text, from 0 to 1.
        """
        pieces = self.prose.pieces
        prompt = pieces(f"\n{question}") + self._tail + pieces(prefix)
        length = _LONGER * len(pieces(" ".join(answers))) + _MORE
        return Sample(prompt, n_predict=length, answers=tuple(answers), position=position)

    def noise(self, n_tokens: int) -> list[list[int]]:
        """Return as many lines of noise as fit into n_tokens."""
        line = self.prose.pieces(NOISE)
        return [line] * (n_tokens // len(line))

    def draw(self, kind: str, n: int, rng: np.random.Generator) -> list[str]:
        """Draw n different keys or values.

        Parameters
        ----------
        kind : str
            WORD (two words joined), NUMBER (seven digits) or UUID_.

        Raises
        ------
        OctavoError
            The prose has too few words to make so many different ones of.
        """
        if kind == WORD and n > len(self.words) ** 2:
            raise self.too_few_words("its keys and values")
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
        """Return all words of the prose with four to nine small letters."""
        return sorted(set(re.findall(r"\b[a-z]{4,9}\b", self.prose.text)))

    def too_few_words(self, wanted: str) -> OctavoError:
        """Return the error for prose with fewer words than a task draws."""
        return OctavoError(
            f"{self.prose.path} has {len(self.words):,} different words of four to nine small letters (a to z), too "
            f"few for {wanted}: give a longer text with --data, in English, or smaller --depths."
        )


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
        depth : int
            Largest number of tokens of the text.
        most : int
            Largest number of samples.

        Raises
        ------
        OctavoError
            If there is too little room, or too little to fill it with.
        """

    def score(self, sample: Sample, outcome: Outcome, dense: Outcome) -> dict[str, float]:
        """Return the share of the expected strings that the answer contains (see `Task.score`)."""
        return {"score": recall(outcome.text, sample.answers)}

    def too_small(self, depth: int) -> OctavoError:
        """Return the error for texts of `depth` tokens that are too small for the task."""
        return OctavoError(f"{depth:,} tokens have no room for what {self.name} hides in them: give larger --depths.")
