"""Auto: choose a method for each document. The default.

It chooses by the device, the plan, and what steps cost on this machine, each time that a document is attached or
detached. Up to SHORT tokens, or more if selecting pays later, a step reads everything. Above that, each head reads just
enough rows to cover a share of its attention, so that an easy step reads little and a hard one more. Clusters of a
document's keys take less time from some 15,000 tokens on, but lose facts: Metal, which lacks the other way, looks them
up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from . import AUTO, DENSE
from .parameters import Parameters, parameter

#: Choices besides dense attention.
SKETCH, SQUEEZED = "sketch", "squeezed"

#: Share of the attention that a step covers exactly by default.
QUALITY = 0.95

#: Largest share of the KV bytes that a step reads for it: more would take as long as reading everything.
MOST = 0.25

#: Tokens up to which a step reads everything: selecting would take as long as reading, and cost quality.
SHORT = 2048


@dataclass(frozen=True)
class Auto(Parameters):
    """Choose by the device, the plan and the costs of steps; `octavo inspect` and /stats say what.

    Parameters
    ----------
    quality : float
        Share of the attention that a step covers exactly, unless that takes more than `most`; 0 for .95.
    most : float
        Largest share of the KV bytes that a step reads; 0 for a quarter, or for no limit if a quality is given.
    """

    quality: float = parameter(0.0, least=0, most=1)
    most: float = parameter(0.0, least=0, most=1)

    name = AUTO

    def wants_clusters(self, n_tokens: int, on_metal: bool) -> bool:
        """Return whether it looks up the clusters of a document of n_tokens tokens."""
        return on_metal and n_tokens > SHORT

    def choose(
        self, n_clustered: int = 0, on_metal: bool = False, selects_from: int | None = SHORT
    ) -> tuple[str, dict[str, Any]]:
        """Return the name and the parameters of the method for a document.

        Parameters
        ----------
        n_clustered : int
            Tokens of the document, if its keys are clustered; 0 for no document.
        on_metal : bool
            Whether attention runs on Metal, which lacks some methods.
        selects_from : int or None
            Tokens from which on selecting takes no longer than reading everything (devices/step_costs.py); None: never.
        """
        if on_metal:
            return (SQUEEZED if n_clustered > SHORT else DENSE), {}
        if selects_from is None:
            return DENSE, {}
        most = self.most or (1.0 if self.quality else MOST)
        return SKETCH, {"quality": self.quality or QUALITY, "most": most, "dense": selects_from}
