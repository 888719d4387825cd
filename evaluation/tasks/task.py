"""What every task has: the interface between a task and the evaluation that runs it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ...documents.plain_text import read_utf8
from ...runtime.llama import Llama
from ...runtime.methods.parameters import Parameters
from ..samples import Outcome, Sample, Text


@dataclass(frozen=True)
class Task(Parameters, ABC):
    """Make texts and samples, and score what a model made of them.

    A task is a frozen dataclass of parameters, which `octavo eval TASK:key=value,...` sets. It has these class
    attributes.

    Attributes
    ----------
    name : str
        Key of the task in the table `TASKS`.
    metric : str
        What a score counts.
    samples : int
        Default number of samples at each depth.
    data : Path, optional
        Default file to make texts of; None if the user has to name one.
    higher_is_better : bool
        Whether a higher score is better.
    compares_attention : bool
        Whether the output of each layer's attention is compared with that of dense attention.
    own_depths : bool
        Whether the texts are the user's, and have the length that they have.
    leaves_out : bool
        Whether texts that do not fit the context are left out. Otherwise they are an error.
    in_batches : bool
        Whether prompts are read in batches, as `octavo ask` does.
    finds_sources : bool
        Whether it is recorded what answers attended.
    extra_figures : tuple of str
        Further figures of a sample to report the mean of.
    """

    metric: ClassVar[str]
    samples: ClassVar[int]
    data: ClassVar[Path | None]
    higher_is_better: ClassVar[bool] = True
    compares_attention: ClassVar[bool] = False
    own_depths: ClassVar[bool] = False
    leaves_out: ClassVar[bool] = False
    in_batches: ClassVar[bool] = False
    finds_sources: ClassVar[bool] = False
    extra_figures: ClassVar[tuple[str, ...]] = ()

    def content(self, data: Path) -> str:
        """Return everything that the texts are made of; results depend on it.

        Parameters
        ----------
        data : Path
            File to make texts of.

        Returns
        -------
        str
            Content of the file, and of others that it names.

        Raises
        ------
        OctavoError
            If a file cannot be read.
        """
        return read_utf8(data)

    @abstractmethod
    def texts(self, llama: Llama, data: Path, depth: int, n_samples: int, seed: int) -> list[Text]:
        """Make texts with samples; the same arguments make the same ones.

        Parameters
        ----------
        llama : Llama
            Model whose tokens and chat template are used.
        data : Path
            File to make texts of.
        depth : int
            Number of tokens of a text; without meaning if the task has its own depths.
        n_samples : int
            Number of samples in all texts together; of each document if the task has its own depths.
        seed : int
            Seed of what is drawn.

        Returns
        -------
        list of Text

        Raises
        ------
        OctavoError
            If the data cannot be read, or are too few for this depth and number of samples.
        """

    @abstractmethod
    def score(self, sample: Sample, outcome: Outcome, dense: Outcome) -> dict[str, float]:
        """Score an outcome.

        Parameters
        ----------
        sample : Sample
            What was asked.
        outcome : Outcome
            What the model made of it.
        dense : Outcome
            What it made of it under dense attention.

        Returns
        -------
        dict
            The score as "score", and further figures.
        """
