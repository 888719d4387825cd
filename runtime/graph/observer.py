"""Observe tensors of a graph while llama.cpp computes it: by their names, or the outputs of attentions."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from ...cpu_kernels.numba_support.memory import Callback
from . import ggml, hook


@contextmanager
def observed(step: np.ndarray, wants: Callable[[str], bool], take: Callable[[str, np.ndarray], bool]) -> Iterator[None]:
    """Observe tensors by their names.

    Parameters
    ----------
    step : STEP array, shape (1,)
        The record of the context's steps.
    wants : callable
        wants(name) returns whether to take a tensor, such as "l_out-3" or "result_norm". Some devices do not ask about
        attention nodes.
    take : callable
        take(name, values) gets a tensor, (rows, columns) f32, and returns whether to compute the rest of the graph. An
        exception that it raises is raised again when the observation ends.
    """

    def name_of(tensor: ggml.Tensor) -> str:
        return str(tensor.name, "utf-8", "replace")

    with _observed(step, lambda each: wants(name_of(each)), lambda each: take(name_of(each), _floats(each))):
        yield


@contextmanager
def observed_attention(step: np.ndarray, take: Callable[[np.ndarray], None]) -> Iterator[None]:
    """Observe the output of each attention, in the order of the graph, before the model gates or projects it.

    Names do not find it: a model with gates renames it.

    Parameters
    ----------
    take : callable
        take(values) gets an array, (n_tokens, n_head * value_dim) f32.
    """

    def is_output(tensor: ggml.Tensor) -> bool:
        return bool(tensor.src[0]) and hook.is_attention(step, tensor.src[0].contents)

    def take_output(tensor: ggml.Tensor) -> bool:
        n_tokens = tensor.src[0].contents.ne[2]
        take(_floats(tensor).reshape(n_tokens, -1))
        return True

    with _observed(step, is_output, take_output):
        yield


@contextmanager
def _observed(
    step: np.ndarray, wants: Callable[[ggml.Tensor], bool], take: Callable[[ggml.Tensor], bool]
) -> Iterator[None]:
    problems: list[BaseException] = []

    @Callback
    def observe(address: int, ask: int, *_: int) -> int:
        tensor = ggml.Tensor.from_address(address)
        try:
            return wants(tensor) if ask else take(tensor)
        except BaseException as problem:
            problems.append(problem)
            return 0

    step["observer"] = ctypes.cast(observe, ctypes.c_void_p).value
    try:
        yield
    finally:
        step["observer"] = 0
    if problems:
        raise problems[0]


def _floats(tensor: ggml.Tensor) -> np.ndarray:
    """Return a copy of a contiguous tensor of f32: (rows, columns)."""
    n_columns, n_rows = tensor.ne[0], tensor.ne[1] * tensor.ne[2] * tensor.ne[3]
    return ggml.strided(tensor, np.float32, (n_rows, n_columns), (4 * n_columns, 4)).copy()
