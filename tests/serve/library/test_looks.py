"""Requests look at each document once, beside the event loop, however many documents they name."""

import asyncio
import os
import shutil
import threading
from collections import Counter

import pytest
from helpers.served import serving

import octavo
from octavo.documents.document import hash_text
from octavo.runtime.store.manifest import read_manifest, save_manifest
from octavo.runtime.store.model_library import Library

N_DOCUMENTS = 50


@pytest.fixture(scope="module")
def many(tiny_model, tmp_path_factory):
    """A server with many documents, whose indexes are copies of one."""
    folder = tmp_path_factory.mktemp("many")
    first = folder / "0.txt"
    first.write_text("In 1851 the keeper saw a ship.")
    [index] = octavo.index_documents([first], octavo.ModelSettings(tiny_model, 2048, 2, index_dir=folder))
    library = Library.of(tiny_model, folder)
    with serving(tiny_model, folder) as served:
        [identity] = [
            each
            for each in served.server.documents._identities
            if index.name.endswith(library.digest(read_manifest(index)["document"]["sha256"], each))
        ]
        for number in range(1, N_DOCUMENTS):
            sha256, path = hash_text(str(number)), folder / f"{number}.txt"
            path.write_text(str(number))
            copy = index.with_name(f"{number}-{library.digest(sha256, identity)}")
            shutil.copytree(index, copy)
            manifest, status = read_manifest(copy), path.stat()
            described = {**manifest["document"], "sha256": sha256, "name": path.name, "path": str(path)}
            described |= {"mtime_ns": status.st_mtime_ns, "bytes": status.st_size, "mark": "", "content": ""}
            save_manifest(copy, {**manifest, "document": described})
        yield served


@pytest.fixture
def calls(many, monkeypatch):
    """The numbers of calls of the file system: those on an event loop, and all others."""
    found, folder = Counter(), str(many.server.library.folder.parent)

    def counted(call):
        def counting(path, *arguments, **named):
            if not isinstance(path, int) and os.fspath(path).startswith(folder):
                found["loop" if asyncio._get_running_loop() is not None else "aside"] += 1
            return call(path, *arguments, **named)

        return counting

    for name in ("stat", "lstat", "open", "listdir", "scandir"):
        monkeypatch.setattr(os, name, counted(getattr(os, name)))
    return found


@pytest.fixture(scope="module")
def ids(many):
    return [file["id"] for file in many.client.get("/v1/files").json()["data"]]


@pytest.fixture(scope="module")
def store(many, ids):
    """The path of a vector store of all documents."""
    return f"/v1/vector_stores/{many.post('/v1/vector_stores', name='all', file_ids=ids)['id']}"


def test_all_documents_are_listed(many, ids):
    assert len(set(ids)) == N_DOCUMENTS


@pytest.mark.parametrize("path", ["/v1/files", "/v1/files/{id}", "/v1/models", "/metrics", "{store}", "{store}/files"])
def test_a_list_looks_at_each_document_once_and_beside_the_loop(many, ids, store, calls, path):
    """At its manifest and at its file, each by at most two calls; at when it was used; and at the library's folders."""
    assert many.client.get(path.format(id=ids[0], store=store)).status_code == 200
    assert calls["loop"] == 0
    assert calls["aside"] <= 5 * N_DOCUMENTS + 20


@pytest.mark.parametrize("named", ["all", "pattern"])
def test_a_question_over_many_documents_looks_at_none_of_them_on_the_loop(many, ids, calls, named):
    document = ids if named == "all" else "*.txt"
    told = many.post("/v1/messages/count_tokens", messages=[{"role": "user", "content": "?"}], document=document)
    assert told["input_tokens"] > 0
    assert calls["loop"] == 0
    body = {"messages": [{"role": "user", "content": "?"}], "document": [*ids, "unknown"]}
    assert many.refused("/v1/chat/completions", **body)[0] == 404
    assert calls["loop"] == 0


def test_requests_that_come_together_share_a_look(many, monkeypatch):
    documents, begun = many.server.documents, []
    look_now = documents.look_now

    def counted():
        begun.append(True)
        return look_now()

    monkeypatch.setattr(documents, "look_now", counted)

    async def together():
        first = asyncio.create_task(documents.look())
        await asyncio.sleep(0)
        return await asyncio.gather(first, *(documents.look() for _ in range(20)))

    known = asyncio.run(together())
    assert len(begun) <= 2
    assert all(len(each) == N_DOCUMENTS for each in known)


def test_a_look_begins_after_it_was_asked_for(many, monkeypatch):
    """A request sees what was there before it, also while an older look goes on; and one that leaves ends no look."""
    documents = many.server.documents
    look_now, began, goes_on, seen = documents.look_now, threading.Event(), threading.Event(), []

    def slow():
        seen.append(len(seen))
        if seen == [0]:
            began.set()
            goes_on.wait(60)
        return look_now()

    monkeypatch.setattr(documents, "look_now", slow)

    async def two():
        first = asyncio.create_task(documents.look())
        await asyncio.to_thread(began.wait, 60)
        second, third = asyncio.create_task(documents.look()), asyncio.create_task(documents.look())
        await asyncio.sleep(0)
        first.cancel()
        second.cancel()
        goes_on.set()
        await third

    asyncio.run(two())
    assert seen == [0, 1]
