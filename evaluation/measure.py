"""Measure a text: every method answers the same samples, at the budget with which it reads the requested share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..progress import Progress
from ..runtime.document.index import Index
from ..runtime.llama import Llama
from ..runtime.methods.attention import DENSE_ATTENTION, Attention, Clustering
from ..runtime.query_recorder import QueryHead, Recorder
from ..runtime.store.model_library import Library
from .matching import Unreachable, matched
from .measures import kl_divergence
from .reader import Reader
from .results import Records
from .samples import Outcome, Text
from .tasks.prediction import output_errors
from .tasks.task import Task

#: Samples of a text, and steps of each, on which to measure what a method reads.
_SAMPLES, _STEPS = 4, 12


@dataclass(frozen=True)
class Run:
    """A method at a budget.

    Parameters
    ----------
    attention : Attention
        The method, with the plan that it needs.
    budget : float
        Share of the KV bytes to read; 1 for a method without a budget.
    plan : str
        Hash of the plan, if the method needs one.
    """

    attention: Attention
    budget: float
    plan: str = ""

    @property
    def name(self) -> str:
        """Name of the method in records."""
        return f"{self.attention}@{self.plan}" if self.plan else str(self.attention)

    @property
    def title(self) -> str:
        """Method and budget, for progress."""
        return str(self.attention) if self.budget == 1 else f"{self.attention}, budget {self.budget:g},"


@dataclass(frozen=True)
class NumberedText:
    """A text with its depth, and its number among the texts of that depth."""

    depth: int
    number: int
    text: Text


DENSE_RUN = Run(DENSE_ATTENTION, 1.0)


class Measurer:
    """Measure texts, and add their records.

    Parameters
    ----------
    runs : list of Run
        All methods and budgets, dense attention first.
    heads : sequence of QueryHead
        Heads whose queries find the sources of answers, if the task asks for sources.
    """

    def __init__(
        self,
        llama: Llama,
        library: Library,
        task: Task,
        runs: list[Run],
        heads: Sequence[QueryHead],
        records: Records,
        progress: Progress,
        notice: Callable[[str], None],
    ) -> None:
        self._llama, self._library, self._task, self._runs = llama, library, task, runs
        self._records, self._progress, self._notice = records, progress, notice
        self._reader = Reader(llama, progress, llama.context_params.n_threads)
        context = llama.context
        self._recorder = Recorder(context.nodes, context.shapes, heads) if task.finds_sources else None

    def measure(self, numbered: NumberedText, missing: list[Run]) -> None:
        """Measure a text.

        Parameters
        ----------
        missing : list of Run
            Runs without records. If there are any, dense attention runs too, for comparison.
        """
        if not missing:
            return
        for run in missing:
            self._llama.compile_first(run.attention, numbered.depth)
        documents = self._documents(numbered, missing)
        usual = next(iter(documents.values()))
        self._reader.attend(usual, DENSE_ATTENTION)
        dense = self._answers(DENSE_RUN, numbered, [])
        probe = Probe(self._reader, numbered.text, dense)
        for run in missing:
            if run != DENSE_RUN:
                document = documents.get(self._clustering_of(run, numbered.depth), usual)
                budget = self._matched_budget(run, numbered.depth, document, probe)
                if budget is not None:
                    self._reader.attend(document, replace(run.attention, budget=budget))
                    self._answers(run, numbered, dense)

    def _documents(self, numbered: NumberedText, missing: list[Run]) -> dict[Clustering, Index]:
        """Read a text densely, or open its indexes: one for each clustering of the missing runs.

        The first one does not depend on the missing runs, so that a resumed evaluation adds in the same order.
        """
        text, depth = numbered.text, numbered.depth
        keys = sorted({key for run in self._runs if (key := self._clustering_of(run, depth)) is not None})
        needed = {self._clustering_of(run, depth) for run in missing}
        keys = [key for key in keys if key in {*needed, keys[0]}]
        if text.document:
            keys = keys or [()]
            indexes = [self._reader.index(self._library, text.name, text.document, dict(key)) for key in keys]
        else:
            indexes = self._reader.read(text.tokens, [dict(key) for key in keys])
        clusterings: list[Clustering] = [*keys] or [None]
        return dict(zip(clusterings, indexes, strict=True))

    def _clustering_of(self, run: Run, depth: int) -> Clustering:
        return run.attention.clustering_key(depth, self._llama.on_metal)

    def _answers(self, run: Run, numbered: NumberedText, dense: list[Outcome]) -> list[Outcome]:
        """Have a method answer the samples of a text, and record them. For dense attention itself, `dense` is empty."""
        task, text, outcomes = self._task, numbered.text, []
        self._progress.start(f"{run.title} at {numbered.depth:,}", len(text.samples), "samples")
        for i, sample in enumerate(text.samples):
            outcome = self._reader.answer(sample, task.compares_attention, task.in_batches, self._recorder)
            if not text.continues:
                self._reader.back()
            reference = dense[i] if dense else outcome
            if (run.name, run.budget, numbered.depth, numbered.number, i) not in self._records.samples:
                self._records.add_sample(self._record(run, numbered, i, outcome, reference))
            outcomes.append(outcome)
            self._progress.advance(1)
        return outcomes

    def _record(self, run: Run, numbered: NumberedText, i: int, outcome: Outcome, dense: Outcome) -> dict[str, Any]:
        sample = numbered.text.samples[i]
        steps = outcome.comparable(dense, forced=bool(sample.continuation))
        n_read = min(len(outcome.bytes_read), len(dense.bytes_read))
        return {
            "attention": run.name,
            "budget": run.budget,
            "depth": numbered.depth,
            "text": numbered.number,
            "sample": i,
            "position": sample.position,
            **self._task.score(sample, outcome, dense),
            "written": outcome.text,
            "divergence": float(kl_divergence(dense.log_probs[:steps], outcome.log_probs[:steps]).sum()),
            "steps": steps,
            "bytes_read": sum(outcome.bytes_read[:n_read]),
            "dense_bytes": sum(dense.bytes_read[:n_read]),
            "errors": output_errors(outcome, dense) if self._task.compares_attention else None,
            "first_token_s": round(outcome.first_token_s, 4),
            "seconds": round(outcome.seconds, 4),
        }

    def _matched_budget(self, run: Run, depth: int, document: Index, probe: Probe) -> float | None:
        """Return the budget with which a method reads the run's share; None if it always reads more."""
        budgets, key = self._records.budgets, (run.name, run.budget, depth)
        if key in budgets or run.budget == 1:
            return budgets.get(key, run.budget)
        ratios = [
            given / share for (name, share, at), given in budgets.items() if given and (name, at) == (run.name, depth)
        ]
        start = run.budget * (ratios or [1.0])[-1]

        def share(budget: float) -> float:
            self._reader.attend(document, replace(run.attention, budget=budget))
            return probe.share()

        matching: float | None = None
        try:
            matching = matched(share, run.budget, start)
        except Unreachable as problem:
            self._notice(
                f"{run.attention} read {problem.share:.3f} or more with every budget that was tried at {depth:,} "
                f"tokens: {run.budget:g} is left out there."
            )
        self._records.add_budget(run.name, run.budget, depth, matching)
        return matching


class Probe:
    """A few steps of some samples of a text, to measure the share of dense attention's bytes that a method reads.

    Create it while dense attention attends the text.

    Parameters
    ----------
    text : Text
        The text and its samples.
    dense : list of Outcome
        Outcomes of the samples under dense attention.
    """

    def __init__(self, reader: Reader, text: Text, dense: list[Outcome]) -> None:
        self.reader = reader
        chosen = range(0, len(text.samples), -(-len(text.samples) // (1 if text.continues else _SAMPLES)))
        n_steps = _SAMPLES * _STEPS // len(chosen)
        self.tokens = [(text.samples[i].prompt + dense[i].tokens)[:n_steps] for i in chosen]
        reader.back()
        self.dense = self._bytes_read()

    def share(self) -> float:
        """Return the bytes that the current method reads in the steps, as a share of those of dense attention."""
        return self._bytes_read() / self.dense

    def _bytes_read(self) -> int:
        return sum(self.reader.bytes_of(tokens) for tokens in self.tokens)
