"""Fixed context: many questions on one indexed document, asked as `octavo ask` does.

The task is that of PreFixQA (Squeezed Attention, Hooper et al. 2024, section 6.1): each document is indexed once. Data
are JSON, {"document", "questions": [{"question", "answers": [text]}]} or a list of these. In place of "document", the
text, there may be "file", the name of a text in the folder of the JSON file.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from ...convert.pipeline import document_tokens
from ...documents.text.plain_text import read_utf8
from ...errors import OctavoError
from ...prompts.direct_prompt import DirectPrompt
from ...runtime.llama import Llama
from ...runtime.methods.parameters import parameter
from ..samples import Outcome, Sample, Text
from .task import QUESTIONS, Task, answers_of, read_json
from .text_scores import contains_words, squad_scores


@dataclass(frozen=True)
class DocumentQuestion:
    """A question about a document, and its accepted answers."""

    question: str
    answers: tuple[str, ...]


@dataclass(frozen=True)
class QuestionedDocument:
    """A document and its questions.

    Parameters
    ----------
    name : str
        Name of the document's file, or a name made from that of the data.
    questions : list of DocumentQuestion
        At least one.
    """

    name: str
    text: str
    questions: list[DocumentQuestion]


@dataclass(frozen=True)
class FixedContext(Task):
    """Answer questions about indexed documents.

    Parameters
    ----------
    n_tokens : int
        Largest number of tokens of an answer.
    """

    n_tokens: int = parameter(48, least=1)

    name = "fixed-context"
    metric = "F1"
    samples = 60
    data = QUESTIONS
    own_depths = True
    is_timed = True
    in_batches = True
    extra_figures = ("exact_match", "contains_answer", "first_token_s", "seconds")

    def content(self, data: Path) -> str:
        """Return the documents and their questions; the texts may be in other files (see `Task.content`)."""
        return json.dumps([list(asdict(document).values()) for document in read_documents(data)])

    def texts(self, llama: Llama, data: Path, depth: int, n_samples: int, seed: int) -> list[Text]:
        """Return the documents, each with n_samples of its questions or all of them (see `Task.texts`)."""
        prompt, texts = DirectPrompt(llama), []
        for number, document in enumerate(read_documents(data)):
            questions = document.questions
            chosen = np.sort(np.random.default_rng([seed, number]).permutation(len(questions))[:n_samples])
            samples = [
                Sample(
                    prompt.first_question(questions[i].question),
                    n_predict=self.n_tokens,
                    stop=next(iter(prompt.stops), ""),
                    answers=questions[i].answers,
                )
                for i in chosen
            ]
            tokens = document_tokens(llama, document.name, document.text)
            texts.append(Text(tokens, samples, name=document.name, document=document.text))
        return texts

    def score(self, sample: Sample, outcome: Outcome, dense: Outcome) -> dict[str, float]:
        """Compute F1, exact match, and whether the answer has the words of an accepted one (see `Task.score`)."""
        found = contains_words(outcome.text, sample.answers)
        return {**squad_scores(outcome.text, sample.answers), "contains_answer": found}


def read_documents(data: Path) -> list[QuestionedDocument]:
    """Read documents and their questions from JSON (see the head of this module).

    Raise OctavoError if a file cannot be read, or the data have another form.
    """
    content = read_json(data)
    documents = []
    try:
        for number, each in enumerate(content if isinstance(content, list) else [content]):
            path = data.parent / each["file"] if "file" in each else None
            text = read_utf8(path) if path else str(each["document"])
            name = path.name if path else f"{data.stem}-{number + 1}"
            questions = [DocumentQuestion(str(q["question"]), answers_of(q["answers"])) for q in each["questions"]]
            if not questions or not all(question.answers for question in questions):
                raise OctavoError(f"{data}: {name} has no questions, or one without an answer.")
            documents.append(QuestionedDocument(name, text, questions))
        if not documents:
            raise TypeError(content)
    except (KeyError, TypeError) as problem:
        raise OctavoError(
            f'{data} holds no documents: give {{"document", "questions": [{{"question", "answers": [text]}}]}}, or a '
            "list of these."
        ) from problem
    return documents
