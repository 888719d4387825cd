"""Draw a random document with planted clusters: a KV cache of any depth, without reading.

The centroids of each KV head are drawn first, and keys around them. So the clusters are known without clustering. A
coarse cluster is a run of neighbouring clusters, without a structure of its own. The rows come in the order of an
index, cluster after cluster. Attention is a sum, so other engines can hold them in that order too.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import repeat

import numpy as np

from ..convert.clusters import ClusterSettings, mean_keys
from ..cpu_kernels.layout.head import ANY_ORDER
from ..progress import Progress
from ..runtime.document.cache_layer import CacheLayer
from ..runtime.document.index import IndexLayer, no_mass
from ..runtime.document.kept_state import KeptState
from ..runtime.llama import Llama

#: Standard deviations of a centroid's components, and of a key's components around them. With queries of unit variance
#: scores then spread as in real models: a tenth of the keys gets most of the attention.
_SPREAD, _NOISE = 2.0, 0.5


def fill_at_random(
    llama: Llama, tokens: list[int], settings: ClusterSettings, rng: np.random.Generator, progress: Progress
) -> tuple[list[np.ndarray], list[IndexLayer]]:
    """Fill a model's f16 cache at random, in place of its content.

    Parameters
    ----------
    tokens : list of int
        The tokens that the model then holds.

    Returns
    -------
    queries : list of float32 arrays, shape (n_kv_head, n_queries, group, head_dim)
        Queries of the model's next tokens, for `calibrate` in place of those of the last tokens.
    layers : list of IndexLayer
        The rows as a document's layers.
    """
    llama.reset()
    llama.context.attach(None)
    shapes = llama.context.cache.layers
    progress.start(f"Drawing {len(tokens):,} keys and values", len(shapes), "layers")
    layers = []
    with ThreadPoolExecutor(llama.n_threads) as pool:  # NumPy releases the GIL while it draws
        streams = rng.spawn(len(shapes))
        for layer in pool.map(random_layer, shapes, repeat(len(tokens)), repeat(settings), streams):
            layers.append(layer)
            progress.advance(1)
    states = [_some_state(llama, len(tokens))] if llama.context.is_hybrid else []
    llama.extend(tokens, [(layer.keys, layer.values) for layer in layers], states)
    more = tokens[: min(settings.exact_last, llama.n_ctx() - len(tokens))]
    with llama.context.captured_queries(len(more)) as queries:
        llama.eval(more)
    llama.rewind(len(tokens))
    return queries, layers


def _some_state(llama: Llama, n_tokens: int) -> KeptState:
    """Return a recurrent state of a hybrid model as that after n_tokens tokens. The model is empty before and after."""
    llama.prefill([0])
    state = llama.context.state()
    assert state is not None
    llama.reset()
    return KeptState(n_tokens, {**state.arrays, "position": np.array([n_tokens - 1], np.int32)})


def random_layer(shape: CacheLayer, n_tokens: int, settings: ClusterSettings, rng: np.random.Generator) -> IndexLayer:
    """Draw one layer of a document, with as many clusters and exact rows as a real one of that length.

    Parameters
    ----------
    n_tokens : int
        Length of the document.
    """
    n_clustered, n_clusters = settings.n_clustered(n_tokens), settings.n_clusters(n_tokens)
    n_coarse = settings.n_coarse(n_tokens)
    lengths = shape.head_dim, 0 if shape.latent else shape.shape.value_dim
    keys, values = (np.empty((shape.n_kv_head, n_tokens, length), np.float16) for length in lengths)
    centroids = np.empty((shape.n_kv_head, n_clusters, shape.head_dim), np.float16)
    starts = np.empty((shape.n_kv_head, n_clusters + 1), np.int32)
    coarse_centroids = np.empty((shape.n_kv_head, n_coarse, shape.head_dim), np.float16)
    coarse_starts = np.linspace(0, n_clusters, n_coarse + 1).astype(np.int32)
    for head in range(shape.n_kv_head):
        clusters = np.sort((n_clusters * rng.random(n_clustered)).astype(np.int64))
        starts[head] = np.searchsorted(clusters, np.arange(n_clusters + 1))
        centers = rng.standard_normal((n_clusters, shape.head_dim), np.float32)
        rows = rng.standard_normal((n_tokens, shape.head_dim), np.float32)
        rows *= _NOISE
        rows[:n_clustered] += _SPREAD * centers[clusters]
        keys[head] = rows
        values[head] = rng.standard_normal(values[head].shape, np.float32)
        centroids[head] = mean_keys(keys[head], starts[head])
        coarse_centroids[head] = mean_keys(keys[head], starts[head][coarse_starts])
    return IndexLayer(
        keys,
        values,
        ANY_ORDER,
        centroids,
        starts,
        coarse_centroids,
        np.tile(coarse_starts, (shape.n_kv_head, 1)),
        np.tile(np.arange(n_tokens, dtype=np.int32), (shape.n_kv_head, 1)),
        no_mass(keys),
        split=shape.split,
    )
