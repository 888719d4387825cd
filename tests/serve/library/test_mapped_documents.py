"""A server maps the last documents, without descriptors, and lets go of those that other processes remove."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.command_line import octavo
from helpers.served import serving
from helpers.waiting import wait_until

from octavo.library.open_index import Indexer
from octavo.library.source_text import SourceFile, identify
from octavo.progress import Silent
from octavo.runtime.llama import Llama
from octavo.runtime.store.library_snapshot import LibrarySnapshot
from octavo.runtime.store.model_library import Library
from octavo.serve.library import mapped_documents, served_library
from octavo.settings import ReadSettings

MAPS = Path("/proc/self/maps")


def index_many(model, folder, n):
    """Index n texts; returns their names."""
    names = [f"{number:04d}.txt" for number in range(n)]
    index_named(model, folder, names)
    return names


def index_named(model, folder, names):
    """Index texts of these names."""
    llama, library = Llama(model, n_ctx=2048, n_threads=2), Library.of(model, folder)
    (folder / "texts").mkdir()
    for number, name in enumerate(names):
        path = folder / "texts" / name
        path.write_text(f"Ship {number} passed the island in the year {1700 + number}.")
        indexer = Indexer(llama, LibrarySnapshot(library), ReadSettings(), lambda sentence: None)
        indexer.index(identify(SourceFile(path), indexer.snapshot, Silent()), Silent())
    llama.close()


def ask(served, name):
    body = {"model": "x", "messages": [{"role": "user", "content": "Which ship passed?"}], "document": name}
    return served.post("/v1/chat/completions", **body, max_tokens=2)


def mapped(served):
    """The folders of the library with mapped files, whether they were removed or not."""
    library = str(served.server.library.folder)
    lines = [line.split(" ", 5)[-1].strip() for line in MAPS.read_text().splitlines() if library in line]
    return {Path(line.removesuffix(" (deleted)")).parent for line in lines}


LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]),) * 2)
from pathlib import Path
from helpers.served import serving
from test_mapped_documents import ask
with serving(Path(sys.argv[2]), Path(sys.argv[3])) as served:
    for name in sys.argv[4:]:
        assert ask(served, name)["document"]["filename"] == name
    print(served.client.get("/health").status_code, len(served.client.get("/v1/files").json()["data"]))
"""


@pytest.mark.parametrize(("n", "limit"), [(24, 72), pytest.param(1000, 1024, marks=pytest.mark.slow)])
def test_many_documents_are_served_with_few_descriptors(tiny_model, tmp_path, n, limit):
    names = index_many(tiny_model, tmp_path, n)
    asked = names if n < 100 else names[::10]
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(limit), tiny_model, tmp_path, *asked],
        env={**os.environ, "PYTHONPATH": ":".join([*sys.path, str(Path(__file__).parent)])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.split("\n")[-2:]) == (0, [f"200 {n}", ""]), done.stderr


@pytest.mark.skipif(not MAPS.exists(), reason="the system lists no mappings")
def test_the_last_documents_stay_mapped_and_a_removed_one_does_not(tiny_model, tmp_path, monkeypatch):
    monkeypatch.setattr(mapped_documents, "_KEPT", 2)
    monkeypatch.setattr(served_library, "_LOOK_FOR_REMOVED", 0.1)
    names = index_many(tiny_model, tmp_path, 4)
    with serving(tiny_model, tmp_path) as served:
        assert mapped(served) == set()
        for name in names[:2]:
            ask(served, name)
        assert len(mapped(served)) == 2
        octavo("remove", names[0], "-m", tiny_model, "--index-dir", tmp_path, "--yes")
        wait_until(lambda: len(mapped(served)) == 1)
        assert [path.name[:4] for path in mapped(served)] == ["0001"]
        assert ask(served, names[1])["document"]["filename"] == names[1]


def test_a_prompt_finds_the_document_that_it_begins_with_though_none_is_mapped(tiny_model, tmp_path):
    names = index_many(tiny_model, tmp_path, 3)
    with serving(tiny_model, tmp_path) as served:
        documents = served.server.documents
        for name in names:
            [found] = documents.look_now().find([name]).read
            tokens = list(documents.mapped.open(found).index.tokens)
            again = mapped_documents.MappedDocuments(documents._map_index)
            again.know(documents.look_now().find(names).read)
            assert again.begun_by([*tokens, 1, 2]).documents[0].name == name
            assert again.begun_by(tokens[:-1]) is None
            assert again.shares_most(tokens[:-1], len(tokens) - 1)[0] == len(tokens) - 1
            assert again.shares_most(tokens[:-1], len(tokens)) == (0, None)


def test_a_command_raises_its_limit_of_descriptors():
    limited = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(7)[1])); "
    show = "from octavo.cli import main; main._raise_limit_of_descriptors(); print(resource.getrlimit(7)[0])"
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    done = subprocess.run([sys.executable, "-c", limited + show], capture_output=True, text=True, check=True)
    assert int(done.stdout) == (min(most, 10_240) if most != resource.RLIM_INFINITY else 10_240)


def test_documents_whose_names_are_not_utf_8_are_served(tiny_model, tmp_path):
    folder = tmp_path / os.fsdecode(b"caf\xe9s")
    folder.mkdir()
    index_named(tiny_model, folder, [os.fsdecode(b"caf\xe9.txt"), os.fsdecode(b"\xff.txt"), "plain.txt"])
    with serving(tiny_model, folder) as served:
        files = served.client.get("/v1/files").json()["data"]
        assert {file["filename"] for file in files} == {"caf\\xe9.txt", "\\xff.txt", "plain.txt"}
        assert all(folder.endswith("/caf\\xe9s/texts") for file in files for folder in file["folders"])
        for file in files:
            for reference in (file["id"], file["filename"]):
                assert ask(served, reference)["document"]["filename"] == file["filename"]
            assert "passed the island" in served.client.get(f"/v1/files/{file['id']}/content").text
        body = {"model": "x", "messages": [{"role": "user", "content": "Which ship?"}], "max_tokens": 2}
        found = served.post("/v1/chat/completions", **body, document="*.txt", reads="excerpts", sources=True)
        assert len(found["document"]) == 3
