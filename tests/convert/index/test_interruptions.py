"""Interrupted builds, full disks and memories: what is done is kept, and an index is whole or not there."""

import builtins
import errno
import os
import resource
import shutil
from types import SimpleNamespace

import psutil
import pytest
from helpers.index_builds import NAME, SETTINGS, TEXT, Recorded, assert_same_index, build, library_of

import octavo
from octavo import OctavoError
from octavo.convert import build_pieces, index_builder
from octavo.convert.identity import identity
from octavo.documents.document import hash_text
from octavo.runtime.store.index_files import open_index
from octavo.runtime.store.manifest import MANIFEST
from octavo.system import files

pytestmark = pytest.mark.sampled

# Interruptions.


def assert_nothing_to_open(llama, folder, path):
    library = library_of(llama, folder)
    partial = path.with_name(path.name + ".partial")
    assert not path.exists()
    assert not (partial / MANIFEST).exists()
    assert library.indexes() == []
    for place in (path, partial):
        with pytest.raises(OctavoError, match="is not an octavo index"):
            open_index(place, library.model_hash)


def test_a_build_reports_all_of_its_work(llama, tmp_path, tokens):
    progress = Recorded()
    build(llama, tmp_path, progress=progress)
    clustering = progress.reports.index(("Clustering keys", 3, "layers", 0))
    assert progress.reports[0] == (f"Reading {NAME}", len(tokens), "tokens", 0)
    assert sum(progress.reports[1:clustering]) == len(tokens)
    assert progress.reports[clustering + 1 :] == [1, 1, 1]
    assert len(progress.reports) == REPORTS


REPORTS = 9  # two tasks; 512 and 512, then the rest, then the last 100 tokens; three layers


def test_a_build_of_many_pieces_resumes_with_few_descriptors(llama, tmp_path, tokens, monkeypatch):
    for module in (build_pieces, index_builder):
        monkeypatch.setattr(module, "PIECE", 16)
    with pytest.raises(KeyboardInterrupt):
        build(llama, tmp_path, progress=Recorded(at=45))
    assert len(list(tmp_path.glob("*/*.partial/prefill-*"))) >= 40
    limits, progress = resource.getrlimit(resource.RLIMIT_NOFILE), Recorded()
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/dev/fd")) + 12, limits[1]))
    try:
        path = build(llama, tmp_path, progress=progress)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert progress.reports[0][3] >= 40 * 16
    assert len(open_index(path, library_of(llama, tmp_path).model_hash)[0].tokens) == len(tokens)


@pytest.mark.parametrize("at", range(REPORTS))
def test_an_interrupted_build_goes_on_to_the_same_index(llama, index, tmp_path, at):
    with pytest.raises(KeyboardInterrupt):
        build(llama, tmp_path, progress=Recorded(at))
    path = library_of(llama, tmp_path).index_path(NAME, hash_text(TEXT), identity(llama, SETTINGS))
    assert_nothing_to_open(llama, tmp_path, path)
    assert build(llama, tmp_path) == path
    assert_same_index(path, index)
    assert [each.name for each in path.parent.iterdir() if each.is_dir()] == [path.name]  # the partial one is gone


def test_a_build_that_is_interrupted_again_and_again_gets_done(llama, index, tmp_path):
    for _ in range(20):
        try:
            path = build(llama, tmp_path, progress=Recorded(at=3))
        except KeyboardInterrupt:
            continue
        break
    assert_same_index(path, index)


def test_what_was_done_is_not_done_again(llama, tmp_path, tokens):
    with pytest.raises(KeyboardInterrupt):
        build(llama, tmp_path, progress=Recorded(at=3))  # after the first piece
    while_clustering = Recorded(at=4)  # after the first layer
    with pytest.raises(KeyboardInterrupt):
        build(llama, tmp_path, progress=while_clustering)
    assert while_clustering.done_before == [1024, 0]
    last = Recorded()
    build(llama, tmp_path, progress=last)
    assert last.done_before == [len(tokens), 1]


class Crash(BaseException):
    """The process ends here."""


def failing(function, at, problem):
    """`function`, but call number `at` raises `problem`."""
    calls = iter(range(10_000))

    def call(*arguments, **options):
        if next(calls) == at:
            raise problem
        return function(*arguments, **options)

    return call


#: Three pieces of the prefill, three layers, the document, and the manifest are synced and renamed; then the folder.
WRITES = 8


@pytest.mark.parametrize(
    ("function", "at"), [("replace", at) for at in range(WRITES)] + [("fsync", at) for at in range(WRITES + 1)]
)
def test_a_build_that_crashes_while_writing_goes_on_to_the_same_index(
    llama, index, tmp_path, monkeypatch, function, at
):
    path = library_of(llama, tmp_path).index_path(NAME, hash_text(TEXT), identity(llama, SETTINGS))  # writes model.json
    with monkeypatch.context() as patch:
        patch.setattr(os, function, failing(getattr(os, function), at, Crash()))
        with pytest.raises(Crash):
            build(llama, tmp_path)
    if at < WRITES:
        assert_nothing_to_open(llama, tmp_path, path)
    assert build(llama, tmp_path) == path
    assert_same_index(path, index)
    assert not list(path.glob("*.tmp"))


def test_a_crash_before_the_folder_has_its_name_leaves_no_index(llama, index, tmp_path, monkeypatch):
    library = library_of(llama, tmp_path)
    path = library.index_path(NAME, hash_text(TEXT), identity(llama, SETTINGS))
    with monkeypatch.context() as patch:
        patch.setattr(type(path), "rename", failing(None, 0, Crash()))
        with pytest.raises(Crash):
            build(llama, tmp_path)
    assert not path.exists()
    assert library.indexes() == []
    build(llama, tmp_path)
    assert_same_index(path, index)


def test_unfinished_files_of_a_crash_are_removed(llama, index, tmp_path):
    path = library_of(llama, tmp_path).index_path(NAME, hash_text(TEXT), identity(llama, SETTINGS))
    partial = path.with_name(path.name + ".partial")
    partial.mkdir(parents=True)
    (partial / "layer-000.safetensors.tmp").write_bytes(b"half of it")
    build(llama, tmp_path)
    assert_same_index(path, index)
    assert {file.name for file in path.iterdir()} == {file.name for file in index.iterdir()}


# The disk.


def out_of_space():
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("at", [0, 2, 3, 6, 7])
@pytest.mark.parametrize("function", ["fsync", "open"])
def test_a_full_disk_is_told_and_the_build_goes_on_later(llama, index, tmp_path, monkeypatch, function, at):
    path = library_of(llama, tmp_path).index_path(NAME, hash_text(TEXT), identity(llama, SETTINGS))
    with monkeypatch.context() as patch:
        if function == "fsync":
            patch.setattr(os, "fsync", failing(os.fsync, at, out_of_space()))
        else:
            write = failing(builtins.open, at, out_of_space())
            to_read_or_write = lambda path, mode: (write if mode == "wb" else builtins.open)(path, mode)  # noqa: E731
            patch.setattr(files, "open", to_read_or_write, raising=False)
        with pytest.raises(OctavoError, match=r"is full.*run the same command again.*`index_dir`"):
            build(llama, tmp_path)
    assert_nothing_to_open(llama, tmp_path, path)
    build(llama, tmp_path)
    assert_same_index(path, index)


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_a_disk_that_cannot_be_written_is_told(llama, tmp_path, monkeypatch, number):
    library_of(llama, tmp_path).model_hash  # noqa: B018 - writes model.json
    monkeypatch.setattr(os, "fsync", failing(os.fsync, 0, OSError(number, os.strerror(number))))
    with pytest.raises(OctavoError, match=r"cannot be written: give another folder with `index_dir`"):
        build(llama, tmp_path)


def test_a_disk_that_is_too_small_is_refused_before_the_work(llama, tmp_path, monkeypatch, tokens):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1 << 20))
    progress = Recorded()
    needed = 2 * len(tokens) * llama.context.cache.row_bytes / 2**20
    with pytest.raises(OctavoError, match=rf"takes {needed:.0f} MiB .* has 1 MiB left: .* `index_dir`"):
        build(llama, tmp_path, progress=progress)
    assert progress.reports == []


def test_memory_that_is_too_small_is_refused_before_the_work(llama, tmp_path, monkeypatch):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=0))
    progress = Recorded()
    with pytest.raises(OctavoError, match=r"The KV cache of .* tokens needs"):
        build(llama, tmp_path, progress=progress)
    assert progress.reports == []


def test_a_folder_that_cannot_be_made_is_told(llama, tmp_path):
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(OctavoError, match="`index_dir`"):
        build(llama, tmp_path / "taken")


def test_a_document_that_is_longer_than_the_context_is_refused(tiny_model, tmp_path):
    llama = octavo.Llama(tiny_model, n_ctx=512, n_threads=2)
    with pytest.raises(OctavoError, match=r"document\.txt has 1,\d{3} tokens but this context holds 512"):
        build(llama, tmp_path)
