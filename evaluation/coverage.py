"""Measure the share of dense attention's weight that lies on the rows which steps attend exactly.

A method that estimates the rest of the rows estimates this share, too. Here it is computed: from the queries and all
keys of a head, after each layer of a step of one token.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from typing import NamedTuple

import numpy as np

from ..cpu_kernels.layout.spans import ALL_HEADS, SPAN
from ..cpu_kernels.numba_support.shape import Shape
from ..errors import OctavoError
from ..runtime.devices.cpu_device import CpuExecutor
from ..runtime.document.stored_rows import as_floats, capped_scores, rows_format
from ..runtime.llama import Llama
from ..runtime.methods import DENSE, method_class


class Coverage(NamedTuple):
    """What one step covers in each KV head of each layer whose window does not slide.

    Parameters
    ----------
    true : float64 array, shape (n_layers, n_kv_head)
        Share of dense attention's weight on the rows that the head attended exactly: the mean over its query heads.
        A model's own sinks take no part.
    estimated : float64 array, shape (n_layers, n_kv_head)
        The method's estimate of it; NaN without one.
    """

    true: np.ndarray
    estimated: np.ndarray


@contextmanager
def covered_steps(llama: Llama) -> Iterator[list[Coverage]]:
    """Collect the coverage of each step of one token.

    Raise OctavoError on another device than the CPU, and for methods that evict rows: what they forgot has no weight.
    """
    context, steps = llama.context, list[Coverage]()
    executor = context._executor
    if not isinstance(executor, CpuExecutor):
        raise OctavoError("Coverage is measured on the CPU: give --device cpu.")
    if context.cache.evicts:
        raise OctavoError(f"{llama.attention} forgets rows: give a method that keeps all of them.")
    n_nodes, found = len(context.nodes), list[tuple[np.ndarray, np.ndarray]]()
    numbers = cycle(range(n_nodes))

    def take(values: np.ndarray) -> None:
        number = next(numbers)
        if len(values) == 1 and not context.nodes[number].window:
            found.append(_covered(executor, llama, number))
        if number == n_nodes - 1 and found:
            steps.append(Coverage(*map(np.array, zip(*found, strict=True))))
            found.clear()

    context.cache.table.heads["covered"] = context.cache.table.heads["n_covered"] = 0
    with context.observed_attention(take):
        yield steps


def _covered(executor: CpuExecutor, llama: Llama, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the true and the estimated coverage of each KV head of a node, and set its counters to 0."""
    node, shape, table = llama.context.nodes[number], llama.context.shapes[number], llama.context.cache.table
    heads = table.layer_heads[node.kv_layer]
    queries, selected = executor.selection(number)
    select_all, everything = method_class(DENSE).hooks.select, np.zeros(table.n_spans, SPAN)
    true = np.empty(node.n_kv_head)
    for i, spans in enumerate(selected):
        n_spans = select_all(shape, heads[i : i + 1].ctypes.data, 0, 1, everything.ctypes.data)
        exact, total = (_log_weights(shape, queries[i], each, node.softcap) for each in (spans, everything[:n_spans]))
        true[i] = np.exp(exact - total).mean()
    estimated = np.where(heads["n_covered"] > 0, heads["covered"] / 1e6, np.nan)
    heads["covered"] = heads["n_covered"] = 0
    return true, estimated


def _log_weights(shape: Shape, queries: np.ndarray, spans: np.ndarray, softcap: float) -> np.ndarray:
    """Return the logarithm of the sum of exp of the scores of spans, for each query head."""
    spans = spans[spans["n_rows"] > 0]
    keys = np.concatenate([_keys(shape, span) for span in spans])
    scores = capped_scores(queries, keys, softcap).astype(np.float64)
    bits = np.arange(shape.group)[:, None]
    attends = (spans["heads"] == ALL_HEADS) | (spans["heads"] >> bits & 1 == 1)
    scores[~np.repeat(attends, spans["n_rows"], axis=1)] = -np.inf
    logarithms: np.ndarray = np.logaddexp.reduce(scores, axis=1)
    return logarithms


def _keys(shape: Shape, span: np.void) -> np.ndarray:
    """Return the keys of a span, (n_rows, head_dim) f32."""
    n_rows = int(span["n_rows"])
    rows = np.arange(n_rows) if not span["rows"] else _view(int(span["rows"]), (n_rows,), np.dtype(np.int32))
    dtype, (n_elements, _) = rows_format(shape)
    stored = _view(int(span["keys"]), (int(rows.max()) + 1, n_elements), dtype)
    return as_floats(stored[rows], shape.value_dim if shape.latent else 0)


def _view(address: int, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """View memory at an address as an array."""
    n_bytes = int(np.prod(shape)) * dtype.itemsize
    return np.ctypeslib.as_array((ctypes.c_uint8 * n_bytes).from_address(address)).view(dtype).reshape(shape)
