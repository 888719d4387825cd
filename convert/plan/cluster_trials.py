"""Try heads, layers and budgets on a Dask cluster. Each trial is a task; all checks of one method are one task.

The client makes the texts and sends them. It keeps the figures that workers return, as if it had measured them itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from ...progress import Silent
from ...runtime.llama import Llama
from ...runtime.store.model_library import Library
from ...settings import ModelSettings
from ...workers.cluster import Workers, order_for, result_of, workers_of
from ...workers.model_work import ModelWork
from ...workers.work import Message, Sender
from .allocation import Checker, Kept, layer_change, plan_of_heads
from .full_reading import read_text
from .heads import Head, streaming_loss
from .recall_texts import RecallText


@contextmanager
def trial_workers(
    scheduler: str,
    llama: Llama,
    library: Library,
    settings: ModelSettings,
    notice: Callable[[str], None],
) -> Iterator[TrialWorkers]:
    """Connect to a cluster whose workers run a profile's trials.

    Parameters
    ----------
    scheduler : str
        Address of the scheduler, such as "tcp://10.0.0.5:8786".
    settings : ModelSettings
        The model as the user named it, since workers may have it at another path; the device; and the threads of a
        trial. By default the trials on a machine share its cores.

    Raises
    ------
    OctavoError
        dask.distributed is missing, the cluster cannot be reached, has no workers, or one that lacks the model.
    """
    load = replace(settings, n_ctx=llama.n_ctx(), cache_type=llama.context.kv_type).as_json()
    order = order_for(MeasureTrials, {"load": load}, library, llama.model_path, settings.model, settings.n_threads)
    with workers_of(scheduler, order) as workers:
        notice(workers.at_once("measure", "trials"))
        yield TrialWorkers(workers)


class TrialWorkers:
    """The workers of a cluster, which run trials."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers

    def measure_losses(
        self, text: RecallText, trials: Mapping[str, Sequence[Head]], n_sinks: int, n_recent: int, kept: Kept
    ) -> None:
        """Measure the loss with each set of streaming heads that was not measured yet.

        Parameters
        ----------
        trials : mapping
            The streaming heads of each name.

        Raises
        ------
        OctavoError
            A trial failed, a worker cannot use the model, or the scheduler is gone.
        """
        shared = {"text": text_as_json(text), "n_sinks": n_sinks, "n_recent": n_recent}
        self._fill(kept, shared, "heads", trials)

    def measure_layers(self, text: RecallText, layers: Mapping[str, int], kept: Kept) -> None:
        """Measure the changes by single layers that were not measured yet (see `measure_losses`).

        Parameters
        ----------
        layers : mapping
            The number of the layer of each name.
        """
        self._fill(kept, {"text": text_as_json(text)}, "layer", layers)

    def _fill(self, kept: Kept, shared: Message, field: str, trials: Mapping[str, Any]) -> None:
        """Run the trials without a result; `field` distinguishes them."""
        measured = kept.values
        tasks = {name: {**shared, "name": name, field: trial} for name, trial in trials.items() if name not in measured}
        for _ in self._done(tasks, kept):
            pass

    def check(self, checker: Checker, methods: Sequence[str]) -> Iterator[str]:
        """Measure all that a checker needs (see `measure_losses`).

        Yields
        ------
        str
            A method, as soon as the checker has its figures.
        """
        plan = checker.plan
        shared = {
            "texts": [text_as_json(text) for text in checker.texts],
            "sensitivity": list(checker.sensitivity),
            "heads": plan.elimination,
            "n_sinks": plan.n_sinks,
            "n_recent": plan.n_recent,
            "known": dict(checker.kept.values),
        }
        yield from self._done({method: {**shared, "method": method} for method in methods}, checker.kept)

    def _done(self, tasks: Mapping[str, Message], kept: Kept) -> Iterator[str]:
        """Run tasks, keep their figures, and yield their names."""
        for name, outcome in self._workers.results(deque(tasks), tasks.__getitem__, _ignore):
            for measured, value in result_of(outcome, f"What the plan needs ({name})")["values"].items():
                kept.put(measured, value)
            yield name


def _ignore(name: str, message: Message) -> None:
    """Ignore the messages of a trial."""


class MeasureTrials(ModelWork):
    """Run trials, in a process beside a worker."""

    def __init__(self, settings: dict[str, Any], sender: Sender) -> None:
        super().__init__(settings, sender)
        self._read: tuple[dict[str, Any], np.ndarray] | None = None  # the text in the cache, and its hidden states
        self._checker: Checker | None = None

    def do(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return a trial's figures by name, as `values` (see `Work.do`)."""
        if "method" in message:
            return {"values": self._checked(message)}
        value = self._layer_change(message) if "layer" in message else self._loss(message)
        return {"values": {message["name"]: value}}

    def _loss(self, message: dict[str, Any]) -> float:
        """Measure the loss with some heads streaming."""
        self._read, text = None, text_of(message["text"])
        heads = [(layer, head) for layer, head in message["heads"]]
        return streaming_loss(self.llama, text, heads, message["n_sinks"], message["n_recent"])

    def _layer_change(self, message: dict[str, Any]) -> float:
        """Measure the change by a layer. Read the text unless the cache holds it."""
        text = text_of(message["text"])
        if self._read is None or self._read[0] != message["text"]:
            self._read = message["text"], read_text(self.llama, text, "Reading a text", Silent())["hidden"]
        return layer_change(self.llama, text, self._read[1], message["layer"])

    def _checked(self, message: dict[str, Any]) -> dict[str, Any]:
        """Check a method's budgets; return the new figures."""
        self._read, measured = None, message["known"]
        if self._checker is None:
            heads = [(layer, head) for layer, head in message["heads"]]
            n_layers = len(self.llama.context.cache.layers)
            plan = plan_of_heads(heads, message["n_sinks"], message["n_recent"], n_layers)
            texts = [text_of(fields) for fields in message["texts"]]
            self._checker = Checker(self.llama, texts, message["sensitivity"], plan, Kept(None, Silent()))
        kept = self._checker.kept
        kept.values.update(measured)
        self._checker.best(message["method"])
        return {name: value for name, value in kept.values.items() if name not in measured}


def text_as_json(text: RecallText) -> dict[str, Any]:
    """Return a text in JSON's types."""
    return {**asdict(text), "recalled": text.recalled.tolist(), "sources": text.sources.tolist()}


def text_of(fields: Mapping[str, Any]) -> RecallText:
    """Return the text of `text_as_json`'s fields."""
    places = {name: np.array(fields[name], np.int64) for name in ("recalled", "sources")}
    return RecallText(**{**fields, **places})
