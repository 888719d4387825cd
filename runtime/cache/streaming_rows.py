"""Copy the rows of heads that stream through a document: from a cache into an index, and back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...cpu_kernels.rows.tiles import CHUNK_ROWS
from ...errors import OctavoError
from ..document.cache_layer import CacheLayer, Rows
from ..document.index import StreamingRows
from ..methods.method import Storage
from .tail import Tail, joined_rows


def kept_rows(
    layer: CacheLayer, tails: Sequence[Tail], n_tokens: int, window: np.ndarray, n_sinks: np.ndarray
) -> tuple[Rows, StreamingRows | None]:
    """Copy the rows that a layer keeps of a sequence.

    Parameters
    ----------
    window, n_sinks : int64 arrays, shape (n_kv_head,)
        Newest rows that a token sees, and sinks, of each streaming head.

    Returns
    -------
    rows : (array, array)
        Keys and values of the heads that keep all rows; with a sliding window, only rows that the next token sees.
    streaming : StreamingRows or None
        Rows of the heads that keep sinks and recent rows, if there are any.
    """
    streams = [i for i, tail in enumerate(tails) if tail.method.storage is Storage.SINKS_AND_WINDOW]
    whole = [tail for i, tail in enumerate(tails) if i not in streams]
    n_rows = min(n_tokens, layer.window - 1 if layer.window else n_tokens)
    rows = joined_rows(layer, whole, [(-n_rows, 0)])
    if not streams:
        return rows, None
    sinks = min(int(n_sinks[streams[0]]), n_tokens)
    recent = max(0, min(int(window[streams[0]]) - 1, n_tokens - sinks))
    parts = [(-n_tokens, sinks - n_tokens), (-recent, 0)]
    keys, values = joined_rows(layer, [tails[i] for i in streams], parts)
    return rows, StreamingRows(tuple(streams), sinks, keys, values)


def copy_streaming_rows(tail: Tail, stored: StreamingRows, head: int, n_tokens: int, window: int, n_sinks: int) -> None:
    """Copy a document's sinks and recent rows from the index into the tail of a head that streamed through it.

    Parameters
    ----------
    tail : Tail
        The head's tail, empty.
    window, n_sinks : int
        Newest rows that a token sees, including its own, and sinks.

    Raises
    ------
    OctavoError
        The index has fewer rows than the head sees.
    """
    place, n_sinks = stored.heads.index(head), min(n_sinks, n_tokens)
    n_recent = max(0, min(window - 1, n_tokens - n_sinks))
    n_stored = stored.keys.shape[1] - stored.n_sinks
    if tail.method.storage is not Storage.SINKS_AND_WINDOW or n_sinks > stored.n_sinks or n_recent > n_stored:
        raise OctavoError(
            "The index holds only sinks and recent rows of some heads, and this attention needs more of them: "
            "attend to it with duo, with the plan and the parameters that it was made for."
        )
    tail.record["n_tail"] = n_tokens
    first = max(n_tokens - window + 1, 0) // CHUNK_ROWS * CHUNK_ROWS
    for number, start in enumerate(range(0, n_tokens, CHUNK_ROWS)):
        if start >= first or (start == 0 and n_sinks):
            tail.grow(number + 1)
        else:
            tail.chunks.append(None)
    keys, values = stored.keys[place], stored.values[place]
    tail.write(0, keys[:n_sinks], values[:n_sinks])
    newest = slice(len(keys) - n_recent, len(keys))
    tail.write(n_tokens - n_recent, keys[newest], values[newest])
