"""Run the server until it is stopped."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from pathlib import Path

import uvicorn

from ..errors import OctavoError
from ..library.batch.job import Job
from ..runtime.models.load_model import load, locate_model
from ..settings import Sampling
from .http.app import Limits, application, open_server
from .http.timed_protocol import TimedProtocol

#: Seconds that streams may continue after a request to stop.
_GRACE = 5


@dataclass(frozen=True)
class Access:
    """Address of the server, and its access rules.

    Parameters
    ----------
    host : str
        Address to listen at. Addresses beyond this machine need a key.
    port : int
        Port to listen at; 0 for any free one.
    api_key : str, optional
        Key that requests need.
    hosts : sequence of str
        Accepted host names, besides addresses and localhost.
    most_bytes : int
        Largest body, in bytes.

    Raises
    ------
    OctavoError
        The address is open to other machines, and has no key.
    """

    host: str
    port: int
    api_key: str | None = field(repr=False)
    hosts: Sequence[str]
    most_bytes: int

    def __post_init__(self) -> None:
        if self.api_key is None and not _is_loopback(self.host):
            raise OctavoError(f"Everyone who reaches {self.host} could ask: give a key with --api-key.")


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
            app = application(server, hosts=access.hosts, key=access.api_key, most_bytes=access.most_bytes)
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


def _is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address."""
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost"


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
