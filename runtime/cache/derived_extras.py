"""Derive a method's extras from a document's rows, or take what the document's index keeps of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from ..document.index import Index, KeptExtras
from ..process.interruption import shielded
from .tail import Tail


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
