"""Compare numbers: with separators, with zeros that mean nothing, and in English words, as in nineteen eighty-five."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

#: A number, with its separators.
NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")

_ONES = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_ORDINALS = [
    "zeroth",
    "first",
    "second",
    "third",
    "fourth",
    "fifth",
    "sixth",
    "seventh",
    "eighth",
    "ninth",
    "tenth",
    "eleventh",
    "twelfth",
    "thirteenth",
    "fourteenth",
    "fifteenth",
    "sixteenth",
    "seventeenth",
    "eighteenth",
    "nineteenth",
]

#: The value of each word, and of the words that multiply those before.
_VALUES = {word: value for words in (_ONES, _ORDINALS) for value, word in enumerate(words)}
_VALUES |= {form: 10 * value for value, word in enumerate(_TENS, 2) for form in (word, f"{word[:-1]}ieth")}
_SCALES = {"dozen": 12, "hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_SCALES |= {f"{word}th": value for word, value in _SCALES.items()}

#: Words that follow one another, and a number in digits before a scale.
_WORD = f"(?:{'|'.join(sorted({*_VALUES, *_SCALES}, key=len, reverse=True))})"
_RUN = re.compile(rf"\b{_WORD}(?:(?:[\s-]+|\s+and\s+){_WORD})*s?\b", re.IGNORECASE)
_SCALED = re.compile(rf"\b(\d+(?:[.,]\d+)*)[\s-]+({'|'.join(_SCALES)})s?\b", re.IGNORECASE)


def plain_number(number: str) -> str:
    """Return a number without separators of thousands, and without zeros that mean nothing."""
    plain = re.sub(r"[,.](?=\d{3}\b)", "", number).replace(",", ".")
    if "." in plain and plain.count(".") == 1:
        plain = plain.rstrip("0").rstrip(".")
    return plain.lstrip("0") or "0"


def numbers_in_words(text: str) -> set[str]:
    """Return the numbers in words of a text, in digits without separators."""
    found = {str(value) for run in _RUN.finditer(text) for value in _values(run[0].lower())}
    for digits, scale in _SCALED.findall(text):
        value = float(digits.replace(",", "")) * _SCALES[scale.lower()]
        found.add(f"{value:.0f}")
    return found


def _values(run: str) -> Iterator[int]:
    """Yield the values of words that follow one another: of each word, of the numbers, and of two as a year."""
    words = [word for word in re.findall(r"[a-z]+", run.removesuffix("s")) if word != "and"]
    numbers: list[int] = []
    total = current = 0
    last = 0  # the value of the word before, from which follows whether the number continues
    for word in words:
        value = _VALUES.get(word)
        if value is None:
            scale = _SCALES[word]
            current = (current or 1) * scale
            if scale > 100:
                total, current = total + current, 0
        elif last == 0 or last >= 100 or (20 <= last < 100 and 0 < value < 10):
            yield value
            current += value
        else:
            numbers.append(total + current)
            total, current = 0, value
            yield value
        last = _SCALES.get(word, 0) if value is None else value
    numbers.append(total + current)
    yield from numbers
    for century, year in pairwise(numbers):
        if 10 <= century < 100 and 10 <= year < 100:
            yield 100 * century + year
