"""Allocate scratch for selection on a device; all layers share it, one after another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...cpu_kernels.layout.scores import padded, selection_scratch_bytes
from ..cache.cache_memory import Memory
from ..cache.kv_cache import KVCache
from ..graph.attention_nodes import AttentionNode

#: Alignment of each head's part, relative to the allocation.
_ALIGNMENT = 64


class Scratch:
    """Scratch of each KV head of a layer, to which the HEAD records of one cache point.

    Attributes
    ----------
    n_spans : int
        Capacity of each head in spans.
    """

    def __init__(self, memory: Memory, nodes: Sequence[AttentionNode]) -> None:
        self._memory, self._nodes = memory, nodes
        self._n_kv_head = max(node.n_kv_head for node in nodes)
        self._group = max(node.n_head // node.n_kv_head for node in nodes)
        self.forget()

    def forget(self) -> None:
        """Forget the capacity, because the cache's methods have changed."""
        self._n_items = self.n_spans = -1

    def make_room(self, cache: KVCache) -> bool:
        """Grow for the step that the cache reserved, with a margin. Return whether anything changed."""
        n_items, n_spans = cache.table.max_items, cache.table.max_spans
        if n_items <= self._n_items and n_spans <= self.n_spans:
            return False
        self._n_items, self.n_spans = padded(n_items + n_items // 4), n_spans + n_spans // 4
        size = -(-selection_scratch_bytes(self._group, self._n_items) // _ALIGNMENT) * _ALIGNMENT
        self._bytes = self._memory.allocate(self._n_kv_head * size)
        cache.table.heads["scratch_items"] = self._n_items
        for node in self._nodes:
            addresses = self._bytes.ctypes.data + np.arange(node.n_kv_head) * size
            cache.table.layer_heads(node.kv_layer)["scratch"] = addresses
        return True
