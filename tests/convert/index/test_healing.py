"""Indexes that are damaged, and processes that meet: what is whole is kept, and an index is built once."""

import os
import re
import shutil
import signal
import stat
import threading

import pytest
from helpers.command_line import start
from helpers.index_builds import (
    NAME,
    QUESTION,
    SETTINGS,
    TEXT,
    Recorded,
    assert_same_index,
    attach_document,
    build,
    index_document,
    library_of,
    said,
)

from octavo import OctavoError
from octavo.convert.identity import identity
from octavo.convert.index_builder import IndexBuilder
from octavo.convert.pipeline import document_tokens
from octavo.documents.document import Document, hash_text
from octavo.library.catalogue import remove
from octavo.runtime.methods.attention import Attention
from octavo.runtime.store.index_files import open_index
from octavo.runtime.store.library_snapshot import LibrarySnapshot
from octavo.system.files import PARTIAL
from octavo.system.locks import locked


@pytest.fixture
def healed(llama, index, tmp_path):
    """Damage a copy of the index by a function of its folder, and open the document; what was read and said."""

    def heal(damage):
        document, library = tmp_path / NAME, library_of(llama, tmp_path)
        document.write_text(TEXT)
        library.make_folder()
        path = shutil.copytree(index, library.folder / index.name)
        damage(path)
        progress, notices = Recorded(), []
        with llama.attending(Attention.parse("squeezed")):  # which wants clusters
            attach_document(llama, library, document, progress, notices.append, prefill="dense")
        assert_same_index(path, index)
        assert open_index(path, library.model_hash, thorough=True)
        assert not path.with_name(path.name + PARTIAL).exists()
        return progress, notices

    return heal


def flip(file, at=0.5):
    content = bytearray(file.read_bytes())
    content[int(len(content) * at)] ^= 1
    file.write_bytes(content)


def test_whole_layers_of_a_damaged_index_are_kept(healed, tokens):
    progress, notices = healed(lambda path: flip(path / "layer-001.safetensors"))
    assert progress.done_before == [0, 2]  # all of the text is read, as layer 1 needs it; two of three layers stay
    assert notices[0].startswith(f"The index of {NAME} is damaged, so it is made again; what is whole is kept.")
    assert said(notices)[1:] == [f"Indexing {NAME}, once."]


@pytest.mark.parametrize("name", ["document.safetensors", "means.safetensors", "manifest.json"])
def test_what_was_measured_is_measured_again_without_reading(healed, name):
    progress, notices = healed(lambda path: flip(path / name))
    assert progress.done_before == [1024, 3]
    assert re.search(", 1,024 of them known", notices[1])


@pytest.mark.parametrize(
    "damage",
    [
        shutil.rmtree,
        lambda path: [file.unlink() for file in path.glob("layer-*")],
        lambda path: [os.truncate(file, 100) for file in path.iterdir()],
        lambda path: (path / "manifest.json").unlink(),
        lambda path: shutil.copy(path / "layer-000.safetensors", path / "layer-001.safetensors"),
    ],
    ids=["all gone", "no layers", "all cut", "no manifest", "a layer twice"],
)
def test_whatever_is_damaged_heals(healed, damage):
    healed(damage)


@pytest.mark.parametrize("part", ["prefill-00001024.safetensors", "layer-000.safetensors"])
def test_parts_of_an_interrupted_build_that_are_damaged_are_made_again(llama, index, tmp_path, part):
    with pytest.raises(KeyboardInterrupt):
        build(llama, tmp_path, progress=Recorded(at=7))  # the second layer
    library = library_of(llama, tmp_path)
    path = library.index_path(NAME, hash_text(TEXT), identity(llama, SETTINGS))
    flip(path.with_name(path.name + PARTIAL) / part)
    build(llama, tmp_path)
    assert_same_index(path, index)


def test_a_document_is_only_said_to_be_indexed_if_its_index_opens(llama, index, tmp_path):
    document, library, notices = tmp_path / NAME, library_of(llama, tmp_path), []
    document.write_text(TEXT)
    library.make_folder()
    path = shutil.copytree(index, library.folder / index.name)
    flip(path / "layer-002.safetensors")
    for _ in range(2):
        index_document(llama, library, document, Recorded(), notices.append, prefill="dense")
    assert [notice.split(":")[0] for notice in notices if "indexed already" in notice] == [f"{NAME} is indexed already"]
    assert "is damaged" in notices[0]


def test_what_is_written_is_the_owners_alone(llama, tmp_path):
    path = build(llama, tmp_path)
    assert {stat.S_IMODE(file.stat().st_mode) for file in path.iterdir()} == {0o600}
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(path.parent.stat().st_mode) == 0o700


# Several at once.


def new_builder(llama, folder):
    library = library_of(llama, folder)
    path = library.index_path(NAME, hash_text(TEXT), identity(llama, SETTINGS))
    document, tokens = Document(TEXT, name=NAME), document_tokens(llama, NAME, TEXT)
    return IndexBuilder(llama, LibrarySnapshot(library), path, document, tokens, SETTINGS, Recorded(), n_jobs=2)


def test_a_build_waits_for_one_that_goes_on_and_then_does_nothing(llama, index, tmp_path):
    builder, waits, begins = new_builder(llama, tmp_path), threading.Event(), []
    builder.library.make_folder()
    builder.folder.mkdir()
    with locked(builder.folder):
        waiting = threading.Thread(target=builder.build, args=(lambda: begins.append(1), waits.set))
        waiting.start()
        assert waits.wait(20)
        assert begins == []
        shutil.copytree(index, builder.folder, dirs_exist_ok=True)  # as if another process had built it
        builder.folder.rename(builder.path)
    waiting.join(20)
    assert begins == []
    assert builder.progress.reports == []
    assert [each.name for each in builder.path.parent.iterdir() if each.is_dir()] == [builder.path.name]


def test_a_build_takes_over_from_one_that_died(llama, index, tmp_path):
    builder, begins = new_builder(llama, tmp_path), []
    builder.library.make_folder()
    builder.folder.mkdir()
    script = "import os, fcntl, sys, time; fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), 2); print(1, flush=True); "
    holder = start_script(script + "time.sleep(60)", builder.folder)
    assert holder.stdout.read(1) == b"1"
    threading.Timer(0.3, holder.kill).start()
    builder.build(lambda: begins.append(1))
    assert begins == [1]
    assert_same_index(builder.path, index)
    holder.communicate()


def start_script(script, *arguments):
    import subprocess
    import sys

    return subprocess.Popen([sys.executable, "-c", script, *map(str, arguments)], stdout=subprocess.PIPE)


def test_an_index_that_is_being_built_is_not_removed(llama, tmp_path):
    builder = new_builder(llama, tmp_path)
    builder.library.make_folder()
    builder.folder.mkdir()
    with locked(builder.folder), pytest.raises(OctavoError, match="is in use: another octavo is building or opening"):
        remove(builder.folder)
    remove(builder.folder)
    assert not builder.folder.exists()
    remove(builder.folder)  # another process was faster


def test_an_index_that_is_removed_while_it_is_read_reads_on(llama, index, tmp_path):
    path = shutil.copytree(index, tmp_path / "copy")
    document, _ = open_index(path, library_of(llama, index.parent.parent).model_hash)
    llama.attach(document)
    llama.eval(QUESTION)
    expected = llama.logits()
    remove(path)
    llama.attach(document)
    llama.eval(QUESTION)
    document.check()
    assert (llama.logits() == expected).all()


# Files that change while they are open.


def test_a_file_that_changes_while_it_is_open_is_told(copied_index, model_hash):
    document, _ = open_index(copied_index, model_hash)
    document.check()
    flip(copied_index / "layer-001.safetensors")
    with pytest.raises(OctavoError, match=r"changed layer-001\.safetensors of the index .* open the document again"):
        document.check()


def test_bounds_that_change_while_they_are_open_are_as_they_were_checked(copied_index, model_hash):
    document, _ = open_index(copied_index, model_hash)
    before = document.layers[0].cluster_starts.copy()
    file = copied_index / "layer-000.safetensors"
    with open(file, "r+b") as stream:
        stream.seek(-file.stat().st_size // 2, 2)
        stream.write(b"\xff" * (file.stat().st_size // 2))
    assert (document.layers[0].cluster_starts == before).all()


def test_an_index_that_shrinks_while_it_is_read_ends_in_a_sentence(tmp_path, on_tiny_model):
    """In a process of its own: the count of lost pages never goes back."""
    document = tmp_path / "island.txt"
    document.write_text(TEXT)
    process = start("chat", document, *on_tiny_model, "--temp", "0", "-n", "4000", "--attention", "dense", stdin=-1)
    process.stdin.write(b"Why?\n")
    process.stdin.flush()
    assert process.stdout.read(20)  # it answers
    process.send_signal(signal.SIGSTOP)
    [layer] = tmp_path.glob("*/*/layer-002.safetensors")
    os.truncate(layer, 4096)
    process.send_signal(signal.SIGCONT)
    _, errors = process.communicate(b"And?\n", timeout=60)
    assert b"became shorter while it was open" in errors
    assert b"Traceback" not in errors
    assert process.returncode >= 0


@pytest.fixture
def on_tiny_model(tiny_model, tmp_path):
    return ["-m", tiny_model, "--index-dir", tmp_path, "-t", "2"]
