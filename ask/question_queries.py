"""Tell which of many documents a question is about, by what its words would attend in each.

The heads that retrieve (ask/retrieval_heads.py) look from a word to where it was written before. So the words of a
question, read without any document, attend most to the keys of the document that speaks of the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..runtime.document.rotation_angles import Rope
from ..runtime.document.stored_rows import as_floats
from ..runtime.document.thresholds import capped_scores
from ..runtime.llama import Llama
from ..runtime.query_recorder import QueryHead


@dataclass(frozen=True)
class HeadQueries:
    """Queries of a question's words in one query head.

    Parameters
    ----------
    head : QueryHead
        The head.
    layer : int
        Number of the cached layer that it attends to.
    queries : float32 array, shape (n_words, head_dim)
        The queries, scaled, at the positions that they have after `n_before` tokens.
    n_before : int
        How many tokens were before the question.
    rope : Rope or None
        How queries turn with the position; None if octavo does not know it.
    softcap : float
        Soft cap of the scores; 0 for none.
    """

    head: QueryHead
    layer: int
    queries: np.ndarray
    n_before: int
    rope: Rope | None
    softcap: float

    def best(
        self, keys: np.ndarray, order: np.ndarray, n_tokens: int, n_hidden: int = 0, n_piece: int = 0
    ) -> np.ndarray:
        """Return the highest score that each word gives to a key of each piece of a document.

        Parameters
        ----------
        keys : array, shape (n_keys, elements of a row)
            Keys of the document, as they are stored.
        order : int array, shape (n_keys,)
            Position of each, from 0 to n_keys - 1.
        n_tokens : int
            Length of the document, after which the question would stand.
        n_hidden : int
            How many of its first tokens do not count.
        n_piece : int
            Tokens of a piece; 0 for one piece of them all.

        Returns
        -------
        float32 array, shape (n_words, n_pieces)
            The scores; -inf in a single piece without keys.
        """
        queries = self.queries if self.rope is None else self.rope.turned(self.queries, n_tokens - self.n_before)
        scores = capped_scores(queries, as_floats(keys), self.softcap)
        in_order = scores[:, np.argsort(order)[n_hidden:]]
        starts = np.arange(0, in_order.shape[1], n_piece or max(in_order.shape[1], 1))
        if not len(starts):
            return np.full((len(queries), 1), -np.inf, np.float32)
        best: np.ndarray = np.maximum.reduceat(in_order, starts, axis=1)
        return best


def question_queries(llama: Llama, heads: Sequence[QueryHead], question: str) -> list[HeadQueries]:
    """Read a question without a document, and keep the queries of some heads.

    Parameters
    ----------
    llama : Llama
        The model. It is empty afterwards.
    heads : sequence of QueryHead
        The heads; those of layers whose window slides are left out.
    question : str
        The question.

    Returns
    -------
    list of HeadQueries
        One for each head.
    """
    prompt, context = llama.prompt(), llama.context
    head, tokens = prompt.head(), prompt.first_question(question)
    stop = len(tokens) - len(prompt.tail())
    n_early = max(len(tokens) - llama.n_batch, 0)  # of a question longer than a batch the end counts
    start = max(stop - len(prompt.question(question)), n_early)
    llama.reset()
    llama.read(head + tokens[:n_early])
    with context.captured_queries(len(tokens) - n_early) as queries:
        llama.read(tokens[n_early:])
    llama.reset()
    made: list[HeadQueries] = []
    for each in heads:
        node = context.nodes[each.node]
        if not node.window:
            own = queries[each.node][each.kv_head, start - n_early : stop - n_early, each.member].copy()
            rope = context.cache.layers[node.kv_layer].rope
            made.append(HeadQueries(each, node.kv_layer, own, len(head), rope, node.softcap))
    return made


def attention_shares(scores: np.ndarray) -> np.ndarray:
    """Return how the attention of a question is shared by texts: float32, shape (n_texts,).

    Each word of the question gives its attention to texts by the softmax of their highest scores. A word that stands
    in all texts gives each about the same.

    Parameters
    ----------
    scores : float32 array, shape (n_heads, n_words, n_texts)
        Highest score that a key of the document, or of the piece, gets from the word; -inf where it has no key of the
        head.
    """
    highest = scores.max(axis=2, keepdims=True)
    weights = np.exp(scores - np.where(np.isfinite(highest), highest, 0))
    weights /= np.maximum(weights.sum(axis=2, keepdims=True), 1e-30)
    shares: np.ndarray = weights.mean(axis=(0, 1)) if weights.size else np.zeros(scores.shape[2], np.float32)
    return shares
