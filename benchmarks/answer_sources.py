"""Count right answers without a source, and wrong answers with one: over facts of short documents, and over XQuAD.

    python benchmarks/answer_sources.py FOLDER [--xquad xquad_en_dev.json] [-m MODEL.gguf] [-t THREADS]
        [--records FILE.jsonl]

FOLDER receives the documents of mixed/facts.toml, XQuAD's articles as Markdown, and their indexes; what is there
already is not made again. Of each article the first questions of each paragraph are asked, 120 in all. Each question is
asked in a conversation of its own, at temperature 0. An answer is right if it has one of the accepted texts. "by words"
counts answers whose source was found by their words alone. Of the right answers' sentences that have an accepted
text and a source, "right marks" counts the ones whose first source has such a text, too; "marked facts" counts the
answers with such a sentence.
"""

from __future__ import annotations

import argparse
import json
import re
import tomllib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import octavo
from octavo.cli.render import markdown_table
from octavo.runtime.models.find_model import default_model

#: Tokens of an answer, and questions of a paragraph.
_ANSWER, _QUESTIONS = 64, 1


class Asked(NamedTuple):
    """A question about a file, and texts: a right answer has one of them."""

    file: Path
    question: str
    answers: list[str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--xquad", type=Path)
    parser.add_argument("-m", "--model", type=Path)
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--records", type=Path, help="Receives each answer, as a line of JSON.")
    arguments = parser.parse_args()
    model = arguments.model or default_model()
    settings = octavo.ModelSettings(model, n_threads=arguments.threads, index_dir=arguments.folder / "indexes")
    sets = {"facts": list(_facts(arguments.folder))}
    if arguments.xquad:
        sets["XQuAD"] = list(_xquad(arguments.folder, arguments.xquad))
    rows = []
    for name, asked in sets.items():
        records = []
        for record in _answers(asked, settings):
            records.append(record)
            if arguments.records:
                with arguments.records.open("a") as file:
                    file.write(f"{json.dumps({'set': name, **record})}\n")
        rows.append([name, *_figures(records)])
    titles = ["questions", "right answers", "without a source", "by words", "wrong, with one"]
    print(markdown_table([*titles, "right marks", "marked facts"], rows))


def _facts(folder: Path) -> Iterator[Asked]:
    """Write the documents of facts, and yield their questions."""
    folder.mkdir(parents=True, exist_ok=True)
    for document in tomllib.loads((Path(__file__).parent / "mixed" / "facts.toml").read_text())["document"]:
        file = folder / document["file"]
        file.write_text(document["text"].lstrip())
        yield from (Asked(file, question, answers) for question, answers in document["facts"])


def _xquad(folder: Path, data: Path) -> Iterator[Asked]:
    """Write XQuAD's articles, and yield their questions."""
    for article in json.loads(data.read_text()):
        title = article["title"].replace("_", " ")
        file = folder / f"{article['title']}.md"
        contexts = [paragraph["context"] for paragraph in article["paragraphs"]]
        file.write_text("\n\n".join([f"# {title}", *contexts]) + "\n")
        for paragraph in article["paragraphs"]:
            yield from (Asked(file, one["question"], one["answers"]) for one in paragraph["qas"][:_QUESTIONS])


def _answers(asked: list[Asked], settings: octavo.ModelSettings) -> Iterator[dict[str, Any]]:
    """Yield a record for each answer."""
    drawn = octavo.Sampling(temperature=0, max_tokens=_ANSWER)
    session: octavo.Session | None = None
    before: Path | None = None
    for file, question, answers in asked:
        if session is None:
            session = octavo.open_document(file, settings, sampling=drawn, sources=True)
        elif file != before:
            session = octavo.open_next(session, file, sources=True)
        before = file
        session.clear()
        answer, sources = session.ask(question), session.sources()
        yield {
            "file": file.name,
            "question": question,
            "accepted": answers,
            "answer": answer.text,
            "right": any(map(partial(_has, answer.text), answers)),
            "sources": [source.as_json() for source in sources],
        }
    if session is not None:
        session.close()


def _has(answer: str, accepted: str) -> bool:
    """Return whether an answer has a text, as whole words or their beginnings; a number ends with it."""
    return re.search(rf"\b{re.escape(accepted)}(?![.,]?\d)", answer, re.IGNORECASE) is not None


def _figures(records: list[dict[str, Any]]) -> list[str]:
    right, wrong = ([one for one in records if one["right"] is is_right] for is_right in (True, False))
    by_words = sum(one["sources"][:1] != [] and one["sources"][0].get("by") == "words" for one in records)
    marks = [_marks(one) for one in right]
    are_right = [
        _has_any(source["quote"], one)
        for one, first in zip(right, marks, strict=True)
        for sentence, source in first.items()
        if _has_any(sentence, one)
    ]
    facts = [any(_has_any(sentence, one) for sentence in first) for one, first in zip(right, marks, strict=True)]
    return [
        f"{len(right)} of {len(records)}",
        f"{sum(not one['sources'] for one in right)} of {len(right)}",
        str(by_words),
        f"{sum(bool(one['sources']) for one in wrong)} of {len(wrong)}",
        f"{sum(are_right)} of {len(are_right)}",
        f"{sum(facts)} of {len(facts)}",
    ]


def _marks(record: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the first source of each sentence of an answer that has one, by its text."""
    found: dict[str, dict[str, Any]] = {}
    for source in record["sources"]:
        for mark in source["marks"]:
            found.setdefault(record["answer"][mark["start"] : mark["stop"]], source)
    return found


def _has_any(text: str, record: dict[str, Any]) -> bool:
    return any(_has(text, accepted) for accepted in record["accepted"])


if __name__ == "__main__":
    main()
