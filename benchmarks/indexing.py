"""Measure how fast documents are indexed: one, many, several at once, and on a Dask cluster of this machine.

    python benchmarks/indexing.py [-m MODEL] [--documents 10] [--tokens 4000] [--jobs 1,2] [--workers 1,4] [-t THREADS]
        [--repeats 3] [-o md|json]

The documents are parts of the novel that octavo ships, of about so many tokens each, and none begins as another. Each
row indexes all of them into an empty library: the first one document alone, the next all with each number of jobs, that
share the threads. `--workers 1,4` then starts clusters of so many workers, each with the threads that a worker of the
largest one has (a quarter of all), and at last one of a single worker with all threads. Seconds are those of the whole
run, the loading of models and the start of processes included, but not the start of the cluster; the median of the
repeats. Tokens per second are those of all documents together. `a document, s` is what the indexes say that each took.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import octavo
from octavo.cli.render import markdown_table
from octavo.convert.plan.recall_texts import SHIPPED_NOVEL
from octavo.settings import ModelSettings
from octavo.system.processors import default_threads

#: Characters of the novel for each token.
CHARACTERS = 4.1

COLUMNS = [
    "how",
    "documents",
    "threads each",
    "tokens",
    "s",
    "tokens/s",
    "a document, s",
    "times the first of its kind",
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", help="by default SmolLM2-135M-Instruct")
    parser.add_argument("--documents", type=int, default=10)
    parser.add_argument("--tokens", type=int, default=4000, help="of each document, about")
    parser.add_argument("--characters", type=float, default=CHARACTERS, help="of a token; 1 for random weights")
    parser.add_argument("--jobs", default="1,2", help="documents that are read at once")
    parser.add_argument("--workers", default="", help="workers of Dask clusters; by default none is started")
    parser.add_argument("-t", "--threads", type=int, default=default_threads())
    parser.add_argument("-c", "--ctx-size", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("-o", "--output", choices=("md", "json"), default="md")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        documents = write_documents(Path(folder), arguments.documents, int(arguments.tokens * arguments.characters))
        how = ModelSettings(arguments.model, arguments.ctx_size, arguments.threads)
        jobs, workers = ([int(n) for n in each.split(",") if n] for each in (arguments.jobs, arguments.workers))
        rows = measure(documents, how, jobs, workers, arguments.threads, arguments.repeats)
    print(
        json.dumps(rows)
        if arguments.output == "json"
        else markdown_table(COLUMNS, [[str(row[name]) for name in COLUMNS] for row in rows])
    )


def write_documents(folder: Path, n_documents: int, n_characters: int) -> list[Path]:
    """Write texts that begin differently."""
    novel = SHIPPED_NOVEL.read_text("utf-8")
    paths = []
    for number in range(n_documents):
        start = number * len(novel) // n_documents
        text = (novel[start:] + novel) * (n_characters // len(novel) + 1)
        paths.append(folder / f"part-{number}.txt")
        paths[-1].write_text(text[:n_characters], "utf-8")
    return paths


def measure(
    documents: list[Path],
    model: ModelSettings,
    jobs: list[int],
    workers: list[int],
    n_threads: int,
    repeats: int,
) -> list[dict[str, Any]]:
    """Measure each way to index documents.

    Parameters
    ----------
    documents : list of Path
        The documents.
    model : ModelSettings
        The model.
    jobs, workers : list of int
        Numbers of jobs, and of workers of clusters.
    n_threads : int
        Threads of all jobs or workers together.
    repeats : int
        Repetitions of each.

    Returns
    -------
    list of dict
        A row for each.
    """
    index(documents[:1], replace(model, n_threads=n_threads))  # kernels are compiled, and files are in memory
    runs = [("one document", documents[:1], 1, 0, n_threads)]
    runs += [(f"{n} job{'s' * (n > 1)}", documents, n, 0, n_threads // n) for n in jobs]
    each = n_threads // max(workers, default=1)
    clusters = [(n, each) for n in workers] + ([(1, n_threads)] if workers and each < n_threads else [])
    runs += [(f"{n} worker{'s' * (n > 1)}", documents, 0, n, threads) for n, threads in clusters]
    rows: list[dict[str, Any]] = []
    for title, chosen, n_jobs, n_workers, threads in runs:
        found = []
        with ExitStack() as stack:
            settings, address = replace(model, n_threads=threads * max(1, n_jobs)), None
            if n_workers:
                address = stack.enter_context(cluster(n_workers)).scheduler_address
            for _ in range(repeats):
                found.append(index(chosen, settings, max(1, n_jobs), address))
        seconds, alone = (statistics.median(run[name] for run in found) for name in ("seconds", "alone"))
        speed = found[0]["tokens"] / seconds
        kind = [row for row in rows if ("worker" in row["how"]) == bool(n_workers)]
        rows.append(
            {
                "how": title,
                "documents": len(chosen),
                "threads each": threads,
                "tokens": found[0]["tokens"],
                "s": round(seconds, 1),
                "tokens/s": round(speed),
                "a document, s": round(alone, 1),
                "times the first of its kind": round(speed / kind[0]["tokens/s"], 2) if kind else 1.0,
            }
        )
    return rows


def cluster(n_workers: int) -> Any:
    """Start a Dask cluster of this machine, whose workers read one document at a time."""
    from distributed import LocalCluster

    return LocalCluster(n_workers=n_workers, threads_per_worker=1, processes=True, dashboard_address=None)


def index(
    documents: list[Path], model: ModelSettings, n_jobs: int = 1, scheduler: str | None = None
) -> dict[str, float]:
    """Index documents into an empty library."""
    library = Path(tempfile.mkdtemp(dir=documents[0].parent))
    start = time.perf_counter()
    folders = octavo.index_documents(documents, replace(model, index_dir=library), n_jobs=n_jobs, scheduler=scheduler)
    seconds = time.perf_counter() - start
    manifests = [json.loads((folder / "manifest.json").read_text()) for folder in folders]
    shutil.rmtree(library)
    return {
        "seconds": seconds,
        "tokens": sum(manifest["document"]["tokens"] for manifest in manifests),
        "alone": statistics.median(manifest["seconds"] for manifest in manifests),
    }


if __name__ == "__main__":
    main()
