"""Measure whether some layers need another quality of `sketch` than others, and what a plan of qualities would gain.

    python benchmarks/layer_qualities.py [-m MODEL] [--tokens 3000] [--steps 24] [-t THREADS]

On one text with passkeys and one of prose each layer in turn covers .2, .5, .8 and .99 of its attention, while the
others read everything. A layer's weight is the KL divergence of next-token distributions above that at .99, over
(1 - quality)^2. From weights and bytes follow the qualities that should lose least for the bytes of .95 and less. They
are tried on two other texts, beside equal qualities. All texts are of the novel that octavo ships.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

import numpy as np

from octavo.cli.render import markdown_table
from octavo.convert.plan.allocation import prose_text
from octavo.convert.plan.recall_texts import PASSKEYS, SHIPPED_NOVEL, Haystack, RecallText, recall_text
from octavo.evaluation.measures import kl_divergence, log_softmax
from octavo.runtime.document.index import Index
from octavo.runtime.llama import Llama
from octavo.runtime.methods import sketch
from octavo.runtime.methods.attention import DENSE_ATTENTION
from octavo.runtime.methods.method import Heads
from octavo.runtime.models.find_model import default_model

#: Qualities of one layer; of all layers; and those that a plan may give.
ALONE, EQUAL = (0.2, 0.5, 0.8, 0.99), (0.8, 0.9, 0.95, 0.98)
GIVEN = np.array([0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.93, 0.95, 0.97, 0.98, 0.99])

#: Shares of the bytes of .95 for which qualities are sought.
SHARES = (0.7, 0.8, 1.0)


class ByLayer(sketch.Sketch):
    """Sketch with a quality of each layer; 1 reads everything."""

    qualities = np.zeros(0)

    def before_step(self, heads: Heads, index: Index | None, n_tokens: int) -> None:
        super().before_step(heads, index, n_tokens)
        layer = heads.numbers * len(self.qualities) // len(heads.numbers)
        heads.state["quality"] = self.qualities[layer]
        heads.state["n_rows"][self.qualities[layer] >= 1] = n_tokens


class Reading:
    """A text in the cache of a model, and what dense attention predicts after it."""

    def __init__(self, llama: Llama, text: RecallText, n_steps: int) -> None:
        self.llama, self.tokens = llama, text.tokens[text.n_read : text.n_read + n_steps]
        llama.reset()
        llama.set_attention(DENSE_ATTENTION)
        llama.eval(text.tokens[: text.n_read])
        self.expected, self.n_bytes = self._predictions()
        llama.set_attention(f"{sketch.Sketch.name}:quality=0.95")

    def _predictions(self) -> tuple[np.ndarray, int]:
        n_read, rows = self.llama.n_tokens, []
        self.llama.context.bytes_read = 0
        for token in self.tokens:
            self.llama.eval([token])
            rows.append(log_softmax(self.llama.logits()))
        self.llama.rewind(n_read)
        return np.array(rows), self.llama.context.bytes_read

    def check(self, qualities: np.ndarray) -> tuple[float, float]:
        """Return the KL divergence from dense attention, and the share of its bytes that was read."""
        ByLayer.qualities = qualities
        predicted, n_bytes = self._predictions()
        return float(kl_divergence(self.expected, predicted).mean()), n_bytes / self.n_bytes


def alone(reading: Reading, n_layers: int) -> tuple[np.ndarray, np.ndarray]:
    """Return each layer's weight, and the share of its bytes that it reads at each of GIVEN."""
    weights, shares = np.zeros(n_layers), np.zeros((n_layers, len(GIVEN)))
    missing = (1 - np.array(ALONE[:-1])) ** 2
    for i in range(n_layers):
        found = [reading.check(np.where(np.arange(n_layers) == i, quality, 1.0)) for quality in ALONE]
        divergence, share = np.array(found).T
        weights[i] = max((divergence[:-1] - divergence[-1]) @ missing / (missing @ missing), 0)
        shares[i] = np.interp(GIVEN, ALONE, (share - 1) * n_layers + 1)
    return weights / weights.sum(), shares


def solved(weights: np.ndarray, shares: np.ndarray, least: float) -> np.ndarray:
    """Return the qualities that lose least for at most this share of the bytes of .95."""
    most, lost = least * shares[:, GIVEN.tolist().index(0.95)].sum(), weights[:, None] * (1 - GIVEN) ** 2
    for price in np.geomspace(1e-8, 10, 4000):
        chosen = (lost + price * shares).argmin(axis=1)
        if shares[np.arange(len(weights)), chosen].sum() <= most:
            break
    qualities: np.ndarray = GIVEN[chosen]
    return qualities


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", type=Path)
    parser.add_argument("--tokens", type=int, default=3000)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("-t", "--threads", type=int, default=2)
    arguments = parser.parse_args()
    sketch.Sketch = ByLayer  # type: ignore[misc]
    sizes = {"n_threads": arguments.threads, "n_threads_batch": arguments.threads}
    llama = Llama(arguments.model or default_model(), n_ctx=arguments.tokens + 512, **sizes)
    n_layers, novel = len(llama.context.cache.layers), Haystack(llama, SHIPPED_NOVEL.read_text("utf-8"))
    ByLayer.qualities = np.ones(n_layers)
    texts = [partial(recall_text, PASSKEYS, novel, arguments.tokens), partial(prose_text, novel, arguments.tokens)]
    measured = [alone(Reading(llama, text(seed=0), arguments.steps), n_layers) for text in texts]
    weights, shares = (np.mean(each, axis=0) for each in zip(*measured, strict=True))
    print(
        markdown_table(
            ["layer", "weight", "share of the bytes at .95"],
            [[str(i), f"{weights[i]:.3f}", f"{shares[i, GIVEN.tolist().index(0.95)]:.2f}"] for i in range(n_layers)],
        )
    )
    tried = {f"equal, {quality:g}": np.full(n_layers, quality) for quality in EQUAL}
    tried |= {f"by layer, {share:g} of the bytes of .95": solved(weights, shares, share) for share in SHARES}
    results: dict[str, list[tuple[float, float]]] = {name: [] for name in tried}
    for text in texts:
        reading = Reading(llama, text(seed=1), arguments.steps)
        for name, qualities in tried.items():
            results[name].append(reading.check(qualities))
    rows = [[name, *(f"{kl:.4f} at {share:.3f}" for kl, share in found)] for name, found in results.items()]
    print(markdown_table(["qualities", "passkeys: KL, at share read", "prose"], rows))


if __name__ == "__main__":
    main()
