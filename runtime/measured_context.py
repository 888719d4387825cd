"""Measure what a context computes: tensors of the graph, queries, and the bytes that attention reads."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from llama_cpp import _internals as internals

from ..cpu_kernels.numba_support.shape import Shape
from .cache.kv_cache import KVCache
from .graph import ggml, hook
from .graph.attention_nodes import AttentionNode
from .query_recorder import Recorder
from .sequences.sequence import TokenSequence


class MeasuredContext(internals.LlamaContext):
    """The measurements of `Context`."""

    nodes: list[AttentionNode]
    shapes: list[Shape]
    sequence: TokenSequence
    _executor: Any

    @property
    def cache(self) -> KVCache:
        """Return the keys and values of the current sequence."""
        return self.sequence.cache

    def record(self, recorder: Recorder | None) -> None:
        """Have a recorder keep queries from the next step on; None stops the recording."""
        self.sequence.recorder = recorder
        self._executor.capture(None)

    @contextmanager
    def unrecorded(self) -> Iterator[None]:
        """Pause the recording of queries."""
        sequence = self.sequence
        recorder, sequence.recorder = sequence.recorder, None
        try:
            yield
        finally:
            sequence.recorder = recorder

    @property
    def bytes_read(self) -> int:
        """Return the bytes that selection and attention read since this was last set to 0."""
        return int(self.cache.heads["bytes_read"].sum())

    @bytes_read.setter
    def bytes_read(self, value: int) -> None:
        self.cache.heads["bytes_read"] = value

    @property
    def counted_bytes_read(self) -> int:
        """Return the part of `bytes_read` that budgets count: without sliding layers."""
        return int(self.cache.heads["bytes_read"][self.cache.counted].sum())

    @property
    def coverage(self) -> tuple[int, float]:
        """Return the number of head steps that reported their coverage of the attention, and the sum of these shares.

        Heads of sliding layers do not count.
        """
        heads = self.cache.heads[self.cache.counted]
        return int(heads["n_covered"].sum()), float(heads["covered"].sum()) / 1e6

    @contextmanager
    def observed(self, wants: Callable[[str], bool], take: Callable[[str, np.ndarray], bool]) -> Iterator[None]:
        """Observe tensors of the graph while batches are computed.

        Parameters
        ----------
        wants : callable
            wants(name) returns whether to take a tensor, such as "l_out-3" or "result_norm". Some devices do not ask
            about attention nodes.
        take : callable
            take(name, values) gets a tensor, (rows, columns) f32, and returns whether to compute the rest of the graph.
            An exception that it raises is raised again when the observation ends.
        """
        problems: list[BaseException] = []
        step = self._executor.step

        @hook.Callback
        def observe(address: int, ask: int, *_: int) -> int:
            tensor = ggml.Tensor.from_address(address)
            name = tensor.name.decode("utf-8", "replace")
            try:
                return wants(name) if ask else take(name, _floats(tensor))
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

    @contextmanager
    def captured_queries(self, n_tokens: int) -> Iterator[list[np.ndarray]]:
        """Yield arrays that receive the scaled queries of a batch of n_tokens tokens, one for each node.

        Each has the shape (n_kv_head, n_tokens, group, head_dim), f32.
        """
        arrays = [
            np.zeros((node.n_kv_head, n_tokens, shape.group, shape.head_dim), np.float32)
            for node, shape in zip(self.nodes, self.shapes, strict=True)
        ]
        self._executor.capture(arrays)
        try:
            with self.unrecorded():
                yield arrays
        finally:
            self._executor.capture(None)


def _floats(tensor: ggml.Tensor) -> np.ndarray:
    """Return a copy of a contiguous tensor of f32: (rows, columns)."""
    n_columns, n_rows = tensor.ne[0], tensor.ne[1] * tensor.ne[2] * tensor.ne[3]
    return ggml.strided(tensor, np.float32, (n_rows, n_columns), (4 * n_columns, 4)).copy()
