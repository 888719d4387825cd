"""What a process of its own does for the process that started it: kinds of work, and the messages between the two.

A kind of work is named by its module and class, so that this package need not know those of others.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

from ..errors import OctavoError
from ..progress import Progress
from ..runtime.llama import Llama
from ..runtime.models.load_model import load_model
from ..runtime.store.model_library import LIBRARY, Library
from ..settings import ModelSettings

#: What goes between the two processes, in JSON's types.
Message = dict[str, Any]


class CannotLoad(OctavoError):
    """The model cannot be used: nothing of the work can be done."""


class Sender:
    """Send messages as lines of JSON: a `Progress`, and a receiver of notices.

    Parameters
    ----------
    out : text file
        Where the lines go.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def send(self, **message: Any) -> None:
        """Write a message."""
        print(json.dumps(message), file=self._out, flush=True)

    def notice(self, sentence: str) -> None:
        """Send a sentence about what happens."""
        self.send(notice=sentence)

    def start(self, task: str, total: int, unit: str, done: int = 0) -> None:
        """Send that a task begins."""
        self.send(task=task, total=total, unit=unit, done=done)

    def advance(self, amount: int) -> None:
        """Send that some more is done."""
        self.send(advance=amount)


def receive(message: Message, progress: Progress, notice: Callable[[str], None]) -> None:
    """Pass a message of a `Sender` on.

    Parameters
    ----------
    message : dict
        The message: a task that begins, an amount that is done, or a notice.
    progress : Progress
        Receives tasks and amounts.
    notice : callable
        Receives sentences.
    """
    if "task" in message:
        progress.start(message["task"], message["total"], message["unit"], message["done"])
    elif "advance" in message:
        progress.advance(message["advance"])
    else:
        notice(message["notice"])


class Work(ABC):
    """A kind of work, with what it keeps from one task to the next.

    Parameters
    ----------
    settings : dict
        What all tasks share, in JSON's types.
    sender : Sender
        Sends progress and notices to the process that started this one.
    """

    def __init__(self, settings: dict[str, Any], sender: Sender) -> None:
        self.settings, self.sender = settings, sender

    @abstractmethod
    def do(self, message: Message) -> Message:
        """Do a task.

        Parameters
        ----------
        message : dict
            The task, in JSON's types.

        Returns
        -------
        dict
            The result, in JSON's types.

        Raises
        ------
        CannotLoad
            The model cannot be used.
        OctavoError
            This task cannot be done.
        """

    @abstractmethod
    def close(self) -> None:
        """Close what was opened."""


class ModelWork(Work):
    """Work on a worker of a cluster, with a model that the first task loads.

    The settings have `load`, the client's `ModelSettings` in JSON's types.
    """

    @property
    def library(self) -> Library:
        """The model's library on this machine, for as long as the client is there."""
        model = Path(self.settings["model"])
        return Library(model, Path(self.settings["folder"]) / f"{model.stem}{LIBRARY}")

    @cached_property
    def llama(self) -> Llama:
        """The model, with the client's plan if there is one."""
        settings = self.settings
        plan = Path(settings["folder"], settings["plan"]) if settings["plan"] else None
        try:
            model = {**settings["load"], "model": settings["model"], "n_threads": settings["n_threads"]}
            return load_model(ModelSettings(**model), self.sender.notice, plan=plan and self.library.plan(plan))
        except OctavoError as problem:
            raise CannotLoad(str(problem)) from problem

    def close(self) -> None:
        """Close the model, if it was loaded."""
        if "llama" in vars(self):
            self.llama.close()


def name_of(work: type[Work]) -> str:
    """Return the name of a kind of work."""
    return f"{work.__module__}:{work.__qualname__}"


def first_line(work: str, settings: dict[str, Any]) -> str:
    """Return what a process reads first: the name of the work, and its settings."""
    return json.dumps({"work": work, "settings": settings})


def begin(line: str, sender: Sender) -> Work:
    """Return the work that a first line names."""
    message = json.loads(line)
    module, _, name = message["work"].partition(":")
    work: Work = getattr(import_module(module), name)(message["settings"], sender)
    return work
