"""A plan: what was measured of a model once, in a JSON file that `octavo profile` writes.

It says what share of a budget each layer gets: by how much the model's output changes as the layer's budget shrinks,
and by how much the layer changes the residual stream (SqueezeAttention, Wang et al. 2024, algorithm 1). And it has the
order in which KV heads could be made to stream, and so which of them are retrieval heads (DuoAttention, Xiao et al.
2024, section 2.2).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import OctavoError
from ..cache.tail import CacheLayer

PLAN_VERSION = 2


@dataclass(frozen=True)
class Plan:
    """What the runtime takes from a plan file.

    Parameters
    ----------
    model : str
        SHA-256 of the model file that was measured.
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
        are the last ones.
    groups : tuple of int or None, one for each cached layer
        Group of the layer by its importance, 0 for the most important one; None for a layer that slides, and for all
        where importance could not be measured.
    """

    model: str
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
        if lengths != {len(layers)} or set(self.elimination) != heads:
            raise OctavoError("The plan was measured on another model: run `octavo profile` for this one.")


def read_plan(path: str | os.PathLike[str]) -> Plan:
    """Read a plan file.

    Parameters
    ----------
    path : path
        The file.

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
