"""Prose to take texts from, and to hide things in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np

from ..convert.plan.recall_texts import Haystack
from ..convert.texts import read_document
from ..errors import OctavoError
from ..runtime.llama import Llama

BORDER = "\n\n"


@dataclass(frozen=True)
class Prose(Haystack):
    """The text of a file."""

    path: Path


def prose_of(llama: Llama, path: Path) -> Prose:
    """The text of a file, for a model."""
    return Prose(llama, read_document(path), path)


def passage(haystack: Prose, n_tokens: int, rng: np.random.Generator) -> list[list[int]]:
    """So many tokens in a row, from some paragraph on. Raises OctavoError where there are not as many."""
    if n_tokens > haystack.n_tokens:
        raise OctavoError(
            f"{haystack.path} has {haystack.n_tokens:,} tokens, and this takes {n_tokens:,}: give a longer text with "
            "--data, or smaller --depths."
        )
    return haystack.passage(n_tokens, rng)


def even_positions(n: int) -> list[float]:
    """Places in a text, from 5 to 95 %."""
    return [0.5] if n == 1 else [round(float(at), 4) for at in np.linspace(0.05, 0.95, n)]


def hide(haystack: Prose, n_tokens: int, hidden: Sequence[tuple[float, str]], rng: np.random.Generator) -> list[int]:
    """Prose of n_tokens tokens, with paragraphs hidden between its own, each where it is nearest to its position.

    hidden : positions from 0 to 1, rising, and paragraphs. Raises OctavoError where they do not fit.
    """
    added = [haystack.pieces(paragraph + BORDER) for _, paragraph in hidden]
    n_own = n_tokens - sum(map(len, added))
    if n_own < n_tokens / 2:
        raise OctavoError(
            f"{len(hidden)} paragraphs are too much to hide in so few tokens ({n_tokens:,} beside the prompt's): give "
            "larger --depths or fewer --samples."
        )
    paragraphs = passage(haystack, n_own, rng)
    ends = np.array(list(accumulate(map(len, paragraphs), initial=0))[:-1])
    result, done = [], 0
    for (position, _), own in zip(hidden, added, strict=True):
        upto = int(np.abs(ends - position * n_own).argmin())
        result += [token for paragraph in paragraphs[done:upto] for token in paragraph] + own
        done = max(done, upto)
    return result + [token for paragraph in paragraphs[done:] for token in paragraph]
