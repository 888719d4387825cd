"""Several processes share a file of texts, damaged texts heal, and names need not be UTF-8."""

import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from octavo.documents.document import Document
from octavo.documents.extract import extract_document
from octavo.errors import OctavoError
from octavo.library.text_store import TextStore
from octavo.settings import Extraction
from octavo.system import sqlite_file

FACT = "The lighthouse of Skerry was painted green by Tobias Quill.\n\n"
FILLER = "The committee met again and talked about the weather, the roads and the price of bread.\n\n"

ADDER = """
import sys, time
from pathlib import Path
from octavo.documents.document import Document
from octavo.library.text_store import TextStore
with TextStore(Path(sys.argv[1])) as store:
    print("open", flush=True)
    for number in range(10**9):
        text = f"lighthouse {number} " + "The keeper of the lighthouse. " * int(sys.argv[2])
        store.add(Document(text, name=f"{number % 7}"))
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "texts.sqlite"


def damage(path, number, content=b"\x78\x9cdamaged"):
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE texts SET text = ? WHERE number = ?", (content, number))


def kept(path, tmp_path, name, text):
    """A file whose text is kept."""
    (tmp_path / name).write_text(text)
    with TextStore(path) as store:
        return store.add(extract_document(tmp_path / name))


@pytest.mark.parametrize("is_local", [True, False])
def test_searches_find_the_same_while_another_process_adds_without_pause(path, monkeypatch, is_local):
    monkeypatch.setattr(sqlite_file, "_is_local", lambda folder: is_local)
    with TextStore(path) as store:
        numbers = [store.add(Document(f"{FACT}{FILLER * 20}{i}", name=f"fact {i}")).number for i in range(3)]
        expected = [piece[:3] for piece in store.search("Who painted Skerry green?", numbers)]
        with subprocess.Popen([sys.executable, "-c", ADDER, path, "400"], stdout=subprocess.PIPE) as adding:
            adding.stdout.readline()
            try:
                for _ in range(40):
                    found = store.search("Who painted Skerry green?", numbers)
                    assert [piece[:3] for piece in found] == expected
            finally:
                adding.kill()


def test_a_search_does_not_wait_for_a_process_that_changes_the_texts(path):
    with TextStore(path) as store, TextStore(path) as other:
        number = store.add(Document(FACT, name="fact")).number
        with other._transaction("IMMEDIATE"):
            other._db.execute("DELETE FROM texts")
            began = time.monotonic()
            assert store.search("Who painted Skerry?", [number])
            assert time.monotonic() - began < 30  # the file's timeout is 60 s
            other._db.execute("ROLLBACK")


def test_a_search_sees_one_state_of_the_texts(path, monkeypatch):
    """What another process forgets and adds in the middle of a search counts for the next one."""
    with TextStore(path) as store, TextStore(path) as other:
        number = store.add(Document(FACT, name="fact")).number
        words_of = store._words_of

        def meanwhile(question):
            other.forget(lambda source: source == "fact")
            for i in range(30):
                other.add(Document(f"A lighthouse without a painter {i}", name=str(i)))
            return words_of(question)

        monkeypatch.setattr(store, "_words_of", meanwhile)
        found = store.search("Who painted the lighthouse?", [number])
        assert [piece[:3] for piece in found] == [(number, 0, len(FACT))]


def test_an_older_octavos_file_is_emptied_once(path):
    """One process has looked at the version; before it goes on, another one makes the tables and keeps a text."""
    with closing(sqlite3.connect(path)) as database, database:
        database.executescript("PRAGMA user_version = 1; CREATE TABLE texts (old TEXT)")
    looks = iter([True])
    kept_meanwhile = []

    class Late(TextStore):
        def _is_older(self):
            if next(looks, False):
                with TextStore(path) as other:
                    kept_meanwhile.append(other.add(Document(FACT, name="fact")))
                return True
            return super()._is_older()

    with Late(path) as store:
        assert store.document(kept_meanwhile[0].number).text == FACT


def test_a_newer_octavos_file_is_not_emptied(path):
    with TextStore(path) as store:
        number = store.add(Document(FACT, name="fact")).number
        store._db.execute("PRAGMA user_version = 99")
    with TextStore(path) as store:
        assert store.document(number).text == FACT


@pytest.mark.parametrize("content", [b"", b"\x78\x9cdamaged", "text", 7, None])
def test_a_damaged_text_is_read_again_from_its_file(path, tmp_path, content):
    text = kept(path, tmp_path, "a.txt", FACT + FILLER * 100)
    damage(path, text.number, content)
    with TextStore(path) as store:
        found = store.search("Who painted Skerry?", [text.number])
        assert store.document(text.number).text == FACT + FILLER * 100
        assert found[0].start == 0
        assert store.search("Who painted Skerry?", [text.number]) == found
    with closing(sqlite3.connect(path)) as database:
        database.execute("INSERT INTO words (words) VALUES ('integrity-check')")


def test_a_damaged_text_is_read_again_by_the_encoding_that_was_given(path, tmp_path):
    (tmp_path / "a.txt").write_bytes("Le caf\xe9 est ouvert.".encode("cp1252"))
    document = extract_document(tmp_path / "a.txt", Extraction(encoding="cp437"))
    with TextStore(path) as store:
        number = store.add(document).number
    damage(path, number)
    with TextStore(path) as store:
        assert store.document(number).text == document.text


def test_a_damaged_text_whose_file_has_changed_is_forgotten_with_a_sentence(path, tmp_path):
    text, other = kept(path, tmp_path, "a.txt", FACT), kept(path, tmp_path, "b.txt", FILLER + FACT)
    (tmp_path / "a.txt").write_text("Another text.")
    damage(path, text.number)
    with TextStore(path) as store:
        with pytest.raises(OctavoError, match=r"that was kept of a\.txt was damaged, and is forgotten: open the doc"):
            store.search("Who painted Skerry?", [text.number, other.number])
        assert store.sources() == [str(tmp_path / "b.txt")]
        [piece] = store.search("Who painted Skerry?", [text.number, other.number])[:1]
        assert piece.text == other.number


@pytest.mark.parametrize("how", ["add", "forget"])
def test_a_damaged_text_can_be_replaced_and_forgotten(path, tmp_path, how):
    text, other = kept(path, tmp_path, "a.txt", FACT), kept(path, tmp_path, "b.txt", "A lighthouse on the rocks.")
    damage(path, text.number)
    with TextStore(path) as store:
        if how == "add":
            (tmp_path / "a.txt").write_text("The Petrel sank.")
            text = store.add(extract_document(tmp_path / "a.txt"))
            assert store.search("Petrel", [text.number])
        else:
            assert store.forget(lambda source: source.endswith("a.txt")) == 1
        assert [piece.text for piece in store.search("lighthouse", [text.number, other.number])] == [other.number]
        n_having = store._db.execute("SELECT COUNT(*) FROM places_of_words WHERE term = 'skerri'").fetchone()
        assert n_having == (0,)


NAMES = [b"caf\xe9.txt", b"\xff\xfe.txt", b"a\xc3.txt", "caf\u00e9.txt".encode(), b"\xed\xa0\xbd.txt"]


@pytest.mark.parametrize("name", NAMES)
def test_a_file_of_any_name_is_kept_found_and_forgotten(path, tmp_path, name):
    file = os.fsdecode(os.path.join(os.fsencode(tmp_path), name))
    with open(file, "w") as opened:
        opened.write(FACT)
    document = extract_document(file)
    with TextStore(path) as store:
        text = store.add(document)
        found = store.find(document_version(document))
        assert (found.number, os.fsencode(found.path)) == (text.number, os.fsencode(file))
        assert store.sources() == [file]
        assert store.search("lighthouse", [text.number])
        assert store.forget(lambda source: source == file) == 1
        assert store.find(document_version(document)) is None


def document_version(document):
    from octavo.documents.ocr.recognised_pages import file_version

    return file_version(document.path)


def test_nothing_of_a_forgotten_text_stays_on_the_disk(path):
    with TextStore(path) as store:
        store.add(Document("Unusual" * 300, name="a"))
        store.forget(lambda source: True)
        content = b"".join(file.read_bytes() for file in path.parent.glob("texts.sqlite*"))
    assert b"unusual" not in content.lower()


def test_a_disk_of_the_network_has_a_journal_and_a_local_one_a_log(path, monkeypatch, tmp_path):
    def mode():
        with TextStore(path) as store:
            return store._db.execute("PRAGMA journal_mode").fetchone()[0]

    mounted = type("Mounted", (), {})
    disks = []
    for place, kind in (("/", "ext4"), (str(tmp_path), "nfs4")):
        disk = mounted()
        disk.mountpoint, disk.fstype = place, kind
        disks.append(disk)
    monkeypatch.setattr("psutil.disk_partitions", lambda all: disks)
    sqlite_file._is_local.cache_clear()
    assert mode() == "delete"
    disks.pop()
    sqlite_file._is_local.cache_clear()
    assert mode() == "wal"
    disks[0].fstype = "something"
    sqlite_file._is_local.cache_clear()
    assert mode() == "delete"
    sqlite_file._is_local.cache_clear()


def test_texts_on_a_read_only_disk_can_be_searched(path, monkeypatch):
    with TextStore(path) as store:
        number = store.add(Document(FACT, name="fact")).number
    content = path.read_bytes()
    monkeypatch.setattr(os, "access", lambda folder, mode: False)
    with TextStore(path) as store:
        assert store.search("Who painted Skerry?", [number])
        with pytest.raises(OctavoError, match="readonly"):
            store.add(Document(FACT, name="another"))
    assert path.read_bytes() == content
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("name", [b"caf\xe9", b"a?b", b"a%20b", b"a#b"])
def test_texts_lie_in_folders_of_any_name(tmp_path, name):
    path = Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), name))) / "texts.sqlite"
    with TextStore(path) as store:
        store.add(Document(FACT, name="fact"))
    assert path.exists()
    assert len(list(tmp_path.iterdir())) == 1
