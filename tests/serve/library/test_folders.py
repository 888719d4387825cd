"""Folders of a server's documents, and uploads of what was indexed before."""

import unicodedata

import pytest
from helpers.served import serving

import octavo
from octavo.serve.library.upload_folder import UploadFolder, file_name, folder_label, is_in_folder

SHIPS, BREAD = ("The Petrel passed the lighthouse at noon. " * 9, "Bakers knead dough before dawn. " * 9)


def upload(served, name, text, folder):
    data = {"purpose": "user_data", "folder": folder}
    return served.client.post("/v1/files", files={"file": (name, text.encode())}, data=data).json()


def files(served):
    return {file["filename"]: file for file in served.client.get("/v1/files").json()["data"]}


def asked(served, document, question="When do bakers knead dough?", **more):
    messages = [{"role": "user", "content": question}]
    return served.post("/v1/chat/completions", messages=messages, document=document, max_tokens=2, **more)


def test_a_folder_of_uploads_is_asked_and_known_after_a_restart(tiny_model, tmp_path):
    with serving(tiny_model, tmp_path) as served:
        assert upload(served, "ships.txt", SHIPS, "notes/./../2024")["folders"] == ["notes/2024"]
        upload(served, "bread.txt", BREAD, "notes")
        other = upload(served, "stars.txt", "Jupiter has many moons. " * 9, "")
        assert other["folders"] == []
        again = upload(served, "ships.txt", SHIPS, "papers")  # the same file, from another folder
        assert again["folders"] == ["notes/2024", "papers"]
        for name, text in (("ships.txt", SHIPS), ("bread.txt", BREAD)):
            assert served.read(name, text.encode())["status"] == "processed"
        served.read("stars.txt", b"Jupiter has many moons. " * 9)
        assert asked(served, "notes/", reads="document")["document"]["filename"] == "bread.txt"
        assert asked(served, "notes/2024")["document"]["filename"] == "ships.txt"
        assert asked(served, "papers")["document"]["filename"] == "ships.txt"
        answers = [each["filename"] for each in asked(served, "notes", reads="excerpts")["document"]]
        assert set(answers) <= {"ships.txt", "bread.txt"}
        refused = {"messages": [{"role": "user", "content": "?"}], "document": "other/"}
        assert served.refused("/v1/chat/completions", **refused)[0] == 404
    with serving(tiny_model, tmp_path) as served:
        assert {name: file["folders"] for name, file in files(served).items()} == {
            "ships.txt": ["notes/2024", "papers"],
            "bread.txt": ["notes"],
            "stars.txt": [],
        }
        served.client.delete(f"/v1/files/{again['id']}")
        assert upload(served, "ships.txt", SHIPS, "")["folders"] == []


@pytest.fixture
def indexed(served, tiny_model, tmp_path):
    """A document whose bytes are not its text, which `octavo index` has read."""
    path = tmp_path / "shelf" / "bread.html"
    path.parent.mkdir()
    path.write_text(f"<html><body><p>{BREAD}</p></body></html>")
    index_dir = served.server.documents._library.folder.parent
    octavo.index_documents([path], octavo.ModelSettings(tiny_model, 2048, 2, index_dir=index_dir))
    yield path
    served.client.delete(f"/v1/files/{files(served)['bread.html']['id']}")


def test_a_document_of_the_disk_has_its_folder(served, indexed, monkeypatch):
    assert files(served)["bread.html"]["folders"] == [str(indexed.parent)]
    assert asked(served, "shelf/")["document"]["filename"] == "bread.html"
    monkeypatch.setenv("HOME", str(indexed.parents[1]))
    assert files(served)["bread.html"]["folders"] == ["~/shelf"]


def test_a_name_that_several_files_of_the_disk_have_is_refused(served, tiny_model, tmp_path):
    paths = [tmp_path / year / "report.txt" for year in ("2023", "2024")]
    for path in paths:
        path.parent.mkdir()
        path.write_text(f"In {path.parent.name} bakers kneaded dough before dawn. " * 9)
    octavo.index_documents(paths, served.server.documents._job.settings)
    messages = [{"role": "user", "content": "When do bakers knead dough?"}]
    status, error = served.refused("/v1/chat/completions", messages=messages, document="report.txt")
    assert (status, error["message"]) == (
        400,
        "Several documents are named report.txt: 2023/report.txt, 2024/report.txt. Give one of these names.",
    )
    paths[0].rename(paths[0].with_name("old.txt"))
    assert asked(served, "report.txt")["document"]["filename"] == "report.txt"  # the other one is gone
    paths[0].with_name("old.txt").rename(paths[0])
    one = asked(served, "2024/report.txt", reads="document")["document"]
    both = asked(served, ["2023/report.txt", "2024/report.txt"], reads="excerpts")["document"]
    assert {each["filename"] for each in both} == {"2023/report.txt", "2024/report.txt"}
    assert one["file_id"] in {each["file_id"] for each in both}
    uploaded = served.read("report.txt", b"Bakers sleep. " * 9)  # an upload has the name from now on
    assert asked(served, "report.txt")["document"]["file_id"] == uploaded["id"]
    for file in served.client.get("/v1/files").json()["data"]:
        if file["filename"] == "report.txt":
            served.client.delete(f"/v1/files/{file['id']}")


def test_an_upload_of_what_was_indexed_is_that_document(served, indexed):
    """Its text has an index already, which is that of the file on the disk."""
    known = files(served)["bread.html"]
    sent = upload(served, "copy.html", indexed.read_text(), "mine")
    told = served.read("copy.html", indexed.read_bytes())
    assert told["id"] == known["id"] != sent["id"]
    assert served.client.get(f"/v1/files/{sent['id']}").json()["id"] == known["id"]
    assert files(served)["bread.html"]["folders"] == [str(indexed.parent), "mine"]
    assert "copy.html" not in files(served)
    assert asked(served, sent["id"])["document"]["file_id"] == known["id"]
    assert served.client.get(f"/v1/files/{sent['id']}/content").text.startswith("Bakers")
    served.client.delete(f"/v1/files/{sent['id']}")
    assert "bread.html" not in files(served)
    again = served.read("copy.html", indexed.read_bytes())  # now it is a document of its own
    assert (again["id"], again["filename"]) == (sent["id"], "copy.html")
    served.client.delete(f"/v1/files/{again['id']}")
    octavo.index_documents([indexed], served.server.documents._job.settings)


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("papers/2024", "papers/2024"),
        ("..\\..\\etc", "etc"),
        ("/a//b/", "a/b"),
        ("a\x00\nb", "a__b"),
        ("..", ""),
        ("x" * 999, "x" * 300),
    ],
)
def test_the_name_of_a_folder_leads_nowhere(name, label):
    assert folder_label(name) == label


def test_names_of_folders():
    assert is_in_folder(["~/papers/2024"], "papers")
    assert is_in_folder(["~/papers/2024"], "~/papers/2024/")
    assert is_in_folder(["/srv/papers"], "/srv/papers")
    assert not is_in_folder(["/home/srv/papers"], "/srv/papers")
    assert not is_in_folder(["~/papers"], "per")
    assert not is_in_folder(["~/papers"], "/")
    assert not is_in_folder([], "papers")


def test_damaged_facts_about_an_upload_leave_the_upload(tmp_path):
    folder = UploadFolder(tmp_path)
    folder.store("file-1", "a.txt", b"text")
    folder.note_upload("file-1", "a.txt", "papers")
    (tmp_path / "file-1" / ".about.json").write_text("{")
    again = UploadFolder(tmp_path)
    assert list(again.folders_of("file-1")) == []
    assert [name for name, _ in again.unread()] == ["file-1"]


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("../a<b>.txt", "a<b>.txt"),
        ("C:\\papers\\तूफ़ान की रिपोर्ट.pdf", "तूफ़ान की रिपोर्ट.pdf"),
        ("ตารางน้ำขึ้น.txt", "ตารางน้ำขึ้น.txt"),
        ("re\u0301sume\u0301.pdf", "r\xe9sum\xe9.pdf"),
        ("Bill [3] 'final' \"x\" #4 & 100%.txt", "Bill [3] 'final' \"x\" #4 & 100%.txt"),
        ("می\u200cیس.txt", "می\u200cیس.txt"),
        ("a\u202etxt.exe\n\0", "atxt.exe"),
        (" .hidden. ", "hidden"),
        ("\n", "document.txt"),
    ],
)
def test_names_of_uploads_keep_their_letters(name, kept):
    assert file_name(name) == unicodedata.normalize("NFC", kept)


@pytest.mark.parametrize("letter", ["a", "å", "त", "😀"])
def test_long_names_of_uploads_fit_file_systems_and_keep_their_end(letter):
    name = file_name(letter * 300 + ".part 12.txt")
    assert 200 < len(name.encode()) <= 240
    assert name.startswith(letter * 40)
    assert name.endswith(f"{letter}.part 12.txt")
    assert "\ufffd" not in name


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_folders_and_uploads_are_found_by_either_form_of_a_name(tmp_path, form):
    name = unicodedata.normalize(form, "Bød på é.txt")
    folder = UploadFolder(tmp_path)
    file = folder.store("file-1", name, b"text")
    folder.note_upload("file-1", file_name(name), f"skjær/{name}")
    assert file.name == unicodedata.normalize("NFC", name)
    for other in ("NFC", "NFD"):
        assert is_in_folder(folder.folders_of("file-1"), unicodedata.normalize(other, name))
