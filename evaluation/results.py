"""What was measured, sample by sample, in a file that an interrupted evaluation goes on with; and its means.

The file is JSON lines: first what all of it depends on, then a record for each sample of each method, and for each
budget that was matched. Records are added as they are measured; a last line that was cut off does not count.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from ..runtime.store.files import disk_errors

#: What says which measurement a record is.
Key = tuple[str, float, int, int, int]

_MATCHED, _SAMPLE = "matched", "sample"


class Results:
    """The records of one evaluation.

    header : what they depend on, the first line of the file
    """

    def __init__(self, path: Path, header: dict[str, Any]) -> None:
        self.path, self.header = path, header
        self.samples: dict[Key, dict[str, Any]] = {}
        self.budgets: dict[tuple[str, float, int], float | None] = {}
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
            self._read()

    def _read(self) -> None:
        """Take the records of the file, and cut off a last line that is not whole."""
        content = self.path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            os.truncate(self.path, len(whole))
        if not whole:
            self._append(self.header)
            return
        self.header, *records = map(json.loads, whole.splitlines())
        for record in records:
            if record["kind"] == _SAMPLE:
                self.samples[_key(record)] = record
            else:
                self.budgets[record["attention"], record["budget"], record["depth"]] = record["given"]

    def add_sample(self, record: dict[str, Any]) -> None:
        """Add what was measured of a sample."""
        self.samples[_key(record)] = record
        self._append({"kind": _SAMPLE, **record})

    def add_budget(self, attention: str, budget: float, depth: int, given: float | None) -> None:
        """Add the budget that a method is given to read a share; None where it cannot read as little."""
        self.budgets[attention, budget, depth] = given
        self._append({"kind": _MATCHED, "attention": attention, "budget": budget, "depth": depth, "given": given})

    def _append(self, record: dict[str, Any]) -> None:
        with disk_errors(self.path), self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")


def _key(record: dict[str, Any]) -> Key:
    return record["attention"], record["budget"], record["depth"], record["text"], record["sample"]


def summary(
    samples: Iterable[dict[str, Any]], dense: Iterable[dict[str, Any]], also: Iterable[str] = ()
) -> dict[str, Any]:
    """Means over the samples of one method, budget and depth, and how they differ from dense attention's.

    samples, dense : records of the same samples, in the same order    also : figures of records to give the mean of
    """
    own, reference = list(samples), list(dense)
    scores = np.array([record["score"] for record in own])
    differences = scores - [record["score"] for record in reference]
    steps = sum(record["steps"] for record in own)
    row = {
        "samples": len(own),
        "score": round(float(scores.mean()), 5),
        "standard_error": _standard_error(scores),
        "difference": round(float(differences.mean()), 5),
        "difference_standard_error": _standard_error(differences),
        "kl_divergence": round(sum(record["divergence"] for record in own) / max(steps, 1), 6),
        "bytes_read_share": round(_sum(own, "bytes_read") / max(_sum(own, "dense_bytes"), 1), 5),
        **{name: round(float(np.mean([record[name] for record in own])), 5) for name in also},
    }
    if own[0].get("errors") is not None:
        row["output_errors"] = np.mean([record["errors"] for record in own], axis=0).round(5).tolist()
    positions = [record["position"] for record in own]
    if None not in positions:
        row["by_position"] = [[position, score] for position, score in zip(positions, scores.tolist(), strict=True)]
    return row


def _sum(records: list[dict[str, Any]], name: str) -> int:
    return sum(record[name] for record in records)


def _standard_error(values: np.ndarray) -> float | None:
    """Of the mean; None for one value."""
    return round(float(values.std(ddof=1) / np.sqrt(len(values))), 5) if len(values) > 1 else None
