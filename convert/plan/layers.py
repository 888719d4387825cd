"""How much each layer's attention changes what it gets, and which share of a budget it is worth.

SqueezeAttention (Wang et al. 2024): the cosine similarity of the residual stream before and after a layer's attention,
three groups of layers by K-means, and less budget for the group that attention changes least (algorithm 1).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

#: How llama.cpp's graphs name the residual stream: the embeddings, after a layer, and after a layer's attention.
_EMBEDDED, _LAYER = "embd", "l_out"
_ATTENDED = ("ffn_inp", "sa_out")

_GROUPS = 3


class ResidualChange:
    """Takes the residual stream as it passes (see `Context.observed`), and compares it around each attention.

    The cosine does not see that some models scale their embeddings.
    """

    def __init__(self, n_layers: int) -> None:
        self._names = [_EMBEDDED, *(f"{_LAYER}-{i}" for i in range(n_layers - 1))]
        self._layer_of = {f"{name}-{i}": i for i in range(n_layers) for name in _ATTENDED}
        self._before: dict[str, np.ndarray] = {}
        self._sums, self._counts = np.zeros(n_layers), np.zeros(n_layers)

    def wants(self, name: str) -> bool:
        """Whether a tensor of this name is wanted."""
        return name in self._layer_of or name in self._names

    def take(self, name: str, values: np.ndarray) -> None:
        """Take a tensor that is wanted."""
        layer = self._layer_of.get(name)
        if layer is None:
            self._before = {name: values}
            return
        before = self._before.get(self._names[layer])
        if before is not None and before.shape == values.shape:
            self._sums[layer] += cosines(before, values).sum()
            self._counts[layer] += len(values)

    @property
    def means(self) -> np.ndarray:
        """Mean similarity of each layer: (n_layers,), or (0,) where the graph does not name the residual stream."""
        means: np.ndarray = self._sums / self._counts if np.all(self._counts) else np.empty(0)
        return means


def cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Cosine similarity of each row of two arrays: (n_rows,)."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    similarity: np.ndarray = (a * b).sum(axis=1) / np.maximum(lengths, 1e-30)
    return similarity


def importance_groups(similarity: Sequence[float], slides: Sequence[bool], seed: int = 0) -> list[int | None]:
    """For each layer the group that K-means puts it in: 0 is most important; None for a layer that slides."""
    from sklearn.cluster import KMeans

    own = [i for i, sliding in enumerate(slides) if not sliding]
    values = np.array([similarity[i] for i in own])[:, None]
    n_groups = min(_GROUPS, len(np.unique(values)))
    groups: list[int | None] = [None] * len(slides)
    if n_groups == 0:
        return groups
    clustering = KMeans(n_groups, n_init=10, random_state=seed).fit(values)
    rank = clustering.cluster_centers_[:, 0].argsort().argsort()
    for i, label in zip(own, clustering.labels_, strict=True):
        groups[i] = int(rank[label])
    return groups


def budget_scales(groups: Sequence[int | None], squeeze: float) -> list[float]:
    """Factor of each layer's budget: `squeeze` in the last group, and what that frees shared out among the others.

    The factors of the layers that have a group add up to their number; the others have 1.
    """
    last = max((group for group in groups if group is not None), default=0)
    squeezed = [group == last for group in groups]
    sharing = [group is not None and group < last for group in groups]
    if not any(sharing):
        return [1.0] * len(groups)
    more = 1 + (1 - squeeze) * sum(squeezed) / sum(sharing)
    return [squeeze if less else more if shares else 1.0 for less, shares in zip(squeezed, sharing, strict=True)]
