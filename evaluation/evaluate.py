"""Evaluate the quality of methods at budgets: one model, one task, every method on the same samples."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ..ask.sources.retrieval_heads import source_heads
from ..errors import OctavoError
from ..progress import Progress
from ..prompts.direct_prompt import say_that_it_does_not_think
from ..runtime.llama import Llama
from ..runtime.methods import DENSE
from ..runtime.methods.attention import Attention
from ..runtime.query_recorder import QueryHead
from ..runtime.store.model_library import Library
from .header import head_of, machine_of, results_of
from .measure import DENSE_RUN, Measurer, NumberedText, Run
from .results import summary
from .tasks.task import Task


@dataclass(frozen=True)
class Settings:
    """Methods, budgets and samples of an evaluation.

    Parameters
    ----------
    attentions : list of Attention
        Methods, with the plan that they need; dense attention always runs.
    budgets : list of float
        Shares of the KV bytes that each method reads.
    n_samples : int
        Samples at each depth.
    """

    attentions: list[Attention]
    budgets: list[float]
    depths: list[int]
    n_samples: int
    seed: int
    data: Path


class TextMeasurers(Protocol):
    """Measure texts elsewhere, as the workers of a cluster do (cluster_evaluation.py)."""

    @property
    def machine(self) -> dict[str, Any]:
        """Return a description of the machines, for the header of the results."""

    def measure(self, evaluation: Evaluation, texts: Sequence[NumberedText], heads: Sequence[QueryHead]) -> None:
        """Measure the missing runs of an evaluation, and add them to its results."""


class Evaluation:
    """Measure what a results file lacks: each run on each text.

    Parameters
    ----------
    workers : TextMeasurers, optional
        Measures in place of this process.
    """

    def __init__(
        self,
        llama: Llama,
        library: Library,
        task: Task,
        settings: Settings,
        progress: Progress,
        notice: Callable[[str], None],
        workers: TextMeasurers | None = None,
    ) -> None:
        self.llama, self.library, self.task, self.settings = llama, library, task, settings
        self.progress, self.notice, self.workers = progress, notice, workers
        self.runs = runs_of(settings)
        self.results = results_of(llama, library, task, settings, workers.machine if workers else machine_of(llama))

    def run(self) -> dict[str, Any]:
        """Measure the missing runs; return the content of `octavo eval -o json`.

        Raises
        ------
        OctavoError
            A text does not fit the model's context. Nothing is measured then.
        """
        texts, heads = self._texts(), self._heads()
        if any(sample.n_predict for numbered in texts for sample in numbered.text.samples):
            say_that_it_does_not_think(self.llama, self.notice)
        if self.workers:
            self.workers.measure(self, texts, heads)
        measurer = Measurer(
            self.llama, self.library, self.task, self.runs, heads, self.results, self.progress, self.notice
        )
        for numbered in texts:
            measurer.measure(numbered, self.missing(numbered))
        depths = list(dict.fromkeys(numbered.depth for numbered in texts))
        return {
            **head_of(self.task, self.results),
            "results": [row for run in self.runs for depth in depths for row in self._rows(run, depth, texts)],
            "left_out": self._left_out(depths),
        }

    def missing(self, numbered: NumberedText) -> list[Run]:
        """Return the runs that lack records of a text."""
        return [run for run in self.runs if not self._is_done(run, numbered)]

    def _heads(self) -> list[QueryHead]:
        """Return the heads that find the sources of answers, if the task asks for sources. The model must be empty."""
        return source_heads(self.llama, self.library, self.notice) if self.task.finds_sources else []

    def _texts(self) -> list[NumberedText]:
        settings, n_ctx = self.settings, self.llama.n_ctx()
        numbered: list[NumberedText] = []
        for depth in [0] if self.task.own_depths else sorted(set(settings.depths)):
            texts = self.task.texts(self.llama, settings.data, depth, settings.n_samples, settings.seed)
            depths = [text.depth or depth or len(text.tokens) for text in texts]
            numbered += map(NumberedText, depths, range(len(texts)), texts)
        if self.task.leaves_out:
            fitting = [one for one in numbered if one.text.n_tokens <= n_ctx]
            if 0 < len(fitting) < len(numbered):
                self.notice(
                    f"{len(numbered) - len(fitting)} of {len(numbered)} texts do not fit the context of {n_ctx:,} "
                    "tokens and are left out: a larger context (-c, --rope-scaling) or a long-context model (-m) takes "
                    "more."
                )
            numbered = fitting or numbered
        longest = max(one.text.n_tokens for one in numbered)
        if longest > n_ctx:
            raise OctavoError(
                f"The longest text takes {longest:,} tokens with its questions, and the context holds {n_ctx:,}: give "
                "smaller --depths, a larger context (-c, --rope-scaling), or a long-context model with -m."
            )
        return numbered

    def _is_done(self, run: Run, numbered: NumberedText) -> bool:
        depth, number = numbered.depth, numbered.number
        keys = [(run.name, run.budget, depth, number, i) for i in range(len(numbered.text.samples))]
        unreachable = self.results.budgets.get((run.name, run.budget, depth), run.budget) is None
        return unreachable or all(key in self.results.samples for key in keys)

    def _rows(self, run: Run, depth: int, texts: list[NumberedText]) -> list[dict[str, Any]]:
        """Return the row of a run at a depth; none if the evaluation left the run out."""
        at_depth = [numbered for numbered in texts if numbered.depth == depth]
        samples = [(numbered.number, i) for numbered in at_depth for i in range(len(numbered.text.samples))]
        records = self.results.samples
        if (run.name, run.budget, depth, *samples[0]) not in records:
            return []
        measured, dense = (
            [records[one.name, one.budget, depth, number, i] for number, i in samples] for one in (run, DENSE_RUN)
        )
        budget = self.results.budgets.get((run.name, run.budget, depth), run.budget)
        judged = self.task.is_share and run != DENSE_RUN
        means = summary(measured, dense, self.task.extra_figures, judged)
        row = {"attention": str(run.attention), "budget": run.budget, "depth": depth, **means}
        return [{**row, "given_budget": round(budget, 5) if budget else None}]

    def _left_out(self, depths: list[int]) -> list[dict[str, Any]]:
        """Return the runs and depths without a row, because their share is out of reach."""
        budgets = self.results.budgets
        return [
            {"attention": str(run.attention), "budget": run.budget, "depth": depth}
            for run in self.runs
            for depth in dict.fromkeys(depths)
            if budgets.get((run.name, run.budget, depth), run.budget) is None
        ]


def runs_of(settings: Settings) -> list[Run]:
    """Return each method at each budget, dense attention first, without repetitions."""
    runs = [DENSE_RUN]
    for attention in settings.attentions:
        if str(attention) == DENSE:
            continue
        plan = hashlib.sha256(repr(attention.plan).encode()).hexdigest()[:8] if attention.needs_plan else ""
        runs += [Run(attention, budget, plan) for budget in (settings.budgets if attention.has_budget else [1.0])]
    return list(dict.fromkeys(runs))
