"""What `--attention` says: a method, a plan, or a composition of them; and which KV head attends how then.

METHOD               dense, streaming, h2o, quest, sparq, squeezed or squeezed2
duo                  the plan's retrieval heads attend everything, its other heads sinks and recent rows
duo+METHOD           the retrieval heads attend by METHOD
plan+METHOD          the plan's layer budgets scale the method's budget; plan+duo+METHOD as well
plan                 what the plan says, with its layer budgets
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ...errors import OctavoError
from ..cache.tail import CacheLayer
from ..store.plan import Plan
from .dense import Dense
from .h2o import H2O
from .method import Assignment, Selector
from .quest import Quest
from .sparq import SparQ
from .squeezed import Squeezed, Squeezed2
from .streaming import Streaming

_METHODS: dict[str, Callable[[float], Selector]] = {
    "dense": lambda budget: Dense(),
    "streaming": lambda budget: Streaming(budget=budget),
    "h2o": lambda budget: H2O(budget=budget),
    "quest": lambda budget: Quest(budget=budget),
    "sparq": lambda budget: SparQ(budget=budget),
    "squeezed": lambda budget: Squeezed(budget=budget),
    "squeezed2": lambda budget: Squeezed2(budget=budget),
}

#: What stands for heads and layers in a composition.
DUO, PLAN = "duo", "plan"

#: All words, in the order in which help texts name them.
WORDS = (*_METHODS, DUO, PLAN)


@dataclass(frozen=True)
class Method:
    """How a model attends.

    method : of the heads that do not stream    streams : whether the plan's other heads stream
    scales : whether the plan's layer budgets scale the budget
    """

    method: str
    streams: bool = False
    scales: bool = False

    @property
    def needs_plan(self) -> bool:
        """Whether a plan is needed."""
        return self.streams or self.scales

    @property
    def has_budget(self) -> bool:
        """Whether a budget makes a difference."""
        return self.method != "dense"


def parse(attention: str, plan: Plan | None = None) -> Method:
    """What `--attention` asks for. Without the plan, "plan" is a method of which only `needs_plan` is known.

    Raises OctavoError for what does not compose, with the reason.
    """
    words = attention.split("+")
    for word in words:
        if word not in WORDS:
            raise OctavoError(f"There is no attention named '{word}': choose from {', '.join(WORDS)}.")
    if len(set(words)) < len(words):
        raise OctavoError(f"'{attention}' names something twice.")
    methods = [word for word in words if word in _METHODS]
    if len(methods) > 1:
        raise OctavoError(
            f"{methods[0]} and {methods[1]} do not compose: both choose what the same heads attend. Give one of them."
        )
    if words == [PLAN]:
        if plan is None:
            return Method("dense", scales=True)
        if PLAN in plan.attention.split("+"):
            raise OctavoError(f"The plan's own attention is '{plan.attention}', which says nothing: mend the plan.")
        own = parse(plan.attention)
        return Method(own.method, own.streams, scales=own.has_budget)
    method, streams, scales = (*methods, "dense")[0], DUO in words, PLAN in words
    if streams and method in ("streaming", "h2o"):
        raise OctavoError(
            f"duo and {method} do not compose: retrieval heads are those that must not forget, and {method} forgets."
        )
    if scales and method == "dense":
        raise OctavoError(f"'{attention}' has no budget for the plan's layers to scale: add a method, as plan+quest.")
    return Method(method, streams, scales)


def metal_method(attention: str, plan: Plan | None) -> tuple[str, bool]:
    """The name of an attention's method, and whether the Metal kernels have it."""
    name = parse(attention, plan).method
    return name, _METHODS[name](1.0).metal is not None


def layer_scales(scales: Sequence[float], slides: Sequence[bool], budget: float) -> np.ndarray:
    """Scales with which no layer gets more than everything: what is over goes to the others, in proportion.

    Layers that slide have no part in it. The sum stays.
    """
    capped = np.array(scales, np.float64)
    own = ~np.array(slides)
    total, over = capped[own].sum(), np.zeros(len(capped), bool)
    while np.any(more := own & ~over & (capped * budget > 1 + 1e-9)):
        over |= more
        capped[over] = 1 / budget
        rest = own & ~over
        if rest.any():
            capped[rest] *= (total - capped[over].sum()) / capped[rest].sum()
    return capped


def assign(
    attention: str,
    budget: float,
    layers: Sequence[CacheLayer],
    plan: Plan | None,
    retrieval_heads: float | None = None,
) -> list[Assignment]:
    """Which KV heads attend by which selector. Layers whose window slides attend all that it shows.

    Raises OctavoError where a plan is needed and there is none, or where it belongs to another model.
    """
    if not 0 < budget <= 1:
        raise OctavoError(f"A budget is a share of the KV cache, above 0 and at most 1: {budget:g} is not.")
    if retrieval_heads is not None and not 0 <= retrieval_heads <= 1:
        raise OctavoError(f"The share of retrieval heads is from 0 to 1: {retrieval_heads:g} is not.")
    method = parse(attention, plan)
    if method.needs_plan and plan is None:
        raise OctavoError(f"'{attention}' needs a plan of this model: `octavo profile` measures and writes it.")
    if plan is not None and method.needs_plan:
        plan.check(layers)
    streaming = set(plan.streaming_heads(retrieval_heads)) if plan and method.streams else set()
    slides = [layer.window > 0 for layer in layers]
    scales = layer_scales(plan.layer_scale, slides, budget) if plan and method.scales else np.ones(len(layers))
    selector = _METHODS[method.method](budget)
    dense_layers = selector.dense_layers if isinstance(selector, Quest) else 0
    dense, selected, streamed, selected_scale = [], [], [], []
    number = 0
    for i, layer in enumerate(layers):
        for head in range(layer.n_kv_head):
            if (i, head) in streaming:
                streamed.append(number)
            elif layer.window or i < dense_layers:
                dense.append(number)
            else:
                selected.append(number)
                selected_scale.append(scales[i])
            number += 1
    assignments = [Assignment(Dense(), np.array(dense, int), np.ones(len(dense)))]
    assignments.append(Assignment(selector, np.array(selected, int), np.array(selected_scale)))
    if plan is not None:
        recent = Streaming(n_sinks=plan.n_sinks, n_recent=plan.n_recent)
        assignments.append(Assignment(recent, np.array(streamed, int), np.ones(len(streamed))))
    return [assignment for assignment in assignments if len(assignment.heads)]
