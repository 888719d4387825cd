"""Write measurements as a plan file. `runtime/store/plan.py` reads it, and docs/plans.md describes it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ...errors import OctavoError
from ...runtime.methods import AUTO
from ...runtime.store.model_library import Library
from ...runtime.store.plan import ATTENTION, PLAN_VERSION, RETRIEVAL_HEADS, read_plan
from ...system.files import write_bytes
from ...version import __version__
from .heads import Elimination

#: Settings of a profile that only its heads depend on.
OF_HEADS = ("texts", "rounds", "sinks", "recent", "heads")


@dataclass(frozen=True)
class Measurements:
    """The measurements of a model.

    Parameters
    ----------
    settings : dict
        Settings of the profile and the texts; a plan with equal settings is not measured again.
    slides : sequence of bool
        Whether the window of each cached layer slides.
    similarity : sequence of float, optional
        Similarity of the residual stream before and after the attention of each cached layer.
    groups : sequence of int or None
        Group of each cached layer (see `importance_groups`).
    budgets : dict
        The layers' sensitivity and budgets (see `allocation.layer_budgets`).
    eliminated : sequence of Elimination
        All heads that see everything, in the order of their elimination; none if heads were not measured.
    task : str
        Task that the heads were measured on: PASSKEYS or REPETITION.
    accuracy : float
        Share of the recalled tokens that the model predicts with full attention.
    passkey_accuracy : float
        The same for the first text with passkeys.
    passkey_words : int
        Words of a passkey; 0 for REPETITION.
    """

    settings: dict[str, Any]
    n_sinks: int
    n_recent: int
    slides: Sequence[bool]
    similarity: Sequence[float] | None
    groups: Sequence[int | None]
    budgets: dict[str, Any]
    eliminated: Sequence[Elimination]
    task: str
    accuracy: float
    passkey_accuracy: float
    passkey_words: int


def plan_content(library: Library, measured: Measurements, kept: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a plan file. `kept` are entries of the plan before, as `kept_heads` returns them."""
    importance = {"slides": measured.slides, "similarity": measured.similarity, "group": measured.groups}
    return {
        "format_version": PLAN_VERSION,
        "octavo": __version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "model": {"name": library.model_path.name, "sha256": library.model_hash},
        "attention": ATTENTION if measured.eliminated else AUTO,
        "retrieval_heads": RETRIEVAL_HEADS,
        "layers": importance | measured.budgets,
        "heads": {
            "n_sinks": measured.n_sinks,
            "n_recent": measured.n_recent,
            "elimination": [list(step.head) for step in measured.eliminated],
            "round": [step.round for step in measured.eliminated],
            "loss": [float(f"{step.loss:.6g}") for step in measured.eliminated],
        },
        "measured_with": measured.settings,
        "task": measured.task,
        "accuracy": round(measured.accuracy, 4),
        "passkey_accuracy": round(measured.passkey_accuracy, 4),
        "passkey_words": measured.passkey_words,
        **kept,
    }


def finished_plan(library: Library, settings: dict[str, Any]) -> dict[str, Any] | None:
    """Return the existing plan if this model was measured with these settings. It may have the heads, too."""
    plan = _existing(library)
    if plan is None:
        return None
    of_layers = {name: value for name, value in settings.items() if name not in OF_HEADS}
    same = of_layers.items() <= plan["measured_with"].items()
    return plan if same and (not settings["heads"] or _heads_measured_with(plan) == settings) else None


def kept_heads(library: Library, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the entries of the existing plan that belong to its heads, which take hours.

    A new plan has them too. Heads that are to be measured with other settings are not kept: then there are no entries.
    """
    plan = _existing(library)
    if plan is None or not plan["heads"]["elimination"]:
        return {}
    measured_with = _heads_measured_with(plan)
    if settings["heads"] and measured_with != settings:
        return {}
    heads = {**plan["heads"], "measured_with": measured_with}
    return {"attention": plan["attention"], "retrieval_heads": plan["retrieval_heads"], "heads": heads}


def _heads_measured_with(plan: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a plan's heads. A profile that kept the heads of an earlier one recorded them apart."""
    measured_with: dict[str, Any] = plan["heads"].get("measured_with", plan["measured_with"])
    return {"heads": True} | measured_with  # an older octavo always measured them


def _existing(library: Library) -> dict[str, Any] | None:
    """Read the plan of this model; None if there is none that the runtime reads."""
    try:
        measured = read_plan(library.plan_path).model
        plan: dict[str, Any] = json.loads(library.plan_path.read_text("utf-8"))
    except (OctavoError, OSError, ValueError):
        return None
    return plan if measured == library.model_hash and isinstance(plan.get("measured_with"), dict) else None


def write_plan(library: Library, plan: dict[str, Any]) -> None:
    """Write a plan file that people can read and edit: each list of numbers is on one line."""
    text = json.dumps(plan, indent=1)
    text = re.sub(r"\[[^\[\]{}]*\]", lambda match: " ".join(match[0].split()), text)
    write_bytes(library.plan_path, (text + "\n").encode())
