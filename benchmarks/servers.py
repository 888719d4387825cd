"""Start octavo's server and llama.cpp's for benchmarks, and talk to them."""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo.convert.plan.recall_texts import SHIPPED_NOVEL

#: Whether llama.cpp uses flash attention.
MODES = ("on", "off")


@dataclass(frozen=True)
class Server:
    """A running server.

    Parameters
    ----------
    port : int
        Port to listen at.
    process : subprocess.Popen
        Its process.
    """

    port: int
    process: subprocess.Popen[bytes]

    @property
    def peak_mb(self) -> float:
        """Return the peak resident memory in MB, mapped files included."""
        [line] = re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{self.process.pid}/status").read_text())
        return int(line) * 1024 / 1e6

    @property
    def answers(self) -> bool:
        """Return whether the server answers, and has loaded its model."""
        try:
            return "error" not in self.call("GET", "/health")
        except OSError:
            return False

    def call(self, method: str, path: str, body: bytes | None = None, kind: str = "application/json") -> Any:
        """Return the answer to a request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        connection.request(method, path, body, {"Content-Type": kind})
        answer = json.loads(connection.getresponse().read())
        connection.close()
        return answer

    def send(self, path: str, body: Mapping[str, Any]) -> Any:
        """Return the answer to JSON."""
        return self.call("POST", path, json.dumps(body).encode())


@contextmanager
def octavo_server(model: Path, folder: Path, n_ctx: int, n_threads: int, *further: Any) -> Iterator[Server]:
    """Start octavo's server without a prompt cache; further arguments are its own. Its files are in a folder."""
    log = folder / "octavo.log"
    command = [sys.executable, "-m", "octavo", "serve", "-m", model, "-c", n_ctx, "-t", n_threads]
    with _process([*command, "--port", 0, "--index-dir", folder, "--prompt-cache", 0, *further], log) as process:
        while not (found := re.search(r"Serving .* at http://[\w.]+:(\d+)", log.read_text())):
            time.sleep(0.2)
        yield Server(int(found[1]), process)


@contextmanager
def llama_server(
    program: Path, model: Path, folder: Path, n_ctx: int, n_threads: int, mode: str, *further: Any
) -> Iterator[Server]:
    """Start llama.cpp's server with flash attention or without, by one of MODES."""
    port = 18080 + MODES.index(mode)
    command = [program, "-m", model, "-c", n_ctx, "-t", n_threads, "-tb", n_threads, "-fa", mode, "--port", port]
    with _process([*command, "--no-warmup", *further], folder / "llama.log") as process:
        server = Server(port, process)
        while not server.answers:
            time.sleep(0.2)
        yield server


@contextmanager
def _process(command: Sequence[Any], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server inside a `with` block."""
    with log.open("w") as told, subprocess.Popen([*map(str, command)], stdout=told, stderr=told) as process:
        try:
            yield process
        finally:
            process.terminate()


def first_tokens(model: Path, folder: Path, n_tokens: int) -> str:
    """Return the text of the first tokens of the novel that octavo ships; a file in a folder keeps it."""
    path = folder / "novel.txt"
    if not path.exists():
        from octavo.evaluation import prose
        from octavo.runtime.llama import Llama

        vocabulary = Llama(model, n_ctx=512)
        tokens = prose.first_tokens(vocabulary, SHIPPED_NOVEL, n_tokens)
        path.write_bytes(vocabulary.detokenize(tokens))
        vocabulary.close()
    return path.read_text("utf-8", "ignore")
