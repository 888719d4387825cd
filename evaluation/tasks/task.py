"""Define the interface between a task and the evaluation that runs it, and load the data of tasks."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ...convert.plan.recall_texts import EXAMPLES, SHIPPED_NOVEL
from ...documents.text.plain_text import read_utf8
from ...errors import OctavoError
from ...runtime.llama import Llama
from ...runtime.methods.parameters import Parameters
from ..samples import Outcome, Sample, Text

#: Data that octavo ships.
NOVEL, ARTICLES, QUESTIONS = SHIPPED_NOVEL, EXAMPLES / "xquad.json", EXAMPLES / "encyclopedia.json"


@dataclass(frozen=True)
class AnyTask(Parameters, ABC):
    """A task is a frozen dataclass of parameters, which `octavo eval TASK:key=value,...` sets.

    Attributes
    ----------
    name : str
        Key of the task in the tables of `evaluation/tasks/__init__.py`.
    metric : str
        Name of the score.
    samples : int
        Default number of samples at each depth.
    data : Path, optional
        Default file to make texts of; None if the user has to name one.
    higher_is_better : bool
        Whether a higher score is better.
    own_depths : bool
        Whether the texts have lengths of their own.
    is_timed : bool
        Whether figures have seconds, which depend on the machine.
    """

    metric: ClassVar[str]
    samples: ClassVar[int]
    data: ClassVar[Path | None]
    higher_is_better: ClassVar[bool] = True
    own_depths: ClassVar[bool] = False
    is_timed: ClassVar[bool] = False

    def content(self, data: Path) -> str:
        """Return the content of a data file, and of the files that it names; results depend on it.

        Raise OctavoError if a file cannot be read.
        """
        return read_utf8(data)


@dataclass(frozen=True)
class Task(AnyTask):
    """Make texts and samples, and score a model's outcomes.

    Attributes
    ----------
    compares_attention : bool
        Whether to compare the output of each layer's attention with that of dense attention.
    leaves_out : bool
        Whether to leave out texts that exceed the context. Otherwise they are an error.
    in_batches : bool
        Whether to read prompts in batches, as `octavo ask` does.
    finds_sources : bool
        Whether to record the attention of answers.
    extra_figures : tuple of str
        Further figures of a sample to report the mean of.
    is_share : bool
        Whether scores are from 0 to 1, higher is better, and they judge the answer rather than its likeness to dense
        attention's: then a loss is judged (`results.non_inferiority`).
    """

    compares_attention: ClassVar[bool] = False
    leaves_out: ClassVar[bool] = False
    in_batches: ClassVar[bool] = False
    finds_sources: ClassVar[bool] = False
    extra_figures: ClassVar[tuple[str, ...]] = ()
    is_share: ClassVar[bool] = True

    @abstractmethod
    def texts(self, llama: Llama, data: Path, depth: int, n_samples: int, seed: int) -> list[Text]:
        """Make texts with samples; the same arguments make the same ones.

        Parameters
        ----------
        data : Path
            File to make texts of.
        depth : int
            Number of tokens of a text; without meaning if the task has its own depths.
        n_samples : int
            Number of samples in all texts together; of each document if the task has its own depths.

        Raises
        ------
        OctavoError
            If the data cannot be read, or are too few for this depth and number of samples.
        """

    @abstractmethod
    def score(self, sample: Sample, outcome: Outcome, dense: Outcome) -> dict[str, float]:
        """Score an outcome: the score as "score", and further figures. `dense` is the outcome of dense attention."""


def read_json(path: Path) -> Any:
    """Read a JSON file in UTF-8. Raise OctavoError, which names the place, if it cannot be read or is not JSON."""
    try:
        return json.loads(read_utf8(path))
    except ValueError as problem:
        raise OctavoError(f"{path} is not JSON: {problem}.") from problem


def answers_of(answers: Any) -> tuple[str, ...]:
    """Return the answers of a question in JSON: its value "answers". Raise TypeError unless it is a list of texts."""
    if not isinstance(answers, list) or not all(isinstance(answer, str) for answer in answers):
        raise TypeError(answers)
    return tuple(answers)
