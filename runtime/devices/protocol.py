"""What a context needs of a device: the protocols `Device` and `Executor`.

A device has memory for the cache, and attends the nodes of one context's graph. llama.cpp computes the rest, on the CPU
or on its own Metal backend. `cpu_device.py` runs in the threads of llama.cpp, `metal_device.py` on a Mac's GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ...errors import OctavoError
from ..cache.cache_memory import Memory
from ..process.interruption import Interruption

if TYPE_CHECKING:
    from ...cpu_kernels.numba_support.compile import Shape
    from ..cache.kv_cache import KVCache
    from ..graph.attention_nodes import AttentionNode
    from ..methods.method import Assignment


class UnsupportedModel(OctavoError):
    """The device has no kernels for a model's attention."""


class Executor(Protocol):
    """A device's part of one context: it attends the nodes of the context's graph."""

    @property
    def step(self) -> np.ndarray:
        """What `replace_attention` follows: a STEP, an array of one."""

    @property
    def together(self) -> bool:
        """Return whether a step can be of several sequences."""

    @property
    def interruptible(self) -> int:
        """Return the smallest batch, in tokens, that can be interrupted between two nodes of the graph."""

    def start(self, n_tokens: int, covers: float = 0.0) -> None:
        """Prepare a batch of n_tokens tokens, for which the cache has reserved room.

        Above 0, `covers` is the share of the attention that the rows must hold that the batch reads.
        """

    def start_together(self, caches: Sequence[KVCache]) -> None:
        """Prepare a step of one token of each of these caches, which have reserved room for it."""

    def attend_alone(self, number: int, queries: np.ndarray, keys: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Compute one node's step on given inputs, without llama.cpp, between `start` and `finish`: for the doctor.

        Parameters
        ----------
        queries : float32 array, shape (n_kv_head, n_tokens, group, head_dim)
            Scaled queries.
        keys, values : float16 arrays, shape (n_kv_head, n_tokens, head_dim)
            New rows, C-contiguous.

        Returns
        -------
        float32 array, shape (n_tokens, n_head, head_dim)
        """

    def finish(self) -> None:
        """End the batch. Raise the exception for which it was abandoned, if there is one."""

    def capture(self, arrays: Sequence[np.ndarray | None] | None) -> None:
        """Copy the scaled queries of each step into these arrays, one a node; None stops that, for a node or all.

        Each has the shape (n_kv_head, n_tokens, group, head_dim), f32.
        """

    def follow(self, cache: KVCache) -> None:
        """Attend with another cache."""

    def rearrange(self) -> None:
        """Take note that the cache's methods serve other heads."""


class Device(Protocol):
    """Where attention runs, for any number of contexts."""

    @property
    def name(self) -> str: ...

    def model_arguments(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return llama-cpp-python's arguments for a model, from the user's. Raise OctavoError for what does not go."""

    def set_parameters(self, params: Any) -> None:
        """Fill in what llama.cpp's context must know."""

    def check_nodes(self, nodes: Sequence[AttentionNode]) -> None:
        """Raise UnsupportedModel for a model that has attentions that it cannot compute."""

    def fit_assignments(self, assignments: Sequence[Assignment]) -> list[Assignment]:
        """Return them with what it computes of their methods. Raise OctavoError for methods that it does not have."""

    def compile_ahead(self, assignments: Sequence[Assignment], shapes: Sequence[Shape]) -> None:
        """Compile, in the background, what these methods need for these shapes, if anything."""

    def new_memory(self) -> Memory:
        """Return memory for one context."""

    def new_executor(
        self,
        cache: KVCache,
        memory: Memory,
        nodes: Sequence[AttentionNode],
        kv_type: str,
        n_ubatch: int,
        n_threads: int,
        interruption: Interruption,
    ) -> Executor:
        """Return the executor of a context whose cache is in `memory`, for batches of at most n_ubatch tokens."""
