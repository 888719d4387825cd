"""The quality of a report: the suite of `octavo eval`, each task at each depth a piece of its own.

They have the texts that octavo ships. RULER has thirteen: eleven are here; `qa` takes the
place of its SQuAD, and HotpotQA's is missing, as octavo has no data for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import OctavoError
from ..progress import Progress
from ..runtime.llama import Llama
from ..runtime.methods.attention import Attention
from ..runtime.methods.parameters import read_settings
from ..runtime.store.model_library import Library
from .evaluate import Evaluation, Settings
from .pace import Pace, longest_within
from .report import Piece
from .tasks import task_class
from .tasks.task import Task

#: Needles, passkeys, RULER in the order of its table 5, articles, and many questions over one document.
TASKS_OF_SUITE = (
    "needle",
    "passkey",
    "niah-single",
    "niah-single:haystack=essay",
    "niah-single:haystack=essay,value=uuid",
    "niah-multikey",
    "niah-multikey:haystack=needles",
    "niah-multikey:haystack=needles,key=uuid,value=uuid",
    "niah-multivalue",
    "niah-multiquery",
    "variable-tracking",
    "common-words",
    "frequent-words",
    "qa",
    "fixed-context",
)

#: Attentions, and the share of bytes that those with a budget read: near `auto`'s at each depth.
ATTENTIONS, _BUDGET, _DEEP_BUDGET, _DEEP = ("dense", "auto", "squeezed", "quest"), 0.25, 0.125, 6000

#: Depths of texts, and samples to choose from.
_DEPTHS, _SAMPLES = (4000, 7500, 15000, 30000), (20, 10, 5)

#: The depth of a task that takes its texts as they are.
OWN_DEPTH = 0

#: Seconds of matching a budget, as a number of steps; and of clustering a text, as a share of its reading.
_MATCHING, _CLUSTERING = 250, 0.3


@dataclass(frozen=True)
class _Sized:
    """The texts of a task at a depth, by the figures that their seconds depend on."""

    n_tokens: tuple[int, ...]
    n_steps: int

    def seconds(self, pace: Pace) -> float:
        depth = max(self.n_tokens)
        reading = (1 + _CLUSTERING) * sum(map(pace.reading, self.n_tokens))
        return reading + pace.steps(len(ATTENTIONS) * self.n_steps + _MATCHING, depth)


def quality_pieces(
    llama: Llama, n_samples: int | None, depths: Sequence[int], progress: Progress, notice: Callable[[str], None]
) -> list[Piece]:
    """Choose depths and samples that take about an hour, unless they are given, and return a piece for each task.

    A task is left out at a depth where it has too few data, or whose texts exceed the context.
    """
    pace = Pace.of(llama, progress)
    sizes: dict[tuple[str, int, int], _Sized | None] = {}

    def size(task: str, depth: int, n: int) -> _Sized | None:
        key = task, depth, n
        if key not in sizes:
            sizes[key] = _sized(llama, suite_task(task), depth, n)
        return sizes[key]

    def pieces(plan: tuple[Sequence[int], int]) -> list[Piece]:
        found = []
        for depth in plan[0]:
            for task in TASKS_OF_SUITE:
                own = suite_task(task).own_depths
                sized = size(task, OWN_DEPTH if own else depth, plan[1]) if not own or depth == plan[0][0] else None
                if sized is not None:
                    piece = {"task": task, "depth": OWN_DEPTH if own else depth, "samples": plan[1]}
                    found.append({**piece, "estimated_s": round(sized.seconds(pace))})
        return found

    def seconds(plan: tuple[Sequence[int], int]) -> float:
        return float(sum(piece["estimated_s"] for piece in pieces(plan)))

    fitting = sorted(set(depths)) if depths else [depth for depth in _DEPTHS if depth < llama.n_ctx()] or [_DEPTHS[0]]

    def plans() -> Iterator[tuple[Sequence[int], int]]:
        for n_depths in range(len(fitting), 0, -1) if not depths else [len(fitting)]:
            for n in [n_samples] if n_samples else _SAMPLES:
                yield fitting[:n_depths], n

    chosen = longest_within(plans(), seconds)
    planned = pieces(chosen)
    if not planned:
        raise OctavoError(
            f"No task fits the context of {llama.n_ctx():,} tokens at a depth of {fitting[0]:,}: give smaller --depths."
        )
    left_out = [f"{task} at {depth:,}" for (task, depth, n), sized in sizes.items() if sized is None and n == chosen[1]]
    if left_out:
        notice(f"Left out, as data are too few or texts exceed the context: {', '.join(left_out)}.")
    return planned


def _sized(llama: Llama, task: Task, depth: int, n_samples: int) -> _Sized | None:
    """Make the texts of a task, and return their sizes; None where it has too few data, or the context is too short."""
    assert task.data is not None
    try:
        texts = task.texts(llama, task.data, depth, n_samples, seed=0)
    except OctavoError:
        return None
    if max(text.n_tokens for text in texts) > llama.n_ctx():
        return None
    n_steps = sum(sample.n_tokens for text in texts for sample in text.samples)
    return _Sized(tuple(len(text.tokens) for text in texts), n_steps)


def suite_task(words: str) -> Task:
    """Return a task of `TASKS_OF_SUITE`."""
    name, _, parameters = words.partition(":")
    task = task_class(name)
    return task(**read_settings(task, parameters) if parameters else {})


def measure_quality(
    llama: Llama, library: Library, piece: Piece, progress: Progress, notice: Callable[[str], None]
) -> dict[str, Any]:
    """Measure a piece; return the content of `octavo eval -o json`. Samples that are kept are not measured again."""
    task, depth = suite_task(piece["task"]), piece["depth"]
    assert task.data is not None
    budgets = [_DEEP_BUDGET if depth >= _DEEP else _BUDGET]
    attentions = [Attention.parse(name) for name in ATTENTIONS]
    settings = Settings(attentions, budgets, [depth], piece["samples"], 0, task.data)
    return Evaluation(llama, library, task, settings, progress, notice).run()
