"""Measure whether words find the passage that answers a question, without a model.

    python benchmarks/passage_search.py NOVEL.txt XQUAD.json [--characters 8000] [--questions 3]

The paragraphs of a dataset in XQuAD's form stand among equal parts of the novel, as one text. For some questions about
each paragraph the table shows how often the best pieces, with so many characters, hold the answer, and the milliseconds
of a search. 8,000 characters are about the 2,000 tokens that `octavo ask --read excerpts` reads.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from octavo.cli.render import markdown_table
from octavo.documents.document import Document
from octavo.library.text_store import TextStore


def mixed(novel: str, paragraphs: list[dict[str, Any]]) -> tuple[str, list[int]]:
    """Return the paragraphs among equal parts of a novel, and where each paragraph begins."""
    length = len(novel) // len(paragraphs)
    text, starts = "", []
    for number, paragraph in enumerate(paragraphs):
        text += novel[number * length : (number + 1) * length] + "\n\n"
        starts.append(len(text))
        text += paragraph["context"] + "\n\n"
    return text, starts


def holds(store: TextStore, number: int, question: str, start: int, stop: int, n_characters: int) -> bool:
    """Return whether a range of the text lies in one of the best pieces for a question."""
    for piece in store.search(question, [number]):
        if piece.start <= start and stop <= piece.stop:
            return True
        n_characters -= piece.stop - piece.start
        if n_characters <= 0:
            break
    return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("novel", type=Path)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--characters", type=int, default=8000)
    parser.add_argument("--questions", type=int, default=3, help="Questions about each paragraph.")
    arguments = parser.parse_args()
    paragraphs = [
        paragraph for article in json.loads(arguments.dataset.read_text()) for paragraph in article["paragraphs"]
    ]
    text, starts = mixed(arguments.novel.read_text(), paragraphs)
    with tempfile.TemporaryDirectory() as folder, TextStore(Path(folder) / "texts.sqlite") as store:
        began = time.perf_counter()
        number = store.add(Document(text, name=arguments.novel.name)).number
        kept, found, n = time.perf_counter() - began, 0, 0
        began = time.perf_counter()
        for paragraph, begin in zip(paragraphs, starts, strict=True):
            for asked in paragraph["qas"][: arguments.questions]:
                answer = asked["answers"][0]
                start = begin + paragraph["context"].index(answer)
                found += holds(store, number, asked["question"], start, start + len(answer), arguments.characters)
                n += 1
        search_ms = (time.perf_counter() - began) / n * 1e3
    headers = ["characters", "indexed in s", "questions", "answer in passages", "ms a search"]
    row = [f"{len(text):,}", f"{kept:.2f}", str(n), f"{found / n:.3f}", f"{search_ms:.0f}"]
    print(markdown_table(headers, [row]))


if __name__ == "__main__":
    main()
