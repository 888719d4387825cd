"""How work that takes long reports what it has done."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


class Progress(Protocol):
    """Receives what happens, and the progress of one task after another. Each method does nothing unless overridden.

    Any object with these three methods will do. A class that derives from this one needs only some of them.
    """

    def notice(self, sentence: str) -> None:
        """Something happens, such as that a document is indexed again as it has changed.

        Parameters
        ----------
        sentence : str
            What happens.
        """
        return

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
        return

    def advance(self, amount: int) -> None:
        """Some more is done.

        Parameters
        ----------
        amount : int
            How many units more.
        """
        return


class Silent(Progress):
    """A progress that shows nothing."""


class DocumentProgress(Progress, Protocol):
    """Receives the progress of one document among many."""

    def end(self) -> None:
        """Nothing more is done about the document."""


@runtime_checkable
class ProgressOfMany(Protocol):
    """Receives the progress of many documents, which may be read at the same time. One thread calls it."""

    def notice(self, sentence: str) -> None:
        """Something happens (see `Progress.notice`)."""

    def begin(self, n_documents: int) -> None:
        """The work begins.

        Parameters
        ----------
        n_documents : int
            How many documents there are.
        """

    def document(self, name: str) -> DocumentProgress:
        """A document begins to be read.

        Parameters
        ----------
        name : str
            What it is called.

        Returns
        -------
        DocumentProgress
            Receives how far it is.
        """


class _Counted:
    """Tells a progress how many documents are done."""

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
    """Tells a progress of one document after another."""

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
    """Return a progress of many documents that tells one of one thing after another.

    Parameters
    ----------
    progress : Progress or ProgressOfMany
        What receives the progress in the end. A `ProgressOfMany` is returned as it is.
    n_at_once : int
        How many documents are read at once: of several, it receives only their number.
    """
    if isinstance(progress, ProgressOfMany):
        return progress
    return _InTurn(progress) if n_at_once == 1 else _Counted(progress)
