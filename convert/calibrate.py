"""Measure the mass of a document's rows on the queries of its last tokens, and keep these queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..cpu_kernels.layout.head import ANY_ORDER
from ..runtime.document.index import Index, IndexLayer, LastQueries, no_mass
from ..runtime.document.stored_rows import as_floats, capped_scores
from ..runtime.llama import Llama


def calibrate(llama: Llama, layers: Sequence[IndexLayer], queries: list[np.ndarray], tokens: list[int]) -> Index:
    """Make the index of a document from its layers.

    Parameters
    ----------
    layers : sequence of IndexLayer
        The document's layers, clustered or whole. Their mass is measured anew.
    queries : list of float32 arrays, shape (n_kv_head, n_queries, group, head_dim)
        For each attention node, the queries of the document's last tokens (`Context.captured_queries`).
    tokens : list of int
        The document's tokens, the prompt's head included.

    Returns
    -------
    Index
        The index in memory, with the mass of its rows and, if there are clusters, the second half of the queries, to
        measure thresholds on when an attention needs them (runtime/document/thresholds.py). The first half's nearest
        tokens are in clusters; those of the second half, and of all that follows the document, are always attended.
    """
    from threadpoolctl import ThreadpoolController

    kept: list[LastQueries] = []
    blas = ThreadpoolController().select(user_api="blas")
    mass = [no_mass(layer.keys) for layer in layers]
    for node, captured in zip(llama.context.nodes, queries, strict=True):
        if llama.context.cache.layers[node.kv_layer].window:
            continue
        layer = layers[node.kv_layer]
        queries_of_heads = captured[layer.heads]
        with blas.limit(limits=1):  # sums are rounded by how many threads share them
            mass[node.kv_layer] += attention_mass(layer, queries_of_heads, node.softcap)
        if layer.n_clusters:
            half = queries_of_heads[:, queries_of_heads.shape[1] // 2 :].astype(np.float16)
            kept.append(LastQueries(node.kv_layer, node.softcap, half))
    measured = [replace(layer, mass=row_mass) for layer, row_mass in zip(layers, mass, strict=True)]
    state = llama.context.state()
    states = [] if state is None else [state._replace(n_tokens=len(tokens))]
    return Index(np.asarray(tokens, np.int32), measured, kept, states=states)


def attention_mass(layer: IndexLayer, queries: np.ndarray, softcap: float) -> np.ndarray:
    """Add up the attention that each row gets from the queries that see it. Learned sinks take no part in the softmax.

    Parameters
    ----------
    queries : float32 array, shape (n_kv_head, n_queries, group, head_dim)
        Queries of the last tokens, already scaled, of the KV heads that the layer's arrays hold.
    softcap : float
        Soft cap of the scores; 0 for none.

    Returns
    -------
    float32 array, shape (n_kv_head, n_rows)
        The sum over the last tokens and the group's query heads, for each row in stored order.
    """
    n_rows, n_queries = layer.keys.shape[1], queries.shape[1]
    first = n_rows - n_queries
    mass = np.zeros(layer.mass.shape, np.float32)
    for head, of_head in enumerate(queries):
        keys = as_floats(layer.keys[head], layer.split)
        positions = layer.order[head] if layer.position == ANY_ORDER else np.arange(n_rows)
        late = np.flatnonzero(positions > first)  # not seen by all of the queries
        unseen = positions[late] > first + np.arange(n_queries)[:, None]
        for of_query_head in of_head.swapaxes(0, 1):
            scores = capped_scores(of_query_head, keys, softcap)
            scores[:, late] = np.where(unseen, -np.inf, scores[:, late])
            scores -= scores.max(axis=1, keepdims=True)
            np.exp(scores, out=scores)
            mass[head] += (1 / scores.sum(axis=1)) @ scores
    return mass
