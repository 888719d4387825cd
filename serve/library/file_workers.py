"""Work on files for requests in processes, a few at once and in threads of their own: others need not wait for them."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ...workers.work import Message
from ...workers.worker_process import WorkerProcess


class FileWorkers:
    """Processes that work on files, a new one for each, as a hostile file may end it.

    Parameters
    ----------
    settings : dict
        Settings of their work.
    at_once : int
        Most processes at once; other files wait.
    """

    def __init__(self, settings: dict[str, Any], at_once: int) -> None:
        self._settings, self._threads = settings, ThreadPoolExecutor(at_once, "octavo-works-on-files")

    async def do(self, work: str, task: Message) -> Message:
        """Have a task done; return the last message, as `WorkerProcess.do` does.

        If the caller is cancelled, the process ends.

        Parameters
        ----------
        work : str
            The kind of work (`work.name_of`), which limits its time and its memory.

        Raises
        ------
        Died
            The process ended before.
        """
        process = WorkerProcess(work, self._settings)
        try:
            return await asyncio.get_running_loop().run_in_executor(
                self._threads, process.do, task, lambda message: None
            )
        finally:
            threading.Thread(target=process.end, daemon=True).start()
