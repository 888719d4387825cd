"""Tasks of `octavo eval` over many documents: a table of their names, and one file for each.

Importing this package is cheap. These tasks compare ways to answer from many documents (ways.py), not attentions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..tasks import Entry, imported

if TYPE_CHECKING:
    from .folder_task import FolderTask

FOLDER_TASKS = {
    "folder-needle": Entry("folder_needle.FolderNeedle", "facts, each in one document of a folder"),
    "folder-qa": Entry("folder_qa.FolderQA", "questions about articles, each in one document of a folder"),
    "folder-multikey": Entry(
        "multikey.FolderMultikey", "RULER: the value of one of many keys in the files of a folder"
    ),
    "whole": Entry("whole.Whole", "facts of one kind, all over a novel that is longer than the context"),
    "whole-mention": Entry("whole.WholeMention", "which documents of a folder mention something"),
    "first-answer": Entry("first_answer.FirstAnswer", "facts in a document that is not read yet, half read, or read"),
}


def folder_task_class(name: str) -> type[FolderTask]:
    """Import a task.

    Returns
    -------
    type
        The task's class, a dataclass whose fields all have defaults.
    """
    task: type[FolderTask] = imported(FOLDER_TASKS[name], __package__)
    return task
