"""Indexes are listed and opened while other processes make, move and remove them."""

import os
import shutil
import threading
from pathlib import Path

import pytest

from octavo.errors import OctavoError
from octavo.library import catalogue
from octavo.library.catalogue import BEING_READ, DAMAGED, UNFINISHED, entries
from octavo.runtime.store.index_files import folder_bytes, open_index
from octavo.system.files import DamagedError
from octavo.system.locks import is_locked, locked

pytest_plugins = ["helpers.index_fixtures"]


@pytest.fixture
def library(index, tmp_path):
    """A library with ten indexes."""
    library = tmp_path / "tiny.octavo"
    library.mkdir()
    for number in range(10):
        shutil.copytree(index, library / f"a-{number:012d}")
    return library


@pytest.fixture
def moving(library):
    """Folders that appear, move and go as builds and removals have them."""
    ends = threading.Event()

    def move():
        number = 0
        while not ends.is_set():
            number = (number + 1) % 5
            folder = library / f"a-{number:012d}"
            partial = folder.with_name(f"{folder.name}.partial")
            folder.rename(partial)
            partial.rename(folder)
            aside = library / "b-000000000000"
            shutil.copytree(folder, aside, ignore=shutil.ignore_patterns("*.tmp"))  # what a reader writes meanwhile
            shutil.rmtree(aside)

    thread = threading.Thread(target=move)
    thread.start()
    yield
    ends.set()
    thread.join()


def test_no_index_is_missed_while_folders_move_and_go(library, moving):
    for _ in range(60):
        found = [entry.folder.name.removesuffix(".partial") for entry in entries([library])]
        assert {f"a-{number:012d}" for number in range(10)} <= set(found)
        assert len(set(found)) == len(found)
        assert folder_bytes(library / "a-000000000001") >= 0


def test_opening_an_index_that_goes_is_no_traceback(library, moving, model_hash):
    n_opened = 0
    for number in range(200):
        try:
            open_index(library / f"a-{number % 5:012d}", model_hash)
            n_opened += 1
        except OctavoError:
            continue
    assert n_opened


def test_an_index_that_is_gone_is_damaged_so_that_it_is_made_again(library, model_hash, monkeypatch):
    folder = library / "a-000000000000"
    shutil.rmtree(folder)
    for path in (folder, folder / "deeper"):
        with pytest.raises(DamagedError, match="is not an octavo index"):
            open_index(path, model_hash)


def test_a_library_that_is_gone_has_no_entries(tmp_path):
    assert entries([tmp_path / "gone.octavo"]) == []
    assert folder_bytes(tmp_path / "gone") == 0


def test_two_that_list_at_once_see_the_same(library):
    """Asking for a lock takes none that others would see."""
    partial = library / "c-000000000000.partial"
    partial.mkdir()
    with locked(partial, shared=True):
        assert not is_locked(partial)
        assert {entry.state for entry in entries([library]) if entry.folder == partial} == {UNFINISHED}
    with locked(partial):
        assert is_locked(partial)
        assert {entry.state for entry in entries([library]) if entry.folder == partial} == {BEING_READ}


def test_a_build_that_ends_while_it_is_listed_is_listed_once(library, monkeypatch):
    names = catalogue._names_in
    folder = library / "a-000000000003"
    folder.rename(f"{folder}.partial")

    def and_then_it_ends(path):
        found = names(path)
        if path == library and Path(f"{folder}.partial").exists():
            os.rename(f"{folder}.partial", folder)
        return found

    monkeypatch.setattr(catalogue, "_names_in", and_then_it_ends)
    found = entries([library])
    assert [entry.folder for entry in found].count(folder) == 1
    assert len(found) == 10


def test_a_damaged_manifest_is_listed(library):
    (library / "a-000000000004" / "manifest.json").write_text("{")
    assert [entry.state for entry in entries([library])].count(DAMAGED) == 1
