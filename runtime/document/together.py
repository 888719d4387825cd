"""Documents that are attended at once, each from its own index (parallel encoding: APE, Yang et al. 2025).

A step attends to the rows of all in one softmax. Each lies where its index has it, and what follows stands right behind
each of them: behind the longest, and for the others its queries are turned (cpu_kernels/attend/together.py). The rows
of a document have its weight in the softmax, so that the prompt's head, which all have, counts once. With a weight of 1
a document is attended as if it was alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ...cpu_kernels.attend.head import HEAD
from ...cpu_kernels.attend.together import OTHER
from ...errors import OctavoError
from ..methods.method import Assignment, Keeps
from .index import Index

if TYPE_CHECKING:
    from ..cache.kv_cache import KVCache
    from ..cache.tail import CacheLayer

#: Words of what is refused.
_AT_ONCE, _INSTEAD = "attend to several documents at once", 'read "document" in place of "together"'


@dataclass(frozen=True)
class Together(Index):
    """Documents that are attended at once. As an index it is that of the longest.

    Parameters
    ----------
    documents : sequence of Index
        The documents.
    weights : sequence of float
        What the rows of each count in the softmax, above 0; their sum is 1.
    """

    documents: Sequence[Index] = ()
    weights: Sequence[float] = ()

    @classmethod
    def of(cls, documents: Sequence[Index], weights: Sequence[float]) -> Together:
        """Return the index of documents, at least one, with weights of any sum."""
        longest = max(documents, key=lambda document: len(document.tokens))
        shares = [weight / sum(weights) for weight in weights]

        def check() -> None:
            for document in documents:
                document.check()

        return cls(longest.tokens, longest.layers, check=check, documents=documents, weights=shares)

    @property
    def parts(self) -> Sequence[tuple[Index, float]]:
        """Return the documents with their weights."""
        return list(zip(self.documents, self.weights, strict=True))

    @property
    def n_bytes(self) -> int:
        """Return the bytes of all keys and values."""
        return sum(document.n_bytes for document in self.documents)


@dataclass(frozen=True, eq=False)  # arrays have no one truth to compare by
class Others:
    """Caches that hold a document each, whose rows the heads of one more cache attend with their own.

    Parameters
    ----------
    caches : sequence of KVCache
        The caches.
    heads : OTHER array, shape (n_heads, n_caches)
        What the heads of the one more cache have to know. Where `turn` is not 0, room for queries is missing yet.
    turns : sequence of float32 arrays, shape (2, n_pairs)
        What `turn` points at.
    """

    caches: Sequence[KVCache]
    heads: np.ndarray
    turns: Sequence[np.ndarray] = ()

    @classmethod
    def none(cls, n_heads: int) -> Others:
        """Return no caches."""
        return cls((), np.zeros((n_heads, 0), OTHER))

    @classmethod
    def of(cls, document: Together, cache: KVCache) -> Others:
        """Return caches with these documents, which the same methods serve as another cache.

        Raises
        ------
        OctavoError
            Its methods or layers cannot attend to several documents at once.
        """
        _check(cache.assignments, cache.layers)
        caches = [type(cache)(cache.layers, cache.n_ctx, cache.assignments) for _ in document.documents]
        heads, turns = np.zeros((len(cache.heads), len(caches)), OTHER), []
        for own, each, part, weight in zip(heads.T, caches, document.documents, document.weights, strict=True):
            each.attach(part)
            own["head"] = each.heads.ctypes.data + np.arange(len(own)) * HEAD.itemsize
            own["bias"] = np.log(weight)
            n_back = len(document.tokens) - len(part.tokens)
            for layer, first in zip(cache.layers, cache.first_heads, strict=True):
                turns.append(_turn(layer, n_back))
                its = own[first : first + layer.n_kv_head]
                its["n_pairs"], its["turn"] = turns[-1].shape[1], turns[-1].ctypes.data if n_back else 0
                its["interleaved"] = layer.rope is not None and layer.rope.interleaved
        return cls(caches, heads, turns)

    def copy(self) -> Others:
        """Return the same for the heads of another cache."""
        heads = self.heads.copy()
        heads["queries"] = 0  # room of its own
        return replace(self, heads=heads)


def _turn(layer: CacheLayer, n_back: int) -> np.ndarray:
    """Return the cosines and sines that turn a layer's queries back by so many positions."""
    if layer.rope is None:
        if n_back:
            raise OctavoError(f"octavo does not know this model's RoPE, so it cannot {_AT_ONCE}: {_INSTEAD}.")
        return np.zeros((2, 0), np.float32)
    angles = -n_back * layer.rope.frequencies
    return np.stack([np.cos(angles), np.sin(angles)]).astype(np.float32)


def _check(assignments: Sequence[Assignment], layers: Sequence[CacheLayer]) -> None:
    """Check that methods and layers can attend to several documents at once."""
    for method in (assignment.method for assignment in assignments):
        if method.hooks.finish is not None or method.keeps is Keeps.CHOSEN or method.turns:
            raise OctavoError(f"{method.name} cannot {_AT_ONCE}: choose another attention, or {_INSTEAD}.")
    if any(layer.window for layer in layers):
        raise OctavoError(f"A model whose windows slide cannot {_AT_ONCE}: {_INSTEAD}.")
