"""Where attention runs: what a context needs of a device, and which device there is.

A device has memory for the cache, and attends the nodes of one context's graph; llama.cpp computes the rest, on the CPU
or on its own Metal backend. `cpu_device.py` is in the threads of llama.cpp, `metal_device.py` on a Mac's GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ...errors import OctavoError
from ...metal.gpu import is_available
from ..cache.memory import Memory
from ..store.plan import Plan

if TYPE_CHECKING:
    from ..cache.kv_cache import KVCache
    from ..graph.nodes import AttentionNode
    from ..methods.method import Assignment

AUTO, CPU, METAL = "auto", "cpu", "metal"

#: What `--device` takes.
DEVICES = (AUTO, CPU, METAL)


class UnsupportedModel(OctavoError):
    """A model whose attention a device has no kernels for."""


@dataclass
class Interruption:
    """Whether a Ctrl-C came while a graph was computed. Not a threading.Event: a signal may come inside its lock."""

    came: bool = False


class Attention(Protocol):
    """A device's part of one context."""

    @property
    def step(self) -> np.ndarray:
        """What `replace_attention` follows: a STEP, an array of one."""

    @property
    def interruptible(self) -> int:
        """Batches from this size on can be interrupted between two nodes of the graph."""

    def start(self, n_tokens: int) -> None:
        """Before llama.cpp computes a batch: the cache has reserved room for its tokens."""

    def attend_alone(self, number: int, queries: np.ndarray, keys: np.ndarray, values: np.ndarray) -> np.ndarray:
        """One node's step on given inputs, without llama.cpp, between `start` and `finish`: for `octavo doctor`.

        queries : (n_kv_head, n_tokens, group, head_dim) f32, scaled    keys, values : (n_kv_head, n_tokens, head_dim)
        f16, C-contiguous    Returns (n_tokens, n_head, head_dim) f32.
        """

    def finish(self) -> None:
        """After that. Raises the exception for which the batch was abandoned."""

    def capture(self, arrays: list[np.ndarray] | None) -> None:
        """Leave copies of the scaled queries of each step in these arrays, one for each node; None stops that.

        (n_kv_head, n_tokens, group, head_dim) f32
        """

    def rearranged(self) -> None:
        """The cache serves other selectors."""


class Device(Protocol):
    """Where attention runs."""

    @property
    def name(self) -> str: ...

    def model_arguments(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """llama-cpp-python's arguments for a model, from the user's. Raises OctavoError for what does not go."""

    def set_parameters(self, params: Any) -> None:
        """Fill in what llama.cpp's context has to know."""

    def check_nodes(self, nodes: Sequence[AttentionNode]) -> None:
        """Raise UnsupportedModel for a model that has attentions that it cannot compute."""

    def check_assignments(self, assignments: Sequence[Assignment]) -> None:
        """Raise OctavoError for selectors that it does not have."""

    def new_memory(self) -> Memory:
        """Memory for one context."""

    def new_attention(
        self,
        cache: KVCache,
        memory: Memory,
        nodes: Sequence[AttentionNode],
        kv_type: str,
        n_ubatch: int,
        n_threads: int,
        interruption: Interruption,
    ) -> Attention:
        """Its part of a context whose cache is in `memory` and whose batches have n_ubatch tokens at most."""


def choose(name: str, attention: str, plan: Plan | None) -> Device:
    """The device of this name. "auto" is Metal on Apple silicon, for an attention that it has, and else the CPU.

    Raises OctavoError where there is no device of this name, or it does not have the attention.
    """
    from ..methods.compose import metal_method
    from .cpu import CpuDevice  # here, as they import this module
    from .metal import MetalDevice

    if name not in DEVICES:
        raise OctavoError(f"There is no device named '{name}': choose from {', '.join(DEVICES)}.")
    method, on_metal = metal_method(attention, plan)
    if name == METAL and not on_metal:
        raise OctavoError(f"The Metal kernels do not have {method}: use --device cpu, or another attention.")
    if name == METAL or (name == AUTO and on_metal and is_available()):
        return MetalDevice()
    return CpuDevice()
