"""Define the protocols `Device` and `Executor`, by which a context uses a device.

A device has memory for the cache, and computes the attention nodes of one context's graph. llama.cpp computes the rest,
on the CPU or on its own Metal backend. `cpu_device.py` runs in the threads of llama.cpp, `metal_device.py` on a Mac's
GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ...errors import OctavoError
from ..cache.cache_memory import Memory
from ..process.interruption import Interruption

if TYPE_CHECKING:
    from ...cpu_kernels.numba_support.shape import Shape
    from ..cache.drafted_rows import DraftedRows
    from ..cache.kv_cache import KVCache
    from ..graph.attention_nodes import AttentionNode
    from ..methods.method import Assignment


class UnsupportedModel(OctavoError):
    """The device has no kernels for a model's attention."""


@dataclass(frozen=True, eq=False)
class ExecutorArguments:
    """A context, to a device.

    Parameters
    ----------
    cache : KVCache
        The first sequence's keys and values, in memory of the device.
    nodes : sequence of AttentionNode
        The attentions of the context's graph.
    shapes : sequence of Shape
        The shape of each node's kernels.
    n_ubatch : int
        Most tokens of a batch.
    n_threads : int
        Most threads that compute a step.
    interruption : Interruption
        Says that a batch is to end early.
    stored : callable, optional
        Says at which address the model's file holds the weights of a name; 0 if that is not known.
    """

    cache: KVCache
    nodes: Sequence[AttentionNode]
    shapes: Sequence[Shape]
    n_ubatch: int
    n_threads: int = 1
    interruption: Interruption = field(default_factory=Interruption)
    stored: Callable[[bytes], int] | None = None


class Executor(Protocol):
    """A device's part of one context: it computes the attention nodes of the context's graph."""

    @property
    def step(self) -> np.ndarray:
        """Return the STEP record that `replace_attention` reads, as an array of one."""

    @property
    def together(self) -> bool:
        """Return whether a step can serve several sequences, or a draft."""

    @property
    def interruptible(self) -> int:
        """Return the smallest batch, in tokens, that can be interrupted between two nodes of the graph."""

    def start(self, n_tokens: int, attention_share: float = 0.0) -> None:
        """Prepare a batch of n_tokens tokens, after the cache has reserved its rows.

        Above 0, `attention_share` is the share of the attention that the rows which the batch reads must hold.
        """

    def start_together(self, caches: Sequence[KVCache]) -> None:
        """Prepare a step of one token of each of these caches, which have reserved its rows."""

    def start_drafted(self, rows: DraftedRows) -> None:
        """Prepare a step of several tokens of one cache. Each attends as if it came alone."""

    def attend_alone(self, number: int, queries: np.ndarray, keys: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Compute one node's step on given inputs, without llama.cpp, between `start` and `finish`: for the doctor.

        Parameters
        ----------
        queries : float32 array, shape (n_kv_head, n_tokens, group, head_dim)
            Scaled queries.
        keys, values : float16 arrays, shapes (n_kv_head, n_tokens, head_dim) and (n_kv_head, n_tokens, value_dim)
            New rows, C-contiguous.

        Returns
        -------
        float32 array, shape (n_tokens, n_head, value_dim)
        """

    def finish(self) -> None:
        """End the batch. Raise the exception that abandoned it, if any."""

    def capture(self, arrays: Sequence[np.ndarray | None] | None) -> None:
        """Copy the scaled queries of each step into these arrays, one for each node; None stops it, for one or all.

        Each array has the shape (n_kv_head, n_tokens, group, head_dim), f32.
        """

    def follow(self, cache: KVCache) -> None:
        """Attend over another cache."""


class Device(Protocol):
    """A place that attention runs, for any number of contexts."""

    @property
    def name(self) -> str: ...

    @property
    def on_gpu(self) -> bool:
        """Return whether llama.cpp computes beside it on a GPU, and keeps its cache of one batch there."""

    @property
    def working_set(self) -> float:
        """Return the bytes of weights, keys and values that it can work with at once."""

    def model_arguments(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return llama-cpp-python's arguments for a model, from the user's. Raise OctavoError for impossible ones."""

    def fit_assignments(self, assignments: Sequence[Assignment]) -> list[Assignment]:
        """Return the parts of the assignments that the device computes. Raise OctavoError for methods that it lacks."""

    def compile_ahead(self, assignments: Sequence[Assignment], weight_types: Collection[int] = ()) -> None:
        """Compile in the background what these methods need, and products of weights of these types of ggml's."""

    def new_memory(self) -> Memory:
        """Return memory for one context."""

    def new_executor(self, arguments: ExecutorArguments) -> Executor:
        """Return the executor of a context.

        Raises
        ------
        UnsupportedModel
            The device cannot compute all of the model's attentions.
        OctavoError
            A kernel cannot be compiled.
        """
