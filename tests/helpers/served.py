"""A server on a model, listening at a port of this machine, in a thread of the tests."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import uvicorn

from octavo.library.background.computing import Computing
from octavo.library.reading_job import ReadingJob
from octavo.runtime.load_model import load
from octavo.runtime.methods.attention import Attention
from octavo.runtime.store.model_library import Library
from octavo.serve.app import Limits, application, open_server
from octavo.serve.http.access import Access
from octavo.serve.http.timed_protocol import TimedProtocol
from octavo.serve.server_pool import ServerPool
from octavo.settings import ModelSettings, Sampling

#: How answers are drawn where requests do not say.
SAMPLING = Sampling(max_tokens=96, temperature=0)


class Served:
    """A server that runs, and a client of it."""

    def __init__(self, server: Any, url: str, computing: Computing | None = None) -> None:
        self.server, self.url, self._computing = server, url, computing or Computing()
        self.client = httpx.Client(base_url=url, timeout=60)

    @property
    def address(self) -> tuple[str, int]:
        """Return host and port."""
        url = httpx.URL(self.url)
        return url.host, int(url.port or 0)

    def post(self, path: str, **body: Any) -> Any:
        """Post a body; returns what comes back, which must be a success."""
        response = self.client.post(path, json=body)
        assert response.status_code == 200, response.text
        return response.json()

    def refused(self, path: str, **body: Any) -> tuple[int, dict[str, Any]]:
        """Post a body that is refused; returns status and error."""
        response = self.client.post(path, json=body)
        return response.status_code, response.json()["error"]

    def stream(self, path: str, **body: Any) -> list[Any]:
        """Post a body; returns the events of the stream, parsed."""
        with self.client.stream("POST", path, json={**body, "stream": True}) as response:
            assert response.status_code == 200, response.read()
            lines = [line.removeprefix("data: ") for line in response.iter_lines() if line.startswith("data: ")]
        return [json.loads(line) for line in lines if line != "[DONE]"]

    def upload(self, name: str, content: bytes) -> dict[str, Any]:
        """Upload a document; returns what is told of it."""
        return self.client.post("/v1/files", files={"file": (name, content)}, data={"purpose": "user_data"}).json()

    def read(self, name: str, content: bytes) -> dict[str, Any]:
        """Upload a document, and wait until it was read or could not be."""
        file, late = self.upload(name, content), time.monotonic() + 120
        while file["status"] == "processing":
            assert time.monotonic() < late, "It is not read."
            time.sleep(0.1)
            file = self.client.get(f"/v1/files/{file['id']}").json()
        return file

    def hold(self) -> None:
        """Halt the background reader, as while answers are computed."""
        self._computing.note(True)

    def let_go(self) -> None:
        """Let the background reader continue."""
        self._computing.note(False)

    def wait_until_idle(self) -> None:
        """Wait until no request is worked on, as its engine's thread sees it: others see its turns half done."""
        engine, late, counts = self.server.engine, time.monotonic() + 30, [1]
        while counts[-1] and time.monotonic() < late:
            asyncio.run(engine.run(lambda: counts.append(engine.n_running + engine.n_waiting)))
            time.sleep(0.02)
        assert counts[-1] == 0

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let the engine wait."""
        waits, go_on = threading.Event(), threading.Event()

        def wait() -> None:
            waits.set()
            go_on.wait(60)

        waiting = threading.Thread(target=lambda: asyncio.run(self.server.engine.run(wait)))
        waiting.start()
        assert waits.wait(60)
        try:
            yield
        finally:
            go_on.set()
            waiting.join()


@contextmanager
def serving(
    model: Any,
    folder: Any,
    *,
    key: str | None = None,
    most_bytes: int = 8 << 20,
    attention: str = "auto",
    n_ctx: int = 2048,
    sampling: Sampling = SAMPLING,
    held: bool = False,
    **limits: Any,
) -> Iterator[Served]:
    """Serve a model.

    Parameters
    ----------
    model : path
        The GGUF file.
    folder : path
        Where its library lies.
    key, most_bytes
        As in `application`.
    attention, n_ctx, sampling
        How the model attends, its context, and how answers are drawn.
    held : bool
        Whether the background reader is halted from the start, as by `Served.hold`. After a start, it may already read.
    **limits
        Fields of `Limits`, in place of those of the tests.
    """
    most = Limits(**{"n_parallel": 4, "n_waiting": 64, "timeout": 120.0, "kept_bytes": 64 << 20, **limits})
    job = ReadingJob(
        ModelSettings(model, n_ctx, n_threads=2, device="cpu", index_dir=folder), Attention.parse(attention)
    )
    library = Library.of(model, folder)
    computing = Computing()
    computing.note(held)
    llama = load(job.settings, library, job.attention, print, most.n_parallel)
    server = open_server(llama, library, job, most, sampling, name="tiny", notice=print)
    access = Access("127.0.0.1", 0, key, ["octavo.test"], ["app://known", "chrome-extension://*"], most_bytes)
    app = application(ServerPool.of(server), access)
    listening = socket.create_server(("127.0.0.1", 0))
    runner = uvicorn.Server(uvicorn.Config(app, http=TimedProtocol, log_level="warning", timeout_graceful_shutdown=2))
    thread = threading.Thread(target=runner.run, args=([listening],))
    thread.start()
    served = Served(server, f"http://127.0.0.1:{listening.getsockname()[1]}", computing)
    try:
        while not runner.started:
            time.sleep(0.01)
        yield served
    finally:
        served.let_go()
        served.client.close()
        runner.should_exit = True
        thread.join()
        listening.close()
        llama.close()
