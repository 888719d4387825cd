"""Send requests that ask much of octavo's server while it writes another stream, and time the gaps of that.

    python benchmarks/hostile_requests.py [-m MODEL] [-t THREADS] [--documents 60]

For each kind of request the table has the longest gap between two parts of the stream, and the longest time that
/health took: the event loop answers it at once, unless it is blocked. Files are ordinary, but large.
"""

from __future__ import annotations

import argparse
import base64
import http.client
import json
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from servers import Server, octavo_server

import octavo
from octavo.cli.render import markdown_table
from octavo.convert.plan.recall_texts import SHIPPED_NOVEL
from octavo.cpu_kernels.numba_support.machine import cpu_name
from octavo.documents.text.plain_text import read_utf8
from octavo.runtime.models.find_model import default_model

_CHAT, _JSON = "/v1/chat/completions", "application/json"

#: Tokens of the context, seconds between two looks at /health, and seconds of the stream alone.
_N_CTX, _LOOK, _ALONE = 4096, 0.02, 5.0

#: Bytes of the largest JSON, and of the largest file.
_LARGE = 30 << 20


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", type=Path)
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--documents", type=int, default=60)
    arguments = parser.parse_args()
    model = arguments.model or default_model()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _index(model, folder, arguments.documents)
        with octavo_server(model, folder, _N_CTX, arguments.threads) as server:
            watch = Watch(server)
            rows = []
            for what, requests in _kinds(server).items():
                gap, stall, statuses = watch.during(requests)
                answers = ", ".join(f"{n} x {status}" for status, n in sorted(statuses.items()))
                rows.append([what, answers, f"{gap:.2f}", f"{stall:.2f}"])
                print(*rows[-1], file=sys.stderr, flush=True)
            watch.end()
            for file in server.call("GET", "/v1/files")["data"]:  # else the background reader reads on
                server.call("DELETE", f"/v1/files/{file['id']}")
    print(f"{cpu_name()}, {arguments.threads} threads, {arguments.documents} documents")
    print(markdown_table(["requests", "answers", "longest gap, s", "longest /health, s"], rows))


def _index(model: Path, folder: Path, n_documents: int) -> None:
    """Index short documents, as a library of many has them."""
    novel, texts = read_utf8(SHIPPED_NOVEL), folder / "texts"
    texts.mkdir()
    for number in range(n_documents):
        (texts / f"{number:04d}.txt").write_text(novel[1500 * number : 1500 * (number + 1)], encoding="utf-8")
    octavo.index_documents([texts], octavo.ModelSettings(model, _N_CTX, index_dir=folder))


class Watch:
    """A stream that is written all the time, and looks at /health."""

    def __init__(self, server: Server) -> None:
        self._server, self._ends = server, False
        self._gaps, self._stalls = [0.0], [0.0]
        self._threads = [threading.Thread(target=work) for work in (self._stream, self._look)]
        for thread in self._threads:
            thread.start()

    def during(self, requests: list[Callable[[], int]]) -> tuple[float, float, dict[int, int]]:
        """Return the longest gap and the longest look during requests, all at once, and how often they had a status."""
        time.sleep(1)
        self._gaps, self._stalls = [0.0], [0.0]
        with ThreadPoolExecutor(max(len(requests), 1)) as pool:
            done = [future.result() for future in [pool.submit(request) for request in requests]]
        if not requests:
            time.sleep(_ALONE)
        return max(self._gaps), max(self._stalls), {status: done.count(status) for status in set(done)}

    def end(self) -> None:
        """End the stream."""
        self._ends = True
        for thread in self._threads:
            thread.join()

    def _stream(self) -> None:
        body = {"messages": _said("Write a story."), "stream": True, "max_tokens": 400, "ignore_eos": True}
        while not self._ends:
            connection, last = _connect(self._server), 0.0
            connection.request("POST", _CHAT, json.dumps(body), {"Content-Type": _JSON})
            for line in connection.getresponse():
                now = time.perf_counter()
                if line.startswith(b"data: {"):
                    self._gaps.append(now - (last or now))
                    last = now
                if self._ends:
                    break
            connection.close()

    def _look(self) -> None:
        while not self._ends:
            began = time.perf_counter()
            self._server.call("GET", "/health")
            self._stalls.append(time.perf_counter() - began)
            time.sleep(_LOOK)


def _kinds(server: Server) -> dict[str, list[Callable[[], int]]]:
    """Return the requests of each kind."""
    ids = [file["id"] for file in server.call("GET", "/v1/files")["data"]]
    novel = read_utf8(SHIPPED_NOVEL)
    prose = (novel * (_LARGE // len(novel) + 1))[:_LARGE]
    noise = base64.b64encode(random.Random(0).randbytes(_LARGE // 4 * 3)).decode()
    schema = {"type": "object", "properties": {f"field_{i}": {"type": "string"} for i in range(5000)}}
    tools = [{"type": "function", "function": {"name": "save", "parameters": schema}}]
    page = server.call("POST", "/v1/files", *_form("pages.pdf", _pdf(novel)))["id"]
    sent = [{"type": "file", "file": {"filename": "noise.bin", "file_data": noise}}]

    def post(path: str, **body: Any) -> Callable[[], int]:
        data = json.dumps(body).encode()
        return lambda: _status(server, "POST", path, data)

    def get(path: str) -> Callable[[], int]:
        return lambda: _status(server, "GET", path)

    def upload(name: str, text: str) -> Callable[[], int]:
        return lambda: _status(server, "POST", "/v1/files", *_form(name, text.encode()))

    question = post(_CHAT, messages=_said(novel[:3000]), document=ids, max_tokens=4)
    return {
        "none": [],
        "a long question over all documents": [question] * 2,
        "a question that exceeds the context, over all documents": [
            post(_CHAT, messages=_said(prose[:200_000]), document=ids)
        ],
        "a prompt of 30 MiB": [post(_CHAT, messages=_said(prose))],
        "a file of 22 MiB in a message": [post(_CHAT, messages=[{"role": "user", "content": sent}])],
        "200,000 numbers as a prompt": [post("/v1/completions", prompt=[1] * 199_000)],
        "10,000,000 numbers as a prompt": [post("/v1/completions", prompt=[1] * 10_000_000)],
        "a function with 5,000 fields": [post(_CHAT, messages=_said("?"), tools=tools, max_tokens=4)],
        "an answer with 5,000 fields": [
            post(_CHAT, messages=_said("?"), max_tokens=4, response_format={"type": "json_object", "schema": schema})
        ],
        "200 lists of files, 8 at once": [lambda: max(get("/v1/files")() for _ in range(25))] * 8,
        "200 lists of models, 8 at once": [lambda: max(get("/v1/models")() for _ in range(25))] * 8,
        "12 pictures of a page": [get(f"/v1/files/{page}/pages/1")] * 12,
        "tokens of 10 MiB": [post("/tokenize", content=prose[: 10 << 20])],
        "an upload of 30 MiB": [upload("prose.txt", prose)],
        "a question over that upload": [post(_CHAT, messages=_said("Who?"), document="prose.txt", max_tokens=4)],
        "40 uploads of 100 KiB": [upload(f"{i}.txt", prose[i : i + 100_000]) for i in range(40)],
    }


def _said(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def _connect(server: Server) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)


def _status(server: Server, method: str, path: str, body: bytes | None = None, kind: str = _JSON) -> int:
    """Return the status of an answer; 0 if the server hung up."""
    connection = _connect(server)
    with suppress(OSError):
        connection.request(method, path, body, {"Content-Type": kind})
        answer = connection.getresponse()
        answer.read()
        return answer.status
    return 0


def _form(name: str, content: bytes) -> tuple[bytes, str]:
    """Return the body of an upload, and its type."""
    boundary = os.urandom(16).hex()
    head = f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
    return head.encode() + content + f"\r\n--{boundary}--\r\n".encode(), f"multipart/form-data; boundary={boundary}"


def _pdf(text: str) -> bytes:
    """Return a PDF of a page with many lines."""
    lines = [line.encode("ascii", "ignore").translate(None, b"()\\") for line in text[:200_000].splitlines()]
    shown = b"".join(b"(%s) Tj 0 -1 Td\n" % line for line in lines)
    content = b"BT /F 1 Tf 20 780 Td\n" + shown + b"ET"
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents 4 0 R "
        b"/Resources << /Font << /F 5 0 R >> >> >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    out, places = b"%PDF-1.4\n", []
    for number, each in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, each)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n%s" % (len(objects) + 1, table)
    return out + b"trailer << /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, start)


if __name__ == "__main__":
    main()
