"""Read prose, take passages from it, and hide paragraphs in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np

from ..convert.plan.recall_texts import Haystack
from ..documents.extract import extract_document
from ..documents.text.plain_text import read_utf8
from ..errors import OctavoError
from ..runtime.llama import Llama

#: Marks the end of a paragraph.
BORDER = "\n\n"


@dataclass(frozen=True)
class Prose(Haystack):
    """The text of a file.

    Parameters
    ----------
    path : Path
        The file, for messages.
    """

    path: Path


def prose_of(llama: Llama, path: Path) -> Prose:
    """Read a UTF-8 file as paragraphs of a model's tokens. Raise OctavoError if it cannot be read."""
    return Prose(llama, extract_document(path).text, path)


def passage(haystack: Prose, n_tokens: int, rng: np.random.Generator) -> list[list[int]]:
    """Take consecutive tokens, from the beginning of a random paragraph.

    Returns
    -------
    list of list of int
        Tokens of each paragraph; the last one is cut.

    Raises
    ------
    OctavoError
        If the text is shorter.
    """
    if n_tokens > haystack.n_tokens:
        raise OctavoError(
            f"{haystack.path} has {haystack.n_tokens:,} tokens, and this takes {n_tokens:,}: give a longer text with "
            "--data, or smaller --depths."
        )
    return haystack.passage(n_tokens, rng)


def first_tokens(llama: Llama, path: Path, n_tokens: int) -> list[int]:
    """Return the first tokens of a text file. Raise OctavoError if it has fewer, or cannot be read."""
    tokens: list[int] = llama.tokenize(read_utf8(path).encode())
    if len(tokens) < n_tokens:
        raise OctavoError(f"{path} has {len(tokens):,} tokens, and this takes {n_tokens:,}: give a longer text.")
    return tokens[:n_tokens]


def even_positions(n: int) -> list[float]:
    """Return n evenly spaced positions in a text, from 0.05 to 0.95."""
    return [0.5] if n == 1 else [round(float(position), 4) for position in np.linspace(0.05, 0.95, n)]


def hide(haystack: Prose, n_tokens: int, hidden: Sequence[tuple[float, str]], rng: np.random.Generator) -> list[int]:
    """Hide paragraphs in prose from a random paragraph on, each at the border nearest to its position.

    Parameters
    ----------
    n_tokens : int
        Tokens of the prose and the paragraphs together: the length of the result.
    hidden : sequence of (float, str)
        Rising positions from 0 to 1, and the paragraphs.

    Raises
    ------
    OctavoError
        The paragraphs would take more than half of the tokens, or the prose is too short.
    """
    needles = [haystack.pieces(paragraph + BORDER) for _, paragraph in hidden]
    n_prose = n_tokens - sum(map(len, needles))
    if n_prose < n_tokens / 2:
        raise OctavoError(
            f"{len(hidden)} paragraphs are too much to hide in so few tokens ({n_tokens:,} beside the prompt's): give "
            "larger --depths or fewer --samples."
        )
    positions = [position for position, _ in hidden]
    return insert(passage(haystack, n_prose, rng), list(zip(positions, needles, strict=True)))


def insert(parts: Sequence[list[int]], hidden: Sequence[tuple[float, list[int]]]) -> list[int]:
    """Put tokens between the parts of a text, each at the border nearest to its position.

    Parameters
    ----------
    parts : sequence of list of int
        Tokens of paragraphs or lines; at least one.
    hidden : sequence of (float, list of int)
        Rising positions from 0 to 1, and the tokens to insert, always before the last part.
    """
    *starts, n_tokens = accumulate(map(len, parts), initial=0)
    borders = np.array(starts)
    result, done = [], 0
    for position, tokens in hidden:
        before = int(np.abs(borders - position * n_tokens).argmin())
        result += [token for part in parts[done:before] for token in part] + tokens
        done = max(done, before)
    return result + [token for part in parts[done:] for token in part]
