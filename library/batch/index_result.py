"""What becomes of many documents that are to be indexed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import OctavoError


@dataclass(frozen=True)
class Outcome:
    """What became of a document.

    Parameters
    ----------
    name : str
        What the document is called.
    folders : sequence of Path
        Its index; those of its parts in order, if it is longer than the context; none if it could not be indexed.
    problem : str
        A sentence that says why there is none; "" if there is one.
    """

    name: str
    folders: Sequence[Path]
    problem: str = ""


class NotIndexed(OctavoError):
    """Some documents could not be indexed.

    Parameters
    ----------
    outcomes : sequence of Outcome
        What became of each document, in order.
    """

    def __init__(self, outcomes: Sequence[Outcome]) -> None:
        self.outcomes = list(outcomes)
        problems = [outcome.problem for outcome in self.outcomes if outcome.problem]
        if len(self.outcomes) == 1:
            message = problems[0]
        elif len(problems) == 1:
            message = f"1 of {len(self.outcomes):,} documents could not be indexed, the others are. {problems[0]}"
        else:
            rest = "the others are" if len(problems) < len(self.outcomes) else "which is all"
            lines = "".join(f"\n- {problem}" for problem in problems)
            message = f"{len(problems):,} of {len(self.outcomes):,} documents could not be indexed, {rest}:{lines}"
        super().__init__(message)


def folders_of(outcomes: Sequence[Outcome]) -> list[Path]:
    """Return the indexes of all documents, in order.

    Raises
    ------
    NotIndexed
        Some have none.
    """
    if any(outcome.problem for outcome in outcomes):
        raise NotIndexed(outcomes)
    return [folder for outcome in outcomes for folder in outcome.folders]
