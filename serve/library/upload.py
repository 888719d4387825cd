"""Read an uploaded document in a process of its own."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...library.batch.job import ReadDocuments, ReadingJob
from ...workers.work import Message, name_of, receive
from ...workers.worker_process import Died, Ended, WorkerProcess

#: Niceness of a reading: running answers come first.
_NICE = 5


@dataclass
class Progress:
    """Progress of a task of the reading.

    Parameters
    ----------
    task, unit : str
        Name of the task, and its unit.
    total, done : int
        Units in all, and units done.
    began : float
        When the task began, by `time.monotonic`.
    done_before : int
        Units done at that time.
    """

    task: str
    unit: str
    total: int
    done: int
    began: float
    done_before: int

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON for clients."""
        passed, done = time.monotonic() - self.began, self.done - self.done_before
        left = passed / done * (self.total - self.done) if done else None
        counts = {"task": self.task, "unit": self.unit, "total": self.total, "done": self.done}
        return {**counts, "seconds_left": left and round(left, 1)}


class Upload:
    """A document that is being read, or could not be.

    Attributes
    ----------
    process : WorkerProcess
        The process that reads it.
    problem : str
        Why it failed; else "".
    finished : asyncio.Event
        Set at the end.
    folders : sequence of Path
        Folders of the document's index, or of those of all its parts, once it is read.
    created : float
        Time of the upload, in seconds since 1970.
    """

    def __init__(self, file: Path, job: ReadingJob) -> None:
        self.file = file
        self.progress: Progress | None = None
        self.problem, self.finished, self.created = "", asyncio.Event(), time.time()
        self.folders: list[Path] = []
        self.process = WorkerProcess(name_of(ReadDocuments), replace(job, nice=_NICE).as_json())

    @property
    def is_read(self) -> bool:
        """Return whether the document, or all its parts, have indexes."""
        return bool(self.folders)

    @property
    def id(self) -> str:
        """Return its id for clients."""
        return self.file.parent.name

    @property
    def key(self) -> Path:
        """Return what tells it from others."""
        return self.file

    @property
    def name(self) -> str:
        """Return the name of its file."""
        return self.file.name

    async def run(self) -> None:
        """Read the document; `finished` and `problem` hold the result."""
        try:
            result = await asyncio.to_thread(self.process.do, {"path": str(self.file)}, self._receive)
            self.folders = [Path(folder) for folder in result.get("result", {}).get("folders", ())]
            self.problem = result.get("error") or result.get("fatal") or ""
        except Ended:
            pass
        except Died as problem:
            self.problem = f"Reading the document ended with {problem}"
        except OSError as problem:
            self.problem = f"The document cannot be read: {problem.strerror}."
        finally:
            await self.cancel()
            self.finished.set()

    def _receive(self, message: Message) -> None:
        """Receive a message of the process."""
        receive(message, self, self.notice)

    def notice(self, sentence: str) -> None:
        """Ignore notices: clients ask for the progress only."""

    def start(self, task: str, total: int, unit: str, done: int = 0) -> None:
        """Note that a task begins: "Reading" the document, or "Reading part 1 of 3"."""
        verb, _, name = task.partition(" ")
        _, _, part = name.partition(f"{self.name}, part ")
        self.progress = Progress(f"{verb} part {part}" if part else verb, unit, total, done, time.monotonic(), done)

    def advance(self, amount: int) -> None:
        """Note further progress."""
        if self.progress is not None:
            self.progress.done += amount

    async def cancel(self) -> None:
        """End the process."""
        await asyncio.to_thread(self.process.end)
