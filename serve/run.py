"""Run the server until it is stopped."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import uvicorn

from ..ask.session import Sampling
from ..errors import OctavoError
from ..runtime.models.find_model import default_threads, find_model
from ..runtime.models.load_model import load
from ..runtime.store.model_library import Library
from .http.app import application, open_server

#: Seconds that streams may go on after the server is asked to stop.
_GRACE = 5


def serve(
    model: str | Path | None,
    *,
    host: str,
    port: int,
    api_key: str | None,
    allowed_hosts: Sequence[str],
    n_parallel: int,
    n_waiting: int,
    timeout: float,
    most_bytes: int,
    kept_bytes: int,
    sampling: Sampling,
    notice: Callable[[str], None],
    prefill: str,
    index_dir: str | Path | None,
    **how: Any,
) -> None:
    """Serve a model and its documents until the process is asked to stop.

    Parameters
    ----------
    model : path, optional
        The GGUF file; by default the default model.
    host : str
        Address to listen at. Beyond this machine a key is needed.
    port : int
        Port to listen at; 0 for any that is free.
    api_key : str, optional
        What requests must bring.
    allowed_hosts : sequence of str
        Names by which the server may be asked, besides addresses and localhost.
    n_parallel, n_waiting : int
        Most requests that are worked on at once, and most that wait.
    timeout : float
        Seconds after which a request is given up.
    most_bytes, kept_bytes : int
        Largest body, and what long prompts may take on disk, in bytes.
    sampling : Sampling
        How answers are drawn where requests do not say.
    notice : callable
        Receives sentences about what happens.
    prefill, index_dir
        As in `index_documents`.
    **how
        Further arguments of `load`.

    Raises
    ------
    OctavoError
        The model cannot be used, or the address is not to be had.
    """
    if api_key is None and not _is_loopback(host):
        raise OctavoError(f"Everyone who reaches {host} could ask: give a key with --api-key.")
    listening = _listen(host, port)
    try:
        path = find_model(model, notice)
        library = Library.of(path, index_dir)
        n_threads = how.pop("n_threads") or default_threads()
        llama = load(path, library, **how, n_threads=n_threads, notice=notice, n_parallel=n_parallel)
        job = {name: value for name, value in how.items() if name != "budget"} | {"n_threads": n_threads}
        job |= {"model": path, "index_dir": index_dir, "prefill": prefill}
        job = {name: str(value) if isinstance(value, Path) else value for name, value in job.items()}
        limits: dict[str, Any] = {"n_parallel": n_parallel, "n_waiting": n_waiting, "timeout": timeout}
        limits |= {"kept_bytes": kept_bytes, "sampling": sampling}
        server = open_server(llama, library, job, name=path.stem, **limits, notice=notice)
        try:
            app = application(server, hosts=allowed_hosts, key=api_key, most_bytes=most_bytes)
            place = f"[{host}]" if ":" in host else host
            told = f"Serving {path.stem} at http://{place}:{listening.getsockname()[1]}: Ctrl-C stops it."
            config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=2 * _GRACE, server_header=False)
            with suppress(KeyboardInterrupt):
                _Announced(config, lambda: notice(told), server.engine.stop).run([listening])
        finally:
            server.close()
            llama.close()
    finally:
        listening.close()


class _Announced(uvicorn.Server):
    """A server that tells when it answers: from then on Ctrl-C stops it in good order.

    Requests that are under way then have some seconds, after which `stop` has them fail.
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
    """Whether only this machine reaches an address."""
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
