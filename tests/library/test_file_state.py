"""What became of a file: it is as it was when its text was taken, it has changed, or it is gone."""

import os

import pytest

from octavo.documents import extract as extracting
from octavo.documents.document import hash_text
from octavo.documents.extract import extract_document
from octavo.library.source_text import CHANGED, GONE, SAME, SourceFile, state_of_file, state_of_version
from octavo.library.text_store import TextStore
from octavo.runtime.store.manifest import file_entries
from octavo.settings import Extraction


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "plan.txt"
    path.write_text("The code is ALPHA.")
    return path


def write_quietly(path, text):
    """Write a file, and put its time back."""
    status = path.stat()
    path.write_text(text)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def described(document):
    return {"sha256": hash_text(document.text), **file_entries(document.version)}


def touched(path):
    os.utime(path, (1, 1))


def restored(path):
    content = path.read_bytes()
    path.write_text("Something else.")
    path.write_bytes(content)


def copied_over(path):
    copy = path.with_name("copy")
    copy.write_bytes(path.read_bytes())
    copy.replace(path)


def changed(path):
    path.write_text("The code is OMEGA, or so.")


def changed_quietly(path):
    write_quietly(path, "The code is OMEGA.")


def replaced_quietly(path):
    status, other = path.stat(), path.with_name("other")
    other.write_text("The code is OMEGA.")
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.replace(path)


def removed(path):
    path.unlink()


def made_a_folder(path):
    path.unlink()
    path.mkdir()


STATES = {
    touched: SAME,
    restored: SAME,
    copied_over: SAME,
    changed: CHANGED,
    changed_quietly: CHANGED,
    replaced_quietly: CHANGED,
    removed: GONE,
    made_a_folder: GONE,
}


@pytest.mark.parametrize(("what", "state"), STATES.items(), ids=[each.__name__ for each in STATES])
def test_the_state_of_a_file(file, what, state):
    document = extract_document(file)
    assert state_of_version(document.version) == SAME
    what(file)
    assert state_of_version(document.version) == state
    assert state_of_file(described(document)) == state


def test_a_manifest_of_an_older_octavo_has_time_and_size_only(file):
    document = extract_document(file)
    entries = {name: value for name, value in described(document).items() if name not in ("mark", "content")}
    changed_quietly(file)
    assert state_of_file(entries) == SAME  # they match, and nothing else is known
    touched(file)
    assert state_of_file(entries) == CHANGED
    file.write_text("The code is ALPHA.")
    assert state_of_file(entries) == SAME  # its text is compared


def test_the_version_is_that_of_the_bytes_that_were_read(file, monkeypatch):
    """The file is saved while its text is taken from it."""
    take = extracting._extract

    def saved_meanwhile(*arguments):
        changed(file)
        return take(*arguments)

    monkeypatch.setattr(extracting, "_extract", saved_meanwhile)
    document = extract_document(file)
    assert document.text == "The code is ALPHA."
    assert state_of_version(document.version) == CHANGED
    monkeypatch.undo()
    assert state_of_version(extract_document(file).version) == SAME


def test_a_file_that_is_saved_while_it_is_read_is_read_again(file, monkeypatch):
    read, texts = extracting._all_of, iter(["The code is BETA.", "The code is GAMMA."])

    def saved_meanwhile(*arguments):
        content = read(*arguments)
        if text := next(texts, None):
            file.write_text(text)
        return content

    monkeypatch.setattr(extracting, "_all_of", saved_meanwhile)
    document = extract_document(file)
    assert document.text == "The code is GAMMA."
    assert state_of_version(document.version) == SAME


def test_a_file_that_never_rests_counts_as_changed(file, monkeypatch):
    read, n_saved = extracting._all_of, 0

    def saved_meanwhile(*arguments):
        nonlocal n_saved
        content, n_saved = read(*arguments), n_saved + 1
        file.write_text(f"The code is {n_saved}.")
        return content

    monkeypatch.setattr(extracting, "_all_of", saved_meanwhile)
    document = extract_document(file)
    assert document.text == f"The code is {n_saved - 1}."
    assert state_of_version(document.version) == CHANGED


def test_a_kept_text_is_of_its_version(file, tmp_path):
    source = SourceFile(file)
    with TextStore(tmp_path / "texts.sqlite") as store:
        kept = store.add(source.extract())
        assert store.find(source.version).number == kept.number
        changed_quietly(file)
        assert store.find(source.version) is None
        assert store.add(source.extract()).number > kept.number


@pytest.fixture
def cafe(tmp_path):
    path = tmp_path / "cafe.txt"
    path.write_text("Le caf\xe9 est ouvert.", "utf-8")
    return path


GIVEN = Extraction(encoding="cp437")


def test_a_version_is_of_the_encoding_that_was_given(cafe):
    given, plain = SourceFile(cafe, GIVEN), SourceFile(cafe)
    documents = {file: file.extract() for file in (given, plain)}
    assert len({document.text for document in documents.values()}) == 2
    assert all(document.version.is_kept(file.version) for file, document in documents.items())
    touched(cafe)
    assert not any(document.version.is_kept(file.version) for file, document in documents.items())
    for document in documents.values():
        assert state_of_version(document.version) == SAME
        assert state_of_file(described(document)) == SAME
    assert not given.version.is_kept(plain.version)
    assert not plain.version.is_kept(given.version)
    cafe.write_bytes(b"Another text.")
    assert {state_of_file(described(document)) for document in documents.values()} == {CHANGED}


def test_a_version_of_an_older_octavo_is_of_no_encoding_that_is_given_now(cafe):
    older = SourceFile(cafe).version._replace(mark="")
    assert older.is_kept(SourceFile(cafe).version)
    assert not older.is_kept(SourceFile(cafe, GIVEN).version)


def test_a_text_of_a_wrong_encoding_is_kept_for_that_encoding_alone(cafe, tmp_path):
    given, plain = SourceFile(cafe, GIVEN), SourceFile(cafe)
    with TextStore(tmp_path / "texts.sqlite") as store:
        wrong = store.add(given.extract())
        assert (store.find(given.version).number, store.find(plain.version)) == (wrong.number, None)
        right = store.add(plain.extract())
        assert (store.find(given.version), store.find(plain.version).number) == (None, right.number)


def test_a_text_is_the_same_while_one_of_its_files_has_it(file, tmp_path):
    copy = tmp_path / "copy.txt"
    copy.write_bytes(file.read_bytes())
    first, second = extract_document(file), extract_document(copy)
    entries = {**described(first), "copies": [file_entries(second.version)]}
    changed(file)
    assert state_of_file(entries) == SAME
    removed(file)
    assert state_of_file(entries) == SAME
    changed(copy)
    assert state_of_file(entries) == GONE
