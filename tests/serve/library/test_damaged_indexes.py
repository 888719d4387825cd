"""Damaged indexes and texts heal while the server runs: it tells, answers from the text, and makes them again."""

import os
import shutil
import sqlite3
from contextlib import closing

import pytest
from helpers.served import serving

import octavo
from octavo.library.text_store import TEXTS
from octavo.runtime.store.manifest import DOCUMENT, MANIFEST

QUESTION = [{"role": "user", "content": "Which ship passed the island?"}]


def text_of(number, n=12):
    return "".join(f"In year {year} of ship {number} the keeper saw whales.\n\n" for year in range(n)).encode()


@pytest.fixture(scope="module")
def own(tiny_model, tmp_path_factory):
    """A server whose indexes are damaged. The background reader is held."""
    with serving(tiny_model, tmp_path_factory.mktemp("damaged"), held=True) as served:
        yield served


@pytest.fixture
def indexed(own, tiny_model, tmp_path):
    """A function that indexes documents of these names, as `octavo index` does, and returns what the server says."""
    settings = octavo.ModelSettings(tiny_model, 2048, 2, index_dir=own.server.library.folder.parent)

    def index(*names, **more):
        for name in names:
            (tmp_path / f"{name}.txt").write_bytes(text_of(name, **more))
        octavo.index_documents([tmp_path / f"{name}.txt" for name in names], settings)
        return {file["filename"].removesuffix(".txt"): file for file in listed()}

    def listed():
        files = own.client.get("/v1/files").json()["data"]
        return [file for file in files if str(tmp_path) in file["folders"]]

    yield index
    for file in listed():
        own.client.delete(f"/v1/files/{file['id']}")


def folder_of(served, name):
    """The index of a document, the last part of one in parts."""
    return max(path for path in served.server.library.folder.glob(f"{name}-*") if path.is_dir())


def ask(served, document, **more):
    return served.post("/v1/chat/completions", messages=QUESTION, document=document, max_tokens=2, **more)


def is_told(answer):
    return any("is damaged, and is made again" in sentence for sentence in answer.get("notices", ()))


def state(served, file):
    return served.client.get(f"/v1/files/{file['id']}").json()["status"]


def removed(path):
    path.unlink()


def shortened(path):
    whole = path.read_bytes()
    path.unlink()
    path.write_bytes(whole[:-8])


def changed(path):
    """Another byte in place: the mapped file changes with it."""
    with open(path, "r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)[0]
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last ^ 1]))


def made_a_folder(path):
    path.unlink()
    path.mkdir()


LAYER = "layer-001.safetensors"


DAMAGES = [
    (LAYER, removed),
    (LAYER, shortened),
    (LAYER, changed),
    (LAYER, made_a_folder),
    (DOCUMENT, removed),
    (MANIFEST, removed),
    (MANIFEST, shortened),
]


def test_a_damaged_index_is_told_and_its_text_answers_meanwhile(own, indexed):
    files = indexed(*(f"{name.partition('.')[0]}-{damage.__name__}" for name, damage in DAMAGES))
    assert len(files) == len(DAMAGES)
    for (name, damage), (named, file) in zip(sorted(DAMAGES, key=named_so), sorted(files.items()), strict=True):
        damage(folder_of(own, named) / name)
        told = ask(own, file["id"])
        assert (told["basis"]["kind"], is_told(told)) == ("excerpts", True), named
        listed = own.client.get(f"/v1/files/{file['id']}").json()
        assert (listed["status"], listed["filename"]) == ("processing", f"{named}.txt")
        assert listed["folders"] == file["folders"]
        assert own.client.get(f"/v1/files/{file['id']}/content").content == text_of(named)


def named_so(damage):
    return f"{damage[0].partition('.')[0]}-{damage[1].__name__}"


def test_an_open_index_that_changes_in_place_is_told(own, indexed):
    """What is removed or replaced stays mapped as it was."""
    [file] = indexed("open").values()
    assert ask(own, file["id"])["basis"]["kind"] == "document"
    removed(folder_of(own, "open") / DOCUMENT)
    assert ask(own, file["id"])["basis"]["kind"] == "document"
    changed(folder_of(own, "open") / LAYER)
    assert is_told(ask(own, file["id"]))


@pytest.mark.parametrize("name", [LAYER, MANIFEST])
def test_a_damaged_index_is_made_again(own, indexed, name):
    """A question that needs the whole text waits for it."""
    [file] = indexed("again").values()
    removed(folder_of(own, "again") / name)
    found = ask(own, "again.txt", reads="document")
    assert (found["basis"]["kind"], is_told(found), state(own, file)) == ("document", False, "processed")


def test_one_damaged_index_among_others_holds_up_no_question(own, indexed):
    files = indexed(*(f"among-{number}" for number in range(3)))
    shortened(folder_of(own, "among-1") / LAYER)
    for more in ({}, {"reads": "excerpts"}):
        told = ask(own, "among-*.txt", **more)
        assert is_told(told) == ("among-1.txt" in {each["filename"] for each in told["document"]})
    assert {name: state(own, file) for name, file in files.items()} == {
        "among-0": "processed",
        "among-1": "processing",
        "among-2": "processed",
    }


def test_an_index_whose_file_has_gone_is_refused_in_a_sentence(own, indexed, tmp_path):
    [file] = indexed("gone").values()
    removed(folder_of(own, "gone") / LAYER)
    (tmp_path / "gone.txt").unlink()
    status, error = own.refused("/v1/chat/completions", messages=QUESTION, document=file["id"])
    assert (status, error["message"]) == (
        404,
        "The index of gone.txt is damaged, and its file is not there: put the file back, or remove the document.",
    )
    assert own.client.get("/health").status_code == 200


def test_an_index_whose_file_has_changed_gives_way_to_the_new_text(own, indexed, tmp_path):
    indexed("changes")
    removed(folder_of(own, "changes") / LAYER)
    (tmp_path / "changes.txt").write_bytes(text_of("another"))
    assert is_told(ask(own, "changes.txt"))
    assert own.client.get("/v1/files/changes.txt/content").content == text_of("another")
    assert ask(own, "changes.txt", reads="document")["basis"]["kind"] == "document"
    assert own.client.get("/v1/files/changes.txt/content").content == text_of("another")


def test_a_part_of_a_long_document_is_damaged(own, indexed):
    [file] = indexed("long", n=150).values()
    removed(folder_of(own, "long") / LAYER)
    assert own.client.get(f"/v1/files/{file['id']}/content").content == text_of("long", n=150)
    assert is_told(ask(own, file["id"]))
    assert state(own, file) == "processing"


@pytest.mark.parametrize("is_seen", [False, True], ids=["unseen", "seen"])
@pytest.mark.parametrize("damage", [pytest.param(removed, marks=pytest.mark.slow), shortened])
def test_an_upload_whose_manifest_is_damaged_before_the_start_is_read_again(tiny_model, tmp_path, damage, is_seen):
    """But not one whose index was removed. The server before may have seen the damage."""
    with serving(tiny_model, tmp_path) as served:
        file, _ = served.upload("a.txt", text_of(1)), served.upload("b.txt", text_of(2))
        for name in ("a.txt", "b.txt"):
            ask(served, name, reads="document")
        served.hold()
        damage(folder_of(served, "a") / MANIFEST)
        shutil.rmtree(folder_of(served, "b"))
        if is_seen:
            assert state(served, file) == "processing"
    with serving(tiny_model, tmp_path, held=True) as served:
        files = served.client.get("/v1/files").json()["data"]
        assert [(each["id"], each["status"]) for each in files] == [(file["id"], "processing")]
        assert is_told(ask(served, file["id"]))
        assert ask(served, file["id"], reads="document")["basis"]["kind"] == "document"
        assert served.client.delete(f"/v1/files/{file['id']}").status_code == 200
        assert served.client.get("/v1/files").json()["data"] == []


@pytest.mark.parametrize("damaged", [b"", b"no zlib"])
def test_a_damaged_text_is_kept_again(own, indexed, damaged):
    indexed("kept-read")
    file = own.upload("kept-upload.txt", text_of("upload"))
    named = {"document": "kept-*.txt", "reads": "excerpts"}
    looks = [
        lambda: ask(own, **named)["basis"]["kind"] == "excerpts",
        lambda: own.client.get(f"/v1/files/{file['id']}/content").content == text_of("upload"),
    ]
    assert looks[0]()
    for look in looks:
        with closing(sqlite3.connect(own.server.library.folder / TEXTS)) as texts, texts:
            assert texts.execute("UPDATE texts SET text = ?", (damaged,)).rowcount >= 2
        assert look()
    own.client.delete(f"/v1/files/{file['id']}")
