"""Which KV heads must see everything: greedy elimination, and the measure that it goes by.

DuoAttention (Xiao et al. 2024) finds retrieval heads by gradients through a model that blends full and streaming
attention. Here heads are made to stream, and what that changes is measured: only forward passes, over the last tokens
of a text whose keys and values are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from llama_cpp import _internals as internals

from ...cpu_kernels.methods.streaming import native_select_recent
from ...runtime.cache.kv_cache import KVCache
from ...runtime.llama import Llama
from .recall_texts import RecallText

Head = tuple[int, int]

#: Names in llama.cpp's graphs: the last hidden state, after the final norm, and the logits.
HIDDEN, LOGITS = "result_norm", "result_output"


@dataclass(frozen=True)
class Fall:
    """One head's end: who, in which round, and what its streaming changed then."""

    head: Head
    round: int
    loss: float


def full_heads(cache: KVCache) -> list[Head]:
    """The (layer, head) of all heads that see everything."""
    return [(i, head) for i, layer in enumerate(cache.layers) if not layer.window for head in range(layer.n_kv_head)]


def round_sizes(n_heads: int, rounds: int) -> list[int]:
    """Heads that are still full before each round: from round to round they shrink by the same factor, to one.

    At least one falls in each, and in the last all that are left.
    """
    sizes = [n_heads]
    for i in range(1, rounds):
        left = min(round(n_heads ** (1 - i / rounds)), sizes[-1] - 1)
        if left < 1:
            break
        sizes.append(left)
    return sizes


def eliminate(
    heads: Sequence[Head], rounds: int, measure: Callable[[int, list[Head], list[Head]], Sequence[float]]
) -> list[Fall]:
    """Let heads stream for good, those first whose streaming changes least.

    measure(round, streaming, candidates) : for each candidate what changes when it streams as well
    """
    fallen: list[Fall] = []
    left = list(heads)
    sizes = round_sizes(len(heads), rounds)
    for number, n_next in enumerate([*sizes[1:], 0]):
        losses = measure(number, [fall.head for fall in fallen], left)
        order = sorted(zip(losses, left, strict=True))
        fallen += [Fall(head, number, loss) for loss, head in order[: len(left) - n_next]]
        left = sorted(head for _, head in order[len(left) - n_next :])
    return fallen


@contextmanager
def streaming(cache: KVCache, heads: Collection[Head], n_sinks: int, n_recent: int) -> Iterator[None]:
    """Have some heads see sinks and recent rows only. They keep everything, and see it again afterwards."""
    fields = ("select", "n_sinks", "n_recent")
    before = {name: cache.heads[name].copy() for name in fields}
    for layer, head in heads:
        address = native_select_recent(cache.layers[layer].shape).address
        for name, value in zip(fields, (address, n_sinks, n_recent), strict=True):
            cache.layer_heads(layer)[name][head] = value
    try:
        yield
    finally:
        for name, values in before.items():
            cache.heads[name] = values


def evaluate(
    llama: Llama,
    tokens: Sequence[int],
    outputs: np.ndarray,
    wants: Callable[[str], bool],
    take: Callable[[str, np.ndarray], bool],
    advance: Callable[[int], None] = lambda n: None,
) -> None:
    """Run tokens that follow what the cache holds, and look at the graph (see `Context.observed`).

    outputs : (n_tokens,) bool, for which of them the last layer ends in something
    """
    context, done = llama.context, 0
    while done < len(tokens):
        piece = tokens[done : done + llama.n_batch]
        batch = internals.LlamaBatch(n_tokens=len(piece), embd=0, n_seq_max=1, verbose=False)
        try:
            batch.set_batch(piece, context.cache.n_tokens, True)
            for i in np.flatnonzero(~outputs[done : done + len(piece)]):
                batch.batch.logits[int(i)] = 0
            with context.observed(wants, take):
                context.decode(batch)
        finally:
            batch.close()
        done += len(piece)
        advance(len(piece))


def recall(llama: Llama, text: RecallText, logits: bool = False) -> dict[str, np.ndarray]:
    """Run a text's last part after its first, and forget it again.

    Gives the hidden states that the recalled tokens are predicted from, (n, n_embd), and with `logits` their logits.
    """
    outputs = np.zeros(len(text.tokens) - text.n_read, bool)
    outputs[text.recalled - 1 - text.n_read] = True
    last = LOGITS if logits else HIDDEN
    taken: dict[str, list[np.ndarray]] = {HIDDEN: [], LOGITS: []}

    def take(name: str, values: np.ndarray) -> bool:
        taken[name].append(values)
        return name != last

    evaluate(llama, text.tokens[text.n_read :], outputs, lambda name: name in (HIDDEN, last), take)
    llama.context.kv_cache_seq_rm(-1, text.n_read, -1)
    return {name: np.concatenate(values) for name, values in taken.items() if values}


def change(hidden: np.ndarray, full: np.ndarray) -> float:
    """Mean squared change of hidden states."""
    return float(np.square(hidden.astype(np.float64) - full).mean())
