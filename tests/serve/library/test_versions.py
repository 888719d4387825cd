"""Old versions of files never answer: of the indexes of a file that counts which is of its version now."""

import os
import shutil
import time

import pytest
from helpers.pdf_files import PdfWriter
from helpers.served import serving
from helpers.waiting import wait_until

import octavo
from octavo.library.source_text import SourceFile
from octavo.serve.library.upload_folder import UploadFolder

OLD, NEW = (
    "The secret code of the lighthouse is 1111. " * 9,
    "The secret code of the lighthouse is 2222, not less. " * 9,
)
QUESTION = "What is the secret code of the lighthouse?"


@pytest.fixture(scope="module")
def shelf(served, tiny_model, tmp_path_factory):
    """A folder whose documents are indexed when a test says so."""
    return Shelf(served, tiny_model, tmp_path_factory.mktemp("shelf"))


class Shelf:
    def __init__(self, served, model, folder):
        self.served, self.folder = served, folder
        index_dir = served.server.documents._library.folder.parent
        self.settings = octavo.ModelSettings(model, 2048, 2, index_dir=index_dir)

    def write(self, name, text):
        (self.folder / name).write_text(text)
        return self.folder / name

    def index(self, path):
        return octavo.index_documents([path], self.settings)

    def files(self):
        files = self.served.client.get("/v1/files").json()["data"]
        return [file for file in files if str(self.folder) in file["folders"]]

    def ask(self, document, **more):
        messages = [{"role": "user", "content": QUESTION}]
        return self.served.post(
            "/v1/chat/completions", messages=messages, document=document, max_tokens=2, sources=True, **more
        )

    def n_tokens(self, document, **more):
        return self.ask(document, **more)["usage"]["prompt_tokens"]

    def text(self, file):
        return self.served.client.get(f"/v1/files/{file['id']}/content").text


def tells_of_change(told):
    sentence = "plan.txt has changed since it was read: the answer comes from the text before."
    return sentence in told.get("notices", ())


@pytest.fixture
def plan(shelf):
    """A document that was changed and indexed again; its description before."""
    path = shelf.write("plan.txt", OLD)
    shelf.index(path)
    [old] = shelf.files()
    shelf.write("plan.txt", NEW)
    shelf.index(path)
    yield old
    for file in shelf.files():
        shelf.served.client.delete(f"/v1/files/{file['id']}")


def test_a_version_before_is_neither_listed_nor_read(shelf, plan):
    [file] = shelf.files()
    assert file["id"] != plan["id"]
    assert (file["status_details"], shelf.text(file)) == (None, NEW)
    expected = shelf.n_tokens(file["id"], reads="document")
    for named in ("plan.txt", "pl*.txt", str(shelf.folder), f"{shelf.folder.name}/", [file["id"], "plan.txt"]):
        told = shelf.ask(named, reads="document")
        assert told["usage"]["prompt_tokens"] == expected
        assert told["document"]["file_id"] == file["id"]
        assert not tells_of_change(told)
    refused = {"messages": [{"role": "user", "content": "?"}], "document": plan["id"]}
    status, error = shelf.served.refused("/v1/chat/completions", **refused)
    assert (status, error["message"]) == (
        404,
        "plan.txt has changed, and was indexed again: name the file, or its new id.",
    )


def test_a_file_that_was_put_back_is_the_version_before(shelf, plan):
    shelf.write("plan.txt", OLD)
    [file] = shelf.files()
    assert (file["id"], file["status_details"]) == (plan["id"], None)


def test_a_change_that_is_not_indexed_is_told(shelf, plan):
    shelf.write("plan.txt", "Neither of both.")
    [file] = shelf.files()
    assert file["status_details"] == "The file has changed since it was indexed: `octavo index` indexes it again."
    assert shelf.text(file) == NEW
    for reads in ("document", "excerpts"):
        told = shelf.ask("plan.txt", reads=reads)
        assert tells_of_change(told)
    shelf.write("plan.txt", NEW)  # another time, and the same bytes
    [file] = shelf.files()
    assert file["status_details"] is None
    assert not tells_of_change(shelf.ask("plan.txt"))


def test_a_file_that_is_gone_is_told(shelf, plan):
    path = shelf.folder / "plan.txt"
    path.unlink()
    [file] = shelf.files()
    gone = "The file is gone, or cannot be reached: answers come from the text that was indexed."
    assert file["status_details"] == gone
    sentence = "plan.txt is gone, or cannot be reached: the answer comes from the text that was read."
    for reads in ("document", "excerpts"):
        assert sentence in shelf.ask("plan.txt", reads=reads)["notices"]
    content = shelf.served.client.get(f"/v1/files/{file['id']}/content")
    assert (content.text, content.headers["x-octavo-notice"]) == (NEW, gone)
    store = shelf.served.post("/v1/vector_stores", file_ids=[file["id"]])["id"]
    [found, *_] = shelf.served.post(f"/v1/vector_stores/{store}/search", query="lighthouse")["data"]
    assert found["status_details"] == gone
    of_store = shelf.served.client.get(f"/v1/vector_stores/{store}/files/{file['id']}/content").json()
    assert of_store["status_details"] == gone
    shelf.write("plan.txt", NEW)
    assert "x-octavo-notice" not in shelf.served.client.get("/v1/files/plan.txt/content").headers


def test_of_the_texts_of_a_file_in_two_encodings_the_newest_counts(shelf):
    path = shelf.folder / "cafe.txt"
    path.write_text("Le caf\xe9 est ouvert. " * 9, "utf-8")
    for encoding, letter in (("cp437", "\u2310"), (None, "\xe9"), ("cp850", "\xae")):
        octavo.index_documents([path], shelf.settings, reading=octavo.ReadSettings(encoding=encoding))
        [file] = shelf.files()
        assert letter in shelf.text(file)
    shelf.served.client.delete(f"/v1/files/{file['id']}")
    assert shelf.files() == []


def test_identical_files_are_found_by_all_their_folders_and_names(shelf):
    paths = [shelf.folder / name for name in ("one/same.txt", "two/same.txt", "two/other.md")]
    for path in paths:
        path.parent.mkdir(exist_ok=True)
        path.write_text(OLD)
        shelf.index(path)

    def files():
        listed = shelf.served.client.get("/v1/files").json()["data"]
        return [file for file in listed if str(shelf.folder) in str(file["folders"])]

    [file] = files()
    assert file["folders"] == [str(shelf.folder / "one"), str(shelf.folder / "two")]
    for name in ("one", "two/", str(shelf.folder / "two"), "same.txt", "other.md", "oth*.md"):
        assert shelf.ask(name)["document"]["file_id"] == file["id"]
    paths[0].write_text("Neither of both, but another text.")
    shelf.index(paths[0])
    for name in ("two", "other.md", "oth*.md"):
        told = shelf.ask(name)
        assert told["document"]["file_id"] == file["id"]
        assert "has changed" not in str(told.get("notices"))
    [of_two] = [each for each in files() if each["id"] == file["id"]]
    assert (of_two["folders"], shelf.text(of_two)) == ([str(shelf.folder / "two")], OLD)
    for each in files():
        shelf.served.client.delete(f"/v1/files/{each['id']}")


@pytest.mark.parametrize("name", ["sent.txt", "sent.html"])
@pytest.mark.parametrize("how", ["changed", "indexed again", "gone", "index removed"])
def test_an_upload_outlives_the_file_whose_index_it_had(shelf, name, how):
    content = OLD if name == "sent.txt" else f"<html><body><p>{OLD}</p></body></html>"
    path = shelf.write(f"local-{name}", content)
    folders = shelf.index(path)
    sent = shelf.served.upload(name, content.encode())["id"]
    assert shelf.served.read(name, content.encode())["status"] == "processed"
    [local] = shelf.files()
    assert shelf.text({"id": sent}) == shelf.text(local)
    if how == "gone":
        path.unlink()
    elif how == "index removed":
        for folder in folders:
            shutil.rmtree(folder)
    else:
        shelf.write(f"local-{name}", content.replace("1111", "3333, and no more"))
        if how == "indexed again":
            shelf.index(path)
    wait_until(lambda: shelf.served.client.get(f"/v1/files/{sent}").json().get("status") == "processed")
    for named in (sent, name):
        told = shelf.ask(named)
        assert "the answer comes from the text" not in str(told.get("notices"))
        assert "1111" in shelf.text({"id": named})
    for each in shelf.served.client.get("/v1/files").json()["data"]:
        if name in each["filename"]:
            shelf.served.client.delete(f"/v1/files/{each['id']}")


def test_a_change_that_keeps_size_and_time_is_told(shelf, plan):
    path = shelf.folder / "plan.txt"
    status = path.stat()
    path.write_text(NEW.replace("2222", "3333"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    [file] = shelf.files()
    assert "has changed" in file["status_details"]
    shelf.index(path)
    [file] = shelf.files()
    assert "3333" in shelf.text(file)


def test_a_removed_document_leaves_no_older_version(shelf, plan):
    [file] = shelf.files()
    shelf.served.client.delete(f"/v1/files/{file['id']}")
    assert shelf.files() == []


def test_a_copy_whose_original_has_changed_is_known(shelf, plan):
    """Both had one index, which had the name of the original."""
    copy = shelf.write("copy.txt", OLD)
    shelf.index(copy)
    assert {file["filename"]: shelf.text(file) for file in shelf.files()} == {"plan.txt": NEW, "copy.txt": OLD}


def test_parts_of_a_version_before_do_not_count(shelf):
    path = shelf.write("log.txt", "".join(f"In year {year} the keeper saw a ship.\n\n" for year in range(120)))
    assert len(shelf.index(path)) > 1
    [old] = shelf.files()
    changed = "".join(f"In year {year} the keeper met a whale.\n\n" for year in range(110))
    shelf.write("log.txt", changed)
    [file] = shelf.files()
    assert (file["id"], "has changed" in file["status_details"]) == (old["id"], True)
    shelf.index(path)
    [file] = shelf.files()
    assert (file["status_details"], shelf.text(file)) == (None, changed)
    os.utime(path)
    [again] = shelf.files()
    assert (again["id"], again["status_details"]) == (file["id"], None)
    shelf.served.client.delete(f"/v1/files/{file['id']}")
    assert shelf.files() == []


def test_no_page_of_another_version_is_drawn(shelf):
    path = shelf.folder / "book.pdf"
    path.write_bytes(PdfWriter().page((60, 700, "The lighthouse of Skerry is green.")).content())
    shelf.index(path)
    [file] = shelf.files()
    picture = f"/v1/files/{file['id']}/pages/1"
    assert shelf.served.client.get(picture).status_code == 200
    os.utime(path)
    assert shelf.served.client.get(picture).status_code == 200
    path.write_bytes(PdfWriter().page((60, 700, "Another book.")).content())
    refused = shelf.served.client.get(picture)
    assert (refused.status_code, refused.json()["error"]["message"]) == (
        404,
        "book.pdf has changed since it was indexed.",
    )
    shelf.served.client.delete(f"/v1/files/{file['id']}")


def test_a_name_means_the_content_that_was_uploaded_last(tiny_model, tmp_path):
    def text(served):
        return served.client.get("/v1/files/report.txt/content").text

    with serving(tiny_model, tmp_path) as first, serving(tiny_model, tmp_path) as second:
        for version in (OLD, NEW, OLD, NEW, OLD):
            first.read("report.txt", version.encode())
            assert (text(first), text(second)) == (version, version)
        first.read("copy.txt", NEW.encode())
        for served in (first, second):
            assert served.client.get("/v1/files/copy.txt/content").text == NEW
            assert text(served) == OLD
        second.read("report.txt", NEW.encode())
        assert (text(first), text(second)) == (NEW, NEW)
    with serving(tiny_model, tmp_path) as served:
        assert text(served) == NEW
        assert served.client.get("/v1/files/copy.txt/content").text == NEW


def test_notes_about_uploads_are_seen_by_others(tmp_path):
    one, other = UploadFolder(tmp_path), UploadFolder(tmp_path)
    before = time.time()
    one.note_upload("file-1", "a.txt", "papers")
    one.note_upload("file-1", "b.txt", "")
    other.refresh()
    assert other.names_of("file-1").keys() == {"a.txt", "b.txt"}
    assert before <= other.names_of("file-1")["a.txt"] <= other.names_of("file-1")["b.txt"] <= time.time()
    assert list(other.folders_of("file-1")) == ["papers"]
    one.note_copy("file-1", "file-0", is_spare=False)
    other.refresh()
    assert other.copied("file-1") == "file-0"
    assert other.names_of("file-0") == one.names_of("file-1")
    one.remove("file-0")
    other.refresh()
    assert other.names_of("file-0") == {}


def test_a_document_of_a_longer_context_is_answered_from_excerpts(shelf, tiny_model):
    path = shelf.write("longer.txt", "".join(f"In year {year} the keeper saw a ship.\n\n" for year in range(120)))
    octavo.index_documents([path], octavo.ModelSettings(tiny_model, 8192, 2, index_dir=shelf.settings.index_dir))
    [file] = shelf.files()
    assert file["tokens"] > 2048
    for reads in ("auto", "excerpts", "document"):
        told = shelf.ask("longer.txt", reads=reads)
        assert told["basis"]["kind"] == "excerpts"
    shelf.served.client.delete(f"/v1/files/{file['id']}")


def test_an_upload_of_a_text_whose_file_has_changed_is_a_document(shelf):
    """The index of its text had another file, which has another text now."""
    path = shelf.write("origin.html", f"<html><body><p>{OLD}</p></body></html>")
    shelf.index(path)
    shelf.write("origin.html", f"<html><body><p>{NEW}</p></body></html>")
    shelf.index(path)
    sent = shelf.served.read("sent.txt", SourceFile(path).extract().text.replace("2222, not less", "1111").encode())
    assert sent["status"] == "processed"
    assert "1111" in shelf.text(sent)
    assert "2222" in shelf.text(next(file for file in shelf.files() if file["filename"] == "origin.html"))
    for file in (sent, *shelf.files()):
        shelf.served.client.delete(f"/v1/files/{file['id']}")
