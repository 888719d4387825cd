"""Find the KV heads that must see everything, by greedy elimination of the others.

DuoAttention (Xiao et al. 2024, section 2.2) finds retrieval heads by gradients through a model that blends full and
streaming attention. This module needs forward passes only: it makes heads stream from a text's first token on, as in
use, and measures the model's loss on the tokens that it recalls.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from llama_cpp import _internals as internals

from ...runtime.cache.kv_cache import KVCache
from ...runtime.llama import Llama
from ...runtime.methods.streaming import Streaming
from .recall_texts import RecallText

#: Numbers of a layer and of one of its KV heads.
Head = tuple[int, int]

#: Names in llama.cpp's graphs: the last hidden state, after the final norm, and the logits.
HIDDEN, LOGITS = "result_norm", "result_output"


@dataclass(frozen=True)
class Elimination:
    """A head that was made to stream permanently.

    Parameters
    ----------
    loss : float
        Loss of the model when it streams with all heads that were eliminated in earlier rounds.
    """

    head: Head
    round: int
    loss: float


def full_heads(cache: KVCache) -> list[Head]:
    """List the heads whose window does not slide."""
    return [(i, head) for i, layer in enumerate(cache.layers) if not layer.window for head in range(layer.n_kv_head)]


def round_sizes(n_heads: int, rounds: int) -> list[int]:
    """Compute how many heads see everything before each round.

    The number shrinks by the same factor in each round. Each round eliminates at least one head, and the last round all
    remaining ones.
    """
    sizes = [n_heads]
    for i in range(1, rounds):
        n_left = min(round(n_heads ** (1 - i / rounds)), sizes[-1] - 1)
        if n_left < 1:
            break
        sizes.append(n_left)
    return sizes


def eliminate(
    heads: Sequence[Head], rounds: int, measure: Callable[[int, list[Head], list[Head]], Sequence[float]]
) -> list[Elimination]:
    """Make heads stream permanently, in the order of the least loss.

    Parameters
    ----------
    heads : sequence of Head
        Heads that see everything.
    measure : callable
        Takes the number of the round, the heads that stream already, and candidates. Returns for each candidate the
        loss when it streams too.

    Returns
    -------
    list of Elimination
        All heads, in the order of their elimination: the retrieval heads are the last ones.
    """
    eliminated: list[Elimination] = []
    left = list(heads)
    sizes = round_sizes(len(heads), rounds)
    for number, n_next in enumerate([*sizes[1:], 0]):
        losses = measure(number, [elimination.head for elimination in eliminated], left)
        order = sorted(zip(losses, left, strict=True))
        eliminated += [Elimination(head, number, loss) for loss, head in order[: len(left) - n_next]]
        left = sorted(head for _, head in order[len(left) - n_next :])
    return eliminated


@contextmanager
def streaming(cache: KVCache, heads: Collection[Head], n_sinks: int, n_recent: int) -> Iterator[None]:
    """Make some heads see only sinks and recent rows, temporarily: they keep all rows."""
    method = Streaming(sinks=n_sinks, recent=n_recent, positions="sequence")
    with cache.table.attending_by(method, [int(cache.table.first_heads[layer]) + head for layer, head in heads]):
        yield


def evaluate(
    llama: Llama,
    tokens: Sequence[int],
    outputs: np.ndarray,
    wants: Callable[[str], bool],
    take: Callable[[str, np.ndarray], bool],
    advance: Callable[[int], None] = lambda n: None,
) -> None:
    """Run tokens after those in the cache, and observe tensors of the graph (see `Context.observed`).

    Parameters
    ----------
    outputs : bool array, shape (n_tokens,)
        The tokens for which the last layer computes hidden states.
    wants : callable
        Takes the name of a tensor and returns whether to observe it.
    take : callable
        Takes the name and values of a tensor, and returns whether to compute the rest of the graph.
    advance : callable, optional
        Receives the number of tokens of each batch after it has run.
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
    """Run the second part of a text after the first, which the cache holds, and forget it again.

    Parameters
    ----------
    llama : Llama
        The model, after the first part of the text.

    Returns
    -------
    dict
        As HIDDEN, the hidden states that predict the recalled tokens: float32, shape (n, n_embd). As LOGITS, their
        logits: float32, shape (n, n_vocab).
    """
    outputs = np.zeros(len(text.tokens) - text.n_read, bool)
    outputs[text.recalled - 1 - text.n_read] = True
    last = LOGITS if logits else HIDDEN
    taken: dict[str, list[np.ndarray]] = {HIDDEN: [], LOGITS: []}

    def take(name: str, values: np.ndarray) -> bool:
        taken[name].append(values)
        return name != last

    llama.context.keep_state()
    evaluate(llama, text.tokens[text.n_read :], outputs, lambda name: name in (HIDDEN, last), take)
    llama.context.kv_cache_seq_rm(-1, text.n_read, -1)
    return {name: np.concatenate(values) for name, values in taken.items() if values}


def streaming_loss(llama: Llama, text: RecallText, heads: Collection[Head], n_sinks: int, n_recent: int) -> float:
    """Measure the loss on the recalled tokens when some heads stream through the whole text.

    Parameters
    ----------
    llama : Llama
        The model, which attends densely. It forgets its sequence.
    """
    llama.reset()
    with streaming(llama.context.cache, heads, n_sinks, n_recent):
        llama.eval(text.tokens[: text.n_read])
        logits = recall(llama, text, logits=True)[LOGITS]
        return cross_entropy(logits, np.array(text.tokens)[text.recalled])


def change(hidden: np.ndarray, full: np.ndarray) -> float:
    """Compute the mean squared change of hidden states from those with full attention, shape (n, n_embd) f32."""
    return float(np.square(hidden.astype(np.float64) - full).mean())


def cross_entropy(logits: np.ndarray, tokens: np.ndarray) -> float:
    """Compute the mean cross-entropy of tokens, (n,), under logits, (n, n_vocab) f32; in nats."""
    pairs = zip(logits.astype(np.float64), tokens, strict=True)
    return float(np.mean([np.logaddexp.reduce(row) - row[token] for row, token in pairs]))
