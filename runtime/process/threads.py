"""Threads of others that compute: those of NumPy's products, and those that ggml keeps for each thread that calls it.

ggml's threads wait for each other dozens of times in a layer. While there are no more of them than cores, they wait in
a loop; as soon as there are more, OpenMP has them sleep, and a step takes four times as long.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache
from typing import Any

#: omp_pause_soft: what OpenMP knows stays, its threads go.
_SOFT = 1


def release_threads() -> None:
    """Let go of the threads that ggml keeps for this thread, so that another one may compute at full speed.

    The next computation has them begin again, which takes a tenth of a millisecond.
    """
    from llama_cpp._ggml import libggml

    pause = getattr(libggml, "omp_pause_resource_all", None)  # None where ggml was built without OpenMP
    if pause is not None:
        pause(_SOFT)


def one_thread() -> AbstractContextManager[Any]:
    """Limit NumPy's products to one thread while the context is entered: ggml's still spin after a step."""
    limit: AbstractContextManager[Any] = _pools().limit(limits=1)
    return limit


@cache
def _pools() -> Any:
    """What limits NumPy's threads; to find its libraries takes some milliseconds."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")
