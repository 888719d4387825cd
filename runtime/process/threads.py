"""Limit the threads of other libraries: those of NumPy's products, and those that ggml keeps for each calling thread.

ggml's threads wait for each other dozens of times in a layer. As long as there are at most as many as cores, they wait
in a loop; otherwise OpenMP makes them sleep, and a step takes four times as long.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache
from typing import Any

#: omp_pause_soft: OpenMP keeps its state, and its threads end.
_SOFT = 1


def release_threads() -> None:
    """End the threads that ggml keeps for this thread, so that another one may compute at full speed.

    The next computation starts them again in a tenth of a millisecond.
    """
    from llama_cpp._ggml import libggml

    pause = getattr(libggml, "omp_pause_resource_all", None)  # None if ggml was built without OpenMP
    if pause is not None:
        pause(_SOFT)


def one_thread() -> AbstractContextManager[Any]:
    """Limit NumPy's products to one thread inside the context: ggml's threads still spin after a step."""
    limit: AbstractContextManager[Any] = _pools().limit(limits=1)
    return limit


@cache
def _pools() -> Any:
    """Return the limits of NumPy's threads, cached: finding its libraries takes some milliseconds."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")
