"""Show numbers, dates and times as the formats of Excel say, with dates as ISO 8601 writes them."""

from __future__ import annotations

import re
from datetime import MAXYEAR, date, datetime, time, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from functools import lru_cache
from math import isfinite
from typing import NamedTuple

#: Parts of a format: quoted and escaped text, blanks of a width, marks in brackets, places of digits, other signs.
_TOKENS = re.compile(r'"([^"]*)"|\\(.)|[_*](.)|\[([^\]]*)\]|([0#?]|,|\.)|(.)', re.DOTALL)

#: Between the formats of positive, negative, zero and text values; and a format that octavo does not apply.
_SECTIONS = re.compile(r'((?:"[^"]*"|\\.|\[[^\]]*\]|[^;"\\\[])*)(?:;|$)', re.DOTALL)
_OTHER = re.compile(r"general|@|[eE][-+]|[#0?]\s*/|\[[<>=]", re.IGNORECASE)
_WITH_SECONDS = re.compile(r"s|\[s", re.IGNORECASE)

#: The name of a colour in a format, and the signs of a negative number.
_COLOUR = re.compile(r"\[(?:black|blue|cyan|green|magenta|red|white|yellow|color\s*\d+)\]", re.IGNORECASE)
_SIGNS = re.compile(r"[-\u2212\u2013(]")

#: A character of XML that a workbook cannot hold as it is.
_ESCAPED = re.compile(r"_x([0-9A-Fa-f]{4})_")

#: What Excel shows in place of a number that it cannot hold.
_TOO_LARGE = "#NUM!"

#: Rounds numbers of any size.
_ROUNDING = Context(prec=400, rounding=ROUND_HALF_UP)


class _Format(NamedTuple):
    """A section of a format: texts and places of digits before the decimal sign, after it, and behind the number."""

    whole: tuple[str, ...]  # a place is one of 0, # and ?; a text has more characters, or a null before it
    decimals: str
    tail: str
    has_thousands: bool
    scale: float


def shown_value(value: object, number_format: str = "General") -> str:
    """Return the text that a cell shows with a value and a format."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, timedelta):
        return _duration(value)
    if isinstance(value, datetime):
        half = timedelta(microseconds=500_000)
        value = (value + half if value.year < MAXYEAR else value).replace(microsecond=0)
        return str(value.date()) if value.time() == time() else f"{value.date()} {_clock(value.time(), number_format)}"
    if isinstance(value, time):
        value = (datetime.combine(date.min, value) + timedelta(microseconds=500_000)).time().replace(microsecond=0)
        return _clock(value, number_format)
    if isinstance(value, date):
        return str(value)
    if isinstance(value, int | float):
        try:
            return _number(float(value), number_format) if isfinite(value) else _TOO_LARGE
        except (OverflowError, InvalidOperation):
            return _TOO_LARGE
    text = str(getattr(value, "text", value))
    sections = _sections(number_format)
    text = _ESCAPED.sub(lambda code: chr(int(code[1], 16)), text)
    if len(sections) == 4 or "@" in sections[-1]:
        return "".join(
            text if sign == "@" else quoted or escaped or (" " if blank else "") or sign
            for quoted, escaped, blank, mark, place, sign in _TOKENS.findall(sections[-1])
        ).strip()
    return text


def _clock(value: time, number_format: str) -> str:
    return f"{value:%H:%M:%S}" if value.second or _WITH_SECONDS.search(number_format) else f"{value:%H:%M}"


def _duration(value: timedelta) -> str:
    seconds = round(abs(value.total_seconds()))
    sign = "-" if value < timedelta() and seconds else ""
    clock = f"{sign}{seconds // 3600}:{seconds // 60 % 60:02}"
    return f"{clock}:{seconds % 60:02}" if seconds % 60 else clock


def _number(value: float, number_format: str) -> str:
    sections = _sections(number_format)
    chosen = 1 if value < 0 and len(sections) > 1 else 2 if value == 0 and len(sections) > 2 else 0
    section = sections[chosen]
    if _OTHER.search(section):
        return f"{value * 100:.15g}%" if "%" in section else f"{value:.15g}"
    if not section:
        return ""
    found = _parsed(section)
    lacks_sign = chosen == 0 or _is_only_coloured(section, sections[0])
    sign = "-" if value < 0 and lacks_sign else ""
    text = _written(abs(value), found)
    return f"{sign}{text}" if any(map(str.isdigit, text)) else text


def _is_only_coloured(negative: str, positive: str) -> bool:
    """Return whether only a colour marks negative numbers: they have neither a sign nor a text of their own."""
    own, others = map(_texts, (negative, positive))
    is_coloured = _COLOUR.search(f"{negative}{positive}") is not None
    return is_coloured and own <= others and not any(map(_SIGNS.search, own))


def _texts(section: str) -> set[str]:
    """Return the texts around the places of digits."""
    found = _parsed(section)
    return {part.strip("\0 ") for part in (*found.whole, f"\0{found.tail}") if len(part) > 1} - {""}


@lru_cache(maxsize=1000)
def _sections(number_format: str) -> tuple[str, ...]:
    found = tuple(match[1] for match in _SECTIONS.finditer(number_format))
    return (found[:-1] if len(found) > 1 and not number_format.endswith(";") else found) or ("General",)


@lru_cache(maxsize=1000)
def _parsed(section: str) -> _Format:
    whole: list[str] = []
    decimals, tail, is_after, scale, commas, thousands, has_thousands = "", "", False, 1.0, 0, 0, False
    for quoted, escaped, blank, mark, place, sign in _TOKENS.findall(section):
        text = quoted or escaped or (" " if blank else "") or sign
        if mark.startswith("$"):
            text = mark[1:].partition("-")[0]
        scale *= 100 if sign == "%" else 1
        if place == ".":
            is_after, thousands, commas = True, thousands + commas, 0
        elif place == ",":
            commas += 1
        elif place:
            has_thousands |= commas > 0 and bool(whole) and not is_after
            commas = 0
            if is_after and not tail:
                decimals += place
            elif not tail:
                whole.append(place)
        elif text and is_after:
            tail += text
        elif text:
            whole.append(f"\0{text}")
    if decimals and not any(len(part) == 1 for part in whole):
        whole.append("#")  # for the digits before the point, which Excel shows without a place, too
    return _Format(tuple(whole), decimals, tail, has_thousands, scale / 1000 ** (thousands + commas))


def _written(value: float, found: _Format) -> str:
    """Return a number in a format: the last places take the last digits, and the first place all that are left."""
    if not any(len(part) == 1 for part in found.whole) and not found.decimals:
        return "".join(part[1:] for part in found.whole).strip()
    exact = Decimal(f"{value * found.scale:.15g}")  # Excel has 15 digits, and rounds halves up
    rounded = exact.quantize(Decimal(1).scaleb(-len(found.decimals)), context=_ROUNDING)
    digits, _, after = f"{rounded:f}".partition(".")
    while after and found.decimals[len(after) - 1] != "0" and after.endswith("0"):
        after = after[:-1]
    digits = digits.lstrip("0")
    first = next((number for number, part in enumerate(found.whole) if len(part) == 1), len(found.whole))
    text, n_written = "", 0
    for number in range(len(found.whole) - 1, -1, -1):
        part = found.whole[number]
        if len(part) > 1:
            text = part[1:] + text
            continue
        while digits or part == "0":
            comma = "," if found.has_thousands and n_written and n_written % 3 == 0 else ""
            text = (digits[-1:] or "0") + comma + text
            digits, n_written, part = digits[:-1], n_written + 1, "#"
            if number > first:
                break
    return f"{text}{'.' * bool(after)}{after}{found.tail}".strip()
