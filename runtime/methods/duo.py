"""Duo: retrieval heads see everything, streaming heads see sinks and recent rows (DuoAttention, Xiao et al. 2024)."""

from __future__ import annotations

from dataclasses import dataclass

from .parameters import Parameters, parameter


@dataclass(frozen=True)
class Duo(Parameters):
    """Have the plan's retrieval heads attend to everything, or by the method it stands with; its other heads stream.

    Parameters
    ----------
    retrieval : float
        Share of the KV heads that are retrieval heads; by default the plan's.
    """

    retrieval: float | None = parameter(None, float, least=0, most=1)

    name = "duo"
