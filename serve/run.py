"""Run the server until it is stopped."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from ..library.reading_job import ReadingJob
from ..runtime.load_model import load, locate_model
from ..runtime.store.model_library import Library
from ..settings import ModelSettings, Sampling
from .app import Limits, application, open_server
from .engine.turns import Turns
from .http.access import Access
from .http.listening import answer, listen
from .http.timed_protocol import TimedProtocol
from .server_pool import LoadableModel, ServerPool, names_of
from .services import Server


def serve(
    job: ReadingJob,
    models: Sequence[ModelSettings],
    sampling: Sampling,
    access: Access,
    limits: Limits,
    notice: Callable[[str], None],
) -> None:
    """Serve models and their documents until the process must stop.

    Parameters
    ----------
    job : ReadingJob
        How documents are read, with the first model.
    models : sequence of ModelSettings
        The models. The first one is loaded now, the others when they are asked for.

    Raises
    ------
    OctavoError
        A model cannot be used, or the address is not available.
    """
    listening = listen(access.host, access.port)
    try:
        located = [locate_model(given, notice) for given in models]
        of_file = {Path(library.model_path): (settings, library) for settings, library in located}
        choices = {}
        for name, path in names_of(list(of_file)).items():
            settings, library = of_file[path]
            opened = partial(_open, replace(job, settings=settings), library, name, limits, sampling, notice)
            choices[name] = LoadableModel(library, opened)
        pool = ServerPool(choices)
        try:
            pool.load_first()
            listed = ", ".join(choices)
            app = application(pool, access)
            answer(
                app,
                listening,
                lambda address: notice(f"Serving {listed} at {address}: Ctrl-C stops it."),
                pool.stop,
                http=TimedProtocol,
            )
        finally:
            for server in pool.loaded:
                server.close()
            if pool.is_loading:  # llama.cpp does not stop, and must not be torn down meanwhile
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(0)
    finally:
        listening.close()


def _open(
    job: ReadingJob,
    library: Library,
    name: str,
    limits: Limits,
    sampling: Sampling,
    notice: Callable[[str], None],
    turns: Turns,
) -> Server:
    """Load a model, and open a server on it, which computes: in a turn."""
    llama = load(job.settings, library, job.attention, notice, limits.n_parallel)
    with turns.turn():
        return open_server(llama, library, job, limits, sampling, name=name, notice=notice, turns=turns)
