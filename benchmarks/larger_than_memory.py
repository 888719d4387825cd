"""Measure decoding over a document whose index is larger than the memory that is left for it.

    python benchmarks/larger_than_memory.py DOCUMENT FOLDER -m MODEL.gguf [--times 0 2 3 4] [--attention squeezed]

The document's index is in FOLDER, and is made first if it is not there. For each number of times a process of its own,
in a control group whose memory is limited, takes so much memory that the index is that many times as large as what is
left for it; 0 leaves room for everything. It then answers one question, and all must answer it in the same words.
Control groups of memory need root on Linux.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

import octavo
from octavo.cli.render import markdown_table
from octavo.system.free_memory import private_bytes

_COLUMNS = (
    "index / room",
    "room MB",
    "first token s",
    "ms a token, second half: median",
    "mean",
    "read from disk, MB a token",
    "waits a token",
)

#: Memory of the group besides index and model, and uncounted memory that the system takes of it.
SPARE, _MARGIN = 1 << 30, 48 << 20

_QUESTION = "Who is the first person that the text names, and what happens to this person?"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("document", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("-m", "--model", type=Path, required=True)
    parser.add_argument("--times", type=float, nargs="+", default=[0, 2, 3, 4])
    parser.add_argument("--attention", default="squeezed")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--measure", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--limit", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.limit is not None:
        print(json.dumps(_measure(arguments)))
        return
    print(markdown_table(_COLUMNS, measured(arguments)))


def _settings(arguments: argparse.Namespace) -> octavo.ModelSettings:
    return octavo.ModelSettings(arguments.model, n_threads=arguments.threads, index_dir=arguments.folder)


def measured(arguments: argparse.Namespace) -> list[list[str]]:
    """Measure in one process for each number of times; return the rows of a table."""
    [index] = octavo.index_documents([arguments.document], _settings(arguments), attention=arguments.attention)
    files = [*index.iterdir(), arguments.model]
    limit = SPARE + sum(file.stat().st_size for file in files)
    rows, answers = [], []
    for times in arguments.times:
        for file in files:
            _leave_memory(file)
        own = ["--measure", str(times), "--limit", str(limit)]
        with limited(limit) as enter:
            command = [sys.executable, __file__, *_words(arguments), *own]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, preexec_fn=enter)
        row, answer = json.loads(done.stdout.splitlines()[-1])
        rows.append(row)
        answers.append(answer)
    if any(answer != answers[0] for answer in answers):
        raise SystemExit("The answers differ.")
    return rows


def _words(arguments: argparse.Namespace) -> list[str]:
    """Return the words of the command line, without the times."""
    names = ("model", "attention", "tokens", "threads")
    options = [str(word) for name in names for word in (f"--{name}", getattr(arguments, name))]
    return [str(arguments.document), str(arguments.folder), *options]


def _leave_memory(file: Path) -> None:
    """Have the system drop a file from its cache."""
    descriptor = os.open(file, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


@contextmanager
def limited(n_bytes: int) -> Iterator[Callable[[], object]]:
    """Make a control group with a memory limit; yield the function with which a process enters it."""
    first = Path("/sys/fs/cgroup/memory")
    root, limit = (first, "memory.limit_in_bytes") if first.exists() else (first.parent, "memory.max")
    group = root / f"octavo-{os.getpid()}"
    group.mkdir()
    try:
        (group / limit).write_text(str(n_bytes))
        yield lambda: (group / "cgroup.procs").write_text(str(os.getpid()))
    finally:
        group.rmdir()


def _measure(arguments: argparse.Namespace) -> tuple[list[str], list[int]]:
    """Answer the question; return a row, and the tokens of the answer."""
    times = arguments.measure
    with octavo.open_document(arguments.document, _settings(arguments), attention=arguments.attention) as document:
        llama, index = document.llama, document.llama.context.cache.document
        assert index is not None
        next(llama.generate(document.prompt.first_question(_QUESTION), reset=False, temp=0.0))  # takes its memory now
        document.clear()
        room = int(index.n_bytes / times) if times else 0
        if times:
            taken = arguments.limit - room - private_bytes() - arguments.model.stat().st_size - _MARGIN
            ballast = np.ones(taken, np.uint8)
        prompt = document.prompt.first_question(_QUESTION)
        seconds, counts, written = list[float](), list[tuple[int, int]](), list[int]()
        start = time.perf_counter()
        for token in llama.generate(prompt, reset=False, temp=0.0):
            seconds.append(time.perf_counter() - start)
            counts.append(_counts())
            written.append(token)
            if len(written) == arguments.tokens:
                break
    steps = 1000 * np.diff(seconds)[len(seconds) // 2 :]
    n_read, n_waits = (np.array(counts[-1]) - counts[0]) / max(len(seconds) - 1, 1)
    if times:
        assert ballast[0] == 1
    row = [
        f"{times:g}" if times else "all fits",
        f"{room / 1e6:,.0f}" if times else "-",
        f"{seconds[0]:.2f}",
        f"{statistics.median(steps):.1f}",
        f"{steps.mean():.1f}",
        f"{n_read / 1e6:.1f}",
        f"{n_waits:.0f}",
    ]
    return row, written


def _counts() -> tuple[int, int]:
    """Return the bytes that this process had read from disk, and the pages that it waited for."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return 512 * usage.ru_inblock, usage.ru_majflt


if __name__ == "__main__":
    main()
