"""Duo: retrieval heads see everything, streaming heads see sinks and recent rows (DuoAttention, Xiao et al. 2024)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from ...cpu_kernels.rows.tiles import CHUNK_ROWS
from ..store.plan import Plan
from . import STREAMING, method_class
from .evicting import CHUNK, EVICT
from .method import Method
from .parameters import Parameters, parameter

#: Values of the parameter `prefill`.
EXACT = "exact"


@dataclass(frozen=True)
class Duo(Parameters):
    """Have the plan's retrieval heads attend to everything, or by the method it stands with; its other heads stream.

    Parameters
    ----------
    retrieval : float
        Share of the KV heads that are retrieval heads; by default the plan's.
    sinks, recent : int
        First tokens, and newest tokens, that streaming heads see; by default the plan's, with which they were found.
    prefill : str
        "exact": tokens of a batch see in streaming heads what they would see one by one. "chunk": they see the sinks,
        the recent tokens before the batch, and what came before them in the batch (section 2.3).
    """

    retrieval: float | None = parameter(None, float, least=0, most=1)
    sinks: int | None = parameter(None, int, least=0, most=CHUNK_ROWS)
    recent: int | None = parameter(None, int, least=1)
    prefill: str = parameter(EXACT, choices=(EXACT, CHUNK))

    name = "duo"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"paper": {"prefill": CHUNK}}

    @property
    def words(self) -> str:
        """Return the words of `--attention` for these parameters alone."""
        settings = ((declared.name, getattr(self, declared.name)) for declared in fields(self))
        return f"{self.name}:{','.join(f'{name}={value}' for name, value in settings if value is not None)}"

    def reading(self, plan: Plan, retrieval_heads: float | None, n_batch: int) -> dict[str, Any]:
        """Return everything that the keys and values of a text read by this attention depend on, as a JSON object.

        Parameters
        ----------
        retrieval_heads : float or None
            Share of retrieval heads among the KV heads, unless the parameters set another.
        n_batch : int
            Most tokens of a batch.
        """
        reading = {
            "heads": [list(h) for h in sorted(self.streaming_heads(plan, retrieval_heads))],
            "sinks": plan.n_sinks if self.sinks is None else self.sinks,
            "recent": plan.n_recent if self.recent is None else self.recent,
            "prefill": self.prefill,
        }
        return reading if self.prefill == EXACT else reading | {"batch": n_batch}  # results depend on batch borders

    def streaming_heads(self, plan: Plan, retrieval_heads: float | None) -> list[tuple[int, int]]:
        """Return the (layer, head) of the heads that stream; the parameters are as in `reading`."""
        return plan.streaming_heads(retrieval_heads if self.retrieval is None else self.retrieval)

    def streaming(self, plan: Plan) -> Method:
        """Return the method of the streaming heads."""
        return method_class(STREAMING)(  # type: ignore[call-arg]
            sinks=plan.n_sinks if self.sinks is None else self.sinks,
            recent=plan.n_recent if self.recent is None else self.recent,
            positions="sequence",
            prefill=EVICT if self.prefill == EXACT else CHUNK,
        )
