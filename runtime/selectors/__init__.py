"""Selectors: which stored rows a step attends. One file for each; `make_selector` is the table of their names.

A selector is a frozen dataclass of parameters with
  native_select, native_score : give the compiled functions of the hot path for a shape (see cpu_kernels/select.py);
           used where a layer has clusters. native_score may be None
  configure(heads, document) : fills its fields of the HEAD records when a document is attached
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from ..document import Document
from ..errors import OctavoError


class Selector(Protocol):
    """What the runtime needs of a selector."""

    @property
    def native_select(self) -> Any: ...

    @property
    def native_score(self) -> Any: ...

    def configure(self, heads: np.ndarray, document: Document | None) -> None: ...


def make_selector(attention: str, budget: float) -> Selector:
    """The selector that `--attention` and `--budget` ask for."""
    from .dense import Dense
    from .squeezed import Squeezed

    if not 0 < budget <= 1:
        raise OctavoError(f"A budget is a share of the KV cache, above 0 and at most 1: {budget:g} is not.")
    if attention == "dense":
        return Dense()
    if attention == "squeezed":
        return Squeezed(budget)
    raise OctavoError(f"There is no attention named '{attention}': choose dense or squeezed.")
