"""Measure whether words find the passage that answers a question, without a model's reading.

    python benchmarks/passage_search.py [needle|qa] [--depths 8000,30000,150000] [--samples 200] [--data FILE]

The documents and questions are those of `octavo eval first-answer`, with the tokens of the default model. The table
shows how often the best pieces, with so many characters, hold the answer, how often the first piece does, and the
milliseconds of a search. 8,000 characters are about the 2,000 tokens that `octavo ask` reads.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

from octavo import Llama
from octavo.cli.render import markdown_table
from octavo.documents.document import Document
from octavo.evaluation.folders.first_answer import FirstAnswer
from octavo.evaluation.folders.folder_task import Asked
from octavo.library.text_store import Piece, TextStore
from octavo.runtime.models.find_model import default_model


def rank(asked: Asked, text: str, found: list[Piece], n_characters: int) -> float:
    """Return the place of the piece with the answer among the best that have so many characters; infinity if none."""
    answer = next((answer for answer in asked.answers if answer in asked.passage), asked.answers[0])
    start = text.index(asked.passage) + max(asked.passage.find(answer), 0)
    for number, piece in enumerate(found):
        if piece.start <= start and start + len(answer) <= piece.stop:
            return number
        n_characters -= piece.stop - piece.start
        if n_characters <= 0:
            break
    return float("inf")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", nargs="?", default="qa", choices=["needle", "qa"])
    parser.add_argument("--depths", default="8000,30000,150000", help="Tokens of a document.")
    parser.add_argument("--documents", type=int, default=20)
    parser.add_argument("--samples", type=int, default=200, help="Questions at each depth.")
    parser.add_argument("--characters", type=int, default=8000)
    parser.add_argument("--data", type=Path, help="As of `octavo eval first-answer`.")
    arguments = parser.parse_args()
    llama = Llama(default_model(), vocab_only=True)
    task = FirstAnswer(documents=arguments.documents, kind=arguments.kind)
    rows = []
    for depth in map(int, arguments.depths.split(",")):
        folder = task.folder(llama, arguments.data or task.data, depth, arguments.samples, 0)
        ranks, seconds = [], []
        for name, text in folder.documents.items():
            with tempfile.TemporaryDirectory() as place, TextStore(Path(place) / "texts.sqlite") as store:
                number = store.add(Document(text, name=name)).number
                for asked in (asked for asked in folder.asked if asked.document == name):
                    began = time.perf_counter()
                    found = store.search(asked.question, [number])
                    seconds.append(time.perf_counter() - began)
                    ranks.append(rank(asked, text, found, arguments.characters))
        shares = [f"{np.isfinite(ranks).mean():.3f}", f"{np.equal(ranks, 0).mean():.3f}"]
        rows.append([f"{depth:,}", f"{len(ranks)}", *shares, f"{1e3 * np.median(seconds):.0f}"])
    headers = ["tokens", "questions", "answer in passages", "in the first one", "ms a search"]
    print(markdown_table(headers, rows))


if __name__ == "__main__":
    main()
