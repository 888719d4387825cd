"""Folders that are watched: what is read, and when."""

import os

import pytest
from helpers.clock import Clock
from helpers.command_line import SENTENCES

from octavo import OctavoError
from octavo.library import watch
from octavo.library.reading_job import ReadingJob
from octavo.library.watch import QUIET, Watch
from octavo.progress import Silent, of_many
from octavo.runtime.methods.attention import Attention
from octavo.settings import ModelSettings


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(watch, "time", clock)
    return clock


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "papers"
    folder.mkdir()
    return folder


@pytest.fixture
def watched(folder, tiny_model, tmp_path):
    notices = []
    job = ReadingJob(ModelSettings(tiny_model, n_threads=2, index_dir=tmp_path / "indexes"), Attention.parse("auto"))
    made = Watch([folder], job, of_many(Silent(), 1), notices.append)
    made.notices = notices
    return made


def test_a_file_that_is_still_written_is_waited_for(watched, folder, clock):
    path = folder / "a.txt"
    path.write_text("Petrel\n")
    assert watched._due() == []
    for _ in range(5):
        clock.now += 0.9 * QUIET
        with open(path, "a") as file:
            file.write("Gannet\n")
        assert watched._due() == []
    clock.now += 0.9 * QUIET
    assert watched._due() == []
    clock.now += 0.2 * QUIET
    assert watched._due() == [path]
    assert watched._due() == []
    os.utime(path, ns=(5, 5))
    assert watched._due() == []
    clock.now += QUIET
    assert watched._due() == [path]
    path.write_text(path.read_text().swapcase())
    os.utime(path, ns=(5, 5))  # it keeps its size and its time
    assert watched._due() == []
    clock.now += QUIET
    assert watched._due() == [path]


def test_what_is_no_document_is_passed_by_and_what_is_gone_is_told_once(watched, folder, clock):
    for name, content in (("picture.png", b"\x89PNG\r\n\x1a\n"), (".hidden.txt", b"x\n"), ("a.txt", b"Petrel\n")):
        (folder / name).write_bytes(content)
    watched._due()
    clock.now += QUIET
    assert watched._due() == [folder / "a.txt"]
    (folder / "a.txt").unlink()
    assert watched._due() == watched._due() == []
    assert watched.notices == ["a.txt is gone; its index stays until `octavo prune` removes it."]


def test_folders_only_are_watched(tmp_path):
    with pytest.raises(OctavoError, match="missing is not a folder: only folders can be watched"):
        Watch(
            [tmp_path / "missing"],
            ReadingJob(ModelSettings("model"), Attention.parse("auto")),
            of_many(Silent(), 1),
            print,
        )


def test_systems_that_tell_of_no_changes(watched, folder, monkeypatch):
    """Folders are looked at nevertheless."""
    monkeypatch.setattr(
        "watchdog.observers.Observer.start", lambda self: (_ for _ in ()).throw(OSError(28, "No space"))
    )
    monkeypatch.setattr(watch, "_OFTEN", 0.01)
    monkeypatch.setattr(watch, "QUIET", 0.01)

    def look(look=watched._look):
        if not (folder / "b.txt").exists() and "Watching" in watched.notices[-1]:
            (folder / "b.txt").write_text(SENTENCES * 3)
        if watched.notices and watched.notices[-1].startswith("The index of b.txt is "):
            raise KeyboardInterrupt
        return look()

    monkeypatch.setattr(watched, "_look", look)
    with pytest.raises(KeyboardInterrupt):
        watched.run()
    assert watched.notices[0].startswith("The system tells of no changes (No space)")
