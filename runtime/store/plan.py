"""A plan: what was measured of a model once, in a JSON file that `octavo profile` writes.

It says what share of a budget each layer gets: by how much the model's output changes as the layer's budget shrinks,
and by how much the layer changes the residual stream (SqueezeAttention, Wang et al. 2024, algorithm 1). And it has the
order in which KV heads could be made to stream, and so which of them are retrieval heads (DuoAttention, Xiao et al.
2024, section 2.2).

A file of gates (see gates.py) is read as a plan that has the order of the heads alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import OctavoError
from ..cache.tail import CacheLayer
from .gates import SUFFIX, Gates, read_gates

PLAN_VERSION = 3

#: What `--attention plan` runs, and the share of retrieval heads, until a user edits the plan.
ATTENTION, RETRIEVAL_HEADS = "duo+squeezed", 0.5


@dataclass(frozen=True)
class Plan:
    """What the runtime takes from a plan file.

    Parameters
    ----------
    model : str or None
        SHA-256 of the model file that was measured; None for gates, whose file does not say.
    attention : str
        What `--attention plan` runs, in the words of `methods.compose.parse`.
    retrieval_heads : float
        Share of the KV heads that attend to everything, unless the user gives another.
    n_sinks, n_recent : int
        Sink tokens and recent tokens that streaming heads attend to.
    layer_scale : mapping of str to tuple of float, one for each cached layer
        Factors of the layers' budgets that were found best for a method, by its name; on average 1.
    elimination : tuple of (layer, head)
        All KV heads whose layer does not slide, in the order in which they were made to stream: the retrieval heads
        are the last ones. As gates are read, also those of layers that slide (see `of_layers`).
    groups : tuple of int or None, one for each cached layer
        Group of the layer by its importance, 0 for the most important one; None for a layer that slides, and for all
        where importance could not be measured.
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
            Share of the KV heads that are retrieval heads; by default the plan's own.
        """
        share = self.retrieval_heads if retrieval_heads is None else retrieval_heads
        n_retrieval = int(np.ceil(share * len(self.elimination)))
        return list(self.elimination[: len(self.elimination) - n_retrieval])

    def of_layers(self, layers: Sequence[CacheLayer]) -> Plan:
        """Return the plan without the heads of layers that slide: gates are of all layers.

        Parameters
        ----------
        layers : sequence of CacheLayer
            The model's cached layers.
        """
        slides = {i for i, layer in enumerate(layers) if layer.window}
        return replace(self, elimination=tuple(head for head in self.elimination if head[0] not in slides))

    def gates(self, layers: Sequence[CacheLayer]) -> Gates:
        """Return the order of the heads as gates, which grow by equal steps from the first head that streams to 1.

        Heads of layers that slide get 0, as they never see everything.

        Parameters
        ----------
        layers : sequence of CacheLayer
            The model's cached layers, which `check` has found to be those of the plan.

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

        Parameters
        ----------
        layers : sequence of CacheLayer
            The model's cached layers.

        Raises
        ------
        OctavoError
            The model has others.
        """
        heads = {(i, head) for i, layer in enumerate(layers) if not layer.window for head in range(layer.n_kv_head)}
        lengths = {len(self.groups), *map(len, self.layer_scale.values())}
        if lengths == {len(layers)} and set(self.elimination) == heads:
            return
        if self.model is None:
            own = " or ".join(map(str, sorted({layer.n_kv_head for layer in layers})))
            n_heads = 1 + max((head for _, head in self.elimination), default=-1)
            raise OctavoError(
                f"The gates belong to another model: they are of {len(self.groups)} layers of {n_heads} KV heads, and "
                f"this model has {len(layers)} of {own}."
            )
        raise OctavoError("The plan was measured on another model: run `octavo profile` for this one.")


def read_plan(path: str | os.PathLike[str]) -> Plan:
    """Read a plan file, or a file of gates as a plan.

    Parameters
    ----------
    path : path
        The file. One that ends in .tsv has gates.

    Returns
    -------
    Plan
        What the runtime takes from it.

    Raises
    ------
    OctavoError
        There is no such file, it has another format, or it is no plan.
    """
    path = Path(path)
    if not path.exists():
        raise OctavoError(f"There is no plan {path}: `octavo profile` measures the model and writes it.")
    if path.suffix.lower() == SUFFIX:
        return _plan_of_gates(read_gates(path))
    try:
        content: dict[str, Any] = json.loads(path.read_text("utf-8"))
        if content["format_version"] != PLAN_VERSION:
            raise OctavoError(
                f"The plan {path} has format {content['format_version']}, and this octavo reads {PLAN_VERSION}: run "
                "`octavo profile` again."
            )
        heads, layers = content["heads"], content["layers"]
        return Plan(
            model=str(content["model"]["sha256"]),
            attention=str(content["attention"]),
            retrieval_heads=float(content["retrieval_heads"]),
            n_sinks=int(heads["n_sinks"]),
            n_recent=int(heads["n_recent"]),
            layer_scale={name: tuple(map(float, scale)) for name, scale in layers["budget_scale"].items()},
            elimination=tuple((int(layer), int(head)) for layer, head in heads["elimination"]),
            groups=tuple(None if group is None else int(group) for group in layers["group"]),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        raise OctavoError(f"The plan {path} cannot be read: run `octavo profile` again, or mend it.") from problem


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
