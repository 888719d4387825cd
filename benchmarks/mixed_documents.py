"""Ask twenty questions about twenty documents of many kinds and lengths: is the right passage read, and answered from?

    python benchmarks/mixed_documents.py FOLDER [--set first] [-m MODEL.gguf] [-t THREADS] [--seeds 3]
        [--temperatures default] [--records FILE.jsonl]

FOLDER receives the documents of write_mixed_documents.py and their indexes; what is there already is not made again.
Each question is asked about the whole folder, in a conversation of its own:

- `BM25`: the three chunks of 256 words with the highest BM25;
- `unread`: the passages of documents without an index, which are found by words, too. They and BM25's are not answered
  from;
- `document`, `excerpts`, `auto`: as with `--read`, once all are indexed.

"right document first" counts questions whose likeliest document is the right one, "passage read" those whose passage
is in the text that the model read. An answer is right if it has one of the accepted texts. All seeds count.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from write_mixed_documents import Asked, write_documents

import octavo
from octavo.ask.answer.notices import unfounded
from octavo.ask.context.document_set import DocumentSet
from octavo.ask.context.passages import PassageFinder
from octavo.ask.search.ranking import WordScores
from octavo.cli.render import markdown_table
from octavo.runtime.models.find_model import default_model

#: Tokens of an answer; words of BM25's chunks, and their number: about 1,000 tokens.
_ANSWER, _CHUNK, _CHUNKS = 96, 256, 3

_BM25, _UNREAD = "BM25", "unread"
_WAYS = (_BM25, _UNREAD, "document", "excerpts", "auto")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--set", default="first")
    parser.add_argument("-m", "--model", type=Path)
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--ways", default=",".join(_WAYS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--temperatures", default="default", help="Several, with commas between; default is octavo's.")
    parser.add_argument("--records", type=Path, help="Receives each answer, as a line of JSON.")
    arguments = parser.parse_args()
    model = arguments.model or default_model()
    texts = arguments.folder / arguments.set
    asked = write_documents(texts, arguments.set)
    indexes = octavo.ModelSettings(model, n_threads=arguments.threads, index_dir=arguments.folder / "indexes")
    ways = arguments.ways.split(",")
    if set(ways) - {_UNREAD}:
        octavo.index_documents([texts], indexes)
    records: list[dict[str, Any]] = []
    for way in ways:
        reads = {_BM25: "document", _UNREAD: "excerpts"}.get(way, way)
        settings = replace(indexes, index_dir=arguments.folder / "unread") if way == _UNREAD else indexes
        with octavo.open_documents([texts], settings, reading=octavo.ReadSettings(read=reads)) as session:
            for each in asked:
                if way == _BM25:
                    found = [_by_words(session, each)]
                elif way == _UNREAD:
                    found = [_unread(session, each)]
                else:
                    found = _answered(session, each, arguments)
                records += [{"way": way, "set": arguments.set, "file": each.file, **one} for one in found]
    if arguments.records:
        with arguments.records.open("a") as file:
            file.writelines(f"{json.dumps(record)}\n" for record in records)
    headers = ["read", "temperature", "right document first", "passage read", "right answers"]
    print(markdown_table(headers, [row for way in ways for row in _rows(way, records)]))


def _answered(session: octavo.Session, asked: Asked, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Answer a question with all temperatures and seeds."""
    answers: list[dict[str, Any]] = []
    unset = octavo.Sampling(max_tokens=_ANSWER)
    session.clear()
    for named in arguments.temperatures.split(","):
        drawn = unset if named == "default" else replace(unset, temperature=float(named))
        for seed in range(1 if named == "0" else arguments.seeds):
            session.sampling = drawn
            session.llama.set_seed(seed)
            if not answers:
                session.ask(asked.question)
            else:
                list(session.regenerate())
            text, answer = _read_text(session), session.answer
            assert answer is not None
            answers.append(
                {
                    "temperature": named,
                    "seed": seed,
                    "question": asked.question,
                    "first": _is_of(session.path, asked),
                    "read": _has(text, asked.passage),
                    "right": _is_right(answer.text, asked),
                    "unfounded": unfounded(answer.text, [text, asked.question]),
                    "answer": answer.text,
                    "reason": answer.finish_reason,
                    "read_from": [Path(path).name for path in session.read_from],
                }
            )
    return answers


def _unread(session: octavo.Session, asked: Asked) -> dict[str, Any]:
    """Find the passages that an answer is given from as long as no document is read."""
    assert session._chooser is not None
    finder = session._chooser.source
    assert isinstance(finder, PassageFinder)
    plan = finder.plan(*finder.search(asked.question))
    texts = [finder._store.document(piece.text).text[piece.start : piece.stop] for piece in plan.pieces]
    first = _is_of(plan.candidates[0].document.path, asked)
    return {"temperature": "", "first": first, "read": _has("\n".join(texts), asked.passage), "right": None}


def _by_words(session: octavo.Session, asked: Asked) -> dict[str, Any]:
    """Find the chunks with the highest BM25 over words in lower case."""
    assert session._chooser is not None
    document_set = session._chooser.source
    assert isinstance(document_set, DocumentSet)
    llama, documents = session.llama, list(document_set.texts)
    numbers: dict[str, int] = {}
    texts = [
        b"".join(map(llama.piece, tokens.tolist())).decode(errors="replace") for tokens in document_set.texts.values()
    ]
    words = [list(re.finditer(r"\w+", text.lower())) for text in texts]
    numbered = [np.array([numbers.setdefault(word[0], len(numbers)) for word in own], np.int32) for own in words]
    wanted = {numbers[word]: 1.0 for word in re.findall(r"\w+", asked.question.lower()) if word in numbers}
    scores = WordScores(numbered, _CHUNK // 2).of_pieces(wanted)
    every = sorted(((score, n, part) for n, own in enumerate(scores) for part, score in enumerate(own)), reverse=True)
    read = ""
    for _, number, part in every[:_CHUNKS]:
        chunk = words[number][part * _CHUNK // 2 : (part + 2) * _CHUNK // 2]
        read += texts[number][chunk[0].start() : chunk[-1].end()] + "\n\n"
    first = _is_of(documents[every[0][1]].path, asked)
    return {"temperature": "", "first": first, "read": _has(read, asked.passage), "right": None}


def _is_right(answer: str, asked: Asked) -> bool:
    """Return whether an answer has one of the accepted texts, as whole words or their beginnings."""
    return any(re.search(rf"\b{re.escape(text)}", answer, re.IGNORECASE) for text in asked.answers)


def _is_of(path: Path, asked: Asked) -> bool:
    """Return whether a path is that of the right document, or of a part of it."""
    return Path(path).name.startswith(asked.file)


def _read_text(session: octavo.Session) -> str:
    """Return the text that the model read before the question."""
    llama = session.llama
    return _text(llama, llama.input_ids[: session.n_document])


def _text(llama: octavo.Llama, tokens: np.ndarray) -> str:
    """Return the text of tokens."""
    return b"".join(map(llama.piece, tokens.tolist())).decode(errors="replace")


def _has(text: str, passage: str) -> bool:
    """Return whether a text has a passage; blanks, line breaks and case do not count."""
    plain, wanted = (" ".join(each.split()).lower() for each in (text, passage))
    return wanted in plain


def _rows(way: str, records: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Return a row for each temperature of a way."""
    own = [record for record in records if record["way"] == way]
    rows = []
    for temperature in dict.fromkeys(record["temperature"] for record in own):
        drawn = [record for record in own if record["temperature"] == temperature]
        questions = list({record["file"]: record for record in drawn}.values())
        shares = [f"{sum(each[name] for each in questions)} of {len(questions)}" for name in ("first", "read")]
        right = "" if way in (_BM25, _UNREAD) else f"{sum(each['right'] for each in drawn)} of {len(drawn)}"
        rows.append([way, temperature, *shares, right])
    return rows


if __name__ == "__main__":
    main()
