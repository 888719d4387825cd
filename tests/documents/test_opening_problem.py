"""A document that cannot be opened, and the one that was probably meant."""

import os

import pytest

from octavo import OctavoError
from octavo.documents.extract import extract_document
from octavo.documents.opening_problem import similar_path
from octavo.library.expand_paths import check_existence


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Reports").mkdir()
    for name in ("Reports/q3.pdf", "Reports/notes.md", "emma.txt", ".hidden.txt"):
        (tmp_path / name).write_text("A text.")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("emm.txt", "emma.txt"),
        ("Emma.TXT", "emma.txt"),
        ("./emam.txt", "./emma.txt"),
        ("Reprots/q3.pdf", "Reports/q3.pdf"),
        ("reports/Q3.PDF", "Reports/q3.pdf"),
        ("Report/note.md", "Reports/notes.md"),
        ("Report/", "Reports"),
        ("hidden.txt", ""),
        ("budget.xlsx", ""),
        ("emma.txt/chapter", ""),
        ("elsewhere/q3.pdf", ""),
    ],
)
def test_a_similar_path_that_exists(here, typed, meant):
    assert similar_path(typed) == meant
    with pytest.raises(OctavoError) as raised:
        check_existence([typed])
    suggested = str(raised.value).partition(" Did you mean ")[2]
    assert suggested == (f"{meant}?" if meant else "")


def test_a_reader_suggests_it_too(here):
    with pytest.raises(
        OctavoError, match=r"emm\.txt cannot be opened: No such file or directory\. Did you mean emma\.t"
    ):
        extract_document("emm.txt")


def test_a_file_that_may_not_be_read_is_no_other_one(here):
    if os.geteuid() == 0:
        pytest.skip("root reads all files")
    os.chmod("emma.txt", 0)
    with pytest.raises(OctavoError, match=r"cannot be opened: Permission denied\.$"):
        extract_document("emma.txt")
