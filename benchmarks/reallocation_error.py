"""Measure what reallocation to the mean value does to SparQ's output, where it is on and where it is off.

    python benchmarks/reallocation_error.py [--text examples/emma.txt] [--tokens 2048] [--queries 16]

The error is that of a token's attention output: its distance from full attention in float64, over the length of that,
averaged over query heads and tokens. Budgets are 1/4 and 1/8, components and temperature ours or the paper's. Keys,
values and queries come from
- a model of random weights with as many KV heads as query heads (MHA), which this writes into a temporary folder;
- SmolLM2 over 700 tokens of a novel (tests/data/smollm2.npz): an early and a late layer. Each of a KV head's three
  query heads has the keys to itself (MHA), or they share them (GQA).
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from write_random_llama import Sizes, write_model

import octavo
from octavo.cli.render import markdown_table
from octavo.evaluation.device_layer import DeviceLayer
from octavo.runtime.cache.tail import CacheLayer
from octavo.runtime.devices.cpu import CpuDevice
from octavo.runtime.methods.sparq import SparQ

ROOT = Path(__file__).parent.parent
BUDGETS = (0.25, 0.125)
RULES = {"ours": {}, "paper's": {"components": "query", "temperature": "l1"}}
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
    """What some tokens of a sequence attend.

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, default=ROOT / "examples" / "emma.txt")
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--queries", type=int, default=16)
    arguments = parser.parse_args()
    sources = {
        "random weights, MHA": random_weights(arguments.text, arguments.tokens, arguments.queries),
        **smollm2(ROOT / "tests" / "data" / "smollm2.npz"),
    }
    header = ["keys and queries of", "rules", "budget", "reallocation off", "on"]
    rows = []
    for name, layers in sources.items():
        for rules, settings in RULES.items():
            for budget in BUDGETS:
                errors = [mean_error(layers, SparQ(budget, reallocate=each, **settings)) for each in ("off", "on")]
                rows.append([name, rules, f"{budget:g}", *(f"{error:.3f}" for error in errors)])
    print(markdown_table(header, rows))


def random_weights(text: Path, n_tokens: int, n_queries: int) -> list[Attended]:
    """Return what each layer of a model of random weights attends at the end of a text. Its tokens are bytes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mha.gguf"
        write_model(path, MHA)
        llama = octavo.Llama(path, n_ctx=n_tokens, attention="dense", verbose=False)
        tokens = llama.tokenize(text.read_bytes()[:n_tokens])[:n_tokens]
        llama.eval(tokens[:-n_queries])
        with llama.context.captured_queries(n_queries) as captured:
            llama.eval(tokens[-n_queries:])
        stored = [llama.context.cache.rows(layer) for layer in range(MHA.n_layer)]
        return [Attended(keys, values, queries) for (keys, values), queries in zip(stored, captured, strict=True)]


def smollm2(saved: Path) -> dict[str, list[Attended]]:
    """Return what two KV heads of SmolLM2 attend, with a query head each, and with the three that they have."""
    data, sources = np.load(saved), {}
    for layer, place in enumerate(("an early", "a late")):
        keys, values = data["keys"][layer], data["values"][layer]
        queries = data["queries"][layer][:, :3].astype(np.float32)  # (n_tokens, group, head_dim)
        alone = Attended(np.stack([keys] * 3), np.stack([values] * 3), queries.transpose(1, 0, 2)[:, :, None].copy())
        sources[f"{place} layer of SmolLM2, as MHA"] = [alone]
        sources[f"{place} layer of SmolLM2, GQA"] = [Attended(keys[None], values[None], queries[None].copy())]
    return sources


def mean_error(layers: list[Attended], method: SparQ) -> float:
    """Return the mean relative error of a method's output over query heads, tokens and layers."""
    return float(np.mean([errors_of(layer, method) for layer in layers]))


def errors_of(attended: Attended, method: SparQ) -> np.ndarray:
    """Return the relative error of each token and query head: (n_tokens, n_head)."""
    n_kv_head, n_tokens, group, head_dim = attended.queries.shape
    n_rows = attended.keys.shape[1]
    layer = DeviceLayer(CpuDevice(), CacheLayer(n_kv_head, head_dim, 0, group=group), method, n_rows, n_rows)
    n_before = n_rows - n_tokens
    nothing = np.zeros((n_kv_head, n_before, group, head_dim), np.float32)
    layer.step(nothing, attended.keys[:, :n_before].copy(), attended.values[:, :n_before].copy())
    errors = []
    for i in range(n_tokens):
        new = slice(n_before + i, n_before + i + 1)
        queries = attended.queries[:, i : i + 1]
        out = layer.step(queries.copy(), attended.keys[:, new].copy(), attended.values[:, new].copy())[0]
        expected = full_attention(queries[:, 0], attended.keys[:, : new.stop], attended.values[:, : new.stop])
        errors.append(np.linalg.norm(out - expected, axis=1) / np.linalg.norm(expected, axis=1))
    return np.array(errors)


def full_attention(queries: np.ndarray, keys: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Compute softmax(q . k) v in float64: (n_head, head_dim)."""
    scores = np.einsum("hgd,hnd->hgn", queries.astype(np.float64), keys.astype(np.float64))
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    out: np.ndarray = np.einsum("hgn,hnd->hgd", weights, values.astype(np.float64))
    return out.reshape(-1, out.shape[-1])


if __name__ == "__main__":
    main()
