"""Rank layers by how much their attention changes the residual stream, and group them by it.

SqueezeAttention (Wang et al. 2024, algorithm 1) computes the cosine similarity of the residual stream before and after
each layer's attention, puts the layers into three groups by K-means, and takes budget from the group with the least
change.
"""

from __future__ import annotations

import numpy as np

#: llama.cpp's names of the residual stream: the embeddings, after a layer, and after a layer's attention.
_EMBEDDED, _LAYER = "embd", "l_out"
_ATTENDED = ("ffn_inp", "sa_out")

#: The groups of layers, most important first.
GROUP_NAMES = ("most important", "less important", "least important")


class ResidualChange:
    """Compare the residual stream before and after each attention, while a graph is computed.

    `wants` and, wrapped, `take` are the arguments of `Context.observed`. The cosine does not depend on whether a model
    scales its embeddings.
    """

    def __init__(self, n_layers: int) -> None:
        self._before_name = [_EMBEDDED, *(f"{_LAYER}-{i}" for i in range(n_layers - 1))]
        self._layer_of = {f"{name}-{i}": i for i in range(n_layers) for name in _ATTENDED}
        self._before: dict[str, np.ndarray] = {}
        self._sums, self._counts = np.zeros(n_layers), np.zeros(n_layers)

    def wants(self, name: str) -> bool:
        """Return whether a tensor takes part in the comparison."""
        return name in self._layer_of or name in self._before_name

    def take(self, name: str, values: np.ndarray) -> None:
        """Add a tensor, (n_tokens, n_embd) f32, that takes part in the comparison."""
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
    """Compute the cosine similarity, (n_rows,) f64, of the rows of two arrays of shape (n_rows, n)."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    similarity: np.ndarray = (a * b).sum(axis=1) / np.maximum(lengths, 1e-30)
    return similarity


def group_name(group: int, last: int) -> str:
    """Name a group of layers.

    Parameters
    ----------
    last : int
        Number of the plan's last group. A plan of few layers has fewer groups than there are names.
    """
    return GROUP_NAMES[-1] if group == last > 0 else GROUP_NAMES[group]
