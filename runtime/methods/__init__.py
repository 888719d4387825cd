"""Methods: how a KV head selects the rows that it attends to. The module is light, so that help texts can name them.

A method is one file here, one file of the same name in `cpu_kernels/methods/`, one line in this table, and, where Metal
has it, one shader part of the same name in `metal/methods/`. (`window` shares the kernels of `streaming`.)
"""

from __future__ import annotations

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


#: All methods, in the order in which help texts and pictures show them: a method's name is its file's, which has the
#: class.
METHODS = {
    "dense": "Dense",
    "streaming": "Streaming",
    "h2o": "H2O",
    "quest": "Quest",
    "sparq": "SparQ",
    "squeezed": "Squeezed",
    "squeezed2": "Squeezed2",
    "window": "Window",
    "sketch": "Sketch",
    "topk": "TopK",
}

#: Words for heads and layers in a composition.
DUO, PLAN = "duo", "plan"


def words() -> tuple[str, ...]:
    """Return all words of `--attention`, in the order of help texts."""
    return (AUTO, *METHODS, DUO, PLAN)


def method_class(name: str) -> type[Method]:
    """Return the class of a method, from its file."""
    method: type[Method] = getattr(import_module(f".{name}", __name__), METHODS[name])
    return method
