"""Work on files for requests: nobody waits for the file of another."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx
import pytest
from helpers.waiting import wait_until

from octavo.library.document_work import DrawPages
from octavo.serve.library.file_workers import FileWorkers
from octavo.workers.work import name_of
from octavo.workers.worker_process import Ended, WorkerProcess

TEXT = b"The keeper of the island lighthouse wrote down each ship. " * 12


@pytest.fixture
def stuck(monkeypatch):
    """Have work on files whose names begin with "stuck" never end; returns the processes that were ended."""
    do, ended = WorkerProcess.do, []

    def do_or_not(self, task, receive):
        if "/stuck" not in str(task.get("path")):
            return do(self, task, receive)
        while not self._is_ended:
            time.sleep(0.01)
        ended.append(task["path"])
        raise Ended

    monkeypatch.setattr(WorkerProcess, "do", do_or_not)
    return ended


@contextmanager
def unread(served, *names):
    """Upload texts that the background reader does not read; yields their ids."""
    served.hold()
    try:
        ids = [served.upload(name, TEXT + name.encode())["id"] for name in names]
        yield ids
    finally:
        served.let_go()
        for each in ids:
            served.client.delete(f"/v1/files/{each}")


@contextmanager
def store_of(served, *files):
    """Make a vector store; yields its id."""
    made = served.post("/v1/vector_stores", file_ids=files)["id"]
    try:
        yield made
    finally:
        served.client.delete(f"/v1/vector_stores/{made}")


def ask(served, document, **more):
    body = {"prompt": "What?", "document": document, "max_tokens": 2, "reads": "excerpts", **more}
    return served.client.post("/v1/completions", json=body, timeout=more.pop("timeout", 60))


def hang_up(served, path, **body):
    """Ask, and leave after half a second."""
    with pytest.raises(httpx.TimeoutException):
        served.client.post(path, json=body, timeout=0.5)


def test_a_file_that_is_never_read_holds_up_no_question_over_another(served, stuck):
    with unread(served, "stuck.txt", "other.txt") as (hostile, other):
        hang_up(served, "/v1/completions", prompt="?", document=hostile)
        assert ask(served, other).status_code == 200


MESSAGES = {"messages": [{"role": "user", "content": "What?"}], "max_tokens": 2}
APIS = {
    "/v1/chat/completions": MESSAGES,
    "/v1/messages": MESSAGES,
    "/v1/responses": {"input": "What?"},
    "/api/chat": MESSAGES,
    "/api/generate": {"prompt": "What?"},
}


@pytest.mark.parametrize("path", APIS)
def test_a_text_is_extracted_no_longer_than_its_request_waits(served, stuck, path):
    with unread(served, "stuck.txt") as (document,):
        hang_up(served, path, document=document, model="tiny", **APIS[path])
        wait_until(lambda: stuck)


@pytest.mark.parametrize("path", ["files/{file}/content", "vector_stores/{store}/files/{file}/content"])
def test_a_text_that_nobody_waits_for_is_not_extracted_to_its_end(served, stuck, path):
    with unread(served, "stuck.txt") as (document,), store_of(served, document) as store:
        with pytest.raises(httpx.TimeoutException):
            served.client.get(f"/v1/{path.format(file=document, store=store)}", timeout=0.5)
        wait_until(lambda: stuck)


def test_a_search_that_hangs_up_ends_the_extraction(served, stuck):
    with unread(served, "stuck.txt") as (document,), store_of(served, document) as store:
        hang_up(served, f"/v1/vector_stores/{store}/search", query="What?")
        wait_until(lambda: stuck)


def test_documents_that_are_deleted_while_others_are_searched_are_left_out(served, stuck):
    with unread(served, "stuck.txt", "other.txt") as ids, store_of(served, *ids) as store, ThreadPoolExecutor(2) as do:
        search = do.submit(served.post, f"/v1/vector_stores/{store}/search", query="Which ship did the keeper write?")
        question = do.submit(ask, served, "[so]t[uh]*.txt")
        time.sleep(0.5)
        served.client.delete(f"/v1/files/{ids[0]}")
        assert {found["filename"] for found in search.result(60)["data"]} == {"other.txt"}
        assert question.result(60).status_code == 200


def test_a_text_that_another_request_waits_for_is_extracted_on(served, stuck):
    with unread(served, "stuck.txt") as (document,), ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(ask, served, document)
        hang_up(served, "/v1/completions", prompt="?", document=document)
        time.sleep(0.5)
        assert not stuck
        served.client.delete(f"/v1/files/{document}")
        assert waiting.result(60).status_code == 404
        wait_until(lambda: stuck)


def test_work_ends_with_its_request(stuck, tmp_path):
    async def hang_up():
        workers = FileWorkers({}, 1)
        first = asyncio.create_task(workers.do(name_of(DrawPages), {"path": str(tmp_path / "stuck.pdf")}))
        second = asyncio.create_task(workers.do(name_of(DrawPages), {"path": str(tmp_path / "stuck2.pdf")}))
        await asyncio.sleep(0.1)
        for task in (second, first):
            task.cancel()
        await asyncio.wait([first, second])
        third = workers.do(name_of(DrawPages), {"path": str(tmp_path / "none.pdf"), "page": "1", "quote": ""})
        return await asyncio.wait_for(third, 60)

    assert "FileNotFoundError" in asyncio.run(hang_up())["error"]  # of the third, for which there is room
    assert stuck == [str(tmp_path / "stuck.pdf")]
