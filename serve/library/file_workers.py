"""Work on files for requests in processes, a few at once and in threads of their own: others need not wait for them."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ...workers.work import Message, Work, name_of
from ...workers.worker_process import Died, WorkerProcess


class FileWorkers:
    """Processes of one kind of work, a new one for each file, as a hostile file may end it.

    Parameters
    ----------
    work : type of Work
        The kind of work, which limits its time and its memory.
    settings : dict
        Its settings.
    at_once : int
        Most processes at once; other files wait.
    """

    def __init__(self, work: type[Work], settings: dict[str, Any], at_once: int) -> None:
        self._work, self._settings = name_of(work), settings
        self._threads = ThreadPoolExecutor(at_once, f"octavo-{work.__name__}")

    async def do(self, task: Message) -> Message:
        """Return what `WorkerProcess.do` returns. If the caller is cancelled, the process ends."""
        process = WorkerProcess(self._work, self._settings)
        try:
            return await asyncio.get_running_loop().run_in_executor(
                self._threads, process.do, task, lambda message: None
            )
        except Died as problem:
            return {"error": f"The process that works on it ended with {problem}."}
        finally:
            threading.Thread(target=process.end, daemon=True).start()
