"""Processes that are killed, interrupted, and that meet; disks that fail; and what adds up over many turns."""

import errno
import gc
import os
import random
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from helpers.command_line import SENTENCES, start
from helpers.index_builds import assert_same_index, build, library_of

import octavo
from octavo import OctavoError
from octavo.ask.session import Session
from octavo.runtime.store.index_files import open_index
from octavo.settings import Sampling
from octavo.system import files

pytestmark = pytest.mark.sampled


@pytest.fixture
def on_tiny(tiny_model, tmp_path):
    return ["-m", tiny_model, "--index-dir", tmp_path / "indexes", "-t", "2"]


@pytest.fixture
def document(tmp_path) -> Path:
    path = tmp_path / "island.txt"
    path.write_text(SENTENCES * 38)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_builds_that_are_ended_go_on(document, on_tiny, tmp_path, amount, tally, number):
    """At random moments; afterwards the index is that of a build that nothing ended."""
    process = start("index", document, *on_tiny[:2], "--index-dir", tmp_path / "whole", "-t", "2")
    began = time.monotonic()
    assert process.wait(120) == 0
    seconds, rng = time.monotonic() - began, random.Random(number)
    for _ in range(amount(20, 2)):
        shutil.rmtree(tmp_path / "indexes", ignore_errors=True)
        for _ in range(2):
            process = start("index", document, *on_tiny)
            time.sleep(rng.uniform(0.3, 1.0) * seconds)
            process.send_signal(number)
            _, errors = process.communicate(timeout=60)
            assert b"Traceback" not in errors
        process = start("index", document, *on_tiny)
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        [whole], [made] = (list((tmp_path / name).glob("*/island-*")) for name in ("whole", "indexes"))
        assert_same_index(made, whole)
        tally(f"a build ended by {number.name}, twice", "the index of an undisturbed build")


@pytest.mark.slow
def test_processes_that_index_ask_and_remove_at_once(document, on_tiny, amount, tally):
    for race in range(amount(30, 2)):
        document.write_text(SENTENCES * 40 + f"Race {race}.")
        remove = ["remove", document.name, "--yes", *on_tiny[:4]]
        third = ["ask", document, "Why?", "-n", "3", *on_tiny] if race % 3 else remove
        commands = [["index", document, *on_tiny], ["index", document, *on_tiny], third]
        running = [start(*command) for command in commands]
        for process, command in zip(running, commands, strict=True):
            _, errors = process.communicate(timeout=180)
            assert b"Traceback" not in errors
            told = command[0] == "remove" and (b"There is no index" in errors or b"is in use" in errors)
            assert process.returncode == 0 or told, errors
        last = start("ask", document, "Why?", "-n", "3", *on_tiny)
        _, errors = last.communicate(timeout=180)
        assert last.returncode == 0, errors
        tally("three processes that index, ask or remove one document at once", "no error")


@pytest.mark.slow
@pytest.mark.parametrize("problem", [errno.ENOSPC, errno.EIO, errno.EACCES], ids=lambda number: errno.errorcode[number])
def test_disks_that_fail_at_each_step(llama, index, tmp_path, monkeypatch, amount, tally, problem):
    """Of each call that writes, one after another: a sentence, and the next build goes on."""
    library_of(llama, tmp_path).model_hash  # noqa: B018 - writes model.json
    for function in ("fsync", "replace"):
        real, done, at = getattr(os, function), False, 0
        while not done:
            calls = [0]

            def fails(*arguments, calls=calls, at=at, real=real, **names):
                calls[0] += 1
                if calls[0] == at + 1:
                    raise OSError(problem, os.strerror(problem))
                return real(*arguments, **names)

            monkeypatch.setattr(os, function, fails)
            try:
                path = build(llama, tmp_path)
                done = calls[0] <= at
            except OctavoError:
                tally(f"{errno.errorcode[problem]} at a step of a build", "a sentence")
            monkeypatch.setattr(os, function, real)
            if not done:
                path = build(llama, tmp_path)
            assert_same_index(path, index)
            shutil.rmtree(path)
            at += amount(1, 4)


def test_a_folder_that_vanishes_at_each_step(llama, index, tmp_path, monkeypatch, amount, tally):
    library = library_of(llama, tmp_path)
    real, done, at = files.write_bytes, False, 0
    while not done:
        calls = [0]

        def vanishes(path, *parts, calls=calls, at=at):
            calls[0] += 1
            if calls[0] == at + 1:
                shutil.rmtree(library.folder, ignore_errors=True)
            real(path, *parts)

        monkeypatch.setattr(files, "write_bytes", vanishes)
        try:
            build(llama, tmp_path)
            done = calls[0] <= at
        except OctavoError:
            tally("a library's folder that vanishes at a step of a build", "a sentence")
        monkeypatch.setattr(files, "write_bytes", real)
        assert_same_index(build(llama, tmp_path), index)
        shutil.rmtree(library.folder)
        at += amount(1, 3)


def measures():
    """Memory of this process that is no file's, and open files."""
    gc.collect()
    process = psutil.Process()
    used = process.memory_info()
    return used.rss - used.shared, process.num_fds()


def assert_flat(before, after, most_bytes):
    assert after[1] <= before[1]
    assert after[0] - before[0] < most_bytes


def test_opens_and_closes(llama, index, model_hash, amount, tally):
    def open_once():
        llama.attach(open_index(index, model_hash)[0])

    for _ in range(20):
        open_once()
    before, n = measures(), amount(10_000, 100)
    for _ in range(n):
        open_once()
    assert_flat(before, measures(), 16 << 20)
    tally("an index opened and closed", "flat memory and open files", n)


@pytest.fixture
def session(llama, index, model_hash):
    llama.attach(open_index(index, model_hash)[0])
    return Session(llama, Sampling(max_tokens=4, temperature=0))


def test_turns(session, amount, tally):
    first = session.ask("Why?").text
    for _ in range(20):
        session.clear()
        session.ask("Why?")
    before, n = measures(), amount(2000, 60)
    for _ in range(n // 2):
        session.clear()
        assert session.ask("Why?").text == first
        session.ask("And then?")
    assert_flat(before, measures(), 16 << 20)
    tally("a turn of a conversation", "flat memory and open files, the same answer", n)


def test_cancels(session, amount, tally):
    """Streams that are left after some pieces, or before the first."""
    expected, rng, n = session.ask("Why?").text, random.Random(0), amount(2500, 60)
    for _ in range(n):
        session.clear()
        stream = session.stream("Where?")
        for _ in range(rng.randrange(4)):
            next(stream, None)
        stream.close()
    session.clear()
    assert session.ask("Why?").text == expected
    tally("an answer cancelled", "nothing wrong afterwards", n)


def test_a_conversation_that_reaches_its_limit(tiny_model, tally):
    llama = octavo.Llama(tiny_model, n_ctx=300, n_batch=64, n_threads=2)
    session = Session(llama, Sampling(max_tokens=40, temperature=0))
    reasons = []

    def ask_on():
        while True:
            session.ask("What else did the keeper of the island write?")
            reasons.append(session.answer.finish_reason)

    with pytest.raises(OctavoError, match=r"The question does not fit: \d+ tokens, and the context holds 300\. Use"):
        ask_on()
    assert len(reasons) > 1
    assert llama.n_tokens <= 300
    before = np.array(llama.input_ids[: llama.n_tokens])
    with pytest.raises(OctavoError, match="does not fit"):
        session.ask("And?" * 20)
    np.testing.assert_array_equal(llama.input_ids[: llama.n_tokens], before)
    session.clear()
    assert session.ask("What else?").text
    tally("a conversation that reaches the end of its context", "a sentence; /clear starts anew")
