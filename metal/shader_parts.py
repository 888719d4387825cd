"""Find shader parts: one file in `methods/` for each method on Metal, named as in `runtime/methods/`.

A part NAME.metal defines functions whose names begin with the method's: NAME_select, and any of the other FUNCTIONS.
common.metal describes the arguments and effect of each.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

#: The functions that a part may define: NAME_append, NAME_score and so on.
FUNCTIONS = ("append", "score", "narrow", "score_narrowed", "select", "finish")

_FOLDER = Path(__file__).parent / "methods"


@cache
def method_names() -> tuple[str, ...]:
    """Return the names of the methods on Metal, in the order of their numbers in the shaders."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.metal")))


def has_method(name: str) -> bool:
    """Return whether Metal has a method."""
    return name in method_names()


@cache
def part_text(name: str) -> str:
    """Return the text of a method's shader part."""
    return (_FOLDER / f"{name}.metal").read_text("utf-8")


@cache
def defines(name: str, function: str) -> bool:
    """Return whether a method's part defines NAME_function."""
    return re.search(rf"\b{name}_{function}\(", part_text(name)) is not None


def calls() -> str:
    """Return macros that call each function of the parts: CALL_SCORE(number, ...) calls the method's NAME_score.

    A macro does nothing for a method that lacks the function.
    """
    return "\n".join(map(_call, FUNCTIONS)) + "\n"


def _call(function: str) -> str:
    lines = [f"#define CALL_{function.upper()}(number, ...)", "switch (number) {"]
    for number, name in enumerate(method_names()):
        if defines(name, function):
            lines.append(f"case {number}: {name}_{function}(__VA_ARGS__); break;")
    return " \\\n    ".join([*lines, "default: break; }"])
