"""Tell which file of a repository this CPU reads much faster than the chosen one, and what that costs.

It depends on the type of most of a file's weights, and is known where octavo multiplies them in AVX2. Other
instructions are as fast with types that cost AVX2 more, and the speed of llama.cpp differs from CPU to CPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple


class Measured(NamedTuple):
    """Figures of a quantisation.

    Parameters
    ----------
    speed : float
        Billions of multiply-adds a second, for most of its weights and a batch of 256 tokens (cpu_kernels/README.md).
    divergence : float
        KL divergence from Llama 3 8B in f16, as llama.cpp's tools/perplexity/README.md has it.
    """

    speed: float
    divergence: float


#: By its name in the names of files.
MEASURED = {
    "Q4_K_M": Measured(100, 0.031),
    "Q4_K_S": Measured(100, 0.043),
    "Q5_K_M": Measured(95, 0.011),
    "Q5_K_S": Measured(95, 0.017),
    "Q6_K": Measured(84, 0.005),
    "Q4_0": Measured(82, 0.072),
    "Q4_1": Measured(81, 0.072),
    "Q5_0": Measured(76, 0.022),
    "Q5_1": Measured(73, 0.018),
    "IQ4_XS": Measured(62, 0.036),
    "IQ4_NL": Measured(56, 0.036),
    "Q8_0": Measured(53, 0.001),
    "F16": Measured(43, 0.0),
    "BF16": Measured(28, 0.0),
}

#: How many times as fast a file is that is worth a line.
_MUCH = 1.25


def has_quant(file: str, quant: str) -> bool:
    """Return whether a file's name contains a quantisation."""
    return re.search(rf"(^|[-._/]){re.escape(quant)}[-.]", file, re.IGNORECASE) is not None


def faster_file(files: Iterable[str], chosen: str) -> str:
    """Return a sentence about the file of a repository that this CPU reads fastest, or "" if none is much faster."""
    from ...cpu_kernels.numba_support.machine_features import ADDS_PRODUCTS, MULTIPLIES_WEIGHTS

    files = list(files)
    there = [quant for quant in MEASURED if any(has_quant(file, quant) for file in files)]
    own = next((quant for quant in there if has_quant(chosen, quant)), None)
    if own is None or ADDS_PRODUCTS or not MULTIPLIES_WEIGHTS:
        return ""
    fastest = max(there, key=lambda quant: (MEASURED[quant].speed, -MEASURED[quant].divergence))
    times = MEASURED[fastest].speed / MEASURED[own].speed
    if times < _MUCH:
        return ""
    losses = f"{MEASURED[fastest].divergence:g} where {own} has {MEASURED[own].divergence:g}"
    return f"This CPU reads {fastest} {times:.1f} times as fast as {own}; its KL divergence from f16 is about {losses}."
