"""Documents are read in the background, one by one, while nothing else computes; and killing it loses nothing."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from helpers.clock import Clock
from helpers.command_line import SENTENCES
from helpers.index_builds import assert_same_index
from helpers.waiting import wait_until

from octavo import OctavoError
from octavo.library.background import background_reader
from octavo.library.background.background_reader import BackgroundReader, battery_is_low
from octavo.library.background.computing import computing, others_compute
from octavo.library.background.reading_queue import ReadingQueue, start_reader
from octavo.library.batch.local_run import index_all
from octavo.library.reading_job import ReadingJob
from octavo.library.source_text import SourceFile
from octavo.progress import Silent, of_many
from octavo.runtime.methods.attention import Attention
from octavo.runtime.store.model_library import Library
from octavo.settings import ModelSettings
from octavo.system.locks import locked


@pytest.fixture(autouse=True)
def _own_queue(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def job(tiny_model, tmp_path):
    return ReadingJob(
        ModelSettings(tiny_model, n_ctx=20000, n_threads=2, index_dir=tmp_path / "indexes"), Attention.parse("auto")
    )


@pytest.fixture
def library(tiny_model, tmp_path):
    return Library.of(tiny_model, tmp_path / "indexes")


@pytest.fixture
def documents(tmp_path):
    paths = [tmp_path / f"{name}.txt" for name in "abc"]
    for path in paths:
        path.write_text(f"{path.name} {SENTENCES * 24}")
    return paths


def add(queue, documents, library, job):
    queue.add(documents, library.folder, job.anywhere(library).as_json())


def indexed(library):
    return sorted(path.name for path in library.folder.glob("*-????????????"))


def working():
    """The processes that read for this one."""
    return [child for child in psutil.Process().children() if "octavo.workers.worker_main" in child.cmdline()]


def reading():
    """Start a reader of the queue in a thread."""
    thread = threading.Thread(target=BackgroundReader(ReadingQueue()).run)
    thread.start()
    return thread


def test_the_queue_holds_documents_the_last_asked_about_first(documents, library, job):
    queue, (a, b, c) = ReadingQueue(), documents
    assert queue.documents() == []
    add(queue, [a, b], library, job)
    add(queue, [c, b], library, job)
    assert [document.name for document in queue.documents()] == ["c.txt", "b.txt", "a.txt"]
    first = queue.next()
    assert (first.path, first.model) == (str(c), "tiny.gguf")
    queue.note_progress(first, "Reading c.txt", "tokens", 5, 10, time.time(), 0)
    queue.fail(first, "It is empty.")
    assert queue.next().name == "b.txt"
    assert queue.documents()[-1].problem == "It is empty."
    add(queue, [c], library, job)  # tried again
    assert queue.next().name == "c.txt"
    queue.stop(queue.documents())
    assert queue.documents() == []


def test_a_reading_that_waits_says_so_and_its_time_does_not_count(documents, library, job, monkeypatch):
    clock = Clock()
    monkeypatch.setattr(background_reader, "time", SimpleNamespace(monotonic=clock.monotonic, time=lambda: 0.0))
    queue = ReadingQueue()
    add(queue, documents[:1], library, job)
    notes = background_reader._Notes(queue, queue.next())
    notes.start("Reading a.txt", 500, "tokens")
    for _ in range(2):
        clock.now += 2
        notes.advance(100)
    assert queue.next().seconds_left == 6.0
    for _ in range(5):
        clock.now += 100
        notes.wait("the answer")
    assert queue.next().waits_for == "the answer"
    notes.wait("")
    clock.now += 2
    notes.advance(100)
    assert (queue.next().waits_for, queue.next().seconds_left) == ("", 4.0)


def test_a_damaged_queue_is_reported_in_a_sentence(documents, library, job):
    queue = ReadingQueue()
    add(queue, documents, library, job)
    (queue.folder / "queue.sqlite").write_bytes(b"nothing of this is a database" * 99)
    with pytest.raises(OctavoError, match=r"cannot be used: .* delete it"):
        queue.documents()


def test_the_reader_makes_the_same_indexes_as_octavo_index(documents, library, job, tmp_path):
    bad = tmp_path / "bad.pdf"
    bad.write_bytes(b"%PDF-1.4 nothing")
    queue = ReadingQueue()
    add(queue, [documents[0], bad, documents[1]], library, job)
    BackgroundReader(queue).run()
    [failed] = queue.documents()
    assert (failed.name, bool(failed.problem)) == ("bad.pdf", True)
    alone = Library.of(library.model_path, tmp_path / "alone")
    files = [SourceFile(path) for path in documents[:2]]
    index_all(
        files, ReadingJob(job.settings, job.attention, library=str(alone.folder)), of_many(Silent(), 1), [].append
    )
    assert indexed(library) == indexed(alone) != []
    for name in indexed(library):
        assert_same_index(library.folder / name, alone.folder / name)


def test_one_process_reads_all_documents(documents, library, job, monkeypatch):
    queue, noted = ReadingQueue(), []
    note = queue.note_process
    monkeypatch.setattr(queue, "note_process", lambda pid: (noted.append(pid), note(pid)))
    add(queue, documents, library, job)
    BackgroundReader(queue).run()
    assert (len(indexed(library)), len(noted)) == (3, 1)


def test_the_reader_halts_while_another_process_computes(documents, library, job):
    queue = ReadingQueue()
    add(queue, documents[:1], library, job)
    assert not others_compute()
    with computing():
        assert others_compute()
        thread = reading()
        wait_until(lambda: [process.status() for process in working()] == [psutil.STATUS_STOPPED])
        time.sleep(0.5)
        assert indexed(library) == []
    thread.join(60)
    assert len(indexed(library)) == 1
    assert working() == []


def test_a_document_that_is_asked_about_comes_first_and_one_that_leaves_the_queue_is_left(documents, library, job):
    documents[0].write_text(SENTENCES * 200)
    queue = ReadingQueue()
    add(queue, documents[:1], library, job)
    thread = reading()
    wait_until(lambda: (first := queue.next()) and first.done)
    add(queue, documents[1:2], library, job)
    wait_until(lambda: len(indexed(library)) == 1)
    assert indexed(library)[0].startswith("b-")
    wait_until(lambda: list(library.folder.glob("a-*.partial/prefill-*")))
    queue.stop(queue.documents())
    thread.join(60)
    assert len(indexed(library)) == 1
    assert list(library.folder.glob("a-*.partial/prefill-*"))  # what was read is kept


def test_a_document_whose_process_dies_twice_is_left_with_the_reason(documents, library, job, monkeypatch):
    monkeypatch.setattr("octavo.workers.worker_process.COMMAND", [sys.executable, "-c", "import os; os.abort()"])
    queue = ReadingQueue()
    add(queue, documents[:1], library, job)
    BackgroundReader(queue).run()
    assert queue.documents()[0].problem == "The process that reads it ended 2 times, lastly with code -6."


def test_only_one_process_reads_and_it_outlives_the_one_that_started_it(documents, library, job, monkeypatch):
    queue = ReadingQueue()
    add(queue, documents, library, job)
    program = "from octavo.library.background.reading_queue import start_reader; start_reader()"
    with computing():
        subprocess.run([sys.executable, "-P", "-c", program], check=True, start_new_session=True)
        wait_until(lambda: queue.has_reader)
        with monkeypatch.context() as patched:
            patched.setattr(subprocess, "Popen", lambda *arguments, **more: pytest.fail("Another one."))
            start_reader()
    wait_until(lambda: not queue.documents())
    wait_until(lambda: not queue.has_reader)
    assert len(indexed(library)) == 3


def test_a_process_that_a_killed_reader_left_behind_is_ended(documents, library, job):
    queue = ReadingQueue()
    add(queue, documents[:1], library, job)
    left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(99)"], process_group=0)
    queue.note_process(left.pid)
    left.send_signal(signal.SIGSTOP)
    assert not queue.hand_over(str(documents[0]), library.folder)  # a foreground command waits for a lock
    assert left.wait(10) == -signal.SIGKILL
    queue.end_left_over()


def test_the_process_is_known_after_the_clock_was_set(documents, library, job, monkeypatch):
    queue, process = ReadingQueue(), psutil.Process()
    queue.note_process(process.pid)
    assert queue.process() == process
    if psutil.LINUX:  # there the time of a start moves with the clock
        started, booted = psutil.Process.create_time, psutil.boot_time()
        monkeypatch.setattr(psutil.Process, "create_time", lambda self: started(self) + 7200)
        monkeypatch.setattr(psutil, "boot_time", lambda: booted + 7200)
        assert queue.process() == process
    monkeypatch.setattr(psutil.Process, "create_time", lambda self: 5.0)  # another process of this number
    assert queue.process() is None


def test_documents_of_the_last_question_come_first_though_the_clock_went_back(documents, library, job, monkeypatch):
    queue, (a, b, c), now = ReadingQueue(), documents, time.time()
    add(queue, [a], library, job)
    queue.await_document(queue.next())
    monkeypatch.setattr(time, "time", lambda: now - 7200)
    assert not queue.next().is_awaited
    add(queue, [b, c], library, job)
    assert [document.name for document in queue.documents()] == ["b.txt", "c.txt", "a.txt"]


def test_the_reader_goes_on_when_the_queue_cannot_be_written_for_a_while(documents, library, job, monkeypatch):
    queue, failures = ReadingQueue(), {"note_progress": 99, "note_process": 1, "finish": 1, "next": 2}
    add(queue, documents[:2], library, job)

    def failing(name):
        real = getattr(ReadingQueue, name)

        def method(self, *arguments):
            if failures[name]:
                failures[name] -= 1
                raise OctavoError("The disk is full.")
            return real(self, *arguments)

        return method

    for name in failures:
        monkeypatch.setattr(ReadingQueue, name, failing(name))
    monkeypatch.setattr(background_reader, "_PAUSE", 0.01)
    BackgroundReader(queue).run()
    assert failures["next"] == failures["finish"] == 0
    assert queue.documents() == []
    assert len(indexed(library)) == 2


def test_a_reader_starts_though_octavo_list_holds_the_lock_for_a_moment(monkeypatch):
    queue = ReadingQueue()
    queue.folder.mkdir(parents=True)
    monkeypatch.setattr(background_reader, "_BETWEEN", 0.05)
    holds = threading.Event()

    def hold():
        with locked(queue.folder, shared=True):
            holds.set()
            time.sleep(0.1)

    thread = threading.Thread(target=hold)
    thread.start()
    holds.wait(10)
    assert not queue.has_reader  # nobody reads
    with background_reader._alone(queue) as is_ours:
        assert is_ours
        assert queue.has_reader
        with background_reader._alone(queue) as also_ours:
            assert not also_ours
    thread.join()


NAMES = [b"caf\xe9.txt", b"\xff.txt"]


@pytest.mark.parametrize("name", NAMES)
def test_a_document_whose_name_is_not_utf_8_is_read_in_the_background(library, job, tmp_path, name):
    path = os.fsdecode(os.path.join(os.fsencode(tmp_path), name))
    Path(path).write_text(SENTENCES)
    queue = ReadingQueue()
    add(queue, [path], library, job)
    [document] = queue.documents()
    assert document.path == path
    document.name.encode()
    queue.fail(document, "It is empty.")
    assert queue.documents()[0].problem == "It is empty."
    add(queue, [path], library, job)
    BackgroundReader(queue).run()
    assert queue.documents() == []
    assert len(indexed(library)) == 1


@pytest.mark.parametrize("n_kills", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_kills_lose_nothing(documents, library, job, tmp_path, n_kills):
    text = "".join(f"{number}. {SENTENCES}" for number in range(40 * n_kills))
    documents[0].write_text(text)
    job = ReadingJob(
        ModelSettings(job.settings.model, n_ctx=200_000, n_threads=1, index_dir=tmp_path / "indexes"), job.attention
    )
    queue, n_before = ReadingQueue(), 0
    add(queue, documents[:1], library, job)
    for _ in range(n_kills):
        process = subprocess.Popen([sys.executable, "-P", "-m", background_reader.__name__], start_new_session=True)
        wait_until(lambda before=n_before: len(pieces(library)) > before)
        children = psutil.Process(process.pid).children(recursive=True)
        for victim in [process.pid, *(child.pid for child in children)]:
            os.kill(victim, signal.SIGKILL)
        process.wait()
        assert len(pieces(library)) >= n_before  # nothing is read again
        n_before = len(pieces(library))
        assert queue.next().path == str(documents[0])
    BackgroundReader(queue).run()
    alone = Library.of(library.model_path, tmp_path / "alone")
    whole = ReadingJob(job.settings, job.attention, library=str(alone.folder))
    index_all([SourceFile(documents[0])], whole, of_many(Silent(), 1), [].append)
    assert indexed(library) == indexed(alone) != []
    assert_same_index(library.folder / indexed(library)[0], alone.folder / indexed(alone)[0])


def pieces(library):
    return list(library.folder.glob("a-*.partial/prefill-*.safetensors"))


def test_a_command_that_needs_a_document_takes_it_over(documents, library, job):
    documents[0].write_text(SENTENCES * 200)
    queue, notices = ReadingQueue(), []
    add(queue, documents[:1], library, job)
    process = subprocess.Popen([sys.executable, "-P", "-m", background_reader.__name__], start_new_session=True)
    wait_until(lambda: pieces(library))
    index_all([SourceFile(documents[0])], job, of_many(Silent(), 1), notices.append)
    assert "a.txt was being read in the background: this command reads on." in notices
    assert process.wait(60) == 0
    assert queue.documents() == []
    assert len(indexed(library)) == 1


@pytest.mark.parametrize(
    ("percent", "plugged", "is_low"), [(20, False, True), (20, True, False), (20, None, False), (80, False, False)]
)
def test_a_low_battery_halts_the_reader(monkeypatch, percent, plugged, is_low):
    battery = type("Battery", (), {"percent": percent, "power_plugged": plugged})
    monkeypatch.setattr(psutil, "sensors_battery", lambda: battery, raising=False)
    assert battery_is_low() is is_low
    monkeypatch.setattr(psutil, "sensors_battery", lambda: None, raising=False)
    assert not battery_is_low()


def test_a_state_folder_without_locks_hinders_nothing(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with computing():
        assert not others_compute()


def test_two_processes_compute_at_once(tmp_path):
    with computing(), computing():
        assert others_compute()
    assert not others_compute()
    assert Path(os.environ["XDG_STATE_HOME"], "octavo", "computing").is_dir()
    with locked(Path(os.environ["XDG_STATE_HOME"], "octavo", "computing")):
        pass
