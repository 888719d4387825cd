"""Listen at an address, and answer there until the process must stop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import uvicorn

from ...errors import OctavoError

#: Seconds that streams may continue after a request to stop.
_GRACE = 5


def answer(
    app: Any, listening: socket.socket, announce: Callable[[str], None], stop: Callable[[], None], **settings: Any
) -> None:
    """Run an application until Ctrl-C, which ends it in order.

    Parameters
    ----------
    announce : callable
        Receives the address, once the application answers there.
    stop : callable
        Makes running requests fail; they have a few seconds before.
    **settings
        Further settings of uvicorn.
    """
    host, port = listening.getsockname()[:2]
    address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    config = uvicorn.Config(
        app, log_level="warning", timeout_graceful_shutdown=2 * _GRACE, server_header=False, **settings
    )
    with suppress(KeyboardInterrupt):
        _Announced(config, lambda: announce(address), stop).run([listening])


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


def listen(host: str, port: int) -> socket.socket:
    """Listen at an address. Raise OctavoError if it is not available."""
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
