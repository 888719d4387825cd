"""Choose the pages of a document's files that a step asks the system for, and how far the system reads around each.

By default the system reads ahead around each page that is touched. This suits a batch, which reads all of a document. A
token selects rows all over the document: most of that reading is wasted, and evicts useful pages if memory cannot hold
the whole document. So octavo turns it off for a token, and the step asks for the pages that it selects
(cpu_kernels/attend/read_ahead.py).

Asking costs a few hundredths of a step's time, so steps ask only after one that had to wait for the disk.
"""

from __future__ import annotations

import mmap
import resource
from collections.abc import Sequence
from typing import Protocol
from weakref import WeakKeyDictionary

import numpy as np

from ...cpu_kernels.attend.read_ahead import LATELY, PAGES
from ...system.mapped_file import MADVISE, mapping_of

#: Number of tokens that ask after a step had to wait for the disk.
_ASKING = 64


class HeadRecords(Protocol):
    """The parts of a head table that pages depend on."""

    heads: np.ndarray
    first_heads: np.ndarray
    generation: int

    def selecting(self) -> np.ndarray:
        """Return which heads may read less than everything."""


class MappedPages:
    """The pages of a document's rows, shared by all caches that attend the document.

    Parameters
    ----------
    keys : sequence of arrays
        The document's keys in each layer. Keys outside files have no pages.
    """

    def __init__(self, keys: Sequence[np.ndarray]) -> None:
        self._files = [mapping_of(array) for array in keys] if hasattr(mmap, "MADV_RANDOM") else []
        self._records = np.zeros(len(keys), PAGES)
        self._selected: list[np.ndarray] = []
        self._is_random = np.zeros(len(keys), bool)
        self._n_waits, self._n_asking = _waits(), 0
        self._of_caches: WeakKeyDictionary[HeadRecords, tuple[int, np.ndarray, np.ndarray]] = WeakKeyDictionary()
        for record, file in zip(self._records, self._files, strict=False):
            if file is None:
                continue
            selected = np.zeros(-(-file.n_bytes // mmap.PAGESIZE), np.uint16)
            record["first"], record["n_pages"] = file.start, len(selected)
            record["page_bits"], record["selected"] = mmap.PAGESIZE.bit_length() - 1, selected.ctypes.data
            record["step"], record["advise"] = LATELY, MADVISE
            self._selected.append(selected)

    def prepare(self, cache: HeadRecords, n_tokens: int) -> None:
        """Prepare a step of n_tokens tokens of a cache that attends the document."""
        if (n_waits := _waits()) != self._n_waits:
            self._n_waits, self._n_asking = n_waits, _ASKING
        addresses, selects = np.zeros(1, np.int64), np.zeros_like(self._is_random)  # of all heads, and of each layer
        if n_tokens == 1 and self._n_asking:
            generation, addresses, selects = self._of_caches.get(cache, (-1, _NONE, _NONE))
            if generation != cache.generation:
                may_select = (cache.heads["n_document"] == 0) | cache.selecting()
                selects = np.logical_and.reduceat(may_select, cache.first_heads) & (self._records["n_pages"] > 0)
                n_heads = np.diff([*cache.first_heads, len(may_select)])
                of_layers = self._records.ctypes.data + np.arange(len(n_heads)) * PAGES.itemsize
                addresses = np.repeat(np.where(selects, of_layers, 0), n_heads)  # 0 where a head of the layer reads all
                self._of_caches[cache] = cache.generation, addresses, selects
            self._n_asking -= 1
            self._records["step"] += 1
        cache.heads["document_pages"] = addresses
        for layer in np.flatnonzero(selects != self._is_random).tolist():
            if (file := self._files[layer]) is not None:  # the system reads ahead there, or does not
                file.madvise(mmap.MADV_RANDOM if selects[layer] else mmap.MADV_NORMAL)
        self._is_random = selects


_NONE = np.zeros(0, np.int64)


def _waits() -> int:
    """Return how often this process has waited for a page from the disk."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt
