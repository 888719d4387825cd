"""Find where the sentences of a text begin."""

from __future__ import annotations

import re
from itertools import pairwise

#: Ends of sentences: after a mark, at an empty line, and before a Markdown block that begins a line.
_ENDS = re.compile(
    r"([.!?\u2026][\"'\u201d\u2019)\]*_]*\s+(?=[^a-z]))|[\u3002\uff01\uff1f]+|\n\s*\n"
    r"|\n(?=[ \t]*(?:[-*+|#>]|\d+[.)])[ \t])"
)

#: Words before marks that do not end a sentence.
_ABBREVIATION = re.compile(r"\b(Mr|Mrs|Ms|Dr|St|No|vs|cf|e\.g|i\.e|[A-Z])$")

#: Cut longer sentences at line ends, or else at blanks.
_LONGEST = 400


def sentences(text: str) -> list[int]:
    """Return the beginnings of a text's sentences, in Markdown or any other, and its end.

    Returns
    -------
    list of int
        Rising offsets of characters, from 0 to the length of the text.
    """
    ends = [end for end in _ENDS.finditer(text) if not _is_abbreviation(text, end)]
    made: list[int] = []
    for start, stop in pairwise([0, *(end.end() for end in ends), len(text)]):
        made.append(start)
        while stop - made[-1] > _LONGEST:
            first, last = made[-1] + _LONGEST // 4, made[-1] + _LONGEST
            cut = max(text.rfind("\n", first, last), -1) + 1 or text.rfind(" ", first, last) + 1 or last
            made.append(cut)
    return [*dict.fromkeys([*made, len(text)])] if text else [0, 0]


def _is_abbreviation(text: str, end: re.Match[str]) -> bool:
    """Return whether a stop ends an abbreviation rather than a sentence."""
    before = text[max(end.start() - 4, 0) : end.start()]
    return end[0].startswith(".") and _ABBREVIATION.search(before) is not None
