"""Find which of many documents a question is about, by the attention of its words.

Retrieval heads (retrieval_heads.py) attend from a word to its earlier occurrences. So the words of a question, read
without any document, attend most to the keys of the document about the same subject.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

import numpy as np

from ...library.question_words import says_something
from ...runtime.document.cache_layer import Rope
from ...runtime.document.stored_rows import as_floats, capped_scores
from ...runtime.llama import Llama
from ...runtime.query_recorder import QueryHead


@dataclass(frozen=True)
class HeadQueries:
    """The queries of a question's words in one query head.

    Parameters
    ----------
    layer : int
        Number of the cached layer.
    queries : float32 array, shape (n_words, head_dim)
        The scaled queries, at the positions after `n_before` tokens.
    n_before : int
        Number of tokens before the question.
    rope : Rope or None
        RoPE of the queries; None if unknown.
    softcap : float
        Soft cap of the scores; 0 for none.
    split : int
        The split of stored keys (see stored_rows.py).
    """

    head: QueryHead
    layer: int
    queries: np.ndarray
    n_before: int
    rope: Rope | None
    softcap: float
    split: int = 0

    def best(
        self, keys: np.ndarray, order: np.ndarray, n_tokens: int, n_hidden: int = 0, n_piece: int = 0
    ) -> np.ndarray:
        """Return the highest score of each word with a key of each piece of a document.

        Parameters
        ----------
        keys : array, shape (n_keys, elements of a row)
            Keys of the document, as they are stored.
        order : int array, shape (n_keys,)
            Position of each key, from 0 to n_keys - 1.
        n_tokens : int
            Length of the document, before the question.
        n_hidden : int
            Number of first tokens that do not count.
        n_piece : int
            Tokens of a piece; 0 for a single piece.

        Returns
        -------
        float32 array, shape (n_words, n_pieces)
            -inf in a single piece without keys.
        """
        queries = self.queries if self.rope is None else self.rope.turned(self.queries, n_tokens - self.n_before)
        scores = capped_scores(queries, as_floats(keys, self.split), self.softcap)
        in_order = scores[:, np.argsort(order)[n_hidden:]]
        starts = np.arange(0, in_order.shape[1], n_piece or max(in_order.shape[1], 1))
        if not len(starts):
            return np.full((len(queries), 1), -np.inf, np.float32)
        best: np.ndarray = np.maximum.reduceat(in_order, starts, axis=1)
        return best


def read_question(
    llama: Llama,
    heads: Sequence[QueryHead],
    question: str,
    before: str,
    n_batch: Callable[[], int] | None = None,
) -> Generator[None, None, list[HeadQueries]]:
    """Read a question without a document, and return the queries of some heads. The model is empty afterwards.

    Words that say nothing about the subject have none, unless the question has no others.

    Parameters
    ----------
    heads : sequence of QueryHead
        The heads, without sliding layers'.
    before : str
        The question before, which is read first: the question may refer to it.
    n_batch : callable, optional
        Returns the number of tokens of the next batch, of a question that has more than one.

    Yields
    ------
    None
        After each batch. The model may compute other sequences then.

    Returns
    -------
    list of HeadQueries
        One for each head.
    """
    prompt, context = llama.prompt(), llama.context
    head, tokens = prompt.head(), prompt.first_question(f"{before}\n{question}" if before else question)
    stop = len(tokens) - len(prompt.tail())
    n_early = max(len(tokens) - llama.n_batch, 0)  # of a question longer than a batch the end counts
    start = max(stop - len(prompt.question(question)), n_early)
    says = [i for i in range(start, stop) if says_something(llama.piece(tokens[i]).decode(errors="replace"))]
    rows = np.array(says or range(start, stop), int) - n_early
    llama.reset()
    early = head + tokens[max(n_early - llama.n_ctx() // 2, 0) : n_early]
    while early:
        n_next = llama.n_batch if n_batch is None else n_batch()
        llama.prefill(early[:n_next])
        early = early[n_next:]
        yield
    with context.captured_queries(len(tokens) - n_early) as queries:
        llama.prefill(tokens[n_early:])
    llama.reset()
    made: list[HeadQueries] = []
    for each in heads:
        node = context.nodes[each.node]
        if not node.window:
            own = queries[each.node][each.kv_head, rows, each.member].copy()
            layer = context.cache.layers[node.kv_layer]
            made.append(HeadQueries(each, node.kv_layer, own, len(head), layer.rope, node.softcap, layer.split))
    return made


def attention_shares(scores: np.ndarray) -> np.ndarray:
    """Return each text's share of the attention of a question: float32, shape (n_texts,).

    Each word distributes its attention over the texts by the softmax of their highest scores. A word that occurs in all
    texts gives each about the same.

    Parameters
    ----------
    scores : float32 array, shape (n_heads, n_words, n_texts)
        Highest score of the word with a key of the text; -inf if the text has no key of the head.
    """
    highest = scores.max(axis=2, keepdims=True)
    weights = np.exp(scores - np.where(np.isfinite(highest), highest, 0))
    weights /= np.maximum(weights.sum(axis=2, keepdims=True), 1e-30)
    shares: np.ndarray = weights.mean(axis=(0, 1)) if weights.size else np.zeros(scores.shape[2], np.float32)
    return shares
