"""Pretend that each step compiles a kernel, which takes a while."""

import functools
import time

from numba.core.compiler_lock import global_compiler_lock

from octavo.runtime.context import Context

#: Seconds that a step compiles.
SECONDS = 0.5


def compile_slowly(monkeypatch):
    """Have each step of a model compile for SECONDS, as far as Numba tells."""
    for name in ("decode", "decode_together"):
        monkeypatch.setattr(Context, name, _after_compiling(getattr(Context, name)))


def _after_compiling(decode):
    @functools.wraps(decode)
    def compile_and_decode(*arguments):
        with global_compiler_lock:
            time.sleep(SECONDS)
        return decode(*arguments)

    return compile_and_decode
