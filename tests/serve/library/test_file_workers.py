"""Work on files for requests: nobody waits for the file of another."""

import asyncio
import time

import pytest

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


def ask(served, document, **more):
    body = {"prompt": "What?", "document": document, "max_tokens": 2, "reads": "excerpts", **more}
    return served.client.post("/v1/completions", json=body, timeout=more.pop("timeout", 60))


def test_a_file_that_is_never_read_holds_up_no_question_over_another(served, stuck):
    served.hold()  # the background reader
    try:
        hostile, other = served.upload("stuck.txt", TEXT + b"1"), served.upload("other.txt", TEXT + b"2")
        with pytest.raises(Exception, match="timed out"):
            served.client.post("/v1/completions", json={"prompt": "?", "document": hostile["id"]}, timeout=1)
        assert ask(served, other["id"]).status_code == 200
    finally:
        served.let_go()
    for file in (hostile, other):
        served.client.delete(f"/v1/files/{file['id']}")


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
