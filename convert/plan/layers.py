"""Rank layers by how much their attention changes the residual stream, and share a budget among them.

SqueezeAttention (Wang et al. 2024, algorithm 1) computes the cosine similarity of the residual stream before and after
each layer's attention, puts the layers into three groups by K-means, and gives less budget to the group that attention
changes least.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

#: How llama.cpp's graphs name the residual stream: the embeddings, after a layer, and after a layer's attention.
_EMBEDDED, _LAYER = "embd", "l_out"
_ATTENDED = ("ffn_inp", "sa_out")

#: The groups of layers, the most important one first.
GROUP_NAMES = ("most important", "less important", "least important")


class ResidualChange:
    """Compare the residual stream before and after each attention, while a graph is computed.

    The arguments of `Context.observed` are `wants` and, wrapped, `take`. The cosine is the same for models that scale
    their embeddings.

    Parameters
    ----------
    n_layers : int
        Number of layers of the model.
    """

    def __init__(self, n_layers: int) -> None:
        self._before_name = [_EMBEDDED, *(f"{_LAYER}-{i}" for i in range(n_layers - 1))]
        self._layer_of = {f"{name}-{i}": i for i in range(n_layers) for name in _ATTENDED}
        self._before: dict[str, np.ndarray] = {}
        self._sums, self._counts = np.zeros(n_layers), np.zeros(n_layers)

    def wants(self, name: str) -> bool:
        """Return whether a tensor is compared.

        Parameters
        ----------
        name : str
            Name of the tensor in llama.cpp's graph.

        Returns
        -------
        bool
        """
        return name in self._layer_of or name in self._before_name

    def take(self, name: str, values: np.ndarray) -> None:
        """Add a tensor that is compared.

        Parameters
        ----------
        name : str
            Name of the tensor.
        values : float32 array, shape (n_tokens, n_embd)
            Its content.
        """
        layer = self._layer_of.get(name)
        if layer is None:
            self._before = {name: values}
            return
        before = self._before.get(self._before_name[layer])
        if before is not None and before.shape == values.shape:
            self._sums[layer] += cosines(before, values).sum()
            self._counts[layer] += len(values)

    @property
    def means(self) -> np.ndarray:
        """Mean similarity of each layer, shape (n_layers,); shape (0,) if the graph does not name the stream."""
        means: np.ndarray = self._sums / self._counts if np.all(self._counts) else np.empty(0)
        return means


def cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Compute the cosine similarity of each row of two arrays.

    Parameters
    ----------
    a, b : float arrays, shape (n_rows, n)
        Rows to compare.

    Returns
    -------
    float64 array, shape (n_rows,)
    """
    a, b = a.astype(np.float64), b.astype(np.float64)
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    similarity: np.ndarray = (a * b).sum(axis=1) / np.maximum(lengths, 1e-30)
    return similarity


def importance_groups(similarity: Sequence[float], slides: Sequence[bool], seed: int = 0) -> list[int | None]:
    """Group the layers by K-means over their similarities.

    Parameters
    ----------
    similarity : sequence of float
        Mean cosine similarity of each layer.
    slides : sequence of bool
        Whether the window of each layer slides.
    seed : int
        Seed of K-means.

    Returns
    -------
    list of int or None
        Group of each layer, 0 for the most important one; None for a layer that slides.
    """
    from sklearn.cluster import KMeans

    own = [i for i, sliding in enumerate(slides) if not sliding]
    values = np.array([similarity[i] for i in own])[:, None]
    n_groups = min(len(GROUP_NAMES), len(np.unique(values)))
    groups: list[int | None] = [None] * len(slides)
    if n_groups == 0:
        return groups
    clustering = KMeans(n_groups, n_init=10, random_state=seed).fit(values)
    rank = clustering.cluster_centers_[:, 0].argsort().argsort()
    for i, label in zip(own, clustering.labels_, strict=True):
        groups[i] = int(rank[label])
    return groups


def group_name(group: int, last: int) -> str:
    """Name a group of layers.

    Parameters
    ----------
    group : int
        Number of the group.
    last : int
        Number of the plan's last group. A plan of few layers has fewer groups than there are names.

    Returns
    -------
    str
        One of `GROUP_NAMES`.
    """
    return GROUP_NAMES[-1] if group == last > 0 else GROUP_NAMES[group]


def budget_scales(groups: Sequence[int | None], squeeze: float) -> list[float]:
    """Compute the factor of each layer's budget.

    The last group keeps the share `squeeze`. What it loses is shared evenly among the other groups, so that the factors
    of all grouped layers average to 1.

    Parameters
    ----------
    groups : sequence of int or None
        Group of each layer; None for a layer that slides.
    squeeze : float
        Share of their budget that the least important layers keep.

    Returns
    -------
    list of float
        Factor of each layer; 1 for layers without a group.
    """
    last = max((group for group in groups if group is not None), default=0)
    loses = [group == last for group in groups]
    gains = [group is not None and group < last for group in groups]
    if not any(gains):
        return [1.0] * len(groups)
    more = 1 + (1 - squeeze) * sum(loses) / sum(gains)
    return [squeeze if less else more if gain else 1.0 for less, gain in zip(loses, gains, strict=True)]
