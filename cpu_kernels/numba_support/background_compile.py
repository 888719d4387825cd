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
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from ..attend.hooks import native
from .compile import keeps_kernels
from .kernel_cache import kernel_folder, version_of

_running: list[subprocess.Popen[bytes]] = []

#: What background processes said that they have compiled.
_compiled: set[bytes] = set()


def compile_ahead(functions: Iterable[Any]) -> None:
    """Compile functions in the background, unless it was done before.

    Parameters
    ----------
    functions : iterable
        Hooks (hooks.py), or module-level functions that compile kernels when they are called, in the order in which
        they are needed.
    """
    names = list(dict.fromkeys((each.__module__, each.__name__) for each in functions))
    job = json.dumps(names)
    version = version_of([Path(sys.modules[module].__file__ or "") for module, _ in names])
    done = kernel_folder() / f"compiled-{hashlib.sha256(f'{job}{version}'.encode()).hexdigest()[:16]}"
    if (
        not keeps_kernels() or done.exists() or getattr(sys, "frozen", False)
    ):  # a frozen application cannot start an interpreter
        return
    command = [sys.executable, "-P", "-m", __name__, job, str(done)]
    quiet: dict[str, Any] = dict.fromkeys(("stdin", "stderr"), subprocess.DEVNULL)
    _running.append(subprocess.Popen(command, stdout=subprocess.PIPE, **quiet))


def wait(function: Any = None) -> None:
    """Wait until the background processes have compiled a function, or end if it is not given.

    The cache lacks kernels that failed there, or were stopped.
    """
    name = b"" if function is None else f"{function.__name__}\n".encode()
    for process in list(_running):
        assert process.stdout is not None
        while name not in _compiled and (line := process.stdout.readline()):
            _compiled.add(line)
        if name in _compiled:
            return
        process.wait()
        _running.remove(process)


def main(job: str, done: str) -> None:
    """Compile the functions of `compile_ahead`, and leave a mark."""
    os.nice(5)  # the model is reading
    for module, name in json.loads(job):
        function = getattr(import_module(module), name)
        if hasattr(function, "py_func"):
            native(function)
        else:
            function()
        with suppress(BrokenPipeError):  # who started this may have ended: the next one finds what is compiled
            print(name, flush=True)
    Path(done).touch()


if __name__ == "__main__":
    main(*sys.argv[1:])
