"""Put the numerator and the denominator of a fraction into their line: 17 above 48 is 17/48 there.

A fraction is what a short rule has above and below it, if a line of text passes at the height of this rule.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise

from .pdf_characters import Character
from .pdf_rules import Rule

#: Most from a rule up to the baseline of a numerator and down to the baseline of a denominator, and most that both
#: reach over its ends, in font sizes; and the longest rule, in points.
_ABOVE, _BELOW, _OVER, _LONGEST = 0.7, 1.3, 0.2, 200.0

#: Most between a fraction and its line; least from the baseline of this line to the baselines of the numerator and the
#: denominator; and most between words of either; in font sizes.
_BESIDE, _APART, _GAP = 1.0, 0.15, 0.9

#: What needs no brackets.
_PLAIN = re.compile(r"[\w.,]+")


def with_fractions(lines: Sequence[list[Character]], rules: Iterable[Rule], angle: int) -> list[list[Character]]:
    """Return the lines of a page with each of its fractions as one sign, inner ones first.

    Parameters
    ----------
    rules : iterable of Rule
        Those along the lines.
    angle : int
        Of the lines.
    """
    found = list(lines)
    bars = sorted((rule for rule in rules if rule.end - rule.start <= _LONGEST), key=lambda rule: rule.end - rule.start)
    level = [sign for line in lines if bars for sign in line if sign.text != " " and sign.style.angle == angle]
    level.sort(key=lambda sign: sign.y)
    farthest = _BELOW * max((sign.style.size for sign in level), default=0.0)
    for rule in bars:
        first, last = (bisect_left(level, rule.place + way * farthest, key=lambda sign: sign.y) for way in (-1, 1))
        near = [sign for sign in level[first:last] if _is_near(sign, rule)]
        over = [sign for sign in near if _is_within(sign, rule)]
        above = _in_order(sign for sign in over if 0 <= sign.y - rule.place < _ABOVE * sign.style.size)
        below = _in_order(sign for sign in over if 0 < rule.place - sign.y < _BELOW * sign.style.size)
        beside = [sign for sign in near if _is_beside(sign, rule, above, below)] if above and below else []
        if beside and not _are_cells(above) and not _are_cells(below):
            place = min(beside, key=lambda sign: max(rule.start - sign.right, sign.left - rule.end))
            text = f"{_bracketed(above)}/{_bracketed(below)}"
            fraction = place._replace(text=text, left=rule.start, right=rule.end)
            taken = {id(sign) for sign in above + below}
            found = _put(found, fraction, place, taken)
            level = sorted([fraction, *(sign for sign in level if id(sign) not in taken)], key=lambda sign: sign.y)
    return found


def _is_near(sign: Character, rule: Rule) -> bool:
    size = sign.style.size
    is_beside = sign.right > rule.start - _BESIDE * size and sign.left < rule.end + _BESIDE * size
    return is_beside and abs(sign.y - rule.place) < _BELOW * size


def _is_within(sign: Character, rule: Rule) -> bool:
    over = _OVER * sign.style.size
    return rule.start - over <= sign.left and sign.right <= rule.end + over


def _is_beside(sign: Character, rule: Rule, above: Sequence[Character], below: Sequence[Character]) -> bool:
    """Return whether a letter is in the line of a fraction: beside its rule, between the baselines of both parts."""
    room = _APART * sign.style.size
    is_between = max(each.y for each in below) + room < sign.y < min(each.y for each in above) - room
    return is_between and (sign.right <= rule.start + room or sign.left >= rule.end - room)


def _in_order(signs: Iterable[Character]) -> list[Character]:
    return sorted(signs, key=lambda sign: sign.left)


def _are_cells(signs: Sequence[Character]) -> bool:
    """Return whether there is a gap between signs, as between the heads of columns."""
    return any(after.left - sign.right > _GAP * after.style.size for sign, after in pairwise(signs))


def _bracketed(signs: Sequence[Character]) -> str:
    """Return the text of some letters, with brackets if it is more than a number or a name."""
    text = signs[0].text
    for before, sign in pairwise(signs):
        text += " " * (sign.left - before.right > _APART * sign.style.size) + sign.text
    return text if _PLAIN.fullmatch(text) else f"({text})"


def _put(
    lines: Iterable[Sequence[Character]], fraction: Character, place: Character, taken: set[int]
) -> list[list[Character]]:
    """Return lines with a fraction beside the letter of its line that is next to it, and without its parts."""
    blank, blank_after = (fraction._replace(text=" ", left=x, right=x) for x in (fraction.left, fraction.right))
    put = []
    for line in lines:
        rest = [sign for sign in line if id(sign) not in taken]
        at = next((number for number, sign in enumerate(rest) if sign is place), None)
        if at is not None:
            at += place.left < fraction.left
            after = next((sign for sign in rest[at:] if sign.text != " "), None)
            is_open = after and (after.text.isalnum() or after.left - fraction.right > _APART * after.style.size)
            has_blank = at < len(rest) and rest[at].text == " "
            rest[at : at + has_blank] = [blank, fraction, blank_after] if is_open else [blank, fraction]
        put.append(rest)
    return list(filter(None, put))
