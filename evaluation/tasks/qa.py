"""Question answering: paragraphs of Wikipedia hidden among unrelated ones.

As SparQ (Ribar et al. 2024, section 4.1) on SQuAD: one answered example, then the question. With `chat` in the model's
chat template, and without an example. Data are JSON in the form of XQuAD's articles:
[{"title", "paragraphs": [{"context", "qas": [{"question", "answers": [text]}]}]}].
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...convert.plan.recall_texts import Haystack
from ...errors import OctavoError
from ...runtime.llama import Llama
from ...runtime.prompt import Prompt
from ..prose import BORDER
from ..samples import Outcome, Sample, Text
from . import Task, answers_of, articles, read_json

#: Share of the tokens that were asked for which a text must have: whole paragraphs do not fill it.
_FULL = 0.8


@dataclass(frozen=True)
class Question:
    """A question about a paragraph with this title, and its answers."""

    title: str
    text: str
    answers: tuple[str, ...]


@dataclass(frozen=True)
class Paragraph:
    """A paragraph, and what can be asked about it."""

    title: str
    context: str
    questions: tuple[Question, ...]

    def draw(self, rng: np.random.Generator) -> Question:
        """One of the questions."""
        return self.questions[int(rng.integers(len(self.questions)))]


@dataclass(frozen=True)
class QA(Task):
    """Questions about paragraphs, each text of as many as fit.

    Parameters
    ----------
    per_text : most questions of a text, of as many paragraphs    n_tokens : most tokens of an answer
    chat : ask in the model's chat template, without an example
    """

    per_text: int = 10
    n_tokens: int = 24
    chat: bool = False

    name = "qa"
    metric = "F1"
    samples = 20
    data = articles
    also = ("exact_match",)

    def texts(self, llama: Llama, data: Path, depth: int, n_samples: int, seed: int) -> list[Text]:
        """Texts of at most `depth` tokens, of paragraphs in random order."""
        paragraphs = read_articles(data)
        if not paragraphs:
            raise OctavoError(f"{data} has no paragraph whose questions all have answers.")
        texts: list[Text] = []
        while n_samples > 0:
            rng = np.random.default_rng([seed, depth, len(texts)])
            texts.append(self._text(llama, data, paragraphs, depth, min(self.per_text, n_samples), rng))
            n_samples -= len(texts[-1].samples)
        return texts

    def _text(
        self,
        llama: Llama,
        data: Path,
        paragraphs: Sequence[Paragraph],
        depth: int,
        n_samples: int,
        rng: np.random.Generator,
    ) -> Text:
        haystack, prompt = Haystack(llama, ""), Prompt(llama)
        tokens = prompt.head() if self.chat else haystack.head()
        chosen: list[tuple[int, Paragraph]] = []  # and where they start
        for i in rng.permutation(len(paragraphs)):
            own = haystack.pieces(f"Title: {paragraphs[i].title}\nBackground: {paragraphs[i].context}{BORDER}")
            if len(tokens) + len(own) <= depth:
                chosen.append((len(tokens), paragraphs[i]))
                tokens = tokens + own
        if len(chosen) < 2 or len(tokens) < _FULL * depth:
            raise OctavoError(
                f"{data} makes a text of {len(tokens):,} tokens and {len(chosen)} paragraphs, and {depth:,} tokens "
                "were asked for: give more with --data, or other --depths."
            )
        example = chosen.pop(int(rng.integers(len(chosen))))[1].draw(rng)
        asked = np.sort(rng.permutation(len(chosen))[:n_samples])
        samples = []
        for start, paragraph in (chosen[i] for i in asked):
            question = paragraph.draw(rng)
            own = prompt.first_question(question.text) if self.chat else haystack.pieces(one_shot(example, question))
            samples.append(
                Sample(own, [], self.n_tokens, "\n", question.answers, position=round(start / len(tokens), 4))
            )
        return Text(tokens, samples)

    def score(self, sample: Sample, outcome: Outcome, dense: Outcome) -> dict[str, float]:
        """The best F1 over the words of the answers, and whether one of them was given exactly."""
        return answer_scores(outcome.text, sample.answers)


def read_articles(data: Path) -> list[Paragraph]:
    """The paragraphs of articles that have questions. Raises OctavoError for a file of another form."""
    try:
        return [
            Paragraph(
                title := article["title"].replace("_", " "),
                str(paragraph["context"]),
                tuple(Question(title, str(each["question"]), answers_of(each["answers"])) for each in paragraph["qas"]),
            )
            for article in read_json(data)
            for paragraph in article["paragraphs"]
            if all(each["answers"] for each in paragraph["qas"]) and paragraph["qas"]
        ]
    except (KeyError, TypeError, AttributeError) as problem:
        raise OctavoError(
            f'{data} holds no articles: give a JSON list of {{"title", "paragraphs": [{{"context", "qas": '
            '[{"question", "answers": [text]}]}]}.'
        ) from problem


def one_shot(example: Question, question: Question) -> str:
    """An answered question and one that is not, as SparQ asks; titles tell which paragraph is meant."""
    return (
        f"Title: {example.title}\nQuestion: {example.text}\nAnswer: {example.answers[0]}{BORDER}"
        f"Title: {question.title}\nQuestion: {question.text}\nAnswer:"
    )


def answer_scores(text: str, answers: Sequence[str]) -> dict[str, float]:
    """SQuAD's measures: the best F1 over the words of the answers, and whether one of them was given exactly."""
    given = words(text)
    return {
        "score": max(_f1(given, words(answer)) for answer in answers),
        "exact_match": float(any(given == words(answer) for answer in answers)),
    }


def words(text: str) -> list[str]:
    """Words in lower case, without punctuation and articles, as SQuAD's evaluation has them."""
    plain = "".join(character for character in text.lower() if character not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", plain).split()


def _f1(given: list[str], expected: list[str]) -> float:
    common = sum((Counter(given) & Counter(expected)).values())
    if not given or not expected:
        return float(given == expected)
    return 2 * common / (len(given) + len(expected))
