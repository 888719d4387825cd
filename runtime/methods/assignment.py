"""Assign methods to the KV heads of a model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...cpu_kernels.numba_support.shape import LIMITS_APART, NIBBLES, Q4_0
from ...errors import OctavoError
from ..document.cache_layer import CacheLayer
from .attention import DENSE_ATTENTION, Attention
from .method import Assignment, Method


def assign(attention: Attention, layers: Sequence[CacheLayer]) -> list[Assignment]:
    """Return the KV heads of each method. Sliding layers attend to their whole window.

    Parameters
    ----------
    attention : Attention
        How tokens attend; `auto` stands for its choice without a document.

    Raises
    ------
    OctavoError
        It is llama.cpp's own attention, it needs a plan but has none, the plan belongs to another model, or the method
        cannot serve these layers.
    """
    if attention.is_llama_cpp:
        raise OctavoError("llama.cpp's own attention is chosen when the model is loaded: give octavo's attention.")
    plan, duo = attention.plan, attention.duo
    if attention.needs_plan:
        if plan is None:
            raise OctavoError(f"'{attention}' needs a plan of this model: `octavo profile` measures and writes it.")
        plan.check(layers)
    method = attention.new_method()
    if problem := excess(method, layers):
        raise OctavoError(f"{attention.method} cannot compute this model's attention: {problem}.")
    streaming = set(duo.streaming_heads(plan, attention.retrieval_heads)) if plan and duo else set()
    dense, selected, streamed, selected_layers = [], [], [], []
    number = 0
    for i, layer in enumerate(layers):
        for head in range(layer.n_kv_head):
            if (i, head) in streaming:
                streamed.append(number)
            elif i >= method.dense_layers and not layer.window:
                selected.append(number)
                selected_layers.append(i)
            else:
                dense.append(number)
            number += 1

    scale = np.ones(len(selected))
    if attention.layers and selected:
        factors = attention.layers.scales(plan, attention.method, len(layers))
        scale = np.array(factors, np.float64)[selected_layers]
    assignments = [Assignment(DENSE_ATTENTION.new_method(), np.array(dense, int), np.ones(len(dense)))]
    assignments.append(Assignment(method, np.array(selected, int), scale))
    if plan and duo:
        assignments.append(Assignment(duo.streaming(plan), np.array(streamed, int), np.ones(len(streamed))))
    assignments = [assignment for assignment in assignments if len(assignment.heads)]
    _check_methods(assignments, layers)
    return assignments


def _check_methods(assignments: Sequence[Assignment], layers: Sequence[CacheLayer]) -> None:
    """Refuse methods that rotate queries by a RoPE unknown to octavo, or that read keys in another format."""
    for layer in layers:
        if layer.latent and layer.kv_type == Q4_0 and layer.shape.value_dim % NIBBLES:
            raise OctavoError(
                f"q4_0 stores numbers in blocks of {NIBBLES}, and this model's values are the first "
                f'{layer.shape.value_dim} of {layer.head_dim} numbers: use `cache_type="q8_0"`.'
            )
    for method in (assignment.method for assignment in assignments):
        if method.reads_columns and any(layer.shape.rotated for layer in layers):
            raise OctavoError(
                f"{method.name} reads components from rows, and keys of {layers[0].kv_type} are rotated: use "
                f'{method.name}:layout=two, or `cache_type="f16"`.'
            )
        if method.turns and any(layer.rope is None for layer in layers):
            raise OctavoError(
                "octavo does not know how this model counts positions, and cannot count them in the cache: use "
                f"{method.name}:positions=sequence."
            )


def excess(method: Method, layers: Sequence[CacheLayer]) -> str:
    """Return which size of a layer that a method serves exceeds its kernels, and the way out; "" if none does."""
    of_method = [method.limits, LIMITS_APART] if getattr(method, "select", "") == "head" else [method.limits]
    for layer in layers[method.dense_layers :]:
        for limits in of_method if not layer.window else ():
            if problem := limits.excess(layer.shape):
                return f"{problem}: {limits.way_out}"
    return ""
