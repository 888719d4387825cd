"""Sources: whether the named sources of right answers have the answers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...ask.sources.find_sources import Passage, TokenText, likely_passages, passages
from ...runtime.llama import Llama
from ...runtime.methods.parameters import parameter
from ..samples import Outcome, Sample, Text
from .needle import Needle, Passkey
from .niah import MultiKeyNiah
from .qa import QA
from .task import ARTICLES, NOVEL, Task

#: Tasks whose answers have sources: RULER's MK-NIAH-1 to 3 are the three of `niah`.
_TASKS: dict[str, Task] = {
    "needle": Needle(),
    "passkey": Passkey(),
    "niah-multikey": MultiKeyNiah(),
    "niah-needles": MultiKeyNiah(haystack="needles"),
    "niah-uuids": MultiKeyNiah(haystack="needles", key="uuid", value="uuid"),
    "qa": QA(),
    "qa-chat": QA(chat=True),
}

#: Smallest score of a right answer: an F1 for `qa`, and 1 for the others.
_RIGHT = 0.5

#: Number of sources to check.
_MOST = 3


@dataclass(frozen=True)
class Sources(Task):
    """Look for the sources of right answers. Wrong ones have no score, as they may come from anywhere.

    Parameters
    ----------
    of : str
        The task that asks: needle, passkey, qa, qa-chat (in the chat template), or niah-multikey with prose around the
        needles, among needles (niah-needles), or among needles of UUIDs (niah-uuids).
    """

    of: str = parameter("needle", choices=tuple(_TASKS))

    name = "sources"
    metric = "first is right"
    samples = 60
    finds_sources = True
    extra_figures = ("first_three", "none_named", "right_answers", "right_marks", "marked_facts")

    @property
    def data(self) -> Path:  # type: ignore[override]
        """Return the default data of the task that asks."""
        return ARTICLES if self.of.startswith("qa") else NOVEL

    def content(self, data: Path) -> str:
        """Return the content of all data files (see `Task.content`)."""
        return _TASKS[self.of].content(data)

    def texts(self, llama: Llama, data: Path, depth: int, n_samples: int, seed: int) -> list[Text]:
        """Make the texts of the task that asks (see `Task.texts`)."""
        return [_located(llama, text) for text in _TASKS[self.of].texts(llama, data, depth, n_samples, seed)]

    def score(self, sample: Sample, outcome: Outcome, dense: Outcome) -> dict[str, Any]:
        """Return whether the first source is right, whether one of three is, and whether there is none.

        A source is right if half of its quote stands in the passage that has the answer, or half of that in the quote.
        Of the sentences whose attention names a source, which have a mark, `right_marks` is the share of right ones; of
        the sentences that have an accepted answer, `marked_facts` is the share with a mark.
        """
        if _TASKS[self.of].score(sample, outcome, dense)["score"] < _RIGHT:
            return {"score": None, **dict.fromkeys(self.extra_figures), "right_answers": 0.0}
        assert sample.text is not None
        assert outcome.attended is not None
        found = passages(sample.text, _on(sample.text, outcome.attended), _MOST)
        right = [_is_right(passage, sample) for passage in found]
        marks = [
            likely_passages(sample.text, _on(sample.text, attended), sentence, sample.question, 1)
            for sentence, attended in outcome.sentences
        ]
        are_right = [float(_is_right(mark, sample)) for found in marks for mark in found]
        are_marked = [
            float(bool(found))
            for (sentence, _), found in zip(outcome.sentences, marks, strict=True)
            if any(answer.casefold() in sentence.casefold() for answer in sample.answers)
        ]
        return {
            "score": float(right[:1] == [True]),
            "first_three": float(any(right)),
            "none_named": float(not found),
            "right_answers": 1.0,
            "right_marks": sum(are_right) / len(are_right) if are_right else None,
            "marked_facts": sum(are_marked) / len(are_marked) if are_marked else None,
        }


def _on(text: TokenText, attended: np.ndarray) -> np.ndarray:
    """Return the attention to a text, which comes last in what was read."""
    return attended[:, -len(text.starts) :]


def _is_right(passage: Passage, sample: Sample) -> bool:
    """Return whether a source shares half of the shorter of its quote and the passage that has the answer."""
    assert sample.text is not None
    start = sample.text.text.index(sample.passage)
    stop = start + len(sample.passage)
    least = min(passage.stop - passage.start, stop - start) / 2
    return min(passage.stop, stop) - max(passage.start, start) >= least


def _located(llama: Llama, text: Text) -> Text:
    """Return a text whose samples know the part that answers may come from: all but the head of the prompt."""
    tokens = np.array(text.tokens)
    heads = (llama.prompt(has_document).head() for has_document in (True, False))
    n_head = max((len(head) for head in heads if head == text.tokens[: len(head)]), default=0)
    answerable = TokenText.of([llama.piece(token) for token in tokens[n_head:].tolist()])
    asked = [b"".join(map(llama.piece, sample.prompt)).decode(errors="replace") for sample in text.samples]
    located = [
        replace(sample, text=answerable, question=question)
        for sample, question in zip(text.samples, asked, strict=True)
    ]
    return replace(text, samples=located)
