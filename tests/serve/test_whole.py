"""Questions about a whole through the server: all documents are asked, beside other requests, and nothing is lost."""

import json
import threading

import pytest
from helpers.served import serving

from octavo.ask.context import context_chooser
from octavo.ask.context.whole import ask_all
from octavo.ask.context.whole.drawn_together import drawn_together
from octavo.ask.context.whole.finding import FOUND

LIST = "List every ship and its captain."
SUMMARY = "Summarise the notes."
CAPTAINS = {"Petrel": "Ruth Ollery", "Heron": "Amos Carrow", "Tern": "Edith Garrick"}
FACTS = [f"The captain of the ship {ship} was {captain}." for ship, captain in CAPTAINS.items()]
CHAT = "/v1/chat/completions"

#: The model has a token for each letter, and words are found by tokens: so this has none of those in question.
FILLER = "1 2 3 4 5 6 7 8 9 0.\n\n" * 3


@pytest.fixture(scope="module")
def notes(tiny_model, tmp_path_factory):
    """A server with notes of ships, whose documents it asks one after another."""
    folder = tmp_path_factory.mktemp("notes")
    with serving(tiny_model, folder, n_ctx=4096, n_parallel=2) as served:
        for number, fact in enumerate(FACTS):
            served.read(f"note-{number}.txt", f"{FILLER * 6}{fact}\n\n{FILLER * 6}".encode())
        served.read("other.txt", (FILLER * 8).encode())
        served.folder = folder
        yield served


@pytest.fixture(autouse=True)
def nothing_known(notes):
    for path in notes.folder.rglob(FOUND):
        path.unlink()


@pytest.fixture
def groups(monkeypatch):
    """The number of groups of answers that were drawn; the second one waits, in steps, while `waits` holds."""
    drawn = {"n": 0, "waits": lambda: False, "halted": threading.Event()}

    def counted(*arguments):
        try:
            while drawn["n"] == 1 and drawn["waits"]():
                yield None
        except GeneratorExit:
            drawn["halted"].set()
            raise
        result = yield from drawn_together(*arguments)
        drawn["n"] += 1
        return result

    monkeypatch.setattr(ask_all, "drawn_together", counted)
    return drawn


def body(question, **more):
    return {"document": "*.txt", "max_tokens": 600, "messages": [{"role": "user", "content": question}], **more}


def text_of(answer):
    return answer["choices"][0]["message"]["content"]


def test_a_list_comes_with_what_each_document_found(notes):
    answer = notes.post(CHAT, **body(LIST, sources=True))
    text = text_of(answer)
    assert text.startswith("3 found:\n\n1. “")
    assert answer["basis"] == {"kind": "findings", "passages": None, "share": 1.0}
    found = {each["document"]: each for each in answer["findings"]}
    assert found.keys() == {f"note-{number}.txt" for number in range(3)}
    files = {file["filename"]: file["id"] for file in notes.client.get("/v1/files").json()["data"]}
    for number, fact in enumerate(FACTS):
        each = found[f"note-{number}.txt"]
        assert (each["answer"], each["read"], each["file_id"]) == (fact, True, files[f"note-{number}.txt"])
        assert [source["quote"] for source in each["sources"]] == [fact]
    cited = [each["file_citation"] for each in answer["choices"][0]["message"]["annotations"]]
    assert [(each["filename"], each["quote"]) for each in cited] == [
        (f"note-{number}.txt", fact) for number, fact in enumerate(FACTS)
    ]
    for number, (each, fact) in enumerate(zip(cited, FACTS, strict=True), 1):
        assert text[each["start_index"] : each["end_index"]] == f"{number}. “{fact}”"


def test_all_apis_ask_all(notes):
    listed = text_of(notes.post(CHAT, **body(LIST)))
    response = notes.post("/v1/responses", document="*.txt", input=LIST)
    message = notes.post("/v1/messages", **body(LIST, sources=True))
    ollama = notes.post("/api/chat", **body(LIST, stream=False))
    assert response["output"][0]["content"][0]["text"] == listed
    assert "".join(block["text"] for block in message["content"]) == listed
    assert [each["cited_text"] for block in message["content"] for each in block["citations"]] == FACTS
    assert ollama["message"]["content"] == listed
    for answer in (response, message):
        assert [each["document"] for each in answer["findings"]] == [f"note-{number}.txt" for number in range(3)]


@pytest.mark.parametrize(("question", "n_found"), [(LIST, 3), (SUMMARY, 4)])
def test_a_stream_reports_what_each_document_found_beside_the_text(notes, question, n_found):
    events = notes.stream(CHAT, **body(question, return_progress=True, sources=True))
    reports = [event["whole_progress"] for event in events if "whole_progress" in event]
    done = [report["processed"] for report in reports]
    assert done == sorted(done)
    assert done[-1] == reports[-1]["total"] > 1
    assert any("most_seconds" in report for report in reports)
    found = [each for report in reports for each in report["findings"]]
    deltas = [choice["delta"] for event in events for choice in event["choices"]]
    text = "".join(delta.get("content", "") for delta in deltas)
    assert not any("reasoning_content" in delta for delta in deltas)
    assert {each["document"] for each in found} == {each["document"] for each in events[-1]["findings"]}
    assert len(events[-1]["findings"]) == n_found
    again = notes.post(CHAT, **body(question))
    assert (text_of(again), again["findings"]) == (text, events[-1]["findings"])


@pytest.mark.parametrize("asks", [True, False])
@pytest.mark.parametrize("path", ["/v1/messages", "/v1/responses", "/api/chat"])
def test_streams_of_all_apis_begin_before_all_have_answered(notes, path, asks):
    """Progress is where clients ignore it: in pings, responses in progress, and parts without text."""
    asked = body(LIST, return_progress=asks)
    if path == "/v1/responses":
        asked = {"document": "*.txt", "input": LIST, "return_progress": asks}
    with notes.client.stream("POST", path, json={**asked, "stream": True}) as response:
        assert response.status_code == 200
        lines = [line.removeprefix("data: ") for line in response.iter_lines()]
    events = [json.loads(line) for line in lines if line.startswith("{")]
    reports = [event["whole_progress"] for event in events if "whole_progress" in event]
    assert bool(reports) == asks
    carriers = [event for event in events if "whole_progress" in event]
    assert {event.get("type") for event in carriers} <= {"ping", "response.in_progress", None}
    assert not any(event["message"]["content"] for event in carriers if "message" in event)
    if asks:
        assert reports[-1]["processed"] == reports[-1]["total"] > 1
        assert len([each for report in reports for each in report["findings"]]) == 3
    last = events[-1]["response"] if path == "/v1/responses" else events[-2 if path == "/v1/messages" else -1]
    assert len(last["findings"]) == 3


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/responses", "/api/chat"])
def test_a_stream_over_an_unknown_document_is_refused_with_a_status(notes, path):
    asked = {**body(LIST), "input": LIST, "document": "gone.txt", "stream": True}
    assert notes.client.post(path, json=asked).status_code == 404


def test_marks_come_with_their_sentences(notes):
    events = notes.stream(CHAT, **body(LIST, sources=True))
    text, new = "", []
    for event in events:
        for choice in event["choices"]:
            text += choice["delta"].get("content", "")
        for each in event.get("new_annotations", ()):
            assert each["file_citation"]["end_index"] == len(text)
            new.append(each)
    [last] = [
        choice["delta"]["annotations"]
        for event in events
        for choice in event["choices"]
        if "annotations" in choice["delta"]
    ]
    assert new == last


def test_a_list_keeps_limits_and_stop_texts(notes):
    listed = text_of(notes.post(CHAT, **body(LIST)))
    stopped = notes.post(CHAT, **body(LIST, stop=["Amos"], sources=True))["choices"][0]
    assert stopped["message"]["content"] == listed[: listed.index("Amos")]
    assert [each["file_citation"]["quote"] for each in stopped["message"]["annotations"]] == FACTS[:1]
    cut = notes.post(CHAT, **body(LIST, max_tokens=5))
    assert listed.startswith(text_of(cut))
    assert (cut["choices"][0]["finish_reason"], cut["usage"]["completion_tokens"]) == ("length", 5)


@pytest.mark.parametrize(
    ("whole", "question", "kind"),
    [
        ("auto", "Who was the captain of the ship Tern?", "excerpts"),
        ("on", "Who?", "findings"),
        ("off", LIST, "document"),
    ],
)
def test_a_request_decides_whether_all_are_asked(notes, whole, question, kind):
    assert notes.post(CHAT, **body(question, whole=whole, max_tokens=4))["basis"]["kind"] == kind


def test_an_unknown_choice_is_refused(notes):
    status, error = notes.refused(CHAT, **body(LIST, whole="always"))
    assert (status, error["param"]) == (400, "whole")


def test_the_form_of_an_answer_is_kept(notes):
    """A list that code writes is none of JSON, and no call."""
    answer = notes.post(CHAT, **body(LIST, max_tokens=20, response_format={"type": "json_object"}))
    assert answer["basis"]["kind"] == "findings"
    assert text_of(answer).lstrip().startswith("{")


def test_a_count_of_tokens_asks_no_document(notes, groups):
    notes.post(f"{CHAT}/input_tokens", **body(LIST))
    assert groups["n"] == 0


def test_what_takes_too_long_is_left_to_the_user_with_a_notice(notes, monkeypatch):
    monkeypatch.setattr(context_chooser, "_MOST_SECONDS", 0.0)
    answer = notes.post(CHAT, **body(SUMMARY, max_tokens=4))
    assert answer["basis"]["kind"] == "document"
    assert any("none is asked unless `whole` is on" in sentence for sentence in answer["notices"])


def test_a_client_that_hangs_up_halts_the_work_and_asking_again_continues(notes, groups):
    groups["waits"] = lambda: True
    with notes.client.stream("POST", CHAT, json=body(SUMMARY, stream=True, return_progress=True)) as response:
        lines = response.iter_lines()
        while '"processed": 2' not in next(lines):
            pass
    assert groups["halted"].wait(60)
    assert groups["n"] == 1
    groups["waits"] = lambda: False
    again = notes.post(CHAT, **body(SUMMARY))
    assert groups["n"] == 2
    assert len(again["findings"]) == 4


def test_other_conversations_go_on_meanwhile(notes, groups):
    """Between two groups of one question another client's answer begins and ends, and changes nothing."""
    alone, others = notes.post(CHAT, **body(SUMMARY)), []
    for path in notes.folder.rglob(FOUND):
        path.unlink()

    def other():
        others.append(notes.post(CHAT, messages=[{"role": "user", "content": "Hello?"}], max_tokens=4))

    asking = threading.Thread(target=other)

    def waits():
        if asking.ident is None:
            asking.start()
        return asking.is_alive()

    groups |= {"n": 0, "waits": waits}
    again = notes.post(CHAT, **body(SUMMARY))
    assert groups["n"] == 2
    assert others[0]["usage"]["completion_tokens"] == 4
    assert (text_of(again), again["findings"]) == (text_of(alone), alone["findings"])
