"""The background reader reads uploads: it halts while answers are computed, and needs no server."""

import asyncio
import base64
import json
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import httpx
import psutil
import pytest
from helpers.command_line import octavo
from helpers.served import serving
from helpers.waiting import wait_until

from octavo.library.background.computing import Computing, computing, others_compute
from octavo.library.background.reading_queue import STOPPED, QueuedDocument, ReadingQueue
from octavo.serve.library.file_json import progress_as_json

LONG = ("The keeper wrote down each ship. " * 60).encode()
INLINE = b"The keeper saw 90 ships. " * 30


@pytest.fixture(autouse=True)
def queue(monkeypatch, tmp_path):
    """A queue of its own; its readers have ended when the test ends."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    queue = ReadingQueue()
    yield queue
    for document in queue.documents():
        queue.end(document)
    wait_until(lambda: not queue.has_reader)


@pytest.fixture
def own(tiny_model, tmp_path):
    """A server of its own: other tests would wake its engine."""
    with serving(tiny_model, tmp_path) as served:
        yield served


def upload(served, queue, name="ships.txt", content=LONG):
    """Upload a document; returns its id, and the process that reads it once that runs."""
    file = served.upload(name, content)
    wait_until(lambda: (first := queue.next()) and first.file.parent.name == file["id"] and queue.process())
    return file["id"], queue.process()


def is_halted(process):
    return process.status() == psutil.STATUS_STOPPED


def status(served, file):
    return served.client.get(f"/v1/files/{file}").json()["status"]


def test_a_reading_halts_while_answers_are_computed_and_a_moment_longer(own, queue):
    with own.paused():
        file, process = upload(own, queue)
        wait_until(lambda: is_halted(process))
        assert status(own, file) == "processing"
    assert is_halted(process)  # so that it does not flicker between two requests
    wait_until(lambda: status(own, file) == "processed")


def test_a_reading_under_way_halts_when_an_answer_begins(own, queue):
    file, process = upload(own, queue)
    assert not is_halted(process)
    with own.paused():
        wait_until(lambda: is_halted(process))
    wait_until(lambda: status(own, file) == "processed")


def test_a_server_halts_the_reader_only_while_it_computes():
    server = Computing()
    server.note(False)
    assert not others_compute()
    for _ in range(2):
        server.note(True)
        assert others_compute()
    server.note(False)
    assert not others_compute()


def test_a_halted_reading_can_be_removed(own, queue):
    with own.paused():
        file, process = upload(own, queue)
        wait_until(lambda: is_halted(process))
        began = time.monotonic()
        assert own.client.delete(f"/v1/files/{file}").json()["deleted"]
        assert time.monotonic() - began < 9  # seconds after which a process is killed that does not end
        assert not process.is_running()
        assert own.client.get("/v1/files").json()["data"] == []


def test_an_upload_is_read_on_without_its_server_which_finds_the_index(tiny_model, tmp_path, queue):
    with serving(tiny_model, tmp_path) as served, served.paused():
        file, process = upload(served, queue)
        wait_until(lambda: is_halted(process))
    wait_until(lambda: not any(each.is_pending for each in queue.documents()))
    with serving(tiny_model, tmp_path) as served:
        assert status(served, file) == "processed"
        assert queue.uploads(served.server.library.folder) == []


def test_an_upload_is_read_after_a_restart_even_if_the_queue_is_lost(tiny_model, tmp_path, queue):
    """As an older octavo left it, which had no queue of uploads."""
    with serving(tiny_model, tmp_path, held=True) as served:
        file, _ = upload(served, queue)
        for document in queue.documents():
            queue.end(document)
    with serving(tiny_model, tmp_path) as served:
        wait_until(lambda: status(served, file) == "processed")


def test_a_document_that_a_request_waits_for_is_read_first_even_while_answers_are_computed(own, queue):
    data = base64.b64encode(INLINE).decode()
    parts = [{"type": "file", "file": {"file_data": data, "filename": "inline.txt"}}, {"type": "text", "text": "What?"}]
    body = {"model": "x", "messages": [{"role": "user", "content": parts}], "max_tokens": 3}
    with ThreadPoolExecutor(1) as pool, own.paused():
        first, process = upload(own, queue)
        wait_until(lambda: is_halted(process))
        answer = pool.submit(own.post, "/v1/chat/completions", **body)
        wait_until(
            lambda: (
                {each["filename"]: each["status"] for each in own.client.get("/v1/files").json()["data"]}
                == {"inline.txt": "processed", "ships.txt": "processing"}
            )
        )
        assert status(own, first) == "processing"
        assert not answer.done()
    assert answer.result()["basis"]["kind"] == "document"
    wait_until(lambda: status(own, first) == "processed")


def test_uploads_are_read_in_their_order_and_before_what_a_question_left(queue, tmp_path):
    library, document = tmp_path / "tiny.octavo", tmp_path / "a.txt"
    queue.add([document], library, {})
    for name in ("1.txt", "2.txt"):
        queue.add_upload(library / "uploads" / name / name, library, {})
    assert [each.name for each in queue.documents()] == ["1.txt", "2.txt", "a.txt"]
    queue.await_document(queue.documents()[1])
    assert [each.name for each in queue.documents()] == ["2.txt", "1.txt", "a.txt"]
    queue.finish(queue.next(), ["index"])
    assert [each.name for each in queue.documents()] == ["1.txt", "a.txt"]
    assert {each.name: each.folders for each in queue.uploads(library)} == {"1.txt": "", "2.txt": '["index"]'}


def test_octavo_lists_and_stops_uploads(own, queue):
    own.hold()
    file, process = upload(own, queue)
    where = "--index-dir", own.server.library.folder.parent
    assert "ships.txt" in octavo("list", *where).stdout
    [row] = json.loads(octavo("list", *where, "-o", "json").stdout)
    assert (row["document"], row["model"]) == ("ships.txt", "tiny.gguf")
    assert octavo("stop").stderr.startswith("Stopped ships.txt (")
    wait_until(lambda: not process.is_running())
    stopped = own.client.get(f"/v1/files/{file}").json()
    assert (stopped["status"], stopped["status_details"]) == ("error", STOPPED)
    assert octavo("stop").stderr == "Nothing is read in the background.\n"
    own.let_go()
    assert own.read("ships.txt", LONG)["id"] == file
    assert status(own, file) == "processed"
    assert json.loads(octavo("list", *where, "-o", "json").stdout)[0]["state"] == ""


def test_a_stopped_upload_stays_stopped_after_a_restart(tiny_model, tmp_path, queue):
    with serving(tiny_model, tmp_path, held=True) as served:
        file, _ = upload(served, queue)
        octavo("stop")
    with serving(tiny_model, tmp_path) as served:
        assert status(served, file) == "error"
        assert served.client.delete(f"/v1/files/{file}").json()["deleted"]
        assert served.client.get("/v1/files").json()["data"] == []


def test_what_commands_read_gives_way_to_an_upload(own, queue, tiny_model, tmp_path):
    document = tmp_path / "other.txt"
    document.write_bytes(LONG * 40)
    with computing():
        library = own.server.library
        queue.add([document], library.folder, own.server.documents._job.anywhere(library).as_json())
        file, _ = upload(own, queue)
    wait_until(lambda: status(own, file) == "processed")
    assert [each.name for each in queue.documents()] == ["other.txt"]


def test_two_servers_share_an_upload(tiny_model, tmp_path):
    with serving(tiny_model, tmp_path) as one, serving(tiny_model, tmp_path) as other:
        file = one.upload("ships.txt", LONG)["id"]
        assert status(other, file) == "processing"
        assert other.upload("again.txt", LONG)["id"] == file
        wait_until(lambda: status(other, file) == "processed")
        assert status(one, file) == "processed"


def test_an_upload_of_a_text_that_is_indexed_is_that_document(own):
    first = own.read("ships.txt", LONG)
    copy = own.read("ships.md", b"\xef\xbb\xbf" + LONG)  # other bytes of the same text
    assert copy["id"] == first["id"]
    assert own.client.get("/v1/files").json()["data"] == [first]


def test_a_server_that_may_not_start_processes_tells_so(own, monkeypatch):
    def refuse():
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("octavo.serve.library.served_library.start_reader", refuse)
    file = own.read("ships.txt", LONG)
    assert (file["status"], file["status_details"]) == (
        "error",
        "It cannot be read: Operation not permitted.",
    )


def test_an_upload_that_lacked_memory_or_disk_keeps_its_file(own, queue):
    own.hold()
    file, _ = upload(own, queue)
    [queued] = queue.uploads(own.server.library.folder)
    queue.fail(queued, "Memory ran out.", may_succeed=True)
    wait_until(lambda: status(own, file) == "error")
    time.sleep(1)  # a few looks at the queue
    assert queued.file.read_bytes() == LONG
    assert own.client.get(f"/v1/files/{file}").json()["status_details"] == "Memory ran out."
    own.let_go()
    assert own.read("ships.txt", LONG)["status"] == "processed"
    assert queue.uploads(own.server.library.folder) == []


def test_an_upload_that_cannot_be_read_leaves_no_file(own, queue):
    file = own.read("noise.pdf", b"%PDF-1.4 nothing")
    assert file["status"] == "error"
    wait_until(lambda: not list(own.server.library.folder.glob("uploads/*/noise.pdf")))


def test_a_queue_of_an_older_octavo_gains_what_it_lacks(queue):
    queue.folder.mkdir(parents=True)
    with closing(sqlite3.connect(queue.folder / "queue.sqlite")) as database, database:
        database.execute(
            "CREATE TABLE documents (path TEXT, library TEXT, job TEXT, asked REAL, place INTEGER, task TEXT DEFAULT "
            "'', unit TEXT DEFAULT '', done INTEGER DEFAULT 0, total INTEGER DEFAULT 0, problem TEXT DEFAULT '', "
            "PRIMARY KEY (path, library))"
        )
        database.execute(
            "INSERT INTO documents (path, library, job, asked, place) VALUES ('/a.txt', '/m.octavo', '{}', 1, 0)"
        )
    [document] = queue.documents()
    assert (document.path, document.is_upload, document.is_pending, document.is_awaited) == (
        "/a.txt",
        False,
        True,
        False,
    )
    queue.await_document(document)
    assert queue.next().is_awaited


@pytest.mark.parametrize(
    ("task", "shown"),
    [
        ("Reading a, part 1.txt", "Reading"),
        ("Reading a, part 1.txt, part 2 of 3", "Reading part 2 of 3"),
        ("Clustering keys", "Clustering"),
    ],
)
def test_progress_names_the_task_and_the_part_but_not_the_file(task, shown):
    queued = QueuedDocument(
        path=str(Path("m.octavo/uploads/file-1/a, part 1.txt")),
        library="m.octavo",
        job="{}",
        asked=0.0,
        place=1,
        task=task,
        unit="tokens",
        done=15,
        total=100,
        began=time.time() - 10,
        before=10,
        problem="",
        awaited=0.0,
        folders="",
        seconds_left=170.04,
    )
    progress = progress_as_json(queued)
    assert (progress["task"], progress["done"], progress["total"]) == (shown, 15, 100)
    assert (progress["seconds_left"], progress["waits_for"]) == (170.0, None)
    waiting = progress_as_json(queued._replace(waits_for="the answer"))
    assert (waiting["seconds_left"], waiting["waits_for"]) == (None, "the answer")


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/messages/count_tokens"])
def test_a_document_in_a_message_is_awaited_no_longer_than_its_client(served, monkeypatch, path):
    """Else it would be read before others, and while answers are computed."""
    waiting, left = [], []

    async def wait(document_id):
        waiting.append(document_id)
        try:
            await asyncio.sleep(60)
        finally:
            left.append(document_id)

    monkeypatch.setattr(served.server.documents, "wait", wait)
    data = base64.b64encode(f"A text that is sent to {path}.".encode()).decode()
    parts = {
        "/v1/chat/completions": {"type": "file", "file": {"file_data": data, "filename": "sent.txt"}},
        "/v1/responses": {"type": "input_file", "file_data": data, "filename": "sent.txt"},
    }
    source = {"type": "base64", "media_type": "text/plain", "data": data}
    part = parts.get(path, {"type": "document", "source": source})
    messages = [{"role": "user", "content": [part]}]
    with pytest.raises(httpx.ReadTimeout):
        served.client.post(path, json={"max_tokens": 2, "messages": messages, "input": messages}, timeout=0.5)
    wait_until(lambda: left)
    assert left == waiting
    served.client.delete(f"/v1/files/{left[0]}")


def test_what_an_unread_upload_lacks_is_known_once_its_text_is(own):
    own.hold()
    file = own.upload("cafe.txt", ("Der Wärter läutete schön im Nebel, über der Straße. " * 20).encode("cp1252"))["id"]
    assert own.client.get(f"/v1/files/{file}").json()["notices"] == []
    messages = [{"role": "user", "content": "What is open?"}]
    own.post("/v1/chat/completions", messages=messages, document=file, max_tokens=2)
    described = own.client.get(f"/v1/files/{file}").json()
    assert described["status"] == "processing"
    [sentence] = described["notices"]
    assert sentence.startswith("cafe.txt is read as cp1252")
    own.let_go()
    wait_until(lambda: status(own, file) == "processed")
    assert own.client.get(f"/v1/files/{file}").json()["notices"] == [sentence]
