"""Fixed context: many questions on one indexed document, asked as `octavo ask` does.

As PreFixQA (Squeezed Attention, Hooper et al. 2024, section 4): the index is built once for each document. Data are
JSON, {"document", "questions": [{"question", "answers": [text]}]} or a list of these; in place of "document", the text,
there may be "file", the name of a text beside the JSON file.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...convert.pipeline import document_tokens
from ...convert.texts import read_document
from ...errors import OctavoError
from ...runtime.llama import Llama
from ...runtime.prompt import Prompt
from ..samples import Outcome, Sample, Text
from . import Task, answers_of, questions, read_json
from .qa import answer_scores, words


@dataclass(frozen=True)
class FixedContext(Task):
    """Questions of each document.

    Parameters
    ----------
    n_tokens : most tokens of an answer
    """

    n_tokens: int = 48

    name = "fixed-context"
    metric = "F1"
    samples = 20
    data = questions
    own_depths = True
    in_batches = True
    also = ("exact_match", "contains_answer", "first_token_s", "seconds")

    def content(self, data: Path) -> str:
        """The documents and their questions: the texts may lie in other files."""
        return json.dumps(read_documents(data))

    def texts(self, llama: Llama, data: Path, depth: int, n_samples: int, seed: int) -> list[Text]:
        """The documents, each with n_samples of its questions, or all where it has no more; `depth` has no meaning."""
        prompt, texts = Prompt(llama), []
        for number, (name, document, asked) in enumerate(read_documents(data)):
            chosen = np.sort(np.random.default_rng([seed, number]).permutation(len(asked))[:n_samples])
            samples = [
                Sample(
                    prompt.first_question(asked[i]["question"]),
                    n_predict=self.n_tokens,
                    stop=prompt.stop or "",
                    answers=asked[i]["answers"],
                )
                for i in chosen
            ]
            texts.append(Text(document_tokens(llama, name, document), samples, name=name, document=document))
        return texts

    def score(self, sample: Sample, outcome: Outcome, dense: Outcome) -> dict[str, float]:
        """SQuAD's measures, and whether the words of an answer come in what was written."""
        given = f" {' '.join(words(outcome.text))} "
        found = any(f" {' '.join(words(answer))} " in given for answer in sample.answers)
        return {**answer_scores(outcome.text, sample.answers), "contains_answer": float(found)}


def read_documents(data: Path) -> list[tuple[str, str, list[dict[str, Any]]]]:
    """Name, text and questions of each document. Raises OctavoError for a file of another form."""
    content = read_json(data)
    documents = []
    try:
        for number, each in enumerate(content if isinstance(content, list) else [content]):
            path = data.parent / each["file"] if "file" in each else None
            text = read_document(path) if path else str(each["document"])
            name = path.name if path else f"{data.stem}-{number + 1}"
            asked = [{"question": str(q["question"]), "answers": answers_of(q["answers"])} for q in each["questions"]]
            if not asked or not all(q["answers"] for q in asked):
                raise OctavoError(f"{data}: {name} has no questions, or one without an answer.")
            documents.append((name, text, asked))
        if not documents:
            raise TypeError(content)
    except (KeyError, TypeError) as problem:
        raise OctavoError(
            f'{data} holds no documents: give {{"document", "questions": [{{"question", "answers": [text]}}]}}, or a '
            "list of these."
        ) from problem
    return documents
