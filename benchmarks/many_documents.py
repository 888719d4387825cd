"""Measure questions about very many documents: how long each is looked for, the first token, memory, and right answers.

    python benchmarks/many_documents.py FOLDER [--documents 200] [--tokens 5000] [-m MODEL.gguf] [-t THREADS]

FOLDER receives the documents, those of `octavo eval folder-needle`, and their indexes; what is there already is not
made again. Each way to read is measured in a process of its own, which asks ten questions one after another. When it
begins, the files of FOLDER are not in the system's file cache: it opens the documents and looks for the first question
from a cold disk.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

import octavo
from octavo.ask.context.document_set import DocumentSet
from octavo.cli.render import markdown_table
from octavo.evaluation.folders.folder_needle import FolderNeedle
from octavo.evaluation.folders.folder_task import Folder
from octavo.runtime.llama import Llama
from octavo.runtime.models.find_model import default_model
from octavo.settings import READS

_COLUMNS = (
    "read",
    "documents",
    "tokens",
    "opening from a cold disk, s",
    "first search from it, s",
    "right document first",
    "looking for it, median s",
    "at most s",
    "first token, median s",
    "at most s",
    "right answers",
    "resident MB",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--documents", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=5000)
    parser.add_argument("-m", "--model", type=Path)
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--reads", choices=READS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    model = arguments.model or default_model()
    if arguments.reads:
        print(*_measure(model, arguments), sep="|")
        return
    _, made = _folder(model, arguments)
    texts = arguments.folder / "texts"
    texts.mkdir(parents=True, exist_ok=True)
    for name, text in made.documents.items():
        file = texts / name
        if not file.exists() or file.read_text("utf-8") != text:
            file.write_text(text, "utf-8")
    octavo.index_documents([texts], _settings(model, arguments))
    octavo.open_documents([texts], _settings(model, arguments)).close()  # finds the heads that retrieve, once
    rows = []
    for reads in READS:
        _forget(arguments.folder)
        done = subprocess.run(
            [sys.executable, *sys.argv, "--reads", reads], stdout=subprocess.PIPE, text=True, check=True
        )
        rows.append(done.stdout.strip().split("|"))
    print(markdown_table(_COLUMNS, rows))


def _settings(model: Path, arguments: argparse.Namespace) -> octavo.ModelSettings:
    return octavo.ModelSettings(model, n_threads=arguments.threads, index_dir=arguments.folder)


def _folder(model: Path, arguments: argparse.Namespace) -> tuple[FolderNeedle, Folder]:
    """Make the documents and the questions."""
    vocabulary = Llama(model, n_ctx=512)
    task = FolderNeedle(documents=arguments.documents)
    n_samples = min(task.samples, arguments.documents)
    folder = task.folder(vocabulary, task.data, arguments.tokens, n_samples, 0)
    vocabulary.close()
    return task, folder


def _forget(folder: Path) -> None:
    """Drop the files of a folder from the system's file cache."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _measure(model: Path, arguments: argparse.Namespace) -> list[str]:
    """Ask all questions; return a row."""
    task, folder = _folder(model, arguments)
    settings, sampling = _settings(model, arguments), octavo.Sampling(max_tokens=32, temperature=0)
    looking, first = [], []
    n_right = n_answered = 0
    texts = [arguments.folder / "texts"]
    cold = [time.perf_counter()]
    with octavo.open_documents(
        texts, settings, sampling=sampling, reading=octavo.ReadSettings(read=arguments.reads)
    ) as collection:
        assert collection._chooser is not None
        document_set = collection._chooser.source
        assert isinstance(document_set, DocumentSet)
        cold.append(time.perf_counter())
        document_set.rank(folder.asked[0].question)
        cold.append(time.perf_counter())
        n_tokens = sum(map(len, document_set.texts.values()))
        for each in folder.asked:
            collection.clear()
            start = time.perf_counter()
            pieces = collection.stream(each.question)
            text = next(pieces)
            first.append(time.perf_counter() - start)
            n_answered += task.score(text + "".join(pieces), each) > 0
        for each in folder.asked:  # which leaves the model empty: no question can follow
            start = time.perf_counter()
            found = document_set.rank(each.question).candidates[0].document.name
            looking.append(time.perf_counter() - start)
            n_right += found == each.document
        [resident] = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
        n_documents = len(document_set.documents)
    seconds = [f"{value:.2f}" for own in (looking, first) for value in (statistics.median(own), max(own))]
    shares = [f"{n} of {len(folder.asked)}" for n in (n_right, n_answered)]
    counted = [arguments.reads, str(n_documents), f"{n_tokens:,}"]
    counted += [f"{stop - start:.2f}" for start, stop in itertools.pairwise(cold)]
    return [*counted, shares[0], *seconds, shares[1], f"{int(resident) * 1024 / 1e6:,.0f}"]


if __name__ == "__main__":
    main()
