"""Other tasks for the engine's thread than answers, in steps: between the steps of a long one answers continue."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Any, TypeAlias, TypeVar

from ...ask.context.answer_context import BatchRead
from ...ask.context.whole.finding import PartsAnswered
from .request import PromptProgress

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")

#: Receives how far a text is read, or how many parts have answered, in the engine's thread.
Report: TypeAlias = Callable[[PromptProgress | PartsAnswered], None]


class Tasks:
    """Tasks that wait for their next step."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Generator[None, None, Any], Future[Any]]] = deque()
        self._abandoned: set[Future[Any]] = set()

    def __len__(self) -> int:
        """Return how many tasks wait for a step."""
        return len(self._waiting)

    def add(self, steps: Generator[None, None, _Result]) -> Future[_Result]:
        """Add a task. It yields after each step, and returns its result."""
        future = Future[_Result]()
        self._waiting.append((steps, future))
        return future

    async def result(self, future: Future[_Result]) -> _Result:
        """Wait for a task's result. If the caller is cancelled, the task ends in place of its next step."""
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            self._abandoned.add(future)
            raise

    def run_step(self) -> None:
        """Run a step of the task that has waited longest, if there is any."""
        if not self._waiting:
            self._abandoned.clear()
            return
        steps, future = self._waiting.popleft()
        if future in self._abandoned:
            self._abandoned.remove(future)
            _close(steps)
            return
        if not future.running() and not future.set_running_or_notify_cancel():
            return
        try:
            next(steps)
        except StopIteration as end:
            future.set_result(end.value)
        except Exception as problem:
            future.set_exception(problem)
        else:
            self._waiting.append((steps, future))

    def fail(self, problem: Exception) -> None:
        """End all tasks."""
        while self._waiting:
            steps, future = self._waiting.popleft()
            _close(steps)
            if future.running() or future.set_running_or_notify_cancel():
                future.set_exception(problem)


def _close(steps: Generator[None, None, Any]) -> None:
    """End a task between two steps. An error on its way out harms no other task."""
    try:
        steps.close()
    except Exception:
        _log.exception("A task did not end well.")


def reported(steps: Generator[object, None, _Result], report: Report | None) -> Generator[None, None, _Result]:
    """Return a task whose steps may read text, and report how far it is read."""
    began = time.monotonic()
    while True:
        try:
            step = next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        if isinstance(step, BatchRead) and report is not None:
            report(PromptProgress(step.total, 0, step.done, time.monotonic() - began))
        yield


def once(task: Callable[[], _Result]) -> Generator[None, None, _Result]:
    """Return a task of one step."""
    yield from ()
    return task()
