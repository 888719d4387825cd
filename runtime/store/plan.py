"""Read a plan: measurements of a model, in a JSON file that `octavo profile` writes.

A plan has each layer's share of a budget: by how much the model's output changes as the layer's budget shrinks, and by
how much the layer changes the residual stream (SqueezeAttention, Wang et al. 2024, algorithm 1). It also has the order
in which KV heads may be made to stream, which determines the retrieval heads (DuoAttention, Xiao et al. 2024, section
2.2).

A file of gates, in the format of DuoAttention (mit-han-lab/duo-attention), is read as a plan with the order of the
heads only:

1. `full_attention_heads.tsv` has a line for each layer, with a number for each KV head, separated by tabs.
2. Each number is the head's gate, from 0 to 1; others are clipped. The heads with the largest gates are retrieval
   heads: those at or above the quantile of all gates at the share of streaming heads.
3. `config.json` beside it has the numbers of sinks and of recent tokens that the other heads saw: `sink_size` and
   `recent_size`. It may have other entries. Without both, it does not concern gates, and octavo uses its defaults.
4. The files do not name the model.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import OctavoError
from ..document.cache_layer import CacheLayer

PLAN_VERSION = 3

#: File of the folder of a profile's measurements, which is marked as such: a document's index may have a name like its.
PROFILE_MARK = "profile"

#: Files of such folders that have no mark: an older octavo began them.
_OF_PROFILES = ("passkeys-000.safetensors", "losses.json")

#: The largest plan file in bytes, the largest whole number in it, and the largest factor of a layer's budget.
_MOST_BYTES, _MOST_NUMBER, _MOST_SCALE = 16 << 20, 1 << 31, 1000

#: Defaults until a user edits the plan: the attention that `--attention plan` runs, and the share of retrieval heads.
ATTENTION, RETRIEVAL_HEADS = "duo+squeezed", 0.5


@dataclass(frozen=True)
class Plan:
    """The content of a plan file that the runtime uses.

    Parameters
    ----------
    model : str or None
        SHA-256 of the model file that was measured; None for gates, whose file does not name it.
    attention : str
        The attention that `--attention plan` runs, for `Attention.parse`.
    retrieval_heads : float
        Share of the KV heads that attend to everything, unless the user gives another.
    n_sinks, n_recent : int
        Sink tokens and recent tokens that streaming heads attend to.
    layer_scale : mapping of str to tuple of float, one for each cached layer
        The best factors found for the layers' budgets, by method; on average 1.
    elimination : tuple of (layer, head)
        All KV heads in layers that do not slide, in the order in which they were made to stream: the retrieval heads
        are the last ones. Gates also have the heads of layers that slide (see `of_layers`). Empty if heads were not
        measured.
    groups : tuple of int or None, one for each cached layer
        Group of the layer by its importance, 0 for the most important one; None for a layer that slides, and for all if
        importance could not be measured.
    """

    model: str | None
    attention: str
    retrieval_heads: float
    n_sinks: int
    n_recent: int
    layer_scale: Mapping[str, tuple[float, ...]]
    elimination: tuple[tuple[int, int], ...]
    groups: tuple[int | None, ...]

    def streaming_heads(self, retrieval_heads: float | None = None) -> list[tuple[int, int]]:
        """Return the (layer, head) of the streaming heads.

        Parameters
        ----------
        retrieval_heads : float, optional
            Share of the KV heads that are retrieval heads. The default is the plan's.

        Raises
        ------
        OctavoError
            Heads were not measured.
        """
        if not self.elimination:
            raise OctavoError("The plan has no order of heads, which duo needs: `octavo profile --heads` measures it.")
        share = self.retrieval_heads if retrieval_heads is None else retrieval_heads
        n_retrieval = int(np.ceil(share * len(self.elimination)))
        return list(self.elimination[: len(self.elimination) - n_retrieval])

    def of_layers(self, layers: Sequence[CacheLayer]) -> Plan:
        """Return the plan without the heads of layers that slide: gates cover all layers."""
        slides = {i for i, layer in enumerate(layers) if layer.window}
        return replace(self, elimination=tuple(head for head in self.elimination if head[0] not in slides))

    def gates(self, layers: Sequence[CacheLayer]) -> Gates:
        """Return the order of the heads as gates, in equal steps from the first head that streams up to 1.

        Heads of layers that slide get 0, because they never see everything. The layers must have passed `check`.

        Raises
        ------
        OctavoError
            The layers have different numbers of KV heads.
        """
        n_heads = {layer.n_kv_head for layer in layers}
        if len(n_heads) > 1:
            raise OctavoError("The layers of this model have different numbers of KV heads: a file of gates has one.")
        values = np.zeros((len(layers), *n_heads))
        for place, head in enumerate(self.elimination, 1):
            values[head] = place / len(self.elimination)
        return Gates(values, self.n_sinks, self.n_recent)

    def check(self, layers: Sequence[CacheLayer]) -> None:
        """Check that a model has the layers and heads of this plan.

        Raises
        ------
        OctavoError
            The model has others.
        """
        heads = {(i, head) for i, layer in enumerate(layers) if not layer.window for head in range(layer.n_kv_head)}
        lengths = {len(self.groups), *map(len, self.layer_scale.values())}
        if lengths == {len(layers)} and set(self.elimination) in (heads, set()):
            return
        if self.model is None:
            of_model = " or ".join(map(str, sorted({layer.n_kv_head for layer in layers})))
            n_heads = 1 + max((head for _, head in self.elimination), default=-1)
            raise OctavoError(
                f"The gates belong to another model: they are of {len(self.groups)} layers of {n_heads} KV heads, and "
                f"this model has {len(layers)} of {of_model}."
            )
        raise OctavoError("The plan was measured on another model: run `octavo profile` for this one.")


def read_plan(path: str | os.PathLike[str]) -> Plan:
    """Read a plan file, or a file of gates as a plan.

    Parameters
    ----------
    path : path
        The file. A name in .tsv means gates.

    Raises
    ------
    OctavoError
        The file does not exist, has another format, or is not a plan.
    """
    path = Path(path)
    if not path.exists():
        raise OctavoError(f"There is no plan {path}: `octavo profile` measures the model and writes it.")
    if path.suffix.lower() == GATES_SUFFIX:
        return _plan_of_gates(read_gates(path))
    try:
        with open(path, "rb") as file:
            content = json.loads(file.read(_MOST_BYTES))
    except (OSError, ValueError, RecursionError) as problem:
        raise OctavoError(f"The plan {path} cannot be read: run `octavo profile` again, or mend it.") from problem
    version = content.get("format_version") if isinstance(content, dict) else None
    if type(version) is int and version != PLAN_VERSION:
        raise OctavoError(
            f"The plan {path} has format {version}, and this octavo reads {PLAN_VERSION}: run `octavo profile` again."
        )
    try:
        return _plan_of(content)
    except _BadEntry as problem:
        raise OctavoError(
            f"The plan {path} cannot be used: {problem}. Run `octavo profile` again, or mend it."
        ) from problem


class _BadEntry(Exception):
    """An entry of a plan is missing or has an impossible value; the message names it."""


def _plan_of(content: Any) -> Plan:
    """Return the plan in a file's content. Raise _BadEntry for other content."""
    if type(_entry(content, "format_version")) is not int:
        raise _BadEntry(f"format_version must be {PLAN_VERSION}")
    model, attention = _entry(content, "model", "sha256"), _entry(content, "attention")
    if not isinstance(model, str) or re.fullmatch("[0-9a-f]{64}", model) is None:
        raise _BadEntry("model: sha256 must be 64 hexadecimal digits")
    if not isinstance(attention, str):
        raise _BadEntry("attention must be words, as `attention` takes them")
    groups = _list(content, "layers", "group")
    if any(group is not None and not _is_whole(group, 0) for group in groups):
        raise _BadEntry("layers: group must have whole numbers from 0 on, or null")
    scales = _entry(content, "layers", "budget_scale")
    if not isinstance(scales, dict):
        raise _BadEntry("layers: budget_scale must have a list for each method")
    for name, scale in scales.items():
        if not isinstance(scale, list) or len(scale) != len(groups) or not all(map(_is_share, scale)):
            raise _BadEntry(f"layers: budget_scale of {name} must have a number from 0 to {_MOST_SCALE} for each layer")
    elimination = _list(content, "heads", "elimination")
    for pair in elimination:
        if not isinstance(pair, list) or len(pair) != 2 or not all(_is_whole(number, 0) for number in pair):
            raise _BadEntry("heads: elimination must have pairs of the numbers of a layer and of a head")
    pairs = tuple((layer, head) for layer, head in elimination)
    if len(set(pairs)) < len(pairs):
        raise _BadEntry("heads: elimination has a head twice")
    n_sinks, n_recent = _entry(content, "heads", "n_sinks"), _entry(content, "heads", "n_recent")
    if not _is_whole(n_sinks, 0) or not _is_whole(n_recent, 1):
        raise _BadEntry("heads: n_sinks must be a whole number from 0 on, and n_recent one from 1 on")
    retrieval_heads = _entry(content, "retrieval_heads")
    if not _is_share(retrieval_heads) or retrieval_heads > 1:
        raise _BadEntry("retrieval_heads must be a number from 0 to 1")
    layer_scale = {name: tuple(map(float, scale)) for name, scale in scales.items()}
    return Plan(model, attention, float(retrieval_heads), n_sinks, n_recent, layer_scale, pairs, tuple(groups))


def _entry(content: Any, *names: str) -> Any:
    """Return a nested entry of JSON objects; raise _BadEntry if it is missing."""
    for i, name in enumerate(names):
        if not isinstance(content, dict) or name not in content:
            raise _BadEntry(f"{': '.join(names[: i + 1])} is missing")
        content = content[name]
    return content


def _list(content: Any, *names: str) -> list[Any]:
    found = _entry(content, *names)
    if not isinstance(found, list):
        raise _BadEntry(f"{': '.join(names)} must be a list")
    return found


def _is_whole(value: Any, least: int) -> bool:
    return type(value) is int and least <= value < _MOST_NUMBER


def _is_share(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= _MOST_SCALE  # false for NaN


def _plan_of_gates(gates: Gates) -> Plan:
    """Return a plan in which heads stream in ascending order of their gates, and layers have equal budgets."""
    n_layers, n_heads = gates.values.shape
    order = np.argsort(gates.values, axis=None, kind="stable").tolist()  # equal gates: by layer and head
    return Plan(
        model=None,
        attention=ATTENTION,
        retrieval_heads=RETRIEVAL_HEADS,
        n_sinks=gates.n_sinks,
        n_recent=gates.n_recent,
        layer_scale={},
        elimination=tuple(divmod(number, n_heads) for number in order),
        groups=(None,) * n_layers,
    )


def is_profile(folder: Path) -> bool:
    """Return whether a folder of a library holds what an unfinished profile has measured."""
    return folder.name.startswith("plan-") and any((folder / name).exists() for name in (PROFILE_MARK, *_OF_PROFILES))


#: Files of gates.
GATES_SUFFIX = ".tsv"
GATES_CONFIG = "config.json"

#: The largest file of gates, in bytes.
_MOST_BYTES = 16 << 20

#: Default sinks and recent tokens of streaming heads.
N_SINKS, N_RECENT = 128, 512


@dataclass(frozen=True)
class Gates:
    """Gates of all KV heads, and the tokens that streaming heads see.

    Parameters
    ----------
    values : float64 array, shape (n_layers, n_kv_head)
        Gate of each KV head, from 0 to 1.
    n_sinks, n_recent : int
        First tokens, and newest tokens, that a streaming head sees.
    """

    values: np.ndarray
    n_sinks: int
    n_recent: int


def read_gates(path: Path) -> Gates:
    """Read a file of gates, and `config.json` beside it.

    Raises
    ------
    OctavoError
        One of the two files cannot be read.
    """
    try:
        with open(path, "rb") as file:
            lines = file.read(_MOST_BYTES).decode().splitlines()
        values = np.array([[float(gate) for gate in line.split("\t")] for line in lines if line.strip()], np.float64)
        if values.ndim != 2 or not np.isfinite(values).all():
            raise ValueError
    except (OSError, ValueError) as problem:
        raise OctavoError(
            f"{path} cannot be read as gates: it needs a line for each layer, with a number for each KV head, between "
            "tabs."
        ) from problem
    n_sinks, n_recent = _read_config(path.with_name(GATES_CONFIG)) or (N_SINKS, N_RECENT)
    return Gates(values.clip(0, 1), n_sinks, n_recent)


def check_gates(path: Path, n_sinks: int, n_recent: int) -> None:
    """Check that gates can be written to a file, before they are measured.

    Raises
    ------
    OctavoError
        The file's name has another ending, its folder does not exist, or `config.json` there has other numbers.
    """
    if path.suffix.lower() != GATES_SUFFIX:
        raise OctavoError(f"{path} is not a TSV file's name: give one that ends in {GATES_SUFFIX}.")
    if not path.parent.is_dir():
        raise OctavoError(f"There is no folder {path.parent} to write {path.name} in.")
    config = path.with_name(GATES_CONFIG)
    if config.exists() and _read_config(config) != (n_sinks, n_recent):
        raise OctavoError(
            f"{config} is there already, and does not say sink_size {n_sinks} and recent_size {n_recent}, which belong "
            "to these gates: give a file in another folder."
        )


def write_gates(path: Path, gates: Gates) -> None:
    """Write gates, and `config.json` beside them unless one with the same numbers exists.

    Raises
    ------
    OctavoError
        As `check_gates`, or a file cannot be written.
    """
    check_gates(path, gates.n_sinks, gates.n_recent)
    config = path.with_name(GATES_CONFIG)
    try:
        if not config.exists():
            settings = {"sink_size": gates.n_sinks, "recent_size": gates.n_recent}
            config.write_text(json.dumps(settings) + "\n", "utf-8")
        lines = ("\t".join(f"{gate:.18e}" for gate in layer) for layer in gates.values)
        path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    except OSError as problem:
        raise OctavoError(f"{problem.filename} cannot be written: {problem.strerror or problem}.") from problem


def _read_config(path: Path) -> tuple[int, int] | None:
    """Read the numbers of sinks and of recent tokens; None if there is no such file, or it lacks either."""
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_text("utf-8"))
        sizes = [content.get("sink_size"), content.get("recent_size")]
        if sizes == [None, None]:
            return None
        n_sinks, n_recent = sizes
        if type(n_sinks) is not int or type(n_recent) is not int or n_sinks < 0 or n_recent < 1:
            raise ValueError
    except (OSError, ValueError, AttributeError) as problem:
        raise OctavoError(
            f"{path} cannot be read: beside gates it needs sink_size, a whole number from 0 on, and recent_size, one "
            "from 1 on."
        ) from problem
    return n_sinks, n_recent
