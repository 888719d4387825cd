"""A document while it is read, by a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...library.batch.job import ReadDocuments
from ...workers.work import first_line, name_of
from ...workers.worker_process import COMMAND

#: How much answers that are under way come before a reading.
_NICE = 5

#: What a process that was ended may take to leave a build that can go on, in seconds.
_GRACE = 10


@dataclass
class Progress:
    """How far a task of the reading is.

    Parameters
    ----------
    task, unit : str
        What is done, and what is counted.
    total, done : int
        How much there is, and how much of it is done.
    began : float
        When the task began, by `time.monotonic`.
    done_before : int
        How much of it was done then.
    """

    task: str
    unit: str
    total: int
    done: int
    began: float
    done_before: int

    def as_json(self) -> dict[str, Any]:
        """Return it for clients."""
        passed, done = time.monotonic() - self.began, self.done - self.done_before
        left = passed / done * (self.total - self.done) if done else None
        known = {"task": self.task, "unit": self.unit, "total": self.total, "done": self.done}
        return {**known, "seconds_left": left and round(left, 1)}


class Reading:
    """A document that is read, or could not be.

    Parameters
    ----------
    file : Path
        The document's file.
    job : dict
        How it is read: fields of `Job` (library/batch/job.py).

    Attributes
    ----------
    progress : Progress or None
        How far it is; None while it waits.
    problem : str
        Why it failed; "" if it did not.
    finished : asyncio.Event
        Set when it is over.
    created : float
        When it began, in seconds since 1970.
    """

    def __init__(self, file: Path, job: dict[str, Any]) -> None:
        self.file, self._job = file, {**job, "nice": _NICE, "whole": True}  # answers are over one document
        self.progress: Progress | None = None
        self.problem, self.finished, self.created = "", asyncio.Event(), time.time()
        self._process: asyncio.subprocess.Process | None = None
        self._cancelled = False

    async def run(self) -> None:
        """Read the document; `finished` and `problem` say how it ended."""
        try:
            if not self._cancelled:
                await self._run()
        except OSError as problem:
            self.problem = f"The document cannot be read: {problem.strerror}."
        finally:
            self.finished.set()

    async def _run(self) -> None:
        pipe = asyncio.subprocess.PIPE
        self._process = process = await asyncio.create_subprocess_exec(
            *COMMAND, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
        )  # Ctrl-C in a terminal is the server's alone, which then ends the process
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        errors = asyncio.create_task(process.stderr.read())
        lines = [first_line(name_of(ReadDocuments), self._job), json.dumps({"path": str(self.file)})]
        process.stdin.write("".join(f"{line}\n" for line in lines).encode())
        process.stdin.close()
        async for line in process.stdout:
            self._hear(json.loads(line))
        code = await process.wait()
        if code and not self.problem and not self._cancelled:
            last = (await errors).decode(errors="replace").strip().rpartition("\n")[2]
            self.problem = f"Reading the document ended with code {code}: {last or 'it said nothing'}"

    def _hear(self, message: dict[str, Any]) -> None:
        """Take note of a line that the process wrote."""
        if "task" in message:
            done, task = message["done"], message["task"].partition(" ")[0]
            self.progress = Progress(task, message["unit"], message["total"], done, time.monotonic(), done)
        elif "advance" in message and self.progress is not None:
            self.progress.done += message["advance"]
        elif message.keys() & {"error", "fatal"}:
            self.problem = message.get("error") or message["fatal"]

    async def cancel(self) -> None:
        """End it."""
        self._cancelled = True
        process = self._process
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), _GRACE)
            except TimeoutError:
                process.kill()
                await process.wait()
