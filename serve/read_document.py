"""Read a document in a process of its own: `python -m octavo.serve.read_document`, with a job in JSON on stdin.

It tells what it does in lines of JSON on stdout. A process of its own can be cancelled at any moment, as an interrupted
build loses nothing, and answers that are under way do not wait for its batches.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

#: How much answers that are under way come before a reading.
_NICE = 5


def tell(**message: Any) -> None:
    """Write a line."""
    print(json.dumps(message), flush=True)


class ToldProgress:
    """Tells how far the work is."""

    def start(self, task: str, total: int, unit: str, done: int = 0) -> None:
        """Tell that a task begins."""
        tell(task=task, total=total, unit=unit, done=done)

    def advance(self, amount: int) -> None:
        """Tell that some more is done."""
        tell(advance=amount)


def main() -> None:
    """Index the document of the job."""
    from .. import index_documents
    from ..errors import OctavoError

    os.nice(_NICE)
    job = json.load(sys.stdin)
    try:
        [folder] = index_documents(
            [job.pop("path")], job.pop("model"), **job, progress=ToldProgress(), notice=lambda text: tell(notice=text)
        )
    except OctavoError as problem:
        tell(error=str(problem))
        sys.exit(1)
    tell(folder=str(folder))


if __name__ == "__main__":
    main()
