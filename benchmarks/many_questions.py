"""Measure whether answers change from question to question about one document, with the conversation kept or not.

    python benchmarks/many_questions.py FOLDER [-m MODEL] [--attentions auto squeezed] [--questions 20]
                                        [--orders 0 1 2] [-t THREADS]

Each order draws other questions of `fixed-context` about the document that octavo ships. FOLDER keeps the document's
index, and the figures of each attention and order: they are not measured again, so that several processes may measure
orders of their own, and the same command with all of them prints the table. Questions are read in batches, as `octavo
ask` does. "alone": each follows the document. "kept": each follows the questions before it, and the answers of dense
attention, so that all attentions see the same tokens. "restarted": before the last question the model is loaded anew,
opens the index, and reads the conversation again.

A row has the questions from one number to another: F1 of dense attention; what the attention adds to it; the share of
answers that are the same; the KL divergence from dense attention's next tokens after the same ones; each with its
standard error; and the true and the estimated coverage (see coverage.py) of a question's answer.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from octavo.cli.render import markdown_table
from octavo.evaluation.coverage import covered_steps
from octavo.evaluation.measures import kl_divergence, log_softmax
from octavo.evaluation.reader import Reader
from octavo.evaluation.tasks.fixed_context import DocumentQuestion, QuestionedDocument, read_documents
from octavo.evaluation.tasks.task import QUESTIONS
from octavo.evaluation.tasks.text_scores import squad_scores
from octavo.progress import Silent
from octavo.prompts.direct_prompt import DirectPrompt
from octavo.runtime.llama import Llama
from octavo.runtime.methods.attention import DENSE_ATTENTION, Attention
from octavo.runtime.models.find_model import default_model
from octavo.runtime.store.model_library import Library, hash_of_file
from octavo.system.files import read_json, write_json
from octavo.version import __version__

#: Most tokens of an answer, and of those whose coverage is measured.
_ANSWER, _COVERED = 48, 4

#: Last numbers of the questions that share a row.
_UP_TO = (1, 5, 20)

#: What is measured of an answer, and how many digits of it are shown; and those with a standard error.
_FIGURES = {"dense F1": 3, "F1 more": 3, "same": 3, "KL": 4, "true coverage": 3, "estimated": 3}
_WITH_ERRORS = ("F1 more", "same", "KL")

#: The figures of an answer, the way of asking ("way") and the number of the question ("number").
Answer = dict[str, Any]


@dataclass
class Answered:
    """A question's tokens and the answer of dense attention.

    Parameters
    ----------
    written : list of int
        Tokens of the answer.
    log_probs : float array, shape (n_steps, n_vocab)
        From which they were chosen; the last row ended the answer.
    """

    prompt: list[int]
    written: list[int]
    log_probs: np.ndarray


class Asker:
    """A model over an indexed document.

    Parameters
    ----------
    folder : Path
        Where the index is kept.
    """

    def __init__(self, model: Path, folder: Path, document: QuestionedDocument, n_threads: int, n_ctx: int) -> None:
        self.llama = Llama(model, n_ctx=n_ctx, n_threads=n_threads, n_threads_batch=n_threads)
        self._document = document
        self._library = Library.of(model, folder)
        self._reader, self.prompt = Reader(self.llama, Silent(), n_threads), DirectPrompt(self.llama)

    def attend(self, attention: Attention) -> int:
        """Attach the document; return its number of tokens."""
        clustering = dict(attention.clustering_key(8000, self.llama.on_metal) or ())
        index = self._reader.index(self._library, self._document.name, self._document.text, clustering)
        self._reader.attend(index, attention)
        return self.llama.n_tokens

    def text(self, tokens: Sequence[int]) -> str:
        """Return the text of an answer."""
        return b"".join(map(self.llama.piece, tokens)).decode("utf-8", "replace")

    def write(self, prompt: list[int]) -> Answered:
        """Read a question in a batch, and write an answer, greedily."""
        written, rows = list[int](), list[np.ndarray]()
        self.llama.eval(prompt)
        while True:
            rows.append(log_softmax(self.llama.logits()).astype(np.float32))
            token = int(rows[-1].argmax())
            if self.llama.ends(token) or len(written) == _ANSWER:
                return Answered(prompt, written, np.array(rows))
            written.append(token)
            self.llama.eval([token])

    def read(self, answered: Answered) -> None:
        """Read a question in a batch, and its answer token by token."""
        self.llama.eval(answered.prompt)
        for token in answered.written:
            self.llama.eval([token])

    def follow(self, answered: Answered) -> tuple[np.ndarray, np.ndarray]:
        """Read a question and its answer; return log-probabilities, and the true and estimated coverage."""
        self.llama.eval(answered.prompt)
        rows, covered = [self.llama.logits()], []
        with covered_steps(self.llama) as steps:
            for token in answered.written[:_COVERED]:
                self.llama.eval([token])
                rows.append(self.llama.logits())
        covered = [[step.true.mean(), step.estimated.mean()] for step in steps]
        for token in answered.written[_COVERED:]:
            self.llama.eval([token])
            rows.append(self.llama.logits())
        return log_softmax(np.array(rows)).astype(np.float32), np.mean(covered or [[np.nan] * 2], axis=0)


def ask_all(asker: Asker, questions: Sequence[DocumentQuestion], keeps: bool) -> list[Answered]:
    """Return the answers of dense attention."""
    n_document, found = asker.attend(DENSE_ATTENTION), []
    for number, question in enumerate(questions):
        if not keeps:
            asker.llama.rewind(n_document)
        turn = asker.prompt.next_question if keeps and number else asker.prompt.first_question
        found.append(asker.write(turn(question.question)))
    return found


def compare(asker: Asker, question: DocumentQuestion, answered: Answered) -> Answer:
    """Return the figures of an attention's answer. Then the model has read the question and the dense answer."""
    n_before = asker.llama.n_tokens
    log_probs, covered = asker.follow(answered)
    same = bool((log_probs.argmax(axis=1) == answered.log_probs.argmax(axis=1)).all())
    written = answered.written
    if not same:
        asker.llama.rewind(n_before)
        written = asker.write(answered.prompt).written
        asker.llama.rewind(n_before)
        asker.read(answered)
    scores = [squad_scores(asker.text(tokens), question.answers)["score"] for tokens in (answered.written, written)]
    return {
        "dense F1": scores[0],
        "F1 more": scores[1] - scores[0],
        "same": float(same),
        "KL": float(kl_divergence(answered.log_probs, log_probs).mean()),
        "true coverage": float(covered[0]),
        "estimated": float(covered[1]),
    }


def answers_of(new_asker: Callable[[], Asker], name: str, questions: Sequence[DocumentQuestion]) -> list[Answer]:
    """Return the figures of an attention's answers."""
    attention, found = Attention.parse(name), list[Answer]()
    asker = new_asker()
    for keeps, way in ((False, "alone"), (True, "kept")):
        dense = ask_all(asker, questions, keeps)
        n_document = asker.attend(attention)
        for number, (question, answered) in enumerate(zip(questions, dense, strict=True), 1):
            if not keeps:
                asker.llama.rewind(n_document)
            found.append({"way": way, "number": number, **compare(asker, question, answered)})
    asker = new_asker()
    asker.attend(attention)
    for answered in dense[:-1]:
        asker.read(answered)
    return [*found, {"way": "restarted", "number": len(questions), **compare(asker, questions[-1], dense[-1])}]


def rows_of(name: str, answers: Sequence[Answer]) -> list[list[str]]:
    """Return rows of the table: means over the answers of a row, with standard errors."""
    rows = []
    for way in dict.fromkeys(each["way"] for each in answers):
        for first, last in pairwise((0, *_UP_TO)):
            own = [each for each in answers if each["way"] == way and first < each["number"] <= last]
            if own:
                means = [_mean(own, key) for key in _FIGURES]
                rows.append([name, way, f"{first + 1} to {last}", str(len(own)), *means])
    return rows


def _mean(answers: Sequence[Answer], key: str) -> str:
    values = np.array([each[key] for each in answers], float)
    mean = f"{np.nanmean(values):.{_FIGURES[key]}f}"
    if key not in _WITH_ERRORS or len(values) < 2:
        return mean
    return f"{mean} ± {values.std(ddof=1) / np.sqrt(len(values)):.{_FIGURES[key]}f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("-m", "--model", type=Path)
    parser.add_argument("--attentions", nargs="+", default=["auto", "squeezed"])
    parser.add_argument("--questions", type=int, default=20)
    parser.add_argument("--orders", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("-t", "--threads", type=int, default=2)
    arguments = parser.parse_args()
    document = read_documents(QUESTIONS)[0]
    model, n_ctx = arguments.model or default_model(), len(document.text) // 2
    new_asker = partial(Asker, model, arguments.folder, document, arguments.threads, n_ctx)
    rows, measured = [], f"{model.stem}-{hash_of_file(model)[:12]}-{__version__}"
    for name in arguments.attentions:
        answers = list[Answer]()
        for order in arguments.orders:
            kept = arguments.folder / f"{measured}-{name}-{arguments.questions}-{order}.json"
            if not kept.exists():
                chosen = np.random.default_rng(order).permutation(len(document.questions))[: arguments.questions]
                write_json(kept, {"answers": answers_of(new_asker, name, [document.questions[i] for i in chosen])})
            answers += read_json(kept)["answers"]
        rows += rows_of(name, answers)
    print(markdown_table(["attention", "conversation", "questions", "answers", *_FIGURES], rows))


if __name__ == "__main__":
    main()
