"""Parameters: the fields of a dataclass that `NAME:key=value,...` sets, and presets, which set several.

Names, types and ranges come from the fields, explanations from the class's docstring. So a method, or a task of
`octavo eval`, declares a parameter once; help texts, errors and checks follow.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from typing import Any, ClassVar

from ...errors import OctavoError

#: Booleans on the command line.
_TRUTH = {"on": True, "off": False}

#: Key of a field's Range in its metadata.
_RANGE = "range"


@dataclass(frozen=True)
class Range:
    """The values of a parameter.

    Parameters
    ----------
    kind : type
        int, float, bool or str.
    least, most : float
        Smallest and largest number.
    above : float
        Exclusive lower bound.
    choices : tuple of str or of int
        All values, for a parameter that is a word or one of a few numbers.
    """

    kind: type
    least: float = -math.inf
    most: float = math.inf
    above: float = -math.inf
    choices: tuple[str | int, ...] = ()

    def has(self, value: Any) -> bool:
        if self.kind is bool or self.choices or isinstance(value, (bool, str)):
            return isinstance(value, self.kind) and (self.kind is bool or value in self.choices)
        whole = self.kind is float or float(value).is_integer()
        return bool(whole and self.least <= value <= self.most and value > self.above)

    @property
    def words(self) -> str:
        """Return the values as words that follow "has to be", such as "a whole number from 0 on"."""
        if self.kind is bool:
            return "on or off"
        if self.choices:
            return _either([str(choice) for choice in self.choices])
        noun = "a whole number" if self.kind is int else "a number"
        low = f" from {self.least:g}" if self.least > -math.inf else f" above {self.above:g}"
        if self.least == self.above == -math.inf:
            low = ""
        if self.most == math.inf:
            return f"{noun}{low}{' on' if self.least > -math.inf else ''}"
        return f"{noun}{low}{' to' if self.least > -math.inf else ' and at most'} {self.most:g}"


def parameter(
    default: Any,
    kind: type | None = None,
    *,
    least: float = -math.inf,
    most: float = math.inf,
    above: float = -math.inf,
    choices: Sequence[str] | Sequence[int] = (),
) -> Any:
    """Declare a parameter: a field of a dataclass, with its range (see `Range`).

    Parameters
    ----------
    default : int, float, bool, str or None
        None stands for a value that something else decides.
    kind : type, optional
        By default the type of the default.
    """
    values = Range(kind or type(default), least, most, above, tuple(choices))
    return field(default=default, metadata={_RANGE: values})


@dataclass(frozen=True)
class Parameters:
    """A name and its parameters on the command line. A subclass is a frozen dataclass of them, each a `parameter`.

    Attributes
    ----------
    name : str
        Its word on the command line.
    presets : mapping
        For each word that sets several parameters, such as "paper", their values by name.
    """

    name: ClassVar[str]
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    def __post_init__(self) -> None:
        """Raise OctavoError for values out of range."""
        for declared in fields(self):
            value = getattr(self, declared.name)
            if value is not declared.default and not declared.metadata[_RANGE].has(value):
                raise _refusal(self.name, declared, value)

    @property
    def changed(self) -> dict[str, Any]:
        """Return the parameters that differ from their defaults, by name."""
        values = ((declared, getattr(self, declared.name)) for declared in fields(self))
        return {declared.name: value for declared, value in values if value != declared.default}


def read_settings(owner: type[Parameters], text: str) -> dict[str, Any]:
    """Parse the text after the colon of `NAME:key=value,...`.

    Parameters
    ----------
    text : str
        Settings and presets, separated by commas. Later ones override earlier ones.

    Returns
    -------
    dict
        Values by name of the parameter.

    Raises
    ------
    OctavoError
        A parameter or preset does not exist, or a value is out of range.
    """
    declared = {parameter.name: parameter for parameter in fields(owner)}
    settings: dict[str, Any] = {}
    for item in text.split(","):
        key, equals, value = (part.strip() for part in item.partition("="))
        if not equals and key in owner.presets:
            settings |= owner.presets[key]
        elif not equals or key not in declared:
            names = f"its parameters are {', '.join(declared)}" if declared else "it has none"
            presets = f"; its presets are {', '.join(owner.presets)}" if owner.presets else ""
            wanted = "no parameter" if equals else "no preset"
            raise OctavoError(f"{owner.name} has {wanted} named '{key}': {names}{presets}.")
        else:
            settings[key] = _value(owner.name, declared[key], value)
    return settings


def _value(name: str, declared: Field[Any], text: str) -> Any:
    """Parse a value. Raise OctavoError if the text is none, or is out of range."""
    allowed: Range = declared.metadata[_RANGE]
    try:
        value = _TRUTH[text] if allowed.kind is bool else allowed.kind(text)
    except (KeyError, ValueError):
        raise _refusal(name, declared, text) from None
    if not allowed.has(value):
        raise _refusal(name, declared, text)
    return value


def _refusal(name: str, declared: Field[Any], value: Any) -> OctavoError:
    return OctavoError(f"{name}'s {declared.name} has to be {declared.metadata[_RANGE].words}, not {value}.")


def explain(owner: type[Parameters]) -> list[tuple[str, str, str]]:
    """Return the parameters of a class for help texts.

    Returns
    -------
    list of (str, str, str)
        `key=default`, or `key` if something else decides the default; its range; and its entry in the class's
        docstring.
    """
    entries = _docstring_entries(owner)
    explained = []
    for declared in fields(owner):
        name = declared.name if declared.default is None else written({declared.name: declared.default})
        explained.append((name, declared.metadata[_RANGE].words, entries.get(declared.name, "")))
    return explained


def explain_presets(owner: type[Parameters]) -> list[tuple[str, str]]:
    """Return the presets of a class for help texts: name and settings."""
    return [(name, written(settings)) for name, settings in owner.presets.items()]


def written(settings: Mapping[str, Any]) -> str:
    """Return settings as the command line takes them: `key=value,...`."""
    shown = {key: ("off", "on")[value] if isinstance(value, bool) else value for key, value in settings.items()}
    return ",".join(f"{key}={value}" for key, value in shown.items())


def summary(owner: type[Parameters]) -> str:
    """Return the first line of a class's docstring."""
    return inspect.cleandoc(owner.__doc__ or "").partition("\n")[0]


def _docstring_entries(owner: type) -> dict[str, str]:
    """Return the entries of the numpydoc section "Parameters" of a class and its base classes."""
    entries: dict[str, str] = {}
    for base in reversed(owner.__mro__):
        text = inspect.cleandoc(base.__doc__ or "")
        section = re.search(r"^Parameters\n-+\n(.*?)(?:\n\n\w+\n-+\n|\Z)", text, re.S | re.M)
        found = re.findall(r"^(\w[\w, ]*) : [^\n]*\n((?:    .*\n?|\n)+)", section[1] if section else "", re.M)
        for names, explanation in found:
            entries |= dict.fromkeys(names.split(", "), " ".join(explanation.split()))
    return entries


def _either(words: Sequence[str]) -> str:
    """Return words as "a", "a or b", "a, b or c"."""
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
