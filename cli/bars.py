"""Bars and spinners of rich, which say so while kernels are compiled."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, Task, TextColumn
from rich.progress_bar import ProgressBar
from rich.text import Text

from ..progress import clock, compiling
from .fitting import plain


class _TaskColumn(TextColumn):
    """The name of a task, or that kernels are compiled."""

    def render(self, task: Task) -> Text:
        if seconds := compiling():
            return Text(f"Compiling kernels {clock(seconds)}")
        return super().render(task)


class _MovingBar(BarColumn):
    """A bar that moves while kernels are compiled, and before anything is done."""

    def render(self, task: Task) -> ProgressBar:
        bar = super().render(task)
        bar.pulse = bar.pulse or not task.completed or bool(compiling())
        return bar


def bars(fields: Sequence[str]) -> Progress:
    """Return bars, each with some texts after it."""
    texts = (TextColumn(f"{{task.fields[{name}]}}", markup=False) for name in fields)
    columns = _TaskColumn("{task.description}", markup=False), _MovingBar(), *texts
    return Progress(*columns, console=Console(stderr=True, highlight=False), refresh_per_second=4)


def spinner(task: str) -> Progress:
    """Return a sign of life for a task of unknown length. It leaves nothing behind."""
    columns = SpinnerColumn(), _TaskColumn("{task.description} ...", markup=False)
    spinning = Progress(*columns, console=Console(stderr=True, highlight=False), refresh_per_second=8, transient=True)
    spinning.add_task(plain(task), total=None)
    return spinning
