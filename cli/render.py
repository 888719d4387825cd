"""Show what commands say: notices and progress on stderr, answers and results on stdout."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import Any

import click


def notice(message: str) -> None:
    """Print a sentence on stderr.

    Parameters
    ----------
    message : str
        The sentence.
    """
    click.echo(message, err=True)


def print_json(value: Any) -> None:
    """Print a result for programs.

    Parameters
    ----------
    value : object
        Anything that JSON can hold.
    """
    click.echo(json.dumps(value, ensure_ascii=False, indent=2))


def stream(pieces: Iterable[str]) -> None:
    """Print an answer as it is written. End its last line, even if it is interrupted.

    Parameters
    ----------
    pieces : iterable of str
        Pieces of the answer.
    """
    last = None
    try:
        for piece in pieces:
            last = piece or last
            click.echo(piece, nl=False)
    except BaseException:
        if last and not last.endswith("\n"):
            click.echo()
        raise
    if not last or not last.endswith("\n"):
        click.echo()


def size(n_bytes: float) -> str:
    """Write a number of bytes for people.

    Parameters
    ----------
    n_bytes : float
        Number of bytes.

    Returns
    -------
    str
        Such as "1.5 MiB".
    """
    for unit in ("B", "KiB", "MiB"):
        if n_bytes < 1024:
            return f"{n_bytes:,.0f} {unit}" if unit == "B" else f"{n_bytes:,.1f} {unit}"
        n_bytes /= 1024
    return f"{n_bytes:,.1f} GiB"


@contextmanager
def resumable() -> Iterator[None]:
    """Tell the user who interrupts that nothing is lost."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        raise KeyboardInterrupt("Interrupted: the same command goes on where this one stopped.") from interrupt


class TaskProgress(AbstractContextManager["TaskProgress"]):
    """Show a `convert.progress.Progress` on stderr: a bar on a terminal, else a line at each end of a task."""

    def __init__(self) -> None:
        self._bar: Any = None

    def start(self, task: str, total: int, unit: str, done: int = 0) -> None:
        self._close()
        self._task, self._unit, self._total, self._done, self._before = task, unit, total, done, done
        self._started = time.perf_counter()
        if sys.stderr.isatty():
            self._draw()
        else:
            notice(f"{task}: {total:,} {unit}" + (f", {done:,} of them done before" if done else ""))
        if done >= total:
            self._close()

    def advance(self, amount: int) -> None:
        self._done += amount
        if self._bar is not None:
            self._bar.update(self._id, completed=self._done, **self._fields())
        elif self._done >= self._total:
            notice(f"{self._task}: {' '.join(self._fields().values())}")
        if self._done >= self._total:
            self._close()

    def _draw(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        columns = (TextColumn(f"{{task.fields[{name}]}}", markup=False) for name in ("amounts", "speed", "left"))
        console = Console(stderr=True, highlight=False)
        self._bar = Progress(
            TextColumn("{task.description}", markup=False), BarColumn(), *columns, console=console, refresh_per_second=4
        )
        self._id = self._bar.add_task(self._task, total=self._total, completed=self._done, **self._fields())
        self._bar.start()

    def _fields(self) -> dict[str, str]:
        """Return the texts next to the bar."""
        seconds = time.perf_counter() - self._started
        amounts = f"{self._done:,}/{self._total:,} {self._unit}"
        if self._done == self._before:
            return {"amounts": amounts, "speed": "", "left": ""}
        speed = (self._done - self._before) / max(seconds, 1e-9)
        if self._done >= self._total:
            left = f"in {clock(seconds)}"
        else:
            left = f"{clock((self._total - self._done) / speed)} left"
        return {"amounts": amounts, "speed": f"{speed:,.{0 if speed >= 10 else 1}f} {self._unit}/s", "left": left}

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._close()


def clock(seconds: float) -> str:
    """Write a duration as minutes and seconds, or with hours.

    Parameters
    ----------
    seconds : float
        The duration.

    Returns
    -------
    str
        Such as "2:05" or "1:02:05".
    """
    minutes, whole_seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{whole_seconds:02d}" if hours else f"{minutes}:{whole_seconds:02d}"


def table(columns: list[str], rows: list[list[str]], right: frozenset[str] = frozenset()) -> None:
    """Print a table for people. Nothing is cut or folded unless stdout is a terminal.

    Parameters
    ----------
    columns : list of str
        Headings.
    rows : list of list of str
        Cells of each row.
    right : frozenset of str
        Headings of the columns to align to the right.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=sys.stdout, highlight=False)
    if not console.is_terminal:
        console.width = 10_000
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in columns:
        drawn.add_column(name, justify="right" if name in right else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*(Text(cell) for cell in row))
    console.print(drawn)


def markdown_table(columns: Iterable[str], rows: Iterable[Iterable[str]], n_left: int = 1) -> str:
    """Write a table in Markdown.

    Parameters
    ----------
    columns : iterable of str
        Headings.
    rows : iterable of iterable of str
        Cells of each row.
    n_left : int
        Number of first columns to align to the left; the others are aligned to the right.

    Returns
    -------
    str
        Lines of the table, without a line end after the last one.
    """
    columns = list(columns)
    rule = ["---"] * n_left + ["---:"] * (len(columns) - n_left)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (columns, rule, *rows))
