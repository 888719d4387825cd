"""Methods: how a KV head selects the rows that it attends to. The module is light, so that help texts can name them.

A method is one file here, one file of the same name in `cpu_kernels/methods/`, one line in this table, and, where Metal
has it, one shader part of the same name in `metal/methods/`. (`window` shares the kernels of `streaming`.)
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .method import Method

#: Chooses a method for each document: the default.
AUTO = DEFAULT_ATTENTION = "auto"

#: Share of the KV bytes that a step may read by default, by a method that has a budget.
DEFAULT_BUDGET = 0.125

#: llama.cpp's own attention, which octavo does not enter.
LLAMA_CPP = "llama.cpp"

#: The reference, which attends to everything; and the method of a plan's streaming heads.
DENSE, STREAMING = "dense", "streaming"


def _in_file(name: str, class_name: str) -> Callable[[], type[Method]]:
    """Return a function that imports a method's file when it is called."""

    def load() -> type[Method]:
        method: type[Method] = getattr(import_module(f".{name}", __name__), class_name)
        return method

    return load


#: All methods by name, in the order in which help texts and pictures show them.
METHODS: dict[str, Callable[[], type[Method]]] = {
    "dense": _in_file("dense", "Dense"),
    "streaming": _in_file("streaming", "Streaming"),
    "h2o": _in_file("h2o", "H2O"),
    "quest": _in_file("quest", "Quest"),
    "sparq": _in_file("sparq", "SparQ"),
    "squeezed": _in_file("squeezed", "Squeezed"),
    "squeezed2": _in_file("squeezed2", "Squeezed2"),
    "window": _in_file("window", "Window"),
    "sketch": _in_file("sketch", "Sketch"),
}

#: Words for heads and layers in a composition.
DUO, PLAN = "duo", "plan"


def words() -> tuple[str, ...]:
    """Return all words of `--attention`, in the order of help texts."""
    return (AUTO, *METHODS, DUO, PLAN)


def method_class(name: str) -> type[Method]:
    """Return the class of a method, from the table METHODS."""
    return METHODS[name]()
