"""Have NumPy multiply on one thread: ggml's threads still spin after a step, and two that share a core wait for it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache
from typing import Any


def one_thread() -> AbstractContextManager[Any]:
    """Limit NumPy's products to one thread while the context is entered."""
    limit: AbstractContextManager[Any] = _pools().limit(limits=1)
    return limit


@cache
def _pools() -> Any:
    """What limits NumPy's threads; to find its libraries takes some milliseconds."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")
