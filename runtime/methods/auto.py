"""Auto: choose a method for each document. The default.

It chooses by the document's index and length, the plan, the device, and what steps cost on this machine, each time that
a document is attached or detached. Up to SHORT tokens, or more if selecting pays later, a step reads everything. Above
that, each head reads just enough rows to cover a share of its attention, so that an easy step reads little and a hard
one more. Over a long document whose keys are clustered, scoring each key would take longer than all else: then it looks
up clusters, to a budget, unless the user asks for another quality.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...cpu_kernels.numba_support.shape import F16, Q4_0
from . import AUTO, DEFAULT_BUDGET, DENSE
from .parameters import Parameters, parameter

#: Choices besides dense attention.
SKETCH, SQUEEZED = "sketch", "squeezed"

#: Share of the attention that a step covers exactly by default.
QUALITY = 0.95

#: Largest share of the KV bytes that a step reads for it: more would take as long as reading everything.
MOST = 0.25

#: Tokens up to which a step reads everything: selecting would take as long as reading, and cost quality.
SHORT = 2048

#: Tokens of a document from which on to look up clusters: scoring every row would take longer.
LONG = 15_000


@dataclass(frozen=True)
class Auto(Parameters):
    """Choose by the document's index, its length, the plan and the device; `octavo inspect` and /stats say what.

    Parameters
    ----------
    quality : float
        Share of the attention that a step covers exactly, unless that takes more than `most`; 0 for .95 and, over a
        long document whose keys are clustered, for what an eighth of the KV bytes covers (of q4_0 a quarter).
    most : float
        Largest share of the KV bytes that a step reads; 0 for a quarter, or for no limit if a quality is given.
    """

    quality: float = parameter(0.0, least=0, most=1)
    most: float = parameter(0.0, least=0, most=1)

    name = AUTO

    def wants_clusters(self, n_tokens: int) -> bool:
        """Return whether it looks up the clusters of a document of n_tokens tokens."""
        return n_tokens >= LONG and not self.quality

    def choose(
        self, n_clustered: int = 0, on_metal: bool = False, kv_type: str = F16, selects_from: int | None = SHORT
    ) -> tuple[str, dict[str, Any]]:
        """Return the name and the parameters of the method for a document.

        Over rows of q4_0 the budget is twice as large a share: clusters and their mean values, whose size does not
        depend on the type of the rows, take an eighth alone. That is still little more than half of an eighth of f16.

        Parameters
        ----------
        n_clustered : int
            Tokens of the document, if its keys are clustered; 0 for no document.
        on_metal : bool
            Whether attention runs on Metal, which lacks some methods.
        kv_type : str
            Type of the document's keys and values.
        selects_from : int or None
            Tokens from which on selecting takes no longer than reading everything (devices/step_costs.py); None: never.
        """
        if on_metal:
            return (SQUEEZED if n_clustered > SHORT else DENSE), {}
        if self.wants_clusters(n_clustered):
            budget = (2 if kv_type == Q4_0 else 1) * DEFAULT_BUDGET
            return SQUEEZED, {"budget": min(self.most or MOST, budget)}
        if selects_from is None:
            return DENSE, {}
        most = self.most or (1.0 if self.quality else MOST)
        return SKETCH, {"quality": self.quality or QUALITY, "most": most, "dense": selects_from}
