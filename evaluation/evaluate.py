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
from ..cpu_kernels.machine import cpu_name
from ..errors import BudgetTooSmall, OctavoError
from ..runtime.cache.index import Index
from ..runtime.llama import Llama
from ..runtime.methods.compose import parse
from ..runtime.store.library import Library, hash_text
from ..runtime.store.plan import Plan
from .matching import Unreachable, matched
from .reader import Reader
from .results import Results, summary
from .samples import Outcome, Text, divergence
from .tasks import Task
from .tasks.agreement import Agreement, output_errors
from .tasks.fixed_context import FixedContext
from .tasks.needle import Needle
from .tasks.passkey import Passkey
from .tasks.perplexity import Perplexity
from .tasks.qa import QA
from .tasks.repetition import Repetition

TASKS: dict[str, type[Task]] = {
    task.name: task for task in (Perplexity, Repetition, Passkey, Needle, QA, FixedContext, Agreement)
}

#: The attention that others are compared with.
DENSE = "dense"

#: Samples, and steps of each, that a budget is matched on.
_PROBED, _PROBE_STEPS = 4, 12


@dataclass(frozen=True)
class Settings:
    """What to evaluate.

    attentions : dense runs in any case, to compare with    budgets : shares that each method is to read
    depths : tokens of texts    n_samples : at each depth
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

    budget : 1 for one that has none    plan : which plan it goes by, where it needs one
    """

    attention: str
    budget: float
    plan: str = ""

    @property
    def name(self) -> str:
        """What records call the method."""
        return f"{self.attention}@{self.plan}" if self.plan else self.attention


class Evaluation:
    """One evaluation, of as much as its results file does not hold yet."""

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
        self.runs = [Run(DENSE, 1.0)]
        for attention in settings.attentions:
            method = parse(attention, settings.plan)
            plan = hashlib.sha256(repr(settings.plan).encode()).hexdigest()[:8] if method.needs_plan else ""
            self.runs += [Run(attention, budget, plan) for budget in (settings.budgets if method.has_budget else [1.0])]
        self.runs = list(dict.fromkeys(self.runs))
        machine = {"cpu": cpu_name(), "threads": llama.context_params.n_threads, "device": llama.context.device.name}
        self.results = Results(self._path(), {**self.depends_on, "machine": machine})

    @cached_property
    def depends_on(self) -> dict[str, Any]:
        """What a sample's figures depend on, besides the method."""
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

    def _path(self) -> Path:
        identity = hashlib.sha256(json.dumps(self.depends_on, sort_keys=True).encode()).hexdigest()[:12]
        return self.library.folder / "eval" / f"{self.task.name}-{identity}.jsonl"

    def run(self) -> dict[str, Any]:
        """Measure what is missing; the result is what `octavo eval -o json` prints.

        Raises OctavoError where a text does not fit the model's context, before anything is measured.
        """
        texts = self._texts()
        for depth, number, text in texts:
            self._measure(depth, number, text)
        return {
            "task": self.task.name,
            "metric": self.task.metric,
            "higher_is_better": self.task.higher_is_better,
            **{name: self.results.header[name] for name in ("model", "octavo", "data", "seed", "machine")},
            "results": [row for run in self.runs for depth in _unique(texts) for row in self._rows(run, depth, texts)],
            "left_out": self._left_out(_unique(texts)),
        }

    def _texts(self) -> list[tuple[int, int, Text]]:
        """All texts, with their depths, and their numbers among those of one depth."""
        settings, n_ctx = self.settings, self.llama.n_ctx()
        made = []
        for depth in [0] if self.task.own_depths else sorted(set(settings.depths)):
            texts = self.task.texts(self.llama, settings.data, depth, settings.n_samples, settings.seed)
            made += [(depth or len(text.tokens), number, text) for number, text in enumerate(texts)]
        longest = max(text.n_tokens for _, _, text in made)
        if longest > n_ctx:
            raise OctavoError(
                f"The longest text takes {longest:,} tokens with its questions, and the context holds {n_ctx:,}: give "
                "smaller --depths, a larger context (-c, --rope-scaling), or a long-context model with -m."
            )
        return made

    def _measure(self, depth: int, number: int, text: Text) -> None:
        """Every method on one text, as far as that was not done before."""
        missing = [run for run in self.runs if not self._done(run, depth, number, text)]
        if not missing:
            return
        document = self._document(text)
        self.reader.attend(document, DENSE, 1.0)
        dense = self._answers(Run(DENSE, 1.0), depth, number, text, [])
        probe = _Probe(self.reader, text, dense)
        for run in missing:
            if run.attention != DENSE:
                given = self._given(run, depth, document, probe)
                if given is not None:
                    self.reader.attend(document, run.attention, given)
                    self._answers(run, depth, number, text, dense)

    def _done(self, run: Run, depth: int, number: int, text: Text) -> bool:
        keys = [(run.name, run.budget, depth, number, i) for i in range(len(text.samples))]
        unreachable = self.results.budgets.get((run.name, run.budget, depth), run.budget) is None
        return unreachable or all(key in self.results.samples for key in keys)

    def _document(self, text: Text) -> Index:
        if text.document:
            return self.reader.index(self.library, text.name, text.document)
        clusters = any("squeezed" in parse(run.attention, self.settings.plan).method for run in self.runs)
        return self.reader.read(text.tokens, clusters)

    def _answers(self, run: Run, depth: int, number: int, text: Text, dense: list[Outcome]) -> list[Outcome]:
        """Have a method answer a text's samples, and record it; without `dense`, this is dense attention."""
        task, outcomes = self.task, []
        self.progress.start(f"{_named(run)} at {depth:,}", len(text.samples), "samples")
        for i, sample in enumerate(text.samples):
            outcome = self.reader.answer(sample, task.attention_too, task.in_batches)
            if not text.continues:
                self.reader.back()
            reference = dense[i] if dense else outcome
            if (run.name, run.budget, depth, number, i) not in self.results.samples:
                steps = outcome.comparable(reference, forced=bool(sample.continuation))
                n_read = min(len(outcome.bytes_read), len(reference.bytes_read))
                self.results.add_sample(
                    {
                        "attention": run.name,
                        "budget": run.budget,
                        "depth": depth,
                        "text": number,
                        "sample": i,
                        "position": sample.position,
                        **task.score(sample, outcome, reference),
                        "written": outcome.text,
                        "divergence": float(divergence(reference, outcome, steps).sum()),
                        "steps": steps,
                        "bytes_read": sum(outcome.bytes_read[:n_read]),
                        "dense_bytes": sum(reference.bytes_read[:n_read]),
                        "errors": output_errors(outcome, reference) if task.attention_too else None,
                        "first_token_s": round(outcome.first_token_s, 4),
                        "seconds": round(outcome.seconds, 4),
                    }
                )
            outcomes.append(outcome)
            self.progress.advance(1)
        return outcomes

    def _given(self, run: Run, depth: int, document: Index, probe: _Probe) -> float | None:
        """The budget with which a method reads the share that is asked for; None where it cannot."""
        known, key = self.results.budgets, (run.name, run.budget, depth)
        if key in known or run.budget == 1:
            return known.get(key, run.budget)
        ratios = [given / budget for (name, budget, _), given in known.items() if name == run.name and given]

        def share(budget: float) -> float | None:
            try:
                self.reader.attend(document, run.attention, budget)
            except BudgetTooSmall:
                return None
            return probe.share()

        given: float | None = None
        try:
            given = matched(share, run.budget, run.budget * (ratios[-1] if ratios else 1.0))
        except Unreachable as problem:
            least = f"read {problem.share:.3f} or more with every budget" if problem.share else "took no budget"
            self.notice(
                f"{run.attention} {least} that was tried at {depth:,} tokens: {run.budget:g} is left out there."
            )
        self.results.add_budget(run.name, run.budget, depth, given)
        return given

    def _rows(self, run: Run, depth: int, texts: list[tuple[int, int, Text]]) -> list[dict[str, Any]]:
        """The row of one method, budget and depth; none where it was left out."""
        places = [(number, i) for each, number, text in texts if each == depth for i in range(len(text.samples))]
        found = self.results.samples
        if (run.name, run.budget, depth, *places[0]) not in found:
            return []
        own, dense = (
            [found[attention, budget, depth, number, i] for number, i in places]
            for attention, budget in ((run.name, run.budget), (DENSE, 1.0))
        )
        given = self.results.budgets.get((run.name, run.budget, depth), run.budget)
        row = {"attention": run.attention, "budget": run.budget, "depth": depth, **summary(own, dense, self.task.also)}
        return [{**row, "given_budget": round(given, 5) if given else None}]

    def _left_out(self, depths: list[int]) -> list[dict[str, Any]]:
        """Methods and budgets that could not be matched."""
        return [
            {"attention": run.attention, "budget": run.budget, "depth": depth}
            for run in self.runs
            for (attention, budget, depth), given in self.results.budgets.items()
            if (attention, budget) == (run.name, run.budget) and depth in depths and given is None
        ]


class _Probe:
    """Some steps of some samples, whose reading tells what a method reads. Made while dense attention attends."""

    def __init__(self, reader: Reader, text: Text, dense: list[Outcome]) -> None:
        self.reader = reader
        chosen = range(0, len(text.samples), -(-len(text.samples) // (1 if text.continues else _PROBED)))
        n_steps = _PROBED * _PROBE_STEPS // len(chosen)
        self.tokens = [(text.samples[i].prompt + dense[i].tokens)[:n_steps] for i in chosen]
        reader.back()
        self.dense = self._read()

    def share(self) -> float:
        """What is read of what dense attention reads."""
        return self._read() / self.dense

    def _read(self) -> int:
        return sum(self.reader.bytes_of(tokens) for tokens in self.tokens)


def _named(run: Run) -> str:
    return run.attention if run.budget == 1 else f"{run.attention}, budget {run.budget:g},"


def _unique(texts: list[tuple[int, int, Text]]) -> list[int]:
    return list(dict.fromkeys(depth for depth, _, _ in texts))
