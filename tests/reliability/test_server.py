"""The server under load: many clients at once, some of which hang up, send half a body, or garbage."""

import contextlib
import gc
import http.client
import json
import random
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
from helpers.command_line import SENTENCES
from helpers.served import serving

from octavo.serve.engine import sequences

#: Clients that ask at once: more than the server answers at once.
N_CLIENTS = 8

ANSWERED, REFUSED = "answered", "refused in a sentence"
HUNG_UP, HALF, GARBAGE = "a client of the server that hangs up", "half a body to the server", "garbage to the server"


class Load:
    """Requests of all kinds, drawn at random."""

    def __init__(self, served, document):
        self.served, self.document = served, document

    def send(self, path, body):
        """Return the status and the content that come back; a body of bytes is sent as it is."""
        connection = http.client.HTTPConnection(*self.served.address, timeout=60)
        with contextlib.closing(connection):
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            connection.request("POST", path, content, {"Content-Type": "application/json", "Connection": "close"})
            response = connection.getresponse()
            return response.status, response.read()

    def one(self, number):
        """Make a request; returns the row of the table, and what came of it."""
        rng = random.Random(number)
        kinds = [self.ask, self.refused, self.hang_up, self.half_a_body, self.garbage]
        return rng.choices(kinds, weights=[60, 15, 15, 5, 5])[0](rng)

    def ask(self, rng):
        path, body = self.a_body(rng)
        status, content = self.send(path, body)
        assert status == 200, content
        if body["stream"]:
            assert content.rstrip().endswith((b"data: [DONE]", b'"message_stop"}')), content
            assert b'"error"' not in content
        else:
            assert json.loads(content)["usage"]
        return "a request to the server", ANSWERED

    def a_body(self, rng):
        """Return the path and the body of a request."""
        body = {"model": "any", "stream": rng.random() < 0.5, "max_tokens": rng.randrange(1, 24)}
        body |= {"temperature": rng.choice([0, 1]), "seed": rng.randrange(100)}
        if rng.random() < 0.4:
            tokens = [rng.randrange(3, 250) for _ in range(rng.choice([1, 20, 300]))]
            return "/v1/completions", {**body, "prompt": tokens}
        body["messages"] = [{"role": "user", "content": f"What of ship {rng.randrange(1000)}?"}]
        if rng.random() < 0.5:
            body["document"] = self.document
        return rng.choice(["/v1/chat/completions", "/v1/messages"]), body

    def refused(self, rng):
        path, body = self.a_body(rng)
        wrong = [
            {**body, "max_tokens": -2},
            {**body, "messages": [], "prompt": []},
            {**body, "messages": "none", "prompt": {"none": 0}},
            json.dumps(body).encode()[:-3],
            b"",
        ]
        status, content = self.send(path, rng.choice(wrong))
        assert 400 <= status < 500, content
        assert json.loads(content)["error"]["message"]
        return "a request to the server", REFUSED

    def hang_up(self, rng):
        path, body = self.a_body(rng)
        self.push(path, {**body, "max_tokens": 400}, rng, 1.0)
        return HUNG_UP, "nothing left running"

    def half_a_body(self, rng):
        self.push(*self.a_body(rng), rng, rng.random())
        return HALF, "nothing wrong afterwards"

    def push(self, path, body, rng, share):
        """Send a share of a body, wait a moment, and hang up."""
        content = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(content)}\r\n\r\n".encode()
        with socket.create_connection(self.served.address) as connection:
            connection.sendall(head + content[: int(share * len(content))])
            time.sleep(rng.choice([0, 0.01, 0.1]) * rng.random())

    def garbage(self, rng):
        with socket.create_connection(self.served.address, timeout=60) as connection:
            connection.sendall(rng.choice([b"", b"GET ", b"POST /v1/completions HTTP/1.1\r\n"]) + rng.randbytes(200))
            connection.sendall(b"\r\n\r\n")
            with contextlib.suppress(ConnectionError):
                answer = connection.recv(100)
                assert not answer or answer.startswith((b"HTTP/1.1 4", b"HTTP/1.1 5")), answer
        return GARBAGE, "nothing wrong afterwards"

    def answer(self):
        """Return the same greedy answer each time."""
        body = {"model": "any", "messages": [{"role": "user", "content": "Which ships?"}], "temperature": 0}
        status, content = self.send("/v1/chat/completions", {**body, "document": self.document, "max_tokens": 16})
        assert status == 200, content
        return json.loads(content)["choices"]

    def run(self, numbers):
        """Make requests, and wait until nothing is worked on."""
        with ThreadPoolExecutor(N_CLIENTS) as pool:
            outcomes = list(pool.map(self.one, numbers))
        self.served.wait_until_idle()
        return outcomes


def measures(most_files=0):
    """Return memory of this process that belongs to no file, and open files, once connections are closed."""
    process, late = psutil.Process(), time.monotonic() + 10
    while process.num_fds() > most_files and time.monotonic() < late:
        time.sleep(0.1)
    gc.collect()
    used = process.memory_info()
    return used.rss - used.shared, process.num_fds()


@pytest.mark.slow
def test_a_server_under_load(tiny_model, tmp_path, monkeypatch, amount, tally):
    """Memory and open files stay flat, nothing goes on, and the answer is the same afterwards."""
    monkeypatch.setattr(sequences, "_MOST_IDLE", amount(64, 4))  # memory grows until there are as many
    n_before, n = amount(400, 40), amount(2000, 60)
    with serving(tiny_model, tmp_path, kept_bytes=1 << 20) as served:
        load = Load(served, served.read("island.txt", (SENTENCES * 20).encode())["id"])
        served.client.close()
        expected = load.answer()
        load.run(range(n_before))
        bytes_before, n_files = measures()
        outcomes = load.run(range(n_before, n_before + n))
        bytes_after, n_files_after = measures(n_files)
        assert n_files_after <= n_files
        assert bytes_after - bytes_before < 16 << 20
        assert load.answer() == expected
    for fault, outcome in outcomes:
        tally(fault, outcome)
