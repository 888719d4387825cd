"""The tasks of `octavo eval`: a table of their names, and one file for each.

Importing this package is cheap, so that the command line can take help texts and choices from the table. A new task is
one file with one class (see `task.Task`) and one line here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .task import Task


class Entry(NamedTuple):
    """One line of the table.

    Parameters
    ----------
    class_name : str
        Name of the task's class. Its module is named after the task, with underscores.
    summary : str
        What the task measures, in a line, for help texts.
    """

    class_name: str
    summary: str


TASKS = {
    "perplexity": Entry("Perplexity", "bits per character of prose, the later part given the earlier"),
    "repetition": Entry("Repetition", "how much of a passage the model repeats, given its beginning"),
    "passkey": Entry("Passkey", "numbers hidden in prose"),
    "needle": Entry("Needle", "facts hidden in prose"),
    "qa": Entry("QA", "questions about paragraphs among unrelated ones"),
    "fixed-context": Entry("FixedContext", "many questions on one indexed document"),
    "agreement": Entry("Agreement", "next-token distributions and attention against dense ones"),
}


def task_class(name: str) -> type[Task]:
    """Import a task.

    Parameters
    ----------
    name : str
        A key of `TASKS`.

    Returns
    -------
    type
        The task's class, a dataclass whose fields all have defaults.
    """
    module = import_module(f".{name.replace('-', '_')}", __package__)
    task: type[Task] = getattr(module, TASKS[name].class_name)
    return task
