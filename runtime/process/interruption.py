"""Put Ctrl-C off until a step is complete, or abandon its computation between two nodes of llama.cpp's graph.

A signal that Python handles in the middle of a step would leave counts, rows and threads that do not agree.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass
class Interruption:
    """A flag to abandon a graph. A signal may come inside the lock of a threading.Event, so it does not use one."""

    came: bool = False

    def __call__(self, *_: Any) -> None:
        """Note a signal, as its handler."""
        self.came = True


@contextmanager
def shielded(interruption: Interruption | None = None) -> Iterator[Interruption]:
    """Have Ctrl-C set a flag within this context, and take effect at its end, or at the end of the outermost one.

    A signal that is ignored, or that C code handles, is left alone.

    Parameters
    ----------
    interruption : Interruption, optional
        The flag; by default a new one.

    Yields
    ------
    Interruption
        The flag that a signal sets: the outermost context's.
    """
    interruption = interruption or Interruption()
    is_main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGINT) if is_main else None
    if isinstance(handler, Interruption):
        yield handler
        return
    interruption.came = False
    if not callable(handler):
        yield interruption
        return
    try:
        signal.signal(signal.SIGINT, interruption)
        yield interruption
    finally:
        signal.signal(signal.SIGINT, handler)
        if interruption.came:
            interruption.came = False
            handler(signal.SIGINT, None)
