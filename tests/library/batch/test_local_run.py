"""Documents that are read by processes, and processes that end."""

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from helpers.command_line import SENTENCES
from helpers.index_builds import assert_same_index
from helpers.waiting import wait_until

from octavo import OctavoError
from octavo.cpu_kernels.numba_support.machine import cpu_name
from octavo.documents.document import Document, Place
from octavo.library.batch.index_result import IndexResult, NotIndexed, folders_of
from octavo.library.batch.job import ReadDocuments, Reader, as_message, as_text_message, document_of
from octavo.library.batch.local_run import index_all
from octavo.library.reading_job import ReadingJob
from octavo.library.source_text import SourceFile
from octavo.progress import Silent, of_many
from octavo.runtime.methods.attention import Attention
from octavo.settings import Extraction, ModelSettings, ReadSettings
from octavo.workers.work import CannotLoad, first_line, name_of
from octavo.workers.worker_process import COMMAND, Died, Ended, WorkerProcess


@pytest.fixture
def job(tiny_model, tmp_path):
    settings = ModelSettings(tiny_model, n_ctx=20000, n_threads=2, index_dir=tmp_path / "indexes")
    return ReadingJob(settings, Attention.parse("auto"))


def of_model(job, **changes):
    """The same job with changed model settings."""
    return replace(job, settings=replace(job.settings, **changes))


@pytest.fixture
def documents(tmp_path):
    paths = [tmp_path / f"{name}.txt" for name in "abc"]
    for path in paths:
        path.write_text(f"{path.name} {SENTENCES * 16}")
    return paths


def run(documents, job, n_jobs):
    notices = []
    return index_all([SourceFile(path) for path in documents], job, of_many(Silent(), n_jobs), notices.append, n_jobs)


def test_several_processes_make_the_same_indexes(documents, job, tmp_path):
    alone = run(documents, of_model(job, index_dir=tmp_path / "alone"), 1)
    at_once = run(documents, job, 2)
    assert [outcome.name for outcome in at_once] == ["a.txt", "b.txt", "c.txt"]
    for one, other in zip(alone, at_once, strict=True):
        assert_same_index(other.folders[0], one.folders[0])


def test_indexes_open_on_another_machine(documents, job, tmp_path):
    """Nothing in them says where they were made, but for the path by which an unchanged file is known."""
    [made] = folders_of(run(documents[:1], job, 1))
    manifest = json.loads((made / "manifest.json").read_text())
    assert manifest["document"].pop("path") == str(documents[0])
    told = json.dumps(manifest)
    for machine_s_own in (str(tmp_path), str(Path(job.settings.model).parent), platform.node(), cpu_name()):
        assert machine_s_own not in told
    other = tmp_path / "other"
    other.mkdir()
    model, document = shutil.copy(job.settings.model, other / "renamed.gguf"), shutil.copy(documents[0], other)
    library = other / "library" / "renamed.octavo"
    library.mkdir(parents=True)
    copied = made.rename(library / made.name)
    elsewhere = of_model(job, model=model, index_dir=library.parent, n_threads=1)
    notices = []
    [outcome] = index_all([SourceFile(document)], elsewhere, of_many(Silent(), 1), notices.append)
    assert outcome.folders == [copied]
    assert f"a.txt is indexed already: {copied}" in notices


@pytest.mark.slow
def test_a_process_that_dies_is_followed_by_another(documents, job, monkeypatch):
    killed = []

    def kill_once(self, document, receive, do=WorkerProcess.do):
        def pass_on(message):
            if "advance" in message and not killed:
                killed.append(self._process.pid)
                os.kill(self._process.pid, signal.SIGKILL)
            receive(message)

        return do(self, document, pass_on)

    monkeypatch.setattr(WorkerProcess, "do", kill_once)
    assert all(outcome.folders for outcome in run(documents, job, 2))
    assert len(killed) == 1


@pytest.mark.slow
def test_a_document_whose_process_dies_again_and_again_is_told(documents, job, monkeypatch):
    def die(self, document, receive, do=WorkerProcess.do):
        if document["path"].endswith("b.txt"):
            raise Died("code -9")
        return do(self, document, receive)

    monkeypatch.setattr(WorkerProcess, "do", die)
    first, second, third = run(documents, job, 2)
    assert first.folders
    assert third.folders
    assert second.problem.startswith(
        "b.txt could not be read: the process that reads it ended 2 times, lastly with code"
    )


def test_what_was_ended_reads_no_more(documents, job):
    process, heard = WorkerProcess(name_of(ReadDocuments), job.as_json()), []

    def end(message):
        heard.append(message)
        process.end()

    with pytest.raises(Ended):
        process.do(as_message(SourceFile(documents[0])), end)
    with pytest.raises(Ended):
        process.do(as_message(SourceFile(documents[0])), heard.append)


def test_a_process_ends_with_the_one_that_started_it(documents, job):
    child = subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    long = documents[0]
    long.write_text(SENTENCES * 200)
    child.stdin.write(
        f"{first_line(name_of(ReadDocuments), job.as_json())}\n{json.dumps(as_message(SourceFile(long)))}\n"
    )
    child.stdin.flush()
    child.stdout.readline()
    child.stdout.close()
    assert child.wait(60) == 1
    assert not psutil.pid_exists(child.pid)


def test_a_paused_process_halts_and_goes_on(documents, job):
    documents[0].write_text(SENTENCES * 200)
    process, paused = WorkerProcess(name_of(ReadDocuments), job.as_json()), threading.Event()

    def receive(message):
        if message.get("advance") and not paused.is_set():
            process.pause(True)
            paused.set()

    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(process.do, as_message(SourceFile(documents[0])), receive)
        assert paused.wait(60)
        child = psutil.Process(process.pid)
        wait_until(lambda: child.status() == psutil.STATUS_STOPPED)
        before = child.cpu_times().user
        time.sleep(0.3)
        assert child.cpu_times().user == before
        process.pause(False)
        assert result.result(60)["result"]["folders"]
    process.end()


def test_a_paused_process_gets_moments_to_release_what_others_wait_for(documents, job, monkeypatch):
    monkeypatch.setattr("octavo.workers.worker_process._BREATHES_EVERY", 0.01)
    process = WorkerProcess(name_of(ReadDocuments), job.as_json())
    process.pause(True)
    assert process.do(as_message(SourceFile(documents[0])), lambda message: None)["result"]["folders"]
    assert process._is_paused
    process.end()


def test_a_paused_process_can_be_ended(documents, job):
    documents[0].write_text(SENTENCES * 200)
    process = WorkerProcess(name_of(ReadDocuments), job.as_json())

    def end(message):
        process.pause(True)
        process.end()

    with pytest.raises(Ended):
        process.do(as_message(SourceFile(documents[0])), end)


def test_a_paused_process_ends_with_the_one_that_started_it(documents, job, tmp_path):
    documents[0].write_text(SENTENCES * 200)
    message = json.dumps(as_message(SourceFile(documents[0])))
    program = f"""
import json, os, signal, time
from octavo.workers.worker_process import WorkerProcess
process = WorkerProcess({name_of(ReadDocuments)!r}, json.loads({json.dumps(job.as_json())!r}))
def receive(message):
    process.pause(True)
    time.sleep(1)  # until all threads have stopped
    print(process.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
process.do(json.loads({message!r}), receive)
"""
    parent = subprocess.run([sys.executable, "-P", "-c", program], stdout=subprocess.PIPE, start_new_session=True)
    assert parent.returncode == -signal.SIGKILL
    pid = int(parent.stdout)
    wait_until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)


def test_a_process_says_why_it_died():
    process = WorkerProcess(name_of(ReadDocuments), {})  # settings without a model
    with pytest.raises(Died, match=r"code 1: KeyError"):
        process.do({}, [].append)


def test_a_process_outlives_a_task_that_it_cannot_do(job):
    process = WorkerProcess(name_of(ReadDocuments), job.as_json())
    for _ in range(2):
        assert "KeyError: 'document'" in process.do({}, [].append)["error"]
    process.end()


@pytest.mark.parametrize(
    "how",
    [{"text": "auto"}, {"text": "auto", "budget": 0.2}, {"text": "duo+quest:tokens=64", "plan": "gates.tsv"}],
    ids=str,
)
def test_a_job_survives_json(how):
    settings = ModelSettings("tiny.gguf", n_ctx=512, cache_type="q8_0", rope_scaling="yarn", rope_scale=2.0)
    job = ReadingJob(
        settings,
        Attention.parse(**how, retrieval_heads=0.5),
        ReadSettings(prefill="dense", password="p"),
        known=("a", "b"),
        nice=5,
    )
    sent = ReadingJob.of_json(json.loads(json.dumps(job.as_json())))
    assert sent == job
    assert sent.attention.plan_file == job.attention.plan_file


def test_the_job_of_a_queue_from_before_is_parsed():
    """Its fields were those of 0.3, and the first ones had no `extraction`."""
    fields = {
        "settings": ModelSettings("tiny.gguf").as_json(),
        "attention": Attention.parse("auto").as_json(),
        "prefill": "dense",
        "state_every": 2048,
        "library": "/there/tiny.octavo",
        "known": [],
        "nice": 0,
    }
    job = ReadingJob.of_json(fields)
    assert job.reading == ReadSettings(prefill="dense", state_every=2048)
    assert job.library == "/there/tiny.octavo"
    assert ReadingJob.of_json({**fields, "extraction": {"ocr": True}}).reading.ocr


def test_jobs_are_counted(documents, job):
    with pytest.raises(OctavoError, match="One document or more is read at once: not 0"):
        run(documents, job, 0)


def test_messages_name_files_or_hold_texts(tmp_path):
    extraction = Extraction("secret", "cp1252", ocr=True, ocr_languages="deu")
    path = tmp_path / "a.txt"
    path.write_text("# Heading\n\nText.\n")
    file = document_of(json.loads(json.dumps(as_message(SourceFile(path)))), extraction)
    assert (file.path, file.extraction) == (str(path), extraction)
    document = Document(
        "text", (Place(0, "1", None), Place(3, None, "A")), ("It is read as cp1252.",), "a.txt", "/a.txt", 5, 7
    )
    assert document_of(json.loads(json.dumps(as_text_message(document)))) == document


def test_a_model_that_cannot_be_loaded_is_no_documents_fault(documents, job):
    reader = Reader(replace(job, attention=Attention.parse("duo")), [].append)
    with pytest.raises(CannotLoad, match="`octavo profile` measures the model"):
        reader.index(SourceFile(documents[0]), Silent())


def test_what_could_not_be_indexed_is_told_in_one_message(tmp_path):
    done, failed = IndexResult("a", [tmp_path]), IndexResult("b", (), "b is empty.")
    assert folders_of([done, done]) == [tmp_path, tmp_path]
    for outcomes, message in (
        ([failed], "b is empty."),
        ([done, failed], "1 of 2 documents could not be indexed, the others are. b is empty."),
        ([failed, failed], "2 of 2 documents could not be indexed, which is all:\n- b is empty.\n- b is empty."),
    ):
        with pytest.raises(NotIndexed) as raised:
            folders_of(outcomes)
        assert str(raised.value) == message
