"""Measure which layers and heads of a model matter, and write its plan.

Measurements are written as they are completed, so that an interrupted profile resumes: the model's reading of each text
(`TASK-NNN.safetensors`: keys, values and hidden states with full attention), the loss as each head streams
(`losses.json`), the change by each layer (`layers.json`), and checks of the layers' budgets (`checks.json`). The
folder's name identifies model and settings. The finished plan replaces the folder.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import OctavoError
from ...progress import Progress, Silent
from ...runtime.document.kept_state import BLOB, kept_state
from ...runtime.llama import Llama
from ...runtime.methods.attention import DENSE_ATTENTION
from ...runtime.methods.layer_budgets import importance_groups
from ...runtime.store.model_library import Library
from ...runtime.store.plan import N_RECENT, N_SINKS, PLAN_VERSION, PROFILE_MARK
from ...system.files import PARTIAL, DamagedError, disk_errors, map_arrays, sha256_of, write_arrays
from ...system.locks import locked_new
from .allocation import (
    Check,
    Checker,
    Kept,
    layer_budgets,
    layer_change,
    methods_with_layer_budgets,
    plan_of_heads,
    prose_text,
)
from .full_reading import Reading, read_text
from .heads import Elimination, Head, eliminate, full_heads, round_sizes, streaming_loss
from .plan_file import Measurements, finished_plan, kept_heads, plan_content, write_plan
from .recall_texts import PASSKEYS, REPETITION, SHIPPED_NOVEL, Haystack, RecallText, recall_text

if TYPE_CHECKING:
    from .cluster_trials import TrialWorkers

#: A model that recalls a smaller share of the passkeys' tokens is measured on repeated text instead.
LEAST_ACCURACY = 0.5

#: In use, streaming heads see this many times the recent tokens of the profile, because texts are longer.
RECENT = 2

#: The name of the text of continuous prose, beside PASSKEYS and REPETITION.
PROSE = "prose"


@dataclass(frozen=True)
class ProfileSettings:
    """Settings of the measurements.

    Parameters
    ----------
    tokens : int
        Tokens of a text.
    rounds : int
        Rounds of elimination, each on the next of the texts. More rounds take longer and are more exact.
    sinks, recent : int
        First and newest rows that a streaming head sees.
    heads : bool
        Whether heads are measured, too, which takes hundreds of readings; else the layers alone, on the first text.
    """

    texts: int = 2
    tokens: int = 4096
    rounds: int = 20
    sinks: int = N_SINKS
    recent: int = N_RECENT // RECENT
    seed: int = 0
    heads: bool = False

    @property
    def recent_in_use(self) -> int:
        """Return the number of newest rows that a streaming head sees in use."""
        return RECENT * self.recent

    def fitted(self, n_ctx: int) -> ProfileSettings:
        """Shorten the texts to a model's context.

        Raises
        ------
        OctavoError
            A streaming head would see more than half of a text, and so miss too little of it.
        """
        fitted = replace(self, tokens=min(self.tokens, n_ctx))
        least = 2 * (self.sinks + self.recent)
        if self.heads and fitted.tokens < least:
            raise OctavoError(
                f"Heads that see {self.sinks} sinks and {self.recent} recent rows miss too little of a text of "
                f"{fitted.tokens:,} tokens: give {least:,} or more (--tokens), or fewer rows (--sinks, --recent)."
            )
        return fitted


class Profiler:
    """Measure one model, resuming an earlier profile.

    Parameters
    ----------
    llama : Llama
        The model, with dense attention and float16 keys and values.
    settings : ProfileSettings
        Its texts are shortened to the model's context.

    Raises
    ------
    OctavoError
        The texts are too short for the settings.
    """

    def __init__(
        self,
        llama: Llama,
        library: Library,
        settings: ProfileSettings,
        progress: Progress,
        notice: Callable[[str], None],
    ) -> None:
        self.llama, self.library, self.progress, self.notice = llama, library, progress, notice
        self.settings = settings.fitted(llama.n_ctx())
        if self.settings.tokens < settings.tokens:
            notice(
                f"The model's context holds {self.settings.tokens:,} tokens: its texts have so many, "
                f"and not {settings.tokens:,}."
            )
        self.novel = Haystack(llama, SHIPPED_NOVEL.read_text("utf-8"))
        self._seconds = 0.0  # that the last text took to read

    @cached_property
    def measured_with(self) -> dict[str, Any]:
        """Settings and texts, as recorded in the plan."""
        path = SHIPPED_NOVEL
        return {**asdict(self.settings), "novel": {"name": path.name, "sha256": sha256_of(path)}}

    @cached_property
    def folder(self) -> Path:
        """Folder of the measurements until the plan is finished."""
        identity = json.dumps([self.library.model_hash, PLAN_VERSION, self.measured_with], sort_keys=True)
        return self.library.folder / f"plan-{hashlib.sha256(identity.encode()).hexdigest()[:12]}{PARTIAL}"

    def measure(self, workers: TrialWorkers | None = None) -> dict[str, Any]:
        """Measure what is missing, and write the plan.

        Parameters
        ----------
        workers : TrialWorkers, optional
            Try heads, layers and budgets instead of this process, which always reads the texts.

        Raises
        ------
        OctavoError
            A file cannot be written, or the texts do not fit in memory.
        """
        self.library.make_folder()
        with disk_errors(self.folder), ExitStack() as lock:
            lock.enter_context(locked_new(self.folder, self._wait))
            plan = finished_plan(self.library, self.measured_with)  # another process may have measured it meanwhile
            if plan is None:
                (self.folder / PROFILE_MARK).touch()
                plan = self._measure(workers)
            shutil.rmtree(self.folder)
        return plan

    def _wait(self) -> None:
        self.notice("Another octavo measures this model: waiting for it.")

    def _measure(self, workers: TrialWorkers | None) -> dict[str, Any]:
        """Complete the measurements, and write the plan, while the lock is held."""
        self.llama.context.cache.check_memory(self.settings.tokens)
        task, readings, passkey_accuracy = self._read()
        kept = kept_heads(self.library, self.measured_with)
        eliminated = self._eliminate(readings, workers) if self.settings.heads and not kept else []
        sensitivity = self._weigh_layers(readings, workers)
        checks = self._check_budgets(task, sensitivity, eliminated, workers)
        measured = self._measurements(task, readings, passkey_accuracy, eliminated, sensitivity, checks)
        if not self.settings.heads:
            kept = kept_heads(self.library, self.measured_with)  # another process may have measured them meanwhile
        if kept:
            self.notice("The plan keeps the heads that were measured before.")
        plan = plan_content(self.library, measured, kept)
        write_plan(self.library, plan)
        return plan

    def _read(self) -> tuple[str, list[Reading], float]:
        """Read the texts: with passkeys, if the model recalls those of the first text. Also return its accuracy."""
        first = self._reading(PASSKEYS, 0)
        accuracy = float(first.right.mean())
        task = PASSKEYS if accuracy >= LEAST_ACCURACY else REPETITION
        if task == REPETITION:
            self.notice(
                f"The model recalls {accuracy:.0%} of the passkeys' tokens: it is measured on repeated text instead."
            )
        readings = [first] if task == PASSKEYS else []
        n_texts = self.settings.texts if self.settings.heads else 1
        readings += [self._reading(task, i) for i in range(len(readings), n_texts)]
        return task, readings, accuracy

    def _reading(self, task: str, number: int, text: RecallText | None = None) -> Reading:
        """Read one text, or open an earlier profile's reading."""
        text = text or recall_text(task, self.novel, self.settings.tokens, self.settings.seed + number)
        path = self.folder / f"{task}-{number:03d}.safetensors"
        try:
            arrays = map_arrays(path, checked=True)
        except DamagedError:  # or the file does not exist yet
            began = time.monotonic()
            write_arrays(path, read_text(self.llama, text, f"Reading text {number + 1} ({task})", self.progress))
            self._seconds = time.monotonic() - began
            arrays = map_arrays(path)
        rows = [(arrays[f"keys.{i}"], arrays[f"values.{i}"]) for i in range(len(self.llama.context.cache.layers))]
        own = {name.removeprefix(f"{BLOB}."): array for name, array in arrays.items() if name.startswith(BLOB)}
        states = [kept_state(text.n_read, own)] if own else []
        return Reading(text, rows, states, arrays["hidden"], arrays["right"], arrays["similarity"])

    def _eliminate(self, readings: list[Reading], workers: TrialWorkers | None) -> list[Elimination]:
        """Eliminate heads by the loss of recall as they stream; each round takes another text."""
        heads = full_heads(self.llama.context.cache)
        kept = Kept(self.folder / "losses.json", self.progress)
        n_trials = sum(round_sizes(len(heads), self.settings.rounds))
        minutes = n_trials * self._seconds / 60
        if minutes >= 1 and not workers:
            about = f"{minutes:.0f} minutes" if minutes < 90 else f"{minutes / 60:.0f} hours"
            self.notice(f"To measure the heads takes {n_trials:,} readings of a text, about {about}.")
        self.progress.start("Letting heads stream", n_trials, "trials", len(kept.values))
        n_sinks, n_recent = self.settings.sinks, self.settings.recent

        def measure(number: int, eliminated: list[Head], candidates: list[Head]) -> list[float]:
            text = readings[number % len(readings)].text
            trials = {f"round {number}, layer {head[0]}, head {head[1]}": [*eliminated, head] for head in candidates}
            if workers:
                workers.measure_losses(text, trials, n_sinks, n_recent, kept)
            return [
                kept.get(name, partial(streaming_loss, self.llama, text, streaming, n_sinks, n_recent))
                for name, streaming in trials.items()
            ]

        return eliminate(heads, self.settings.rounds, measure)

    def _weigh_layers(self, readings: list[Reading], workers: TrialWorkers | None) -> list[float | None]:
        """Measure each layer's share of the sum of all layers' changes, on repeated text and on prose."""
        layers = self.llama.context.cache.layers
        numbers = [i for i, layer in enumerate(layers) if not layer.window]
        prose = prose_text(self.novel, self.settings.tokens, self.settings.seed)
        texts = {"repeated": readings[0], PROSE: self._reading(PROSE, 0, prose)}
        kept = Kept(self.folder / "layers.json", self.progress)
        names = {task: [f"{task}, layer {i}" for i in numbers] for task in texts}
        n_known = sum(kept.count(of_task) for of_task in names.values())
        self.progress.start("Weighing layers", 2 * len(numbers), "trials", n_known)
        shares = np.zeros(len(numbers))
        for task, reading in texts.items():
            if workers:
                workers.measure_layers(reading.text, dict(zip(names[task], numbers, strict=True)), kept)
            if kept.count(names[task]) < len(numbers):
                self._load(reading)
            changes = [
                kept.get(name, partial(layer_change, self.llama, reading.text, reading.hidden, i))
                for name, i in zip(names[task], numbers, strict=True)
            ]
            shares += np.array(changes) / max(sum(changes), 1e-30) / len(texts)
        by_layer = dict(zip(numbers, shares.tolist(), strict=True))
        return [by_layer.get(i) for i in range(len(layers))]

    def _check_budgets(
        self,
        task: str,
        sensitivity: list[float | None],
        eliminated: list[Elimination],
        workers: TrialWorkers | None,
    ) -> dict[str, list[Check]]:
        """Check for each method, on other texts, whether budgets by sensitivity beat equal ones."""
        layers, seed, n_tokens = self.llama.context.cache.layers, self.settings.seed, self.settings.tokens
        other = seed + self.settings.texts
        texts = [recall_text(task, self.novel, n_tokens, other), prose_text(self.novel, n_tokens, other)]
        heads = tuple(elimination.head for elimination in eliminated)
        plan = plan_of_heads(heads, self.settings.sinks, self.settings.recent, len(layers))
        kept, methods = Kept(self.folder / "checks.json", Silent()), methods_with_layer_budgets()
        self.progress.start("Checking budgets", len(methods), "methods")
        checker = Checker(self.llama, texts, sensitivity, plan, kept)
        checks = {}
        for method in workers.check(checker, methods) if workers else methods:
            checks[method] = checker.best(method)
            self.progress.advance(1)
        self.llama.reset()
        self.llama.set_attention(DENSE_ATTENTION)
        return {method: checks[method] for method in methods}

    def _load(self, reading: Reading) -> None:
        """Fill the cache with the first part of a text."""
        self.llama.reset()
        self.llama.extend(reading.text.tokens[: reading.text.n_read], reading.rows, reading.states)

    def _measurements(
        self,
        task: str,
        readings: list[Reading],
        passkey_accuracy: float,
        eliminated: list[Elimination],
        sensitivity: list[float | None],
        checks: dict[str, list[Check]],
    ) -> Measurements:
        """Average over the texts, and group the layers."""
        by_node = np.mean([reading.similarity for reading in readings], axis=0).round(6).tolist()
        nodes = self.llama.context.nodes
        similarity = [by_node[i] for i, node in enumerate(nodes) if node.appends] if by_node else None
        if similarity is None:
            self.notice(
                "How important layers are cannot be told: llama.cpp's graph of this model does not name what goes into "
                "their attention and what comes out. With plan:by=importance all get the same budget."
            )
        slides = [bool(layer.window) for layer in self.llama.context.cache.layers]
        return Measurements(
            settings=self.measured_with,
            n_sinks=self.settings.sinks,
            n_recent=self.settings.recent_in_use,
            slides=slides,
            similarity=similarity,
            groups=importance_groups(similarity, slides) if similarity else [None] * len(slides),
            budgets=layer_budgets(checks, sensitivity),
            eliminated=eliminated,
            task=task,
            accuracy=float(np.mean([reading.right.mean() for reading in readings])),
            passkey_accuracy=passkey_accuracy,
            passkey_words=readings[0].text.n_words,
        )


def profile(
    llama: Llama,
    library: Library,
    settings: ProfileSettings,
    progress: Progress,
    notice: Callable[[str], None],
    workers: AbstractContextManager[TrialWorkers] | None = None,
) -> dict[str, Any]:
    """Return a model's plan: the existing one if it was measured with these settings, or a new one.

    Parameters
    ----------
    llama : Llama
        The model, with dense attention and float16 keys and values.
    workers : context manager, optional
        Connects to the workers of a cluster (`trial_workers`), if a new plan is measured on them.

    Raises
    ------
    OctavoError
        The texts are too short for the settings, a file cannot be written, the texts do not fit in memory, or the
        cluster cannot be used.
    """
    profiler = Profiler(llama, library, settings, progress, notice)
    plan = finished_plan(library, profiler.measured_with)
    if plan is None:
        with workers or nullcontext() as connected:
            return profiler.measure(connected)
    notice(f"The model was measured with these settings on {plan['created'][:10]}: nothing is measured again.")
    return plan
