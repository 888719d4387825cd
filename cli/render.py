"""Print notices and progress on stderr, answers and results on stdout."""

from __future__ import annotations

import io
import json
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import Any

import click

from ..errors import shown, spoken, well_formed
from ..progress import TimeLeft, clock, compiled_for
from .fitting import Wrapper, columns_of, shortened, wrapped

#: Seconds between lines about a task, without a terminal for a bar.
SECONDS_BETWEEN_LINES = 10

#: The name of a task takes at most this part of a line; a line of fewer columns has no speed.
NAMES_SHARE, WITH_SPEED = 3, 76


#: The bars that are drawn now. What is printed meanwhile stands above them.
_drawn: list[Any] = []

#: Control characters that JSON allows in strings.
_LATE_CONTROLS = re.compile("[\x7f-\x9f]")

#: Whether only answers, results and errors are printed.
_is_quiet = False


def be_quiet(quiet: bool) -> None:
    """Print no notices and no progress from now on, or print them again."""
    global _is_quiet
    _is_quiet = quiet


def is_quiet() -> bool:
    """Return whether only answers, results and errors are printed."""
    return _is_quiet


def shows_bars() -> bool:
    """Return whether progress is drawn: on a terminal."""
    return not _is_quiet and sys.stderr.isatty()


def notice(message: str) -> None:
    """Print a sentence on stderr, unless octavo is to be quiet."""
    if not _is_quiet:
        say(spoken(shown(message)))


def say(message: str, indent: str = "") -> None:
    """Print on stderr what the user asked for: on a terminal wrapped between words, above the bars.

    `indent` precedes all lines but the first.
    """
    message = wrapped(message, columns_of(sys.stderr), indent)
    if _drawn:
        _drawn[-1].console.print(message, markup=False, highlight=False, soft_wrap=True)
    else:
        click.echo(message, err=True)


def draw(bars: Any) -> None:
    """Draw bars, or another live display of rich, in place of a spinner."""
    for spinner in _drawn:
        spinner.stop()
    bars.start()
    _drawn.append(bars)


def stop_drawing(bars: Any) -> None:
    """Leave bars as they are. A spinner that was there before turns again."""
    if bars in _drawn:
        _drawn.remove(bars)
        bars.stop()
        for spinner in _drawn:
            spinner.start()


@contextmanager
def spinning(task: str) -> Iterator[None]:
    """Show on a terminal that work is under way, wherever no bar is."""
    if not shows_bars():
        yield
        return
    from .bars import spinner

    status = spinner(task)
    draw(status)
    try:
        yield
    finally:
        stop_drawing(status)


def print_json(value: Any) -> None:
    """Print a result as JSON. Names that are not UTF-8 make it ASCII, so that Python reads them as they are."""
    click.echo(as_json(value, indent=2))


def as_json(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON, in which a terminal finds no control characters: JSON itself escapes only some."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    if well_formed(text) != text:
        return json.dumps(value, indent=indent)
    return _LATE_CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def stream(pieces: Iterable[str]) -> None:
    """Print an answer as it is written, wrapped between words on a terminal. End its last line, even if interrupted."""
    width = columns_of(sys.stdout)
    wrapper = Wrapper(width) if width else None
    last = ""
    try:
        for piece in pieces:
            shown = wrapper.add(piece) if wrapper else piece  # a pipe gets what the model wrote
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
        width = columns_of(sys.stderr)
        self._wrapper = Wrapper(width) if width else None
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


@contextmanager
def signs_of_life(task: str) -> Iterator[Callable[[Iterable[Any]], Iterator[Any]]]:
    """Show on a terminal that work is under way, until the first piece of an answer comes. Then nothing is drawn.

    Yields
    ------
    callable
        Takes the pieces, and yields them.
    """
    with spinning(task):

        def until_first(pieces: Iterable[Any]) -> Iterator[Any]:
            for piece in pieces:
                while _drawn:  # a reading that was given up has a bar
                    _drawn.pop().stop()
                yield piece

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
        self._with_speed = True

    def notice(self, sentence: str) -> None:
        notice(sentence)

    def start(self, task: str, total: int, unit: str, done: int = 0) -> None:
        self._close()
        self._task, self._unit, self._total, self._done, self._before = task, unit, total, done, done
        self._started = self._told = time.perf_counter()
        self._compiled = compiled_for()
        self._left = TimeLeft(done, self._started - self._compiled)
        if shows_bars():
            self._draw()
        else:
            notice(f"{task}: {total:,} {unit}" + (f", {done:,} of them done before" if done else ""))
        if done >= total:
            self._close()

    def advance(self, amount: int) -> None:
        self._done += amount
        self._left.note(self._done, time.perf_counter() - compiled_for())
        if self._bar is not None:
            self._bar.update(self._id, completed=self._done, **self._fields())
        elif self._done >= self._total or time.perf_counter() > self._told + SECONDS_BETWEEN_LINES:
            self._told = time.perf_counter()
            notice(f"{self._task}: {' '.join(filter(None, self._fields().values()))}")
        if self._done >= self._total:
            self._close()

    def end(self) -> None:
        """Leave the bar of a task that was given up as it is."""
        self._close()

    def _draw(self) -> None:
        from .bars import bars

        self._bar = bars(("amounts", "speed", "left"))
        width = self._bar.console.width
        task = shortened(self._task, width // NAMES_SHARE)
        self._with_speed = width >= WITH_SPEED
        self._id = self._bar.add_task(task, total=self._total, completed=self._done, **self._fields())
        draw(self._bar)

    def _fields(self) -> dict[str, str]:
        seconds = time.perf_counter() - self._started
        amounts = f"{self._done:,}/{self._total:,} {self._unit}"
        if self._done == self._before:
            return {"amounts": amounts, "speed": "", "left": ""}
        worked = seconds - (compiled_for() - self._compiled)
        speed = (self._done - self._before) / max(worked, 1e-9)
        seconds_left = self._left.of(self._total - self._done)
        if self._done >= self._total:
            left = f"in {clock(seconds)}"
        else:
            left = "" if seconds_left is None else f"{clock(seconds_left)} left"
        rate = f"{clock(1 / speed)} each" if speed < 0.1 else f"{speed:,.{0 if speed >= 10 else 1}f} {self._unit}/s"
        return {"amounts": amounts, "speed": rate if self._with_speed else "", "left": left}

    def _close(self) -> None:
        if self._bar is not None:
            stop_drawing(self._bar)
            self._bar = None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._close()


def csv_table(columns: Iterable[str], rows: Iterable[dict[str, Any]]) -> str:
    """Write these columns of rows as CSV, without a line end after the last line."""
    import csv

    text = io.StringIO()
    writer = csv.DictWriter(text, list(columns), extrasaction="ignore", restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().rstrip("\n")


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
