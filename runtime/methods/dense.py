"""Dense: attend to everything. The reference that every other method is measured against."""

from __future__ import annotations

from dataclasses import dataclass

from ...cpu_kernels.methods.dense import HOOKS
from .method import Method


@dataclass(frozen=True)
class Dense(Method):
    """Attend to every row that the layer's window shows."""

    name = "dense"
    hooks = HOOKS
    has_budget = selects = False
