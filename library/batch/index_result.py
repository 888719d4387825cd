"""What becomes of many documents that are to be indexed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import OctavoError


@dataclass(frozen=True)
class IndexResult:
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
    outcomes : sequence of IndexResult
        What became of each document, in order.
    """

    def __init__(self, outcomes: Sequence[IndexResult]) -> None:
        self.outcomes = list(outcomes)
        problems = [result.problem for result in self.outcomes if result.problem]
        if len(self.outcomes) == 1:
            message = problems[0]
        elif len(problems) == 1:
            message = f"1 of {len(self.outcomes):,} documents could not be indexed, the others are. {problems[0]}"
        else:
            rest = "the others are" if len(problems) < len(self.outcomes) else "which is all"
            lines = "".join(f"\n- {problem}" for problem in problems)
            message = f"{len(problems):,} of {len(self.outcomes):,} documents could not be indexed, {rest}:{lines}"
        super().__init__(message)


def folders_of(outcomes: Sequence[IndexResult]) -> list[Path]:
    """Return the indexes of all documents, in order.

    Raises
    ------
    NotIndexed
        Some have none.
    """
    if any(result.problem for result in outcomes):
        raise NotIndexed(outcomes)
    return [folder for result in outcomes for folder in result.folders]
