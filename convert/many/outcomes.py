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
    folder : Path or None
        Its index.
    problem : str
        A sentence that says why there is none; "" if there is one.
    """

    name: str
    folder: Path | None
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
    """Return the index of each document.

    Raises
    ------
    NotIndexed
        Some have none.
    """
    folders = [outcome.folder for outcome in outcomes if outcome.folder is not None]
    if len(folders) < len(outcomes):
        raise NotIndexed(outcomes)
    return folders
