"""Types of option values, each of which refuses a wrong value with a sentence.

`click.ParamType` takes the type of its values in newer versions only, so none is named here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

import click
from click.shell_completion import CompletionItem

from ..runtime.methods import LLAMA_CPP, words
from .short_help import WholeWords

if TYPE_CHECKING:
    from ..runtime.methods.parameters import Parameters

#: Columns of the help about words, and of their parameters' names.
_WIDTH, _NAMES = 100, 24


class WholeNumber(click.IntRange):
    """An integer in a range."""

    name = "whole number"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return "N"


class Number(click.FloatRange):
    """A float in a range, never `nan` or `inf`."""

    name = "number"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return "N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not in the range {self._describe_range()}.", param, ctx)
        return number


#: In place of an attention or a task: print all of them, and stop.
HELP = "help"


def guessed(word: str, words: Iterable[str]) -> str:
    """Return a question that suggests a similar word; "" if none is similar, or if the word is one of them."""
    from difflib import get_close_matches

    near = get_close_matches(word, words := list(words), 1)
    return f" Did you mean `{near[0]}`?" if near and word not in words else ""


def completions(words: Iterable[str], incomplete: str) -> list[CompletionItem]:
    """Return the words that begin with the typed text, for a shell."""
    return [CompletionItem(word) for word in words if word.startswith(incomplete)]


class AttentionType(click.ParamType):  # type: ignore[type-arg]
    """A method, a composition of methods, or llama.cpp's own attention, with parameters."""

    name = "NAME[:KEY=VALUE,...]"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return completions([*words(), LLAMA_CPP, HELP], incomplete)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from ..errors import OctavoError
        from ..runtime.methods.attention import Attention

        if value == HELP:
            click.echo(attention_help(), nl=False)
            raise click.exceptions.Exit(0)
        try:
            Attention.parse(value)
        except OctavoError as problem:
            self.fail(f"{problem}{guessed(str(value).partition(':')[0], words())}", param, ctx)
        return str(value)


class AttentionListType(click.ParamType):  # type: ignore[type-arg]
    """Comma-separated methods. Text after a comma belongs to the method before it if it sets its parameter."""

    name = "NAME[:KEY=VALUE,...],..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[str]:
        one = AttentionType()
        return [one.convert(name, param, ctx) for name in re.split(r",(?!\w+=)", str(value))]


class DepthListType(click.ParamType):  # type: ignore[type-arg]
    """Comma-separated numbers of tokens."""

    name = "N,N,..."

    def __init__(self, least: int) -> None:
        self.least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[int]:
        try:
            depths = [int(part) for part in str(value).split(",")]
        except ValueError:
            depths = []
        if not depths or min(depths) < self.least:
            self.fail(f"'{value}' is not a list of token counts, such as {self.least},2048,8000.", param, ctx)
        return depths


class ListOf(click.ParamType):  # type: ignore[type-arg]
    """Comma-separated values of a type."""

    def __init__(self, one: Any, name: str) -> None:
        self.one, self.name = one, f"{name},{name},..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[Any]:
        return [self.one.convert(part, param, ctx) for part in str(value).split(",")]


class TokenLimit(WholeNumber):
    """A number of tokens: at least 1, or -1 for no limit."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if number == 0:
            self.fail("0 tokens are not an answer: give 1 or more, or -1 for no limit.", param, ctx)
        return number


class DraftLength(click.ParamType):  # type: ignore[type-arg]
    """A number of tokens, off for none, or auto for the number that pays."""

    name = "length"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | None:
        if value in (None, "auto"):
            return None
        if value != "off" and not str(value).isdigit():
            self.fail(f"'{value}' is not the length of a draft: give auto, off, or a number of tokens.", param, ctx)
        return 0 if value == "off" else int(value)


class Age(click.ParamType):  # type: ignore[type-arg]
    """A span of time: 30d, 12h or 8w."""

    name = "age"
    _units: ClassVar = {"h": "hours", "d": "days", "w": "weeks"}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        number, unit = str(value)[:-1], str(value)[-1:].lower()
        if unit not in self._units or not number.isdigit():
            self.fail(f"'{value}' is not a span of time, such as 30d, 12h or 8w.", param, ctx)
        return timedelta(**{self._units[unit]: min(int(number), 100_000)})


class Seconds(click.ParamType):  # type: ignore[type-arg]
    """A short time: 60, 60s or 5m."""

    name = "time"
    _units: ClassVar = {"": 1, "s": 1, "m": 60, "h": 3600}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", str(value).lower())
        if not found:
            self.fail(f"'{value}' is not a time, such as 60s or 5m.", param, ctx)
        return float(found[1]) * self._units[found[2]]


class Size(click.ParamType):  # type: ignore[type-arg]
    """A number of bytes: 500M or 2G."""

    name = "size"
    _units: ClassVar = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        found = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)I?B?", str(value).upper())
        if not found:
            self.fail(f"'{value}' is not a number of bytes, such as 500M or 2G.", param, ctx)
        return int(float(found[1]) * (1 << self._units[found[2]]))


def attention_help() -> str:
    """Return the words of `--attention`, with their parameters, as text for a terminal."""
    from ..runtime.methods.attention import parameters_of

    return explained(
        "--attention takes one of these words, or several with + between them, such as duo+quest. Parameters follow a "
        "colon: quest:tokens=1024,dense_layers=2.",
        [(word, parameters_of(word)) for word in words()],
    )


def explained(introduction: str, owners: Sequence[tuple[str, type[Parameters]]]) -> str:
    """Return an introduction, and every word with its parameters and presets, as text for a terminal."""
    from ..runtime.methods.parameters import explain, explain_presets, summary

    text = WholeWords(width=_WIDTH)
    text.write_text(introduction)
    for word, owner in owners:
        text.write_paragraph()
        text.write_text(f"{word}: {summary(owner)}")
        lines = [(name, f"{explanation.removesuffix('.')} ({values}).") for name, values, explanation in explain(owner)]
        lines += [(name, f"Preset: {values}.") for name, values in explain_presets(owner)]
        if lines:
            with text.indentation():
                text.write_dl(lines, col_max=_NAMES)
    return text.getvalue()
