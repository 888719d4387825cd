"""Choose how a model attends, and change it: a part of `octavo.Llama`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

from ..cpu_kernels.numba_support import background_compile
from .context import Context
from .devices.step_costs import StepCosts, keep_costs, kept_costs
from .document.cache_layer import CacheLayer
from .document.index import Index
from .llama_cpp_compat import DropIn
from .methods.assignment import assign
from .methods.attention import Attention


class Attending(DropIn):
    """A model with an attention that can change.

    Attributes
    ----------
    on_metal : bool
        Whether attention runs on Metal.
    """

    #: Set when the model is loaded: where attention runs, and the layers of its cache.
    on_metal: bool
    _layers: Sequence[CacheLayer]

    @property
    def context(self) -> Context:
        """Return our context."""
        raise NotImplementedError

    def set_attention(self, attention: Attention | str, budget: float | None = None) -> None:
        """Change the attention from the next token on.

        Parameters
        ----------
        attention : Attention or str
            The new attention. Words are parsed with the plan and the retrieval heads of the old one.
        budget : float, optional
            An argument of `Attention.parse`.

        Raises
        ------
        OctavoError
            The words do not compose, or the context holds tokens after the document and the old or the new attention
            evicts rows.
        """
        if isinstance(attention, str):
            attention = self.attention.parsed(attention, budget=budget)
        attention = self._prepared(attention)
        self._use(attention.resolve(self.context.cache.document, self.on_metal))
        self.sequence.attention = attention

    def _prepared(self, attention: Attention) -> Attention:
        """Return an attention with what depends on this model and this machine: the plan's layers, and step costs."""
        attention = attention.of_layers(self._layers)
        costs = None if self.on_metal or attention.auto is None else self._step_costs
        return replace(attention, selects_from=costs.selects_from) if costs else attention

    @cached_property
    def _step_costs(self) -> StepCosts | None:
        """Return what a step costs on this machine, if it was measured."""
        return kept_costs(self._layers, self.context_params.n_threads)

    def measure_steps(self) -> None:
        """Measure what a step costs, unless that is known or nothing depends on it. The model must be empty."""
        if self.attention.auto is not None and not self.on_metal and self._step_costs is None:
            self._step_costs = keep_costs(self._layers, self.context_params.n_threads)
            self.set_attention(self.attention)

    @contextlib.contextmanager
    def attending(self, attention: Attention) -> Iterator[None]:
        """Change the attention inside a `with` block. The model is empty before and after it."""
        before = self.attention
        self.reset()
        self.set_attention(attention)
        try:
            yield
        finally:
            self.reset()
            self.set_attention(before)

    def _follow(self, document: Index | None) -> None:
        """Resolve `auto` for the next document. If the choice changes, forget everything."""
        resolved = self.attention.resolve(document, self.on_metal)
        if resolved != self.resolved_attention:
            self.context.attach(None)
            self._use(resolved)

    def _use(self, resolved: Attention) -> None:
        """Use a resolved attention from the next token on."""
        self.context.use(assign(resolved, self.context.cache.layers))
        self.sequence.resolved_attention, self._n_ctx = resolved, self.context.longest

    def compile_ahead(self, attention: Attention, n_tokens: int) -> None:
        """Compile the kernels that an attention needs over a document of n_tokens tokens, in the background."""
        resolved = attention.resolve_for(n_tokens, self.on_metal)
        self.context.device.compile_ahead(assign(resolved, self.context.cache.layers))

    def compile_first(self, attention: Attention, n_tokens: int) -> None:
        """Compile these kernels before something is timed: nothing else is to use the cores meanwhile."""
        self.compile_ahead(attention, n_tokens)
        background_compile.wait()
