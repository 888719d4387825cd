"""Pretend that each step compiles a kernel, which takes long, on a clock that no load reaches."""

import functools
import time

from numba.core.compiler_lock import global_compiler_lock

from octavo.runtime.context import Context

#: Seconds that a step compiles: more than any test takes.
SECONDS = 1000.0


def compile_slowly(monkeypatch):
    """Have each step of a model compile for SECONDS, as far as Numba and the clock tell."""
    now, compiled = time.perf_counter, [0.0]

    def after_compiling(decode):
        @functools.wraps(decode)
        def compile_and_decode(*arguments):
            with global_compiler_lock:
                compiled[0] += SECONDS
            return decode(*arguments)

        return compile_and_decode

    monkeypatch.setattr(time, "perf_counter", lambda: now() + compiled[0])
    for name in ("decode", "decode_together"):
        monkeypatch.setattr(Context, name, after_compiling(getattr(Context, name)))
