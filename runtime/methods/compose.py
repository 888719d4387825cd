"""What `--attention` says: a method, a plan, or a composition of them; and which KV head attends by what then.

METHOD        a name in the table METHODS
duo           the plan's retrieval heads attend to everything, its other heads to sinks and recent rows (DuoAttention)
duo+METHOD    the retrieval heads attend by METHOD
plan+METHOD   the plan's layer budgets scale the method's budget (SqueezeAttention); plan+duo+METHOD does both
plan          what the plan says, with its layer budgets
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...errors import OctavoError
from ...metal.parts import has_method
from ..cache.tail import CacheLayer
from ..store.plan import Plan
from . import DENSE, DUO, METHODS, PLAN, STREAMING, method_class, words
from .method import Assignment, Method


@dataclass(frozen=True)
class Composition:
    """What an attention is made of.

    Parameters
    ----------
    method : str
        Method of the heads that do not stream.
    streams : bool
        Whether the plan's other heads stream.
    scales : bool
        Whether the plan's layer budgets scale the budget.
    """

    method: str
    streams: bool = False
    scales: bool = False

    @property
    def needs_plan(self) -> bool:
        """Return whether a plan is needed."""
        return self.streams or self.scales

    @property
    def has_budget(self) -> bool:
        """Return whether a budget makes a difference."""
        return method_class(self.method).has_budget

    @property
    def needs_clusters(self) -> bool:
        """Return whether a document's keys must be clustered."""
        return method_class(self.method).needs_clusters


def parse(attention: str, plan: Plan | None = None) -> Composition:
    """Return what an attention is made of.

    Parameters
    ----------
    attention : str
        What `--attention` says, such as "duo+quest".
    plan : Plan, optional
        The model's plan. Without it, only `needs_plan` is known of "plan".

    Raises
    ------
    OctavoError
        If the words do not compose, with the reason.
    """
    named = attention.split("+")
    for word in named:
        if word not in words():
            raise OctavoError(f"There is no attention named '{word}': choose from {', '.join(words())}.")
    if len(set(named)) < len(named):
        raise OctavoError(f"'{attention}' names something twice.")
    methods = [word for word in named if word in METHODS]
    if len(methods) > 1:
        raise OctavoError(
            f"{methods[0]} and {methods[1]} do not compose: both choose what the same heads attend. Give one of them."
        )
    if named == [PLAN]:
        if plan is None:
            return Composition(DENSE, scales=True)
        if PLAN in plan.attention.split("+"):
            raise OctavoError(f"The plan's own attention is '{plan.attention}', which says nothing: mend the plan.")
        own = parse(plan.attention)
        return Composition(own.method, own.streams, scales=own.has_budget)
    method, streams, scales = (*methods, DENSE)[0], DUO in named, PLAN in named
    if streams and method_class(method).keeps.evicts:
        raise OctavoError(
            f"duo and {method} do not compose: retrieval heads are those that must not forget, and {method} forgets."
        )
    if scales and not method_class(method).has_budget:
        raise OctavoError(f"'{attention}' has no budget for the plan's layers to scale: add a method, as plan+quest.")
    return Composition(method, streams, scales)


def metal_method(attention: str, plan: Plan | None) -> tuple[str, bool]:
    """Return the name of an attention's method, and whether the Metal kernels have it."""
    name = parse(attention, plan).method
    return name, has_method(name)


def new_method(name: str, budget: float) -> Method:
    """Return a method by its name, with a budget if it has one."""
    found = method_class(name)
    return found(budget=budget) if found.has_budget else found()  # type: ignore[call-arg]


def layer_scales(scales: Sequence[float], slides: Sequence[bool], budget: float) -> np.ndarray:
    """Return scales with which no layer gets more than everything.

    What is over goes to the other layers, in proportion, so that the sum stays.

    Parameters
    ----------
    scales : sequence of float
        Factor of each layer's budget, as the plan has it.
    slides : sequence of bool
        Whether each layer's window slides. Such layers have no part in it.
    budget : float
        Share of the KV bytes that a step reads.

    Returns
    -------
    float64 array, shape (n_layers,)
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
    """Return which KV heads attend by which method. Layers whose window slides attend to all that it shows.

    Parameters
    ----------
    attention : str
        What `--attention` says.
    budget : float
        Share of the KV bytes that a step reads, or that is kept.
    layers : sequence of CacheLayer
        The model's caches.
    plan : Plan or None
        The model's plan.
    retrieval_heads : float, optional
        Share of the KV heads that see everything, for `duo`; by default the plan's.

    Raises
    ------
    OctavoError
        If a number is out of range, if a plan is needed and there is none, or if it belongs to another model.
    """
    if not 0 < budget <= 1:
        raise OctavoError(f"A budget is a share of the KV cache, above 0 and at most 1: {budget:g} is not.")
    if retrieval_heads is not None and not 0 <= retrieval_heads <= 1:
        raise OctavoError(f"The share of retrieval heads is from 0 to 1: {retrieval_heads:g} is not.")
    composition = parse(attention, plan)
    if composition.needs_plan and plan is None:
        raise OctavoError(f"'{attention}' needs a plan of this model: `octavo profile` measures and writes it.")
    if plan is not None and composition.needs_plan:
        plan.check(layers)
    streaming = set(plan.streaming_heads(retrieval_heads)) if plan and composition.streams else set()
    slides = [layer.window > 0 for layer in layers]
    scales = layer_scales(plan.layer_scale, slides, budget) if plan and composition.scales else np.ones(len(layers))
    method = new_method(composition.method, budget)
    dense, selected, streamed, selected_scale = [], [], [], []
    number = 0
    for i, layer in enumerate(layers):
        for head in range(layer.n_kv_head):
            if (i, head) in streaming:
                streamed.append(number)
            elif layer.window or i < method.dense_layers:
                dense.append(number)
            else:
                selected.append(number)
                selected_scale.append(scales[i])
            number += 1
    assignments = [Assignment(new_method(DENSE, budget), np.array(dense, int), np.ones(len(dense)))]
    assignments.append(Assignment(method, np.array(selected, int), np.array(selected_scale)))
    if plan is not None:
        assignments.append(Assignment(streaming_method(plan), np.array(streamed, int), np.ones(len(streamed))))
    return [assignment for assignment in assignments if len(assignment.heads)]


def streaming_method(plan: Plan) -> Method:
    """Return the method of a plan's streaming heads."""
    return method_class(STREAMING)(n_sinks=plan.n_sinks, n_recent=plan.n_recent)  # type: ignore[call-arg]
