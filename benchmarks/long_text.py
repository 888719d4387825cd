"""Measure how well a model predicts a text that is longer than its context, part by part.

    python benchmarks/long_text.py TEXT.txt [--tokens 20480] [--part 4096] [--batch 512] [-c CTX_SIZE] [-m MODEL]
        [--attention streaming:paper,window:tokens=1024]

Each attention reads the text from its first token on, in batches. The table shows the perplexity of each part: e to the
mean of minus the logarithm of the probability that the model gives the next token. An attention that does not forget
stops at the end of the context.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

import numpy as np

from octavo.cli.option_types import AttentionListType
from octavo.cli.render import markdown_table
from octavo.convert.plan.heads import LOGITS, evaluate
from octavo.evaluation.measures import log_softmax
from octavo.evaluation.prose import first_tokens
from octavo.runtime.llama import Llama
from octavo.runtime.models.find_model import default_model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("-m", "--model", type=Path)
    parser.add_argument("-c", "--ctx-size", type=int, default=0)
    parser.add_argument("--attention", default="streaming:paper,window:tokens=1024")
    parser.add_argument("--tokens", type=int, default=20480)
    parser.add_argument("--part", type=int, default=4096)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("-t", "--threads", type=int, default=2)
    arguments = parser.parse_args()
    model, rows = arguments.model or default_model(), []
    for attention in AttentionListType().convert(arguments.attention, None, None):
        sizes = {"n_ctx": arguments.ctx_size, "n_batch": arguments.batch, "n_threads": arguments.threads}
        llama = Llama(model, attention=attention, **sizes)
        tokens = first_tokens(llama, arguments.text, arguments.tokens)
        rows.append([attention, *(f"{part:.2f}" for part in perplexities(llama, tokens, arguments.part))])
        llama.close()
    starts = range(0, arguments.tokens, arguments.part)
    names = [f"tokens {start:,} to {min(start + arguments.part, arguments.tokens):,}" for start in starts]
    print(markdown_table(["attention", *names], [row + ["-"] * (len(names) + 1 - len(row)) for row in rows]))


def perplexities(llama: Llama, tokens: list[int], part: int) -> list[float]:
    """Return the perplexity of each whole part, as far as the context goes."""
    losses: list[np.ndarray] = []
    following = iter(tokens[1:])

    def take(name: str, values: np.ndarray) -> bool:
        own = np.array(list(itertools.islice(following, len(values))), int)
        losses.append(-log_softmax(values[: len(own)])[np.arange(len(own)), own])
        return True

    n_tokens = min(len(tokens), llama.longest) // part * part
    evaluate(llama, tokens[:n_tokens], np.ones(n_tokens, bool), lambda name: name == LOGITS, take)
    joined = np.concatenate(losses)
    return [float(np.exp(joined[start : start + part].mean())) for start in range(0, n_tokens, part)]


if __name__ == "__main__":
    main()
