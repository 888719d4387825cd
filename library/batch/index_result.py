"""Results of indexing many documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import OctavoError


@dataclass(frozen=True)
class IndexResult:
    """The result of indexing a document.

    Parameters
    ----------
    name : str
        Name of the document.
    folders : sequence of Path
        The index; those of the parts in order, if the document exceeds the context; none after a failure.
    problem : str
        Why there is no index, a sentence; else "".
    """

    name: str
    folders: Sequence[Path]
    problem: str = ""


class NotIndexed(OctavoError):
    """Some documents could not be indexed.

    Parameters
    ----------
    outcomes : sequence of IndexResult
        The result of each document, in order.
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
    """Return the indexes of all documents, in order. Raise NotIndexed if some have none."""
    if any(result.problem for result in outcomes):
        raise NotIndexed(outcomes)
    return [folder for result in outcomes for folder in result.folders]
