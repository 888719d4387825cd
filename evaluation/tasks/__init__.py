"""The tasks of `octavo eval`: a table of their names, and one file for each.

Importing this package is cheap, so that the command line can take help texts and choices from the table. A new task is
one file with one class (see `task.Task`) and one line here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from .task import Task


class Entry(NamedTuple):
    """One line of the table.

    Parameters
    ----------
    path : str
        Module and class of the task.
    summary : str
        One line for help texts.
    """

    path: str
    summary: str


TASKS = {
    "perplexity": Entry("prediction.Perplexity", "bits per character of prose, the later part given the earlier"),
    "repetition": Entry("repetition.Repetition", "how much of a passage the model repeats, given its beginning"),
    "passkey": Entry("needle.Passkey", "numbers hidden in prose"),
    "needle": Entry("needle.Needle", "facts hidden in prose"),
    "qa": Entry("qa.QA", "questions about paragraphs among unrelated ones"),
    "fixed-context": Entry("fixed_context.FixedContext", "many questions on one indexed document"),
    "longbench": Entry("longbench.LongBench", "a dataset of LongBench, from --data FILE.jsonl"),
    "agreement": Entry("prediction.Agreement", "next-token distributions and attention against dense ones"),
    "sources": Entry("sources.Sources", "whether the sources of right answers are right"),
    "niah-single": Entry("niah.SingleNiah", "RULER: the value of a key, hidden in noise"),
    "niah-multikey": Entry("niah.MultiKeyNiah", "RULER: the value of one of four keys"),
    "niah-multivalue": Entry("niah.MultiValueNiah", "RULER: all four values of a key"),
    "niah-multiquery": Entry("niah.MultiQueryNiah", "RULER: the values of four keys"),
    "variable-tracking": Entry("variable_tracking.VariableTracking", "RULER: all variables of a chain of assignments"),
    "common-words": Entry("common_words.CommonWords", "RULER: the ten most common words of a list"),
    "frequent-words": Entry("frequent_words.FrequentWords", "RULER: the three most frequent of made-up words"),
}


def task_class(name: str) -> type[Task]:
    """Import a task.

    Returns
    -------
    type
        The task's class, a dataclass whose fields all have defaults.
    """
    task: type[Task] = imported(TASKS[name], __package__)
    return task


def imported(entry: Entry, package: str) -> Any:
    """Import the class of a task from a module of a package."""
    module, class_name = entry.path.split(".")
    return getattr(import_module(f".{module}", package), class_name)
