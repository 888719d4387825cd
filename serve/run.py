"""Run the server until it is stopped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ..library.batch.job import Job
from ..runtime.models.load_model import load, locate_model
from ..settings import Sampling
from .http.access import Access
from .http.app import Limits, application, open_server
from .http.listening import answer, listen
from .http.timed_protocol import TimedProtocol


def serve(job: Job, sampling: Sampling, access: Access, limits: Limits, notice: Callable[[str], None]) -> None:
    """Serve a model and its documents until the process must stop.

    Raise OctavoError if the model cannot be used, or the address is not available.
    """
    listening = listen(access.host, access.port)
    try:
        settings, library = locate_model(job.settings, notice)
        job = replace(job, settings=settings)
        llama = load(settings, library, job.attention, notice, limits.n_parallel)
        name = Path(llama.model_path).stem
        server = open_server(llama, library, job, limits, sampling, name=name, notice=notice)
        try:
            app = application(server, access)
            answer(
                app,
                listening,
                lambda address: notice(f"Serving {name} at {address}: Ctrl-C stops it."),
                server.engine.stop,
                http=TimedProtocol,
            )
        finally:
            server.close()
            llama.close()
    finally:
        listening.close()
