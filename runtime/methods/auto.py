"""Auto: what attends where nobody says otherwise. It is no method: it chooses one, and says which.

It chooses by the document's index and its length, by the plan, and by the device, each time that a document is attached
or left. Up to SHORT tokens everything is read. Then each head reads in each step what covers a share of its attention,
so that an easy step reads little and a hard one more. Over a long document whose keys are clustered, to score each key
would take longer than all else: then clusters are looked up, to a budget, unless another quality is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...cpu_kernels.numba_support.compile import F16, Q4_0
from ..document.index import Index
from ..store.plan import Plan
from . import AUTO, DEFAULT_BUDGET, DENSE, PLAN
from .parameters import Parameters, parameter, written

#: What it chooses from, besides dense attention.
SKETCH, SQUEEZED = "sketch", "squeezed"

#: Share of the attention that a step covers exactly, if nobody asks for another.
QUALITY = 0.95

#: Largest share of the KV bytes that a step reads to that end: more of it would take as long as reading everything.
MOST = 0.25

#: Tokens up to which everything is read: selecting would take as long as reading, and cost quality.
SHORT = 2048

#: Tokens of a document from which on its clusters are looked up: scoring every row would take longer.
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

    def choose(self, plan: Plan | None, document: Index | None, on_metal: bool) -> str:
        """Return the attention that is chosen, in the words of `--attention`.

        Parameters
        ----------
        plan : Plan or None
            The model's plan. Its layer budgets scale the most that a layer reads.
        document : Index or None
            The attached document.
        on_metal : bool
            Whether attention runs on Metal, which has not every method.
        """
        if document is None or not document.n_clusters:
            return self.choose_for(0, plan is not None, on_metal)
        return self.choose_for(len(document.tokens), plan is not None, on_metal, document.kv_type)

    def choose_for(self, n_clustered: int, has_plan: bool = False, on_metal: bool = False, kv_type: str = F16) -> str:
        """Return what is chosen for a document of n_clustered tokens, whose keys are clustered; 0 for no document.

        Over rows of q4_0 the budget is twice as large a share: looking up clusters and their mean values, which are as
        long whatever the rows, takes an eighth alone. That is still little more than half of an eighth of f16 rows.
        """
        if on_metal:
            return SQUEEZED if n_clustered > SHORT else DENSE
        if n_clustered >= LONG and not self.quality:
            budget = (2 if kv_type == Q4_0 else 1) * DEFAULT_BUDGET
            words = f"{SQUEEZED}:{written({'budget': min(self.most or MOST, budget)})}"
        else:
            most = self.most or (1.0 if self.quality else MOST)
            chosen = {"quality": self.quality or QUALITY, "most": most, "dense": SHORT}
            words = f"{SKETCH}:{written(chosen)}"
        return f"{PLAN}+{words}" if has_plan else words
