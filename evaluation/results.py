"""Keep measured samples in a file, from which an interrupted evaluation resumes; and compute means over samples.

The file is JSON lines. The first line holds everything that the records depend on. Each other line is a record: of one
sample of one method, or of the matched budget of one method. Evaluations append records as they measure them. Several
may share the file: each writes whole lines while it holds a lock. Readers drop an incomplete last line.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ..system.files import disk_errors

#: Identifies the record of a sample: method, budget, depth, number of the text, number of the sample.
Key = tuple[str, float, int, int, int]

#: Most that a method may lose of a score from 0 to 1: two points, as said before anything was measured.
MARGIN = 0.02

#: Verdicts: the loss is below the margin with a confidence of 95 %, above it with the same, or neither is shown.
HOLDS, FAILS, TOO_FEW = "holds", "does not hold", "too few samples"

#: Quantile of the normal distribution at .95.
_QUANTILE = 1.6449

_MATCHED, _SAMPLE = "matched", "sample"


class Records:
    """Records in memory.

    Attributes
    ----------
    samples : dict
        Record of each measured sample, by `Key`.
    budgets : dict
        Matched budget by method, requested budget and depth; None if the method always reads more.
    """

    def __init__(self) -> None:
        self.samples: dict[Key, dict[str, Any]] = {}
        self.budgets: dict[tuple[str, float, int], float | None] = {}

    def add_sample(self, record: dict[str, Any]) -> None:
        """Add figures, with the values of the sample's `Key` as "attention", "budget", "depth", "text" and "sample"."""
        self.samples[key_of(record)] = record

    def add_budget(self, attention: str, budget: float, depth: int, matched: float | None) -> None:
        """Add the budget with which a method reads a share of the KV bytes; None if the method always reads more."""
        self.budgets[attention, budget, depth] = matched


class Results(Records):
    """The records of one evaluation, kept in a file.

    Parameters
    ----------
    path : Path
        File of the records; created if it does not exist.
    header : dict
        Everything that the records depend on: the first line of a new file.

    Attributes
    ----------
    header : dict
        The first line of the file.

    Raises
    ------
    OctavoError
        If the file cannot be read or written.
    """

    def __init__(self, path: Path, header: dict[str, Any]) -> None:
        super().__init__()
        self.path = path
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with _locked(path) as file:
                lines = _whole_lines(file, header)
        self.header, *records = map(json.loads, lines)
        for record in records:
            if record["kind"] == _SAMPLE:
                self.samples[key_of(record)] = record
            else:
                self.budgets[record["attention"], record["budget"], record["depth"]] = record["given"]

    def add_sample(self, record: dict[str, Any]) -> None:
        """Add the record of a sample, and write it (see `Records.add_sample`). Raise OctavoError if writing fails."""
        super().add_sample(record)
        self._append({"kind": _SAMPLE, **record})

    def add_budget(self, attention: str, budget: float, depth: int, matched: float | None) -> None:
        """Add a matched budget, and write it (see `Records.add_budget`). Raise OctavoError if writing fails."""
        super().add_budget(attention, budget, depth, matched)
        self._append({"kind": _MATCHED, "attention": attention, "budget": budget, "depth": depth, "given": matched})

    def _append(self, record: dict[str, Any]) -> None:
        with disk_errors(self.path), _locked(self.path) as file:
            file.write(_line(record))


@contextmanager
def _locked(path: Path) -> Iterator[BinaryIO]:
    """Open a file for reading and appending, and make other evaluations wait until it is closed."""
    with path.open("a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file


def _whole_lines(file: BinaryIO, header: dict[str, Any]) -> list[bytes]:
    """Read the lines of a file, and cut off an incomplete last one. A file without lines gets the header."""
    file.seek(0)
    content = file.read()
    end = content.rfind(b"\n") + 1
    file.truncate(end)
    if not end:
        file.write(_line(header))
        return [_line(header)]
    return content[:end].splitlines()


def _line(record: dict[str, Any]) -> bytes:
    return json.dumps(record).encode() + b"\n"


def key_of(record: dict[str, Any]) -> Key:
    """Return the key of a sample's record."""
    return record["attention"], record["budget"], record["depth"], record["text"], record["sample"]


def summary(
    samples: Iterable[dict[str, Any]],
    dense: Iterable[dict[str, Any]],
    extra_figures: Iterable[str] = (),
    judged: bool = False,
) -> dict[str, Any]:
    """Compute one row of the result: means over the samples of one run and depth, and differences to dense attention.

    Parameters
    ----------
    samples, dense : iterables of dict
        Records of the same samples in the same order, under the method and under dense attention.
    extra_figures : iterable of str
        Further figures of the records to report the mean of.
    judged : bool
        Whether the row has what `non_inferiority` returns.
    """
    measured, reference = list(samples), list(dense)
    scores = _values(measured, "score")
    differences = scores - _values(reference, "score")
    steps = sum(record["steps"] for record in measured)
    row = {
        "samples": len(measured),
        "score": _mean(scores),
        "standard_error": _standard_error(scores),
        "difference": _mean(differences),
        "difference_standard_error": _standard_error(differences),
        **(non_inferiority(differences) if judged else {}),
        "kl_divergence": round(sum(record["divergence"] for record in measured) / max(steps, 1), 6),
        "bytes_read_share": round(_sum(measured, "bytes_read") / max(_sum(measured, "dense_bytes"), 1), 5),
        **{name: _mean(_values(measured, name)) for name in extra_figures},
    }
    if measured[0].get("errors") is not None:
        row["output_errors"] = np.mean([record["errors"] for record in measured], axis=0).round(5).tolist()
    positions = [record["position"] for record in measured]
    if None not in positions:
        pairs = zip(positions, scores.tolist(), strict=True)
        row["by_position"] = [[position, score] for position, score in pairs if not np.isnan(score)]
    return row


def non_inferiority(differences: np.ndarray) -> dict[str, Any]:
    """Judge whether scores from 0 to 1 are at most MARGIN below dense attention's on the same samples.

    The mean difference is bounded after one more sample of 1 and one of -1 (Bonett and Price 2012): so
    samples without any difference do not prove that there is none.

    Parameters
    ----------
    differences : float array
        Scores minus dense attention's; NaN is left out.

    Returns
    -------
    dict
        "at_least", the one-sided 95 % bound of the difference, and "verdict": HOLDS, FAILS or TOO_FEW. Both are None
        without samples.
    """
    differences = differences[~np.isnan(differences)]
    if not len(differences):
        return {"at_least": None, "verdict": None}
    widened = np.concatenate([differences, [1.0, -1.0]])
    mean, error = widened.mean(), _QUANTILE * widened.std() / np.sqrt(len(widened))
    verdict = HOLDS if mean - error >= -MARGIN else FAILS if mean + error < -MARGIN else TOO_FEW
    return {"at_least": round(float(mean - error), 5), "verdict": verdict}


def _sum(records: list[dict[str, Any]], name: str) -> int:
    return sum(record[name] for record in records)


def _values(samples: Iterable[dict[str, Any]], name: str) -> np.ndarray:
    """Return a figure of samples; NaN for those that have none."""
    return np.array([np.nan if record[name] is None else record[name] for record in samples])


def _mean(values: np.ndarray) -> float | None:
    """Return the mean of all values but NaN; None if none remain."""
    finite = values[~np.isnan(values)]
    return round(float(finite.mean()), 5) if len(finite) else None


def _standard_error(values: np.ndarray) -> float | None:
    """Return the standard error of the mean; None for a single value."""
    values = values[~np.isnan(values)]
    return round(float(values.std(ddof=1) / np.sqrt(len(values))), 5) if len(values) > 1 else None
