"""Measure what selection loses when real keys take the shapes of latent attention and of hybrids' long heads.

    python benchmarks/latent_selection.py TEXT [-m MODEL.gguf] [--depth 6000] [--budget 0.125]

Models of these shapes that recall what they read are too large for this machine, and random weights have no keys worth
selecting. So a model with ordinary heads reads a text, and its attention is computed again in other shapes that give
the same output where everything is read:

- own: the model's KV heads.
- long: one KV head, whose keys and values are those of all KV heads side by side, as in Qwen3.5's heads of 256. A query
  head has zeros where its keys are not.
- latent: one KV head, whose key is the values and then the keys of all KV heads. Its first part is its value.

One selection then serves all query heads, as it does in such models. Each method attends to a share of the document
for the next tokens of the text; its error is the distance of its output from that of dense attention, relative to the
length of that output.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from octavo.cli.render import markdown_table
from octavo.convert.clusters import ClusterSettings, cluster_layers
from octavo.evaluation.device_layer import DeviceLayer
from octavo.evaluation.prose import first_tokens
from octavo.runtime.devices.cpu_device import CpuDevice
from octavo.runtime.document.cache_layer import CacheLayer
from octavo.runtime.document.index import Index
from octavo.runtime.llama import Llama
from octavo.runtime.methods import DENSE
from octavo.runtime.methods.attention import DENSE_ATTENTION, Attention
from octavo.runtime.models.find_model import find_model
from octavo.runtime.query_recorder import QueryHead, Recorder

METHODS = ("squeezed", "squeezed2", "sketch", "quest")
SHAPES = ("own", "long", "latent")


class Captured(NamedTuple):
    """One layer's attention to a text."""

    keys: np.ndarray  # (KV heads, tokens, head_dim) f16: of the document, then of the steps
    values: np.ndarray
    queries: np.ndarray  # (KV heads, steps, group, head_dim) f32


def capture(llama: Llama, tokens: list[int], n_steps: int) -> list[Captured]:
    """Read tokens, the last ones one by one, and return the attention of each layer."""
    nodes, shapes = llama.context.nodes, llama.context.shapes
    sizes = [(number, node.n_kv_head, node.n_head // node.n_kv_head) for number, node in enumerate(nodes)]
    heads = [QueryHead(number, i, g) for number, n, group in sizes for i in range(n) for g in range(group)]
    llama.prefill(tokens[:-n_steps])
    llama.sequence.recorder = recorder = Recorder(nodes, shapes, heads)
    for token in tokens[-n_steps:]:
        llama.eval([token])
    steps = [np.stack(step) for step in recorder.steps]
    captured, first = [], 0
    for number, n, group in sizes:
        queries = np.stack([step[first : first + n * group] for step in steps], axis=1)
        first += n * group
        queries = queries.reshape(n, group, n_steps, -1).swapaxes(1, 2)
        captured.append(Captured(*llama.context.cache.rows(nodes[number].kv_layer), queries))
    return captured


def reshaped(layer: Captured, shape: str) -> tuple[CacheLayer, Captured]:
    """Return a layer's attention in another shape."""
    n, n_tokens, head_dim = layer.keys.shape
    group, n_steps = layer.queries.shape[2], layer.queries.shape[1]
    if shape == "own":
        return CacheLayer(n, head_dim, 0, group=group), layer
    keys, values = (each.transpose(1, 0, 2).reshape(1, n_tokens, -1) for each in (layer.keys, layer.values))
    queries = np.zeros((1, n_steps, n * group, n, head_dim), np.float32)
    for i in range(n):
        queries[0, :, i * group : (i + 1) * group, i] = layer.queries[i]
    queries = queries.reshape(1, n_steps, n * group, -1)
    if shape == "long":
        return CacheLayer(1, n * head_dim, 0, group=n * group), Captured(keys, values, queries)
    keys = np.concatenate([values, keys], axis=2)
    queries = np.concatenate([np.zeros_like(queries), queries], axis=3)
    empty = np.zeros((1, n_tokens, 0), np.float16)
    kind = CacheLayer(1, 2 * n * head_dim, 0, group=n * group, value_dim=n * head_dim, latent=True)
    return kind, Captured(keys, empty, queries)


def own_values(out: np.ndarray, n_kv_head: int) -> np.ndarray:
    """Return the part of each query head's output that comes from its own values, (steps, query heads, head_dim)."""
    n_steps, n_head, width = out.shape
    parts = out.reshape(n_steps, n_kv_head, n_head // n_kv_head, -1, width // n_kv_head)
    return np.stack([parts[:, i, :, i] for i in range(n_kv_head)], axis=1).reshape(n_steps, n_head, -1)


def index_of(kind: CacheLayer, layer: Captured, n_document: int) -> Index:
    """Return an index of a document of one layer."""
    rows = layer.keys[:, :n_document].copy(), layer.values[:, :n_document].copy()
    of_layers = SimpleNamespace(layers=[kind])  # all that clustering asks of a cache, when it is given the rows
    clustered = cluster_layers(of_layers, [0], ClusterSettings(), 2, lambda _: rows, n_document)  # type: ignore[arg-type]
    return Index(np.zeros(n_document, np.int32), list(clustered))


def outputs(kind: CacheLayer, layer: Captured, document: Index, attention: Attention) -> tuple[np.ndarray, float]:
    """Compute the steps' outputs under an attention; return them, and the share of the document's bytes read."""
    n_document, n_steps = len(document.tokens), layer.queries.shape[1]
    on_device = DeviceLayer(CpuDevice(), kind, attention.new_method(), n_document + n_steps, 1)
    on_device.cache.attach(document)
    out = []
    for step in range(n_steps):
        now = slice(step, step + 1), slice(n_document + step, n_document + step + 1)
        rows = (np.ascontiguousarray(each[:, now[1]]) for each in (layer.keys, layer.values))
        out.append(on_device.step(np.ascontiguousarray(layer.queries[:, now[0]]), *rows))
    n_bytes = on_device.cache.table.heads["bytes_read"].sum() / n_steps
    return np.concatenate(out), float(n_bytes / (kind.row_bytes * n_document))


def measure(layers: list[Captured], n_document: int, budget: float) -> Iterator[tuple[str, str, float, float]]:
    """Yield method, shape, error and share read of each layer."""
    for layer in layers:
        n = len(layer.keys)
        exact: np.ndarray | None = None
        for shape in SHAPES:
            kind, own = reshaped(layer, shape)
            document = index_of(kind, own, n_document)
            for name in (DENSE, *METHODS):
                attention = DENSE_ATTENTION if name == DENSE else Attention.parse(name, budget=budget)
                out, share = outputs(kind, own, document, attention)
                out = out if shape == "own" else own_values(out, n)
                exact = out if exact is None else exact
                lengths = np.linalg.norm(exact, axis=2)
                yield name, shape, float((np.linalg.norm(out - exact, axis=2) / lengths).mean()), share


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("-m", "--model")
    parser.add_argument("--depth", type=int, default=6000)
    parser.add_argument("--budget", type=float, default=0.125)
    parser.add_argument("--steps", type=int, default=16)
    arguments = parser.parse_args()
    n_tokens = arguments.depth + arguments.steps
    llama = Llama(find_model(arguments.model, print), attention=DENSE, n_ctx=n_tokens)
    tokens = first_tokens(llama, arguments.text, n_tokens)
    layers = capture(llama, tokens, arguments.steps)
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for name, shape, error, share in measure(layers, arguments.depth, arguments.budget):
        found.setdefault((name, shape), []).append((error, share))
    table = []
    for name in (DENSE, *METHODS):
        means = [np.mean(found[name, shape], axis=0) for shape in SHAPES]
        table.append([name, *(f"{error:.3f} ({share:.3f})" for error, share in means)])
    print(f"{arguments.depth:,} tokens, {len(layers)} layers: error of the output (share of the bytes read)\n")
    print(markdown_table(["method", *SHAPES], table))


if __name__ == "__main__":
    main()
