"""Measure what clusters over a whole document gain over clusters of its segments.

    python benchmarks/cluster_segments.py [-m MODEL] [--tokens 4000] [--texts 1] [--steps 48] [-t THREADS]

The texts are of the novel that octavo ships: of passkeys, which the model recalls after them, and of prose. The keys of
each are clustered in several ways. A row has the seconds of clustering (CPU time), and the KL divergence of the next
tokens from dense attention's with `squeezed` at an eighth and at a quarter of the bytes, as means over the texts.
`sketch` is below it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
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

#: More keys than a text has.
_ALL = 1 << 24

#: Ways to cluster: keys in a segment, iterations, and what K-means runs over.
WAYS = {f"segments of {keys:,} keys, 20 rounds": (keys, 20, "raw") for keys in (2048, 4096, 8192)}
WAYS |= {"segments of 8,192 keys, 10 rounds": (8192, 10, "raw"), "segments of 8,192 keys, 6 rounds": (8192, 6, "raw")}
WAYS |= {"whole, 10 rounds": (_ALL, 10, "raw"), "whole, normalised": (_ALL, 10, "normalised")}

BUDGETS = (0.125, 0.25)


def indexes(llama: Llama, document: list[int]) -> dict[str, tuple[Index, float]]:
    """Return the document's index by each way, and the seconds that clustering took."""
    llama.reset()
    llama.set_attention(DENSE_ATTENTION)
    last = clusters.settings_for("f16").n_queries(len(document))
    queries = pipeline.prefill(llama, document, Silent(), last)
    found = {}
    for way, (segment, n_iterations, keys) in WAYS.items():
        clusters._SEGMENT, clusters._ITERATIONS = segment, n_iterations
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


def measured(llama: Llama, text: RecallText, n_steps: int) -> dict[str, list[float]]:
    """Return for each way, and for `sketch`, the seconds of clustering, and the divergence at each budget."""
    document, tokens = text.tokens[: text.n_read], text.tokens[text.n_read : text.n_read + n_steps]
    made = indexes(llama, document)
    first = next(iter(made.values()))[0]
    expected = predictions(llama, DENSE_ATTENTION, first, tokens)

    def losses(method: str, index: Index) -> list[float]:
        attentions = [Attention(method, budget=budget) for budget in BUDGETS]
        return [kl_divergence(expected, predictions(llama, each, index, tokens)).mean() for each in attentions]

    found = {way: [seconds, *losses("squeezed", index)] for way, (index, seconds) in made.items()}
    return {**found, "sketch": [0.0, *losses("sketch", first)]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", type=Path)
    parser.add_argument("--tokens", type=int, default=4000)
    parser.add_argument("--texts", type=int, default=1)
    parser.add_argument("--steps", type=int, default=48)
    parser.add_argument("-t", "--threads", type=int, default=2)
    arguments = parser.parse_args()
    sizes = {"n_threads": arguments.threads, "n_threads_batch": arguments.threads}
    llama = Llama(arguments.model or default_model(), n_ctx=arguments.tokens + 512, **sizes)
    novel = Haystack(llama, SHIPPED_NOVEL.read_text("utf-8"))
    makers: dict[str, Callable[..., RecallText]] = {"passkeys": partial(recall_text, PASSKEYS), "prose": prose_text}
    rows = []
    for name, make in makers.items():
        texts = [make(novel, arguments.tokens, seed) for seed in range(arguments.texts)]
        found = [measured(llama, text, arguments.steps) for text in texts]
        for way in found[0]:
            seconds, *losses = np.mean([each[way] for each in found], axis=0)
            rows.append([name, way, f"{seconds:.1f}", *(f"{loss:.4f}" for loss in losses)])
    print(markdown_table(["text", "clusters", "s", "KL at an eighth", "at a quarter"], rows))


if __name__ == "__main__":
    main()
