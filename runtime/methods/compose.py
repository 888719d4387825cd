"""What `--attention` says: a method, a plan, or a composition of them; and which KV head attends by what then.

auto          what `Auto` chooses for a document, a plan and a device
METHOD        a name in the table METHODS
duo           the plan's retrieval heads attend to everything, its other heads to sinks and recent rows (DuoAttention)
duo+METHOD    the retrieval heads attend by METHOD
plan+METHOD   the plan's layer budgets scale the method's budget (SqueezeAttention); plan+duo+METHOD does both
plan          what the plan says, with its layer budgets

Each of them takes parameters (see parameters.py), as in `quest:tokens=1024+duo:retrieval=0.25`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...cpu_kernels.attend.spans import MOST_HEADS
from ...errors import OctavoError
from ...metal.shader_parts import has_method
from ..document.cache_layer import CacheLayer
from ..document.index import Index
from ..store.plan import Plan
from . import AUTO, DEFAULT_BUDGET, DENSE, DUO, LLAMA_CPP, METHODS, PLAN, method_class, words
from .auto import Auto
from .duo import Duo
from .layer_budgets import LayerBudgets
from .method import Assignment, Method
from .parameters import Parameters, read_settings

if TYPE_CHECKING:
    from ..store.model_library import Library

#: The words that are no methods, and what has their parameters.
_CLASSES: dict[str, type[Parameters]] = {AUTO: Auto, DUO: Duo, PLAN: LayerBudgets}


#: How a document's keys are clustered: fields of `ClusterSettings` that are not as usual. None: they are not clustered.
Clustering = tuple[tuple[str, Any], ...] | None


@dataclass(frozen=True)
class Composition:
    """What an attention is made of.

    Parameters
    ----------
    method : str
        Method of the heads that do not stream.
    settings : dict
        The method's parameters that are set, by name.
    duo : Duo, optional
        How the plan's other heads stream, if they do.
    layers : LayerBudgets, optional
        How the plan's layer budgets scale the budget, if they do.
    auto : Auto, optional
        What chose all this, for a model without a document; with one it may choose otherwise.
    """

    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    duo: Duo | None = None
    layers: LayerBudgets | None = None
    auto: Auto | None = None

    @property
    def needs_plan(self) -> bool:
        """Return whether a plan is needed."""
        return self.duo is not None or self.layers is not None

    @property
    def has_budget(self) -> bool:
        """Return whether `--budget` makes a difference."""
        return "budget" not in self.settings and self.new_method(1.0).takes_budget

    @property
    def needs_clusters(self) -> bool:
        """Return whether a document's keys must be clustered."""
        return self.auto is not None or method_class(self.method).needs_clusters

    @property
    def clustering(self) -> dict[str, Any]:
        """Return how a document's keys have to be clustered, where that is not as usual."""
        return self.new_method(1.0).clustering

    @property
    def clustering_key(self) -> Clustering:
        """Return the same as a key, by which attentions that can share a document's index are found."""
        return tuple(sorted(self.clustering.items())) if self.needs_clusters else None

    def new_method(self, budget: float) -> Method:
        """Return the method with its parameters, and with this budget unless they say another."""
        return new_method(self.method, budget, self.settings)


def parse(attention: str, plan: Plan | None = None) -> Composition:
    """Return what an attention is made of.

    Parameters
    ----------
    attention : str
        What `--attention` says, such as "duo+quest" or "quest:tokens=1024,dense_layers=2".
    plan : Plan, optional
        The model's plan. Without it, only `needs_plan` is known of "plan".

    Raises
    ------
    OctavoError
        If the words do not compose, or a parameter cannot be set so, with the reason.
    """
    named = {}
    for part in attention.split("+"):
        word, colon, text = part.partition(":")
        if word not in words():
            raise OctavoError(f"There is no attention named '{word}': choose from {', '.join(words())}.")
        if word in named:
            raise OctavoError(f"'{attention}' names something twice.")
        named[word] = read_settings(parameters_of(word), text) if colon else {}
    if AUTO in named:
        if len(named) > 1:
            raise OctavoError(f"{AUTO} composes with nothing: it chooses methods and follows the plan by itself.")
        auto = Auto(**named[AUTO])
        return replace(parse(auto.choose(plan, None, on_metal=False), plan), auto=auto)
    methods = [word for word in named if word in METHODS]
    if len(methods) > 1:
        raise OctavoError(
            f"{methods[0]} and {methods[1]} do not compose: both choose what the same heads attend. Give one of them."
        )
    duo = Duo(**named[DUO]) if DUO in named else None
    layers = LayerBudgets(**named[PLAN]) if PLAN in named else None
    if list(named) == [PLAN]:
        if plan is None:
            return Composition(DENSE, layers=layers)
        if re.search(rf"\b{PLAN}\b", plan.attention):
            raise OctavoError(f"The plan's own attention is '{plan.attention}', which says nothing: mend the plan.")
        own = parse(plan.attention)
        return replace(own, layers=layers if own.has_budget else None)
    method = (*methods, DENSE)[0]
    composition = Composition(method, named.get(method, {}), duo, layers)
    if duo and method_class(method).keeps.evicts:
        raise OctavoError(
            f"duo and {method} do not compose: retrieval heads are those that must not forget, and {method} forgets."
        )
    if layers and not method_class(method).has_budget:
        raise OctavoError(f"'{attention}' has no budget for the plan's layers to scale: add a method, as plan+quest.")
    return composition


def with_quality(attention: str, quality: float) -> str:
    """Return an attention whose method covers a share of the attention in each step, in place of a budget.

    Parameters
    ----------
    attention : str
        What `--attention` says.
    quality : float
        The share, above 0 and at most 1.

    Raises
    ------
    OctavoError
        If its method has no parameter `quality`.
    """
    able = [word for word in words() if "quality" in {each.name for each in fields(parameters_of(word))}]
    parts = attention.split("+")
    for i, part in enumerate(parts):
        if part.partition(":")[0] in able:
            parts[i] = _with_setting(part, f"quality={quality:g}")
            return "+".join(parts)
    raise OctavoError(f"'{attention}' covers no share of the attention on request: use {' or '.join(able)}.")


def with_budget(attention: str, budget: float | None) -> tuple[str, float]:
    """Return an attention and its budget, where a budget may be asked for or not. To `auto` it is the most to read.

    Parameters
    ----------
    attention : str
        What `--attention` says.
    budget : float or None
        The budget that was asked for; None for the usual one.

    Raises
    ------
    OctavoError
        If the budget is out of range.
    """
    if budget is None:
        return attention, DEFAULT_BUDGET
    _check_budget(budget)
    if not parse(attention).auto:
        return attention, budget
    return _with_setting(attention, f"most={budget:g}"), DEFAULT_BUDGET


def _with_setting(part: str, setting: str) -> str:
    """Return a word and its parameters with one more."""
    return f"{part}{',' if ':' in part else ':'}{setting}"


def chosen(attention: str, plan: Plan | None, document: Index | None, on_metal: bool) -> str:
    """Return what an attention says for a document: itself, or what `auto` chooses.

    Parameters
    ----------
    attention : str
        What `--attention` says.
    plan, document, on_metal
        As in `Auto.choose`.
    """
    auto = parse(attention, plan).auto
    return auto.choose(plan, document, on_metal) if auto else attention


def plan_for(attentions: Iterable[str], named: str | os.PathLike[str] | None, library: Library) -> Plan | None:
    """Return the plan that attentions need, or that `auto` follows if there is one.

    Parameters
    ----------
    attentions : iterable of str
        Values of `--attention`.
    named : path, optional
        Plan file that the user named.
    library : Library
        Has the model's own plan.

    Returns
    -------
    Plan or None
        The named plan or the model's own; None if no attention has a use for one.

    Raises
    ------
    OctavoError
        If a plan is needed and cannot be read.
    """
    compositions = [parse(attention) for attention in attentions if attention != LLAMA_CPP]
    is_there = named is not None or library.plan_path.exists()
    is_wanted = any(each.needs_plan or (each.auto is not None and is_there) for each in compositions)
    return library.plan(named) if is_wanted else None


def parameters_of(word: str) -> type[Parameters]:
    """Return the class that declares the parameters of a word of `--attention`."""
    return _CLASSES[word] if word in _CLASSES else method_class(word)


def metal_method(attention: str, plan: Plan | None) -> tuple[str, bool]:
    """Return the name of an attention's method, and whether the Metal kernels have it with its parameters."""
    composition = parse(chosen(attention, plan, None, on_metal=True), plan)
    parts = [composition.new_method(1.0), *([composition.duo.streaming(plan)] if plan and composition.duo else [])]
    return composition.method, has_method(composition.method) and all(each.on_metal for each in parts)


def new_method(name: str, budget: float, settings: Mapping[str, Any] | None = None) -> Method:
    """Return a method by its name, with a budget if it has one, and with these parameters."""
    found = method_class(name)
    return found(**({"budget": budget} if found.has_budget else {}) | dict(settings or {}))


def _check_budget(budget: float) -> None:
    if not 0 < budget <= 1:
        raise OctavoError(f"A budget is a share of the KV cache, above 0 and at most 1: {budget:g} is not.")


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
    _check_budget(budget)
    if retrieval_heads is not None and not 0 <= retrieval_heads <= 1:
        raise OctavoError(f"The share of retrieval heads is from 0 to 1: {retrieval_heads:g} is not.")
    composition = parse(attention, plan)
    if composition.needs_plan and plan is None:
        raise OctavoError(f"'{attention}' needs a plan of this model: `octavo profile` measures and writes it.")
    if plan is not None and composition.needs_plan:
        plan.check(layers)
    method, duo = composition.new_method(budget), composition.duo
    group = max(layer.group for layer in layers)
    if getattr(method, "select", "") == "head" and group > MOST_HEADS:
        raise OctavoError(
            f"{composition.method} cannot select for each query head here: {group} share a KV head, and it tells "
            f"{MOST_HEADS} apart. Leave out select=head."
        )
    streaming = set(duo.streaming_heads(plan, retrieval_heads)) if plan and duo else set()
    dense, selected, streamed, selected_layers = [], [], [], []
    number = 0
    for i, layer in enumerate(layers):
        for head in range(layer.n_kv_head):
            if (i, head) in streaming:
                streamed.append(number)
            elif layer.window or i < method.dense_layers:
                dense.append(number)
            else:
                selected.append(number)
                selected_layers.append(i)
            number += 1

    scale = np.ones(len(selected))
    if composition.layers and selected:
        factors = composition.layers.scales(plan, composition.method, len(layers))
        scale = np.array(factors, np.float64)[selected_layers]
    assignments = [Assignment(new_method(DENSE, budget), np.array(dense, int), np.ones(len(dense)))]
    assignments.append(Assignment(method, np.array(selected, int), scale))
    if plan and duo:
        assignments.append(Assignment(duo.streaming(plan), np.array(streamed, int), np.ones(len(streamed))))
    return [assignment for assignment in assignments if len(assignment.heads)]
