"""Write what is seen on a line in the order in which it is read: Hebrew, Arabic, and what is mixed with them.

This undoes the Unicode bidirectional algorithm (UAX 9) for one line, as far as that is possible.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from itertools import groupby

_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")

#: Letters in the forms that they have at the beginning, the middle or the end of a word; and ligatures.
_FORMS = re.compile("[\ufb1d-\ufdff\ufe70-\ufefc]")

_BRACKETS = str.maketrans("()[]{}«»", ")(][}{»«")

#: Unicode's classes of letters that are read from right to left, of digits, and of signs within numbers.
_RIGHT, _DIGITS, _IN_NUMBERS, _AT_NUMBERS = {"R", "AL"}, {"EN", "AN"}, {"ES", "CS"}, {"ET"}


def is_right_to_left(text: str) -> bool:
    """Return whether a text has letters that are read from right to left."""
    return bool(_RIGHT_TO_LEFT.search(text))


def logical_text(seen: Sequence[str], from_right: bool) -> str:
    """Return a line's text in the order of reading.

    Parameters
    ----------
    seen : sequence of str
        The line's characters, from left to right. A ligature's letters are in their order of reading.
    from_right : bool
        Whether the line as a whole is read from right to left.
    """
    directions = _directions(seen, from_right)
    runs = [[number for number, _ in run] for _, run in groupby(enumerate(directions), key=lambda pair: pair[1])]
    text = ""
    for run in reversed(runs) if from_right else runs:
        text += "".join(seen[number] for number in (reversed(run) if directions[run[0]] == "R" else run))
    text = _FORMS.sub(lambda form: unicodedata.normalize("NFKC", form[0]), text)
    brackets = re.sub(r"[^()\[\]{}«»]", "", text)
    return text.translate(_BRACKETS) if brackets[:1] in tuple(")]}»") and brackets[-1] in "([{«" else text


def _directions(seen: Sequence[str], from_right: bool) -> list[str]:
    classes = [unicodedata.bidirectional(character[0]) for character in seen]
    kinds = ["R" if c in _RIGHT else "L" if c == "L" else "D" if c in _DIGITS else "" for c in classes]
    for number, c in enumerate(classes):
        before = kinds[number - 1] if number else ""
        after = kinds[number + 1] if number + 1 < len(kinds) else ""
        if (c in _IN_NUMBERS and before == after == "D") or (c in _AT_NUMBERS and "D" in (before, after)):
            kinds[number] = "D"
    base, last, resolved = "R" if from_right else "L", "", 0
    for number, kind in enumerate([*kinds, ""]):
        if kind or number == len(kinds):
            sides = {last, kind}
            between = "R" if sides == {"R"} else "L" if sides in ({"L"}, {"L", "D"}) else base
            kinds[resolved:number] = [between] * (number - resolved)
            last, resolved = kind, number + 1
    return ["L" if kind == "D" else kind for kind in kinds]
