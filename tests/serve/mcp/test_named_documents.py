"""Which documents a client may name."""

import os
from pathlib import Path

import pytest

from octavo.errors import OctavoError
from octavo.serve.mcp.named_documents import NamedDocuments


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "reports"
    for name in ("a.txt", "2023/b.txt", "2024/b.txt", "2024/c.txt"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"The text of {name}.")
    (tmp_path / "secret.txt").write_text("Not for you.")
    (tmp_path / "reports-of-others").mkdir()
    (tmp_path / "reports-of-others" / "a.txt").write_text("Not for you, either.")
    return folder


@pytest.fixture
def named(folder):
    return NamedDocuments([folder])


def test_all_are_named_by_their_paths_in_the_folder(named, folder):
    assert named.all() == {name: folder / name for name in ("2023/b.txt", "2024/b.txt", "2024/c.txt", "a.txt")}


def test_of_several_folders_their_names_stand_before(folder, tmp_path):
    found = NamedDocuments([folder / "2023", folder / "a.txt"]).all()
    assert found == {"2023/b.txt": folder / "2023" / "b.txt", "a.txt": folder / "a.txt"}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.txt", ["a.txt"]),
        ("c.txt", ["2024/c.txt"]),
        ("./a.txt", ["a.txt"]),
        ("2023/../a.txt", ["a.txt"]),
        ("2024", ["2024/b.txt", "2024/c.txt"]),
        ("2024/", ["2024/b.txt", "2024/c.txt"]),
        (".", ["2023/b.txt", "2024/b.txt", "2024/c.txt", "a.txt"]),
    ],
)
def test_a_name_may_be_short_or_that_of_a_folder(named, name, expected):
    assert list(named.named([name])) == expected


def test_a_whole_path_is_a_name(named, folder):
    assert named.one(str(folder / "a.txt")) == ("a.txt", folder / "a.txt")


@pytest.mark.parametrize(
    "name",
    [
        "../secret.txt",
        "2023/../../secret.txt",
        "{outside}/secret.txt",
        "{outside}/reports-of-others/a.txt",
        "../reports-of-others/a.txt",
        "/etc/passwd",
        "..",
        "{outside}",
        "~root/.profile",
        "a.txt\0",
    ],
)
def test_nothing_outside_is_found(named, folder, name):
    with pytest.raises(OctavoError, match=r"outside of what may be used|There is no document"):
        named.named([name.format(outside=folder.parent)])


def test_a_path_outside_is_refused_in_a_sentence_that_does_not_tell_whether_it_exists(named, folder):
    for name in ("../secret.txt", "../nothing.txt"):
        with pytest.raises(OctavoError) as refused:
            named.one(name)
        assert str(refused.value) == f"{name} is outside of what may be used, which is {folder}."


def test_links_count_as_what_they_lead_to(named, folder):
    os.symlink(folder.parent / "secret.txt", folder / "link.txt")
    os.symlink(folder.parent / "reports-of-others", folder / "2025")
    os.symlink(folder / "a.txt", folder / "2023" / "a.txt")
    notices = []
    found = named.all(notices.append)
    assert sorted(found) == ["2023/a.txt", "2023/b.txt", "2024/b.txt", "2024/c.txt"]
    assert found["2023/a.txt"] == folder / "a.txt"  # a document with two names is there once
    assert named.one(str(folder / "a.txt")) == ("2023/a.txt", folder / "a.txt")
    assert notices == [
        "2025 is a link to what may not be used, so it is left out.",
        "link.txt is a link to what may not be used, so it is left out.",
    ]
    for name in ("link.txt", "2025/a.txt", "2025"):
        with pytest.raises(OctavoError, match="outside of what may be used"):
            named.named([name])


def test_a_folder_that_may_not_be_used_is_not_entered_by_a_link(named, folder, monkeypatch):
    outside = folder.parent / "reports-of-others"
    os.symlink(outside, folder / "2025")
    os.symlink("/", folder / "2023" / "disk")
    os.symlink(folder / "2024", folder / "2023" / "next")  # one within is
    (outside / "photo.gz").write_bytes(b"\0")
    entered, scandir = [], os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: entered.append(os.path.realpath(path)) or scandir(path))
    notices = []
    assert {"2023/next/b.txt", "2023/next/c.txt"} < set(named.all(notices.append))
    told = [f"{name} is a link to what may not be used, so it is left out." for name in ("2025", "2023/disk")]
    assert notices == told
    assert all(Path(each).is_relative_to(folder) for each in entered)


def test_a_link_that_was_named_at_the_start_may_be_used(folder, tmp_path):
    os.symlink(folder, tmp_path / "link")
    assert NamedDocuments([tmp_path / "link"]).one("a.txt") == ("a.txt", folder / "a.txt")


def test_hidden_files_are_not_documents(named, folder):
    (folder / ".env").write_text("KEY=1")
    with pytest.raises(OctavoError, match=r"There is no document named \.env"):
        named.one(".env")


def test_a_wrong_name_gets_a_sentence(named):
    with pytest.raises(OctavoError, match=r"^There is no document named 2024/d\.txt\. Did you mean 2024/c\.txt\?$"):
        named.one("2024/d.txt")
    with pytest.raises(OctavoError, match=r"^There is no document named zebra\. list_documents lists all\.$"):
        named.one("zebra")
    with pytest.raises(OctavoError, match=r"^Several documents are named b\.txt: 2023/b\.txt, 2024/b\.txt\. Give one"):
        named.one("b.txt")
    with pytest.raises(OctavoError, match=r"^2024 stands for 2 documents: name one of them\.$"):
        named.one("2024")


def test_documents_may_come_and_go(folder):
    (folder / "new").mkdir()
    named, notices = NamedDocuments([folder / "new"]), []
    assert named.all(notices.append) == {}
    assert notices[0].startswith("There is no document in the folder")
    (folder / "new" / "d.txt").write_text("A text.")
    assert list(named.all()) == ["d.txt"]


def test_wrong_folders_are_refused_at_the_start(folder, tmp_path):
    with pytest.raises(OctavoError, match=r"^There is no file or folder .*nothing"):
        NamedDocuments([tmp_path / "nothing"])
    (tmp_path / "other" / "reports").mkdir(parents=True)
    with pytest.raises(OctavoError, match=r"^Two folders have the name reports"):
        NamedDocuments([folder, tmp_path / "other" / "reports"])
    assert NamedDocuments([folder, folder]).all() == NamedDocuments([folder]).all()


def test_names_that_are_not_utf_8_can_be_sent_and_named(tmp_path):
    for name in (b"caf\xe9.txt", b"caf\xe8.txt", b"plain.txt"):
        (tmp_path / os.fsdecode(name)).write_text("The keeper saw ships.")
    named = NamedDocuments([tmp_path])
    assert set(named.all()) == {"caf\\xe9.txt", "caf\\xe8.txt", "plain.txt"}
    [(name, path)] = named.named(["caf\\xe9.txt"]).items()
    assert (name, os.fsencode(path.name)) == ("caf\\xe9.txt", b"caf\xe9.txt")
