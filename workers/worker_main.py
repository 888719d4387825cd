"""Work in a process of its own: `python -m octavo.workers.worker_main`.

The first line on stdin names a kind of work and its settings (`work.first_line`), each further line is a task, in JSON.
The process tells what it does in lines of JSON on stdout; the last one about a task has `result`, or `error`, or
`fatal` if no task can be done. It ends with stdin. It can be ended at any moment, as an interrupted build loses
nothing, and a process that started it and is gone does not leave it at work: a line that nobody reads ends it.
"""

from __future__ import annotations

import json
import os
import sys

from ..errors import OctavoError
from .work import CannotLoad, Told, begin


def main() -> None:
    """Do what stdin names."""
    told = Told(os.fdopen(os.dup(1), "w"))
    os.dup2(2, 1)  # what a library prints is no line of ours
    work = begin(sys.stdin.readline(), told)
    try:
        for line in sys.stdin:
            try:
                told.tell(result=work.do(json.loads(line)))
            except CannotLoad as problem:
                told.tell(fatal=str(problem))
                return
            except OctavoError as problem:
                told.tell(error=str(problem))
    except BrokenPipeError:  # nobody waits for it any more
        os._exit(1)
    work.close()


if __name__ == "__main__":
    main()
