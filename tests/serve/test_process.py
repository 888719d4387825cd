"""`octavo serve` as a process: how it ends by Ctrl-C, and what is there when it is started again."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from helpers.served import serving
from helpers.waiting import wait_until

from octavo.library.background.computing import computing
from octavo.library.background.reading_queue import ReadingQueue
from octavo.serve.engine.grammar import Grammars

TEXT = b"The keeper wrote every evening. " * 60


class Process:
    """A server that runs, as one starts it in a terminal."""

    def __init__(self, model, folder):
        command = [sys.executable, "-P", "-m", "octavo", "serve", "-m", str(model), "--index-dir", str(folder)]
        command += ["--port", "0", "-c", "2048"]
        self.run = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        self.said = ""
        while (found := re.search(r"(http://\S+):", self.said)) is None:
            line = self.run.stderr.readline()
            assert line, self.said
            self.said += line
        self.client = httpx.Client(base_url=found[1], timeout=60)

    def upload(self, name, content):
        return self.client.post("/v1/files", files={"file": (name, content)}, data={"purpose": "user_data"}).json()

    def files(self):
        return self.client.get("/v1/files").json()["data"]

    def end(self, number=signal.SIGINT):
        """Press Ctrl-C: all processes of the terminal get the signal. Returns the exit code."""
        os.killpg(self.run.pid, number)
        self.said += self.run.communicate(timeout=60)[1]
        return self.run.returncode


@pytest.fixture
def start(tiny_model, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    started = []

    def start():
        started.append(Process(tiny_model, tmp_path))
        return started[-1]

    yield start
    for process in started:
        if process.run.poll() is None:
            process.end(signal.SIGKILL)


def test_ctrl_c_ends_it_in_good_order(start):
    process = start()
    assert process.end() == 0
    assert "Traceback" not in process.said


def test_ctrl_c_before_it_serves_leaves_no_engine_that_the_process_waits_for(tiny_model, tmp_path, monkeypatch):
    def interrupted(grammars):
        assert "octavo-engine" in {thread.name for thread in threading.enumerate()}
        raise KeyboardInterrupt

    monkeypatch.setattr(Grammars, "warm_up", interrupted)
    before = set(threading.enumerate())
    with pytest.raises(KeyboardInterrupt), serving(tiny_model, tmp_path):
        pass
    assert not [thread for thread in set(threading.enumerate()) - before if not thread.daemon]


@pytest.mark.parametrize("stream", [pytest.param(False, marks=pytest.mark.slow), True])
def test_ctrl_c_in_an_answer_tells_its_client(start, stream):
    process = start()
    body = {"max_tokens": 2000, "logit_bias": {"270": -100, "268": -100}, "stream": stream, "n": 8}
    body["prompt"] = ["A"] * 16  # no CPU answers all of that in a second
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(process.client.post, "/v1/completions", json=body)
        time.sleep(1)
        assert process.end() == 0
    assert "The server is stopping." in answer.result().text
    assert "Traceback" not in process.said


def test_a_stop_tells_the_client_of_an_upload_that_it_cuts(start):
    process = start()
    url = httpx.URL(str(process.client.base_url))
    head = "POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999\r\n"
    head += "Content-Type: multipart/form-data; boundary=b\r\n\r\n--b\r\n"
    with socket.create_connection((url.host, url.port), timeout=60) as client, ThreadPoolExecutor(1) as pool:
        client.sendall(head.encode())
        time.sleep(0.5)
        ended = pool.submit(process.end)
        answer = b"".join(iter(lambda: client.recv(9999), b"")).decode()
        assert ended.result() == 0
    assert answer.startswith("HTTP/1.1 503")
    assert "The server is stopping: the body did not come whole. Send it again later." in answer
    assert "Traceback" not in process.said


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGKILL])
def test_an_upload_that_was_being_read_is_read_after_a_restart(start, number):
    """Also if the background reader was killed."""
    process, queue = start(), ReadingQueue()
    with computing():
        file = process.upload("a.txt", TEXT)
        assert file["status"] == "processing"
        wait_until(queue.process)
        process.end(number)
        reading = queue.process()
        for victim in (reading.parent(), reading):
            victim.kill()
    assert "Traceback" not in process.said
    process = start()
    late = time.monotonic() + 60
    while (found := process.files()) and found[0]["status"] == "processing" and time.monotonic() < late:
        time.sleep(0.1)
    assert [(each["id"], each["filename"], each["status"]) for each in found] == [(file["id"], "a.txt", "processed")]


@pytest.mark.slow
def test_two_servers_share_a_library(start):
    one, other = start(), start()
    file = one.upload("a.txt", TEXT)
    late = time.monotonic() + 60
    while one.files()[0]["status"] == "processing" and time.monotonic() < late:
        time.sleep(0.1)
    again = other.upload("a.txt", TEXT)
    assert (again["id"], again["status"]) == (file["id"], "processed")
    assert one.client.delete(f"/v1/files/{file['id']}").status_code == 200
    assert other.files() == []
    content = [{"type": "file", "file": {"file_id": file["id"]}}, {"type": "text", "text": "What?"}]
    asked = {"model": "tiny", "messages": [{"role": "user", "content": content}]}
    assert other.client.post("/v1/chat/completions", json=asked).status_code == 404
