"""Start a process that works for this one, and talk to it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from .work import TOO_MUCH_TIME, Message, first_line

#: Command of the process.
COMMAND = [sys.executable, "-P", "-m", "octavo.workers.worker_main"]

#: Seconds for a process to end.
_GRACE = 10

#: Seconds of a paused process between two moments in which it runs, and of such a moment.
_BREATHES_EVERY, _BREATH = 2.0, 0.05


class Died(Exception):
    """The process died without a reason; the message holds all that is known."""


class Ended(Exception):
    """The process was ended on purpose."""


class WorkerProcess:
    """A process that does one task after another with one model.

    It has no terminal: Ctrl-C reaches the parent process, which ends this one.

    Parameters
    ----------
    work : str
        The kind of work (`work.name_of`).
    settings : dict
        Settings of all tasks.
    """

    def __init__(self, work: str, settings: dict[str, Any]) -> None:
        self.work, self.settings = work, settings
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._is_ended = self._is_paused = False
        self._continues = threading.Event()

    def do(self, task: Message, receive: Callable[[Message], None]) -> Message:
        """Have a task done; return the last message, which has `result`, `error` or `fatal`.

        Parameters
        ----------
        receive : callable
            Receives each message of the process.

        Raises
        ------
        Died
            The process ended before.
        Ended
            It was ended by `end`.
        """
        with self._lock:
            if self._is_ended:
                raise Ended
            if self._process is None:
                self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
                pipe = subprocess.PIPE
                # A group of its own keeps Ctrl-C away. In the parent's session, the system ends a paused process
                # when its parent dies (POSIX 2.4.3, orphaned process groups).
                self._process = subprocess.Popen(
                    COMMAND, stdin=pipe, stdout=pipe, stderr=self._errors, text=True, process_group=0
                )
                if self._is_paused:
                    self._process.send_signal(signal.SIGSTOP)
                first = [first_line(self.work, self.settings)]
            else:
                first = []
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):
            process.stdin.write("\n".join([*first, json.dumps(task)]) + "\n")
            process.stdin.flush()
        for line in process.stdout:
            message: Message = json.loads(line)
            if message.keys() & {"result", "error", "fatal"}:
                return message
            receive(message)
        code = process.wait()
        if self._is_ended:
            raise Ended
        self._errors.seek(0)
        last = self._errors.read().decode(errors="replace").strip().rpartition("\n")[2]
        self._process = None
        last = TOO_MUCH_TIME if code == -signal.SIGXCPU else last
        raise Died(f"code {code}" + (f": {last}" if last else ""))

    @property
    def pid(self) -> int | None:
        """Return the number of the process; None before its first task."""
        return None if self._process is None else self._process.pid

    def pause(self, pauses: bool) -> None:
        """Halt the process wherever it is, or let it continue: it takes no CPU while others need it."""
        with self._lock:
            if pauses == self._is_paused:
                return
            self._is_paused = pauses
            self._halt(pauses)
            self._continues.set()
            if pauses:
                self._continues = threading.Event()
                threading.Thread(target=self._let_breathe, args=(self._continues,), daemon=True).start()

    def _let_breathe(self, continues: threading.Event) -> None:
        """Let a paused process run for a moment now and then: it may hold a lock that others wait for."""
        while not continues.wait(_BREATHES_EVERY):
            for pauses in (False, True):
                with self._lock:
                    if continues.is_set():
                        return
                    self._halt(pauses)
                if not pauses:
                    time.sleep(_BREATH)

    def _halt(self, pauses: bool) -> None:
        """Send the signal to halt or to continue."""
        if self._process is not None and not self._is_ended:
            self._process.send_signal(signal.SIGSTOP if pauses else signal.SIGCONT)

    def end(self) -> None:
        """End the process at once. An interrupted build resumes later."""
        with self._lock:
            self._is_ended, process = True, self._process
            self._continues.set()
        if process is None:
            return
        process.terminate()
        process.send_signal(signal.SIGCONT)  # a paused process does not end
        try:
            process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
