"""Measure what each rule of SparQ does to the output of attention: its error against full attention in float64.

    python benchmarks/sparq_rules.py [--tokens 2048] [--queries 16] [--text examples/emma.txt] [-m MODEL]

The error is the distance of a token's attention output from that of full attention, over the length of that, averaged
over query heads, layers and the text's last tokens. Each row of the table changes what it says of our own SparQ, and
nothing else. All read the same share of the bytes. Keys, values and queries are those of
- a model of random weights with as many KV heads as query heads (MHA), which this writes into a temporary folder;
- a real model (SmolLM2), where each query head has its KV head's keys to itself, as if it were MHA;
- that model as it is (GQA).
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from write_random_llama import Sizes, write_model

import octavo
from octavo.cli.render import markdown_table
from octavo.evaluation.device_layer import DeviceLayer
from octavo.runtime.cache.tail import CacheLayer
from octavo.runtime.devices.cpu_device import CpuDevice
from octavo.runtime.methods.compose import parse
from octavo.runtime.methods.method import Method
from octavo.runtime.models.find_model import default_model

BUDGETS = (0.25, 0.125)
SETTINGS = (
    "reallocate=off",
    "reallocate=on",
    "reallocate=off,components=query",
    "reallocate=on,components=query",
    "reallocate=off,temperature=l1",
    "reallocate=on,temperature=l1",
    "reallocate=off,components=query,temperature=l1",
    "reallocate=on,components=query,temperature=l1",
    "reallocate=off,recent=0",
    "reallocate=off,select=head",
    "reallocate=on,select=head",
    "reallocate=off,k=128",
)
MHA = Sizes(
    n_layer=4,
    n_embd=512,
    n_ff=1024,
    n_head=8,
    n_kv_head=8,
    head_dim=64,
    n_vocab=512,
    n_ctx=8192,
    rope_base=10_000.0,
)


@dataclass(frozen=True)
class Attended:
    """What a text's last tokens attend in one layer.

    Parameters
    ----------
    keys, values : float16 arrays, shape (n_kv_head, n_rows, head_dim)
        All rows.
    queries : float32 array, shape (n_kv_head, n_tokens, group, head_dim)
        Scaled queries of the last tokens.
    """

    keys: np.ndarray
    values: np.ndarray
    queries: np.ndarray

    @property
    def as_mha(self) -> Attended:
        """Return the same, with a KV head of its own for each query head."""
        n_kv_head, n_tokens, group, head_dim = self.queries.shape
        queries = self.queries.transpose(0, 2, 1, 3).reshape(n_kv_head * group, n_tokens, 1, head_dim)
        return Attended(self.keys.repeat(group, axis=0), self.values.repeat(group, axis=0), queries.copy())

    @cached_property
    def expected(self) -> list[np.ndarray]:
        """Return full attention of each token, (n_head, head_dim) float64: softmax(q . k) v."""
        n_tokens, n_rows, outputs = self.queries.shape[1], self.keys.shape[1], []
        keys, values = self.keys.astype(np.float64), self.values.astype(np.float64)
        for i in range(n_tokens):
            stop = n_rows - n_tokens + i + 1
            scores = self.queries[:, i].astype(np.float64) @ keys[:, :stop].transpose(0, 2, 1)
            weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
            out = weights / weights.sum(axis=-1, keepdims=True) @ values[:, :stop]
            outputs.append(out.reshape(-1, out.shape[-1]))
        return outputs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", type=Path)
    parser.add_argument("--text", type=Path, default=Path(__file__).parent.parent / "examples" / "emma.txt")
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--queries", type=int, default=16)
    arguments = parser.parse_args()
    text = arguments.text, arguments.tokens, arguments.queries
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mha.gguf"
        write_model(path, MHA)
        random = captured(path, *text)
    real = captured(arguments.model or default_model(), *text)
    sources = {"random, MHA": random, "real, as MHA": [layer.as_mha for layer in real], "real, GQA": real}
    header = ["sparq:", *(f"{name}, {budget:g}" for name in sources for budget in BUDGETS)]
    rows = []
    for settings in SETTINGS:
        errors = []
        for layers in sources.values():
            for budget in BUDGETS:
                method = parse(f"sparq:{settings}").new_method(budget)
                errors.append(np.mean([errors_of(layer, method) for layer in layers]))
        rows.append([settings, *(f"{error:.3f}" for error in errors)])
    print(markdown_table(header, rows))


def captured(model: Path, text: Path, n_tokens: int, n_queries: int) -> list[Attended]:
    """Return what each layer of a model attends at the end of a text's first n_tokens tokens."""
    llama = octavo.Llama(model, n_ctx=n_tokens, attention="dense", verbose=False)
    tokens = llama.tokenize(text.read_bytes()[: 8 * n_tokens])[:n_tokens]
    llama.eval(tokens[:-n_queries])
    with llama.context.captured_queries(n_queries) as queries:
        llama.eval(tokens[-n_queries:])
    stored = [llama.context.cache.rows(layer) for layer in range(len(queries))]
    return [Attended(keys, values, own) for (keys, values), own in zip(stored, queries, strict=True)]


def errors_of(attended: Attended, method: Method) -> np.ndarray:
    """Return the relative error of each token's and query head's output: (n_tokens, n_head)."""
    n_kv_head, n_tokens, group, head_dim = attended.queries.shape
    n_rows = attended.keys.shape[1]
    layer = DeviceLayer(CpuDevice(), CacheLayer(n_kv_head, head_dim, 0, group=group), method, n_rows, 1)
    before = slice(n_rows - n_tokens)
    layer.cache.append_rows([(attended.keys[:, before], attended.values[:, before])])
    errors = []
    for i in range(n_tokens):
        new = slice(before.stop + i, before.stop + i + 1)
        queries, expected = attended.queries[:, i : i + 1].copy(), attended.expected[i]
        out = layer.step(queries, attended.keys[:, new].copy(), attended.values[:, new].copy())[0]
        errors.append(np.linalg.norm(out - expected, axis=1) / np.linalg.norm(expected, axis=1))
    return np.array(errors)


if __name__ == "__main__":
    main()
