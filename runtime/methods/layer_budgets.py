"""Layer budgets: a plan's factor of each layer's budget (SqueezeAttention, Wang et al. 2024, algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass

from .parameters import Parameters


@dataclass(frozen=True)
class LayerBudgets(Parameters):
    """Have the plan's layer budgets scale the budget of the method it stands with. Alone, run the plan's attention."""

    name = "plan"
