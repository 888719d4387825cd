"""Define the base class `Method`, and the heads that a method serves.

A method is a frozen dataclass of its parameters. Its class attributes declare the rows that it stores and its compiled
hooks; its methods turn a budget into the state that the hooks read. They run outside the compiled step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from ...cpu_kernels.layout.hooks import Hooks
from ...cpu_kernels.numba_support.shape import Limits, Shape
from ...cpu_kernels.rows.tiles import CHUNK_ROWS
from ..document.cache_layer import Rope
from ..document.index import Index
from .parameters import Parameters

#: Rows of a short sequence that a method reads whatever the budget.
LEAST_READ = 64


class Storage(Enum):
    """Rows of the sequence that a KV head stores."""

    MAPPED = "all rows, those of a document where its index maps them"
    CHUNKS = "all rows in chunks, in order; those of a document in place where its index has them in order"
    SINKS_AND_WINDOW = "sinks and recent rows"
    SELECTED = "the rows that the method chooses"


@dataclass(eq=False)  # `==` on arrays is ambiguous
class Heads:
    """KV heads of a cache that one method serves.

    Parameters
    ----------
    records : HEAD array, shape (n_all_heads,)
        Records of all heads of the cache.
    numbers : int64 array, shape (n_heads,)
        Numbers of the heads that the method serves.
    scale : float64 array, shape (n_heads,)
        Factor of each head's budget in this step, so that the model reads the budget (see budgets.py).
    shapes : sequence of Shape
        Shapes of each head's kernels.
    ropes : sequence of (Rope or None)
        RoPE of each head's keys; None if unknown.
    n_ctx : int
        Largest number of tokens that a token may see.
    state : STATE array, shape (n_heads,)
        The method's own record of each head.

    Attributes
    ----------
    head_dim, group, value_dim : int64 arrays, shape (n_heads,)
        Elements of a key, query heads, and elements of a value.
    row_bytes, token_bytes : int64 arrays, shape (n_heads,)
        Bytes of a key, and of a key and its value.
    counted_bytes : int64 array, shape (n_heads,)
        Bytes of a key and its value, 0 for sliding heads, which budgets do not count.
    """

    records: np.ndarray
    numbers: np.ndarray
    scale: np.ndarray
    shapes: Sequence[Shape]
    ropes: Sequence[Rope | None]
    n_ctx: int
    state: np.ndarray

    def __post_init__(self) -> None:
        self.head_dim, self.group, self.value_dim, self.row_bytes, self.token_bytes = (
            np.array([getattr(shape, name) for shape in self.shapes], np.int64)
            for name in ("head_dim", "group", "value_dim", "row_bytes", "token_bytes")
        )
        self.counted_bytes = np.where(self.get("window") > 0, 0, self.token_bytes)

    def get(self, field: str) -> np.ndarray:
        """Return a copy of a field of their HEAD records."""
        values: np.ndarray = self.records[field][self.numbers]
        return values

    @property
    def n_chunks(self) -> int:
        """Return the largest number of chunks in a head's tail."""
        return int(-(-self.get("n_tail").max(initial=0) // CHUNK_ROWS))


@dataclass(frozen=True)
class Assignment:
    """Which KV heads a method serves.

    Parameters
    ----------
    heads : int64 array, shape (n_heads,)
        Numbers of the heads in the cache.
    scale : float64 array, shape (n_heads,)
        Factor of each head's budget, by a plan's layer budgets; 1 without them.
    """

    method: Method
    heads: np.ndarray
    scale: np.ndarray


@dataclass(frozen=True)
class Method(Parameters):
    """How KV heads select what they attend.

    A subclass is a frozen dataclass whose fields are the method's parameters (see parameters.py). A method that has a
    budget has a field `budget`, the share of the KV bytes that a step may read, or of the rows that are kept. It may
    have a field `tokens`, a number of rows in place of the budget. A head's own part of them is `budget * heads.scale`
    and `tokens * heads.scale`.

    Attributes
    ----------
    name : str
        The method's name in the table METHODS.
    presets : mapping
        Values of parameters by the name of each preset.
    limits : Limits
        The largest heads that the hooks compute.
    state : numpy.dtype
        The record that the hooks read and write for each head; empty for none.
    storage : Storage
        The rows that a head stores.
    has_budget : bool
        Whether a budget makes a difference.
    needs_clusters : bool
        Whether a document's keys must be clustered.
    dense_layers : int
        Number of first layers that attend to everything.
    batch_end : int
        Batches end at multiples of this number of tokens, because the method acts there; 0 if they may end anywhere.
    runs_after_copy : bool
        Whether the `after_step` hook also runs when rows were copied or cut without a step.
    updates_apart : bool
        Whether the `after_step` hook may serve several heads at once: it uses no scratch, which layers share.
    waits_for_step : bool
        Whether the `after_step` hook may wait until the next step of one token, as batches do not need its results. It
        also runs after copies.
    selects_from : int
        Rows of a head below which `hooks_below` do the same: the method attends to all of them, and keeps nothing.
    document_arrays : tuple of str
        Fields of the state that are addresses of the arrays of the same name of an `IndexLayer`.
    document_counts : tuple of str
        Fields of the state that are the numbers of the same name of an `IndexLayer`.
    """

    hooks: ClassVar[Hooks]
    limits: ClassVar[Limits] = Limits()
    state: ClassVar[np.dtype] = np.dtype([])
    storage: ClassVar[Storage] = Storage.MAPPED
    has_budget: ClassVar[bool] = True
    needs_clusters: ClassVar[bool] = False
    batch_end: ClassVar[int] = 0
    runs_after_copy: ClassVar[bool] = False
    updates_apart: ClassVar[bool] = False
    waits_for_step: ClassVar[bool] = False
    selects_from: ClassVar[int] = 0
    hooks_below: ClassVar[Hooks]
    document_arrays: ClassVar[tuple[str, ...]] = ()
    document_counts: ClassVar[tuple[str, ...]] = ()

    #: 0 for most methods. A method with dense layers has a parameter of this name.
    dense_layers = 0

    #: Rows of the sequence that a head reads or keeps whatever the budget.
    least_rows = 0

    #: Whether a head forgets rows; and whether a token may see less alone than in a batch, other than by a window.
    evicts: ClassVar[bool] = False
    selects: ClassVar[bool] = True

    #: Fields of `ClusterSettings` that a document's clustering needs to differ from the default.
    clustering: ClassVar[Mapping[str, Any]] = MappingProxyType({})

    #: Whether the method's shader part, if it has one, supports these parameters.
    on_metal: ClassVar[bool] = True

    #: Whether the method reads components from the stored rows, and rotated q4_0 rows have none; and whether it turns
    #: queries, and so needs a layer's RoPE.
    reads_columns: ClassVar[bool] = False
    turns: ClassVar[bool] = False

    @property
    def takes_budget(self) -> bool:
        """Return whether the budget makes a difference: not if the parameters set the number of rows."""
        return self.has_budget and not self.asked_tokens

    @property
    def asked_tokens(self) -> int:
        """Return the number of rows that the parameters ask for in place of a budget; 0 for a budget."""
        return int(getattr(self, "tokens", 0))

    def for_metal(self) -> Method:
        """Return the method with the defaults of its shader part."""
        return self

    def fixed_share(self, heads: Heads, n_tokens: int) -> np.ndarray:
        """Return the share of n_tokens rows that each head reads, if the budget makes no difference."""
        return np.full(len(heads.numbers), min((self.asked_tokens or n_tokens) / n_tokens, 1.0))

    def lookup_share(self, heads: Heads, index: Index | None, n_tokens: int) -> np.ndarray:
        """Return the share of the bytes of n_tokens rows that a head's lookup takes, whatever it selects then."""
        return np.zeros(len(heads.numbers))

    def least_selected(self, index: Index | None, n_tokens: int) -> float:
        """Return the share of n_tokens rows that a head always reads or keeps besides its lookup."""
        return self.least_rows / n_tokens

    def most_share(self, heads: Heads, index: Index | None, n_tokens: int) -> float:
        """Return the largest share of n_tokens rows that a step reads with a budget below 1."""
        return 1.0

    def least_tokens(self, index: Index | None) -> int:
        """Return the smallest number of rows that a head attends to, whatever the parameters ask for."""
        return 1

    def extras_bytes(self, shape: Shape) -> int:
        """Return the bytes of a chunk's data for selection."""
        return 0

    def n_items(self, heads: Heads) -> int:
        """Return the largest number of items (pages, rows, clusters) to score in one head now."""
        return 0

    def measure(self, index: Index) -> None:
        """Measure a document for the method, and keep the result in the document's index."""

    def start(self, heads: Heads, index: Index | None) -> None:
        """Set the state for a sequence that begins: after a document, or after nothing."""

    def before_step(self, heads: Heads, index: Index | None, n_tokens: int) -> None:
        """Set the state for a step after which n_tokens tokens are stored."""

    def before_batch(self, heads: Heads, index: Index | None, n_tokens: int) -> None:
        """Set the state for a batch that is not predicted from, after which n_tokens tokens are stored.

        The batch may be a single token, for which the hooks select as for a step. It must read what it would read
        beside others.
        """
        self.before_step(heads, index, n_tokens)

    @property
    def kept_name(self) -> str:
        """Return the name under which an index keeps the extras of a document's rows, with the state of `kept_state`.

        Return "" if they are derived each time that the document is attached.
        """
        return ""

    def kept_state(self, shape: Shape) -> Mapping[str, int]:
        """Return the fields of the state that an index keeps with the extras, and how many first numbers of each."""
        return {}

    def check_kept(self, shape: Shape, n_rows: int, state: Mapping[str, np.ndarray]) -> bool:
        """Return whether kept state is possible for a tail of n_rows rows: a file may hold anything."""
        return True

    def chunk_order(self, state: np.void, shape: Shape, number: int, extras: np.ndarray) -> np.ndarray | None:
        """Return the original place of each row of a chunk, or None if the chunk is still in that order."""
        return None

    def fixed_chunks(self, state: np.ndarray, n_rows: np.ndarray) -> np.ndarray:
        """Return how many first chunks of each tail do not change in a step after which it has n_rows rows.

        Chunks to which that step appends rows need not be left out. By default all are fixed, unless the method has an
        `after_step` hook.

        Parameters
        ----------
        state : STATE array, shape (n_heads,)
            The method's records before the step.
        n_rows : int64 array, shape (n_heads,)
            Rows of each tail.
        """
        return np.zeros_like(n_rows) if self.hooks.after_step else n_rows // CHUNK_ROWS

    def rows_to_act(self, n_rows: np.ndarray) -> np.ndarray:
        """Return after how many more rows of each tail the `after_step` hook may change something; by default 1.

        Parameters
        ----------
        n_rows : int64 array, shape (n_heads,)
            Rows of each tail.
        """
        return np.ones_like(n_rows)

    def chunks_kept(self, n_rows: int) -> int:
        """Return how many first chunks of a tail stay as they are if it is truncated to n_rows rows."""
        return n_rows // CHUNK_ROWS

    def truncate(self, state: np.void, n_chunks: int) -> None:
        """Forget the state of all chunks but the first n_chunks, which are full."""
