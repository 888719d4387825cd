"""Turn text into an index, step by step: tokens -> read -> cluster (or keep whole) -> calibrate.

The steps work in memory, on the cache of a loaded model. index_builder.py writes files between them, so that an
interrupted build resumes; the evaluation runs them directly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ..cpu_kernels.layout.head import ANY_ORDER
from ..errors import OctavoError
from ..progress import Progress
from ..runtime.cache.kv_cache import KVCache
from ..runtime.devices import CPU
from ..runtime.document.cache_layer import Rows
from ..runtime.document.index import Index, IndexLayer, LastQueries, no_mass, whole_layer
from ..runtime.document.stored_rows import as_floats, capped_scores
from ..runtime.llama import Llama
from ..settings import PREFILL_SPARSE, STATE_EVERY
from .clusters import ClusterSettings, cluster_layers

#: Characters for each token of the context up to which a text is always tokenized; number and length of the samples
#: that estimate the tokens of a longer text.
_SURELY_READ, _N_SAMPLES, _SAMPLE = 8, 16, 2000

#: The share of a batch's attention that these keys must hold, in long documents
#: (cpu_kernels/prefill/sparse_prefill.py).
ATTENTION_SHARE = 0.99


class PrefillSettings(NamedTuple):
    """How a text is read.

    Parameters
    ----------
    attention_share : float
        Share of its attention that a batch must cover; 0 to read everything.
    state_every : int
        Tokens after each of which the recurrent state of a hybrid model is kept; 0 for none but that at the end.
    """

    attention_share: float = 0.0
    state_every: int = STATE_EVERY


#: Each batch reads everything, and states are kept as often as by default.
WHOLE = PrefillSettings()


class TooLongError(OctavoError):
    """A document does not fit the context.

    Parameters
    ----------
    n_tokens : int
        Number of tokens, perhaps estimated.
    """

    def __init__(self, n_tokens: int, message: str) -> None:
        super().__init__(message)
        self.n_tokens = n_tokens


def document_tokens(llama: Llama, name: str, text: str) -> list[int]:
    """Tokenize a document, after the prompt's head.

    Raises
    ------
    TooLongError
        The context is too short for the document.
    """
    _refuse_far_too_long(llama, name, text)
    prompt = llama.prompt()
    tokens = prompt.head() + prompt.document(text)
    if len(tokens) >= llama.n_ctx():
        raise TooLongError(
            len(tokens),
            f"{name} has {len(tokens):,} tokens but this context holds {llama.n_ctx():,}: split it, or give a "
            "long-context model with `model`.",
        )
    return tokens


def characters_per_token(llama: Llama, text: str) -> float:
    """Return the characters of a token, from samples of a text: to tokenize all of it may take minutes."""
    prompt, last = llama.prompt(), max(len(text) - _SAMPLE, 1)
    samples = [text[start : start + _SAMPLE] for start in range(0, last, max(last // _N_SAMPLES, _SAMPLE))]
    return sum(map(len, samples)) / max(sum(len(prompt.document(sample)) for sample in samples), 1)


def _refuse_far_too_long(llama: Llama, name: str, text: str) -> None:
    """Refuse a text that exceeds the context by far, judging by samples."""
    if len(text) <= max(_SURELY_READ * llama.n_ctx(), _SAMPLE):
        return
    estimate = int(len(text) / characters_per_token(llama, text))
    if estimate > 2 * llama.n_ctx():
        raise TooLongError(
            estimate,
            f"{name} has about {estimate:,} tokens but this context holds {llama.n_ctx():,}: split it, or give a "
            "long-context model with `model`.",
        )


def batches(start: int, stop: int, n_batch: int, n_last: int = 0) -> Iterator[range]:
    """Split positions into batches, with a border before the last tokens.

    Parameters
    ----------
    n_last : int
        Number of last tokens that share no batch with earlier ones; 0 for no border.
    """
    border = max(start, stop - n_last)
    for begin, end in ((start, border), (border, stop)):
        for first in range(begin, end, n_batch):
            yield range(first, min(first + n_batch, end))


def prefill_attention_share(prefill: str, llama: Llama) -> float:
    """Return the share of its attention that each batch must cover; 0 to read everything, as Metal always does."""
    return ATTENTION_SHARE if prefill == PREFILL_SPARSE and llama.context.device.name == CPU else 0.0


def prefill(
    llama: Llama, tokens: Sequence[int], progress: Progress, n_queries: int = 0, attention_share: float = 0.0
) -> list[np.ndarray]:
    """Evaluate tokens that follow what the model holds, and capture the queries of the last ones.

    Parameters
    ----------
    progress : Progress
        Receives each batch; its task has started.
    n_queries : int
        Number of last tokens whose queries are captured, at most one batch; 0 for none.
    attention_share : float
        Share of its attention that a batch must cover; 0 to read everything.

    Returns
    -------
    list of float32 arrays, shape (n_kv_head, n_queries, group, head_dim)
        The scaled queries in each attention node; an empty list if none are captured.
    """
    queries: list[np.ndarray] = []
    with llama.context.attending_share(attention_share):
        for batch in batches(0, len(tokens), llama.n_batch, n_queries):
            if n_queries and batch.stop == len(tokens):
                with llama.context.captured_queries(len(batch)) as queries:
                    llama.prefill(tokens[batch.start : batch.stop])
            else:
                llama.prefill(tokens[batch.start : batch.stop])
            progress.advance(len(batch))
    return queries


def cluster(
    cache: KVCache,
    settings: ClusterSettings,
    progress: Progress,
    n_jobs: int,
    *,
    missing: Sequence[int] | None = None,
    task: str = "Clustering keys",
    rows: Callable[[int], Rows] | None = None,
    n_tokens: int | None = None,
) -> Iterator[IndexLayer]:
    """Cluster the layers of a document that the model has read, and report each to `progress`.

    Parameters
    ----------
    cache : KVCache
        The cache, which must hold exactly the document.
    missing : sequence of int, optional
        Layers that are not clustered yet; by default all of them.
    """
    n_layers = len(cache.layers)
    missing = range(n_layers) if missing is None else missing
    shows = settings.n_clusters(cache.n_tail if n_tokens is None else n_tokens) > 0  # a short document stays whole
    if shows:
        progress.start(task, n_layers, "layers", n_layers - len(missing))
    for layer in cluster_layers(cache, missing, settings, n_jobs, rows, n_tokens):
        yield layer
        if shows:
            progress.advance(1)


def keep_whole(cache: KVCache) -> list[IndexLayer]:
    """Return the layers of a document that the cache holds, unclustered."""
    return [whole_layer(*cache.rows(i), layer.window, split=layer.split) for i, layer in enumerate(cache.layers)]


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
