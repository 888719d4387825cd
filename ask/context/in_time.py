"""Stop reading documents that take longer than an answer may wait: it then comes from passages.

Whether they are read in time is estimated before, from the speed of earlier readings (growing_indexes.py). This decides
again after each batch, with the speed that the reading has.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ...convert.build_pieces import PIECE
from ...progress import DocumentProgress, Progress, ProgressOfMany
from ...system.working_time import working_time


class TakesLonger(BaseException):
    """Reading the documents takes longer than an answer may wait.

    Like an interruption, it does not mean that a document is unusable: the part that was read is kept for later.
    """


class InTime:
    """Pass the progress of many documents on; raise TakesLonger in a `watched` block once their time does not suffice.

    Parameters
    ----------
    n_tokens : float
        Tokens that are to be read, about.
    seconds : float
        Seconds in which they are to be read.

    Attributes
    ----------
    n_read : int
        Tokens that were read.
    """

    def __init__(self, progress: ProgressOfMany, n_tokens: float, seconds: float) -> None:
        self._progress, self._n_tokens, self._seconds = progress, n_tokens, seconds
        self.n_read, self._began, self._is_watched = 0, working_time(), False
        self.notice, self.begin = progress.notice, progress.begin

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch the time from the beginning of a block to its end."""
        self._began, self._is_watched = working_time(), True
        try:
            yield
        finally:
            self._is_watched = False

    def document(self, name: str) -> DocumentProgress:
        """Begin to read a document (see `ProgressOfMany.document`)."""
        return _Document(self, self._progress.document(name))

    @property
    def speed(self) -> float | None:
        """Return the tokens that were read in a second; None before there is a piece for an answer."""
        passed = working_time() - self._began
        return self.n_read / passed if self.n_read > PIECE and passed > 0 else None

    def read(self, n_tokens: int) -> None:
        """Note that tokens were read."""
        self.n_read += n_tokens
        passed, speed = working_time() - self._began, self.speed
        left = max(self._n_tokens - self.n_read, 0) / speed if speed else 0.0
        if self._is_watched and passed + left > self._seconds:
            raise TakesLonger


class _Document(Progress):
    """Pass the progress of a document on."""

    def __init__(self, watch: InTime, progress: DocumentProgress) -> None:
        self._watch, self._progress, self._unit = watch, progress, ""
        self.notice, self.end = progress.notice, progress.end  # type: ignore[method-assign]

    def start(self, task: str, total: int, unit: str, done: int = 0) -> None:
        """Begin a task (see `Progress.start`)."""
        self._unit = unit
        self._progress.start(task, total, unit, done)

    def advance(self, amount: int) -> None:
        """Report that more of the task is done (see `Progress.advance`)."""
        self._progress.advance(amount)
        if self._unit == "tokens":
            self._watch.read(amount)
