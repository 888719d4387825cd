"""Time batches of a model on one thread: llama.cpp's and octavo's, in the same process, one after another in turns.

    python benchmarks/batches.py MODEL.gguf [--tokens 1 4 8 16 512] [--repeats 5]

It prints milliseconds of the process's CPU time, the median, and in brackets what a batch takes in batches of one.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import llama_cpp
import numpy as np

import octavo
from octavo.cli.render import markdown_table


def milliseconds(llama: Any, tokens: list[int]) -> float:
    """Return the CPU time of a batch behind a token."""
    llama.reset()
    llama.eval(tokens[:1])
    start = time.process_time()
    llama.eval(tokens)
    return 1e3 * (time.process_time() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, nargs="+", default=[1, 4, 8, 16, 512], help="of batches (1 4 8 16 512)")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each (5)")
    arguments = parser.parse_args()
    n_most = max(arguments.tokens)
    sizes = {"n_ctx": n_most + 1, "n_batch": n_most, "n_threads": 1, "n_threads_batch": 1, "verbose": False}
    models = [
        llama_cpp.Llama(arguments.model, flash_attn=True, n_ubatch=n_most, **sizes),
        octavo.Llama(arguments.model, device="cpu", **sizes),
    ]
    rng, medians = np.random.default_rng(0), {}
    for n_tokens in sorted({1, *arguments.tokens}):
        tokens = rng.integers(3, models[0].n_vocab(), n_tokens).tolist()
        times = [[milliseconds(model, tokens) for model in models] for _ in range(arguments.repeats + 1)]
        medians[n_tokens] = np.median(times[1:], axis=0)
    rows = []
    for n_tokens, own in medians.items():
        cells = [f"{ms:.1f} ({ms / one:.2f})" for ms, one in zip(own, medians[1], strict=True)]
        rows.append([str(n_tokens), *cells, f"{own[0] / own[1]:.2f}"])
    print(markdown_table(["tokens", "llama.cpp ms", "octavo ms", "ratio"], rows))


if __name__ == "__main__":
    main()
