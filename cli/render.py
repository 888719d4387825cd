"""Print notices and progress on stderr, answers and results on stdout."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import Any

import click

from ..errors import spoken
from ..progress import clock

#: Seconds between lines about a task, without a terminal for a bar.
SECONDS_BETWEEN_LINES = 10


def notice(message: str) -> None:
    """Print a sentence on stderr."""
    click.echo(spoken(message), err=True)


def print_json(value: Any) -> None:
    """Print a result as JSON."""
    click.echo(json.dumps(value, ensure_ascii=False, indent=2))


def stream(pieces: Iterable[str]) -> None:
    """Print an answer as it is written, wrapped between words on a terminal. End its last line, even if interrupted."""
    wrapper = Wrapper(shutil.get_terminal_size().columns) if sys.stdout.isatty() else None
    last = ""
    try:
        for piece in pieces:
            shown = wrapper.add(piece) if wrapper else piece
            last = shown or last
            click.echo(shown, nl=False)
    finally:
        rest = wrapper.rest() if wrapper else ""
        last = rest or last
        click.echo(rest + ("\n" if last and not last.endswith("\n") else ""), nl=False)
    if not last:
        click.echo()


class ThoughtPrinter:
    """Print a model's thoughts on stderr as they come, dimmed and wrapped on a terminal."""

    def __init__(self) -> None:
        self._wrapper = Wrapper(shutil.get_terminal_size().columns) if sys.stderr.isatty() else None
        self._began = False

    def add(self, text: str) -> None:
        """Print a piece of a thought."""
        self._began |= bool(text)
        self._print(self._wrapper.add(text) if self._wrapper else text)

    def end(self) -> None:
        """End the thought with a blank line, if there was one."""
        if self._began:
            self._print((self._wrapper.rest() if self._wrapper else "") + "\n\n")
        self._began = False

    def _print(self, text: str) -> None:
        click.secho(text, dim=True, nl=False, err=True)


class Wrapper:
    """Break the lines of a text that comes in pieces between words, at most `width` columns wide.

    Lines of code blocks and tables stay as they are.
    """

    def __init__(self, width: int) -> None:
        self._width, self._column = width, 0
        self._word, self._blanks = "", ""
        self._line, self._in_code = "", False

    def add(self, piece: str) -> str:
        """Return the text that is ready to print; the last word waits until it is whole."""
        shown = ""
        for character in piece:
            if character == "\n":
                shown += self._take_word() + "\n"
                self._in_code ^= self._line.lstrip().startswith("```")
                self._line, self._column, self._blanks = "", 0, ""
            elif character in " \t":
                shown += self._take_word()
                self._blanks += character
                self._line += character
            else:
                self._word += character
                self._line += character
        return shown

    def rest(self) -> str:
        """Return the last word."""
        return self._take_word()

    def _take_word(self) -> str:
        """Return the next whole word, and the text before it: blanks, or a line end."""
        from rich.cells import cell_len

        word, blanks, self._word = self._word, self._blanks, ""
        if not word:
            return ""
        self._blanks = ""
        as_it_is = self._in_code or self._line.lstrip().startswith(("```", "|"))
        if not as_it_is and self._column and self._column + cell_len(blanks + word) > self._width:
            self._column = cell_len(word)
            return "\n" + word
        self._column += cell_len(blanks + word)
        return blanks + word


@contextmanager
def signs_of_life(task: str) -> Iterator[Callable[[Iterable[Any]], Iterator[Any]]]:
    """Show on a terminal that work is under way, until the first piece of an answer comes.

    Yields
    ------
    callable
        Takes the pieces, and yields them.
    """
    if not sys.stderr.isatty():
        yield iter
        return
    from rich.console import Console

    status = Console(stderr=True, highlight=False).status(f"{task} ...")

    def until_first(pieces: Iterable[Any]) -> Iterator[Any]:
        for piece in pieces:
            status.stop()
            yield piece

    with status:
        yield until_first


def size(n_bytes: float) -> str:
    """Write a number of bytes for people, such as "1.5 MiB"."""
    for unit in ("B", "KiB", "MiB"):
        if n_bytes < 1024:
            return f"{n_bytes:,.0f} {unit}" if unit == "B" else f"{n_bytes:,.1f} {unit}"
        n_bytes /= 1024
    return f"{n_bytes:,.1f} GiB"


@contextmanager
def resumable() -> Iterator[None]:
    """Tell the user who interrupts that no work is lost."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        raise KeyboardInterrupt("Interrupted: the same command resumes where this one stopped.") from interrupt


class TaskProgress(AbstractContextManager["TaskProgress"]):
    """Show a `Progress` (progress.py) on stderr: a bar on a terminal, else a line now and then."""

    def __init__(self) -> None:
        self._bar: Any = None

    def notice(self, sentence: str) -> None:
        notice(sentence)

    def start(self, task: str, total: int, unit: str, done: int = 0) -> None:
        self._close()
        self._task, self._unit, self._total, self._done, self._before = task, unit, total, done, done
        self._started = self._told = time.perf_counter()
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
        elif self._done >= self._total or time.perf_counter() > self._told + SECONDS_BETWEEN_LINES:
            self._told = time.perf_counter()
            notice(f"{self._task}: {' '.join(filter(None, self._fields().values()))}")
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
        rate = f"{clock(1 / speed)} each" if speed < 0.1 else f"{speed:,.{0 if speed >= 10 else 1}f} {self._unit}/s"
        return {"amounts": amounts, "speed": rate, "left": left}

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._close()


def table(columns: list[str], rows: list[list[str]], right: frozenset[str] = frozenset()) -> None:
    """Print a table for people. Cells are cut or folded only if stdout is a terminal.

    Parameters
    ----------
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
    """Write a table in Markdown, without a line end after the last line.

    Parameters
    ----------
    n_left : int
        Number of first columns to align to the left; the others are aligned to the right.
    """
    columns = list(columns)
    rule = ["---"] * n_left + ["---:"] * (len(columns) - n_left)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (columns, rule, *rows))
