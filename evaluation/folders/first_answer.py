"""Facts or paragraphs hidden in long documents, asked for before a document is read, while it is, and after."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from ...convert.plan.recall_texts import Haystack
from ...documents.document import sentences
from ...errors import OctavoError
from ...runtime.llama import Llama
from ...runtime.methods.parameters import parameter
from ..prose import BORDER, prose_of
from ..tasks.needle import FACTS
from ..tasks.qa import read_articles
from ..tasks.task import ARTICLES, NOVEL
from .folder_task import Asked, Folder, FolderTask, document_name, documents_with

_NEEDLE, _QA = "needle", "qa"

#: Largest share of a document that paragraphs of articles take.
_PARAGRAPHS = 0.5


@dataclass(frozen=True)
class FirstAnswer(FolderTask):
    """Answer questions about a document that is not read yet, half read, or read.

    Each document hides ten facts in prose, or paragraphs of articles, up to half of its length. Data are prose, or
    articles as those of `qa`.

    Parameters
    ----------
    documents : int
        How many documents there are. Each is asked about alone.
    kind : str
        What to ask for: facts of one sentence, or answers to questions about articles.
    """

    documents: int = parameter(2, least=1)
    kind: str = parameter(_NEEDLE, choices=(_NEEDLE, _QA))

    name = "first-answer"
    samples = 20
    is_alone = True

    @property
    def data(self) -> Path:  # type: ignore[override]  # depends on a parameter
        """Return the default file to make documents of."""
        return NOVEL if self.kind == _NEEDLE else ARTICLES

    def folder(self, llama: Llama, data: Path, depth: int, n_samples: int, seed: int) -> Folder:
        """Hide what is asked for at random places of documents (see `FolderTask.folder`)."""
        rng = np.random.default_rng([seed, depth])
        haystack = prose_of(llama, data if self.kind == _NEEDLE else NOVEL)
        hidden: list[list[str]] = []
        asked: list[Asked] = []
        for number in range(self.documents):
            own, questions = (
                _facts(rng) if self.kind == _NEEDLE else _paragraphs(haystack, data, int(_PARAGRAPHS * depth), rng)
            )
            hidden.append(own)
            asked += [replace(question, document=document_name(number)) for question in questions]
        if n_samples > len(asked):
            raise OctavoError(
                f"There are {len(asked)} questions about {self.documents} documents of {depth:,} tokens: give fewer "
                f"--samples, or more documents ({self.name}:documents={self.documents + 1})."
            )
        documents = documents_with(haystack, hidden, depth, rng)
        chosen = [asked[i] for i in sorted(rng.permutation(len(asked))[:n_samples])]  # a document after the other
        return Folder(documents, [_placed(question, documents[question.document]) for question in chosen])


def _facts(rng: np.random.Generator) -> tuple[list[str], list[Asked]]:
    """Return all facts, each with a drawn word, and the questions about them."""
    facts = [(begin, question, str(rng.choice(words))) for begin, question, words in FACTS]
    asked = [Asked(question, (word,), "", f"{begin} {word}.") for begin, question, word in facts]
    return [question.passage for question in asked], asked


def _paragraphs(
    haystack: Haystack, data: Path, n_tokens: int, rng: np.random.Generator
) -> tuple[list[str], list[Asked]]:
    """Draw paragraphs of at most so many tokens; return them, and the questions about them."""
    paragraphs = read_articles(data)
    hidden: list[str] = []
    asked: list[Asked] = []
    for i in rng.permutation(len(paragraphs)):
        context = paragraphs[i].context
        n_tokens -= len(haystack.pieces(context + BORDER))
        if n_tokens < 0:
            break
        hidden.append(context)
        asked += [
            Asked(question.text, question.answers, "", sentence_with(question.answers, context))
            for question in paragraphs[i].questions
        ]
    return hidden, asked


def sentence_with(answers: tuple[str, ...], text: str) -> str:
    """Return the first sentence of a text that has an answer; the text if no sentence has a whole one."""
    parts = [text[start:stop].strip() for start, stop in pairwise(sentences(text))]
    return next((part for part in parts if any(answer in part for answer in answers)), text)


def _placed(asked: Asked, text: str) -> Asked:
    """Return a question with the place of its passage in the text of the document."""
    return replace(asked, place=text.index(asked.passage) / len(text))
