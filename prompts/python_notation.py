"""Read calls of functions and literals in Python's notation, in one pass over the text.

Python's own parser takes the text of a model for a program: it has no limit of time, and JSON lacks
some of its literals.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection
from math import isfinite
from typing import Any

#: A string, in which models write line breaks as they are; a number; and a name.
_STRING = re.compile(r"'(?:[^'\\]|\\.)*+'|\"(?:[^\"\\]|\\.)*+\"", re.DOTALL)
_NUMBER = re.compile(r"[-+]?(?:0[xXoObB]\w+|(?:\d[\d_]*(?:\.[\d_]*)?|\.\d[\d_]*)(?:[eE][-+]?\d+)?)")
_NAME, _BLANKS = re.compile(r"[^\W\d]\w*+"), re.compile(r"\s*+")

#: A backslash that begins no escape.
_LONE = re.compile(r"\\(?![\\'\"abfnrtvxuUN0-7\n])")

#: Names of Python and of JSON that are values.
_VALUES = {"True": True, "False": False, "None": None, "true": True, "false": False, "null": None}

#: Most levels of lists and dictionaries within one another, as in Python, and most digits of a number.
_MOST_LEVELS, _MOST_DIGITS = 100, 1000


def python_calls(text: str, names: Collection[str]) -> list[tuple[str, dict[str, Any]]]:
    """Return names and keyword arguments of the calls in a text: in a list, or one after another.

    Parameters
    ----------
    names : collection of str
        The functions that may be called; their names need not be Python's.

    Raises
    ------
    ValueError
        The text is something else.
    """
    reader, calls = _Reader(text), list[tuple[str, dict[str, Any]]]()
    known = re.compile(rf"({'|'.join(map(re.escape, sorted(names, key=len, reverse=True)))})\s*+\(")
    in_list = reader.takes("[")
    while not reader.is_at_end and not reader.precedes("]"):
        calls.append((reader.matched(known)[1], dict(reader.arguments())))
        if not reader.takes(","):
            break
    if in_list:
        reader.expect("]")
    reader.end()
    return calls


def python_literal(text: str) -> Any:
    """Return the value of a literal that JSON can express. Raise ValueError for any other text."""
    reader = _Reader(text)
    value = reader.value()
    reader.end()
    return value


class _Reader:
    """A text, and the place up to which it is read."""

    def __init__(self, text: str) -> None:
        self._text, self._at, self._level = text, 0, 0
        self._skip_blanks()

    def _skip_blanks(self) -> None:
        self._at = self.matched(_BLANKS, skips=False).end()

    def matched(self, pattern: re.Pattern[str], skips: bool = True) -> re.Match[str]:
        """Read a match of a pattern, and the blanks after it. Raise ValueError if there is none."""
        found = pattern.match(self._text, self._at)
        if found is None:
            raise ValueError(f"unexpected text at {self._at}")
        self._at = found.end()
        if skips:
            self._skip_blanks()
        return found

    @property
    def is_at_end(self) -> bool:
        """Return whether all is read."""
        return self._at == len(self._text)

    def precedes(self, text: str) -> bool:
        """Return whether a text comes next."""
        return self._text.startswith(text, self._at)

    def takes(self, text: str) -> bool:
        """Read a text and the blanks after it, if it comes next. Return whether it does."""
        if not self.precedes(text):
            return False
        self._at += len(text)
        self._skip_blanks()
        return True

    def expect(self, text: str) -> None:
        """Read a text that must come next."""
        if not self.takes(text):
            raise ValueError(f"no {text} at {self._at}")

    def end(self) -> None:
        """Check that all is read."""
        if not self.is_at_end:
            raise ValueError(f"more text at {self._at}")

    def arguments(self) -> list[tuple[str, Any]]:
        """Read keyword arguments up to the end of a call."""
        found = []
        while not self.takes(")"):
            name = self.matched(_NAME)[0]
            self.expect("=")
            found.append((name, self.value()))
            if not self.takes(","):
                self.expect(")")
                break
        return found

    def value(self) -> Any:
        """Read a literal."""
        first = self._text[self._at : self._at + 1]
        if first in ("[", "(", "{"):
            self._level += 1
            if self._level > _MOST_LEVELS:
                raise ValueError("too many levels")
            value = self._dictionary() if first == "{" else self._sequence(first)
            self._level -= 1
            return value
        if first in ("'", '"'):
            return self._string()
        if (name := _NAME.match(self._text, self._at)) is not None:
            if name[0] not in _VALUES:
                raise ValueError(f"{name[0]} is not a value")
            return _VALUES[self.matched(_NAME)[0]]
        return self._number()

    def _sequence(self, opening: str) -> Any:
        """Read a list or a tuple, or a value in parentheses."""
        values, closing, is_alone = [], "]" if opening == "[" else ")", opening == "("
        self.expect(opening)
        while not self.takes(closing):
            values.append(self.value())
            if not self.takes(","):
                self.expect(closing)
                break
            is_alone = False
        return values[0] if is_alone and values else values

    def _dictionary(self) -> dict[Any, Any]:
        found = {}
        self.expect("{")
        while not self.takes("}"):
            key = self.value()
            if isinstance(key, list | dict):
                raise ValueError("a list or a dictionary as a key")
            self.expect(":")
            found[key] = self.value()
            if not self.takes(","):
                self.expect("}")
                break
        return found

    def _string(self) -> str:
        """Read a string, or several side by side, which are one."""
        parts = []
        while self.precedes("'") or self.precedes('"'):
            written = _LONE.sub(r"\\\\", self.matched(_STRING)[0]).replace("\n", "\\n").replace("\r", "\\r")
            parts.append(_evaluated(written))
        return "".join(parts)

    def _number(self) -> int | float:
        written = self.matched(_NUMBER)[0]
        if len(written) > _MOST_DIGITS:
            raise ValueError("a number of too many digits")
        value: int | float = _evaluated(written)
        if not isfinite(value):
            raise ValueError("a number that JSON has not")
        return value


def _evaluated(token: str) -> Any:
    """Return the value of one string or number."""
    try:
        return ast.literal_eval(token)
    except SyntaxError as problem:
        raise ValueError(f"{token} is not a value") from problem
