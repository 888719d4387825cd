"""Measure the time of reading a document, by its length: the weights, attention, and clustering.

    python benchmarks/reading.py TEXT.txt [--depths 2000,8000] [-m MODEL] [-t THREADS]

"Weights" is the time of as many batches that have nothing before them; what reading takes beyond that is attention. A
row of "dense" reads everything, a row of "sparse" the keys that hold most of the attention.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from octavo.cli.render import markdown_table
from octavo.convert.clusters import settings_for
from octavo.convert.pipeline import cluster, prefill, prefill_attention_share
from octavo.cpu_kernels.numba_support.machine import cpu_name
from octavo.evaluation.prose import first_tokens
from octavo.progress import Silent
from octavo.runtime.llama import Llama
from octavo.runtime.models.find_model import default_model
from octavo.settings import PREFILLS

#: Tokens that are read before anything is timed, so that all kernels are compiled.
_WARM_UP = 4608


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("--depths", default="2000,4000,8000")
    parser.add_argument("-m", "--model", type=Path)
    parser.add_argument("-t", "--threads", type=int, default=2)
    arguments = parser.parse_args()
    depths = [int(depth) for depth in arguments.depths.split(",")]
    sizes = {"n_threads": arguments.threads, "n_threads_batch": arguments.threads, "n_ctx": max(*depths, _WARM_UP) + 1}
    llama = Llama(arguments.model or default_model(), attention="dense", **sizes)
    tokens = first_tokens(llama, arguments.text, max(*depths, _WARM_UP))
    for kind in PREFILLS:
        figures(llama, tokens[:_WARM_UP], kind, 1.0, arguments.threads)
    rows = []
    for depth in depths:
        weights_s = read_apart(llama, tokens[:depth])
        for kind in PREFILLS:
            rows.append([f"{depth:,}", kind, *figures(llama, tokens[:depth], kind, weights_s, arguments.threads)])
    print(f"{cpu_name()}, {arguments.threads} threads")
    names = ["tokens", "prefill", "weights s", "attention s", "clustering s", "sum / weights", "tokens/s"]
    print(markdown_table(names, rows))


def read_apart(llama: Llama, tokens: Sequence[int]) -> float:
    """Return the seconds that batches take if nothing comes before them."""
    seconds = 0.0
    for first in range(0, len(tokens), llama.n_batch):
        llama.reset()
        start = time.perf_counter()
        llama.eval(tokens[first : first + llama.n_batch])
        seconds += time.perf_counter() - start
    return seconds


def figures(llama: Llama, tokens: Sequence[int], kind: str, weights_s: float, n_jobs: int) -> list[str]:
    """Return the rest of a row."""
    llama.reset()
    start = time.perf_counter()
    prefill(llama, tokens, Silent(), attention_share=prefill_attention_share(kind, llama))
    reading_s = time.perf_counter() - start
    start = time.perf_counter()
    for layer in cluster(llama.context.cache, settings_for(llama.context.kv_type), Silent(), n_jobs):
        _ = layer.means
    clustering_s = time.perf_counter() - start
    total_s = reading_s + clustering_s
    seconds = (weights_s, reading_s - weights_s, clustering_s)
    return [*(f"{each:.1f}" for each in seconds), f"{total_s / weights_s:.2f}", f"{len(tokens) / total_s:.0f}"]


if __name__ == "__main__":
    main()
