"""Measure a model once, and write its plan: which layers and heads matter.

What is measured is kept in a folder as it is completed, so that an interrupted profile goes on where it stopped: each
text as the model reads it (`TASK-NNN.safetensors`: keys, values and what full attention makes of it), and what each
head changes (`losses.json`). The folder's name tells apart models and settings; the finished plan takes its place.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ... import __version__
from ...errors import OctavoError
from ...runtime.llama import Llama
from ...runtime.store.files import disk_errors, map_arrays, sha256_of, write_arrays, write_bytes, write_json
from ...runtime.store.library import Library
from ...runtime.store.plan import FORMAT_VERSION
from ..progress import Progress
from ..texts import SHIPPED_NOVEL
from .heads import HIDDEN, LOGITS, Fall, Head, change, eliminate, evaluate, full_heads, recall, round_sizes, streaming
from .layers import ResidualChange, budget_scales, importance_groups
from .recall_texts import PASSKEYS, REPETITION, Haystack, RecallText, recall_text

#: What a plan says where nothing else is asked for: what its model is run with.
ATTENTION, RETRIEVAL_HEADS = "duo+squeezed", 0.5

#: A model that recalls less than this share of the passkeys' tokens is measured on repeated text.
LEAST_ACCURACY = 0.5


@dataclass(frozen=True)
class ProfileSettings:
    """What the measurements depend on.

    texts, tokens : how many texts of how many tokens    rounds : in which heads fall; more take longer
    sinks, recent : rows that a head sees that streams    seed : of texts and K-means
    """

    texts: int = 2
    tokens: int = 4096
    rounds: int = 6
    sinks: int = 128
    recent: int = 256
    seed: int = 0

    def fitted(self, n_ctx: int) -> ProfileSettings:
        """The same for a context of n_ctx tokens. Raises OctavoError where heads that stream would miss too little."""
        fitted = ProfileSettings(**(asdict(self) | {"tokens": min(self.tokens, n_ctx)}))
        least = 2 * (self.sinks + self.recent)
        if fitted.tokens < least:
            raise OctavoError(
                f"Heads that see {self.sinks} sinks and {self.recent} recent rows miss too little of a text of "
                f"{fitted.tokens:,} tokens: give {least:,} or more (--tokens), or fewer rows (--sinks, --recent)."
            )
        return fitted


@dataclass(frozen=True)
class Reading:
    """A text as the model reads it with full attention.

    rows : keys and values of each layer    hidden : states that the recalled tokens are predicted from
    right : for each recalled token, whether the model predicts it    similarity : of each layer, or empty
    """

    text: RecallText
    rows: list[tuple[np.ndarray, np.ndarray]]
    hidden: np.ndarray
    right: np.ndarray
    similarity: np.ndarray


class Profiler:
    """Measures one model, from wherever an earlier profile stopped.

    llama : with dense attention, f16 keys and values    notice : takes sentences for the user
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

    @cached_property
    def measured_with(self) -> dict[str, Any]:
        """Settings and data, as the plan names them."""
        path = SHIPPED_NOVEL
        return {**asdict(self.settings), "novel": {"name": path.name, "sha256": sha256_of(path)}}

    @cached_property
    def folder(self) -> Path:
        """Where what is measured is kept."""
        identity = json.dumps([self.library.model_hash, FORMAT_VERSION, self.measured_with], sort_keys=True)
        return self.library.folder / f"plan-{hashlib.sha256(identity.encode()).hexdigest()[:12]}.partial"

    def finished(self) -> dict[str, Any] | None:
        """The plan that is there already, where it is of this model and these settings."""
        try:
            plan: dict[str, Any] = json.loads(self.library.plan_path.read_text("utf-8"))
            same = plan["model"]["sha256"] == self.library.model_hash and plan["format_version"] == FORMAT_VERSION
            return plan if same and plan["measured_with"] == self.measured_with else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def measure(self, squeeze: float) -> dict[str, Any]:
        """Do all that is not done yet, and write the plan."""
        self.library.make_folder()
        with disk_errors(self.folder):
            self.folder.mkdir(exist_ok=True)
        self.llama.context.cache.check_memory(self.settings.tokens)
        task, readings, passkey_accuracy = self._read()
        falls = self._eliminate(readings)
        plan = self._plan(task, readings, passkey_accuracy, falls, squeeze)
        write_plan(self.library, plan)
        with disk_errors(self.folder):
            for folder in self.library.folder.glob("plan-*.partial"):
                shutil.rmtree(folder)
        return plan

    def _read(self) -> tuple[str, list[Reading], float]:
        """The texts, of passkeys if the model recalls those of the first one; and how well it does."""
        first = self._reading(PASSKEYS, 0)
        accuracy = float(first.right.mean())
        task = PASSKEYS if accuracy >= LEAST_ACCURACY else REPETITION
        if task == REPETITION:
            self.notice(
                f"The model recalls {accuracy:.0%} of the passkeys' tokens: heads are measured on repeated text."
            )
        readings = [first] if task == PASSKEYS else []
        readings += [self._reading(task, i) for i in range(len(readings), self.settings.texts)]
        return task, readings, accuracy

    def _reading(self, task: str, number: int) -> Reading:
        """One text, read now or before."""
        seed = self.settings.seed + number
        text = recall_text(task, self.novel, self.settings.tokens, seed)
        path = self.folder / f"{task}-{number:03d}.safetensors"
        if not path.exists():
            write_arrays(path, self._read_text(text, f"Reading text {number + 1} ({task})"))
        arrays = map_arrays(path)
        rows = [(arrays[f"keys.{i}"], arrays[f"values.{i}"]) for i in range(len(self.llama.context.cache.layers))]
        return Reading(text, rows, arrays["hidden"], arrays["right"], arrays["similarity"])

    def _read_text(self, text: RecallText, task: str) -> dict[str, np.ndarray]:
        llama, change_of = self.llama, ResidualChange(len(self.llama.context.nodes))
        llama.reset()
        self.progress.start(task, text.n_read, "tokens")

        def take(name: str, values: np.ndarray) -> bool:
            if change_of.wants(name):
                change_of.take(name, values)
            return name != HIDDEN

        evaluate(
            llama,
            text.tokens[: text.n_read],
            np.ones(text.n_read, bool),
            lambda name: name == HIDDEN or change_of.wants(name),
            take,
            self.progress.advance,
        )
        recalled = recall(llama, text, logits=True)
        right = recalled[LOGITS].argmax(axis=1) == np.array(text.tokens)[text.recalled]
        cache = llama.context.cache
        rows = {
            f"{kind}.{i}": array
            for i in range(len(cache.layers))
            for kind, array in zip(("keys", "values"), cache.rows(i), strict=True)
        }
        measured = {"hidden": recalled[HIDDEN], "right": right.astype(np.uint8), "similarity": change_of.means}
        return {**rows, **measured}

    def _eliminate(self, readings: list[Reading]) -> list[Fall]:
        """Let heads fall, by the mean of what they change in the texts."""
        heads = full_heads(self.llama.context.cache)
        path = self.folder / "losses.json"
        losses: dict[str, float] = json.loads(path.read_text("utf-8")) if path.exists() else {}
        n_trials = sum(round_sizes(len(heads), self.settings.rounds)) * len(readings)
        self.progress.start("Letting heads stream", n_trials, "trials", len(losses))

        def measure(number: int, fallen: list[Head], candidates: list[Head]) -> list[float]:
            means = np.zeros(len(candidates))
            for i, reading in enumerate(readings):
                names = [f"round {number}, text {i}, layer {layer}, head {head}" for layer, head in candidates]
                missing = [j for j, name in enumerate(names) if name not in losses]
                if missing:
                    self._load(reading)
                for j in missing:
                    losses[names[j]] = self._loss(reading, [*fallen, candidates[j]])
                    write_json(path, losses)
                    self.progress.advance(1)
                means += [losses[name] for name in names]
            return [float(mean) for mean in means / len(readings)]

        return eliminate(heads, self.settings.rounds, measure)

    def _load(self, reading: Reading) -> None:
        """Have the model's cache hold what was read of a text."""
        self.llama.reset()
        self.llama.extend(reading.text.tokens[: reading.text.n_read], reading.rows)

    def _loss(self, reading: Reading, heads: list[Head]) -> float:
        """What it changes in the text that is loaded when some heads stream."""
        with streaming(self.llama.context.cache, heads, self.settings.sinks, self.settings.recent):
            return change(recall(self.llama, reading.text)[HIDDEN], reading.hidden)

    def _plan(
        self, task: str, readings: list[Reading], passkey_accuracy: float, falls: list[Fall], squeeze: float
    ) -> dict[str, Any]:
        by_node = np.mean([reading.similarity for reading in readings], axis=0).round(6).tolist()
        nodes = self.llama.context.nodes
        similarity = [by_node[i] for i, node in enumerate(nodes) if node.appends] if by_node else None
        if similarity is None:
            self.notice(
                "How important layers are cannot be told: llama.cpp's graph of this model does not name what goes into "
                "their attention and what comes out. All get the same budget."
            )
        slides = [bool(layer.window) for layer in self.llama.context.cache.layers]
        groups = importance_groups(similarity, slides, self.settings.seed) if similarity else [None] * len(slides)
        return {
            "format_version": FORMAT_VERSION,
            "octavo": __version__,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "model": {"name": self.library.model_path.name, "sha256": self.library.model_hash},
            "attention": ATTENTION,
            "retrieval_heads": RETRIEVAL_HEADS,
            "layers": squeezed({"slides": slides, "similarity": similarity, "group": groups}, squeeze),
            "heads": {
                "n_sinks": self.settings.sinks,
                "n_recent": self.settings.recent,
                "elimination": [list(fall.head) for fall in falls],
                "round": [fall.round for fall in falls],
                "loss": [float(f"{fall.loss:.6g}") for fall in falls],
            },
            "measured_with": self.measured_with,
            "task": task,
            "accuracy": round(float(np.mean([reading.right.mean() for reading in readings])), 4),
            "passkey_accuracy": round(passkey_accuracy, 4),
            "passkey_words": readings[0].text.n_words,
        }


def squeezed(layers: dict[str, Any], squeeze: float) -> dict[str, Any]:
    """The plan's layers, with the budgets that they get where the least important ones keep this share of theirs."""
    scales = [round(scale, 6) for scale in budget_scales(layers["group"], squeeze)]
    return {**layers, "squeeze": squeeze, "budget_scale": scales}


def profile(
    llama: Llama,
    library: Library,
    settings: ProfileSettings,
    squeeze: float,
    progress: Progress,
    notice: Callable[[str], None],
) -> dict[str, Any]:
    """A model's plan: the one that is there if it was measured with these settings, or a new one."""
    profiler = Profiler(llama, library, settings, progress, notice)
    plan = profiler.finished()
    if plan is None:
        return profiler.measure(squeeze)
    notice(f"The model was measured with these settings on {plan['created'][:10]}: nothing is measured again.")
    if plan["layers"]["squeeze"] != squeeze:
        plan["layers"] = squeezed(plan["layers"], squeeze)
        write_plan(library, plan)
    return plan


def write_plan(library: Library, plan: dict[str, Any]) -> None:
    """Write a plan for people too: lists of numbers on one line."""
    text = json.dumps(plan, indent=1)
    text = re.sub(r"\[[^\[\]{}]*\]", lambda match: " ".join(match[0].split()), text)
    write_bytes(library.plan_path, (text + "\n").encode())
