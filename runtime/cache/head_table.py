"""Keep the records of a cache's heads, and the methods that serve them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from ...cpu_kernels.layout.head import ANY_ORDER, CHUNK, HEAD
from ...cpu_kernels.rows.tiles import CHUNK_ROWS
from ..document.cache_layer import CacheLayer
from ..methods.budgets import MethodHeads
from ..methods.evicting import FULL, EvictingMethod
from ..methods.method import Assignment, Heads, Method, Storage

#: Fields of HEAD that depend on a head's layer and its method only.
_OF_THE_METHOD = (
    *("score", "select", "finish", "append", "after_step", "estimate", "rank", "pick", "state"),
    *("window", "chunked", "softcap"),
)


#: Fields that belong to the step, whatever the cache holds, and addresses in one cache's memory.
_OF_THE_STEP = ("scratch", "scratch_items", "bytes_read", "n_covered", "covered")
_ADDRESSES = ("state", "tail_chunks")


@dataclass
class _Unconnected:
    """Heads whose hooks are not compiled yet. Until they have enough rows, they use the hooks for few rows."""

    method: Method
    numbers: np.ndarray
    waits: bool = False


class HeadTable:
    """Records of all KV heads, layer by layer, and the method that serves each head.

    Parameters
    ----------
    n_ctx : int
        Most tokens that a token may see, and most tokens of a step.

    Attributes
    ----------
    heads : HEAD array, shape (n_heads,)
        Records of all heads.
    address : int
        Address of the first record.
    layer_of : int array, shape (n_heads,)
        Each head's layer.
    first_heads : int array, shape (n_layers,)
        Number of each layer's first head.
    tables : int64 array, shape (n_heads, n, 3)
        The CHUNK records of each head's chunks.
    groups : list of MethodHeads
        The methods with their heads. If two serve a head, the later one counts.
    generation : int
        Increases when methods serve other heads.
    assignments : list of Assignment
        The methods and their heads, as they were assigned.
    evicts : bool
        Whether any method forgets rows.
    cuts : bool
        Whether a token may see less alone than in a batch.
    ends_prompts : bool
        Whether a method keeps a prompt whole until the first step of one token.
    batch_end : int
        Batches end at multiples of this number of tokens; 0 if they may end anywhere.
    rolls : bool
        Whether no token ever sees beyond the rows that are kept, so that the sequence may have any length.
    """

    def __init__(self, layers: list[CacheLayer], n_ctx: int) -> None:
        self.layers = layers
        first = np.cumsum([0] + [layer.n_kv_head for layer in layers])
        self.heads = np.zeros(first[-1], HEAD)
        self.address: int = self.heads.ctypes.data  # kept, as NumPy takes 40 us to return it
        self.layer_of = np.repeat(np.arange(len(layers)), [layer.n_kv_head for layer in layers])
        self.first_heads = first[:-1]
        self._layer_heads = [self.heads[a:b] for a, b in itertools.pairwise(first)]
        self.n_ctx = n_ctx
        self.tables = np.zeros((first[-1], 2 * -(-n_ctx // CHUNK_ROWS) + 3, len(CHUNK.names or ())), np.int64)
        self.generation = 0
        self._unconnected: list[_Unconnected] = []

    def serve(self, assignments: Sequence[Assignment]) -> None:
        """Assign methods to the heads, one to each head. Clear all records."""
        self.assignments, self._unconnected = list(assignments), []
        self.heads[:] = 0
        self.heads["shape"] = np.array([layer.shape.packed for layer in self.layers])[self.layer_of]
        for name in ("window", "chunked", "softcap"):
            self.heads[name] = np.array([getattr(layer, name) for layer in self.layers])[self.layer_of]
        self.groups = [self._serve(a.method, a.heads, a.scale) for a in assignments]
        self.generation += 1
        self.evicts = any(a.method.storage.evicts for a in assignments)
        self.cuts = any(a.method.selects for a in assignments)
        self.ends_prompts = any(getattr(a.method, "prefill", "") == FULL for a in assignments)
        self.batch_end = max(a.method.batch_end for a in assignments)
        self._slides = (self.heads["window"] > 0) & self.evicts
        near = self._slides.copy()
        for group in self.groups:
            near[group.heads.numbers] |= isinstance(group.method, EvictingMethod) and group.method.rolls
        self.rolls = bool(near.all()) and all(layer.rope is not None for layer in self.layers)

    def _serve(self, method: Method, numbers: np.ndarray, scale: np.ndarray) -> MethodHeads:
        """Point the records of some heads at a method's hooks, and at new state."""
        layers = [self.layers[self.layer_of[number]] for number in numbers]
        shapes, ropes = [layer.shape for layer in layers], [layer.rope for layer in layers]
        state = np.zeros(len(numbers), method.state)
        self.heads["state"][numbers] = state.ctypes.data + np.arange(len(numbers)) * state.itemsize
        self._unconnected.append(_Unconnected(method, numbers))
        heads = Heads(self.heads, numbers, scale.copy(), shapes, ropes, self.n_ctx, state)
        return MethodHeads(method, heads, scale.copy())

    def clear_rows(self) -> None:
        """Clear the fields that describe rows."""
        for name in set(HEAD.names or ()) - {*_OF_THE_METHOD, *_OF_THE_STEP, "shape", "tail_chunks"}:
            self.heads[name] = 0
        self.heads["document_position"] = ANY_ORDER

    def copy_records(self, records: np.ndarray, of_other_table: bool = False) -> None:
        """Copy records of heads that the same methods serve, but for what belongs to the step or to a table."""
        for name in set(HEAD.names or ()) - {*_OF_THE_STEP, *(_ADDRESSES if of_other_table else ())}:
            self.heads[name] = records[name]

    def connect_for_step(self, n_new: int) -> None:
        """Connect the heads that a step of n_new tokens needs."""
        if self._unconnected:
            self.connect(int(self.heads["n_tail"].max()) + n_new)

    def connect(self, n_rows: int | None = None) -> None:
        """Compile the methods' hooks, and point the heads' records at them: before the first step that needs them.

        Parameters
        ----------
        n_rows : int, optional
            Most rows that a head will have after the step. Methods that do not select among so few are compiled later.
        """
        for each in self._unconnected:
            waits = n_rows is not None and n_rows < each.method.selects_from
            if not (waits and each.waits):
                for name, address in (each.method.hooks_below if waits else each.method.hooks).addresses().items():
                    self.heads[name][each.numbers] = address
            each.waits = waits
        self._unconnected = [each for each in self._unconnected if each.waits]

    @contextmanager
    def attending_by(self, method: Method, numbers: Sequence[int]) -> Iterator[None]:
        """Make some heads select by another method for a while. It must need no extras and no document."""
        self.connect()
        before = {name: self.heads[name].copy() for name in _OF_THE_METHOD}
        group = self._serve(method, np.array(numbers, int), np.ones(len(numbers)))
        self.connect()
        for name in ("append", "after_step"):
            self.heads[name] = before[name]
        self.groups.append(group)
        self.generation += 1
        try:
            yield
        finally:
            self.groups.remove(group)
            self.generation += 1
            for name, values in before.items():
                self.heads[name] = values

    @property
    def assigned(self) -> list[MethodHeads]:
        """Return the methods of the assignments, without a temporary one of `attending_by`."""
        return self.groups[: len(self.assignments)]

    @property
    def counted(self) -> np.ndarray:
        """Return the heads whose bytes budgets refer to: those without a sliding window, or all if there are none."""
        sees_all: np.ndarray = self.heads["window"] == 0
        return sees_all if sees_all.any() else ~sees_all

    @property
    def counted_row_bytes(self) -> int:
        """Return the bytes of one token in these heads."""
        row_bytes = np.array([layer.shape.token_bytes for layer in self.layers])
        return int(row_bytes[self.layer_of][self.counted].sum())

    @property
    def tells_steps(self) -> bool:
        """Return whether the numbers depend on which tokens were steps of their own."""
        return self.cuts or self.ends_prompts

    def selecting(self) -> np.ndarray:
        """Return which heads may read less than everything."""
        selects = np.zeros(len(self.heads), bool)
        for group in self.groups:
            selects[group.heads.numbers] |= group.method.selects
        return selects

    def has_replaced_rows(self) -> bool:
        """Return whether a method has replaced rows by later ones."""
        chosen = [group.heads for group in self.groups if group.method.storage is Storage.SELECTED]
        return any(np.any(heads.get("tail_position") > 0) for heads in chosen)

    def layer_heads(self, layer: int) -> np.ndarray:
        """Return a view of a layer's HEAD records."""
        return self._layer_heads[layer]

    def seen(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return which heads see a window only, the window's rows, and the sinks that they see besides."""
        slides, window = self._slides.copy(), self.heads["window"].copy()
        n_sinks = np.zeros(len(self.heads), np.int64)
        for group in self.assigned:
            method = group.method
            if isinstance(method, EvictingMethod) and method.storage is Storage.SINKS_AND_WINDOW:
                numbers = group.heads.numbers
                n_sinks[numbers], window[numbers] = method.kept_window(group.heads)
                slides[numbers] = True
        return slides, window, n_sinks

    @property
    def max_items(self) -> int:
        """Return the most items (clusters, pages, rows) that one head scores, for what is reserved now."""
        return max(group.method.n_items(group.heads) for group in self.groups)

    @property
    def max_spans(self) -> int:
        """Return the most spans that a method may select for one head, for what is reserved now."""
        return self.max_items + 2 + 3 * int(-(-self.heads["n_tail"].max() // CHUNK_ROWS))
