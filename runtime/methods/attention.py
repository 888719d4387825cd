"""How tokens attend, as one value: a method with its parameters and a plan. Only this module parses `--attention`.

auto          the choice of `Auto` for a document, a plan and a device
METHOD        a name in the table METHODS
duo           the plan's retrieval heads attend to everything, its other heads to sinks and recent rows (DuoAttention)
duo+METHOD    the retrieval heads attend by METHOD
plan+METHOD   the plan's layer budgets scale the method's budget (SqueezeAttention); plan+duo+METHOD does both
plan          the plan's own attention, with its layer budgets
llama.cpp     llama.cpp's own attention

Each of them takes parameters (see parameters.py), as in `quest:tokens=1024+duo:retrieval=0.25`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from ...errors import OctavoError
from ...settings import check_number
from ..document.index import Index
from ..store.plan import Plan
from . import AUTO, DEFAULT_BUDGET, DENSE, DUO, LLAMA_CPP, METHODS, PLAN, method_class, words
from .auto import SHORT, Auto
from .duo import Duo
from .layer_budgets import LayerBudgets
from .method import Method
from .parameters import Parameters, read_settings, written

if TYPE_CHECKING:
    from ..store.model_library import Library

#: The words that are not methods, and the classes of their parameters.
_CLASSES: dict[str, type[Parameters]] = {AUTO: Auto, DUO: Duo, PLAN: LayerBudgets}

#: Clustering of a document's keys: the fields of `ClusterSettings` that differ from the default. None: no clusters.
Clustering = tuple[tuple[str, Any], ...] | None


def _check_budget(budget: float) -> None:
    check_number("budget", budget)
    if not 0 < budget <= 1:
        raise OctavoError(f"A budget is a share of the KV cache, above 0 and at most 1: {budget:g} is not.")


@dataclass(frozen=True)
class Attention:
    """How tokens attend to the tokens before them. `str` gives the words of `--attention`.

    Parameters
    ----------
    method : str
        Method of the heads that do not stream: a name in the table METHODS, or "llama.cpp".
    parameters : dict
        The method's parameters that are set, by name.
    budget : float
        Share of the KV bytes that a step reads or the cache keeps, unless the parameters set another.
    duo : Duo, optional
        Streaming of the plan's other heads, if they stream.
    layers : LayerBudgets, optional
        Scaling of the budget by the plan's layer budgets, if they scale it.
    auto : Auto, optional
        Chooses the method for each document; `method` is the choice without a document.
    plan : Plan, optional
        The model's plan.
    retrieval_heads : float, optional
        Share of the KV heads that attend to everything, for `duo`; by default the plan's.
    plan_file : path, optional
        File of the plan, which is read once the model is known; by default the model's own plan.
    selects_from : int, optional
        Tokens from which on `auto` selects rows; None for never.
    text : str
        The user's words, where they differ from the words of the fields.

    Raises
    ------
    OctavoError
        If the budget or the share of retrieval heads is out of range.
    """

    method: str
    parameters: Mapping[str, Any] = field(default_factory=dict, hash=False)
    budget: float = DEFAULT_BUDGET
    duo: Duo | None = None
    layers: LayerBudgets | None = None
    auto: Auto | None = None
    plan: Plan | None = field(default=None, hash=False)
    retrieval_heads: float | None = None
    plan_file: str | os.PathLike[str] | None = field(default=None, compare=False)
    selects_from: int | None = field(default=SHORT, compare=False)
    text: str = ""

    def __post_init__(self) -> None:
        _check_budget(self.budget)
        check_number("retrieval_heads", self.retrieval_heads, optional=True)
        if self.retrieval_heads is not None and not 0 <= self.retrieval_heads <= 1:
            raise OctavoError(f"The share of retrieval heads is from 0 to 1: {self.retrieval_heads:g} is not.")

    @classmethod
    def parse(
        cls,
        text: str,
        *,
        budget: float | None = None,
        quality: float | None = None,
        plan: Plan | str | os.PathLike[str] | None = None,
        retrieval_heads: float | None = None,
    ) -> Attention:
        """Parse words of `--attention`.

        Parameters
        ----------
        text : str
            The words, such as "auto", "duo+quest" or "quest:tokens=1024,dense_layers=2".
        budget : float, optional
            Share of the KV bytes that a step reads or the cache keeps: above 0, at most 1. For `auto` it is the most
            that a step reads. By default an eighth.
        quality : float, optional
            Share of the attention that a step covers exactly, in place of a budget: above 0, at most 1.
        plan : Plan or path, optional
            The model's plan, or its file, which is read when the model is loaded.
        retrieval_heads : float, optional
            Share of the KV heads that attend to everything, for `duo`; by default the plan's.

        Raises
        ------
        OctavoError
            If the words do not compose, a parameter or share is out of range, or the method has no quality.
        """
        check_number("quality", quality, optional=True)
        if quality is not None:
            if budget is not None:
                raise OctavoError("A quality stands in place of a budget: give one of them.")
            text = _with_quality(text, quality)
        if budget is not None and text.partition(":")[0] == AUTO:
            _check_budget(budget)
            text, budget = _with_setting(text, f"most={budget:g}"), None
        attention = _composition(text)
        attention = replace(
            attention,
            budget=DEFAULT_BUDGET if budget is None else budget,
            retrieval_heads=retrieval_heads,
            text=text if text != str(attention) else "",
        )
        return attention.with_plan(plan) if isinstance(plan, Plan) else replace(attention, plan_file=plan)

    @classmethod
    def of(cls, attention: str | Attention, **settings: Any) -> Attention:
        """Return an attention unchanged, or parse words and settings (see `parse`).

        Raises
        ------
        OctavoError
            `parse` raises it, or an Attention comes with settings.
        """
        if isinstance(attention, str):
            return cls.parse(attention, **settings)
        if any(value is not None for value in settings.values()):
            raise OctavoError(f"An Attention has its own {', '.join(settings)}: give words of `attention` beside them.")
        return attention

    def as_json(self) -> dict[str, Any]:
        """Return the arguments of `parse` that make the same attention, in JSON's types, without a plan."""
        return {
            "text": str(self),
            "budget": None if self.auto else self.budget,
            "plan": None if self.plan_file is None else os.fspath(self.plan_file),
            "retrieval_heads": self.retrieval_heads,
        }

    def parsed(self, text: str, *, budget: float | None = None) -> Attention:
        """Parse other words, with the plan and the retrieval heads of this attention."""
        return Attention.parse(text, budget=budget, plan=self.plan, retrieval_heads=self.retrieval_heads)

    def __str__(self) -> str:
        """Return its words of `--attention`: the user's, if there are any."""
        parts = [(PLAN, self.layers and self.layers.changed), (DUO, self.duo and self.duo.changed)]
        parts += [(self.method, dict(self.parameters))]
        given = [(word, settings) for word, settings in parts if settings is not None]
        return self.text or "+".join(f"{word}:{written(settings)}" if settings else word for word, settings in given)

    @property
    def is_llama_cpp(self) -> bool:
        """Return whether it is llama.cpp's own attention."""
        return self.method == LLAMA_CPP

    @property
    def needs_plan(self) -> bool:
        return self.duo is not None or self.layers is not None

    @property
    def has_budget(self) -> bool:
        """Return whether its budget makes a difference."""
        return not self.is_llama_cpp and "budget" not in self.parameters and self.new_method().takes_budget

    def wants_clusters(self, n_tokens: int, on_metal: bool = False) -> bool:
        """Return whether it looks up the clusters of a document of n_tokens tokens."""
        if self.auto is not None:
            return self.auto.wants_clusters(n_tokens, on_metal)
        return not self.is_llama_cpp and method_class(self.method).needs_clusters

    def clustering_key(self, n_tokens: int, on_metal: bool = False) -> Clustering:
        """Return a key that is equal for attentions that can share the index of a document of n_tokens tokens."""
        return tuple(sorted(self.new_method().clustering.items())) if self.wants_clusters(n_tokens, on_metal) else None

    @property
    def for_indexing(self) -> Attention:
        """Return how a document is read for an index: densely, except for heads that stream."""
        return Attention(DENSE, duo=self.duo, plan=self.plan, retrieval_heads=self.retrieval_heads)

    def new_method(self) -> Method:
        """Return the method with its parameters, and with the budget unless they set another."""
        method = method_class(self.method)
        return method(**({"budget": self.budget} if method.has_budget else {}) | dict(self.parameters))

    def with_plan(self, plan: Plan | None) -> Attention:
        """Return the same attention with a plan. `plan` alone becomes the plan's attention, and `auto` follows it.

        Raises
        ------
        OctavoError
            If the plan's own attention names the plan.
        """
        attention = replace(self, plan=plan)
        if plan is None:
            return attention
        if self.auto:  # it chooses a method later, whose budgets the plan distributes
            return replace(attention, layers=LayerBudgets())
        if self.layers is None or self.method != DENSE:  # "plan" scales the budgets of another method, or is not named
            return attention
        # "plan" alone: the words that `octavo profile` found best stand in the plan, and replace these.
        if re.search(rf"\b{PLAN}\b", plan.attention):
            raise OctavoError(f"The plan's own attention is '{plan.attention}', which says nothing: mend the plan.")
        of_plan = Attention.parse(plan.attention, plan=plan)
        return replace(
            attention,
            method=of_plan.method,
            parameters=of_plan.parameters,
            duo=of_plan.duo,
            layers=self.layers if of_plan.has_budget else of_plan.layers,
            auto=of_plan.auto,
        )

    def resolve_for(self, document: Index | int | None, on_metal: bool = False) -> Attention:
        """Return the attention for a document: itself, or the choice of `auto`.

        Parameters
        ----------
        document : Index, int or None
            The document; or the number of its tokens if its keys are clustered, 0 if not.
        """
        if self.auto is None:
            return self
        if document is not None and not isinstance(document, int):
            document = len(document.tokens) if document.n_clusters else 0
        method, parameters = self.auto.choose(document or 0, on_metal, self.selects_from)
        layers = None if on_metal else self.layers
        return replace(self, method=method, parameters=parameters, layers=layers, auto=None, text="")


#: The reference, which attends to everything; and llama.cpp's own attention, which octavo does not enter.
DENSE_ATTENTION, LLAMA_CPP_ATTENTION = Attention(DENSE), Attention(LLAMA_CPP)


def _composition(text: str) -> Attention:
    """Parse words of `--attention`, without a plan."""
    if text == LLAMA_CPP:
        return LLAMA_CPP_ATTENTION
    named: dict[str, dict[str, Any]] = {}
    for part in text.split("+"):
        word, colon, settings = part.partition(":")
        if word not in words():
            raise OctavoError(f"There is no attention named '{word}': choose from {', '.join(words())}.")
        if word in named:
            raise OctavoError(f"'{text}' names something twice.")
        named[word] = read_settings(parameters_of(word), settings) if colon else {}
    if AUTO in named:
        if len(named) > 1:
            raise OctavoError(f"{AUTO} composes with nothing: it chooses methods and follows the plan by itself.")
        auto = Auto(**named[AUTO])
        return Attention(*auto.choose(), auto=auto)
    methods = [word for word in named if word in METHODS]
    if len(methods) > 1:
        raise OctavoError(
            f"{methods[0]} and {methods[1]} do not compose: both choose what the same heads attend. Give one of them."
        )
    duo = Duo(**named[DUO]) if DUO in named else None
    layers = LayerBudgets(**named[PLAN]) if PLAN in named else None
    method = (*methods, DENSE)[0]
    if duo and method_class(method).evicts:
        raise OctavoError(
            f"duo and {method} do not compose: retrieval heads are those that must not forget, and {method} forgets."
        )
    if layers and len(named) > 1 and not method_class(method).has_budget:
        raise OctavoError(f"'{text}' has no budget for the plan's layers to scale: add a method, as plan+quest.")
    return Attention(method, named.get(method, {}), duo=duo, layers=layers)


def _with_quality(text: str, quality: float) -> str:
    """Return words of `--attention` with a quality for their method. Raise OctavoError if no method takes one."""
    able = [word for word in words() if "quality" in {parameter.name for parameter in fields(parameters_of(word))}]
    parts = text.split("+")
    for i, part in enumerate(parts):
        if part.partition(":")[0] in able:
            parts[i] = _with_setting(part, f"quality={quality:g}")
            return "+".join(parts)
    raise OctavoError(f"'{text}' covers no share of the attention on request: use {' or '.join(able)}.")


def _with_setting(part: str, setting: str) -> str:
    """Return a word with its parameters and one more."""
    return f"{part}{',' if ':' in part else ':'}{setting}"


def plan_for(
    attentions: Iterable[Attention], library: Library, plan_file: str | os.PathLike[str] | None = None
) -> Plan | None:
    """Return the plan that attentions need, or that `auto` may follow.

    Parameters
    ----------
    plan_file : path, optional
        Plan file that the user named.

    Returns
    -------
    Plan or None
        The named plan or the model's own; None if no attention uses one.

    Raises
    ------
    OctavoError
        An attention needs a plan that cannot be read.
    """
    is_there = plan_file is not None or library.plan_path.exists()
    is_wanted = any(one.needs_plan or (one.auto is not None and is_there) for one in attentions)
    return library.plan(plan_file) if is_wanted else None


def parameters_of(word: str) -> type[Parameters]:
    """Return the class that declares the parameters of a word of `--attention`."""
    return _CLASSES[word] if word in _CLASSES else method_class(word)
