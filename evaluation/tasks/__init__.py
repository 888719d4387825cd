"""The tasks of `octavo eval`, one file each.

A task is a frozen dataclass of parameters; it says
  name, metric, higher_is_better : how it is called, what its score counts, and which way is better
  samples : how many are taken at each depth where nobody says
  data : the file that it takes where none is given
  attention_too : whether it compares what attention gives in each layer
  own_depths : whether its texts are documents of users, to be indexed, that are as long as they are
  in_batches : whether prompts are read in batches, as `ask` does
  also : what else of a sample is worth a mean
  content : all that texts are made of
  texts : makes texts and samples of the data, the same ones for the same seed
  score : what an outcome is worth, as "score", and what else there is to know of it
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ...convert.texts import EXAMPLES, SHIPPED_NOVEL, read_document
from ...errors import OctavoError
from ...runtime.llama import Llama
from ..samples import Outcome, Sample, Text


@dataclass(frozen=True)
class Task:
    """What all tasks have."""

    name: ClassVar[str]
    metric: ClassVar[str]
    samples: ClassVar[int]
    data: ClassVar[Path]
    higher_is_better: ClassVar[bool] = True
    attention_too: ClassVar[bool] = False
    own_depths: ClassVar[bool] = False
    in_batches: ClassVar[bool] = False
    also: ClassVar[tuple[str, ...]] = ()

    def content(self, data: Path) -> str:
        return read_document(data)

    def texts(self, llama: Llama, data: Path, depth: int, n_samples: int, seed: int) -> list[Text]:
        raise NotImplementedError

    def score(self, sample: Sample, outcome: Outcome, dense: Outcome) -> dict[str, float]:
        raise NotImplementedError


#: The data that come with octavo.
novel = SHIPPED_NOVEL
articles, questions = EXAMPLES / "xquad.json", EXAMPLES / "encyclopedia.json"


def read_json(path: Path) -> Any:
    """What a JSON file holds. Raises OctavoError, with the place, for anything else."""
    try:
        return json.loads(read_document(path))
    except ValueError as problem:
        raise OctavoError(f"{path} is not JSON: {problem}.") from problem


def answers_of(given: Any) -> tuple[str, ...]:
    """The answers of a question in JSON. Raises TypeError for anything but a list of texts."""
    if not isinstance(given, list) or not all(isinstance(answer, str) for answer in given):
        raise TypeError(given)
    return tuple(given)


def contains(text: str, answers: tuple[str, ...]) -> float:
    """1 where a text has one of the answers as whole words, whatever their case; else 0."""
    return float(any(re.search(rf"\b{re.escape(answer)}\b", text, re.IGNORECASE) for answer in answers))
