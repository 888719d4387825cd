"""How work that takes long reports what it has done."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Receives the progress of one task after another. Any object with these two methods will do."""

    def start(self, task: str, total: int, unit: str, done: int = 0) -> None:
        """A task begins, and the task before it has ended.

        Parameters
        ----------
        task : str
            What is done, such as "Reading report.txt".
        total : int
            How much there is to do.
        unit : str
            What `total` counts: "tokens" or "layers".
        done : int
            How much of it an earlier, interrupted run did.
        """

    def advance(self, amount: int) -> None:
        """Some more is done.

        Parameters
        ----------
        amount : int
            How many units more.
        """


class Silent:
    """A progress that nobody sees."""

    def start(self, task: str, total: int, unit: str, done: int = 0) -> None:
        """Ignore the task."""

    def advance(self, amount: int) -> None:
        """Ignore the amount."""
