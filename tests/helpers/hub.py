"""A server that plays the Hugging Face hub, as huggingface_hub asks it."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    """What the hub holds, and what it was asked."""

    def __init__(self):
        self.repos: dict[str, dict[str, bytes]] = {}
        self.gated: set[str] = set()
        self.hashes: dict[bytes, str] = {}  # in place of right ones
        self.breaks_after: int | None = None  # bytes of the next file after which the connection breaks
        self.breaks_file = ""  # the file that this is about, instead
        self.when_broken: Callable[[], None] = lambda: None  # what happens besides
        self.asked: list[tuple[str, str, str | None]] = []

    def sha256(self, content):
        return self.hashes.get(content, hashlib.sha256(content).hexdigest())


@contextmanager
def playing():
    """Yield a hub and its address."""
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def answer(self, status, headers=(), body=b""):
            self.send_response(status)
            for name, value in dict(headers).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def do_HEAD(self):
            self.do_GET()

        def do_GET(self):
            hub.asked.append((self.command, self.path, self.headers.get("Range")))
            path = self.path.partition("?")[0]
            parts = path.strip("/").split("/")
            is_api = parts[:2] == ["api", "models"]
            repo = "/".join(parts[2:4] if is_api else parts[:2])
            if repo not in hub.repos:
                self.answer(404, {"X-Error-Code": "RepoNotFound"}, b'{"error": "Repository not found"}')
            elif repo in hub.gated and self.headers.get("Authorization") != "Bearer hf_secret":
                self.answer(403, {"X-Error-Code": "GatedRepo", "X-Error-Message": "gated"}, b"{}")
            elif is_api:
                self.answer_api(repo)
            else:
                self.answer_file(repo, "/".join(parts[4:]))

        def answer_api(self, repo):
            siblings = [{"rfilename": name} for name in hub.repos[repo]]
            told = {"id": repo, "modelId": repo, "sha": COMMIT, "private": False, "siblings": siblings, "tags": []}
            self.answer(200, {"Content-Type": "application/json"}, json.dumps(told).encode())

        def answer_file(self, repo, name):
            if name not in hub.repos[repo]:
                self.answer(404, {"X-Error-Code": "EntryNotFound"})
                return
            data = hub.repos[repo][name]
            headers = {
                "X-Repo-Commit": COMMIT,
                "X-Linked-Etag": f'"{hub.sha256(data)}"',
                "X-Linked-Size": str(len(data)),
            }
            headers |= {"ETag": f'"{hub.sha256(data)}"', "Accept-Ranges": "bytes"}
            if self.command == "HEAD":
                self.send_response(200)
                for key, value in {**headers, "Content-Length": str(len(data))}.items():
                    self.send_header(key, value)
                self.end_headers()
                return
            start = 0
            if asked := self.headers.get("Range"):
                start = int(asked.removeprefix("bytes=").split("-")[0])
                headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
            body = data[start:]
            if hub.breaks_after is not None and hub.breaks_file in ("", name):
                broken, hub.breaks_after = hub.breaks_after, None
                self.send_response(206 if start else 200)
                for key, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(key, value)
                self.end_headers()
                self.wfile.write(body[:broken])
                self.wfile.flush()
                hub.when_broken()
                self.connection.close()
                self.close_connection = True
                return
            self.answer(206 if start else 200, headers, body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
