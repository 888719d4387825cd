"""The records of a cache's heads, and the methods that serve them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from ...cpu_kernels.attend.head import CHUNK_ROWS, HEAD
from ...cpu_kernels.attend.hooks import Hooks
from ...cpu_kernels.numba_support.compile import Shape
from ..document.cache_layer import CacheLayer
from ..methods.budgets import Served
from ..methods.method import Assignment, Heads, Keeps, Method

#: Fields of HEAD that follow from a head's layer and its method, whatever is stored.
OF_THE_METHOD = ("score", "select", "finish", "append", "after_step", "estimate", "state", "window", "softcap")


class HeadTable:
    """Records of all KV heads, layer by layer, and of which method serves which.

    Parameters
    ----------
    n_ctx : int
        Most tokens that a token may see, and most tokens of a step.

    Attributes
    ----------
    heads : HEAD array, shape (n_heads,)
        Records of all heads.
    first_heads : int array, shape (n_layers,)
        Number of each layer's first head.
    tables : int64 array, shape (n_heads, n)
        Addresses of each head's chunks.
    assignments : list of Assignment
        Which methods serve which heads.
    served : list of Served
        The methods with their heads. Where two serve a head, the later one counts.
    generation : int
        Goes up when methods serve other heads.
    evicts : bool
        Whether any method forgets rows.
    cuts : bool
        Whether a token may see less alone than in a batch.
    batch_end : int
        Batches end at multiples of so many tokens; 0 if they may end anywhere.
    rolls : bool
        Whether no token sees anything farther away than what is kept, so that the sequence may be of any length.
    """

    def __init__(self, layers: list[CacheLayer], n_ctx: int) -> None:
        self.layers = layers
        first = np.cumsum([0] + [layer.n_kv_head for layer in layers])
        self.heads = np.zeros(first[-1], HEAD)
        self._layer_of = np.repeat(np.arange(len(layers)), [layer.n_kv_head for layer in layers])
        self.first_heads = first[:-1]
        self._layer_heads = [self.heads[a:b] for a, b in itertools.pairwise(first)]
        self.n_ctx = n_ctx
        self.tables = np.zeros((first[-1], 2 * -(-n_ctx // CHUNK_ROWS) + 3), np.int64)
        self.generation = 0
        self._unconnected: list[tuple[Hooks, Shape, list[int]]] = []

    def serve(self, assignments: Sequence[Assignment]) -> None:
        """Have these methods serve the heads, each of which is in one assignment. Clears all records."""
        self.assignments, self._unconnected = list(assignments), []
        self.heads[:] = 0
        for name in ("window", "softcap"):
            self.heads[name] = np.array([getattr(layer, name) for layer in self.layers])[self._layer_of]
        self.served = [self._serve(a.method, a.heads, a.scale) for a in assignments]
        self.generation += 1
        self.evicts = any(a.method.keeps.evicts for a in assignments)
        self.cuts = any(a.method.selects for a in assignments)
        self.batch_end = max(a.method.batch_end for a in assignments)
        self._slides = (self.heads["window"] > 0) & self.evicts
        near = self._slides.copy()
        for each in self.served:
            near[each.heads.numbers] |= each.method.rolls
        self.rolls = bool(near.all()) and all(layer.rope is not None for layer in self.layers)

    def _serve(self, method: Method, numbers: np.ndarray, scale: np.ndarray) -> Served:
        """Point the records of some heads at a method's hooks, and at a state of their own."""
        layers = [self.layers[self._layer_of[number]] for number in numbers]
        shapes, ropes = [layer.shape for layer in layers], [layer.rope for layer in layers]
        state = np.zeros(len(numbers), method.state)
        self.heads["state"][numbers] = state.ctypes.data + np.arange(len(numbers)) * state.itemsize
        for shape in set(shapes):
            own = [number for number, each in zip(numbers, shapes, strict=True) if each == shape]
            self._unconnected.append((method.hooks, shape, own))
        heads = Heads(self.heads, numbers, scale.copy(), shapes, ropes, self.n_ctx, state)
        return Served(method, heads, scale.copy())

    def connect(self) -> None:
        """Compile the methods' hooks, and point the heads' records at them: before the first step that needs them."""
        for hooks, shape, numbers in self._unconnected:
            for name, address in hooks.addresses(shape).items():
                self.heads[name][numbers] = address
        self._unconnected = []

    @contextmanager
    def attending_by(self, method: Method, numbers: Sequence[int]) -> Iterator[None]:
        """Have some heads select by another method for a while. What they store stays as it is.

        Parameters
        ----------
        method : Method
            A method that needs no extras and no document.
        """
        self.connect()
        before = {name: self.heads[name].copy() for name in OF_THE_METHOD}
        served = self._serve(method, np.array(numbers, int), np.ones(len(numbers)))
        self.connect()
        for name in ("append", "after_step"):
            self.heads[name] = before[name]
        self.served.append(served)
        self.generation += 1
        try:
            yield
        finally:
            self.served.remove(served)
            self.generation += 1
            for name, values in before.items():
                self.heads[name] = values

    @property
    def assigned(self) -> list[Served]:
        """Return the methods of the assignments, without one that `attending_by` has in their place for a while."""
        return self.served[: len(self.assignments)]

    @property
    def counted(self) -> np.ndarray:
        """Return which heads' bytes budgets are shares of: those without a sliding window, if there are any."""
        sees_all: np.ndarray = self.heads["window"] == 0
        return sees_all if sees_all.any() else ~sees_all

    @property
    def counted_row_bytes(self) -> int:
        """Return the bytes that one token takes in these heads."""
        row_bytes = np.array([2 * layer.shape.row_bytes for layer in self.layers])
        return int(row_bytes[self._layer_of][self.counted].sum())

    @property
    def row_bytes(self) -> int:
        """Return the bytes that one token takes in all layers if all of it is kept."""
        return sum(layer.row_bytes for layer in self.layers)

    def selecting(self) -> np.ndarray:
        """Return which heads may read less than everything."""
        selects = np.zeros(len(self.heads), bool)
        for each in self.served:
            selects[each.heads.numbers] |= each.method.selects
        return selects

    def has_replaced_rows(self) -> bool:
        """Return whether a method kept late rows in the place of others."""
        chosen = [each.heads for each in self.served if each.method.keeps is Keeps.CHOSEN]
        return any(np.any(heads.get("tail_position") > 0) for heads in chosen)

    def layer_heads(self, layer: int) -> np.ndarray:
        """View the HEAD records of a layer."""
        return self._layer_heads[layer]

    def seen(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return which heads see a window only, how many rows it has, and how many sinks they see besides it."""
        slides, window = self._slides.copy(), self.heads["window"].copy()
        n_sinks = np.zeros(len(self.heads), np.int64)
        for each in self.assigned:
            if each.method.keeps is Keeps.RECENT:
                numbers = each.heads.numbers
                n_sinks[numbers], window[numbers] = each.method.kept_window(each.heads)
                slides[numbers] = True
        return slides, window, n_sinks

    @property
    def max_items(self) -> int:
        """Return the most items (clusters, pages, rows) that are scored in one head, for what is reserved now."""
        return max(each.method.n_items(each.heads) for each in self.served)

    @property
    def max_spans(self) -> int:
        """Return the most spans that a method may select for one head, for what is reserved now."""
        return self.max_items + 2 + 3 * int(-(-self.heads["n_tail"].max() // CHUNK_ROWS))
