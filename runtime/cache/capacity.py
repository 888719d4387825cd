"""Count the tokens whose keys and values fit in some memory, by cache type and attention.

The count is of the chunks that a cache allocates (tail.py). Rows of a document that its index maps need not be in
memory, and are counted all the same: a step would wait for the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ...cpu_kernels.rows.tiles import CHUNK_ROWS
from ...settings import CACHE_TYPES, LONGEST
from ..document.cache_layer import CacheLayer
from ..methods import DENSE, DUO, METHODS, STREAMING, method_class
from ..methods.method import Method
from ..store.plan import N_RECENT, N_SINKS
from .tail import chunk_bytes

#: Shares of the rows that are kept, and of the heads that retrieve.
_SHARES = (0.5, 0.25, 0.125)


@dataclass(frozen=True)
class Holding:
    """What the heads of a model hold.

    Parameters
    ----------
    method : Method
        The method of the heads that see everything; if it evicts, its budget is the share of the rows that they keep.
    retrieval : float
        Share of these heads. The others stream, with a plan's default sinks and recent rows.
    """

    method: Method
    retrieval: float = 1.0

    def n_bytes(self, layers: Sequence[CacheLayer], n_tokens: int) -> float:
        """Return the bytes that the chunks of all layers take after n_tokens tokens."""
        dense, streaming = method_class(DENSE)(), method_class(STREAMING)()
        budget: float = getattr(self.method, "budget", 1.0) if self.method.evicts else 1.0
        kept = max(round(budget * n_tokens), min(CHUNK_ROWS, n_tokens))
        forgets = (self.method.evicts or self.retrieval < 1) and not all(layer.window for layer in layers)
        total = 0.0
        for layer in layers:
            if layer.window:  # its rows are forgotten only where those of other layers are
                total += _heads_bytes(layer, dense, layer.window if forgets else n_tokens, n_tokens)
            else:
                total += self.retrieval * _heads_bytes(layer, self.method, kept, n_tokens)
                total += (1 - self.retrieval) * _heads_bytes(layer, streaming, N_SINKS + N_RECENT, n_tokens)
        return total

    def fitting_tokens(self, layers: Sequence[CacheLayer], n_bytes: float) -> int:
        """Return the most tokens, up to the longest sequence, whose chunks take at most n_bytes."""
        fits, exceeds = 0, LONGEST + 1
        while exceeds - fits > 1:
            middle = (fits + exceeds) // 2
            fits, exceeds = (middle, exceeds) if self.n_bytes(layers, middle) <= n_bytes else (fits, middle)
        return fits


def _heads_bytes(layer: CacheLayer, method: Method, n_kept: int, n_tokens: int) -> int:
    """Return the bytes of a layer's heads that keep n_kept of n_tokens rows each, or all of fewer.

    Where rows are forgotten, one chunk more is in use: the newest one fills while the oldest one empties.
    """
    n_chunks = -(-min(n_kept, n_tokens) // CHUNK_ROWS) + (n_kept < n_tokens)
    return layer.n_kv_head * n_chunks * chunk_bytes(layer.shape, method.extras_bytes(layer.shape))


def capacities(layers_of: Callable[[str], Sequence[CacheLayer]], n_bytes: float) -> Iterator[dict[str, Any]]:
    """Count for several attentions the tokens that fit in n_bytes.

    Parameters
    ----------
    layers_of : callable
        Takes a cache type, and returns the layers of a model's cache.

    Yields
    ------
    dict
        "attention", the words of `--attention`; "share", of the rows or heads that are kept whole; and "tokens", a
        number for each cache type.
    """
    holdings = []
    for name in METHODS:
        method = method_class(name)
        shares = _SHARES if method.evicts else (1.0,)
        kept = (method(**({"budget": share} if method.evicts else {})) for share in shares)
        holdings += [(name, share, Holding(each)) for share, each in zip(shares, kept, strict=True)]
    holdings += [(DUO, share, Holding(method_class(DENSE)(), share)) for share in _SHARES]
    of_types = {kv_type: layers_of(kv_type) for kv_type in CACHE_TYPES}
    for words, share, holding in holdings:
        tokens = {kv_type: holding.fitting_tokens(layers, n_bytes) for kv_type, layers in of_types.items()}
        yield {"attention": words, "share": share, "tokens": tokens}
