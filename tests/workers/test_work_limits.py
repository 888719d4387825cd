"""A process that works on files of others takes no more time and memory than it may."""

import os
import sys
from pathlib import Path

import pytest

from octavo.errors import OctavoError
from octavo.library import document_work
from octavo.library.document_work import GuardedFile
from octavo.workers.work import TOO_MUCH_MEMORY, TOO_MUCH_TIME, WorkLimits
from octavo.workers.worker_process import Died, WorkerProcess


@pytest.fixture
def process(monkeypatch):
    """A process of work that takes all that it gets."""
    paths = [str(Path(__file__).parents[1]), *sys.path]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    made = WorkerProcess("helpers.hungry_work:Hungry", {})
    yield made
    made.end()


def done(process, takes):
    return process.do({"takes": takes}, lambda message: None)


def test_memory_beyond_the_limit_is_an_error_of_the_task(process):
    assert done(process, "nothing")["result"]
    if sys.platform == "linux":
        assert done(process, "memory") == {"error": TOO_MUCH_MEMORY}
        assert done(process, "nothing")["result"]  # the process goes on


def test_time_beyond_the_limit_ends_the_process(process):
    assert done(process, "nothing")["result"]
    with pytest.raises(Died, match=TOO_MUCH_TIME):
        done(process, "time")
    assert done(process, "nothing")["result"]  # another process


def test_limits_grow_with_the_file(tmp_path):
    (tmp_path / "a").write_bytes(b"a")
    (tmp_path / "b").write_bytes(bytes(2 << 20))
    small, large = WorkLimits.of_file(tmp_path / "a"), WorkLimits.of_file(tmp_path / "b")
    assert large.seconds > small.seconds + 30
    assert large.n_bytes > small.n_bytes
    assert WorkLimits.of_file(tmp_path / "gone").seconds <= small.seconds


def test_a_guarded_file_has_the_same_text_and_the_same_errors(tmp_path):
    (tmp_path / "a.md").write_text("# One\n\nText of one.\n", "utf-8")
    guarded, plain = (kind(tmp_path / "a.md").extract() for kind in (GuardedFile, document_work.SourceFile))
    assert guarded == plain
    (tmp_path / "b.txt").write_text(" ")
    with pytest.raises(OctavoError, match=r"^b.txt is empty"):
        GuardedFile(tmp_path / "b.txt").extract()


def test_a_guarded_file_that_takes_too_long_is_named(tmp_path, monkeypatch):
    def died(self, task, receive):
        raise Died(f"code -24: {TOO_MUCH_TIME}")

    monkeypatch.setattr(WorkerProcess, "do", died)
    with pytest.raises(OctavoError, match=r"^a.txt cannot be read: .* it computed for longer"):
        GuardedFile(tmp_path / "a.txt").extract()
