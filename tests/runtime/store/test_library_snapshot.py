"""A library that is looked through once for a command or a request."""

import shutil
from collections import Counter

import numpy as np
import pytest
from helpers.index_builds import build, library_of, new_llama, text_of

import octavo
from octavo.convert.clusters import ClusterSettings
from octavo.convert.identity import identity
from octavo.library.open_index import Indexer
from octavo.library.reading_job import ReadingJob
from octavo.library.source_text import SourceFile, identify
from octavo.progress import Silent
from octavo.runtime.store import model_library
from octavo.runtime.store.index_files import read_tokens
from octavo.runtime.store.library_snapshot import LibrarySnapshot
from octavo.runtime.store.model_library import Library
from octavo.serve.library.served_library import ServedLibrary
from octavo.settings import ReadSettings
from octavo.system.files import FileVersion

N_DOCUMENTS = 20


@pytest.fixture(scope="module")
def llama(tiny_model):
    return new_llama(tiny_model)


@pytest.fixture(scope="module")
def made(llama, tmp_path_factory):
    """A folder of documents, and the folder of a library that has indexes of them."""
    documents, library = tmp_path_factory.mktemp("documents"), tmp_path_factory.mktemp("library")
    indexer = Indexer(llama, LibrarySnapshot(library_of(llama, library)), ReadSettings(), [].append)
    for number in range(N_DOCUMENTS):
        path = documents / f"{number:02d}.txt"
        path.write_text(text_of(150, seed=number))
        indexer.index(identify(SourceFile(path), indexer.snapshot, Silent()), Silent())
    return documents, library


@pytest.fixture
def read(monkeypatch):
    """How often the manifest of each folder is looked at."""
    read = Counter()

    def look(folder, as_of, usual=model_library._manifest):
        read[folder.name] += 1
        return usual(folder, as_of)

    monkeypatch.setattr(model_library, "_manifest", look)
    return read


def of_each(read):
    return (len(read), set(read.values())) == (N_DOCUMENTS, {1})


def test_a_folder_is_opened_with_one_look_at_each_manifest(made, llama, read):
    documents, library = made
    settings = octavo.ModelSettings(llama.model_path, n_ctx=4096, n_threads=2, index_dir=library)
    with octavo.open_documents([documents], settings) as collection:
        assert len(collection.documents) == N_DOCUMENTS
    assert of_each(read)


def test_an_index_is_found_without_another_look_through_the_library(made, llama, monkeypatch):
    documents, library = made
    monkeypatch.setattr(Library, "index_path", None)  # it lists the library
    indexer = Indexer(llama, LibrarySnapshot(library_of(llama, library)), ReadSettings(), [].append)
    for path in documents.iterdir():
        assert indexer.has(SourceFile(path))
        assert len(indexer.fit(identify(SourceFile(path), indexer.snapshot, Silent()))) == 1


def test_documents_are_indexed_with_one_look_at_each_manifest(llama, read, tmp_path):
    indexer = Indexer(llama, LibrarySnapshot(library_of(llama, tmp_path / "library")), ReadSettings(), [].append)
    for number in range(N_DOCUMENTS):
        path = tmp_path / f"{number:02d}.txt"
        path.write_text(text_of(150, seed=number))
        indexer.index(identify(SourceFile(path), indexer.snapshot, Silent()), Silent())
    assert of_each(read)


def test_the_server_lists_files_with_one_look_at_each_manifest(made, llama, read):
    _, library = made
    job = ReadingJob(llama.settings, llama.attention)
    documents = ServedLibrary(llama, library_of(llama, library), job)
    assert len(documents.look_now().files()) == N_DOCUMENTS
    assert of_each(read)


def test_indexes_are_found_by_file_and_by_text(llama, tmp_path):
    library = library_of(llama, tmp_path)
    path, settings = build(llama, tmp_path), identity(llama, ClusterSettings())
    snapshot = LibrarySnapshot(library)
    [(folder, manifest)] = snapshot.indexes
    document = manifest["document"]
    assert folder == path == snapshot.by_digest[library.digest(document["sha256"], settings)]
    assert snapshot.text_of(FileVersion("/document.txt", 1, 2)) is None  # it was made of no file
    assert snapshot.by_text[document["sha256"]] == [(path, manifest)]
    assert snapshot.described == {path: document}
    np.testing.assert_array_equal(snapshot.tokens_of(path), read_tokens(path))
    shutil.rmtree(path)
    snapshot.refresh()
    assert snapshot.indexes == []
