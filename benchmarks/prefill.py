"""Measure what a sparse reading of a text costs: the same samples after a dense reading and after a sparse one.

    python benchmarks/prefill.py [--tasks agreement,needle] [--depths 8000,16000] [-n 20] [-m MODEL] [--records FILE]
    python benchmarks/prefill.py --table FILE...

Attention is dense once a text is read. A row says how tasks score after both readings, how far the next-token
distributions lie apart, and how long reading took. With --part 0/4 the first of four parts of the texts is measured, so
that several processes share the work; --table puts their records together.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from octavo.cli.render import markdown_table
from octavo.convert.pipeline import ATTENTION_SHARE
from octavo.evaluation.measures import kl_divergence
from octavo.evaluation.reader import Reader
from octavo.evaluation.samples import Outcome, Text
from octavo.evaluation.tasks import task_class
from octavo.evaluation.tasks.task import Task
from octavo.progress import Silent
from octavo.runtime.llama import Llama
from octavo.runtime.methods.attention import DENSE_ATTENTION
from octavo.runtime.models.find_model import default_model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", default="agreement,needle,passkey", help="with data of their own")
    parser.add_argument("--depths", default="8000")
    parser.add_argument("-n", "--samples", type=int, help="by default the task's")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--part", default="0/1")
    parser.add_argument("-m", "--model", type=Path)
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--covers", type=float, default=ATTENTION_SHARE)
    parser.add_argument("--records", type=Path, help="append each sample as a line of JSON")
    parser.add_argument("--table", type=Path, nargs="+", help="print the table of these records")
    arguments = parser.parse_args()
    if arguments.table:
        lines = [line for path in arguments.table for line in path.read_text().splitlines()]
        print_table([json.loads(line) for line in lines])
        return
    threads = {"n_threads": arguments.threads, "n_threads_batch": arguments.threads}
    llama = Llama(arguments.model or default_model(), attention="dense", **threads)
    records = []
    for record in measure(llama, arguments):
        records.append(record)
        if arguments.records:
            with arguments.records.open("a") as file:
                print(json.dumps(record), file=file)
    print_table(records)


def measure(llama: Llama, arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Read this part's texts twice, and yield a record of each sample."""
    reader = Reader(llama, Silent(), arguments.threads)
    part, n_parts = map(int, arguments.part.split("/"))
    for depth in map(int, arguments.depths.split(",")):
        for words in arguments.tasks.split(","):
            task = task_class(words)()
            assert task.data is not None
            texts = task.texts(llama, task.data, depth, arguments.samples or task.samples, arguments.seed)
            for number, text in enumerate(texts):
                if number % n_parts == part:
                    for record in compared(reader, task, text, arguments.covers):
                        yield {"task": words, "depth": depth, "text": number, "seed": arguments.seed, **record}


def compared(reader: Reader, task: Task, text: Text, attention_share: float) -> Iterator[dict[str, Any]]:
    """Yield the results of each sample of a text after both readings."""
    dense_s, dense = answers(reader, task, text, 0.0)
    sparse_s, sparse = answers(reader, task, text, attention_share)
    for sample, after_dense, after_sparse in zip(text.samples, dense, sparse, strict=True):
        steps = after_sparse.comparable(after_dense, forced=bool(sample.continuation))
        yield {
            "tokens": len(text.tokens),
            "seconds": [dense_s, sparse_s],
            "scores": [task.score(sample, each, after_dense)["score"] for each in (after_dense, after_sparse)],
            "kl": float(kl_divergence(after_dense.log_probs[:steps], after_sparse.log_probs[:steps]).mean()),
        }


def answers(reader: Reader, task: Task, text: Text, attention_share: float) -> tuple[float, list[Outcome]]:
    """Return the seconds of reading a text, and the model's outcomes of its samples then."""
    start = time.perf_counter()
    [document] = reader.read(text.tokens, [], attention_share)
    seconds = time.perf_counter() - start
    reader.attend(document, DENSE_ATTENTION)
    outcomes = []
    for sample in text.samples:
        outcomes.append(reader.answer(sample, in_batches=task.in_batches))
        if not text.continues:
            reader.back()
    return seconds, outcomes


def print_table(records: list[dict[str, Any]]) -> None:
    """Print a row for each task and depth."""
    rows = defaultdict(list)
    for record in records:
        rows[record["task"], record["depth"]].append(record)
    names = ["task", "tokens", "samples", "after dense", "after sparse", "difference", "KL", "tokens/s dense, sparse"]
    print(markdown_table(names, [row(*key, of_key) for key, of_key in sorted(rows.items())]))


def row(task: str, depth: int, records: list[dict[str, Any]]) -> list[str]:
    """Return one line of the table."""
    dense, sparse = np.array([record["scores"] for record in records]).T
    texts = {(record["seed"], record["text"]): record for record in records}.values()
    tokens = sum(record["tokens"] for record in texts)
    rates = [f"{tokens / sum(record['seconds'][i] for record in texts):.0f}" for i in range(2)]
    return [
        task,
        f"{depth:,}",
        str(len(records)),
        f"{dense.mean():.3f}",
        f"{sparse.mean():.3f}",
        mean_and_error(sparse - dense, 3),
        mean_and_error(np.array([record["kl"] for record in records]), 4),
        ", ".join(rates),
    ]


def mean_and_error(values: np.ndarray, digits: int) -> str:
    """Return a mean and its standard error."""
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else float("nan")
    return f"{values.mean():.{digits}f} ± {error:.{digits}f}"


if __name__ == "__main__":
    main()
