"""Let one thread at a time use a conversation, and draw one answer at a time: a model computes one sequence."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

from ..errors import OctavoError
from ..library.background.computing import computing

_Part = TypeVar("_Part")


class _Use(NamedTuple):
    """A use of the conversation: its thread, and the answer that it draws, if it does."""

    thread: int
    answer: Generator[object, None, None] | None = None


class OneThread:
    """Refuses a second thread while a first one uses a conversation, and ends an answer before another one begins."""

    def __init__(self) -> None:
        self._lock, self._uses = threading.Lock(), list[_Use]()

    @contextmanager
    def held(self, answer: Generator[object, None, None] | None = None, ends_answer: bool = True) -> Iterator[None]:
        """Hold the conversation for this thread.

        Parameters
        ----------
        answer : generator, optional
            The answer that is drawn meanwhile.
        ends_answer : bool
            Whether an answer that this thread has not drawn to its end must end now.

        Raises
        ------
        OctavoError
            Another thread holds the conversation.
        """
        use = _Use(threading.get_ident(), answer)
        with self._lock:
            if any(other.thread != use.thread for other in self._uses):
                raise OctavoError(
                    "Another thread is using this conversation: wait until its answer ends, or open another one."
                )
            open_answers = [other for other in self._uses if ends_answer and other.answer is not None]
            self._uses = [*(other for other in self._uses if other not in open_answers), use]
        try:
            for other in open_answers:
                if other.answer is not None:
                    other.answer.close()
            yield
        finally:
            with self._lock:
                self._uses = [other for other in self._uses if other is not use]

    def drawn(self, answer: Generator[_Part, None, None]) -> Generator[_Part, None, None]:
        """Yield the parts of an answer. Meanwhile hold the conversation, and halt the background reader."""
        with self.held(answer), computing():
            yield from answer
