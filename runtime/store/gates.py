"""Read and write gates of KV heads in the format of DuoAttention (Xiao et al. 2024, mit-han-lab/duo-attention).

1. `full_attention_heads.tsv` has a line for each layer, with a number for each KV head, separated by tabs.
2. Each number is the head's gate, from 0 to 1; others are clipped. The heads with the largest gates are retrieval
   heads: those at or above the quantile of all gates at the share of streaming heads.
3. `config.json` beside it has the numbers of sinks and of recent tokens that the other heads saw: `sink_size` and
   `recent_size`. It may have other entries. Without both, it does not concern gates, and octavo uses its defaults.
4. The files do not name the model.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...errors import OctavoError

SUFFIX = ".tsv"
CONFIG = "config.json"

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
    n_sinks, n_recent = _read_config(path.with_name(CONFIG)) or (N_SINKS, N_RECENT)
    return Gates(values.clip(0, 1), n_sinks, n_recent)


def check_gates(path: Path, n_sinks: int, n_recent: int) -> None:
    """Check that gates can be written to a file, before they are measured.

    Raises
    ------
    OctavoError
        The file's name has another ending, its folder does not exist, or `config.json` there has other numbers.
    """
    if path.suffix.lower() != SUFFIX:
        raise OctavoError(f"{path} is not a TSV file's name: give one that ends in {SUFFIX}.")
    if not path.parent.is_dir():
        raise OctavoError(f"There is no folder {path.parent} to write {path.name} in.")
    config = path.with_name(CONFIG)
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
    config = path.with_name(CONFIG)
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
