"""Measure how often the document is found that a question is about, among many, and how long that takes.

    python benchmarks/folder.py FOLDER [-m MODEL.gguf] [--prose TEXT ...] [--articles JSON] [--characters 18000]
                                       [--questions 300] [--seed 0]

FOLDER receives the documents and their indexes; what is there already is not made again. Each document is prose with
the paragraphs of an article in it (as of XQuAD), or one fact (those of `octavo eval needle`). A row says how often the
right document is the first, among the first three, and among the first eight: by the words alone (BM25 over pieces of
512 tokens), by the question's attention to all keys of all documents alone, and as octavo ranks them, with its seconds.
"""

from __future__ import annotations

import argparse
import re
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import octavo
from octavo.ask.document_set import Shelf
from octavo.ask.question_queries import attention_shares, question_queries
from octavo.documents.plain_text import SHIPPED_NOVEL
from octavo.evaluation.tasks.needle import FACTS
from octavo.evaluation.tasks.qa import read_articles
from octavo.evaluation.tasks.task_data import ARTICLES
from octavo.runtime.process.threads import one_thread
from octavo.runtime.prompt import Prompt


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("-m", "--model", type=Path)
    parser.add_argument("--prose", type=Path, nargs="+", default=[SHIPPED_NOVEL])
    parser.add_argument("--articles", type=Path, default=ARTICLES)
    parser.add_argument("--characters", type=int, default=18_000)
    parser.add_argument("--questions", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rng = np.random.default_rng(arguments.seed)
    texts = arguments.folder / "texts"
    texts.mkdir(parents=True, exist_ok=True)
    asked = _write(texts, arguments, rng)
    settings = {"model": arguments.model, "index_dir": arguments.folder, "notice": print}
    with octavo.open_collection([texts], **settings) as collection:
        shelf = collection._shelf
        names = [document.name for document in shelf.documents]
        n_tokens = sum(len(shelf.open(document)[0].tokens) for document in shelf.documents)
        print(f"{len(names)} documents, {n_tokens:,} tokens")
        chosen = [asked["facts"], [asked["articles"][i] for i in rng.permutation(len(asked["articles"]))]]
        for label, questions in zip(("facts", "paragraphs"), chosen, strict=True):
            _measure(shelf, names, label, questions[: arguments.questions])


def _write(folder: Path, arguments: argparse.Namespace, rng: np.random.Generator) -> dict[str, list[tuple[str, str]]]:
    """Write the documents that are not there; returns the questions, each with the name of its document."""
    prose = [
        part for path in arguments.prose for part in re.split(r"\n\s*\n", path.read_text("utf-8")) if len(part) > 200
    ]
    asked: dict[str, list[tuple[str, str]]] = {"facts": [], "articles": []}
    of_articles: dict[str, list[str]] = {}
    for paragraph in read_articles(arguments.articles):
        of_articles.setdefault(paragraph.title, []).append(paragraph.context)
        name = f"article-{len(of_articles):03d}.txt"
        asked["articles"] += [(name, question.text) for question in paragraph.questions]
    hidden = {f"article-{number:03d}.txt": own for number, own in enumerate(of_articles.values(), 1)}
    for number, (begin, question, words) in enumerate(FACTS, 1):
        hidden[name := f"fact-{number:03d}.txt"] = [f"{begin} {rng.choice(words)}."]
        asked["facts"].append((name, question))
    at = 0
    for name, own in hidden.items():
        parts: list[str] = []
        while sum(map(len, parts)) < arguments.characters:
            parts.append(prose[at % len(prose)])
            at += 1
        for text in own:
            parts.insert(int(rng.integers(len(parts) + 1)), text)
        if not (folder / name).exists():
            (folder / name).write_text("\n\n".join(parts), "utf-8")
    return asked


def _measure(shelf: Shelf, names: Sequence[str], label: str, questions: Sequence[tuple[str, str]]) -> None:
    """Print a row for each way to rank."""
    llama, ranks, seconds = shelf._llama, {"words": [], "attention": [], "octavo": []}, []
    for name, question in questions:
        right = names.index(name)
        words = shelf.words.of(Prompt(llama).question(f" {question}"))
        queries = question_queries(llama, shelf._heads, question)
        with one_thread():
            pieces = [shelf._best_scores(queries, each) for each in shelf.documents]
        shares = attention_shares(np.stack([own.max(axis=2) for own in pieces], axis=2))
        start = time.perf_counter()
        found = [each.document.name for each in shelf.look(question).found]
        seconds.append(time.perf_counter() - start)
        ranks["words"].append(int((words > words[right]).sum()))
        ranks["attention"].append(int((shares > shares[right]).sum()))
        ranks["octavo"].append(found.index(name) if name in found else len(names))
    for way, own in ranks.items():
        shown = " ".join(f"{np.mean(np.array(own) < n):.3f}" for n in (1, 3, 8))
        took = f", {statistics.median(seconds):.2f} s" if way == "octavo" else ""
        print(f"{label} ({len(own)}): {way:<10} {shown}{took}", flush=True)


if __name__ == "__main__":
    main()
