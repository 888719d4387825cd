"""Readings halt while answers are computed, and no longer."""

import base64
import time
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
from helpers.served import serving
from helpers.waiting import wait_until

from octavo.library.background.computing import others_compute
from octavo.workers.worker_process import WorkerProcess

LONG = ("The keeper wrote down each ship. " * 60).encode()
QUESTION = [{"role": "user", "content": "What did the keeper write?"}]


@pytest.fixture
def own(tiny_model, tmp_path):
    """A server of its own: other tests would wake its engine."""
    with serving(tiny_model, tmp_path) as served:
        yield served


def upload(served, name="ships.txt", content=LONG):
    """Upload a document; returns its id, and its process once that runs."""
    file = served.upload(name, content)
    process = served.server.documents._uploads[file["id"]].process
    wait_until(lambda: process._process is not None)
    return file["id"], psutil.Process(process._process.pid)


def is_halted(process):
    return process.status() == psutil.STATUS_STOPPED


def test_a_reading_halts_while_answers_are_computed_and_a_moment_longer(own):
    with own.paused():
        file, process = upload(own)
        wait_until(lambda: is_halted(process))
        assert own.client.get(f"/v1/files/{file}").json()["status"] == "processing"
    assert is_halted(process)  # so that it does not flicker between two requests
    wait_until(lambda: own.client.get(f"/v1/files/{file}").json()["status"] == "processed")


def test_a_reading_under_way_halts_when_an_answer_begins(own):
    file, process = upload(own)
    assert not is_halted(process)
    with own.paused():
        wait_until(lambda: is_halted(process))
    wait_until(lambda: own.client.get(f"/v1/files/{file}").json()["status"] == "processed")


def test_what_commands_read_in_the_background_halts_while_the_server_computes(own, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    pauses = own.server.documents.pauses
    pauses.note_busy(False)
    assert not others_compute()
    pauses.note_busy(True)
    assert others_compute()
    pauses.note_busy(False)
    with pauses.of(WorkerProcess("", {})):
        assert others_compute()
    assert not others_compute()


def test_a_halted_reading_can_be_removed(own):
    with own.paused():
        file, process = upload(own)
        wait_until(lambda: is_halted(process))
        began = time.monotonic()
        assert own.client.delete(f"/v1/files/{file}").json()["deleted"]
        assert time.monotonic() - began < 9  # seconds after which a process is killed that does not end
        assert not process.is_running()
        assert own.client.get("/v1/files").json()["data"] == []


def test_a_server_stops_while_a_reading_is_halted_and_resumes_it(tiny_model, tmp_path):
    with serving(tiny_model, tmp_path) as served, served.paused():
        file, process = upload(served)
        wait_until(lambda: is_halted(process))
    assert not process.is_running()
    with serving(tiny_model, tmp_path) as served:
        wait_until(lambda: served.client.get(f"/v1/files/{file}").json()["status"] == "processed")


def test_a_document_that_a_request_waits_for_is_read_while_answers_are_computed(own):
    """Also if another reading comes first."""
    data = base64.b64encode(b"The keeper saw 90 ships. " * 30).decode()
    parts = [{"type": "file", "file": {"file_data": data, "filename": "inline.txt"}}, {"type": "text", "text": "What?"}]
    body = {"model": "x", "messages": [{"role": "user", "content": parts}], "max_tokens": 3}
    with ThreadPoolExecutor(1) as pool, own.paused():
        first, process = upload(own)
        wait_until(lambda: is_halted(process))
        answer = pool.submit(own.post, "/v1/chat/completions", **body)
        wait_until(lambda: {"processed"} == {each["status"] for each in own.client.get("/v1/files").json()["data"]})
        assert own.client.get(f"/v1/files/{first}").json()["status"] == "processed"
        assert not answer.done()
    assert answer.result()["basis"]["kind"] == "document"
