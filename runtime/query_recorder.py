"""Record the queries of some heads while a model answers, to find the rows of the document that they attended to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..cpu_kernels.numba_support.shape import Shape
from ..errors import OctavoError
from ..system.threads import one_thread
from .document.index import Index, IndexLayer
from .document.stored_rows import as_floats, capped_scores
from .graph.attention_nodes import AttentionNode

#: Tokens in a part of an answer: a long answer has several sources, each of which gives a part.
PART = 16

#: Share of a document's rows whose weights are computed, and number of rows for which they always are.
_WEIGHED, _FEWEST = 1 / 16, 1024


class QueryHead(NamedTuple):
    """A query head.

    Parameters
    ----------
    node : int
        Number of its attention node.
    kv_head : int
        Number of the KV head.
    member : int
        Number among the query heads that share the KV head.
    """

    node: int
    kv_head: int
    member: int


class Recorder:
    """Keep the queries of some heads, of one token of each step.

    Parameters
    ----------
    heads : sequence of QueryHead
        Heads to record; those of sliding layers are left out.

    Attributes
    ----------
    steps : list of lists
        The queries of each recorded step, (head_dim,) f32 for each head. An answer is predicted from the last one of
        its question.
    """

    def __init__(self, nodes: Sequence[AttentionNode], shapes: Sequence[Shape], heads: Sequence[QueryHead]) -> None:
        self._nodes, self._shapes = nodes, shapes
        self.heads = [head for head in heads if not nodes[head.node].window]
        self.steps: list[list[np.ndarray]] = []

    def arrays(self, n_tokens: int) -> list[np.ndarray | None]:
        """Return an array for each node that receives the scaled queries of a step; None for the others."""
        arrays: list[np.ndarray | None] = [None] * len(self._nodes)
        for number in {head.node for head in self.heads}:
            node, shape = self._nodes[number], self._shapes[number]
            arrays[number] = np.empty((node.n_kv_head, n_tokens, shape.group, shape.head_dim), np.float32)
        return arrays

    def take(self, arrays: Sequence[np.ndarray | None], token: int = -1) -> None:
        """Keep the queries of one token of a step from the arrays."""
        queries = {number: array[:, token] for number, array in enumerate(arrays) if array is not None}
        self.steps.append([queries[node][kv_head, member].copy() for node, kv_head, member in self.heads])

    def covers(self, document: Index) -> bool:
        """Return whether one of the heads sees a whole document. Heads that streamed while it was read do not."""
        return bool(self._covering(document))

    def _covering(self, document: Index) -> list[int]:
        layers = [document.layers[self._nodes[head.node].kv_layer] for head in self.heads]
        return [number for number, head in enumerate(self.heads) if head.kv_head in layers[number].heads]

    def attended(self, document: Index, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Compute the attention of some steps to each token of a document, beyond the attention of any token.

        The attention counts the document's tokens alone. The attention of any token is the average of the document's
        own last tokens: above all to its first tokens. In a document with clusters, rows are weighed exactly in the
        clusters whose centroids promise most; the others enter the sum by their centroids.

        Parameters
        ----------
        document : Index
            The document that was attached during the recording.
        start, stop : int
            Numbers of the steps, by default of all.

        Returns
        -------
        float32 array, shape (n_parts, n_tokens)
            The mean over the heads and the steps of each part of the answer; 0 for tokens that were not weighed, and
            without steps. Parts have `PART` steps or more, except the only part of a short answer.

        Raises
        ------
        OctavoError
            None of the heads sees the whole document.
        """
        used, steps = self._covering(document), self.steps[start:stop]
        if not used:
            raise OctavoError("Sources cannot be found: no head that retrieves sees the whole document.")
        paid = np.zeros((max(len(steps) // PART, 1), len(document.tokens)), np.float32)
        for number in used if steps else ():
            head = self.heads[number]
            layer = document.layers[self._nodes[head.node].kv_layer]
            place, softcap = layer.heads.index(head.kv_head), self._nodes[head.node].softcap
            queries = np.stack([step[number] for step in steps])
            with one_thread():
                rows, weights = _weights(layer, place, queries, softcap)
            mean = [weights[part].mean(axis=0) for part in np.array_split(np.arange(len(queries)), len(paid))]
            mass = layer.mass[place]
            usual = mass[rows] / max(float(mass.sum()), 1e-30)
            paid[:, layer.positions(place)[rows]] += (np.stack(mean) - usual) / len(used)
        return paid


def _weights(layer: IndexLayer, place: int, queries: np.ndarray, softcap: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of a layer's KV head with most attention, and each query's share of attention to them."""
    keys, starts = layer.keys[place], layer.cluster_starts[place]
    rows = np.arange(len(keys))
    rest = np.full((len(queries), 1), -np.inf, np.float32)
    if layer.n_clusters:
        sizes = np.diff(starts)
        promised = capped_scores(queries, layer.centroids[place].astype(np.float32), softcap)
        promised += np.log(np.maximum(sizes, 1), dtype=np.float32)
        best = (promised - promised.max(axis=1, keepdims=True)).max(axis=0)
        order = np.argsort(-best)
        is_weighed = np.zeros(len(sizes), bool)
        is_weighed[order[np.cumsum(sizes[order]) <= max(_WEIGHED * starts[-1], _FEWEST)]] = True
        rows = np.flatnonzero(np.concatenate([np.repeat(is_weighed, sizes), np.ones(len(keys) - starts[-1], bool)]))
        if not is_weighed.all():
            rest = np.logaddexp.reduce(promised[:, ~is_weighed], axis=1, keepdims=True)
    weights = capped_scores(queries, as_floats(keys[rows], layer.split), softcap)
    most = np.maximum(weights.max(axis=1, keepdims=True), rest)
    np.exp(weights - most, out=weights)
    weights /= weights.sum(axis=1, keepdims=True) + np.exp(rest - most)
    return rows, weights
