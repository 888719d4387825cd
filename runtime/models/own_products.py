"""Tell which share of a model's products octavo computes on this CPU, by the types of its weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gguf.constants import GGMLQuantizationType

from ...cpu_kernels.numba_support.machine_features import HAS_AMX, MULTIPLIES_WEIGHTS
from ...cpu_kernels.products.panel_tiles import FEWEST_TILED
from ...cpu_kernels.products.weights import KERNELS
from .gguf_header import multiplied_weights
from .hub import files_of


@dataclass(frozen=True)
class OwnProducts:
    """Who multiplies a model's weights.

    Parameters
    ----------
    share : float
        Share of the weights that octavo multiplies.
    octavo, llama_cpp : list of str
        The types of weights that each multiplies, those with the most weights first.
    """

    share: float
    octavo: list[str]
    llama_cpp: list[str]

    def __str__(self) -> str:
        theirs = ", ".join(self.llama_cpp)
        if not self.octavo:
            return f"llama.cpp multiplies all weights ({theirs or 'none'})"
        percent = math.floor(1000 * self.share) / 10
        many = f" by {FEWEST_TILED} tokens and more" if HAS_AMX else ""
        rest = f", llama.cpp the others ({theirs})" if theirs else ""
        return f"octavo multiplies {percent:g} % of the weights ({', '.join(self.octavo)}){many}{rest}"


def own_products(path: Path) -> OwnProducts:
    """Read the headers of a model's files."""
    return products_of(multiplied_weights(map(Path, files_of(str(path)))))


def products_of(weights: Mapping[int, int]) -> OwnProducts:
    """Say who multiplies how many weights of each of ggml's types."""
    kinds = sorted(weights, key=lambda kind: -weights[kind])
    own = [kind for kind in kinds if MULTIPLIES_WEIGHTS and kind in KERNELS]
    others = [kind for kind in kinds if kind not in own]
    share = sum(weights[kind] for kind in own) / max(sum(weights.values()), 1)
    return OwnProducts(share, [type_name(kind) for kind in own], [type_name(kind) for kind in others])


def type_name(kind: int) -> str:
    """Return the name of a type, or its number if only llama.cpp may know it."""
    return GGMLQuantizationType(kind).name if kind in set(GGMLQuantizationType) else f"type {kind}"
