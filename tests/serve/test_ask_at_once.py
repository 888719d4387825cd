"""A document is asked while it is being read: answers are given from passages that words find."""

import asyncio
import itertools
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import httpx
import numpy as np
import pytest
from helpers.pdf_files import PdfWriter
from helpers.served import serving

import octavo
from octavo.ask.context import passages as unread
from octavo.library.text_store import TEXTS
from octavo.runtime.query_recorder import Recorder
from octavo.serve.library import document_finder

FILLER = "A committee met again and talked about weather and bread prices.\n\n"
FACT = "The lighthouse of Skerry was painted green by Tobias Quill.\n\n"
BOOK = "# Roads\n\n" + FILLER * 8 + "# Coast\n\n" + FACT + "# Bread\n\n" + FILLER * 8
QUESTION = "Who painted the lighthouse of Skerry?"


@pytest.fixture
def held(served):
    """A server whose uploads wait, as while it computes answers, until the test ends."""
    served.hold()
    yield served
    for file in served.client.get("/v1/files").json()["data"]:
        if file["status"] != "processed":
            served.client.delete(f"/v1/files/{file['id']}")
    served.let_go()


def ask(served, document, question=QUESTION, **more):
    body = {"model": "x", "messages": [{"role": "user", "content": question}], "max_tokens": 6}
    return served.post("/v1/chat/completions", document=document, **{**body, **more})


def in_each_api(served, file_id, stream=False, question=QUESTION):
    """Ask in chat, responses and messages; returns what each tells."""
    chat = {"messages": [{"role": "user", "content": question}], "document": file_id, "sources": True}
    block = {"type": "document", "source": {"type": "file", "file_id": file_id}, "citations": {"enabled": True}}
    blocks = [{"role": "user", "content": [block, {"type": "text", "text": question}]}]
    post = served.stream if stream else served.post
    chat = post("/v1/chat/completions", model="x", max_tokens=16, **chat)
    response = post("/v1/responses", model="x", input=question, document=file_id, sources=True, max_output_tokens=16)
    message = post("/v1/messages", messages=blocks, max_tokens=16)
    return chat, response, message


def text_of(served, document, question=QUESTION):
    """Return the text that a question is answered from."""
    opened = asyncio.run(served.server.finder.open([document], None, question))
    llama = served.server.engine.llama
    return llama.detokenize(opened.index.tokens[opened.index.n_prefix :].tolist()).decode()


@pytest.fixture
def attended(monkeypatch):
    """attended(token): have a token of what is read be attended, and no other; the first is 0."""

    def attend(token):
        def paid(self, index, *steps):
            made = np.zeros((1, len(index.tokens)), np.float32)
            made[0, index.n_prefix + token] = 0.5
            return made

        monkeypatch.setattr(Recorder, "attended", paid)

    return attend


def test_the_passage_of_the_question_answers(held):
    file = held.upload("book.md", BOOK.encode())
    answer = ask(held, file["id"])
    assert answer["document"] == [{"file_id": file["id"], "filename": "book.md"}]
    assert answer["basis"].keys() == {"kind", "passages", "share"}
    assert answer["basis"]["kind"] == "excerpts"
    assert answer["basis"]["passages"] == 1
    assert 0 < answer["basis"]["share"] < 0.5
    assert f"[Coast]\n# Coast\n\n{FACT}" == text_of(held, file["id"])
    assert held.client.get(f"/v1/files/{file['id']}").json()["status"] == "processing"


@pytest.mark.parametrize("named", ["book.md", "b*.md"])
def test_an_upload_has_its_name_at_once(held, named):
    file = held.upload("book.md", BOOK.encode())
    assert ask(held, named)["document"] == [{"file_id": file["id"], "filename": "book.md"}]


def test_sources_stand_in_the_whole_text_in_all_apis(held, attended):
    file = held.upload("book.md", BOOK.encode())
    tokens = held.server.engine.llama.prompt().document("[Coast]\n")
    attended(len(tokens) + 20)
    chat, response, message = in_each_api(held, file["id"], question="Which lighthouse was painted?")
    assert held.client.get(f"/v1/files/{file['id']}/content").text == BOOK
    told = chat["choices"][0]["message"]
    one, *again = [each["file_citation"] for each in told["annotations"]]
    for each in again:  # one annotation for each sentence of the answer
        assert {**each, "start_index": one["start_index"], "end_index": one["end_index"]} == one
    assert (one["file_id"], one["filename"], one["quote"]) == (file["id"], "book.md", FACT.strip())
    assert BOOK[one["start"] : one["stop"]].strip() == FACT.strip()
    assert (one["heading"], one["page"]) == ("Coast", None)
    assert BOOK.splitlines()[one["line"] - 1] == FACT.strip()
    other = response["output"][0]["content"][0]["annotations"][0]
    assert other == {"type": "file_citation", "index": one["end_index"], **one}
    [cited] = message["content"][0]["citations"]
    assert (cited["file_id"], cited["document_title"], cited["document_index"]) == (file["id"], "book.md", 0)
    assert (cited["cited_text"], cited["start_char_index"], cited["end_char_index"]) == (
        one["quote"],
        one["start"],
        one["stop"],
    )


def test_sources_name_the_page(held, attended):
    writer = PdfWriter()
    for line in ("A committee met.", "Tobias Quill painted a lighthouse.", "Bread prices rose."):
        writer.page(*[(72, 760 - 40 * n, f"{line} It was day {n}.") for n in range(3)])
    file = held.upload("days.pdf", writer.content())
    before, _, _ = text_of(held, file["id"]).partition("lighthouse")
    attended(len(held.server.engine.llama.prompt().document(before)) + 1)
    message = ask(held, file["id"], sources=True)["choices"][0]["message"]
    [source] = [each["file_citation"] for each in message["annotations"]]
    assert (source["page"], source["filename"]) == ("2", "days.pdf")
    assert "lighthouse" in source["quote"]


def test_a_name_means_the_newest_document(held):
    held.let_go()
    old = held.read("same.md", b"It was a lighthouse of Lundy. " * 12)
    held.hold()
    new = held.upload("same.md", BOOK.encode())
    assert ask(held, "same.md")["document"] == [{"file_id": new["id"], "filename": "same.md"}]
    assert ask(held, old["id"])["document"] == {"file_id": old["id"], "filename": "same.md"}


def test_the_basis_comes_with_the_end_of_each_answer(held):
    file = held.upload("book.md", BOOK.encode())
    chat, response, message = in_each_api(held, file["id"])
    basis = chat["basis"]
    assert response["basis"] == message["basis"] == basis
    chunks, events, parts = in_each_api(held, file["id"], stream=True)
    assert chunks[-1]["choices"][0]["finish_reason"]
    assert chunks[-1]["basis"] == basis
    assert events[-1]["response"]["basis"] == basis
    [end] = [part for part in parts if part["type"] == "message_delta"]
    assert end["basis"] == basis
    with_usage = held.stream(
        "/v1/chat/completions",
        model="x",
        messages=[{"role": "user", "content": QUESTION}],
        document=file["id"],
        max_tokens=2,
        stream_options={"include_usage": True},
    )
    assert with_usage[-1]["basis"] == basis
    assert "basis" not in held.post("/v1/chat/completions", model="x", messages=[{"role": "user", "content": "Why?"}])


def test_a_document_that_is_read_answers_whole(served):
    text = f"{BOOK}It ends."  # other tests hold the book itself
    file = served.read("read.md", text.encode())
    answer = ask(served, file["id"])
    assert answer["document"] == {"file_id": file["id"], "filename": "read.md"}
    assert answer["basis"] == {"kind": "document", "passages": None, "share": 1.0}
    assert text_of(served, file["id"]) == text
    excerpts = ask(served, file["id"], reads="excerpts")["basis"]
    assert (excerpts["kind"], excerpts["passages"]) == ("excerpts", 1)
    assert 0 < excerpts["share"] <= 1


def test_a_part_is_told_with_its_share(served):
    content = "".join(f"In year {year} the baker sold a loaf.\n\n" for year in range(120)).encode()
    file = served.read("loaves.txt", content)
    assert ask(served, file["id"], "What happened in year 118?")["basis"]["kind"] == "excerpts"
    answer = ask(served, file["id"], "Summarise what happened until year 118.", whole="off")
    basis, n_parts = answer["basis"], int(answer["document"]["filename"].rpartition(" of ")[2])
    assert (basis["kind"], basis["passages"]) == ("part", None)
    assert basis["share"] == pytest.approx(1 / n_parts, rel=0.3)


def test_documents_that_are_read_and_one_that_is_not_give_passages_together(held, attended):
    held.let_go()
    loaves = FILLER * 60 + "# Finch\n\nAda Finch sold 119 loaves.\n"
    parts = held.read("finch.txt", loaves.encode())
    held.hold()
    book = held.upload("book.md", BOOK.encode())
    question = "Who painted Skerry? How many loaves did Ada Finch sell?"
    answer = ask(held, ["book.md", parts["id"]], question)
    assert {each["file_id"] for each in answer["document"]} == {book["id"], parts["id"]}
    assert answer["basis"]["kind"] == "excerpts"
    opened = asyncio.run(held.server.finder.open(["book.md", parts["id"]], "auto", question))
    at, quotes = 0, []
    for excerpt in opened.spans:
        attended(at + (excerpt.stop - excerpt.start) * 2 // 3)
        at += excerpt.stop - excerpt.start
        message = ask(held, ["book.md", parts["id"]], question, sources=True)["choices"][0]["message"]
        [source] = [each["file_citation"] for each in message["annotations"]]
        text = BOOK if source["file_id"] == book["id"] else loaves
        quotes.append(text[source["start"] : source["stop"]].strip())
        assert source["quote"] == quotes[-1]
        assert source["line"] == text.count("\n", 0, source["start"]) + 1
    assert {FACT.strip(), "Ada Finch sold 119 loaves."} <= set(quotes)


def test_what_is_read_of_a_document_counts(tiny_model, tmp_path):
    """Passages follow it, also for a question about all of the document."""

    class Stop(octavo.Progress):
        n_tokens = 0

        def advance(self, amount):
            self.n_tokens += amount
            if self.n_tokens > 1536:
                raise KeyboardInterrupt

    with serving(tiny_model, tmp_path, n_ctx=8192, held=True) as served:
        book = f"{BOOK}{FILLER * 60}".encode()
        file = served.upload("book.md", book)
        path, _ = served.server.documents.look_now().file_of(file["id"])
        assert ask(served, file["id"])["basis"]["kind"] == "excerpts"
        with pytest.raises(KeyboardInterrupt):
            octavo.index_documents([path], served.server.documents._job.settings, progress=Stop())
        shares = {}
        for question in (QUESTION, "Summarise the whole book."):
            answer = ask(served, file["id"], question, sources=True)
            assert answer["document"] == [{"file_id": file["id"], "filename": "book.md"}]
            assert answer["basis"]["kind"] == "part"
            shares[question] = answer["basis"]["share"]
            for annotation in answer["choices"][0]["message"].get("annotations", ()):
                source = annotation["file_citation"]
                assert source["quote"] == " ".join(book.decode()[source["start"] : source["stop"]].split())
        assert all(0.1 < share < 1 for share in shares.values())
        assert ask(served, file["id"], reads="excerpts")["basis"]["kind"] == "excerpts"
        served.let_go()
        assert served.read("book.md", book)["status"] == "processed"
        assert ask(served, file["id"])["basis"]["kind"] == "document"


def test_a_request_for_the_whole_document_waits_until_it_is_read(held):
    file = held.upload("whole.md", f"{BOOK}# End\n\nThat is all.\n".encode())
    assert ask(held, file["id"], reads="excerpts")["basis"]["kind"] == "excerpts"
    assert ask(held, file["id"], reads="document")["basis"]["kind"] == "document"


def test_a_stream_that_waits_for_a_document_tells_how_far_it_is_read(held, monkeypatch):
    monkeypatch.setattr("octavo.serve.library.served_library._LOOK", 0.01)
    file = held.upload("long.md", f"{BOOK}{FILLER * 8}".encode())
    body = {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 2, "document": file["id"]}
    chunks = held.stream("/v1/chat/completions", **body, reads="document", return_progress=True)
    told = [chunk["prompt_progress"] for chunk in chunks if "prompt_progress" in chunk]
    assert any(0 < each["processed"] < each["total"] for each in told)
    assert any(chunk.get("basis", {}).get("kind") == "document" for chunk in chunks)


def test_an_unknown_document_is_refused_beside_one_that_is_being_read(held):
    file = held.upload("book.md", BOOK.encode())
    body = {"model": "x", "messages": [{"role": "user", "content": QUESTION}]}
    status, _ = held.refused("/v1/chat/completions", **body, document=[file["id"], "file-nothing"])
    assert status == 404


def test_what_is_not_text_is_refused_at_once(held):
    file = held.upload("noise.bin", bytes(range(256)) * 40)
    body = {"model": "x", "messages": [{"role": "user", "content": QUESTION}], "document": file["id"]}
    status, error = held.refused("/v1/chat/completions", **body)
    assert (status, "noise.bin could not be read" in error["message"]) == (400, True)


def test_a_process_that_dies_over_a_text_is_reported(held, monkeypatch):
    monkeypatch.setattr(document_finder, "name_of", lambda work: "octavo.library.document_work:Gone")
    file = held.upload("book.md", BOOK.encode())
    body = {"model": "x", "messages": [{"role": "user", "content": QUESTION}], "document": file["id"]}
    status, error = held.refused("/v1/chat/completions", **body)
    assert status == 400
    assert error["message"].startswith("book.md could not be read: reading it ended with code 1: AttributeError")


def test_the_same_passages_are_read_once(held, monkeypatch):
    file, read = held.upload("book.md", BOOK.encode()), []
    as_text = unread.evaluate_as_text
    monkeypatch.setattr(unread, "evaluate_as_text", lambda *told: read.append(told) or as_text(*told))
    first = ask(held, file["id"], attention="dense", temperature=0)
    again = ask(held, file["id"], attention="dense", temperature=0)
    assert len(read) == 1
    assert again["choices"][0]["message"] == first["choices"][0]["message"]
    ask(held, file["id"], "Which bread prices?")
    assert len(read) == 2


def test_first_questions_at_once_keep_the_text_once(held):
    file = held.upload("book.md", BOOK.encode())
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda number: ask(held, file["id"], f"{QUESTION} {number}"), range(4)))
    assert [answer["basis"]["kind"] for answer in answers] == ["excerpts"] * 4


def is_kept(served, file_id):
    """Return whether the text of an upload is kept."""
    with closing(sqlite3.connect(served.server.documents._library.folder / TEXTS)) as texts:
        return any(file_id in source for (source,) in texts.execute("SELECT source FROM texts"))


def test_a_removed_upload_leaves_no_text(held):
    file = held.upload("book.md", BOOK.encode())
    ask(held, file["id"])
    assert is_kept(held, file["id"])
    assert held.client.delete(f"/v1/files/{file['id']}").json()["deleted"]
    assert not is_kept(held, file["id"])
    body = {"model": "x", "messages": [{"role": "user", "content": QUESTION}], "document": file["id"]}
    assert held.refused("/v1/chat/completions", **body)[0] == 404


def test_an_upload_that_the_model_cannot_read_leaves_no_text(held):
    content = b"word " * 40_000
    file = held.upload("endless.txt", content)
    assert ask(held, file["id"], "Which word?")["basis"]["kind"] == "excerpts"
    assert is_kept(held, file["id"])
    held.let_go()
    assert held.read("endless.txt", content)["status"] == "error"
    late = time.monotonic() + 30
    while is_kept(held, file["id"]) and time.monotonic() < late:
        time.sleep(0.01)
    assert not is_kept(held, file["id"])


def test_streams_go_on_while_passages_are_read(held, monkeypatch):
    """A batch of passages at a time, and a token of each of two answers between two of them."""
    file = held.upload(
        "long.md", (BOOK + "".join(f"Skerry, line {n}: a green lighthouse.\n\n" for n in range(80))).encode()
    )
    engine, turns = held.server.engine, []
    read, answer, llama = engine.llama.prefill, engine._answer, engine.llama
    monkeypatch.setattr(llama, "prefill", lambda tokens: turns.append(0) or read(tokens))
    monkeypatch.setattr(engine, "_answer", lambda answering: turns.append(len(answering)) or answer(answering))
    never = {str(token): -100 for token in range(250, llama.n_vocab())}
    with ThreadPoolExecutor(2) as pool:
        bodies = [{"prompt": [11 + n, 12, 13], "max_tokens": 900, "logit_bias": never} for n in range(2)]
        running = [pool.submit(held.post, "/v1/completions", model="x", **body) for body in bodies]
        while turns.count(2) < 5:
            assert not any(each.done() for each in running)
            time.sleep(0.005)
        assert ask(held, file["id"])["basis"]["kind"] == "excerpts"
        between = turns[turns.index(2) :]
        assert all(each.result()["usage"]["completion_tokens"] == 900 for each in running)
    batches = [number for number, turn in enumerate(between) if turn == 0]
    assert len(batches) > 2
    assert all(2 in between[one:other] for one, other in itertools.pairwise(batches))


def test_passages_are_read_no_further_once_the_client_has_gone(held, monkeypatch):
    content = BOOK + "".join(f"Skerry, line {n}: a green lighthouse.\n\n" for n in range(80))
    file, engine, read = held.upload("long.md", content.encode()), held.server.engine, []
    as_it_is, llama = engine.llama.prefill, engine.llama
    held.client.get(f"/v1/files/{file['id']}/content")  # now the text is kept, and only reading it takes time

    def read_slowly(tokens):
        read.append(len(tokens))
        time.sleep(0.1)
        as_it_is(tokens)

    with monkeypatch.context() as patched:
        patched.setattr(type(engine), "room", property(lambda engine: 10))
        patched.setattr(llama, "prefill", read_slowly)
        body = {"model": "x", "messages": [{"role": "user", "content": QUESTION}], "document": file["id"]}
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{held.url}/v1/chat/completions", json=body, timeout=1)
        held.wait_until_idle()
        late = time.monotonic() + 30
        while engine._tasks and time.monotonic() < late:
            time.sleep(0.01)
    assert not engine._tasks
    assert 0 < sum(read) < 300
    assert ask(held, file["id"])["basis"]["kind"] == "excerpts"  # the model is as it was


def test_it_is_asked_and_read_after_a_restart(tiny_model, tmp_path):
    with serving(tiny_model, tmp_path, held=True) as served:
        file = served.upload("book.md", BOOK.encode())
        assert ask(served, file["id"])["basis"]["kind"] == "excerpts"
    with serving(tiny_model, tmp_path, held=True) as served:
        assert ask(served, file["id"])["basis"]["kind"] == "excerpts"
        served.let_go()
        assert served.read("book.md", BOOK.encode())["status"] == "processed"
        assert ask(served, file["id"])["basis"]["kind"] == "document"


def test_a_model_finds_the_answer_in_each_api(served_real):
    served_real.hold()
    file = served_real.upload("skerry.md", (FILLER * 300 + FACT + FILLER * 300).encode())
    chat, response, message = in_each_api(served_real, file["id"])
    sources = [
        chat["choices"][0]["message"]["annotations"][0]["file_citation"]["quote"],
        response["output"][0]["content"][0]["annotations"][0]["quote"],
        message["content"][0]["citations"][0]["cited_text"],
    ]
    assert served_real.client.delete(f"/v1/files/{file['id']}").json()["deleted"]
    served_real.let_go()
    assert "Quill" in chat["choices"][0]["message"]["content"]
    assert sources == [FACT.strip()] * 3


def test_how_far_passages_are_read_is_told_before_the_answer(held, monkeypatch):
    book, question = (text.replace("Skerry", "Fastnet") for text in (BOOK, QUESTION))  # no other test reads these
    file = held.upload("book.md", book.encode())
    monkeypatch.setattr(type(held.server.engine), "room", property(lambda engine: 64))
    asked = {"messages": [{"role": "user", "content": question}], "document": file["id"], "max_tokens": 4}
    chunks = held.stream("/v1/chat/completions", **asked, return_progress=True)
    told = [chunk["prompt_progress"] for chunk in chunks if "prompt_progress" in chunk]
    passages = [each for each in told if each["total"] == told[0]["total"]]
    assert [each["processed"] for each in passages] == [*range(64, passages[0]["total"], 64), passages[0]["total"]]
    assert told[-1]["total"] > passages[0]["total"]  # then the question is read
    first = next(chunk for chunk in chunks if chunk["choices"] and "content" in chunk["choices"][0]["delta"])
    assert first["document"] == [{"file_id": file["id"], "filename": "book.md"}]
    again = held.stream("/v1/chat/completions", **asked, return_progress=True)  # the passages are in memory
    assert passages[0] not in [chunk.get("prompt_progress") for chunk in again]
    status, error = held.refused(
        "/v1/chat/completions", **{**asked, "document": "none"}, stream=True, return_progress=True
    )
    assert (status, error["code"]) == (404, "not_found")
