"""Abandon a computation of llama.cpp between two nodes of its graph, for Ctrl-C or when its client is gone."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import llama_cpp


@dataclass
class Interruption:
    """A flag to abandon a graph. A signal may come inside the lock of a threading.Event, so it does not use one."""

    came: bool = False


def abort_callback(interruption: Interruption) -> Any:
    """Return a function that llama.cpp calls between the nodes of a graph, so that Python handles signals.

    It returns True to abandon the graph. It holds no reference to the context, which would otherwise outlive its last
    user.
    """

    @llama_cpp.ggml_abort_callback
    def abort(_: Any) -> bool:
        return interruption.came

    return abort


@contextmanager
def watched_signals(interruption: Interruption) -> Iterator[None]:
    """Make Ctrl-C set a flag that abandons the graph between two nodes, and then take effect."""
    interruption.came = False
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield  # leave a signal alone that is ignored, or that C code handles
        return

    def remember(*_: Any) -> None:
        interruption.came = True

    signal.signal(signal.SIGINT, remember)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if interruption.came:
        handler(signal.SIGINT, None)
        raise KeyboardInterrupt
