"""Reuse the keys and values of a text's beginning from the index of another text that begins alike.

Attention is causal: a token's keys and values depend only on the tokens before it, and on how they were batched.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..cpu_kernels.layout.head import ANY_ORDER
from ..errors import OctavoError
from ..runtime.document.cache_layer import Rows
from ..runtime.document.index import IndexLayer
from ..runtime.document.kept_state import KeptState, last_state
from ..runtime.sequences.sequence import n_common
from ..runtime.store.index_files import open_index
from ..runtime.store.library_snapshot import LibrarySnapshot
from ..runtime.store.manifest import DATELESS_HEAD
from .identity import NUMBERS

#: Entries of the manifest that must agree, apart from the model, so that equal tokens have equal rows.
_SAME = ("format_version", "prefill_covers", "duo", *NUMBERS)


class KnownRows:
    """The rows of an index, in the order of its tokens.

    Parameters
    ----------
    layers : sequence of IndexLayer
        Layers of the index; all rows must be present.
    n_tokens : int
        Number of its first tokens that may be reused.
    head : sequence of int
        Those of them before its text.
    states : sequence of KeptState
        Recurrent states of a hybrid model that were kept.
    """

    def __init__(
        self,
        layers: Sequence[IndexLayer],
        n_tokens: int,
        head: Sequence[int] = (),
        states: Sequence[KeptState] = (),
    ) -> None:
        self.n_tokens, self.head, self.states = n_tokens, head, states
        self._layers = layers
        self._places = [
            [_places(layer.positions(place))[:n_tokens] for place in range(len(layer.keys))] for layer in layers
        ]

    def rows(self, start: int, end: int) -> list[Rows]:
        """Return each layer's keys and values of the tokens from `start` to `end`."""
        rows_of_layers = []
        for layer, places in zip(self._layers, self._places, strict=True):
            rows_of_heads = [of_head[start:end] for of_head in places]
            keys, values = (
                np.stack([of_head[rows] for of_head, rows in zip(stored, rows_of_heads, strict=True)])
                for stored in (layer.keys, layer.values)
            )
            rows_of_layers.append((keys, values))
        return rows_of_layers


def _places(positions: np.ndarray) -> np.ndarray:
    places = np.empty(len(positions), np.int64)
    places[positions] = np.arange(len(positions))
    return places


def known_rows(
    snapshot: LibrarySnapshot,
    head: Sequence[int],
    text: Sequence[int],
    settings: dict[str, Any],
    kv_type: str,
    n_last: int,
    step: int,
) -> KnownRows | None:
    """Find the index that shares the most first tokens with a text, after its own head if that has another date.

    Parameters
    ----------
    head : sequence of int
        The prompt's head. Of two indexes that share as much, the one with this head is better.
    text : sequence of int
        The tokens of the text.
    settings : dict
        Settings of its index (`identity`).
    n_last : int
        Last tokens of a text that share no batch with earlier ones.
    step : int
        Batches do not cross multiples of this number, so both texts were batched alike up to any of them.

    Returns
    -------
    KnownRows or None
        The rows of a multiple of `step` tokens; None if no index has any. Indexes that lack rows, because windows slide
        or heads stream, are passed over. Those of a hybrid model end where its recurrent state was kept.
    """
    best, found = (0, False), None
    new = np.asarray(text, np.int32)
    for path, manifest in snapshot.indexes if len(head) + len(text) >= step else ():
        same = manifest["dtype"] == kv_type and manifest.get(DATELESS_HEAD, manifest["head"]) == settings["head"]
        tokens = snapshot.tokens_of(path) if same else None
        if tokens is None or any(manifest.get(name) != settings.get(name) for name in _SAME):
            continue
        own = manifest["head"]
        old = tokens[len(own) :]
        n_same = len(own) + min(n_common(old, new), len(old) - n_last, len(new) - n_last)
        n_same -= n_same % step
        if n_same > 0 and (n_same, own == head) > best:
            best, found = (n_same, own == head), (path, own)
    if found is None:
        return None
    try:
        document, _ = open_index(found[0], snapshot.library.model_hash)
    except OctavoError:
        return None
    n_known = best[0]
    if document.states:
        state = last_state([state for state in document.states if state.n_tokens % step == 0], n_known)
        n_known = 0 if state is None else state.n_tokens
    if not n_known or not keep_all_rows(document.layers):
        return None
    return KnownRows(document.layers, n_known, found[1], document.states)


def keep_all_rows(layers: Sequence[IndexLayer]) -> bool:
    """Return whether layers have all rows of a document, in any order or from the first on."""
    return all(layer.position in (ANY_ORDER, 0) and not layer.streaming for layer in layers)
