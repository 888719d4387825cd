"""Run one layer on a device, without a model: random rows and queries, and the steps of a model's layer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..convert.clusters import ClusterSettings
from ..runtime.cache.kv_cache import KVCache
from ..runtime.devices.protocol import Device, ExecutorArguments
from ..runtime.document.cache_layer import CacheLayer
from ..runtime.document.index import Index
from ..runtime.graph.attention_nodes import AttentionNode
from ..runtime.methods.method import Assignment, Method
from .synthetic import random_layer


class DeviceLayer:
    """One layer on a device.

    Parameters
    ----------
    n_ctx : int
        Largest number of rows.
    n_ubatch : int
        Largest number of tokens of a step.
    """

    def __init__(self, device: Device, layer: CacheLayer, method: Method, n_ctx: int, n_ubatch: int) -> None:
        heads = np.arange(layer.n_kv_head)
        assignment = Assignment(method, heads, np.ones(len(heads)))
        self.cache = KVCache([layer], n_ctx, [assignment], device.new_memory())
        node = AttentionNode(layer.head_dim, layer.n_kv_head * layer.group, layer.n_kv_head, 0, 1.0, 0.0, 0, True)
        node = replace(node, value_dim=layer.value_dim, latent=layer.latent)
        self.attention = device.new_executor(ExecutorArguments(self.cache, [node], [layer.shape], n_ubatch))

    def step(self, queries: np.ndarray, keys: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Store new rows, and attend.

        Parameters
        ----------
        queries : float32 array, shape (n_kv_head, n_tokens, group, head_dim)
            Scaled queries.
        keys, values : float16 arrays, shapes (n_kv_head, n_tokens, head_dim) and (n_kv_head, n_tokens, value_dim)
            New rows. A latent layer takes its values from its keys.

        Returns
        -------
        float32 array, shape (n_tokens, n_head, value_dim)
            Output of the attention.

        Raises
        ------
        OctavoError
            If the GPU reports an error.
        """
        n_tokens = queries.shape[1]
        self.cache.reserve(n_tokens)
        self.attention.start(n_tokens)
        out = self.attention.attend_alone(0, queries, keys, values)
        self.attention.finish()
        self.cache.finish_step()
        return out


def random_document(layer: CacheLayer, n_tokens: int, rng: np.random.Generator) -> Index:
    """Make a document of one layer, whose keys lie in clusters."""
    stored = random_layer(layer, n_tokens, ClusterSettings(), rng)
    return Index(np.zeros(n_tokens, np.int32), [stored])


def random_step(
    layer: CacheLayer, n_tokens: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw the inputs of a step.

    Parameters
    ----------
    n_tokens : int
        Tokens of the step.

    Returns
    -------
    queries : float32 array, shape (n_kv_head, n_tokens, group, head_dim)
        Scaled queries.
    keys, values : float16 arrays, shapes (n_kv_head, n_tokens, head_dim) and (n_kv_head, n_tokens, value_dim)
        New rows.
    """
    queries = rng.standard_normal((layer.n_kv_head, n_tokens, layer.group, layer.head_dim), np.float32)
    lengths = layer.head_dim, layer.shape.value_dim
    first = layer.n_kv_head, n_tokens
    keys, values = (rng.standard_normal((*first, length), np.float32).astype(np.float16) for length in lengths)
    return queries / np.float32(np.sqrt(layer.head_dim)), keys, values


def largest_error(actual: np.ndarray, expected: np.ndarray) -> float:
    """Compute the largest error of an output, relative to the largest element of its head.

    Parameters
    ----------
    actual, expected : float arrays, shape (n_tokens, n_head, value_dim)
        Outputs of the same step.

    Returns
    -------
    float
        The error; infinite for an output that is not finite.
    """
    error = np.abs(actual - expected).max(axis=-1) / np.abs(expected).max(axis=-1)
    return float(np.where(np.isfinite(error), error, np.inf).max())
