"""What files, folders and patterns stand for."""

import os
from pathlib import Path

import pytest
from helpers.document_files import BOOK, PAGE, word_file, zipped

from octavo import OctavoError
from octavo.documents.document import READS
from octavo.library.expand_paths import distinct_names, documents_of, listed


@pytest.fixture
def folder(tmp_path) -> Path:
    """A folder of documents and of other things."""
    folder = tmp_path / "papers"
    files = {
        "b.txt": b"Petrel\n",
        "a/deep/page.html": PAGE.encode("latin-1"),
        "a/book.epub": zipped(BOOK),
        "a/report.docx": word_file(),
        "a/scan.pdf": b"%PDF-1.7 damaged",
        "sixteen.txt": "Petrel\n".encode("utf-16-le"),
        "latin": "Der Wärter schrieb jedes Schiff auf.\n".encode("latin-1"),
        "picture.png": b"\x89PNG\r\n\x1a\n",
        "table.kmz": zipped({"doc.kml": "<x/>"}),
        "model.gguf": b"GGUF\x03\0\0\0",
        "numbers.bin": bytes(range(256)),
        "empty.txt": b"",
        ".hidden.txt": b"Petrel\n",
        ".git/config": b"[core]\n",
        "tiny.octavo/uploads/x/b.txt": b"Petrel again\n",
        "~$report.docx": b"\x03Ane" + bytes(158),
        "b.txt~": b"Petrel, before\n",
        "#b.txt#": b"Petrel, meanwhile\n",
        "a/~WRL0001.tmp": b"Petrel\n",
        "a/talk.pdf.crdownload": b"%PDF-1.7 begun",
        "a/film.txt.part": b"Petrel\n",
        "a/Desktop.ini": b"[.ShellClassInfo]\n",
        "THUMBS.DB": b"Petrel\n",
    }
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


DOCUMENTS = ["a/book.epub", "a/deep/page.html", "a/report.docx", "a/scan.pdf", "b.txt", "latin", "sixteen.txt"]


def names(documents, folder):
    return [Path(document).relative_to(folder).as_posix() for document in documents]


def test_a_folder_stands_for_the_documents_in_it(folder):
    notices = []
    assert names(documents_of([folder], notices.append), folder) == DOCUMENTS
    assert notices == [f"empty.txt, model.gguf, numbers.bin, picture.png, table.kmz are left out of {folder}: {READS}"]


def test_a_pattern_names_no_leftovers(folder):
    assert names(documents_of([f"{folder}/*b.txt*", f"{folder}/b*"]), folder) == ["b.txt"]


def test_what_is_named_is_never_left_out(folder):
    assert documents_of([folder / "b.txt~"]) == [folder / "b.txt~"]
    named = [folder / "picture.png", str(folder / ".hidden.txt"), "missing.txt", "-"]
    assert documents_of(named) == named


def test_names_keep_their_order_and_doubles_are_taken_once(folder):
    (folder / "link.txt").symlink_to("b.txt")
    named = [folder / "latin", folder / "a" / ".." / "b.txt", folder, "-", str(folder / "b.txt"), "-"]
    documents = documents_of(named)
    assert documents[:2] == named[:2]
    assert documents[-1] == "-"
    assert len(documents) == len(DOCUMENTS) + 1


def test_patterns(folder):
    assert names(documents_of([f"{folder}/*.txt"]), folder) == ["b.txt", "empty.txt", "sixteen.txt"]
    found = documents_of([f"{folder}/**/*"])
    assert set(DOCUMENTS) < set(names(found, folder))
    assert names(documents_of([f"{folder}/a*"]), folder) == DOCUMENTS[:4]
    with pytest.raises(OctavoError, match=r"There is nothing like .*\*\.odt: give a file, a folder"):
        documents_of([folder / "*.odt"])
    strange = folder / "report [1].txt"
    strange.write_text("Petrel\n")
    assert documents_of([strange]) == [strange]


def test_links_that_lead_round_and_nowhere(folder):
    (folder / "a" / "deep" / "round").symlink_to(folder)
    (folder / "nowhere.txt").symlink_to(folder / "gone.txt")
    os.mkfifo(folder / "pipe.txt")
    assert names(documents_of([folder]), folder) == DOCUMENTS
    outside = folder.parent / "outside"
    outside.mkdir()
    (outside / "more.txt").write_text("Gannet\n")
    (folder / "linked").symlink_to(outside)
    assert names(documents_of([folder]), folder) == [*DOCUMENTS[:6], "linked/more.txt", DOCUMENTS[6]]


def test_a_folder_without_documents(tmp_path):
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    with pytest.raises(OctavoError, match=rf"^There is no document in the folder {tmp_path}: octavo reads text, "):
        documents_of([tmp_path])


def test_files_of_a_folder_that_cannot_be_opened_stay(folder, monkeypatch):
    real = open

    def closed(path, *arguments, **names):
        if Path(path).name == "b.txt":
            raise PermissionError(13, "Permission denied")
        return real(path, *arguments, **names)

    monkeypatch.setattr("builtins.open", closed)
    assert names(documents_of([folder]), folder) == DOCUMENTS


@pytest.mark.parametrize("kind", [str, Path])
def test_one_path_is_a_list_of_one(kind, tmp_path):
    (tmp_path / "a.txt").write_text("First.")
    one = kind(tmp_path)
    assert listed(one) == listed([one]) == listed(iter([one])) == [one]
    assert documents_of(listed(one)) == [tmp_path / "a.txt"]


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["/x/a.txt", "/y/b.txt"], ["a.txt", "b.txt"]),
        (["/x/2023/report.pdf", "/x/2024/report.pdf", "/x/b.txt"], ["2023/report.pdf", "2024/report.pdf", "b.txt"]),
        (["/x/2023/q1/r.pdf", "/x/2024/q1/r.pdf"], ["2023/q1/r.pdf", "2024/q1/r.pdf"]),
        (["/x/2023/q1/r.pdf", "/x/2023/q2/r.pdf", "/x/2024/q1/r.pdf"], ["2023/q1/r.pdf", "q2/r.pdf", "2024/q1/r.pdf"]),
        (["/a/r.pdf", "/r.pdf"], ["a/r.pdf", "/r.pdf"]),
        (["/x/a.txt", "/x/a.txt"], ["a.txt", "a.txt"]),
        (["-"], ["Standard input"]),
    ],
)
def test_names_of_paths(paths, names):
    found = distinct_names(paths)
    assert [found[path] for path in paths] == names


def test_paths_of_the_current_folder_have_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert distinct_names(["r.pdf", "old/r.pdf"]) == {"r.pdf": f"{tmp_path.name}/r.pdf", "old/r.pdf": "old/r.pdf"}
