"""Abandon a computation of llama.cpp between two nodes of its graph, for Ctrl-C or for someone who waits no more."""

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
    """Whether a graph is to be abandoned. Not a threading.Event: a signal may come inside its lock."""

    came: bool = False


def abort_callback(interruption: Interruption) -> Any:
    """Return a function that llama.cpp calls between the nodes of a graph, so that Python sees signals.

    It returns True to abandon the graph. It does not know the context: a context that its own callback knows would
    outlive its last user.
    """

    @llama_cpp.ggml_abort_callback
    def abort(_: Any) -> bool:
        return interruption.came

    return abort


@contextmanager
def watched_signals(interruption: Interruption) -> Iterator[None]:
    """Have a Ctrl-C set a flag that abandons the graph between two nodes, and act after that."""
    interruption.came = False
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield  # a signal that is ignored, or that C code handles, is not ours
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
