"""Work in a process of its own: `python -m octavo.workers.worker_main`.

The first line on stdin names a kind of work and its settings (`work.first_line`), each further line is a task, in JSON.
The process sends messages, lines of JSON, on stdout; the last one about a task has `result`, or `error`, or `fatal` if
no task can be done. `may_succeed` says of an error that memory or disk did not suffice. It ends with stdin. It may be
killed at any moment, as an interrupted build loses no work. If its parent is gone, it ends at the first line that it
cannot write.
"""

from __future__ import annotations

import json
import os
import sys
import traceback

from ..errors import NoRoom, OctavoError, failure
from .work import TOO_MUCH_MEMORY, CannotLoad, Sender, begin


def main() -> None:
    """Do the work that stdin names."""
    sender = Sender(os.fdopen(os.dup(1), "w"))
    os.dup2(2, 1)  # keep prints of libraries out of our lines
    work = begin(sys.stdin.readline(), sender)
    try:
        for line in sys.stdin:
            message = json.loads(line)
            try:
                if (limits := work.limits(message)) is not None:
                    limits.begin()
                sender.send(result=work.do(message))
            except CannotLoad as problem:
                sender.send(fatal=str(problem))
                return
            except NoRoom as problem:
                sender.send(error=str(problem), may_succeed=True)
            except OctavoError as problem:
                sender.send(error=str(problem))
            except MemoryError:
                if limits is not None:
                    sender.send(error=TOO_MUCH_MEMORY)
                else:
                    sender.send(error="Memory ran out: close other programs, and try again.", may_succeed=True)
            except BrokenPipeError:
                raise
            except Exception as problem:  # of any kind: other tasks can be done
                traceback.print_exc()
                sender.send(error=failure("It", problem))
    except BrokenPipeError:  # the parent process is gone
        os._exit(1)
    work.close()


if __name__ == "__main__":
    main()
