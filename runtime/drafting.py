"""Decide whether an answer drafts tokens, and have a drafter draft them while the answer is drawn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from ..cpu_kernels.numba_support.machine_features import MULTIPLIES_FEW
from .llama import Llama
from .models.own_products import own_products
from .sequences.drafter import Drafter

#: Share of a model's weights.
_NEARLY_ALL = 0.9


def new_drafter(llama: Llama, most: int | None, prediction: Sequence[int] = ()) -> Drafter:
    """Return a drafter for an answer, which drafts nothing where a draft cannot be computed, or cannot pay.

    Parameters
    ----------
    most : int, optional
        Length of drafts; 0 for none. By default they are as long as pays, if octavo multiplies the weights: then a
        longer step takes little more time, and rounds as steps of one token do.
    prediction : sequence of int
        Tokens of a text that the answer may resemble.
    """
    if llama.context.no_drafts or (most is None and not _multiplies_most(llama.model_path)):
        most = 0
    return Drafter(most, prediction, llama.drafts_so_far)


@cache
def _multiplies_most(path: str) -> bool:
    """Return whether octavo multiplies nearly all weights of a model, also by few tokens."""
    return MULTIPLIES_FEW and own_products(Path(path)).share >= _NEARLY_ALL


@contextmanager
def drafting(llama: Llama, drafter: Drafter) -> Iterator[None]:
    """Have a drafter draft for the model's present sequence, while its tokens are drawn."""
    sequence = llama.sequence
    sequence.drafter = drafter
    try:
        yield
    finally:
        sequence.drafter = None
