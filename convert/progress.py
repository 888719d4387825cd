"""How long work reports what it has done; the command line draws it."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Receives the progress of one task after another."""

    def start(self, task: str, total: int, unit: str, done: int = 0) -> None:
        """A task begins: `total` units, of which `done` were there already."""

    def advance(self, amount: int) -> None:
        """Some units more are done."""


class Silent:
    """Draws nothing."""

    def start(self, task: str, total: int, unit: str, done: int = 0) -> None: ...

    def advance(self, amount: int) -> None: ...
