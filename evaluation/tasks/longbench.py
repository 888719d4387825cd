"""LongBench: the datasets of that benchmark, from files in its format (Bai et al. 2024, arXiv 2308.14508).

Data are JSON lines with the keys "context", "input", "answers", "all_classes", "dataset" and "language". Each dataset
has its own prompt, length of answers and score. The prompts follow the paper's appendix in our words. Texts are never
cut: the task leaves out those that exceed the context.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...documents.text.plain_text import read_utf8
from ...errors import OctavoError
from ...prompts.direct_prompt import DirectPrompt
from ...runtime.llama import Llama
from ..prose import Prose
from ..samples import Outcome, Sample, Text
from .longbench_scores import classification, code_similarity, count, first_line, qa_f1, retrieval, rouge_l
from .task import Task, answers_of


@dataclass(frozen=True)
class Dataset:
    """A dataset of LongBench.

    Parameters
    ----------
    before, after : str
        The prompt before and after the context, where {input} stands for the question.
    n_tokens : int
        Largest number of tokens of an answer.
    score : callable
        Takes the written text, an accepted answer and all classes.
    chat : bool
        Whether to ask in the model's chat template. Prompts with examples, and code, continue without one.
    first_line : bool
        Whether only the first line of the answer counts.
    """

    before: str
    after: str
    n_tokens: int
    score: Callable[[str, str, Sequence[str]], float] = qa_f1
    chat: bool = True
    first_line: bool = False


_CONCISELY = "as concisely as you can, with a single phrase if possible. Do not explain."
_ONLY = "Give me only the answer, and no other words."
_UNANSWERABLE = (
    "with a phrase or a sentence, as concisely as you can. If the article does not answer the question, write "
    '"unanswerable". If it is a yes/no question, answer "yes", "no" or "unanswerable". Do not explain.'
)


def _asked(given: str, label: str, how: str, n_tokens: int, asks: str = "Question") -> Dataset:
    """Return a dataset that asks about a text, with instructions before the text and again after it."""
    return Dataset(f"{given} {how}\n\n{label}:\n", f"\n\nNow: {how}\n\n{asks}: {{input}}\nAnswer:", n_tokens)


def _summarised(given: str, label: str, what: str) -> Dataset:
    how = f"Write a one-page summary of {what}."
    return Dataset(f"{given} {how}\n\n{label}:\n", f"\n\nNow: {how}\n\nSummary:", 512, rouge_l)


def _shown(how: str, after: str, n_tokens: int, score: Callable[[str, str, Sequence[str]], float]) -> Dataset:
    """Return a dataset whose context gives examples."""
    return Dataset(f"{how}\n\n", after, n_tokens, score, chat=False, first_line=True)


_PASSAGES = _asked(
    "You are given passages and a question.", "Passages", f"Answer the question from the passages. {_ONLY}", 32
)
_CODE = "Complete the code below.\n"

#: The English datasets, and those of code, by name.
DATASETS = {
    "narrativeqa": _asked(
        "You are given a story, which is a novel or a film script, and a question.",
        "Story",
        f"Answer the question on the story {_CONCISELY}",
        128,
    ),
    "qasper": _asked(
        "You are given a scientific article and a question.", "Article", f"Answer the question {_UNANSWERABLE}", 128
    ),
    "multifieldqa_en": _asked(
        "Read the text and answer briefly.", "Text", f"Answer the question on the text. {_ONLY}", 64
    ),
    "hotpotqa": _PASSAGES,
    "2wikimqa": _PASSAGES,
    "musique": _PASSAGES,
    "gov_report": _summarised("You are given a report of a government agency.", "Report", "the report"),
    "qmsum": replace(
        _asked(
            "You are given the transcript of a meeting and a query.",
            "Transcript",
            "Answer the query on the meeting in one or more sentences.",
            512,
            "Query",
        ),
        score=rouge_l,
    ),
    "multi_news": _summarised("You are given several news articles.", "News", "all the news"),
    "trec": _shown("Say of which type the last question is. Examples come first.", "\n{input}", 64, classification),
    "triviaqa": _shown(f"Answer the question from the passage. {_ONLY} Examples come first.", "\n\n{input}", 32, qa_f1),
    "samsum": _shown(
        "Summarize the last dialogue in a few short sentences. Examples come first.", "\n\n{input}", 128, rouge_l
    ),
    "passage_count": Dataset(
        "Some of these paragraphs of Wikipedia occur more than once. Read them, and find how many different paragraphs "
        "there are.\n\n",
        "\n\nHow many different paragraphs are there? Write only the number, such as 1, 2, 3.\n\nThe final answer is: ",
        32,
        count,
    ),
    "passage_retrieval_en": Dataset(
        "Here are 30 paragraphs of Wikipedia, and then an abstract. Find the paragraph that the abstract is of.\n\n",
        '\n\nThe abstract:\n\n{input}\n\nWrite the number of its paragraph, such as "Paragraph 1", "Paragraph 2".'
        "\n\nThe answer is: ",
        32,
        retrieval,
    ),
    "lcc": Dataset(_CODE, "Next line of code:\n", 64, code_similarity, chat=False),
    "repobench-p": Dataset(_CODE, "{input}Next line of code:\n", 64, code_similarity, chat=False),
}


@dataclass(frozen=True)
class Question:
    """A line of a file.

    Parameters
    ----------
    context, input : str
        Text and question; some datasets have no question.
    answers, classes : tuple of str
        Accepted answers; names of all classes, if the answer is one.
    """

    dataset: str
    context: str
    input: str
    answers: tuple[str, ...]
    classes: tuple[str, ...]


@dataclass(frozen=True)
class LongBench(Task):
    """Do what a dataset of LongBench asks, scored as that benchmark does."""

    name = "longbench"
    metric = "score"
    samples = 50
    data = None
    own_depths = True
    leaves_out = True

    def texts(self, llama: Llama, data: Path, depth: int, n_samples: int, seed: int) -> list[Text]:
        """Make a text of each of n_samples lines, those of middling length first (see `Task.texts`)."""
        questions, prompt = read_questions(data), DirectPrompt(llama, has_document=False)
        pages, texts = Prose(llama, "", data), []
        for i in np.random.default_rng(seed).permutation(len(questions))[:n_samples]:
            question = questions[i]
            dataset = DATASETS[question.dataset]
            chat = dataset.chat and prompt.has_template
            head, tail = (prompt.head(), prompt.tail()) if chat else (pages.head(), [])
            tokens = head + pages.pieces(dataset.before + question.context)
            sample = Sample(
                pages.pieces(dataset.after.format(input=question.input)) + tail,
                n_predict=dataset.n_tokens,
                answers=question.answers,
                classes=question.classes,
                kind=question.dataset,
            )
            texts.append(Text(tokens, [sample]))
        fitting = [text for text in texts if text.n_tokens <= llama.n_ctx()]
        middle = int(np.median([len(text.tokens) for text in fitting or texts]))
        texts.sort(key=lambda text: abs(len(text.tokens) - middle))  # budgets are matched on the first one
        return [replace(text, depth=middle) for text in texts]

    def score(self, sample: Sample, outcome: Outcome, dense: Outcome) -> dict[str, float]:
        """Compute the dataset's score: the best over the accepted answers (see `Task.score`)."""
        dataset = DATASETS[sample.kind]
        written = first_line(outcome.text) if dataset.first_line else outcome.text
        return {"score": max(dataset.score(written, answer, sample.classes) for answer in sample.answers)}


def read_questions(data: Path) -> list[Question]:
    """Read JSON lines in LongBench's format.

    Raise OctavoError if the file cannot be read or has another form, if a dataset is not known or is Chinese, or if
    there are several datasets.
    """
    questions = []
    for number, line in enumerate(read_utf8(data).splitlines(), 1):
        if line.strip():
            try:
                questions.append(_question(json.loads(line), f"{data}, line {number}"))
            except (ValueError, KeyError, TypeError) as problem:
                raise OctavoError(
                    f'{data}, line {number} is not in LongBench\'s format: give JSON lines with "context", "input", '
                    '"answers" and "dataset".'
                ) from problem
    datasets = sorted({question.dataset for question in questions})
    if len(datasets) > 1:
        raise OctavoError(
            f"{data} holds the datasets {', '.join(datasets)}: give a file of one dataset, because each has a score of "
            "its own."
        )
    return questions


def _question(line: Any, place: str) -> Question:
    """Return the question of a line. Raise KeyError or TypeError if the line has another form."""
    dataset = str(line["dataset"]).removesuffix("_e")
    if line.get("language") == "zh":
        raise OctavoError(
            f"{place} is Chinese, where scores count words that octavo cannot split: give an English dataset."
        )
    if dataset not in DATASETS:
        raise OctavoError(f"{place} has the dataset '{dataset}': choose from {', '.join(DATASETS)}.")
    answers, classes = answers_of(line["answers"]), line.get("all_classes") or []
    if not answers:
        raise TypeError(answers)
    return Question(dataset, str(line["context"]), str(line.get("input", "")), answers, tuple(map(str, classes)))
