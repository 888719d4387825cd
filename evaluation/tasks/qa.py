"""Question answering: paragraphs of Wikipedia hidden among unrelated ones.

The prompt is that of SparQ on SQuAD (Ribar et al. 2024, section 5.1): one answered example, then the question. With
`chat` it is the model's chat template, without an example. Data are JSON in the form of XQuAD's articles:
[{"title", "paragraphs": [{"context", "qas": [{"question", "answers": [text]}]}]}].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...convert.plan.recall_texts import Haystack
from ...errors import OctavoError
from ...prompts.direct_prompt import DirectPrompt
from ...runtime.llama import Llama
from ...runtime.methods.parameters import parameter
from ..prose import BORDER
from ..samples import Outcome, Sample, Text
from .task import ARTICLES, Task, answers_of, read_json
from .text_scores import squad_scores

#: Smallest length of a text, as a share of the requested depth, which whole paragraphs do not fill.
_LEAST_FILLED = 0.8


@dataclass(frozen=True)
class Question:
    """A question about a paragraph.

    Parameters
    ----------
    title : str
        Title of the article.
    """

    title: str
    text: str
    answers: tuple[str, ...]


@dataclass(frozen=True)
class Paragraph:
    """A paragraph and its questions.

    Parameters
    ----------
    title : str
        Title of the article.
    context : str
        Text of the paragraph.
    questions : tuple of Question
        At least one.
    """

    title: str
    context: str
    questions: tuple[Question, ...]

    def draw(self, rng: np.random.Generator) -> Question:
        """Draw one of the questions."""
        return self.questions[int(rng.integers(len(self.questions)))]


@dataclass(frozen=True)
class QA(Task):
    """Answer questions about paragraphs. A text has as many paragraphs as fit.

    Parameters
    ----------
    per_text : int
        Largest number of questions about a text, each about another paragraph.
    n_tokens : int
        Largest number of tokens of an answer.
    chat : bool
        Whether to ask in the model's chat template, without an example.
    """

    per_text: int = parameter(10, least=1)
    n_tokens: int = parameter(24, least=1)
    chat: bool = parameter(False)

    name = "qa"
    metric = "F1"
    samples = 80
    data = ARTICLES
    extra_figures = ("exact_match",)

    def texts(self, llama: Llama, data: Path, depth: int, n_samples: int, seed: int) -> list[Text]:
        """Put paragraphs in random order into texts of at most `depth` tokens (see `Task.texts`)."""
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
        haystack, prompt = Haystack(llama, ""), DirectPrompt(llama)
        tokens = prompt.head() if self.chat else haystack.head()
        chosen: list[tuple[int, Paragraph]] = []  # start token, paragraph
        for i in rng.permutation(len(paragraphs)):
            pieces = haystack.pieces(f"Title: {paragraphs[i].title}\nBackground: {paragraphs[i].context}{BORDER}")
            if len(tokens) + len(pieces) <= depth:
                chosen.append((len(tokens), paragraphs[i]))
                tokens = tokens + pieces
        if len(chosen) < 2 or len(tokens) < _LEAST_FILLED * depth:
            raise OctavoError(
                f"{data} makes a text of {len(tokens):,} tokens and {len(chosen)} paragraphs, and {depth:,} tokens "
                "were asked for: give more with --data, or other --depths."
            )
        example = chosen.pop(int(rng.integers(len(chosen))))[1].draw(rng)
        questioned = np.sort(rng.permutation(len(chosen))[:n_samples])
        samples = []
        for start, paragraph in (chosen[i] for i in questioned):
            question = paragraph.draw(rng)
            pieces = prompt.first_question(question.text) if self.chat else haystack.pieces(one_shot(example, question))
            samples.append(
                Sample(
                    pieces,
                    n_predict=self.n_tokens,
                    stop="\n",
                    answers=question.answers,
                    position=round(start / len(tokens), 4),
                    passage=paragraph.context,
                )
            )
        return Text(tokens, samples)

    def score(self, sample: Sample, outcome: Outcome, dense: Outcome) -> dict[str, float]:
        """Compute F1 and exact match (see `Task.score`)."""
        return squad_scores(outcome.text, sample.answers)


def read_articles(data: Path) -> list[Paragraph]:
    """Read the paragraphs of XQuAD's articles, those whose questions all have answers.

    Raise OctavoError if the file cannot be read or has another form.
    """
    try:
        return [
            Paragraph(
                title := article["title"].replace("_", " "),
                str(paragraph["context"]),
                tuple(Question(title, str(qa["question"]), answers_of(qa["answers"])) for qa in paragraph["qas"]),
            )
            for article in read_json(data)
            for paragraph in article["paragraphs"]
            if all(qa["answers"] for qa in paragraph["qas"]) and paragraph["qas"]
        ]
    except (KeyError, TypeError, AttributeError) as problem:
        raise OctavoError(
            f'{data} holds no articles: give a JSON list of {{"title", "paragraphs": [{{"context", "qas": '
            '[{"question", "answers": [text]}]}]}.'
        ) from problem


def one_shot(example: Question, question: Question) -> str:
    """Write SparQ's prompt: an answered question, then one to answer. Titles tell which paragraph is meant."""
    return (
        f"Title: {example.title}\nQuestion: {example.text}\nAnswer: {example.answers[0]}{BORDER}"
        f"Title: {question.title}\nQuestion: {question.text}\nAnswer:"
    )
