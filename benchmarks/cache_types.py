"""Measure how far a cache of 8 or 4 bits takes a model from one of f16.

    python benchmarks/cache_types.py TEXT.txt [--tokens 2000] [--steps 100] [--types q8_0,q4_0] [-c CTX_SIZE] [-m MODEL]

Each cache reads the text's first tokens, and then one token after another; attention is dense. The table compares the
next-token distributions of these steps with those of f16, and says what the keys and values take.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np

from octavo.cli.render import markdown_table
from octavo.evaluation.measures import kl_divergence, log_softmax, same_top_token
from octavo.evaluation.prose import first_tokens
from octavo.runtime.llama import Llama
from octavo.runtime.models.find_model import default_model
from octavo.runtime.models.llama_arguments import GGML_TYPES


class Steps(NamedTuple):
    """The results of a cache type: log-probabilities of each step, and the bytes of a token's keys and values."""

    log_probs: np.ndarray
    row_bytes: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("-m", "--model", type=Path)
    parser.add_argument("-c", "--ctx-size", type=int, default=0)
    parser.add_argument("--types", default="q8_0,q4_0")
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("-t", "--threads", type=int, default=2)
    arguments = parser.parse_args()
    found = {}
    for cache_type in ["f16", *arguments.types.split(",")]:
        number = GGML_TYPES[cache_type]
        sizes = {"n_ctx": arguments.ctx_size, "n_threads": arguments.threads, "n_threads_batch": arguments.threads}
        llama = Llama(arguments.model or default_model(), attention="dense", type_k=number, type_v=number, **sizes)
        tokens = first_tokens(llama, arguments.text, arguments.tokens + arguments.steps)
        found[cache_type] = steps(llama, tokens, arguments.steps)
        llama.close()
    names = ["cache", "bytes a token", "KL from f16", "standard error", "same top token"]
    print(markdown_table(names, [row(name, each, found["f16"]) for name, each in found.items()]))


def steps(llama: Llama, tokens: list[int], n_steps: int) -> Steps:
    """Read all but the last n_steps tokens at once, and these one by one."""
    llama.eval(tokens[:-n_steps])
    log_probs = []
    for token in tokens[-n_steps:]:
        llama.eval([token])
        log_probs.append(log_softmax(llama.logits()))
    return Steps(np.array(log_probs), llama.context.cache.row_bytes)


def row(name: str, each: Steps, exact: Steps) -> list[str]:
    """Return one line of the table."""
    divergence = kl_divergence(exact.log_probs, each.log_probs)
    error = divergence.std() / np.sqrt(len(divergence))
    same = same_top_token(exact.log_probs, each.log_probs)
    return [name, f"{each.row_bytes:,}", f"{divergence.mean():.4f}", f"{error:.4f}", f"{same:.2f}"]


if __name__ == "__main__":
    main()
