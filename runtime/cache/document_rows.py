"""Give heads their rows of a document: rows of heads that streamed, and the extras that a method derives from rows.

Extras are taken from the document's index where it keeps them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from ...cpu_kernels.rows.tiles import CHUNK_ROWS
from ...errors import OctavoError
from ..document.cache_layer import CacheLayer, Rows
from ..document.index import Index, KeptExtras, StreamingRows
from ..methods.method import Storage
from ..process.interruption import shielded
from .tail import Tail, joined_rows


class HeadWithDocument(NamedTuple):
    """A KV head whose tail holds a document's rows: its layer, its number in the layer, and the tail."""

    layer: int
    number: int
    tail: Tail


def derive_extras(document: Index, heads: Sequence[HeadWithDocument]) -> None:
    """Write the extras of heads that were just given a document's rows, and the state that belongs to them.

    The document keeps them if the method asks for it, so that the next time they are only copied.
    """
    of_names: defaultdict[str, list[HeadWithDocument]] = defaultdict(list)
    for head in heads:
        tail = head.tail
        of_names["" if tail.window or None in tail.chunks else tail.method.kept_name].append(head)  # "": not kept
    unknown = of_names.pop("", [])
    missing = {name: own for name, own in of_names.items() if not _take(document.extras.get(name), own)}
    unknown += [head for own in missing.values() for head in own]
    with shielded() as interruption, ThreadPoolExecutor() as pool:  # compiled code releases the GIL
        done = list(pool.map(lambda head: not interruption.came and _derive(head.tail), unknown))
    if not all(done):
        raise KeyboardInterrupt
    for name, own in missing.items():
        document.extras[name] = _kept(own)


def _derive(tail: Tail) -> bool:
    """Compute a tail's extras from its rows. Return True."""
    for number, chunk in enumerate(tail.chunks):
        if chunk is not None:
            tail.append_to_extras(*tail.rows_of_chunk(number))
    tail.run_after_step()
    return True


def _take(kept: KeptExtras | None, heads: Sequence[HeadWithDocument]) -> bool:
    """Copy kept extras and state into tails. Return False if some are missing or do not fit."""
    if kept is None:
        return False
    for layer, number, tail in heads:  # a file may hold anything
        of_layer = kept.get(layer, {})
        numbers = of_layer.get("heads", np.zeros(0, np.int32))
        is_list = numbers.ndim == 1 and all(array.shape[:1] == numbers.shape for array in of_layer.values())
        if not is_list or number not in numbers:
            return False
        place = int(np.flatnonzero(numbers == number)[0])
        own = {name: array[place] for name, array in of_layer.items() if name != "heads"}
        extras, sizes = own.pop("extras", np.zeros(0)), tail.method.kept_state(tail.shape)
        if extras.shape != (len(tail.chunks), tail.extras_bytes) or extras.dtype != np.uint8:
            return False
        fits = own.keys() == sizes.keys() and all(own[name].shape == (n,) for name, n in sizes.items())
        if not fits or not tail.method.check_kept(tail.shape, tail.n_rows, own):
            return False
        for name, n in sizes.items():
            if tail.state[name].ndim:
                tail.state[name][:n] = own[name]
            else:
                tail.state[name] = own[name][0]
        for chunk, stored in zip(tail.chunks, extras, strict=True):
            if chunk is not None:
                chunk.extras[:] = stored
    return True


def _kept(heads: Sequence[HeadWithDocument]) -> KeptExtras:
    """Return the extras and the state of tails, for an index."""
    of_layers: defaultdict[int, list[HeadWithDocument]] = defaultdict(list)
    for head in heads:
        of_layers[head.layer].append(head)
    kept: KeptExtras = {}
    for layer, own in of_layers.items():
        extras = np.stack([[chunk.extras for chunk in head.tail.chunks if chunk is not None] for head in own])
        kept[layer] = {"heads": np.array([head.number for head in own], np.int32), "extras": extras}
        for name, n in own[0].tail.method.kept_state(own[0].tail.shape).items():
            kept[layer][name] = np.stack([np.atleast_1d(head.tail.state[name])[:n].copy() for head in own])
    return kept


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
