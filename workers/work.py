"""Define kinds of work that a process does for another one, and the messages between the two.

A kind of work is named by its module and class, so that this package does not depend on other packages. Work on files
of others has limits of memory and computing time: a small file may unfold.
"""

from __future__ import annotations

import json
import math
import os
import resource
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any, NamedTuple, Self, TextIO

from ..errors import OctavoError
from ..progress import Progress

#: Seconds and bytes for any file, and for each byte of it. The slowest documents take a second for 100 KiB.
_SECONDS, _SECONDS_A_BYTE = 60.0, 30 / 2**20
_BYTES, _BYTES_A_BYTE = 2 << 30, 16

#: What the error of a process says that took more.
TOO_MUCH_MEMORY = "It needs more memory than a file of its size may take."
TOO_MUCH_TIME = "it computed for longer than a file of its size may take"


class WorkLimits(NamedTuple):
    """Seconds of computing, and bytes of memory."""

    seconds: float
    n_bytes: int

    @classmethod
    def of_file(cls, path: str | os.PathLike[str]) -> Self:
        """Return the limits of work on a file."""
        size = 0
        with suppress(OSError):
            size = os.stat(path).st_size
        return cls(_SECONDS + size * _SECONDS_A_BYTE, _BYTES + size * _BYTES_A_BYTE)

    def begin(self) -> None:
        """Let this process take no more from now on. Beyond them the system ends it (SIGXCPU), or refuses memory.

        A system that lacks one of these limits has only the other.
        """
        used = resource.getrusage(resource.RUSAGE_SELF)
        limits = {
            resource.RLIMIT_CPU: math.ceil(used.ru_utime + used.ru_stime + self.seconds),
            resource.RLIMIT_DATA: self.n_bytes,
        }
        for kind, most in limits.items():
            with suppress(OSError, ValueError):
                _, hard = resource.getrlimit(kind)
                resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


#: A message between the two processes, in JSON's types.
Message = dict[str, Any]


class CannotLoad(OctavoError):
    """The model cannot be used, so that all tasks fail."""


class Sender:
    """Send messages as lines of JSON: a `Progress`, and a receiver of notices."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def send(self, **message: Any) -> None:
        """Write a message."""
        print(json.dumps(message), file=self._out, flush=True)

    def notice(self, sentence: str) -> None:
        """Send a notice."""
        self.send(notice=sentence)

    def start(self, task: str, total: int, unit: str, done: int = 0) -> None:
        """Send the beginning of a task."""
        self.send(task=task, total=total, unit=unit, done=done)

    def advance(self, amount: int) -> None:
        """Send the progress of a task."""
        self.send(advance=amount)


def receive(message: Message, progress: Progress, notice: Callable[[str], None]) -> None:
    """Pass on a message of a `Sender`.

    Parameters
    ----------
    message : dict
        The beginning of a task, an amount of progress, or a notice.
    """
    if "task" in message:
        progress.start(message["task"], message["total"], message["unit"], message["done"])
    elif "advance" in message:
        progress.advance(message["advance"])
    else:
        notice(message["notice"])


class Work(ABC):
    """A kind of work, with state that lasts from one task to the next.

    Parameters
    ----------
    settings : dict
        Settings of all tasks, in JSON's types.
    sender : Sender
        Sends progress and notices to the parent process.
    """

    def __init__(self, settings: dict[str, Any], sender: Sender) -> None:
        self.settings, self.sender = settings, sender

    @abstractmethod
    def do(self, message: Message) -> Message:
        """Do a task; the message and the result are in JSON's types.

        Raises
        ------
        CannotLoad
            The model cannot be used.
        OctavoError
            This task cannot be done.
        """

    def limits(self, message: Message) -> WorkLimits | None:
        """Return the limits of a task; None for none."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Close the open files and models."""


def name_of(work: type[Work]) -> str:
    """Return the name of a kind of work."""
    return f"{work.__module__}:{work.__qualname__}"


def first_line(work: str, settings: dict[str, Any]) -> str:
    """Return the first line for a process: the name of the work, and its settings."""
    return json.dumps({"work": work, "settings": settings})


def begin(line: str, sender: Sender) -> Work:
    """Return the work of a first line."""
    message = json.loads(line)
    module, _, name = message["work"].partition(":")
    work: Work = getattr(import_module(module), name)(message["settings"], sender)
    return work
