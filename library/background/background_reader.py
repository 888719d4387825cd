"""Read the documents of the queue one after another, in a process that outlives the command that started it.

This supervisor process runs the reader and suspends it (SIGSTOP) while a command or a server computes, or the battery
is low. An upload that a request waits for is read nevertheless, and a low battery suspends no upload. The supervisor
ends the reader if another document comes first, or its document leaves the queue: finished pieces are kept, and the
next reader continues after them.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from ...errors import OctavoError
from ...progress import TimeLeft
from ...system.locks import Busy, do_not_wait, locked
from ...workers.work import Message, receive
from ...workers.worker_process import Died, Ended, WorkerProcess
from .computing import others_compute
from .reading_queue import QueuedDocument, ReadingQueue

#: The work of the reading process: this process does not import it, to stay small.
_WORK = "octavo.library.batch.job:ReadDocuments"

#: Niceness of the reading process.
_NICE = 10

#: Seconds between looks at what others do, and between those at the battery; seconds between notes of the progress.
_LOOK, _LOOK_AT_BATTERY, _NOTE = 0.2, 30.0, 1.0

#: Least percentage of a battery that is not charged.
_LEAST_BATTERY = 40

#: Seconds between attempts to use a queue that fails, and the most of them: an hour's.
_PAUSE, _MOST_FAILURES = 30.0, 120

#: Attempts to take the lock of the queue, and seconds between them: `octavo list` holds it for a moment.
_TRIES, _BETWEEN = 5, 0.1

#: Attempts at a document whose process dies.
_ATTEMPTS = 2


class BackgroundReader:
    """Reads the documents of a queue."""

    def __init__(self, queue: ReadingQueue) -> None:
        self._queue = queue
        self._process: WorkerProcess | None = None
        self._deaths: dict[tuple[str, str], int] = {}
        self._battery_is_low, self._looked = False, 0.0
        self._pid: int | None = None

    def run(self) -> None:
        """Read until nothing is left."""
        n_failures, is_begun = 0, False
        try:
            while True:
                try:
                    if not is_begun:
                        self._queue.end_left_over()
                        is_begun = True
                    if (document := self._queue.next()) is None:
                        return
                    self._read(document)
                    n_failures = 0
                except OctavoError as problem:  # the queue cannot be read or written: its disk may be full for a while
                    n_failures += 1
                    if n_failures == _MOST_FAILURES:
                        raise
                    print(problem, file=sys.stderr, flush=True)
                    self._end()
                    time.sleep(_PAUSE)
        finally:
            self._end()

    def _read(self, document: QueuedDocument) -> None:
        """Read a document, unless another comes before it meanwhile."""
        if self._process is None or json.dumps(self._process.settings) != document.job:
            self._end()
            self._process = WorkerProcess(_WORK, json.loads(document.job))
        process, notes = self._process, _Notes(self._queue, document)
        self._pause(process, notes, document)
        with ThreadPoolExecutor(1) as pool:
            task = {"path": document.path, "guarded": True}
            reading = pool.submit(process.do, task, notes.receive)
            try:
                while not wait([reading], _LOOK).done:
                    if process.pid not in (None, self._pid):
                        self._pid = process.pid
                        self._queue.note_process(process.pid)
                    first = self._queue.next()
                    if first is not None and first.is_same(document):
                        self._pause(process, notes, first)
                    else:
                        self._end()
            except OctavoError:
                self._end()  # the thread waits for it
                raise
        self._note_end(document, reading)

    def _note_end(self, document: QueuedDocument, reading: Future[Message]) -> None:
        """Take a document that was read from the queue, or keep why it was not read."""
        try:
            result = reading.result()
        except Ended:
            return
        except Died as problem:
            key = document.path, document.library
            self._deaths[key] = self._deaths.get(key, 0) + 1
            if self._deaths[key] < _ATTEMPTS:
                return
            what = f"The process that reads it ended {_ATTEMPTS} times, lastly with {problem}."
            result = {"error": what, "may_succeed": True}  # the system ends processes that take too much memory
        if why := result.get("error") or result.get("fatal"):
            self._queue.fail(document, str(why), may_succeed=bool(result.get("may_succeed")))
        else:
            self._queue.finish(document, result["result"]["folders"])

    def _pause(self, process: WorkerProcess, notes: _Notes, document: QueuedDocument) -> None:
        """Halt the process if it has to wait, or let it continue."""
        waits_for = self._waits_for(document)
        process.pause(bool(waits_for))
        notes.wait(waits_for)

    def _waits_for(self, document: QueuedDocument) -> str:
        """Return why to halt: others compute, or the battery is low; "" to read."""
        if document.is_awaited:
            return ""
        if not document.is_upload and time.monotonic() > self._looked + _LOOK_AT_BATTERY:
            self._battery_is_low, self._looked = battery_is_low(), time.monotonic()
        if self._battery_is_low and not document.is_upload:
            return "power"
        return "the answer" if others_compute() else ""

    def _end(self) -> None:
        """End the process that reads."""
        if self._process is not None:
            self._process.end()
            self._process = None


class _Notes:
    """Keep the progress of a document in the queue."""

    def __init__(self, queue: ReadingQueue, document: QueuedDocument) -> None:
        self._queue, self._document = queue, document
        self._task = self._unit = ""
        self._total = self._done = self._before = 0
        self._began = self._noted = 0.0
        self._left, self._waits_for = TimeLeft(0, 0), document.waits_for

    def wait(self, waits_for: str) -> None:
        """Note what the reading waits for; the time of that does not count. "" if it does not wait."""
        if waits_for:
            self._left.restart(self._done, time.monotonic())
        if waits_for != self._waits_for:
            self._waits_for = waits_for
            with suppress(OctavoError):  # only a display
                self._queue.note_waiting(self._document, waits_for)

    def receive(self, message: Message) -> None:
        """Receive a message of the process that reads."""
        receive(message, self, self.notice)

    def notice(self, sentence: str) -> None:
        """Write a notice to the log."""
        print(f"{self._document.name}: {sentence}", file=sys.stderr, flush=True)

    def start(self, task: str, total: int, unit: str, done: int = 0) -> None:
        """Note that a task begins."""
        self._task, self._total, self._unit, self._done, self._before = task, total, unit, done, done
        self._began, self._noted = time.time(), 0.0
        self._left = TimeLeft(done, time.monotonic())
        self.advance(0)

    def advance(self, amount: int) -> None:
        """Note further progress, now and then."""
        self._done += amount
        self._left.note(self._done, time.monotonic())
        if time.monotonic() > self._noted + _NOTE:
            self._noted, left = time.monotonic(), self._left.of(self._total - self._done)
            progress = self._task, self._unit, self._done, self._total, self._began, self._before, left
            with suppress(OctavoError):  # only a display: the reading continues
                self._queue.note_progress(self._document, *progress)


def battery_is_low() -> bool:
    """Return whether the system tells of a battery that is not charged and is below the limit."""
    import psutil

    battery: Any = None
    with suppress(AttributeError, OSError, RuntimeError):  # not on all systems
        battery = psutil.sensors_battery()
    return battery is not None and battery.power_plugged is False and battery.percent < _LEAST_BATTERY


@contextmanager
def _alone(queue: ReadingQueue) -> Iterator[bool]:
    """Hold the lock of the queue. Yield False if another process reads."""
    with ExitStack() as lock:
        is_ours = False
        for _ in range(_TRIES):
            try:
                lock.enter_context(locked(queue.folder, waiting=do_not_wait))
                is_ours = True
                break
            except Busy:
                time.sleep(_BETWEEN)
        yield is_ours


def main() -> None:
    """Read the queue until it is empty, unless another process does."""
    os.nice(_NICE)
    queue, reads = ReadingQueue(), True
    while reads and queue.next() is not None:  # what was added while the lock was released
        with _alone(queue) as reads:
            if reads:
                BackgroundReader(queue).run()


if __name__ == "__main__":
    main()
