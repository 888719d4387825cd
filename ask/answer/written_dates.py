"""Find dates in a text: 2024-05-12, 12.05.2024, May 12, 2024, 12. Mai 2024, 12 de mayo, 2024年5月12日.

Months have names in English, German, French, Spanish, Italian, Portuguese and Dutch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from .number_words import without_accents

#: The names of each month, which have the same number.
_NAMES = (
    "january jan januar jänner janvier enero gennaio janeiro januari",
    "february feb februar feber février febrero febbraio fevereiro februari",
    "march mar märz mär mars marzo março maart",
    "april apr avril abril aprile",
    "may mai mayo maggio maio mei",
    "june jun juni juin junio giugno junho",
    "july jul juli juillet julio luglio julho",
    "august aug août agosto augustus",
    "september sept sep septembre septiembre settembre setembro",
    "october oct okt oktober octobre octubre ottobre outubro",
    "november nov novembre noviembre novembro",
    "december dec dez dezember décembre diciembre dicembre dezembro",
)
MONTHS = {
    form: number
    for number, names in enumerate(_NAMES, 1)
    for name in names.split()
    for form in (name, without_accents(name))
}

_MONTH = rf"({'|'.join(sorted(MONTHS, key=len, reverse=True))})\b\.?"
_OF = r"(?:(?:of|de|del|di)\s+)?"
_BEFORE, _AFTER = r"(?<![\d.,/-])", r"(?!\d|[./-]\d)"

_DIGIT = re.compile(r"\d")

#: The forms of dates, each with the order of its groups: D, M, Y, or x for the separator.
_FORMS = [
    (re.compile(rf"{_BEFORE}(\d{{4}})([-./])(\d{{1,2}})\2(\d{{1,2}}){_AFTER}"), "YxMD"),
    (re.compile(rf"{_BEFORE}(\d{{1,2}})([-./])\s?(\d{{1,2}})\2\s?(\d{{4}}|\d\d){_AFTER}"), "DxMY"),
    (re.compile(r"(\d{4})\s?年\s?(\d{1,2})\s?月(?:\s?(\d{1,2})\s?日)?"), "YMD"),
    (
        re.compile(
            rf"(?<!\d)(\d{{1,2}})(?:st|nd|rd|th|er|[.ºª°])?[\s-]*{_OF}{_MONTH}(?:,?[\s-]+{_OF}(\d{{4}}))?(?!\d)",
            re.IGNORECASE,
        ),
        "DMY",
    ),
    (
        re.compile(rf"\b{_MONTH}\s*(\d{{1,2}})(?:st|nd|rd|th)?(?!\d|\.\d)(?:,?\s+(\d{{4}}))?(?!\d)", re.IGNORECASE),
        "MDY",
    ),
    (re.compile(rf"\b{_MONTH},?[\s-]+{_OF}(\d{{4}})(?!\d)", re.IGNORECASE), "MY"),
]


class Date(NamedTuple):
    """A date; 0 for a year or a day that is not written."""

    year: int
    month: int
    day: int


class WrittenDate(NamedTuple):
    """A date in a text: where it begins and ends, and the dates that it may be."""

    start: int
    stop: int
    dates: list[Date]


def written_dates(text: str) -> list[WrittenDate]:
    """Return the dates of a text in order. Their digits are 0 to 9."""
    found: list[WrittenDate] = []
    for form, order in _FORMS if _DIGIT.search(text) else ():
        for match in form.finditer(text):
            groups = dict(zip(order, match.groups(""), strict=True))
            if dates := list(dict.fromkeys(_dates(groups))):
                found.append(WrittenDate(match.start(), match.end(), dates))
    found.sort(key=lambda one: (one.start, -one.stop))
    stop, apart = 0, list[WrittenDate]()
    for one in found:
        if one.start >= stop:
            apart.append(one)
            stop = one.stop
    return apart


def _dates(groups: dict[str, str]) -> Iterator[Date]:
    """Yield what a date may be: 5/12/2024 is of May or of December, and a year of two digits of either century."""
    day, month, year = groups.get("D", ""), groups["M"], groups.get("Y", "")
    orders = [(day, month)]
    if list(groups)[:2] == ["D", "x"] and (groups["x"] != "." or int(month) > 12):
        orders.append((month, day))
    for day, month in orders:
        number = int(month) if month.isdigit() else MONTHS[month.casefold()]
        if 1 <= number <= 12 and (not day or 1 <= int(day) <= 31):
            yield from (Date(int(century + (year or "0")), number, int(day or 0)) for century in _centuries(year))


def _centuries(year: str) -> tuple[str, ...]:
    return ("20", "19") if len(year) == 2 else ("",)
