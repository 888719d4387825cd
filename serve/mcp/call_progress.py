"""The progress of one call of a tool, by which the call also ends when its client gives it up."""

from __future__ import annotations

import time
from collections.abc import Callable

from ...errors import shown
from ...progress import Progress

#: Seconds between two reports within a task.
_PAUSE = 0.2


class CallEnded(BaseException):
    """The client has given the call up. No handler of errors takes it for one."""


class CallProgress(Progress):
    """Receives the progress of a call in the thread that works for it.

    Parameters
    ----------
    report : callable
        Receives a rising number, the number at which the current task ends, and a text.

    Attributes
    ----------
    notices : list of str
        The notices so far.
    """

    def __init__(self, report: Callable[[float, float, str], None]) -> None:
        self._report = report
        self.notices: list[str] = []
        self._has_ended = False
        self._task = self._unit = ""
        self._before = self._done = self._total = 0
        self._reported, self._reported_at = -1.0, 0.0

    def end(self) -> None:
        """End the work at its next report. Any thread may call it."""
        self._has_ended = True

    def check(self) -> None:
        """Raise CallEnded if the client has given the call up."""
        if self._has_ended:
            raise CallEnded

    def notice(self, sentence: str) -> None:
        """Keep a notice for the result."""
        self.check()
        if (sentence := shown(sentence)) not in self.notices:
            self.notices.append(sentence)

    def start(self, task: str, total: int, unit: str, done: int = 0) -> None:
        """Begin a task, and report it."""
        self._before += self._total
        self._task, self._total, self._unit, self._done = task, total, unit, done
        self._tell()

    def advance(self, amount: int) -> None:
        """Report that more is done, but not too often."""
        self._done += amount
        if time.monotonic() - self._reported_at >= _PAUSE:
            self._tell()
        self.check()

    def _tell(self) -> None:
        """Report the task. The protocol wants numbers that rise, also where a task begins at nothing."""
        self.check()
        reached = max(float(self._before + self._done), self._reported + 0.001)
        self._reported, self._reported_at = reached, time.monotonic()
        text = f"{self._task}: {self._done:,} of {self._total:,} {self._unit}"
        self._report(reached, max(float(self._before + self._total), reached), text)
