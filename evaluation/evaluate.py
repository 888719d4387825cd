"""Evaluate what methods and budgets cost in quality: one model, one task, every method on the same samples."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from .. import __version__
from ..convert.index import rope_settings
from ..convert.progress import Progress
from ..convert.retrieval_heads import source_heads
from ..cpu_kernels.machine import cpu_name
from ..errors import OctavoError
from ..runtime.cache.index import Index
from ..runtime.llama import Llama
from ..runtime.methods import DENSE
from ..runtime.methods.compose import Clustering, parse
from ..runtime.recorder import Recorder
from ..runtime.store.library import Library, hash_text
from ..runtime.store.plan import Plan
from .matching import Unreachable, matched
from .measures import kl_divergence
from .probe import Probe
from .reader import Reader
from .results import Results, summary
from .samples import Outcome, Text
from .tasks.agreement import output_errors
from .tasks.task import Task


@dataclass(frozen=True)
class Settings:
    """What to evaluate.

    Parameters
    ----------
    attentions : list of str
        Methods; dense attention runs in any case.
    budgets : list of float
        Shares of the KV bytes that each method reads.
    depths : list of int
        Tokens of the texts.
    n_samples : int
        Samples at each depth.
    seed : int
        Seed of the samples.
    data : Path
        File that the texts are made of.
    plan : Plan, optional
        The model's plan, for methods that need one.
    """

    attentions: list[str]
    budgets: list[float]
    depths: list[int]
    n_samples: int
    seed: int
    data: Path
    plan: Plan | None = None


@dataclass(frozen=True)
class Run:
    """A method at a budget.

    Parameters
    ----------
    attention : str
        The method.
    budget : float
        Share of the KV bytes to read; 1 for a method without a budget.
    plan : str
        Hash of the plan, if the method needs one.
    """

    attention: str
    budget: float
    plan: str = ""

    @property
    def name(self) -> str:
        """Name of the method in records."""
        return f"{self.attention}@{self.plan}" if self.plan else self.attention

    @property
    def title(self) -> str:
        """Method and budget, for progress."""
        return self.attention if self.budget == 1 else f"{self.attention}, budget {self.budget:g},"


@dataclass(frozen=True)
class NumberedText:
    """A text, its depth, and its number among the texts of one depth."""

    depth: int
    number: int
    text: Text


_DENSE_RUN = Run(DENSE, 1.0)


class Evaluation:
    """One evaluation. It measures what its results file does not hold yet.

    Parameters
    ----------
    llama : Llama
        The model.
    library : Library
        Its indexes; the results file is kept there.
    task : Task
        What is measured.
    settings : Settings
        Methods, budgets, depths and samples.
    progress : Progress
        Receives the progress.
    notice : callable
        Receives sentences for the user.
    """

    def __init__(
        self,
        llama: Llama,
        library: Library,
        task: Task,
        settings: Settings,
        progress: Progress,
        notice: Callable[[str], None],
    ) -> None:
        self.llama, self.library, self.task, self.settings = llama, library, task, settings
        self.progress, self.notice = progress, notice
        self.reader = Reader(llama, progress, llama.context_params.n_threads)
        self.runs = runs_of(settings)
        machine = {"cpu": cpu_name(), "threads": llama.context_params.n_threads, "device": llama.context.device.name}
        self.results = Results(self._path(), {**self.depends_on, "machine": machine})

    @cached_property
    def depends_on(self) -> dict[str, Any]:
        """What the figures of a sample depend on, other than the method."""
        return {
            "octavo": __version__,
            "task": {"name": self.task.name, **vars(self.task)},
            "model": {"name": self.library.model_path.name, "sha256": self.library.model_hash},
            "rope": rope_settings(self.llama),
            "cache_type": self.llama.context.kv_type,
            "data": {"name": self.settings.data.name, "sha256": hash_text(self.task.content(self.settings.data))},
            "samples": self.settings.n_samples,
            "seed": self.settings.seed,
        }

    @cached_property
    def recorder(self) -> Recorder | None:
        """What records the sources of answers, if the task looks for them."""
        if not self.task.finds_sources:
            return None
        context = self.llama.context
        return Recorder(context.nodes, context.shapes, source_heads(self.llama, self.library, self.notice))

    def _path(self) -> Path:
        identity = hashlib.sha256(json.dumps(self.depends_on, sort_keys=True).encode()).hexdigest()[:12]
        return self.library.folder / "eval" / f"{self.task.name}-{identity}.jsonl"

    def run(self) -> dict[str, Any]:
        """Measure what is missing.

        Returns
        -------
        dict
            What `octavo eval -o json` prints.

        Raises
        ------
        OctavoError
            If a text does not fit the model's context. Nothing is measured then.
        """
        texts, _ = self._texts(), self.recorder  # heads are found while the model holds nothing
        for each in texts:
            self._measure(each)
        depths = list(dict.fromkeys(each.depth for each in texts))
        return {
            "task": self.task.name,
            "parameters": self.task.changed,
            "metric": self.task.metric,
            "higher_is_better": self.task.higher_is_better,
            **{name: self.results.header[name] for name in ("model", "octavo", "data", "seed", "machine")},
            "results": [row for run in self.runs for depth in depths for row in self._rows(run, depth, texts)],
            "left_out": self._left_out(depths),
        }

    def _texts(self) -> list[NumberedText]:
        """Make the texts of all depths."""
        settings, n_ctx = self.settings, self.llama.n_ctx()
        made: list[NumberedText] = []
        for depth in [0] if self.task.own_depths else sorted(set(settings.depths)):
            texts = self.task.texts(self.llama, settings.data, depth, settings.n_samples, settings.seed)
            depths = [text.depth or depth or len(text.tokens) for text in texts]
            made += [NumberedText(*each) for each in zip(depths, range(len(texts)), texts, strict=True)]
        if self.task.leaves_out:
            fitting = [each for each in made if each.text.n_tokens <= n_ctx]
            if 0 < len(fitting) < len(made):
                self.notice(
                    f"{len(made) - len(fitting)} of {len(made)} texts do not fit the context of {n_ctx:,} tokens and "
                    "are left out: a larger context (-c, --rope-scaling) or a long-context model (-m) takes more."
                )
            made = fitting or made
        longest = max(each.text.n_tokens for each in made)
        if longest > n_ctx:
            raise OctavoError(
                f"The longest text takes {longest:,} tokens with its questions, and the context holds {n_ctx:,}: give "
                "smaller --depths, a larger context (-c, --rope-scaling), or a long-context model with -m."
            )
        return made

    def _measure(self, numbered: NumberedText) -> None:
        """Run every method on one text, unless its results are there."""
        missing = [run for run in self.runs if not self._is_done(run, numbered)]
        if not missing:
            return
        documents = self._documents(numbered.text, missing)
        usual = next(iter(documents.values()))
        self.reader.attend(usual, DENSE, 1.0)
        dense = self._answers(_DENSE_RUN, numbered, [])
        probe = Probe(self.reader, numbered.text, dense)
        for run in missing:
            if run.attention != DENSE:
                document = documents.get(self._clustering(run), usual)
                budget = self._matched_budget(run, numbered.depth, document, probe)
                if budget is not None:
                    self.reader.attend(document, run.attention, budget)
                    self._answers(run, numbered, dense)

    def _is_done(self, run: Run, numbered: NumberedText) -> bool:
        depth, number = numbered.depth, numbered.number
        keys = [(run.name, run.budget, depth, number, i) for i in range(len(numbered.text.samples))]
        unreachable = self.results.budgets.get((run.name, run.budget, depth), run.budget) is None
        return unreachable or all(key in self.results.samples for key in keys)

    def _documents(self, text: Text, missing: list[Run]) -> dict[Clustering, Index]:
        """Read a text densely, or open its indexes: one for each clustering that the missing runs need.

        The first is the same whatever is missing: an evaluation that goes on adds in the same order.
        """
        wanted = sorted({each for each in map(self._clustering, self.runs) if each is not None})
        needed = {self._clustering(run) for run in missing}
        wanted = [each for each in wanted if each in {*needed, wanted[0]}]
        if text.document:
            wanted = wanted or [()]
            indexes = [self.reader.index(self.library, text.name, text.document, dict(each)) for each in wanted]
        else:
            indexes = self.reader.read(text.tokens, [dict(each) for each in wanted])
        clusterings: list[Clustering] = [*wanted] or [None]
        return dict(zip(clusterings, indexes, strict=True))

    def _clustering(self, run: Run) -> Clustering:
        """Return how a run needs documents to be clustered."""
        return parse(run.attention, self.settings.plan).clustering_key

    def _answers(self, run: Run, numbered: NumberedText, dense: list[Outcome]) -> list[Outcome]:
        """Have a method answer the samples of a text, and record them. For dense attention itself, `dense` is empty."""
        task, text, outcomes = self.task, numbered.text, []
        self.progress.start(f"{run.title} at {numbered.depth:,}", len(text.samples), "samples")
        for i, sample in enumerate(text.samples):
            outcome = self.reader.answer(sample, task.compares_attention, task.in_batches, self.recorder)
            if not text.continues:
                self.reader.back()
            reference = dense[i] if dense else outcome
            if (run.name, run.budget, numbered.depth, numbered.number, i) not in self.results.samples:
                self.results.add_sample(self._record(run, numbered, i, outcome, reference))
            outcomes.append(outcome)
            self.progress.advance(1)
        return outcomes

    def _record(self, run: Run, numbered: NumberedText, i: int, outcome: Outcome, dense: Outcome) -> dict[str, Any]:
        """Return the record of one sample."""
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
            **self.task.score(sample, outcome, dense),
            "written": outcome.text,
            "divergence": float(kl_divergence(dense.log_probs[:steps], outcome.log_probs[:steps]).sum()),
            "steps": steps,
            "bytes_read": sum(outcome.bytes_read[:n_read]),
            "dense_bytes": sum(dense.bytes_read[:n_read]),
            "errors": output_errors(outcome, dense) if self.task.compares_attention else None,
            "first_token_s": round(outcome.first_token_s, 4),
            "seconds": round(outcome.seconds, 4),
        }

    def _matched_budget(self, run: Run, depth: int, document: Index, probe: Probe) -> float | None:
        """Return the budget with which a method reads the run's share; None if it cannot read so little."""
        known, key = self.results.budgets, (run.name, run.budget, depth)
        if key in known or run.budget == 1:
            return known.get(key, run.budget)
        ratios = [found / budget for (name, budget, _), found in known.items() if name == run.name and found]

        def share(budget: float) -> float:
            self.reader.attend(document, run.attention, budget)
            return probe.share()

        found: float | None = None
        try:
            found = matched(share, run.budget, run.budget * (ratios[-1] if ratios else 1.0))
        except Unreachable as problem:
            self.notice(
                f"{run.attention} read {problem.share:.3f} or more with every budget that was tried at {depth:,} "
                f"tokens: {run.budget:g} is left out there."
            )
        self.results.add_budget(run.name, run.budget, depth, found)
        return found

    def _rows(self, run: Run, depth: int, texts: list[NumberedText]) -> list[dict[str, Any]]:
        """Return the row of one run and depth; no row if the run was left out."""
        samples = [(each.number, i) for each in texts if each.depth == depth for i in range(len(each.text.samples))]
        records = self.results.samples
        if (run.name, run.budget, depth, *samples[0]) not in records:
            return []
        own, dense = (
            [records[each.name, each.budget, depth, number, i] for number, i in samples] for each in (run, _DENSE_RUN)
        )
        budget = self.results.budgets.get((run.name, run.budget, depth), run.budget)
        means = summary(own, dense, self.task.extra_figures)
        row = {"attention": run.attention, "budget": run.budget, "depth": depth, **means}
        return [{**row, "given_budget": round(budget, 5) if budget else None}]

    def _left_out(self, depths: list[int]) -> list[dict[str, Any]]:
        """Return the runs and depths whose share could not be reached."""
        return [
            {"attention": run.attention, "budget": run.budget, "depth": depth}
            for run in self.runs
            for (attention, budget, depth), found in self.results.budgets.items()
            if (attention, budget) == (run.name, run.budget) and depth in depths and found is None
        ]


def runs_of(settings: Settings) -> list[Run]:
    """Return each method at each budget, dense attention first, without repetitions.

    Parameters
    ----------
    settings : Settings
        Methods, budgets and plan.

    Returns
    -------
    list of Run
    """
    runs = [_DENSE_RUN]
    for attention in settings.attentions:
        method = parse(attention, settings.plan)
        plan = hashlib.sha256(repr(settings.plan).encode()).hexdigest()[:8] if method.needs_plan else ""
        runs += [Run(attention, budget, plan) for budget in (settings.budgets if method.has_budget else [1.0])]
    return list(dict.fromkeys(runs))
