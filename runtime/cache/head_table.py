"""Keep the records of a cache's heads, and the methods that serve them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from ...cpu_kernels.layout.head import ANY_ORDER, CHUNK, HEAD
from ...cpu_kernels.layout.scores import padded, selection_scratch_bytes
from ...cpu_kernels.numba_support.compile import native
from ...cpu_kernels.numba_support.vector import CACHE_LINE
from ...cpu_kernels.rows.tiles import CHUNK_ROWS
from ..document.cache_layer import CacheLayer
from ..methods.budgets import MethodHeads
from ..methods.evicting import FULL, EvictingMethod
from ..methods.method import Assignment, Heads, Method, Storage
from .cache_memory import Memory

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
    layer_heads : list of HEAD arrays, shape (n_kv_head,)
        Views of each layer's records.
    counted : bool array, shape (n_heads,)
        The heads whose bytes budgets refer to: those without a sliding window, or all if there are none.
    counted_row_bytes : int
        Bytes of one token in these heads.
    tables : int64 array, shape (n_heads, n, 3)
        The CHUNK records of each head's chunks.
    assigned : list of MethodHeads
        The methods of the assignments, with their heads.
    groups : list of MethodHeads
        The same, with the temporary one of `attending_by`. If two serve a head, the later one counts.
    n_spans : int
        Most spans that a method may select for one head, once there is room (`make_room`).
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
        self.layer_heads = [self.heads[a:b] for a, b in itertools.pairwise(first)]
        sees_all = np.array([layer.window == 0 for layer in layers])[self.layer_of]
        self.counted = sees_all if sees_all.any() else ~sees_all
        row_bytes = np.array([layer.shape.token_bytes for layer in layers])
        self.counted_row_bytes = int(row_bytes[self.layer_of][self.counted].sum())
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
        self.assigned = [self._serve(a.method, a.heads, a.scale) for a in assignments]
        self.groups = list(self.assigned)
        self.generation += 1
        self._n_items = self.n_spans = -1  # the scratch of other methods is forgotten
        self.evicts = any(a.method.evicts for a in assignments)
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

    def connect(self, n_new: int | None = None) -> None:
        """Compile the methods' hooks, and point the heads' records at them: before the first step that needs them.

        Parameters
        ----------
        n_new : int, optional
            Tokens of the step. Methods that do not select among so few rows as the heads have then are compiled later.
        """
        if not self._unconnected:
            return
        n_rows = None if n_new is None else int(self.heads["n_tail"].max()) + n_new
        for each in self._unconnected:
            waits = n_rows is not None and n_rows < each.method.selects_from
            if not (waits and each.waits):
                hooks = each.method.hooks_below if waits else each.method.hooks
                for name, hook in hooks._asdict().items():
                    self.heads[name][each.numbers] = native(hook).address if hook else 0
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
    def depends_on_steps(self) -> bool:
        """Return whether the numbers depend on which tokens were steps of their own."""
        return self.cuts or self.ends_prompts

    @property
    def counters(self) -> tuple[int, int, float]:
        """Return what the heads that budgets count have read since `bytes_read` was set to 0.

        Returns
        -------
        bytes_read : int
            The bytes.
        n_covered, covered : int and float
            How many steps of heads reported the share of their attention that they read exactly, and the sum.
        """
        heads = self.heads[self.counted]
        return int(heads["bytes_read"].sum()), int(heads["n_covered"].sum()), float(heads["covered"].sum()) / 1e6

    def selecting(self) -> np.ndarray:
        """Return which heads may read less than everything."""
        selects = np.zeros(len(self.heads), bool)
        for group in self.groups:
            selects[group.heads.numbers] |= group.method.selects
        return selects

    @property
    def chooses_rows(self) -> bool:
        """Return whether a method chooses the rows that it keeps, by all tokens so far."""
        return any(group.method.storage is Storage.SELECTED for group in self.groups)

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

    def make_room(self, memory: Memory) -> bool:
        """Allocate scratch for the selection of the step that is reserved, with a margin. Return whether it grew.

        Each KV head of a layer has a part of it. All layers share it, one after another.
        """
        n_items = max(group.method.n_items(group.heads) for group in self.groups)
        n_spans = n_items + 2 + 3 * int(-(-self.heads["n_tail"].max() // CHUNK_ROWS))
        if n_items <= self._n_items and n_spans <= self.n_spans:
            return False
        self._n_items, self.n_spans = padded(n_items + n_items // 4), n_spans + n_spans // 4
        n_kv_head, group = (max(getattr(layer, name) for layer in self.layers) for name in ("n_kv_head", "group"))
        size = -(-selection_scratch_bytes(group, self._n_items) // CACHE_LINE) * CACHE_LINE
        self._scratch = memory.allocate(n_kv_head * size)
        self.heads["scratch_items"] = self._n_items
        for heads in self.layer_heads:
            heads["scratch"] = self._scratch.ctypes.data + np.arange(len(heads)) * size
        return True
