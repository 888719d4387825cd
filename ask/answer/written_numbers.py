"""Compare the numbers of an answer with the numbers of a text, in any form.

1 234 567, 1'234'567 and 1,234,567 are one number, as are 12,500,000 and 12.5 million, 2½ and 2.5, 14.05 Uhr and 2:05
pm, 2024-05-12 and May 12, 2024, and digits of any script. Where a form has two readings, as 3.250, both count.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from decimal import Decimal

from .number_words import SCALES, numbers_in_words
from .written_dates import MONTHS, Date, written_dates

#: Blanks and apostrophes between thousands, and a number.
_GAP = "[ \u00a0\u2007\u2009\u202f'\u2019\u02bc]"
NUMBER = re.compile(rf"(?<!\d)\d{{1,3}}(?:{_GAP}\d{{3}})+(?:[.,]\d+)?(?![.,]?\d)|\d+(?:[.,:]\d+)*|(?<![\w.])\.\d+")

#: A digit of another script than Latin, a fraction, and separators of numbers in Arabic and Chinese.
_OTHER_DIGIT, _FRACTION = re.compile(r"(?![0-9])\d"), re.compile(r"(\d*)\s?([¼-¾⅐-⅞])|\b(\d+) (\d)/(\d)\b")
_SEPARATORS = str.maketrans({"\u066b": ".", "\u066c": ",", "\uff0e": ".", "\uff0c": ",", "\uff1a": ":"})

#: Letters that multiply a number, or are units; and all words that multiply one.
_LETTERS = {"k": 10**3, "m": 10**6, "b": 10**9}
_SCALES = {word: value for word, value in SCALES.items() if word != "cent"}  # 50 cents
_SCALES |= {"millón": 10**6, "milhão": 10**6, "milhões": 10**6, "bilhão": 10**9, "bilhões": 10**9}
_SCALES |= {"hundred thousand": 10**5, "hundred million": 10**8, "thousand million": 10**9, "mil millones": 10**9}
_SCALES |= {"tsd": 10**3, "mio": 10**6, "mn": 10**6, "mill": 10**6, "bn": 10**9, "mrd": 10**9}
_SCALES |= {"万": 10**4, "萬": 10**4, "亿": 10**8, "億": 10**8}
_MULTIPLIERS = _SCALES | _LETTERS
_WORDS = "|".join(sorted(_SCALES, key=len, reverse=True))

#: A number with the word after it, and such a word by itself, as in the head of a table.
_WRITTEN = re.compile(
    rf"(?P<number>{NUMBER.pattern})"
    rf"(?:[\s-]?(?P<unit>(?:{_WORDS}|[kmb])(?=s?(?![^\W_]))|[ap]\.?m\b|uhr\b|h(?:\d\d)?\b|[万萬亿億]))?"
)
_IN_HEAD = re.compile(rf"(?<![\d½][\s-])\b({_WORDS})(?=s?\b)")

#: A time; a day with its month; and separators of parts.
_TIME, _DAY = re.compile(r"(\d{1,2})[.:](\d\d)(?::00)?"), re.compile(r"(?<![\d.,/-])(\d{1,2})([./])(\d{1,2})(?![\d/])")
_BETWEEN = re.compile("[.,: ]")


def plain_number(number: str) -> str:
    """Return the likeliest reading of a number, without separators of thousands and zeros that mean nothing."""
    return _readings(number)[0]


def numbers_of(text: str) -> set[str]:
    """Return the readings of all numbers of a text, in digits or words, and its dates in the form 2024-05-12."""
    text = folded(text)
    found = numbers_in_words(text)
    for match in _WRITTEN.finditer(text.lower()):
        found |= {*_readings(match["number"]), *_with_unit(match["number"], match["unit"])}
    return found | {f"{date[0]:04}-{date[1]:02}-{date[2]:02}" for one in written_dates(text) for date in one.dates}


def folded(text: str) -> str:
    """Return a text with digits from 0 to 9, and fractions as decimals."""
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
        text = _OTHER_DIGIT.sub(lambda digit: str(unicodedata.decimal(digit[0])), text).translate(_SEPARATORS)
    return _FRACTION.sub(_decimal, text)


def _decimal(match: re.Match[str]) -> str:
    whole, fraction, before, above, below = match.groups()
    if fraction:
        return f"{int(whole or 0) + unicodedata.numeric(fraction):.10g}"
    return f"{int(before) + int(above) / int(below):.10g}" if int(below) else match[0]


class WrittenNumbers:
    """The numbers and dates of a text.

    Parameters
    ----------
    text : str
        The text.
    """

    def __init__(self, text: str) -> None:
        text = folded(text)
        dates = written_dates(text)
        rest = _without(text, [(one.start, one.stop) for one in dates]).lower()
        self._bare, self._loose = set[str](), numbers_in_words(rest)
        for match in _WRITTEN.finditer(rest):
            number, unit = match["number"], match["unit"]
            self._loose |= {*_readings(number), *_with_unit(number, unit), *_parts(number)}
            if unit not in _MULTIPLIERS:
                self._bare.add(plain_number(number))
        self._in_heads = {_MULTIPLIERS[match[1]] for match in _IN_HEAD.finditer(rest)}
        self._dates = {date for one in dates for date in one.dates} | set(_days(rest))
        in_dates = (number for one in dates for number in NUMBER.findall(text[one.start : one.stop]))
        self._numbers = self._loose | {each for number in in_dates for each in (*_readings(number), *_parts(number))}
        self._numbers |= {str(date.month) for date in self._dates}
        named = {MONTHS[word] for word in re.findall(r"[^\W\d_]+", rest) if word in MONTHS}
        self._without_year = named | {date.month for date in self._dates if not date.year}
        self._of_year = {(date.year, date.month) for date in self._dates}
        self._of_month = {(date.month, date.day) for date in self._dates}
        self._months = named | {date.month for date in self._dates}
        self._amounts = [Decimal(number) for number in self._numbers if number.isdecimal() and len(number) > 3]

    def has_month(self, name: str) -> bool:
        """Return whether a word is the name of a month that the text has, in another form or language perhaps."""
        return MONTHS.get(name.lower()) in self._months

    def unknown(self, answer: str) -> tuple[list[str], str]:
        """Return the numbers and dates of an answer that the text lacks, and the answer without its dates."""
        answer = folded(answer)
        dates = written_dates(answer)
        found = [
            answer[one.start : one.stop]
            for one in dates
            if not any(map(self._has_date, one.dates)) and answer[one.start : one.stop] not in self._numbers
        ]
        rest = _without(answer, [(one.start, one.stop) for one in dates])
        for match in _WRITTEN.finditer(rest.lower()):
            number, unit = match["number"], match["unit"]
            if (len(number) > 1 or unit in _SCALES) and not self._has(number, unit):
                found.append(rest[match.start() : match.end() if unit in _SCALES else match.end("number")])
        return found, rest

    def _has(self, number: str, unit: str | None) -> bool:
        """Return whether the text has a number, in any form."""
        plain, multiplier = plain_number(number), _MULTIPLIERS.get(unit or "")
        if not self._numbers.isdisjoint(_with_unit(number, unit)):
            return True
        if multiplier:
            is_unit = unit in _LETTERS or multiplier in self._in_heads
            return (plain in self._bare and is_unit) or self._rounds_to(plain, multiplier)
        if (day := _DAY.fullmatch(number)) is not None and Date(0, int(day[3]), int(day[1])) in self._dates:
            return True
        return " " in number and self._loose.issuperset(map(plain_number, number.split(" ")))

    def _rounds_to(self, plain: str, multiplier: int) -> bool:
        """Return whether a number of the text is about one that is written in thousands or more."""
        if multiplier < 1000 or ":" in plain or plain.count(".") > 1:
            return False
        half = Decimal(multiplier) / 10 ** len(plain.partition(".")[2]) / 2
        return any(abs(amount - Decimal(plain) * multiplier) <= half for amount in self._amounts)

    def _has_date(self, date: Date) -> bool:
        """Return whether the text has a date, or its parts: they may be of different sentences, or a table's cells."""
        year, month, day = date
        has_year = (year, month) in self._of_year or (month in self._without_year and str(year) in self._numbers)
        if not day:
            return has_year
        if not year:
            return (month, day) in self._of_month or (str(day) in self._loose and month in self._months)
        is_of_any_year = (0, month, day) in self._dates and str(year) in self._numbers
        return date in self._dates or is_of_any_year or (str(day) in self._loose and has_year)


def _without(text: str, places: list[tuple[int, int]]) -> str:
    """Return a text without some ranges; 0 takes their place."""
    kept, at = [], 0
    for start, stop in places:
        kept.append(text[at:start])
        at = stop
    return " 0 ".join([*kept, text[at:]])


def _days(text: str) -> Iterator[Date]:
    """Yield the days without a year in a text: 12.05., 5/12."""
    for day, between, month in _DAY.findall(text):
        yield Date(0, int(month), int(day))
        if between == "/":
            yield Date(0, int(day), int(month))


def _readings(number: str) -> list[str]:
    """Return what a number may be, without what multiplies it, the likeliest first."""
    if number.isdecimal():
        return [_normal(number)]
    compact = re.sub(_GAP, "", number)
    if time := _time(compact):
        return [time] if ":" in number else [_normal(compact), time]
    first, *others = re.split("[.,]", compact)
    between = set(re.findall("[.,]", compact))
    readings = []
    if len(between) == 1:
        is_indian = "," in between and len(first) < 3 and len(others) > 1 and set(map(len, others[:-1])) == {2}
        is_grouped = 0 < len(first) < 4 and first[0] != "0" and all(len(other) == 3 for other in others)
        if compact == number and (is_grouped or (is_indian and len(others[-1]) == 3)):
            readings.append(_normal("".join([first, *others])))
        if len(others) == 1:
            readings.append(_normal(f"{first}.{others[0]}"))
    elif between and compact.count(compact[-len(others[-1]) - 1]) == 1 and all(len(each) == 3 for each in others[:-1]):
        readings.append(_normal(f"{first}{''.join(others[:-1])}.{others[-1]}"))
    return readings or [_normal(compact)]


def _with_unit(number: str, unit: str | None) -> list[str]:
    """Return what a number may be with the word after it."""
    readings = _readings(number)
    if multiplier := _MULTIPLIERS.get(unit or ""):
        return [_normal(format(Decimal(each) * multiplier, "f")) for each in readings if re.fullmatch(r"[\d.]+", each)]
    if not unit:
        return readings
    minutes = unit[1:] if unit[0] == "h" and len(unit) > 1 else "00"
    time = _time(number) or _time(f"{number}:{minutes}")
    if time and unit[0] in "ap":
        hour, _, minute = time.partition(":")
        time = f"{int(hour) % 12 + 12 * (unit[0] == 'p')}:{minute}"
    return [time, *readings] if time else readings


def _time(number: str) -> str:
    """Return a time in the form 7:05, or nothing."""
    found = _TIME.fullmatch(number)
    return f"{int(found[1])}:{found[2]}" if found and int(found[1]) <= 24 and int(found[2]) < 60 else ""


def _normal(number: str) -> str:
    """Return a number without zeros that mean nothing; one with several points loses only those before."""
    whole, point, rest = number.replace(",", ".").partition(".")
    if point and rest.isdecimal():
        point, rest = "." * bool(rest.strip("0")), rest.rstrip("0")
    return f"{whole.lstrip('0') or '0'}{point}{rest}"


def _parts(number: str) -> list[str]:
    """Return what may be numbers of their own in one: 101,102 may be pages, and the end of 12,500 is none."""
    parts, plain = _BETWEEN.split(number), plain_number(number)
    if number.count(":") == 2:  # a time with its seconds
        return [plain_number(number.rpartition(":")[0])]
    if plain == "".join(parts) and " " not in number and len(parts[0]) < 3:
        parts = parts[:1] if len(parts) == 2 else []
    elif "," in number and "." in number:
        parts = [plain.partition(".")[0]]
    return [_normal(part) for part in parts if part]
