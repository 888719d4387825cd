"""Measure clustered layers on the queries of a document's last tokens: thresholds for each budget, mass of each row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..cpu_kernels.head import ANY_ORDER
from ..runtime.cache.index import Index, IndexLayer
from ..runtime.cache.rows import as_floats
from ..runtime.llama import Llama
from .clusters import ClusterSettings, no_mass
from .thresholds import OTHER_CALIBRATIONS, NodeQueries, capped_scores, one_level_curve, two_level_curve


def calibrate(
    llama: Llama,
    layers: Sequence[IndexLayer],
    queries: list[np.ndarray],
    tokens: list[int],
    settings: ClusterSettings,
) -> Index:
    """Make the index of a document from its layers.

    Parameters
    ----------
    llama : Llama
        The model, for its attention nodes and the layers of its cache.
    layers : sequence of IndexLayer
        The document's layers, clustered or whole. Their mass is measured anew.
    queries : list of float32 arrays, shape (n_kv_head, n_queries, group, head_dim)
        For each attention node the queries of the document's last tokens, as `Context.captured_queries` gives them.
    tokens : list of int
        The document's tokens, the prompt's head included.
    settings : ClusterSettings
        How the layers were clustered.

    Returns
    -------
    Index
        The index in memory, with the mass of its rows and, if there are clusters, the thresholds for each budget.
    """
    n_heads = [layer.n_kv_head for layer in llama.context.cache.layers]
    clustered: list[NodeQueries] = []
    mass = [no_mass(layer.keys) for layer in layers]
    for node, captured in zip(llama.context.nodes, queries, strict=True):
        if llama.context.cache.layers[node.kv_layer].window:
            continue
        first_head = sum(n_heads[: node.kv_layer])
        layer = layers[node.kv_layer]
        of_node = NodeQueries(layer, first_head, captured[layer.heads], node.softcap)
        mass[node.kv_layer] += attention_mass(of_node)
        if of_node.layer.n_clusters:
            clustered.append(of_node)
    measured = [replace(layer, mass=each) for layer, each in zip(layers, mass, strict=True)]
    numbers = np.asarray(tokens, np.int32)
    if not clustered:
        return Index(numbers, measured, None, None)
    parts = clustered, sum(n_heads), len(tokens), settings
    return Index(
        numbers,
        measured,
        one_level_curve(*parts),
        two_level_curve(*parts),
        {how: one_level_curve(*parts, how) for how in OTHER_CALIBRATIONS},
        {how: two_level_curve(*parts, how) for how in OTHER_CALIBRATIONS if how.select == "group"},
    )


def attention_mass(node: NodeQueries) -> np.ndarray:
    """Add up the attention that each row gets from the queries that see it.

    A sink that the model has learned takes no part in the softmax.

    Parameters
    ----------
    node : NodeQueries
        The queries of the last tokens, and the rows.

    Returns
    -------
    float32 array, shape (n_kv_head, n_rows)
        The sum over the last tokens and the group's query heads, for each row in stored order.
    """
    layer = node.layer
    n_rows, n_queries = layer.keys.shape[1], node.queries.shape[1]
    first = n_rows - n_queries
    mass = np.zeros(layer.mass.shape, np.float32)
    for head, of_head in enumerate(node.queries):
        keys = as_floats(layer.keys[head])
        positions = layer.order[head] if layer.position == ANY_ORDER else np.arange(n_rows)
        late = np.flatnonzero(positions > first)  # not seen by all of the queries
        unseen = positions[late] > first + np.arange(n_queries)[:, None]
        for queries in of_head.swapaxes(0, 1):
            scores = capped_scores(queries, keys, node.softcap)
            scores[:, late] = np.where(unseen, -np.inf, scores[:, late])
            scores -= scores.max(axis=1, keepdims=True)
            np.exp(scores, out=scores)
            mass[head] += (1 / scores.sum(axis=1)) @ scores
    return mass
