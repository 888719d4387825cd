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
from math import sqrt
from pathlib import Path
from statistics import NormalDist
from typing import Any, BinaryIO

import numpy as np

from ..system.files import disk_errors

#: Identifies the record of a sample: method, budget, depth, number of the text, number of the sample.
Key = tuple[str, float, int, int, int]

#: Most that a method may lose of a score from 0 to 1: two points, as said before anything was measured.
MARGIN = 0.02

#: Verdicts: the loss is below the margin with a confidence of 95 %, above it with the same, or neither is shown.
HOLDS, FAILS, OPEN = "holds", "does not hold", "open"

#: Score of dense attention below which a task, from 0 to 1, says nothing of a method; and the words for a verdict.
LEAST, UNDONE = 0.1, "dense is below .1"

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
    scores, dense_scores = _values(measured, "score"), _values(reference, "score")
    differences, texts = scores - dense_scores, np.array([record["text"] for record in measured])
    n_independent, difference, error = independent_mean(differences, texts)
    steps = sum(record["steps"] for record in measured)
    row = {
        "samples": len(measured),
        "independent": n_independent,
        "score": _mean(scores),
        "standard_error": _rounded(independent_mean(scores, texts)[2]),
        "difference": _mean(differences),
        "difference_standard_error": _rounded(error),
        **(non_inferiority(n_independent, difference, error, _mean(dense_scores)) if judged else {}),
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


def independent_mean(values: np.ndarray, texts: np.ndarray) -> tuple[int, float, float | None]:
    """Return how many values are independent, the mean of all, and its standard error.

    A text makes all of its samples easy or hard. So texts are independent, and their samples are not: the error is
    clustered by text (Miller 2024, arXiv 2411.00640). If all are of one text, the mean is the mean of this text, and
    its samples are independent.

    Parameters
    ----------
    values : float array
        A figure of each sample; NaN is left out.
    texts : int array
        The text of each sample.

    Returns
    -------
    n : int
        Number of texts, or of samples of the only text.
    mean : float
        NaN without values.
    error : float, optional
        None for fewer than two.
    """
    known = ~np.isnan(values)
    values, texts = values[known], texts[known]
    if not len(values):
        return 0, np.nan, None
    mean = float(values.mean())
    of_texts: np.ndarray = np.bincount(np.unique(texts, return_inverse=True)[1], values - mean)
    from_mean = of_texts if len(of_texts) > 1 else values - mean
    n = len(from_mean)
    if n == 1:
        return n, mean, None
    return n, mean, float(np.sqrt(n / (n - 1) * np.square(from_mean).sum()) / len(values))


def widened(n: int, mean: float, error: float | None) -> tuple[float, float]:
    """Return the mean of n differences and its standard error after one more of 1, and one of -1.

    So equal scores do not prove that there is no difference (Bonett and Price 2012).
    """
    squares = n * (n - 1) * (error or 0.0) ** 2 + n * mean**2 + 2
    mean = n * mean / (n + 2)
    return mean, sqrt((squares - (n + 2) * mean**2) / ((n + 1) * (n + 2)))


def non_inferiority(n: int, difference: float, error: float | None, dense: float | None) -> dict[str, Any]:
    """Judge whether scores from 0 to 1 are at most MARGIN below dense attention's on the same samples.

    Parameters
    ----------
    n, difference, error
        As `independent_mean` returns them for the scores minus dense attention's.
    dense : float, optional
        Mean score of dense attention.

    Returns
    -------
    dict
        "at_least", the one-sided 95 % bound of the difference, and "verdict": HOLDS, FAILS or OPEN. Where dense
        attention itself scores below LEAST, the verdict is UNDONE, without a bound. Both are None without samples.
    """
    if not n or dense is None:
        return {"at_least": None, "verdict": None}
    if dense < LEAST:
        return {"at_least": None, "verdict": UNDONE}
    mean, error = widened(n, difference, error)
    reach = error * t_quantile(n + 1)
    verdict = HOLDS if mean - reach >= -MARGIN else FAILS if mean + reach < -MARGIN else OPEN
    return {"at_least": round(mean - reach, 5), "verdict": verdict}


def t_quantile(freedom: int) -> float:
    """Return the .95 quantile of Student's t, by the series of Abramowitz and Stegun (26.7.5).

    It is right to .3 % for two degrees of freedom, and to .05 % for three and more.
    """
    z = NormalDist().inv_cdf(0.95)
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return float(np.polynomial.polynomial.polyval(1 / freedom, terms))


def _sum(records: list[dict[str, Any]], name: str) -> int:
    return sum(record[name] for record in records)


def _values(samples: Iterable[dict[str, Any]], name: str) -> np.ndarray:
    """Return a figure of samples; NaN for those that have none."""
    return np.array([np.nan if record[name] is None else record[name] for record in samples])


def _mean(values: np.ndarray) -> float | None:
    """Return the mean of all values but NaN; None if none remain."""
    finite = values[~np.isnan(values)]
    return round(float(finite.mean()), 5) if len(finite) else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 5)
