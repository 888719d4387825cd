"""Measure how good a plan's order of heads is: a model recalls passkeys of another novel while some heads stream.

    python benchmarks/retrieval_heads.py -m MODEL --novel NOVEL.txt [--texts 4] [--tokens 8192]
        [--orders elimination,mass,random] [--prefill exact|chunk|full]

Run `octavo profile --heads -m MODEL` first. Retrieval heads are chosen in three orders: the plan's, by the attention
that heads pay to a passkey while the model recalls it, and at random. The table shows the share of passkeys of which
the model predicts every token, given the right tokens before it, and the share of all their tokens. Heads stream from
the first token on, as in use; --prefill chunk has batches see all of themselves. With --prefill full a text is read
once with full attention, and heads stream while the model recalls.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from octavo.cli.render import markdown_table
from octavo.convert.plan.heads import HIDDEN, LOGITS, Head, evaluate, full_heads, recall, streaming
from octavo.convert.plan.recall_texts import PASSKEYS, SHIPPED_NOVEL, Haystack, RecallText, passkey_text, recall_text
from octavo.runtime.llama import Llama
from octavo.runtime.store.model_library import Library
from octavo.runtime.store.plan import Plan

SHARES = (0.5, 0.25)
RANDOM_ORDERS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", required=True, type=Path)
    parser.add_argument("--novel", required=True, type=Path, help="a text with empty lines between paragraphs")
    parser.add_argument("--index-dir", type=Path)
    parser.add_argument("--texts", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--orders", default="elimination,mass,random")
    parser.add_argument("--prefill", choices=["exact", "chunk", "full"], default="exact")
    parser.add_argument("-t", "--threads", type=int, default=2)
    arguments = parser.parse_args()
    plan = Library.of(arguments.model, arguments.index_dir).plan()
    threads = {"n_threads": arguments.threads, "n_threads_batch": arguments.threads}
    llama = Llama(arguments.model, **threads)
    texts = held_out(llama, arguments.novel, arguments.texts, arguments.tokens)
    kept = settings(llama, plan, arguments.orders.split(","))
    right: dict[str, list[np.ndarray]] = {name: [] for name in kept}
    for text in texts:
        llama.reset()
        if arguments.prefill == "full":
            read(llama, text)
        for name, heads in kept.items():
            if arguments.prefill != "full":
                eliminated = [head for head in plan.elimination if head not in heads]
                share = max(len(heads) - 0.5, 0) / len(plan.elimination)  # the runtime rounds up
                own = replace(plan, elimination=(*eliminated, *heads), retrieval_heads=share)
                attention = f"duo:prefill={arguments.prefill}"
                with_duo = Llama(arguments.model, attention=attention, plan=own, **threads)
                read(with_duo, text)
                right[name] += recalled(with_duo, text)
                with_duo.close()
            else:
                others = set(plan.elimination) - set(heads)
                with streaming(llama.context.cache, others, plan.n_sinks, plan.n_recent):
                    right[name] += recalled(llama, text)
    n_passkeys = sum(len(text.passkeys) for text in texts)
    columns = "retrieval heads", f"passkeys recalled whole, of {n_passkeys}", "tokens"
    rows = (
        [name, f"{np.mean([key.all() for key in keys]):.3f}", f"{np.concatenate(keys).mean():.3f}"]
        for name, keys in right.items()
    )
    print(markdown_table(columns, rows))


def held_out(llama: Llama, novel: Path, n_texts: int, n_tokens: int) -> list[RecallText]:
    """Hide passkeys in another novel, of words that the plan's passkeys did not have."""
    known = set(Haystack(llama, SHIPPED_NOVEL.read_text("utf-8")).words)
    haystack = Haystack(llama, novel.read_text("utf-8"))
    words = [word for word in haystack.common_words if word not in known]
    return [passkey_text(haystack, n_tokens, np.random.default_rng(1000 + i), words) for i in range(n_texts)]


def settings(llama: Llama, plan: Plan, wanted: Sequence[str]) -> dict[str, Sequence[Head]]:
    """Return the retrieval heads of each row of the table."""
    rng, heads = np.random.default_rng(0), full_heads(llama.context.cache)
    orders: dict[str, Sequence[Head]] = {}
    if "elimination" in wanted:
        orders["elimination (the plan)"] = plan.elimination
    if "mass" in wanted:
        orders["attention mass"] = by_mass(llama, heads)
    if "random" in wanted:
        orders |= {f"random, {i + 1}": [heads[j] for j in rng.permutation(len(heads))] for i in range(RANDOM_ORDERS)}
    kept: dict[str, Sequence[Head]] = {"100 %": heads}
    for share in SHARES:
        kept |= {f"{share:.0%}, {name}": order[-int(np.ceil(share * len(order))) :] for name, order in orders.items()}
    return kept | {"none": []}


def by_mass(llama: Llama, heads: Sequence[Head], n_texts: int = 2, n_tokens: int = 4096) -> list[Head]:
    """Sort heads by the attention that they pay to a passkey while it is recalled, in the plan's texts; most last."""
    haystack = Haystack(llama, SHIPPED_NOVEL.read_text("utf-8"))
    mass = dict.fromkeys(heads, 0.0)
    for seed in range(n_texts):
        text = recall_text(PASSKEYS, haystack, n_tokens, seed)
        llama.reset()
        read(llama, text)
        tokens = text.tokens[text.n_read :]
        with llama.context.captured_queries(len(tokens)) as queries:
            evaluate(llama, tokens, np.ones(len(tokens), bool), lambda name: name == HIDDEN, lambda name, _: False)
        predicting, sources = text.recalled - 1, text.sources
        key_of = np.repeat(np.arange(len(text.passkeys)), [len(key) for key in text.passkeys])
        for node, captured in zip(llama.context.nodes, queries, strict=True):
            keys = llama.context.cache.rows(node.kv_layer)[0].astype(np.float32)
            for head in range(node.n_kv_head):
                if (node.kv_layer, head) not in mass:
                    continue
                for passkey in range(len(text.passkeys)):
                    own = np.flatnonzero(key_of == passkey)
                    queries_of_head = captured[head, predicting[own] - text.n_read]
                    mass[node.kv_layer, head] += attention_paid(
                        queries_of_head, predicting[own], keys[head], sources[own]
                    )
    return sorted(heads, key=lambda head: mass[head])


def attention_paid(queries: np.ndarray, positions: np.ndarray, keys: np.ndarray, sources: np.ndarray) -> float:
    """Return the mean share of the attention that goes to some rows.

    Parameters
    ----------
    queries : float32 array, shape (n, group, head_dim)
        Scaled queries of the tokens at `positions`.
    positions : int64 array, shape (n,)
        Positions of these tokens.
    keys : float32 array, shape (n_rows, head_dim)
        Keys of the head.
    sources : int64 array, shape (m,)
        Positions of the rows.
    """
    scores = queries.transpose(1, 0, 2) @ keys.T
    scores[:, np.arange(len(keys)) > positions[:, None]] = -np.inf
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    share = weights[..., sources].sum(axis=-1) / weights.sum(axis=-1)
    return float(share.mean())


def read(llama: Llama, text: RecallText) -> None:
    """Read the first part of a text."""
    llama.eval(text.tokens[: text.n_read])


def recalled(llama: Llama, text: RecallText) -> list[np.ndarray]:
    """Return for each passkey which of its tokens the model predicts."""
    right = recall(llama, text, logits=True)[LOGITS].argmax(axis=1) == np.array(text.tokens)[text.recalled]
    bounds = np.cumsum([len(key) for key in text.passkeys])[:-1]
    return np.split(right, bounds)


if __name__ == "__main__":
    main()
