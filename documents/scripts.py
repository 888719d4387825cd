"""Mark text above or below the line, which would be another number in it: 10^6, 2^{n+1}, x_{i,j}, but H2O and 1st."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter

#: Text above the line that is not a power: the ends of ordinal numbers and of abbreviated words.
_ENDS = {
    "st",
    "nd",
    "rd",
    "th",
    "er",
    "ers",
    "re",
    "res",
    "ère",
    "ème",
    "eme",
    "ième",
    "nde",
    "nds",
    "ndes",
    "me",
    "mes",
}
_ENDS |= {"lle", "lles", "gr", "ie", "tm", "sm", "mo", "ma", "ra", "ro", "os", "as"}

#: A power that needs no braces, and one that is a text of its own.
_SHORT, _TEXT = re.compile(r"[-+\u2212]?\d+|[^\W\d_]"), re.compile(r"[^\W\d_]{3,}\s+\S|\S\s+[^\W\d_]{3,}")


def with_scripts(runs: Iterable[tuple[str, int]]) -> str:
    """Return a text with marks, by its runs and where they are: in the line (0), above it (1) or below it (-1)."""
    joined = [("".join(text for text, _ in own), side) for side, own in groupby(runs, key=itemgetter(1))]
    texts = ["", *(text for text, _ in joined), ""]
    return "".join(
        raised(text) if side > 0 else lowered(text, texts[number], texts[number + 2]) if side < 0 else text
        for number, (text, side) in enumerate(joined)
    )


def raised(text: str) -> str:
    """Return text above the line, with a mark if it may be a power or the sign of a note."""
    text = text.strip()
    if not any(map(str.isalnum, text)) or text.casefold() in _ENDS or _TEXT.search(text):
        return text
    return f"^{text}" if _SHORT.fullmatch(text) else f"^{{{text}}}"


def lowered(text: str, before: str, after: str) -> str:
    """Return text below the line, with a mark if it would run into the digits beside it, or is a term.

    Parameters
    ----------
    before, after : str
        The text up to it, and after it.
    """
    text = text.strip()
    runs_on = text[:1].isdigit() and (before[-1:].isdigit() or after[:1].isdigit())
    is_term = any(map(str.isalnum, text)) and re.search(r"[-+\u2212*/,=]", text) is not None
    if not (runs_on or is_term) or _TEXT.search(text):
        return text
    return f"_{text}" if _SHORT.fullmatch(text) else f"_{{{text}}}"
