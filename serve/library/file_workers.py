"""Work on files for requests in processes, a few at once and in threads of their own: others need not wait for them."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ...workers.work import Message
from ...workers.worker_process import WorkerProcess

#: Seconds between looks whether a file is still there.
_LOOK = 0.25


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
        self._shared, self._n_waiting = dict[str, asyncio.Task[Message]](), dict[asyncio.Task[Message], int]()

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

    async def do_once(self, work: str, path: str) -> Message | None:
        """Have work on a file done, for which other callers may wait, too; return the last message.

        It ends with the last of the callers that are not cancelled, or when the file is removed. Return None then.

        Raises
        ------
        Died
            The process ended before.
        """
        task = self._shared.get(path)
        if task is None:
            task = self._shared[path] = asyncio.create_task(self.do(work, {"path": path}))
        self._n_waiting[task] = self._n_waiting.get(task, 0) + 1
        try:
            while not (await asyncio.wait({task}, timeout=_LOOK))[0]:
                if not await asyncio.to_thread(os.path.exists, path):
                    return None
            return task.result()
        finally:
            self._n_waiting[task] -= 1
            if not self._n_waiting[task]:
                del self._n_waiting[task], self._shared[path]
                task.cancel()
