"""Run the server until it is stopped."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import uvicorn

from ..errors import OctavoError
from ..library.batch.job import Job
from ..runtime.models.load_model import load, locate_model
from ..settings import Sampling
from .http.access import Access
from .http.app import Limits, application, open_server
from .http.timed_protocol import TimedProtocol

#: Seconds that streams may continue after a request to stop.
_GRACE = 5


def serve(job: Job, sampling: Sampling, access: Access, limits: Limits, notice: Callable[[str], None]) -> None:
    """Serve a model and its documents until the process must stop.

    Raise OctavoError if the model cannot be used, or the address is not available.
    """
    host = access.host
    listening = _listen(host, access.port)
    try:
        settings, library = locate_model(job.settings, notice)
        job = replace(job, settings=settings)
        llama = load(settings, library, job.attention, notice, limits.n_parallel)
        name = Path(llama.model_path).stem
        server = open_server(llama, library, job, limits, sampling, name=name, notice=notice)
        try:
            app = application(server, access)
            place = f"[{host}]" if ":" in host else host
            announcement = f"Serving {name} at http://{place}:{listening.getsockname()[1]}: Ctrl-C stops it."
            config = uvicorn.Config(
                app, http=TimedProtocol, log_level="warning", timeout_graceful_shutdown=2 * _GRACE, server_header=False
            )
            with suppress(KeyboardInterrupt):
                _Announced(config, lambda: notice(announcement), server.engine.stop).run([listening])
        finally:
            server.close()
            llama.close()
    finally:
        listening.close()


class _Announced(uvicorn.Server):
    """Announce that the server answers; from then on Ctrl-C stops it in order.

    Running requests then have a few seconds until `stop` fails them.
    """

    def __init__(self, config: uvicorn.Config, announce: Callable[[], None], stop: Callable[[], None]) -> None:
        super().__init__(config)
        self._announce, self._stop = announce, stop

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._announce()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().call_later(_GRACE, self._stop)
        await super().shutdown(sockets)


def _listen(host: str, port: int) -> socket.socket:
    """Listen at an address."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(128)
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise OctavoError(
            f"The server cannot listen at {host}, port {port}: {reason}. Give another --port."
        ) from problem
    return listening
