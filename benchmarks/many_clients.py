"""Let clients work on octavo's server at once, some of them rude, and count what goes wrong.

    python benchmarks/many_clients.py [--clients 32] [--minutes 5] [-m MODEL] [-t THREADS] [--seed 0]

Each client uploads texts, asks about them, replaces them under the same name, deletes them, and hangs up in the middle
of answers and of uploads. Meanwhile a folder's file changes and is indexed again, over and over. Each sentence of a
text holds a code of its version, so each source of an answer shows its version.

- Wrong is a source that is not from the version that was asked, or an answer over a deleted text.
- Lost is a request that ends with an error of the server, or with none at all, and a text that was uploaded, was not
  deleted, and is unknown.

Another client writes one stream after the other; the table has its longest gap between two parts. Descriptors and
memory are those of the server's process, a quarter of the time after the start, at half the time and at the end.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from servers import Server, octavo_server

from octavo.cli.render import markdown_table
from octavo.cpu_kernels.numba_support.machine import cpu_name
from octavo.runtime.models.find_model import default_model

#: Seconds after which a request counts as lost.
PATIENCE = 300
JSON = "application/json"
BOUNDARY = "a-boundary-of-parts"
THINGS = (
    "lamp",
    "bridge",
    "harbour",
    "mill",
    "garden",
    "tower",
    "ferry",
    "market",
    "forest",
    "school",
    "station",
    "well",
)


def main() -> None:
    """Print the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("-m", "--model", type=Path)
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    model = arguments.model or default_model()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with octavo_server(model, folder, 4096, arguments.threads) as server:
            run = Run(server, folder, model, time.monotonic() + 60 * arguments.minutes)
            clients = [Client(run, number, arguments.seed) for number in range(arguments.clients)]
            threads = [
                threading.Thread(target=work) for work in (run.change_files, run.watch, *(c.work for c in clients))
            ]
            for thread in threads:
                thread.start()
            sizes = run.sizes(arguments.minutes * 60)
            for thread in threads:
                thread.join()
            alive = server.answers
    print(f"{cpu_name()}, {arguments.threads} threads, {arguments.clients} clients, {arguments.minutes:g} minutes\n")
    rows = [[what, f"{times:,}"] for what, times in sorted(run.done.items())]
    rows += [["wrong", f"{len(run.wrong)}"], ["lost", f"{len(run.lost)}"], ["alive at the end", str(alive)]]
    rows += [["longest gap of a stream", f"{run.longest_gap:.1f} s"]]
    rows += [[f"{when}: descriptors, MiB", f"{n_open:,}, {mib:,}"] for when, n_open, mib in sizes]
    print(markdown_table(["what", "times"], rows))
    for fault in (*run.wrong, *run.lost)[:20]:
        print(fault)
    sys.exit(bool(run.wrong or run.lost or not alive))


class Run:
    """What all clients share: the server, the time that is left, and the counts.

    Parameters
    ----------
    server : Server
        The server.
    folder : Path
        Folder of its files.
    model : Path
        Its model.
    end : float
        When clients stop, by `time.monotonic`.
    """

    def __init__(self, server: Server, folder: Path, model: Path, end: float) -> None:
        self.server = server
        self.folder = folder
        self.model = model
        self.end = end
        self.done: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.lost: list[str] = []
        self.longest_gap = 0.0

    @property
    def has_time(self) -> bool:
        """Return whether time is left."""
        return time.monotonic() < self.end

    def sizes(self, seconds: float) -> list[tuple[str, int, int]]:
        """Return the server's descriptors and resident MiB after a quarter of the time, half of it, and all."""
        found = []
        begun = time.monotonic()
        for when, share in (("a quarter", 0.25), ("half", 0.5), ("the end", 1)):
            time.sleep(max(begun + share * seconds - time.monotonic(), 0))
            process = Path(f"/proc/{self.server.process.pid}")
            [kib] = re.findall(r"VmRSS:\s+(\d+) kB", (process / "status").read_text())
            found.append((when, len(os.listdir(process / "fd")), int(kib) // 1024))
        return found

    def watch(self) -> None:
        """Write one stream after the other, and note the longest gap between two parts."""
        body = {"model": "any", "stream": True, "max_tokens": 200, "ignore_eos": True}
        while self.has_time:
            connection = self.connect()
            connection.request("POST", "/v1/chat/completions", json.dumps({**body, "messages": said("Tell a story.")}))
            answer = connection.getresponse()
            last = None
            while answer.readline().startswith(b"data:"):
                now = time.monotonic()
                self.longest_gap = max(self.longest_gap, now - (last or now))
                last = now
                answer.readline()
            connection.close()
            self.done["streams written"] += 1

    def change_files(self) -> None:
        """Change a file, index it again, and ask about its folder, until the time is over."""
        folder = self.folder / "changing"
        folder.mkdir()
        version = 0
        command = [sys.executable, "-m", "octavo", "index", str(folder), "-m", str(self.model), "-c", "4096"]
        while self.has_time:
            version += 1
            text = text_of(f"F{version:05}", random.Random(version))
            (folder / "plan.txt").write_text(text)
            subprocess.run([*command, "--index-dir", self.folder], check=True, capture_output=True)
            self.ask(str(folder), f"F{version:05}", "plan.txt")
            self.done["changed files asked"] += 1

    def connect(self) -> http.client.HTTPConnection:
        """Return a connection of its own."""
        return http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=PATIENCE)

    def send(
        self, method: str, path: str, body: bytes | None = None, kind: str = "application/json"
    ) -> tuple[int, Any]:
        """Return the status of an answer and its JSON; 0 if there is none."""
        connection = self.connect()
        try:
            connection.request(method, path, body, {"Content-Type": kind})
            answer = connection.getresponse()
            status, read = answer.status, json.loads(answer.read())
        except (OSError, ValueError, http.client.HTTPException) as error:
            status, read = 0, repr(error)
        finally:
            connection.close()
        if status == 0 or status >= 500:
            self.lost.append(f"lost: {method} {path}: {status} {read}")
        return status, read

    def ask(self, document: str, code: str, name: str) -> None:
        """Ask about a text; each source has to be from the version with this code."""
        question = f"Where is the {random.choice(THINGS)}?"
        body = {"model": "any", "document": document, "sources": True, "max_tokens": 16, "messages": said(question)}
        status, answer = self.send("POST", "/v1/chat/completions", json.dumps(body).encode())
        if status != 200:
            self.lost.append(f"lost: a question over {name} {code}: {status} {answer}")
            return
        for source in answer["choices"][0]["message"].get("annotations") or []:
            if found := set(re.findall(r"[A-Z]\d{5}", json.dumps(source))) - {code}:
                self.wrong.append(f"wrong: {name} {code} is answered from {found}")


class Client:
    """One client.

    Parameters
    ----------
    run : Run
        What all share.
    number, seed : int
        Its number, and what decides its acts.
    """

    def __init__(self, run: Run, number: int, seed: int) -> None:
        self.run = run
        self.name = f"client-{number}.txt"
        self.number = number
        self.random = random.Random(1000 * seed + number)
        self.version = 0
        self.id: str | None = None

    @property
    def code(self) -> str:
        """Return the code of the newest version."""
        return f"C{100 * self.number + self.version % 100:05}"

    def work(self) -> None:
        """Act until the time is over."""
        acts = [self.ask] * 5 + [self.upload] * 2 + [self.delete, self.hang_up, self.hang_up_while_uploading]
        while self.run.has_time:
            act = self.upload if self.id is None else self.random.choice(acts)
            act()
            self.run.done[act.__name__.replace("_", " ")] += 1

    def upload(self) -> None:
        """Upload a text, or another one under the same name."""
        self.version += 1
        status, file = self.run.send("POST", "/v1/files", self._form(), f"multipart/form-data; boundary={BOUNDARY}")
        if status != 200:
            self.run.lost.append(f"lost: an upload: {status} {file}")
            return
        self.id = file["id"]

    def ask(self) -> None:
        """Ask by id or by name."""
        self.run.ask(self.random.choice([str(self.id), self.name]), self.code, self.name)

    def delete(self) -> None:
        """Delete the newest version; a question over it is then an error of the client."""
        status, answer = self.run.send("DELETE", f"/v1/files/{self.id}")
        if status != 200:
            self.run.lost.append(f"lost: {self.name} {self.code} cannot be deleted: {status} {answer}")
        body = {"model": "any", "document": self.id, "max_tokens": 4, "messages": said("Where is the mill?")}
        status, answer = self.run.send("POST", "/v1/chat/completions", json.dumps(body).encode())
        if status == 200:
            self.run.wrong.append(f"wrong: {self.name} {self.code} answers after it was deleted")
        self.id = None

    def hang_up(self) -> None:
        """Ask for a stream, and leave after its first bytes, or before."""
        body = {
            "model": "any",
            "document": self.id,
            "stream": True,
            "max_tokens": 200,
            "messages": said("Where is it?"),
        }
        connection = self.run.connect()
        with suppress(OSError):
            connection.request("POST", "/v1/chat/completions", json.dumps({**body, "messages": said("Where is it?")}))
            connection.sock.settimeout(self.random.uniform(0.05, 3))
            connection.sock.recv(200)
        connection.close()

    def hang_up_while_uploading(self) -> None:
        """Send half an upload."""
        form = self._form()
        head = f"POST /v1/files HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(form)}\r\n"
        head += f"Content-Type: multipart/form-data; boundary={BOUNDARY}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", self.run.server.port)) as client:
            client.sendall(head.encode() + form[: len(form) // 2])

    def _form(self) -> bytes:
        part = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="'
        text = text_of(self.code, self.random)
        return (
            f'{part}purpose"\r\n\r\nuser_data\r\n{part}file"; filename="{self.name}"\r\n'
            f"Content-Type: text/plain\r\n\r\n{text}\r\n--{BOUNDARY}--\r\n"
        ).encode()


def text_of(code: str, chosen: random.Random) -> str:
    """Return a text whose sentences all hold a code."""
    return "\n\n".join(
        f"By {code}, the {thing} is {chosen.randint(2, 900)} steps from the {chosen.choice(THINGS)}. "
        f"Those of {code} have painted it {chosen.choice(('red', 'green', 'white', 'blue'))}."
        for thing in chosen.sample(THINGS, len(THINGS))
    )


def said(text: str) -> list[dict[str, str]]:
    """Return the messages of a question."""
    return [{"role": "user", "content": text}]


if __name__ == "__main__":
    main()
