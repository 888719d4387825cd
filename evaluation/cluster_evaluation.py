"""Evaluate on a Dask cluster: a task measures all missing methods on one text.

The client makes and sends the texts, and keeps the records that workers return. The first text of a depth matches the
budgets, so the other texts wait for it. The results equal those of a run on this machine, except for times.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ..ask.sources.find_sources import TokenText
from ..cpu_kernels.numba_support.machine import cpu_name
from ..runtime.llama import Llama
from ..runtime.query_recorder import QueryHead
from ..runtime.store.model_library import Library
from ..settings import ModelSettings
from ..workers.cluster import Workers, order_for, result_of, workers_of
from ..workers.cluster_worker import Order, threads_of
from ..workers.model_work import ModelWork
from ..workers.work import Message, Sender
from .evaluate import Evaluation
from .measure import Measurer, NumberedText, Run
from .results import Records, key_of
from .samples import Sample, Text
from .tasks import task_class
from .tasks.task import Task


@contextmanager
def text_workers(
    scheduler: str,
    llama: Llama,
    library: Library,
    task: Task,
    settings: ModelSettings,
    plan: Path | None,
) -> Iterator[TextWorkers]:
    """Connect to a cluster whose workers measure texts.

    Parameters
    ----------
    settings : ModelSettings
        The model as the user named it, as workers may have it at another path; and the threads of a text, by default
        such that the texts on a machine share its cores.
    plan : Path, optional
        The plan's file, if methods need it.

    Yields
    ------
    TextWorkers
        Pass it to an `Evaluation`.

    Raises
    ------
    OctavoError
        dask.distributed is missing, the cluster cannot be reached, has no workers, or one that lacks the model.
    """
    work = {"task": {"name": task.name, **vars(task)}, "load": settings.as_json()}
    order = order_for(MeasureTexts, work, library, llama.model_path, settings.model, settings.n_threads, plan)
    with workers_of(scheduler, order) as workers:
        yield TextWorkers(workers)


class TextWorkers:
    """Measure texts on the workers of a cluster. `machine` names their processors, threads of a text, and device."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        machines = workers.ask(_machine).values()
        names = " and ".join(sorted({cpu for cpu, _ in machines}))
        self.machine = {
            "cpu": f"{names} (Dask workers: {len(machines)})",
            "threads": min(threads for _, threads in machines),
            "device": workers.order.settings["load"]["device"],
        }

    def measure(self, evaluation: Evaluation, texts: Sequence[NumberedText], heads: Sequence[QueryHead]) -> None:
        """Measure the missing runs of an evaluation, and add them to its results.

        Raises
        ------
        OctavoError
            A text could not be measured, a worker cannot use the model, or the scheduler is gone. Finished records
            are kept.
        """
        by_depth: dict[int, list[NumberedText]] = {}
        for numbered in texts:
            if evaluation.missing(numbered):
                by_depth.setdefault(numbered.depth, []).append(numbered)
        n_texts = sum(map(len, by_depth.values()))
        if not n_texts:
            return
        evaluation.notice(self._workers.at_once("measure", "texts"))
        evaluation.progress.start("Measuring", n_texts, "texts")

        def message_of(numbered: NumberedText) -> Message | None:
            missing = evaluation.missing(numbered)
            if missing:
                return as_message(numbered, evaluation.runs, missing, heads, evaluation.results)
            evaluation.progress.advance(1)  # the depth's first text found the share out of reach
            return None

        def receive(numbered: NumberedText, message: Message) -> None:
            if "notice" in message:
                evaluation.notice(message["notice"])

        waiting: deque[NumberedText] = deque()
        for depth, later in by_depth.items():
            n_first = len(later) if _are_known(evaluation, depth) else 1
            waiting.extend(later[:n_first])
            del later[:n_first]
        for numbered, outcome in self._workers.results(waiting, message_of, receive):
            measured = f"Text {numbered.number + 1} at {numbered.depth:,} tokens"
            _add(result_of(outcome, measured), evaluation.results)
            evaluation.progress.advance(1)
            waiting.extend(by_depth.pop(numbered.depth, ()))


def _are_known(evaluation: Evaluation, depth: int) -> bool:
    """Return whether all matched budgets of a depth are known."""
    runs, budgets = evaluation.runs, evaluation.results.budgets
    return all(run.budget == 1 or (run.name, run.budget, depth) in budgets for run in runs)


def _machine(order: Order, dask_worker: Any) -> tuple[str, int]:
    """Return the processor of a worker's machine, and the threads of a text there."""
    return cpu_name(), threads_of(order, dask_worker.address)


class MeasureTexts(ModelWork):
    """Measure texts in a process beside a worker. The settings hold the `task` with its parameters."""

    def __init__(self, settings: dict[str, Any], sender: Sender) -> None:
        super().__init__(settings, sender)
        fields = dict(settings["task"])
        self._task = task_class(fields.pop("name"))(**fields)

    def do(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return the records of a text (`as_message`), as `samples` and `budgets` (see `Work.do`)."""
        numbered = NumberedText(message["depth"], message["number"], text_of(message["text"]))
        records, runs = Records(), [self._run(*fields) for fields in message["runs"]]
        for name, budget, given in message["budgets"]:
            records.add_budget(name, budget, numbered.depth, given)
        before, heads = set(records.budgets), [QueryHead(*head) for head in message["heads"]]
        measurer = Measurer(self.llama, self.library, self._task, runs, heads, records, self.sender, self.sender.notice)
        measurer.measure(numbered, [runs[i] for i in message["missing"]])
        budgets = [[*key, given] for key, given in records.budgets.items() if key not in before]
        return {"samples": list(records.samples.values()), "budgets": budgets}

    def _run(self, words: str, budget: float, plan: str) -> Run:
        """Return the run that `as_message` wrote."""
        return Run(self.llama.attention.parsed(words), budget, plan)


def as_message(
    numbered: NumberedText, runs: Sequence[Run], missing: Sequence[Run], heads: Sequence[QueryHead], records: Records
) -> Message:
    """Return the message with which a worker measures a text.

    Parameters
    ----------
    runs, missing : sequences of Run
        All runs, and those to measure.
    """
    budgets = records.budgets.items()
    return {
        "depth": numbered.depth,
        "number": numbered.number,
        "text": text_as_json(numbered.text),
        "runs": [[str(run.attention), run.budget, run.plan] for run in runs],
        "missing": [runs.index(run) for run in missing],
        "heads": [list(head) for head in heads],
        "budgets": [[name, budget, given] for (name, budget, depth), given in budgets if depth == numbered.depth],
    }


def text_as_json(text: Text) -> dict[str, Any]:
    """Return a text with its samples in JSON's types."""
    fields = asdict(text)
    for sample in fields["samples"]:
        if sample["text"] is not None:
            sample["text"]["starts"] = sample["text"]["starts"].tolist()
    return fields


def text_of(fields: Mapping[str, Any]) -> Text:
    """Return the text that `text_as_json` wrote."""
    return Text(**{**fields, "samples": [_sample_of(sample) for sample in fields["samples"]]})


def _sample_of(fields: Mapping[str, Any]) -> Sample:
    converted: dict[str, Any] = {name: tuple(fields[name]) for name in ("answers", "classes")}
    if fields["text"] is not None:
        converted["text"] = TokenText(fields["text"]["text"], np.array(fields["text"]["starts"], np.int64))
    return Sample(**{**fields, **converted})


def _add(measured: Mapping[str, Any], results: Records) -> None:
    """Add a worker's records; an interrupted evaluation may have added some of them already."""
    for attention, budget, depth, matched in measured["budgets"]:
        results.add_budget(attention, budget, depth, matched)
    for record in measured["samples"]:
        if key_of(record) not in results.samples:
            results.add_sample(record)
