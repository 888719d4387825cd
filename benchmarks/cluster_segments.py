"""Measure what clusters over a whole document gain over clusters of its segments.

    python benchmarks/cluster_segments.py [-m MODEL] [--tokens 4000] [--steps 48] [-t THREADS]

The texts are of the novel that octavo ships: one of passkeys, which the model recalls after it, and one of prose. The
keys of each are clustered in several ways. A row has the seconds of clustering (CPU time), and the KL divergence of the
next tokens from dense attention's with `squeezed` at an eighth and at a quarter of the bytes. `sketch` is below it.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from octavo.cli.render import markdown_table
from octavo.convert import clusters, pipeline
from octavo.convert.plan.allocation import prose_text
from octavo.convert.plan.recall_texts import PASSKEYS, SHIPPED_NOVEL, Haystack, RecallText, recall_text
from octavo.evaluation.measures import kl_divergence, log_softmax
from octavo.progress import Silent
from octavo.runtime.document.index import Index
from octavo.runtime.llama import Llama
from octavo.runtime.methods.attention import DENSE_ATTENTION, Attention
from octavo.runtime.models.find_model import default_model

#: Ways to cluster: keys in a segment, and what K-means runs over.
WAYS = {"segments of 2,048 keys": (2048, "raw"), "segments of 4,096 keys": (4096, "raw"), "whole": (1 << 24, "raw")}
WAYS["whole, normalised"] = (1 << 24, "normalised")

BUDGETS = (0.125, 0.25)


def indexes(llama: Llama, document: list[int]) -> dict[str, tuple[Index, float]]:
    """Return the document's index by each way, and the seconds that clustering took."""
    llama.reset()
    llama.set_attention(DENSE_ATTENTION)
    last = clusters.settings_for("f16").n_queries(len(document))
    queries = pipeline.prefill(llama, document, Silent(), last)
    found = {}
    for way, (segment, keys) in WAYS.items():
        clusters._SEGMENT = segment
        settings, began = clusters.settings_for("f16", {"keys": keys}), time.process_time()
        layers = list(pipeline.cluster(llama.context.cache, settings, Silent(), llama.context_params.n_threads))
        seconds = time.process_time() - began
        found[way] = pipeline.calibrate(llama, layers, queries, document), seconds
    return found


def predictions(llama: Llama, attention: Attention, index: Index, tokens: list[int]) -> np.ndarray:
    """Return the log-probabilities after each token."""
    llama.reset()
    llama.set_attention(attention)
    llama.attach(index)
    rows = []
    for token in tokens:
        llama.eval([token])
        rows.append(log_softmax(llama.logits()))
    return np.array(rows)


def rows_of(llama: Llama, text: RecallText, n_steps: int) -> list[list[str]]:
    """Return a row for each way, and one for `sketch`."""
    document, tokens = text.tokens[: text.n_read], text.tokens[text.n_read : text.n_read + n_steps]
    made = indexes(llama, document)
    first = next(iter(made.values()))[0]
    expected = predictions(llama, DENSE_ATTENTION, first, tokens)

    def loss(method: str, budget: float, index: Index) -> str:
        predicted = predictions(llama, Attention(method, budget=budget), index, tokens)
        return f"{kl_divergence(expected, predicted).mean():.4f}"

    rows = [
        [way, f"{seconds:.1f}", *(loss("squeezed", budget, index) for budget in BUDGETS)]
        for way, (index, seconds) in made.items()
    ]
    return [*rows, ["sketch", "-", *(loss("sketch", budget, first) for budget in BUDGETS)]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", type=Path)
    parser.add_argument("--tokens", type=int, default=4000)
    parser.add_argument("--steps", type=int, default=48)
    parser.add_argument("-t", "--threads", type=int, default=2)
    arguments = parser.parse_args()
    sizes = {"n_threads": arguments.threads, "n_threads_batch": arguments.threads}
    llama = Llama(arguments.model or default_model(), n_ctx=arguments.tokens + 512, **sizes)
    novel = Haystack(llama, SHIPPED_NOVEL.read_text("utf-8"))
    texts = {
        "passkeys": recall_text(PASSKEYS, novel, arguments.tokens, 0),
        "prose": prose_text(novel, arguments.tokens, 0),
    }
    rows = [[name, *row] for name, text in texts.items() for row in rows_of(llama, text, arguments.steps)]
    print(markdown_table(["text", "clusters", "s", "KL at an eighth", "at a quarter"], rows))


if __name__ == "__main__":
    main()
