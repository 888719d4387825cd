"""Report the progress of long work."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


class LeftOut(str):
    """A notice that a file is left out: who opens the same documents often need not show it each time."""


class Progress(Protocol):
    """Receive notices, and the progress of one task after another. Each method does nothing unless overridden.

    Any object with these three methods will do. A class that derives from this one needs only some of them.
    """

    def notice(self, sentence: str) -> None:
        """Receive a notice, such as that a document is indexed again because it has changed.

        Parameters
        ----------
        sentence : str
            The notice, a sentence.
        """
        return

    def start(self, task: str, total: int, unit: str, done: int = 0) -> None:
        """Begin a task; the task before it has ended.

        Parameters
        ----------
        task : str
            What the task does, such as "Reading report.txt".
        total : int
            Units of the whole task.
        unit : str
            What `total` counts: "tokens" or "layers".
        done : int
            Units that an earlier, interrupted run did.
        """
        return

    def advance(self, amount: int) -> None:
        """Report that more of the task is done.

        Parameters
        ----------
        amount : int
            Further units.
        """
        return


class Silent(Progress):
    """A progress that shows nothing."""


class DocumentProgress(Progress, Protocol):
    """Receive the progress of one document among many."""

    def end(self) -> None:
        """End the work on the document."""


@runtime_checkable
class ProgressOfMany(Protocol):
    """Receive the progress of many documents, which may be read at the same time. One thread calls it."""

    def notice(self, sentence: str) -> None:
        """Receive a notice (see `Progress.notice`)."""

    def begin(self, n_documents: int) -> None:
        """Begin the work on n_documents documents."""

    def document(self, name: str) -> DocumentProgress:
        """Begin to read a document of this name; return the receiver of its progress."""


class _Counted:
    """Report the number of finished documents to a progress."""

    def __init__(self, progress: Progress) -> None:
        self._progress, self.notice = progress, progress.notice

    def begin(self, n_documents: int) -> None:
        self._progress.start("Indexing", n_documents, "documents")

    def document(self, name: str) -> DocumentProgress:
        return _Count(self._progress)


class _Count(Silent):
    """One document of those that are counted."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def end(self) -> None:
        self._progress.advance(1)


class _InTurn:
    """Report one document after another to a progress."""

    def __init__(self, progress: Progress) -> None:
        self._progress, self.notice = progress, progress.notice

    def begin(self, n_documents: int) -> None:
        pass

    def document(self, name: str) -> DocumentProgress:
        return self

    def start(self, task: str, total: int, unit: str, done: int = 0) -> None:
        self._progress.start(task, total, unit, done)

    def advance(self, amount: int) -> None:
        self._progress.advance(amount)

    def end(self) -> None:
        pass


def of_many(progress: Progress | ProgressOfMany, n_at_once: int) -> ProgressOfMany:
    """Return a progress of many documents that reports to a simple progress. A `ProgressOfMany` is returned unchanged.

    If several documents are read at the same time (n_at_once), the simple progress receives only the number of finished
    ones.
    """
    if isinstance(progress, ProgressOfMany):
        return progress
    return _InTurn(progress) if n_at_once == 1 else _Counted(progress)


def before_many(progress: ProgressOfMany) -> Progress:
    """Return a progress for tasks that come before the work on many documents, such as recognising scanned pages."""
    return _BeforeMany(progress)


class _BeforeMany(Progress):
    """Report each task as that of a single document."""

    def __init__(self, many: ProgressOfMany) -> None:
        self._many = many

    def notice(self, sentence: str) -> None:
        self._many.notice(sentence)

    def start(self, task: str, total: int, unit: str, done: int = 0) -> None:
        self._many.begin(1)
        self._document = self._many.document("")
        self._document.start(task, total, unit, done)

    def advance(self, amount: int) -> None:
        self._document.advance(amount)
