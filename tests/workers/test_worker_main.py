"""A process tells of each task how it ended, and goes on whatever a task raises."""

import sys

import pytest

from octavo.errors import NoRoom, OctavoError
from octavo.workers.work import Work
from octavo.workers.worker_process import Died, WorkerProcess

PROBLEMS = {
    "odd": ValueError("an odd\nvalue \ud83d"),
    "refused": OctavoError("It is empty."),
    "full": NoRoom("The disk is full."),
    "memory": MemoryError(),
    "broken": KeyError("source"),
}


class Raising(Work):
    """Raise what a message names, or return it."""

    def do(self, message):
        if (name := message["name"]) in PROBLEMS:
            raise PROBLEMS[name]
        return {"name": name}

    def close(self):
        pass


@pytest.fixture
def process(monkeypatch):
    monkeypatch.syspath_prepend(str(__file__).rpartition("/")[0])
    monkeypatch.setenv("PYTHONPATH", ":".join(sys.path))
    process = WorkerProcess("test_worker_main:Raising", {})
    yield process
    process.end()


def test_a_process_goes_on_whatever_a_task_raises(process):
    def do(name):
        return process.do({"name": name}, lambda message: None)

    assert do("a") == {"result": {"name": "a"}}
    pid = process.pid
    assert do("odd") == {"error": "It could not be read: ValueError: an odd value \ufffd. Please report this."}
    assert do("broken") == {"error": "It could not be read: KeyError: 'source'. Please report this."}
    assert do("refused") == {"error": "It is empty."}
    assert do("full") == {"error": "The disk is full.", "may_succeed": True}
    assert do("memory") == {"error": "Memory ran out: close other programs, and try again.", "may_succeed": True}
    assert do("b") == {"result": {"name": "b"}}
    assert process.pid == pid


def test_a_process_that_cannot_begin_is_reported(monkeypatch):
    process = WorkerProcess("no_such_module:Raising", {})
    with pytest.raises(Died, match="No module named 'no_such_module'"):
        process.do({}, lambda message: None)
