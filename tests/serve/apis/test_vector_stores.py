"""OpenAI's vector stores, and answers by `file_search`, by its own client and by plain HTTP."""

import json
import random
import shutil
import time

import openai
import pytest
from helpers.changed_bodies import changed
from helpers.served import serving
from helpers.talking_model import ANSWER

import octavo
from octavo.serve.apis.store_files import fits
from octavo.serve.request_error import RequestError

STORES, RESPONSES = "/v1/vector_stores", "/v1/responses"
SHIPS = "The Petrel passed the lighthouse at noon. " * 30
BREAD = "Bakers knead dough before dawn. " * 30


@pytest.fixture(scope="module")
def client(talking):
    with openai.OpenAI(base_url=f"{talking.url}/v1", api_key="none", max_retries=0) as made:
        yield made


@pytest.fixture(scope="module")
def files(talking):
    """Ids of two documents that are read."""
    texts = {"store_ships.txt": SHIPS, "store_bread.txt": BREAD}
    return [talking.read(name, text.encode())["id"] for name, text in texts.items()]


@pytest.fixture
def store(client, files):
    made = client.vector_stores.create(name="Notes", file_ids=files, metadata={"of": "tests"})
    yield made
    client.vector_stores.delete(made.id)


def tool(*stores, **more):
    return {"type": "file_search", "vector_store_ids": [store.id for store in stores], **more}


def test_a_store_is_made_described_changed_and_deleted(client, files):
    made = client.vector_stores.create(name="Notes", file_ids=files, metadata={"of": "tests"}, description="Two.")
    assert (made.object, made.status, made.name, made.metadata) == (
        "vector_store",
        "completed",
        "Notes",
        {"of": "tests"},
    )
    counts = made.file_counts
    assert (counts.completed, counts.in_progress, counts.failed, counts.cancelled, counts.total) == (2, 0, 0, 0, 2)
    assert made.usage_bytes == sum(client.files.retrieve(file).model_extra["index_bytes"] for file in files)
    changed = client.vector_stores.update(made.id, name="Others")
    assert (changed.name, changed.metadata, changed.file_counts.total) == ("Others", {"of": "tests"}, 2)
    assert client.vector_stores.retrieve(made.id) == changed
    assert client.vector_stores.delete(made.id).deleted
    assert client.files.retrieve(files[0]).id == files[0]
    for gone in (client.vector_stores.retrieve, client.vector_stores.delete, client.vector_stores.files.list):
        with pytest.raises(openai.NotFoundError, match=f"There is no vector store {made.id}"):
            gone(made.id)


def test_stores_are_listed_in_pages(client):
    made = [client.vector_stores.create(name=str(number)).id for number in range(3)]
    listed = [each.id for each in client.vector_stores.list(limit=2)]
    assert set(made) <= set(listed)
    assert len(listed) == len(set(listed))
    for name in made:
        client.vector_stores.delete(name)


def test_files_are_added_listed_changed_and_removed(client, files):
    store = client.vector_stores.create()
    added = client.vector_stores.files.create_and_poll(files[0], vector_store_id=store.id, attributes={"year": 1850})
    assert (added.id, added.status, added.attributes, added.last_error) == (files[0], "completed", {"year": 1850}, None)
    client.vector_stores.files.create(store.id, file_id=files[1])
    client.vector_stores.files.create(store.id, file_id=files[1])
    assert [each.id for each in client.vector_stores.files.list(store.id, limit=1, order="asc")] == files
    assert list(client.vector_stores.files.list(store.id, filter="failed")) == []
    changed = client.vector_stores.files.update(files[1], vector_store_id=store.id, attributes={"sea": True})
    assert client.vector_stores.files.retrieve(files[1], vector_store_id=store.id) == changed
    text = client.vector_stores.files.content(files[1], vector_store_id=store.id)
    assert [part.text for part in text] == [BREAD.strip()] or [part.text for part in text] == [BREAD]
    assert client.vector_stores.files.delete(files[1], vector_store_id=store.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.vector_stores.files.retrieve(files[1], vector_store_id=store.id)
    assert client.files.retrieve(files[1]).id == files[1]
    with pytest.raises(openai.NotFoundError, match="upload it"):
        client.vector_stores.files.create(store.id, file_id="file-none")


def test_a_batch_adds_files_together(client, files):
    store = client.vector_stores.create()
    batch = client.vector_stores.file_batches.create_and_poll(store.id, file_ids=files)
    assert (batch.status, batch.file_counts.completed, batch.vector_store_id) == ("completed", 2, store.id)
    listed = client.vector_stores.file_batches.list_files(batch.id, vector_store_id=store.id, order="asc")
    assert [each.id for each in listed] == files
    ended = client.vector_stores.file_batches.cancel(batch.id, vector_store_id=store.id)
    assert (ended.status, ended.file_counts.total) == ("completed", 2)
    with pytest.raises(openai.NotFoundError):
        client.vector_stores.file_batches.create(store.id, file_ids=[files[0], "file-none"])
    with pytest.raises(openai.BadRequestError):
        client.vector_stores.file_batches.create(store.id, file_ids=[])


def test_a_batch_that_is_cancelled_leaves_out_what_is_not_read(talking, client, files):
    store = client.vector_stores.create()
    talking.hold()
    try:
        waiting = talking.upload("store_waiting.txt", b"The tide turns at four. " * 40)["id"]
        batch = client.vector_stores.file_batches.create(store.id, file_ids=[files[0], waiting])
        assert (batch.status, batch.file_counts.in_progress) == ("in_progress", 1)
        ended = client.vector_stores.file_batches.cancel(batch.id, vector_store_id=store.id)
    finally:
        talking.let_go()
    assert (ended.status, ended.file_counts.cancelled, ended.file_counts.completed) == ("cancelled", 1, 1)
    assert [each.id for each in client.vector_stores.files.list(store.id)] == [files[0]]


def test_a_file_that_is_deleted_leaves_its_stores(talking, client):
    upload = talking.read("store_leaving.txt", b"Gulls follow the plough. " * 30)
    store = client.vector_stores.create(file_ids=[upload["id"]])
    client.files.delete(upload["id"])
    assert client.vector_stores.retrieve(store.id).file_counts.total == 0
    talking.read("store_leaving.txt", b"Gulls follow the plough. " * 30)
    assert client.vector_stores.retrieve(store.id).file_counts.total == 0


def test_a_file_leaves_its_stores_by_the_name_of_a_copy(talking, client):
    text = b"Terns dive for sprats. " * 30
    upload = talking.read("store_terns.txt", text)
    copy = talking.upload("store_terns_marked.txt", b"\xef\xbb\xbf" + text)["id"]
    while talking.client.get(f"/v1/files/{copy}").json()["id"] != upload["id"]:  # until it is known to be a copy
        time.sleep(0.1)
    store = client.vector_stores.create(file_ids=[upload["id"]])
    client.files.delete(copy)
    talking.read("store_terns.txt", text)
    assert client.vector_stores.retrieve(store.id).file_counts.total == 0


def test_a_damaged_store_does_not_hide_the_others(client, talking, store):
    damaged = client.vector_stores.create(name="Damaged")
    [file] = talking.server.library.folder.rglob(f"{damaged.id}.json")
    file.write_text('{"files": 3}')
    assert store.id in [each.id for each in client.vector_stores.list()]
    assert damaged.id not in [each.id for each in client.vector_stores.list()]
    with pytest.raises(openai.InternalServerError, match="delete it"):
        client.vector_stores.retrieve(damaged.id)
    assert client.vector_stores.delete(damaged.id).deleted


def test_a_passage_of_a_table_comes_below_the_names_of_its_columns(client, talking):
    rows = "".join(f"KX-{i}-A,{i % 50}.50\n" for i in range(1000, 1100))
    file = client.files.create(file=("store_stock.csv", f"part,price\n{rows}".encode()), purpose="assistants")
    store = client.vector_stores.create(name="Stock", file_ids=[file.id])
    [found] = client.vector_stores.search(store.id, query="KX-1083-A", max_num_results=1)
    assert found.content[0].text.startswith("part,price\nKX-10")
    client.files.delete(file.id)


def test_a_search_finds_passages(client, store, files):
    found = list(client.vector_stores.search(store.id, query="When do bakers knead dough?"))
    assert {each.file_id for each in found} == {files[1]}
    assert found[0].filename == "store_bread.txt"
    assert "Bakers knead dough" in found[0].content[0].text
    scores = [each.score for each in found]
    assert scores == sorted(scores, reverse=True)
    assert all(0 < score < 1 for score in scores)
    both = list(client.vector_stores.search(store.id, query=["bakers", "lighthouse"], max_num_results=50))
    assert {each.file_id for each in both} == set(files)
    assert len(list(client.vector_stores.search(store.id, query=["bakers", "lighthouse"], max_num_results=1))) == 1
    least = {"score_threshold": 1.0}
    assert list(client.vector_stores.search(store.id, query="bakers", ranking_options=least)) == []
    with pytest.raises(openai.BadRequestError):
        client.vector_stores.search(store.id, query="bakers", max_num_results=51)


def test_a_search_keeps_to_filters(client, files):
    store = client.vector_stores.create()
    for file, year in zip(files, (1850, 1900), strict=True):
        client.vector_stores.files.create(store.id, file_id=file, attributes={"year": year})
    newer = {"type": "gt", "key": "year", "value": 1880}
    found = client.vector_stores.search(store.id, query="bakers lighthouse", filters=newer)
    assert {(each.file_id, each.attributes["year"]) for each in found} == {(files[1], 1900)}
    with pytest.raises(openai.BadRequestError, match="filters"):
        client.vector_stores.search(store.id, query="bakers", filters={"type": "like", "key": "year", "value": "x"})


def test_an_answer_comes_from_a_store(client, store, files):
    response = client.responses.create(model="any", input="When do bakers knead dough?", tools=[tool(store)])
    call, message = response.output
    assert (call.type, call.status, call.queries) == ("file_search_call", "completed", ["When do bakers knead dough?"])
    assert call.results is None
    assert (message.type, response.output_text) == ("message", ANSWER)
    assert response.model_extra["basis"]["kind"] in ("excerpts", "document")
    plain = client.responses.create(model="any", input="When do bakers knead dough?")
    assert response.usage.input_tokens > plain.usage.input_tokens


def test_what_was_found_comes_along_if_asked_for(client, store, files):
    more = {"include": ["file_search_call.results"], "tools": [tool(store, max_num_results=2)]}
    response = client.responses.create(model="any", input="When do bakers knead dough?", **more)
    results = response.output[0].results
    assert 1 <= len(results) <= 2
    assert (results[0].file_id, results[0].filename) == (files[1], "store_bread.txt")
    assert "Bakers knead" in results[0].text
    assert 0 < results[0].score < 1


def test_citations_name_files(talking, client, store, files, monkeypatch):
    import numpy as np

    from octavo.runtime.query_recorder import Recorder

    def paid(self, index, *steps):
        attention = np.zeros((1, len(index.tokens)), np.float32)
        attention[0, -40] = 0.5
        return attention

    monkeypatch.setattr(Recorder, "attended", paid)
    response = client.responses.create(model="any", input="When do bakers knead dough?", tools=[tool(store)])
    [citation] = response.output[1].content[0].annotations
    assert (citation.type, citation.index) == ("file_citation", len(ANSWER))
    assert (citation.file_id, citation.filename) in zip(files, ("store_ships.txt", "store_bread.txt"), strict=True)


def test_a_stream_says_what_is_searched(client, talking, store):
    body = {"input": "When do bakers knead dough?", "tools": [tool(store)], "include": ["file_search_call.results"]}
    events = talking.stream(RESPONSES, **body)
    kinds = [event["type"].removeprefix("response.") for event in events]
    steps = ["in_progress", "searching", "completed"]
    assert kinds[:7] == [
        "created",
        "in_progress",
        "output_item.added",
        *(f"file_search_call.{step}" for step in steps),
        "output_item.done",
    ]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[6]["item"] == events[-1]["response"]["output"][0]
    assert events[7]["output_index"] == 1
    with client.responses.stream(model="any", input=body["input"], tools=[tool(store)]) as stream:
        final = stream.get_final_response()
    assert [item.type for item in final.output] == ["file_search_call", "message"]


def test_a_filter_chooses_the_files_of_an_answer(talking, client, files):
    store = client.vector_stores.create()
    for file, place in zip(files, ("sea", "town"), strict=True):
        client.vector_stores.files.create(store.id, file_id=file, attributes={"place": place})
    of_sea = {"type": "eq", "key": "place", "value": "sea"}
    body = {"input": "What?", "include": ["file_search_call.results"]}
    answer = talking.post(RESPONSES, **body, tools=[tool(store, filters=of_sea)])
    assert answer["basis"]["kind"] == "document"
    nothing = {"type": "eq", "key": "place", "value": "moon"}
    status, error = talking.refused(RESPONSES, **body, tools=[tool(store, filters=nothing)])
    why = "There is nothing to search. The vector stores have no file, or none that fits the filters."
    assert (status, error["message"]) == (400, why)
    assert talking.post(f"{STORES}/{store.id}/search", query="lighthouse", filters=nothing)["data"] == []


def test_a_search_without_a_file_is_refused(talking, client, files):
    empty = client.vector_stores.create()
    asked = {"input": "What?", "tools": [tool(empty)]}
    for stream in (False, True):
        assert talking.refused(RESPONSES, **asked, stream=stream)[0] == 400
    assert talking.refused(f"{RESPONSES}/input_tokens", **asked)[0] == 400
    assert "basis" not in talking.post(RESPONSES, **asked, tool_choice="none")
    full = client.vector_stores.create(file_ids=files)
    assert "basis" in talking.post(RESPONSES, input="What?", tools=[tool(empty, full)])


@pytest.mark.parametrize("how", ["indexed again", "gone", "unreadable"])
def test_a_file_that_a_store_lost_is_named(talking, client, files, tmp_path, how):
    """A store has the id of a text: a file that changes has another id."""
    path = tmp_path / "lost.txt"
    if how == "unreadable":
        lost = talking.read("noise.pdf", b"%PDF-1.4 nothing")["id"]
    else:
        path.write_text(f"The tide of {how} turns at four. " * 20)
        library = talking.server.library
        settings = octavo.ModelSettings(library.model_path, 2048, 2, index_dir=library.folder.parent)
        [folder] = octavo.index_documents([path], settings)
        [lost] = [file["id"] for file in known(talking) if file["filename"] == "lost.txt"]
    alone = client.vector_stores.create(file_ids=[lost])
    mixed = client.vector_stores.create(file_ids=[lost, files[1]])
    why = "noise.pdf is not searched: "
    if how == "indexed again":
        path.write_text("Nothing turns at four. " * 20)
        octavo.index_documents([path], settings)
        again = "The file has changed, and was indexed again: add its new id to the vector store."
        why = f"lost.txt is not searched: {again}"
    elif how == "gone":
        shutil.rmtree(folder)
        why = f"{lost} is not searched: The file is not there any more: add it to the vector store again."
    status, error = talking.refused(RESPONSES, input="When?", tools=[tool(alone)])
    assert (status, error["message"].startswith(f"There is nothing to search. {why}")) == (400, True)
    answer = talking.post(RESPONSES, input="When do bakers knead?", tools=[tool(mixed)])
    assert why in " ".join(answer["notices"])
    found = talking.post(f"{STORES}/{mixed.id}/search", query="bakers knead")
    assert {each["file_id"] for each in found["data"]} == {files[1]}
    assert found["notices"][0].startswith(why)
    [failed] = client.vector_stores.files.list(mixed.id, filter="failed")
    assert (failed.id, failed.last_error.message in error["message"]) == (lost, True)
    assert client.vector_stores.files.delete(lost, vector_store_id=mixed.id).deleted
    again = talking.post(RESPONSES, input="When do bakers knead?", tools=[tool(mixed)])
    assert why not in " ".join(again.get("notices", ()))
    for file in known(talking):
        if file["filename"] in ("lost.txt", "noise.pdf"):
            talking.client.delete(f"/v1/files/{file['id']}")


def known(served):
    return served.client.get("/v1/files").json()["data"]


def test_functions_and_choices_stay_beside_a_search(talking, client, store):
    function = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {"city": {}}}}
    body = {"input": "What?", "tools": [tool(store), function]}
    response = talking.client.post(RESPONSES, json={**body, "tool_choice": "required"})
    assert [item["type"] for item in response.json()["output"]] == ["file_search_call", "function_call"]
    assert "x-octavo-ignored" not in response.headers
    forced = talking.post(RESPONSES, **body, tool_choice={"type": "file_search"})
    assert [item["type"] for item in forced["output"]] == ["file_search_call", "message"]
    without = talking.post(RESPONSES, **body, tool_choice="none")
    assert ([item["type"] for item in without["output"]], "basis" in without) == (["message"], False)


def test_a_turn_after_a_search_searches_only_if_asked_to(talking, store):
    first = talking.post(RESPONSES, input="Bakers?", tools=[tool(store)])
    second = talking.client.post(RESPONSES, json={"input": "And now?", "previous_response_id": first["id"]})
    assert ("basis" in second.json(), "x-octavo-ignored" in second.headers) == (False, False)
    again = talking.post(RESPONSES, input="And now?", previous_response_id=first["id"], tools=[tool(store)])
    assert "basis" in again


@pytest.mark.parametrize(
    ("wrong", "status"),
    [
        ({"vector_store_ids": ["vs_none"]}, 404),
        ({"vector_store_ids": ["../vector_stores/vs_0"]}, 404),
        ({"vector_store_ids": []}, 400),
        ({}, 400),
        ({"vector_store_ids": ["vs_none"], "max_num_results": 0}, 400),
    ],
)
def test_a_search_that_cannot_be_is_refused(talking, wrong, status):
    assert talking.refused(RESPONSES, input="What?", tools=[{"type": "file_search", **wrong}])[0] == status


def test_stores_outlive_the_server(tiny_model, tmp_path):
    with serving(tiny_model, tmp_path) as first:
        file = first.read("kept.txt", SHIPS.encode())
        made = first.post(STORES, name="Kept", file_ids=[file["id"]])
    with serving(tiny_model, tmp_path) as second:
        assert second.client.get(f"{STORES}/{made['id']}").json() == made
        found = second.post(f"{STORES}/{made['id']}/search", query="lighthouse")["data"]
        assert found[0]["file_id"] == file["id"]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (None, True),
        ({"type": "eq", "key": "n", "value": 3}, True),
        ({"type": "eq", "key": "n", "value": 3.0}, True),
        ({"type": "eq", "key": "n", "value": "3"}, False),
        ({"type": "eq", "key": "yes", "value": 1}, False),
        ({"type": "eq", "key": "other", "value": 3}, False),
        ({"type": "ne", "key": "other", "value": 3}, True),
        ({"type": "in", "key": "word", "value": ["a", "sea"]}, True),
        ({"type": "nin", "key": "word", "value": ["a", "sea"]}, False),
        ({"type": "gte", "key": "n", "value": 3}, True),
        ({"type": "lt", "key": "n", "value": 3}, False),
        ({"type": "lt", "key": "word", "value": "tea"}, True),
        ({"type": "gt", "key": "word", "value": 3}, False),
        ({"type": "gt", "key": "other", "value": 3}, False),
        (
            {
                "type": "and",
                "filters": [{"type": "gt", "key": "n", "value": 1}, {"type": "lt", "key": "n", "value": 9}],
            },
            True,
        ),
        (
            {"type": "or", "filters": [{"type": "gt", "key": "n", "value": 5}, {"type": "eq", "key": "n", "value": 9}]},
            False,
        ),
    ],
)
def test_filters_compare_attributes(filters, expected):
    assert fits({"n": 3, "yes": True, "word": "sea"}, filters) is expected


def nested(depth):
    inner = {"type": "eq", "key": "n", "value": 3}
    for _ in range(depth):
        inner = {"type": "and", "filters": [inner]}
    return inner


def test_changed_searches_harm_nobody(talking, store, request):
    body = {
        "query": ["bakers", "ships"],
        "filters": {"type": "or", "filters": [{"type": "in", "key": "n", "value": [1]}]},
        "max_num_results": 3,
        "ranking_options": {"ranker": "auto", "score_threshold": 0.1},
    }
    tools = [{"type": "file_search", "vector_store_ids": [store.id], **body}]
    rng = random.Random(request.config.getoption("--case-seed"))
    for path, sent in ((f"{STORES}/{store.id}/search", body), (RESPONSES, {"input": "What?", "tools": tools})):
        for _ in range(60):
            content = json.dumps(changed(rng, {**sent, "max_output_tokens": 1}))
            answer = talking.client.post(path, content=content, headers={"content-type": "application/json"})
            assert answer.status_code < 500, (path, content[:300], answer.text[:300])


@pytest.mark.parametrize(
    "filters",
    [
        {},
        {"type": "like", "key": "n", "value": 3},
        {"type": ["eq"], "key": "n", "value": 3},
        {"type": "eq", "key": 3, "value": 3},
        {"type": "in", "key": "n", "value": 3},
        {"type": "eq", "key": "n", "value": [3]},
        {"type": "and", "filters": []},
        {"type": "or", "filters": ["n"]},
        nested(400),
    ],
)
def test_other_filters_are_refused(filters):
    with pytest.raises(RequestError, match="filters"):
        fits({"n": 3}, filters)
    assert fits({"n": 3}, nested(32))
