"""List the caches that a model's attentions need, and check which methods can serve them."""

from __future__ import annotations

from collections.abc import Sequence

from ...cpu_kernels.numba_support.shape import NIBBLES, Q4_0, Q8_0
from ...errors import OctavoError
from ..document.cache_layer import CacheLayer
from ..graph.attention_nodes import AttentionNode
from ..methods.method import Assignment


def check_methods(assignments: Sequence[Assignment], layers: Sequence[CacheLayer]) -> None:
    """Refuse methods that rotate queries by a RoPE unknown to octavo, or that read keys in another format."""
    for layer in layers:
        if layer.latent and layer.kv_type == Q4_0 and layer.shape.value_dim % NIBBLES:
            raise OctavoError(
                f"q4_0 stores numbers in blocks of {NIBBLES}, and this model's values are the first "
                f'{layer.shape.value_dim} of {layer.head_dim} numbers: use `cache_type="q8_0"`.'
            )
    for method in (assignment.method for assignment in assignments):
        if method.reads_columns and any(layer.latent and layer.kv_type == Q8_0 for layer in layers):
            raise OctavoError(
                f"{method.name} reads components from rows, and this model's keys have two scales in q8_0: use "
                f'{method.name}:layout=two, or `cache_type="f16"`.'
            )
        if method.reads_columns and any(layer.kv_type == Q4_0 for layer in layers):
            raise OctavoError(
                f"{method.name} reads components from rows, and keys of q4_0 are rotated: use "
                f'{method.name}:layout=two, or `cache_type="q8_0"`.'
            )
        if method.turns and any(layer.rope is None for layer in layers):
            raise OctavoError(
                "octavo does not know how this model counts positions, and cannot count them in the cache: use "
                f"{method.name}:positions=sequence."
            )


def cache_layers(nodes: list[AttentionNode], kv_type: str) -> list[CacheLayer]:
    """Return the caches of a model's attentions, each once: some attentions read another's."""
    return [
        CacheLayer(
            node.n_kv_head,
            node.head_dim,
            node.window,
            kv_type,
            node.n_head // node.n_kv_head,
            node.softcap,
            node.rope,
            node.value_dim,
            node.latent,
            node.chunked,
        )
        for node in nodes
        if node.appends
    ]
