"""Mark text above or below the line, and text that is struck out, which would be another number: 10^6, ~~900~~ 950.

Some text needs no mark: H2O, 1st.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

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


class Run(NamedTuple):
    """A text of one form: in the line (0), above it (1) or below it (-1), and whether it is struck out."""

    text: str
    side: int = 0
    is_struck: bool = False


def with_marks(runs: Iterable[Run]) -> str:
    """Return a text with marks, by its runs."""
    parts = ((is_struck, _with_scripts(own)) for is_struck, own in groupby(runs, key=attrgetter("is_struck")))
    return "".join(struck(text) if is_struck else text for is_struck, text in parts)


def struck(text: str) -> str:
    """Return text that is struck out with marks, and blanks outside them; as it is if it has such marks already."""
    inner = text.strip()
    before, after = text[: len(text) - len(text.lstrip())], text[len(text.rstrip()) :]
    return f"{before}~~{inner}~~{after}" if inner and "~~" not in inner else text


def _with_scripts(runs: Iterable[Run]) -> str:
    joined = [("".join(run.text for run in own), side) for side, own in groupby(runs, key=attrgetter("side"))]
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
