"""Tell whether kernels are being compiled, if the modules that compile them are loaded."""

from __future__ import annotations

import sys
from typing import Any

#: Seconds of compiling from which on it is shown: to find kernels on disk takes less.
_SHOWN_SECONDS = 0.4


def compiling() -> float:
    """Return the seconds for which this process has waited for kernels if it does now, and longer than for a moment.

    Otherwise 0.
    """
    watch = _watch()
    return compiled_for() if watch is not None and watch.compiling_now() >= _SHOWN_SECONDS else 0.0


def compiled_for() -> float:
    """Return the seconds for which this process has waited for kernels so far."""
    return watch.compiling_time() if (watch := _watch()) is not None else 0.0


def _watch() -> Any:
    return sys.modules.get("octavo.system.working_time")
