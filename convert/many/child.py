"""Read documents in a process of its own: `python -m octavo.convert.many.child`.

The first line on stdin is a job (`Job`), each further line a document (`as_message`), in JSON. The process tells what
it does in lines of JSON on stdout; the last one about a document has `folder`, `error`, or `fatal` if no document can
be read. It ends with stdin. It can be ended at any moment, as an interrupted build loses nothing, and a process that
started it and is gone does not leave it at work: a line that nobody reads ends it.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, TextIO

from ...errors import OctavoError
from .job import CannotLoad, Job, Reader, source_of


class Told:
    """Tells in lines: a `Progress`, and what receives notices.

    Parameters
    ----------
    out : text file
        Where the lines go.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def tell(self, **message: Any) -> None:
        """Write a line."""
        print(json.dumps(message), file=self._out, flush=True)

    def notice(self, sentence: str) -> None:
        """Tell what happens."""
        self.tell(notice=sentence)

    def start(self, task: str, total: int, unit: str, done: int = 0) -> None:
        """Tell that a task begins."""
        self.tell(task=task, total=total, unit=unit, done=done)

    def advance(self, amount: int) -> None:
        """Tell that some more is done."""
        self.tell(advance=amount)


def main() -> None:
    """Read what stdin names."""
    told = Told(os.fdopen(os.dup(1), "w"))
    os.dup2(2, 1)  # what a library prints is no line of ours
    fields = json.loads(sys.stdin.readline())
    job = Job(**fields | {"known": tuple(fields.get("known", ()))})
    os.nice(job.nice)
    reader = Reader(job, told.notice)
    try:
        for line in sys.stdin:
            try:
                told.tell(folder=str(reader.index(source_of(json.loads(line)), told)))
            except CannotLoad as problem:
                told.tell(fatal=str(problem))
                return
            except OctavoError as problem:
                told.tell(error=str(problem))
    except BrokenPipeError:  # nobody waits for it any more
        os._exit(1)
    reader.close()


if __name__ == "__main__":
    main()
