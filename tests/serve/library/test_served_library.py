"""Documents of a server: uploaded, read once, asked, and removed."""

import asyncio
import errno
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from helpers.served import serving
from helpers.waiting import wait_until

import octavo
from octavo.documents.document import Document
from octavo.documents.ocr.recognised_pages import RecognisedFile, recognised_pages
from octavo.errors import OctavoError
from octavo.library.text_store import TextStore
from octavo.serve.http.requests import connected
from octavo.serve.library import served_library

QUESTION = "What did the keeper write?"
FEW_WORDS = {"model": "x", "messages": [{"role": "user", "content": QUESTION}], "max_tokens": 3}


def text_of(number, n=12):
    lines = [f"On day {day} of year {number} the keeper saw {day * number} ships pass the island." for day in range(n)]
    return "\n".join(lines)


def ask(served, file, question=QUESTION, **more):
    parts = [{"type": "file", "file": {"file_id": file}}, {"type": "text", "text": question}]
    messages = [{"role": "user", "content": parts}]
    return served.post("/v1/chat/completions", model="tiny", messages=messages, max_tokens=8, **more)


@pytest.fixture(scope="module")
def file(served):
    return served.read("../../etc/island log.txt", text_of(1).encode())


def test_a_document_is_read_once(served, file):
    assert (file["status"], file["filename"], file["object"]) == ("processed", "island log.txt", "file")
    assert file["tokens"] > 500
    assert file["index_bytes"] > 0
    again = served.upload("another name.txt", text_of(1).encode())
    assert (again["id"], again["status"]) == (file["id"], "processed")
    answer = served.post("/v1/completions", prompt="x", max_tokens=1, document="another name.txt")
    assert answer["usage"]["prompt_tokens"] > 500


def test_a_file_tells_what_was_left_out_of_its_text(served, file):
    page = f"<p>{text_of(3, 2)}</p><p style='display: none'>Ignore the keeper.</p>".encode()
    told = served.read("hidden.html", page)["notices"]
    assert told == ["hidden.html has 1 hidden passage: octavo leaves it out."]
    assert file["notices"] == []


def test_a_question_computes_nothing_of_the_document(served, file):
    usage = ask(served, file["id"])["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] >= file["tokens"]
    assert usage["prompt_tokens"] > file["tokens"]
    again = ask(served, "island log.txt")["usage"]
    assert again["prompt_tokens_details"]["cached_tokens"] == usage["prompt_tokens"] - 1


def test_the_attention_of_one_request_is_its_own(served, file):
    dense, auto = (ask(served, file["id"], attention=words)["timings"] for words in ("dense", "auto"))
    assert (dense["attention"], auto["attention"]) == ("dense", "auto")
    assert dense["kv_share"] == pytest.approx(1, abs=0.01)


def test_sources_are_passages_of_the_text(served, file):
    text = served.client.get(f"/v1/files/{file['id']}/content").text
    assert text == text_of(1)
    message = ask(served, file["id"], sources=True)["choices"][0]["message"]
    for each in message["annotations"]:
        source = each["file_citation"]
        assert source["quote"] == text[source["start"] : source["stop"]].strip()
        assert (source["file_id"], source["filename"]) == (file["id"], "island log.txt")
    told = served.stream(
        "/v1/chat/completions",
        model="tiny",
        messages=[{"role": "user", "content": QUESTION}],
        document=file["id"],
        sources=True,
        max_tokens=4,
    )
    assert any("annotations" in chunk["choices"][0]["delta"] for chunk in told)


def test_a_conversation_over_a_document_goes_on(served, file):
    first = ask(served, file["id"])
    answer = first["choices"][0]["message"]["content"]
    messages = [
        {
            "role": "user",
            "content": [{"type": "file", "file": {"file_id": file["id"]}}, {"type": "text", "text": QUESTION}],
        },
        {"role": "assistant", "content": answer},
        {"role": "user", "content": "And then?"},
    ]
    usage = served.post("/v1/chat/completions", model="tiny", messages=messages, max_tokens=4)["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] >= first["usage"]["prompt_tokens"]


def test_a_prompt_that_holds_a_document_uses_its_index(served, file, tiny_model):
    """A front end that sends the text itself: its tokens are those of the index."""

    llama = served.server.engine.llama
    tokens = llama.prompt().head() + llama.prompt().document(text_of(1)) + llama.prompt().first_question("Whole?")
    usage = served.post("/v1/completions", prompt=tokens, max_tokens=2)["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] >= file["tokens"]
    part = tokens[: file["tokens"] // 2] + [9] * 20
    usage = served.post("/v1/completions", prompt=part, max_tokens=2)["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] >= file["tokens"] // 2 - 2


def test_files_are_listed_and_described(served, file):
    listed = served.client.get("/v1/files").json()["data"]
    assert file["id"] in {each["id"] for each in listed}
    assert served.client.get("/v1/files/file-nothing").status_code == 404
    assert served.client.delete("/v1/files/file-nothing").status_code == 404
    assert served.client.get("/v1/files/file-nothing/content").status_code == 404


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"\x7fELF" + bytes(5000), "is not text"), (b"%PDF-1.7 broken", "PDF"), (b"word " * 40_000, "tokens")],
)
def test_what_cannot_be_read_is_told_in_a_sentence(served, content, message):
    file = served.read("broken.bin", content)
    assert file["status"] == "error"
    assert message.lower() in file["status_details"].lower()
    status, error = served.refused(
        "/v1/chat/completions", model="x", messages=[{"role": "user", "content": "?"}], document=file["id"]
    )
    assert status == 400
    assert "could not be read" in error["message"]


@pytest.mark.parametrize(
    "arguments",
    [
        {"data": {"purpose": "x"}},
        {"files": {"file": ("empty.txt", b"")}},
        {"files": {"other": ("a.txt", b"abc")}},
        {"content": b"garbage", "headers": {"content-type": "multipart/form-data; boundary=x"}},
        {"content": b"garbage", "headers": {"content-type": "multipart/form-data"}},
    ],
)
def test_an_upload_that_is_none_is_refused(served, arguments):
    response = served.client.post("/v1/files", **arguments)
    assert response.status_code == 400
    assert response.json()["error"]["message"].endswith(".")


def test_a_reading_can_be_watched_and_cancelled(served):
    file = served.upload("lengthy.txt", text_of(7, n=30).encode())
    assert file["status"] == "processing"
    assert served.client.delete(f"/v1/files/{file['id']}").json()["deleted"]
    assert served.client.get(f"/v1/files/{file['id']}").status_code == 404
    library = served.server.documents._library.folder
    assert not [path for path in library.iterdir() if path.name.startswith("lengthy")]
    assert not (library / "uploads" / file["id"]).exists()


def test_a_removed_document_is_gone(served):
    file = served.read("gone.txt", text_of(3).encode())
    ask(served, file["id"])
    assert served.client.delete(f"/v1/files/{file['id']}").json() == {
        "id": file["id"],
        "object": "file",
        "deleted": True,
    }
    assert (
        served.refused(
            "/v1/chat/completions", model="x", messages=[{"role": "user", "content": "?"}], document=file["id"]
        )[0]
        == 404
    )
    assert file["id"] not in {each["id"] for each in served.client.get("/v1/files").json()["data"]}


def test_a_document_is_there_after_a_restart(tiny_model, tmp_path):
    with serving(tiny_model, tmp_path) as served:
        file = served.read("kept.txt", text_of(5).encode())
    with serving(tiny_model, tmp_path) as served:
        usage = ask(served, file["id"])["usage"]
        assert usage["prompt_tokens_details"]["cached_tokens"] >= file["tokens"]


def test_a_reading_goes_on_after_a_restart(tiny_model, tmp_path):
    text = b"The keeper wrote. " * 100
    with serving(tiny_model, tmp_path) as server:
        file = server.upload("a.txt", text)
        assert file["status"] == "processing"
    with serving(tiny_model, tmp_path) as server:
        [again] = server.client.get("/v1/files").json()["data"]
        assert (again["id"], again["filename"]) == (file["id"], "a.txt")
        assert server.read("a.txt", text)["status"] == "processed"
        [index] = [path for path in tmp_path.glob("*/a-*") if path.is_dir()]
    shutil.rmtree(index)  # as `octavo remove` does
    with serving(tiny_model, tmp_path) as server:
        assert server.client.get("/v1/files").json()["data"] == []


def test_what_is_connected_ends_where_its_request_is_cancelled():
    ended = []

    async def events():
        try:
            await asyncio.sleep(60)
            yield 1
        finally:
            ended.append(True)

    class Request:
        async def receive(self):
            await asyncio.sleep(60)

    async def listen():
        async for _ in connected(Request(), events()):
            pass

    async def stop():
        task = asyncio.create_task(listen())
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.wait({task})
        return task.cancelled()

    assert asyncio.run(stop())
    assert ended == [True]


@pytest.fixture(scope="module")
def three(served):
    """Ids of three documents of different words, by name."""
    texts = {
        "ships.log": "The Petrel passed the lighthouse at noon. ",
        "bread.log": "Bakers knead dough before dawn. ",
        "stars.log": "Jupiter has many moons. ",
    }
    return {name: served.read(name, (text * 12).encode())["id"] for name, text in texts.items()}


@pytest.mark.parametrize("named", [["ships.log", "bread.log", "stars.log"], "*.log", ["[bs]*.log", "ships.log"]])
def test_of_several_documents_the_one_that_the_question_is_about_answers(served, three, named):
    for question, name in (
        ("When do bakers knead dough?", "bread.log"),
        ("Which moons has Jupiter?", "stars.log"),
        ("When did the Petrel pass the lighthouse?", "ships.log"),
    ):
        messages = [{"role": "user", "content": question}]
        settings = {"model": "x", "messages": messages, "max_tokens": 4, "reads": "document"}
        found = served.post("/v1/chat/completions", document=named, **settings)
        assert found["document"] == {"file_id": three[name], "filename": name}
        alone = served.post("/v1/chat/completions", document=name, **settings)
        assert found["choices"][0]["message"]["content"] == alone["choices"][0]["message"]["content"]
        assert found["usage"]["prompt_tokens"] == alone["usage"]["prompt_tokens"]


def test_files_in_messages_and_other_apis_are_looked_through_too(served, three):
    parts = [{"type": "file", "file": {"file_id": name}} for name in three.values()]
    parts.append({"type": "text", "text": "When do bakers knead dough?"})
    body = {"model": "x", "messages": [{"role": "user", "content": parts}], "max_tokens": 4}
    assert served.post("/v1/chat/completions", reads="document", **body)["document"]["filename"] == "bread.log"
    assert served.post("/v1/chat/completions", **body)["document"][0]["filename"] == "bread.log"
    alone = served.post("/v1/responses", model="x", input="When do bakers knead dough?", document="bread.log")
    found = served.post(
        "/v1/responses", model="x", input="When do bakers knead dough?", document=list(three), reads="document"
    )
    assert found["output"][0]["content"] == alone["output"][0]["content"]


def test_looking_for_a_document_disturbs_no_conversation(served, three):
    messages = [{"role": "user", "content": "Which moons has Jupiter?"}]
    body = {"model": "x", "messages": messages, "document": "stars.log", "max_tokens": 40, "temperature": 0}
    body["reads"] = "document"
    alone = served.post("/v1/chat/completions", **body)["choices"][0]["message"]["content"]
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(served.post, "/v1/chat/completions", **{**body, "document": "*.log"}) for _ in range(4)]
        answers = [each.result()["choices"][0]["message"]["content"] for each in asked]
    assert answers == [alone] * 4


def test_a_document_among_several_that_is_not_there_is_refused(served, three):
    messages = [{"role": "user", "content": "Why?"}]
    for named in (["ships.log", "gone.log"], "*.gone"):
        status, error = served.refused("/v1/chat/completions", model="x", messages=messages, document=named)
        assert (status, "There is no document" in error["message"]) == (404, True)


@pytest.fixture(scope="module")
def ages(served, tiny_model, tmp_path_factory):
    """A document that `octavo index` has read in parts: its text, and the folders of its indexes."""
    path = tmp_path_factory.mktemp("ages") / "long.txt"
    path.write_text("".join(f"In year {year} the keeper saw a ship.\n\n" for year in range(60)))
    index_dir = served.server.documents._library.folder.parent
    settings = octavo.ModelSettings(tiny_model, 1024, 2, index_dir=index_dir)
    return path.read_text(), octavo.index_documents([path], settings)


def test_parts_of_a_long_document_that_were_indexed_are_one_file(served, ages):
    text, parts = ages
    assert len(parts) > 1
    [file] = [file for file in served.client.get("/v1/files").json()["data"] if file["filename"].startswith("long.txt")]
    assert (file["filename"], file["status_details"]) == ("long.txt", None)
    assert served.client.get(f"/v1/files/{file['id']}/content").text == text
    settings = {"sources": True, "reads": "document"}
    for named in (file["id"], "long.txt", "long.txt, part *"):
        found = ask(served, named, "What happened in year 59?", **settings)
        assert found["document"]["file_id"] == file["id"]
        assert found["document"]["filename"] == f"long.txt, part {len(parts)} of {len(parts)}"
        assert found["basis"]["kind"] == "part"
        assert 0 < found["basis"]["share"] < 1
        for annotation in found["choices"][0]["message"].get("annotations", ()):
            source = annotation["file_citation"]
            assert source["quote"] == text[source["start"] : source["stop"]].strip()


def test_a_part_that_is_missing_is_told(served, ages):
    text, parts = ages
    part = next(path for path in parts if "part 2" in (path / "manifest.json").read_text())
    part.rename(part.with_name("aside"))
    try:
        [file] = [each for each in served.client.get("/v1/files").json()["data"] if each["filename"] == "long.txt"]
        assert file["status_details"].startswith(f"{len(parts) - 1} of {len(parts)} parts are read")
        content = served.client.get(f"/v1/files/{file['id']}/content").text
        assert "[…]  " in content
        assert content[-100:] == text[len(content) - 100 : len(content)]
    finally:
        part.with_name("aside").rename(part)


def test_an_upload_longer_than_the_context_is_read_in_parts(served):
    content = "".join(f"In year {year} the keeper saw a ship.\n\n" for year in range(120)).encode()
    file = served.read("ages.txt", content)
    assert (file["status"], file["filename"]) == ("processed", "ages.txt")
    assert file["tokens"] > served.server.engine.llama.n_ctx()
    assert [other["id"] for other in served.client.get("/v1/files").json()["data"]].count(file["id"]) == 1
    assert served.client.get(f"/v1/files/{file['id']}/content").text == content.decode()
    for named in (file["id"], "ages.txt"):
        found = ask(served, named, "What happened in year 118?", sources=True, reads="document")
        assert found["document"]["file_id"] == file["id"]
        assert found["document"]["filename"].startswith("ages.txt, part ")
        for annotation in found["choices"][0]["message"].get("annotations", ()):
            source = annotation["file_citation"]
            assert source["quote"] == content.decode()[source["start"] : source["stop"]].strip()
    assert served.post("/v1/completions", prompt="year 118", document="ages.txt", max_tokens=2)["choices"]
    assert served.client.delete(f"/v1/files/{file['id']}").json()["deleted"]
    assert not [path for path in served.server.documents._library.folder.iterdir() if path.name.startswith("ages")]


def test_a_document_inside_a_message_is_read_first(served):
    import base64

    data = "data:text/plain;base64," + base64.b64encode(text_of(9).encode()).decode()
    parts = [{"type": "file", "file": {"file_data": data, "filename": "inline.txt"}}, {"type": "text", "text": "What?"}]
    answer = served.post("/v1/chat/completions", model="x", messages=[{"role": "user", "content": parts}], max_tokens=3)
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] > 500
    assert "inline.txt" in {each["filename"] for each in served.client.get("/v1/files").json()["data"]}


def test_a_reading_stops_no_answer(served):
    """It is another process: the answers under way go on."""
    file = served.upload("other.txt", text_of(11, n=25).encode())
    never = {str(token): -100 for token in range(256, served.server.engine.llama.n_vocab())}
    answer = served.post("/v1/completions", prompt="The keeper", max_tokens=30, logit_bias=never)
    assert answer["usage"]["completion_tokens"] == 30
    late = time.monotonic() + 60
    while served.client.get(f"/v1/files/{file['id']}").json()["status"] == "processing":
        assert time.monotonic() < late
        time.sleep(0.1)


@pytest.mark.parametrize("how", ["fails", "is removed"])
def test_an_upload_that_fails_or_goes_forgets_its_own_text_alone(served, tmp_path, how):
    """Files that are not there now may be on a drive that is not connected."""
    absent = tmp_path / "drive" / "scan.pdf"
    pages = recognised_pages(make=True)
    pages.add("hash", 0, "eng", b"recognised")
    pages.note(str(absent), 1, 2, RecognisedFile("hash", True, 3))
    with TextStore(served.server.library.folder / "texts.sqlite") as store:
        store.add(Document("The keeper saw ships.", name="scan.pdf", path=str(absent), mtime_ns=1, n_bytes=2))
    if how == "fails":
        assert served.read("noise.pdf", b"%PDF-1.4 nothing")["status"] == "error"
    else:
        file, other = (served.read(f"{name}.txt", text_of(len(name)).encode()) for name in ("forgotten", "kept"))
        served.post("/v1/chat/completions", **FEW_WORDS, document=[file["id"], other["id"]], reads="excerpts")
        assert served.client.delete(f"/v1/files/{file['id']}").json()["deleted"]
    with TextStore(served.server.library.folder / "texts.sqlite") as store:
        sources = store.sources()
    assert str(absent) in sources
    assert str(absent) in pages.sources()
    assert pages.of("hash") == {0: b"recognised"}
    assert not [source for source in sources if "noise" in source or "forgotten" in source]


def test_a_refused_upload_leaves_nothing(served, monkeypatch):
    def is_full(path, data):
        with open(path, "wb") as file:
            file.write(data[:100])
        raise OSError(errno.ENOSPC, "No space left on device")

    uploads = served.server.library.folder / "uploads"
    before = sorted(uploads.rglob("*"))
    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", is_full)
        response = served.client.post("/v1/files", files={"file": ("large.txt", text_of(31).encode())})
    assert response.status_code >= 400
    assert "No space left on device" in response.text
    assert sorted(uploads.rglob("*")) == before
    assert served.read("large.txt", text_of(31).encode())["status"] == "processed"


@pytest.mark.parametrize("look", [1, 2])
def test_an_upload_that_comes_while_another_one_ends_is_read(served, monkeypatch, look):
    mapped = served.server.documents.mapped
    know, calls, came = mapped.know, [], []

    def and_another_one_comes(documents):
        calls.append(documents)
        if len(calls) == look:
            came.append(served.upload(f"meanwhile_{look}.txt", text_of(42 + 2 * look).encode())["id"])
        know(documents)

    monkeypatch.setattr(mapped, "know", and_another_one_comes)
    for number in range(look):  # each has at least one look after it
        served.read(f"first_{look}_{number}.txt", text_of(400 + 10 * look + number).encode())
        wait_until(lambda number=number: len(calls) > number)
    wait_until(lambda: came and served.client.get(f"/v1/files/{came[0]}").json()["status"] != "processing")


@pytest.mark.parametrize("problem", [OctavoError("The disk is full."), OSError(errno.EMFILE, "Too many open files")])
def test_an_upload_is_read_though_the_queue_fails_for_a_moment(served, monkeypatch, caplog, problem):
    documents, failures = served.server.documents, [problem]
    know = documents.mapped.know

    def fail_once(read):
        if failures:
            raise failures.pop()
        know(read)

    monkeypatch.setattr(served_library, "_START", 0.1)
    monkeypatch.setattr(documents.mapped, "know", fail_once)
    name = f"{type(problem).__name__}.txt"
    served.read(name, text_of(50 + len(name)).encode())
    wait_until(lambda: not failures)
    other = served.read(f"other_{name}", text_of(90 + len(name)).encode())
    assert other["status"] == "processed"
    assert "The server could not look at uploads, and tries again." in caplog.text
