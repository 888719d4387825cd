"""Distribute a budget among layers by their sensitivity, and check on other texts whether that pays.

A layer's sensitivity is the change of the model's last hidden states when this layer alone sees an eighth of the text:
sinks and a recent window. Budgets in proportion to a power of it are tried on other texts, with each method as it is
used: over an index, token by token. A method gets such budgets if they beat equal budgets both where the text is
repeated and where it continues as prose; otherwise its layers get equal budgets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ...progress import Progress, Silent
from ...runtime.document.index import Index
from ...runtime.llama import Llama
from ...runtime.methods import DEFAULT_BUDGET, METHODS, method_class
from ...runtime.methods.attention import DENSE_ATTENTION, Attention
from ...runtime.methods.layer_budgets import LayerBudgets
from ...runtime.store.plan import Plan
from ...system.files import DamagedError, read_json, write_json
from ..clusters import settings_for
from ..pipeline import calibrate, cluster, prefill
from .heads import HIDDEN, Head, change, recall, streaming
from .recall_texts import Haystack, RecallText

#: Powers of the sensitivity to try budgets in proportion to. 0 makes them equal.
POWERS = (0.0, 1 / 3, 1 / 2)

#: Sink tokens that a layer sees while its sensitivity is measured.
_SINKS = 4

#: Tokens of prose whose hidden states are compared, and tokens that are read one by one to check budgets.
_CONTINUED, _CHECKED = 128, 64

#: How much more than equal budgets a check may read. If it reads more, equal budgets are checked with as much.
_MORE_BYTES = 1.01


@dataclass(frozen=True)
class Check:
    """The effect of a method's budgets, on repeated text and on prose.

    Parameters
    ----------
    power : float
        Power of the sensitivity; 0 for equal budgets.
    divergence : tuple of float
        KL divergence of the next token from dense attention's, averaged over the tokens of each text.
    share : float
        Share of dense attention's bytes that was read.
    """

    power: float
    divergence: tuple[float, ...]
    share: float

    def over(self, other: Check) -> float:
        """Return the ratio of its divergence to another's, as the geometric mean over the texts."""
        ratios = np.maximum(self.divergence, 1e-9) / np.maximum(other.divergence, 1e-9)
        return float(np.exp(np.log(ratios).mean()))


class Kept:
    """Measured numbers, kept in a file so that an interrupted profile does not measure them again.

    Parameters
    ----------
    path : Path, optional
        JSON file of the numbers by name; None to keep them in memory.
    """

    def __init__(self, path: Path | None, progress: Progress) -> None:
        self._path, self._progress = path, progress
        self.values: dict[str, Any] = {}
        if path is not None:
            with suppress(DamagedError):  # or the file does not exist yet
                self.values = read_json(path)

    def count(self, names: Iterable[str]) -> int:
        """Return how many of these were measured."""
        return sum(name in self.values for name in names)

    def get(self, name: str, measure: Callable[[], Any]) -> Any:
        """Return a measured value, or measure it."""
        if name not in self.values:
            self.put(name, measure())
        return self.values[name]

    def put(self, name: str, value: Any) -> None:
        """Keep a measured value."""
        self.values[name] = value
        if self._path is not None:
            write_json(self._path, self.values)
        self._progress.advance(1)


def prose_text(haystack: Haystack, n_tokens: int, seed: int) -> RecallText:
    """Make a text of continuous prose: its last tokens are compared, and repeat nothing."""
    head = haystack.head()
    tokens = head + haystack.tokens(n_tokens - len(head), np.random.default_rng(seed))
    last = np.arange(n_tokens - min(_CONTINUED, n_tokens // 4), n_tokens)
    return RecallText(tokens, int(last[0]) - 1, last, last)


def layer_change(llama: Llama, text: RecallText, hidden: np.ndarray, layer: int) -> float:
    """Measure the change of the last hidden states when one layer sees only sinks and a recent window.

    Parameters
    ----------
    llama : Llama
        The model, with the first part of the text in its cache.
    hidden : float32 array, shape (n, n_embd)
        Hidden states with full attention.

    Returns
    -------
    float
        Mean squared change, as a share of the mean square.
    """
    cache = llama.context.cache
    heads = [(layer, head) for head in range(cache.layers[layer].n_kv_head)]
    with streaming(cache, heads, _SINKS, max(int(DEFAULT_BUDGET * text.n_read) - _SINKS, 1)):
        changed = change(recall(llama, text)[HIDDEN], hidden)
    return changed / max(float(np.square(hidden.astype(np.float64)).mean()), 1e-30)


def factors(sensitivity: Sequence[float | None], power: float, n_dense: int = 0) -> list[float]:
    """Compute budgets in proportion to a power of the sensitivity.

    Parameters
    ----------
    sensitivity : sequence of float or None
        Sensitivity of each layer; None for a layer that slides.
    n_dense : int
        First layers that attend to everything. They and sliding layers are left out.

    Returns
    -------
    list of float
        Factor of each layer, on average 1.
    """
    weighted = [i for i, value in enumerate(sensitivity) if value is not None and i >= n_dense]
    weights = np.array([max(sensitivity[i] or 0.0, 1e-9) for i in weighted]) ** power
    result = [1.0] * len(sensitivity)
    for i, weight in zip(weighted, weights / weights.mean() if weighted else [], strict=True):
        result[i] = round(float(weight), 4)
    return result


class CheckedText:
    """A text to check methods on: its index in memory, and dense attention's predictions after it."""

    def __init__(self, llama: Llama, text: RecallText) -> None:
        self.llama, self.tokens = llama, text.tokens[text.n_read : text.n_read + _CHECKED]
        self._compared = {int(i) - 1 - text.n_read for i in text.recalled}
        document, settings = text.tokens[: text.n_read], settings_for(llama.context.kv_type)
        llama.reset()
        llama.set_attention(DENSE_ATTENTION)
        queries = prefill(llama, document, Silent(), settings.n_queries(len(document)))
        layers = list(cluster(llama.context.cache, settings, Silent(), llama.context_params.n_threads))
        self.index: Index = calibrate(llama, layers, queries, document)
        llama.reset()
        self.expected, self.dense_bytes = self._predictions()

    def _predictions(self) -> tuple[np.ndarray, int]:
        """Return the log-probabilities of the next tokens, and the bytes that attention read."""
        llama, rows = self.llama, []
        llama.attach(self.index)
        llama.context.bytes_read = 0
        for i, token in enumerate(self.tokens):
            llama.eval([token])
            if i in self._compared:
                logits = llama.logits().astype(np.float64)
                logits -= logits.max()
                rows.append(logits - np.log(np.exp(logits).sum()))
        return np.array(rows), llama.context.bytes_read

    def check(self, attention: Attention) -> tuple[float, float]:
        """Return the mean KL divergence of an attention's predictions from dense attention's, and the share read."""
        self.llama.reset()
        self.llama.set_attention(attention)
        predicted, n_bytes = self._predictions()
        divergence = (np.exp(self.expected) * (self.expected - predicted)).sum(axis=1).mean()
        return float(divergence), n_bytes / self.dense_bytes


class Checker:
    """Check budgets of methods on texts, each of which is read when first needed.

    Parameters
    ----------
    llama : Llama
        The model. Its attention changes.
    texts : sequence of RecallText
        Texts other than those that measured the sensitivity.
    plan : Plan
        A plan of this model, without layer budgets.
    """

    def __init__(
        self,
        llama: Llama,
        texts: Sequence[RecallText],
        sensitivity: Sequence[float | None],
        plan: Plan,
        kept: Kept,
    ) -> None:
        self.llama, self.texts, self.sensitivity, self.plan, self.kept = llama, texts, sensitivity, plan, kept
        self._read: dict[int, CheckedText] = {}

    def best(self, method: str) -> list[Check]:
        """Check a method with budgets by each power.

        Returns
        -------
        list of Check
            Equal budgets and the best others, the preferred first.
        """
        candidates = []
        equal = self._check(method, POWERS[0], DEFAULT_BUDGET)
        for power in POWERS[1:]:
            other, base = self._check(method, power, DEFAULT_BUDGET), equal
            if other.share > _MORE_BYTES * equal.share:
                more = round(DEFAULT_BUDGET * other.share / equal.share, 4)
                base = self._check(method, POWERS[0], min(more, 1.0))
            losses = zip(other.divergence, base.divergence, strict=True)
            wins = other.over(base) < 1 and all(unequal <= even for unequal, even in losses)
            candidates.append((not wins, other.over(base), other, base))
        loses, _, other, base = min(candidates, key=lambda candidate: candidate[:2])
        return [base, other] if loses else [other, base]

    def _check(self, method: str, power: float, budget: float) -> Check:
        results = []
        for i in range(len(self.texts)):
            name = f"{method}, power {power:.2f}, budget {budget:g}, text {i}"
            results.append(self.kept.get(name, partial(self._run, i, method, power, budget)))
        divergences, shares = zip(*results, strict=True)
        return Check(power, divergences, float(np.mean(shares)))

    def _run(self, number: int, method: str, power: float, budget: float) -> tuple[float, float]:
        if number not in self._read:
            self._read[number] = CheckedText(self.llama, self.texts[number])
        scale = tuple(factors(self.sensitivity, power, method_class(method).dense_layers))
        plan = replace(self.plan, layer_scale={method: scale})
        return self._read[number].check(Attention(method, budget=budget, layers=LayerBudgets(), plan=plan))


def plan_of_heads(heads: Iterable[Head], n_sinks: int, n_recent: int, n_layers: int) -> Plan:
    """Return a plan of heads, in the order of their elimination, without layer budgets."""
    return Plan("", "", 1.0, n_sinks, n_recent, {}, tuple(heads), (None,) * n_layers)


def layer_budgets(checks: Mapping[str, Sequence[Check]], sensitivity: Sequence[float | None]) -> dict[str, Any]:
    """Return a plan's entries of the layers' budgets.

    Parameters
    ----------
    checks : mapping of str to sequence of Check
        The results of `Checker.best` for each method.

    Returns
    -------
    dict
        "sensitivity"; "budget_scale", the factors of each method's budgets; and "checks", the divergences with equal
        budgets and with the best others.
    """
    scales: dict[str, list[float]] = {}
    checked: dict[str, dict[str, list[float]]] = {"equal": {}, "by_sensitivity": {}}
    for method, found in checks.items():
        scales[method] = factors(sensitivity, found[0].power, method_class(method).dense_layers)
        for checked_budgets in found:
            kind = "by_sensitivity" if checked_budgets.power else "equal"
            checked[kind][method] = [round(divergence, 5) for divergence in checked_budgets.divergence]
    shown = [None if value is None else round(value, 6) for value in sensitivity]
    return {"sensitivity": shown, "budget_scale": scales, "checks": checked}


def methods_with_layer_budgets() -> list[str]:
    """Return the names of the methods whose budget a plan scales."""
    return [name for name in METHODS if method_class(name).has_budget]
