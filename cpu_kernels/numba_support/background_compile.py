"""Compile kernels in a separate process, before they are needed, while a model reads a document.

The process writes compiled kernels to Numba's cache, where this process finds them. Two processes compile in parallel,
while Numba compiles one function at a time in each.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from ...system.working_time import not_working
from .compile import LateStage, keeps_kernels, native
from .kernel_cache import kernel_folder, version_of

#: The process, while one runs, and the functions that it has been asked for and has not yet said to be compiled.
_running: list[subprocess.Popen[str]] = []
_awaited: set[str] = set()


def compile_ahead(functions: Iterable[Any]) -> None:
    """Compile functions in the background, unless it was done before, after those that are being compiled there.

    Parameters
    ----------
    functions : iterable
        Hooks (hooks.py), late stages, or module-level functions that compile kernels when they are called, in the
        order in which they are needed.
    """
    names = list(dict.fromkeys((each.__module__, each.__name__) for each in functions))
    version = version_of([Path(sys.modules[module].__file__ or "") for module, _ in names])
    job = hashlib.sha256(f"{json.dumps(names)}{version}".encode()).hexdigest()[:16]
    done = kernel_folder() / f"compiled-{job}"
    if (
        not keeps_kernels() or done.exists() or getattr(sys, "frozen", False)
    ):  # a frozen application cannot start an interpreter
        return
    if not _running:
        command = [sys.executable, "-P", "-m", __name__]
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout"), subprocess.PIPE)
        _running.append(subprocess.Popen(command, **pipes, stderr=subprocess.DEVNULL, text=True))
    told = _running[0].stdin
    assert told is not None
    with suppress(BrokenPipeError):  # it has ended: what it has not compiled is compiled when it is needed
        told.write(json.dumps([names, str(done)]) + "\n")
        told.flush()
        _awaited.update(_described(*each) for each in names)


def compiled(function: Any) -> Any:
    """Return what a function is when it is compiled, for C: its `address` is the function pointer.

    If the background process has been asked for it, wait until it is compiled there.
    """
    wait(function)
    if isinstance(function, LateStage):
        return function.native
    return native(function) if hasattr(function, "py_func") else function()


def _described(module: str, name: str) -> str:
    return f"{module}.{name}"


def n_awaited() -> int:
    """Return how many functions the background process has been asked for and has not yet said to be compiled."""
    return len(_awaited)


@not_working()
def wait(function: Any = None, after_each: Callable[[int], object] | None = None) -> None:
    """Wait until the background process has compiled a function, or ends, with all compiled, if it is not given.

    `after_each` receives the number of those that are left, after each. The cache lacks kernels that failed there, or
    were stopped.
    """
    for process in list(_running):
        assert process.stdin is not None
        assert process.stdout is not None
        if function is None:
            with suppress(BrokenPipeError):
                process.stdin.close()
        while function is None or _described(function.__module__, function.__name__) in _awaited:
            line = process.stdout.readline()
            _awaited.discard(line.rstrip())
            if after_each is not None:
                after_each(n_awaited())
            if not line:
                process.wait()
                process.stdout.close()
                _running.clear()
                _awaited.clear()
                return


def main() -> None:
    """Compile the functions of each call of `compile_ahead`, a line of the input, and leave a mark after each."""
    sys.modules["scipy.linalg"] = None  # type: ignore[assignment]  # to look for it takes Numba a third of a second
    first = True
    for line in sys.stdin:
        names, done = json.loads(line)
        for module, name in names:
            function = getattr(import_module(module), name)
            compiled(function)
            with suppress(BrokenPipeError):  # who started this may have ended: the next one finds the compiled ones
                print(_described(module, name), flush=True)
            if first:  # what follows is needed later than what the model computes meanwhile
                os.nice(5)
                first = False
        Path(done).touch()


if __name__ == "__main__":
    main()
