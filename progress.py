"""Report the progress of long work."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, Self, runtime_checkable

#: Seconds between pictures of a line that changes, and between lines where none can change.
_BETWEEN_PICTURES, _BETWEEN_LINES = 0.25, 10.0

#: Fewest columns of the name of a task.
_LEAST_OF_TASK = 12

#: Least seconds of a measurement of a speed, and the ratio up to which two agree.
_MEASURED, _AGREE = 1.0, 1.3

#: Seconds of compiling from which on it is shown: to find kernels on disk takes less.
_SHOWN_SECONDS = 0.4


class LeftOut(str):
    """A notice that a file, or a part of one, is left out: who opens the same documents need not show it each time."""


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


class TimeLeft:
    """Estimate how long a task takes yet, once two measurements of its speed agree.

    Parameters
    ----------
    done : float
        Units that are done.
    now : float
        The time in seconds, of any clock.
    """

    def __init__(self, done: float, now: float) -> None:
        self._speeds = (0.0, 0.0)
        self.restart(done, now)

    def restart(self, done: float, now: float) -> None:
        """Begin the current measurement anew, as after a pause."""
        self._done, self._at = done, now

    def note(self, done: float, now: float) -> None:
        """Note that more is done."""
        if now - self._at >= _MEASURED and done > self._done:
            self._speeds = self._speeds[1], (done - self._done) / (now - self._at)
            self.restart(done, now)

    def of(self, n_left: float) -> float | None:
        """Return the seconds that the other units take; None as long as that is unknown."""
        slow, fast = sorted(self._speeds)
        return 2 * n_left / (slow + fast) if slow and fast <= _AGREE * slow else None


class AsOne(Progress):
    """Report the parts of a document, which are read one after another, as one task; nothing of their clusters.

    Parameters
    ----------
    lengths : sequence of int
        Tokens of each part.
    """

    def __init__(self, progress: Progress, name: str, lengths: Sequence[int]) -> None:
        self._progress, self._name, self._lengths = progress, name, lengths
        self._before, self._done, self._counts = 0, -1, False

    def part(self, number: int) -> Self:
        """Return the receiver of a part's progress: this one, from now on."""
        self._before = sum(self._lengths[:number])
        return self

    def notice(self, sentence: str) -> None:
        """Pass a notice on."""
        self._progress.notice(sentence)

    def start(self, task: str, total: int, unit: str, done: int = 0) -> None:
        """Begin to read the document, or a part after others."""
        self._counts = unit == "tokens"
        if not self._counts:
            return
        if self._done < 0:
            self._done = self._before + done
            self._progress.start(f"Reading {self._name}", sum(self._lengths), unit, self._done)
        else:
            self.advance(self._before + done - self._done)

    def advance(self, amount: int) -> None:
        """Report that more of the document is read."""
        if self._counts and amount > 0:
            self._done += amount
            self._progress.advance(amount)


class ShownProgress(Progress):
    """A progress that shows itself: a line that changes, in a notebook and on a terminal, else a line now and then.

    In a notebook the line is a part of the cell's output, which needs no widgets. Elsewhere it goes to stderr.
    """

    def __init__(self) -> None:
        self._in_notebook = _in_notebook()
        self._changes = self._in_notebook or sys.stderr.isatty()
        self._between = _BETWEEN_PICTURES if self._changes else _BETWEEN_LINES
        self._done = self._total = self._width = 0
        self._cell: Any = None  # the line in a notebook

    def notice(self, sentence: str) -> None:
        """Show a notice."""
        if self._in_notebook:
            _display(sentence)
            return
        sys.stderr.write(("\n" if self._width else "") + f"{sentence}\n")
        self._width = 0

    def start(self, task: str, total: int, unit: str, done: int = 0) -> None:
        """Show that a task begins."""
        self._task, self._total, self._unit, self._done, self._before = task, total, unit, done, done
        self._began = time.monotonic()
        self._left = TimeLeft(done, self._began)
        self._show()

    def advance(self, amount: int) -> None:
        """Show how far the task is, unless that was shown a moment ago."""
        self._done += amount
        self._left.note(self._done, time.monotonic())
        if self._done >= self._total or time.monotonic() >= self._shown + self._between:
            self._show()

    def _show(self) -> None:
        text, ends, self._shown = self._text(self._task), self._done >= self._total, time.monotonic()
        if not self._changes:
            self.notice(text)
        elif not self._in_notebook:
            text, width = self._in_columns(text)
            sys.stderr.write(f"\r{text}{' ' * (self._width - width)}" + ("\n" if ends else ""))
            sys.stderr.flush()
            self._width = 0 if ends else width
        elif self._cell is None:
            self._cell = _display(text, display_id=True)
        else:
            self._cell.update({"text/plain": text}, raw=True)
        if ends:
            self._cell = None

    def _in_columns(self, text: str) -> tuple[str, int]:
        """Return a line that a terminal does not wrap, for it could not be overwritten, and its columns."""
        from rich.cells import cell_len, set_cell_size

        columns = shutil.get_terminal_size().columns - 1
        if (over := cell_len(text) - columns) > 0:
            name = set_cell_size(self._task, max(cell_len(self._task) - over - 1, _LEAST_OF_TASK)).rstrip()
            text = self._text(f"{name}…")
        text = set_cell_size(text, min(cell_len(text), columns))
        return text, cell_len(text)

    def _text(self, task: str) -> str:
        """Return a task, how far it is, and the time that is left."""
        seconds = max(time.monotonic() - self._began, 1e-9)
        texts, newly = [f"{task}: {self._done:,}/{self._total:,} {self._unit}"], self._done - self._before
        if newly:
            texts.append(f"{newly / seconds:,.1f} {self._unit}/s")
            left = self._left.of(self._total - self._done)
            if self._done >= self._total:
                texts.append(f"in {clock(seconds)}")
            elif left is not None:
                texts.append(f"{clock(left)} left")
        return ", ".join(texts)


def clock(seconds: float) -> str:
    """Write a duration as minutes and seconds, such as "2:05", or with hours: "1:02:05"."""
    minutes, whole_seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{whole_seconds:02d}" if hours else f"{minutes}:{whole_seconds:02d}"


def compiling() -> float:
    """Return the seconds for which this process has waited for kernels if it does now, and longer than for a moment.

    Otherwise 0.
    """
    watch = _watch()
    return compiled_for() if watch is not None and watch.compiling_now() >= _SHOWN_SECONDS else 0.0


def compiled_for() -> float:
    """Return the seconds for which this process has waited for kernels so far."""
    return watch.compiling_time() if (watch := _watch()) is not None else 0.0


def _watch() -> Any:
    return sys.modules.get("octavo.system.working_time")


def _in_notebook() -> bool:
    """Return whether this runs in a cell: in IPython, with a kernel."""
    ipython: Any = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


def _display(text: str, **options: Any) -> Any:
    return import_module("IPython.display").display({"text/plain": text}, raw=True, **options)


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


@dataclass
class _InTurn:
    """Report one document after another to a progress."""

    progress: Progress

    def notice(self, sentence: str) -> None:
        self.progress.notice(sentence)

    def begin(self, n_documents: int) -> None:
        pass

    def document(self, name: str) -> DocumentProgress:
        return self

    def start(self, task: str, total: int, unit: str, done: int = 0) -> None:
        self.progress.start(task, total, unit, done)

    def advance(self, amount: int) -> None:
        self.progress.advance(amount)

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


class BeforeMany(Progress):
    """Report tasks that come before the work on many documents, such as recognising pages: each as a document's."""

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
