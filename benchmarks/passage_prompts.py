"""Compare how a question is asked over passages: how many tokens of them, in which order, in which words.

    python benchmarks/passage_prompts.py [-m MODEL] [-t THREADS] [--tokens 250,500,1000,2000] [--orders last,first]
                                         [--forms plain,question] [--documents 10] [--questions 10] [--first-seed 0]
                                         [--data FILE] [--novel FILE]

The PDFs and questions are those of `ten_answers.py`, but each question once. Passages are the pieces that words find,
each after a line with its page. Answers are greedy, of 48 tokens, through the model's chat template. All rows have the
same questions; "difference" is to the first row, with the standard error of the paired difference.

With --data only paragraphs count that examples/xquad.json lacks, so that a second set shares no question with the
first one.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from ten_answers import _ANSWER, _plain, write_pdf

import octavo
from octavo.cli.render import markdown_table
from octavo.documents.document import Document
from octavo.documents.extract import extract_document
from octavo.evaluation.folders import first_answer
from octavo.evaluation.folders.folder_task import Asked
from octavo.evaluation.tasks.qa import read_articles
from octavo.evaluation.tasks.task import ARTICLES, NOVEL
from octavo.evaluation.tasks.text_scores import contains_words
from octavo.library.text_store import Piece, TextStore
from octavo.prompts.chat_template import INSTRUCTION
from octavo.runtime.models.find_model import default_model

#: Texts before the passages, before the question, and after it. The first one is octavo's.
FORMS = {
    "plain": (INSTRUCTION, "\n\n", ""),
    "question": (INSTRUCTION, "\n\nQuestion: ", ""),
    "question-answer": (INSTRUCTION, "\n\nQuestion: ", "\nAnswer:"),
    "context": ("Context:\n", "\n\nQuestion: ", "\n\nAnswer from the context."),
}

#: How passages are sorted: by how likely they are.
ORDERS = {"last": 1, "first": -1}


class Found(NamedTuple):
    """A question, the text of its document, and the pieces that words find for it, the likeliest first."""

    asked: Asked
    document: Document
    pieces: list[Piece]


def found_pieces(
    words: octavo.Llama, folder: Path, data: Path, seeds: Sequence[int], n_questions: int, n_tokens: int = 6000
) -> list[Found]:
    """Write a PDF for each seed into a folder, and search it for the answers to its questions."""
    task, found, known = first_answer.FirstAnswer(documents=1, kind="qa"), list[Found](), set[str]()
    for seed in seeds:
        made = task.folder(words, data, n_tokens, n_questions, seed)
        path = folder / f"document-{seed + 1:03d}.pdf"
        write_pdf(path, *made.documents.values())
        with TextStore(path.with_suffix(".sqlite")) as store:  # each document is asked about alone
            text = store.add(extract_document(path))
            for asked in made.asked:
                if asked.question not in known:
                    pieces = store.search(asked.question, [text.number])
                    found.append(Found(asked, store.document(text.number), pieces))
                known.add(asked.question)
    return found


def passages(words: octavo.Llama, found: Found, n_tokens: int, order: str) -> str:
    """Return the likeliest pieces, at least one, those that follow one another as one passage, in an order."""
    text, chosen = found.document.text, list[Piece]()
    for piece in found.pieces:
        n_tokens -= len(words.tokenize(text[piece.start : piece.stop].encode(), add_bos=False))
        if n_tokens < 0 and chosen:
            break
        chosen.append(piece)
    joined: list[Piece] = []
    for piece in sorted(chosen, key=lambda piece: piece.start):
        if joined and joined[-1].stop == piece.start:
            last = joined.pop()
            piece = last._replace(stop=piece.stop, score=max(last.score, piece.score))
        joined.append(piece)
    joined.sort(key=lambda piece: ORDERS[order] * piece.score)
    return "".join(_titled(found.document, piece) for piece in joined)


def _titled(document: Document, piece: Piece) -> str:
    place = document.place(piece.start)
    title = f"[page {place.page}]\n" if place and place.page else ""
    return f"{title}{document.text[piece.start : piece.stop].strip()}\n\n"


def unseen(data: Path, folder: Path) -> Path:
    """Write the paragraphs of articles that examples/xquad.json lacks into a folder, and return the file."""
    shown = {paragraph.context for paragraph in read_articles(ARTICLES)}
    articles: list[dict[str, Any]] = json.loads(data.read_text())
    for article in articles:
        article["paragraphs"] = [each for each in article["paragraphs"] if each["context"] not in shown]
    path = folder / "unseen.json"
    path.write_text(json.dumps([article for article in articles if article["paragraphs"]]))
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", type=Path, default=None)
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--tokens", default="250,500,1000,2000", help="Most tokens of passages.")
    parser.add_argument("--orders", default="last", help=f"Where the likeliest passage is: {', '.join(ORDERS)}.")
    parser.add_argument("--forms", default="plain", help=f"Words around passages and question: {', '.join(FORMS)}.")
    parser.add_argument("--documents", type=int, default=10)
    parser.add_argument("--questions", type=int, default=10, help="Questions about each document.")
    parser.add_argument("--first-seed", type=int, default=0, help="Of the first document.")
    parser.add_argument("--data", type=Path, help="Articles in XQuAD's form.")
    parser.add_argument("--novel", type=Path, default=NOVEL, help="The text that hides paragraphs.")
    arguments = parser.parse_args()
    threads = {"n_threads": arguments.threads, "n_threads_batch": arguments.threads}
    llama = octavo.Llama(arguments.model or default_model(), n_ctx=8192, attention="dense", **threads)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        data = unseen(arguments.data, folder) if arguments.data else ARTICLES
        seeds = range(arguments.first_seed, arguments.first_seed + arguments.documents)
        with patch.object(first_answer, "NOVEL", arguments.novel):
            questions = found_pieces(llama, folder, data, seeds, arguments.questions)
        table, baseline = list[list[str]](), np.empty(0)
        for n_tokens in map(int, arguments.tokens.split(",")):
            for order in arguments.orders.split(","):
                for form in arguments.forms.split(","):
                    before, border, after = FORMS[form]
                    there, right = list[bool](), list[float]()
                    for each in questions:
                        text = passages(llama, each, n_tokens, order)
                        content = f"{before}{text}{border}{each.asked.question}{after}"
                        answer = llama.create_chat_completion(
                            [{"role": "user", "content": content}], temperature=0, max_tokens=_ANSWER
                        )
                        right.append(contains_words(answer["choices"][0]["message"]["content"], each.asked.answers))
                        there.append(_plain(each.asked.passage) in _plain(text))
                    scores = np.array(right)
                    baseline = baseline if len(baseline) else scores
                    differences = scores - baseline
                    error = differences.std(ddof=1) / np.sqrt(len(differences))
                    figures = [float(np.mean(there)), scores.mean(), differences.mean(), error]
                    table.append([f"{n_tokens:,}", order, form, *(f"{figure:.3f}" for figure in figures)])
                    print(table[-1], file=sys.stderr)
    print(f"{len(questions)} questions\n")
    heads = ["tokens", "likeliest passage", "form", "passage is there", "right", "difference", "standard error"]
    print(markdown_table(heads, table))


if __name__ == "__main__":
    main()
