"""Compare the letters that a PDF draws with its text, page by page, so that no loss stays unknown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise


def letters_of(texts: Iterable[str]) -> Counter[str]:
    """Count letters and digits."""
    signs = Counter("".join(texts))
    return Counter({sign: n for sign, n in signs.items() if sign.isalnum()})


def pages_with_losses(
    drawn: Iterable[Counter[str]], text: str, offsets: Sequence[int], left_out: Sequence[Sequence[str]]
) -> list[int]:
    """Return the numbers of pages whose letters are neither in the text nor known as left out.

    Parameters
    ----------
    drawn : iterable of Counter of str
        The letters of each page; they are asked for twice.
    offsets : sequence of int
        Where each page begins in the text.
    left_out : sequence of sequence of str
        What was left out of each page.
    """
    missing = Counter[str]()
    for letters in drawn:
        missing.update(letters)
    missing.subtract(letters_of([text, *(each for those in left_out for each in those)]))
    missing = +missing
    if not missing:
        return []
    ends = [*offsets, len(text)]
    pages = zip(drawn, pairwise(ends), left_out, strict=True)
    return [
        number
        for number, (letters, (start, end), those) in enumerate(pages)
        if missing & (letters - letters_of([text[start:end], *those]))
    ]
