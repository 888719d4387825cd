"""Responses that continue what the server keeps: by references to items, by responses, and with files."""

import asyncio
import base64
import json

import openai
import pytest
from helpers.served import SAMPLING
from helpers.talking_model import ANSWER

from octavo.serve import kept_responses
from octavo.serve.apis.response_input import ResponseBody
from octavo.serve.apis.response_writer import ResponseWriter
from octavo.serve.apis.tool_forms import tools_of
from octavo.serve.engine.request import AnswerPart
from octavo.serve.kept_responses import Item, KeptResponse, KeptResponses
from octavo.serve.request_error import RequestError

RESPONSES = "/v1/responses"
TOOL = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {"city": {}}}}


def asked(text):
    return {"role": "user", "content": [{"type": "input_text", "text": text}]}


def reference(item):
    return {"type": "item_reference", "id": item["id"]}


def n_tokens(talking, items, **more):
    return talking.post(f"{RESPONSES}/input_tokens", input=items, **more)["input_tokens"]


def test_a_reference_stands_for_an_item_of_an_answer(talking):
    """The AI SDK's OpenAI provider sends earlier answers so."""
    first = talking.post(RESPONSES, input=[asked("Hello.")])
    [said] = first["output"]
    whole = [asked("Hello."), said, asked("And now?")]
    second = talking.post(RESPONSES, input=[asked("Hello."), reference(said), asked("And now?")])
    assert second["usage"]["input_tokens"] == n_tokens(talking, whole) > first["usage"]["input_tokens"]
    assert n_tokens(talking, [asked("Hello."), {"id": said["id"]}, asked("And now?")]) == n_tokens(talking, whole)
    third = [asked("Hello."), reference(said), asked("And now?"), reference(second["output"][0]), asked("Why?")]
    assert n_tokens(talking, third) == n_tokens(talking, [*whole, second["output"][0], asked("Why?")])


def test_a_reference_stands_for_a_call_and_for_an_item_of_the_input(talking):
    called = talking.post(RESPONSES, input="Weather?", tools=[TOOL], tool_choice="required")
    [call] = called["output"]
    [question] = talking.client.get(f"{RESPONSES}/{called['id']}/input_items").json()["data"]
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "Fog."}
    whole = n_tokens(talking, [question, call, result], tools=[TOOL])
    assert n_tokens(talking, [reference(question), reference(call), result], tools=[TOOL]) == whole
    streamed = talking.stream(RESPONSES, input="Hello?")[-1]["response"]["output"][0]
    assert n_tokens(talking, [asked("a"), reference(streamed)]) == n_tokens(talking, [asked("a"), streamed])


def test_a_reference_to_an_item_that_is_there_already_adds_nothing(talking):
    first = talking.post(RESPONSES, input="Hello.")
    more = {"previous_response_id": first["id"]}
    both = n_tokens(talking, [reference(first["output"][0]), asked("And now?")], **more)
    assert both == n_tokens(talking, [asked("And now?")], **more)


def test_an_unknown_reference_is_refused(talking):
    unkept = talking.post(RESPONSES, input="Hello.", store=False)["output"][0]
    removed = talking.post(RESPONSES, input="Hello.")
    talking.client.delete(f"{RESPONSES}/{removed['id']}")
    for item in ({"id": "msg_none"}, {"id": None}, unkept, removed["output"][0]):
        status, error = talking.refused(RESPONSES, input=[asked("a"), reference(item)])
        assert (status, error["param"], error["type"]) == (404, "input", "not_found_error")
        assert f"There is no item {item['id']}: " in error["message"]


def test_the_input_of_a_response_is_listed_in_pages(talking):
    first = talking.post(RESPONSES, input=[asked("One."), {"role": "user", "content": "Two."}])
    second = talking.post(RESPONSES, input="Three.", previous_response_id=first["id"], instructions="Be brief.")
    url = f"{RESPONSES}/{second['id']}/input_items"
    page = talking.client.get(url).json()
    texts = [each["content"][0]["text"] for each in page["data"]]
    assert (texts, page["has_more"]) == (["Three.", ANSWER, "Two.", "One."], False)
    ids = [each["id"] for each in page["data"]]
    assert (page["first_id"], page["last_id"], len(set(ids))) == (ids[0], ids[-1], 4)
    assert ids[1] == first["output"][0]["id"]
    two = talking.client.get(url, params={"limit": 2}).json()
    assert ([each["id"] for each in two["data"]], two["has_more"]) == (ids[:2], True)
    rest = talking.client.get(url, params={"limit": 2, "after": two["last_id"]}).json()
    assert ([each["id"] for each in rest["data"]], rest["has_more"]) == (ids[2:], False)
    rising = talking.client.get(url, params={"order": "asc", "limit": 3}).json()
    assert ([each["id"] for each in rising["data"]], rising["has_more"]) == (ids[:0:-1], True)
    with openai.OpenAI(base_url=f"{talking.url}/v1", api_key="none") as client:
        listed = client.responses.input_items.list(second["id"], limit=1)
        assert [item.id for item in listed] == ids


@pytest.mark.parametrize(
    "parameters", [{"limit": "0"}, {"limit": "101"}, {"limit": "x"}, {"order": "up"}, {"after": "msg_none"}]
)
def test_pages_that_cannot_be_are_refused(talking, parameters):
    made = talking.post(RESPONSES, input="Hello.")
    answer = talking.client.get(f"{RESPONSES}/{made['id']}/input_items", params=parameters)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, next(iter(parameters)))
    assert talking.client.get(f"{RESPONSES}/resp_none/input_items").status_code == 404


def test_a_file_of_an_input_is_kept_by_its_id(talking):
    data = "data:text/plain;base64," + base64.b64encode(b"The keeper saw 90 ships in May.").decode()
    file = {"type": "input_file", "filename": "may.txt", "file_data": data}
    first = talking.post(RESPONSES, input=[{"role": "user", "content": [file, *asked("How many?")["content"]]}])
    [item] = talking.client.get(f"{RESPONSES}/{first['id']}/input_items").json()["data"]
    name = item["content"][0]["file_id"]
    assert item["content"][0] == {"type": "input_file", "filename": "may.txt", "file_id": name}
    assert talking.client.get(f"/v1/files/{name}").json()["filename"] == "may.txt"
    assert n_tokens(talking, [reference(item)]) == first["usage"]["input_tokens"]


@pytest.mark.parametrize("more", [{}, {"filename": "a.pdf"}])
def test_a_file_that_only_an_address_names_is_refused_in_a_sentence(talking, more):
    part = {"type": "input_file", "file_url": "https://example.org/a.pdf", **more}
    status, error = talking.refused(RESPONSES, input=[{"role": "user", "content": [part]}])
    assert (status, error["message"]) == (400, "octavo fetches no url: send the document itself, or upload it.")


def test_an_answer_that_its_client_stops_is_kept():
    """A chat with a button that stops an answer refers to its items."""
    kept = []

    async def keep(response):
        kept.append(response)

    async def events():
        yield AnswerPart("The ship")
        await asyncio.sleep(60)

    async def stopped():
        body = ResponseBody.model_validate({"input": "Hello."})
        lines = ResponseWriter(body, SAMPLING, "tiny", tools_of([]), keep).lines(events())
        async for line in lines:
            if "output_text.delta" in line:
                break
        await lines.aclose()

    asyncio.run(stopped())
    [cut] = kept
    [item] = cut["output"]
    assert (cut["status"], item["status"], item["content"][0]["text"]) == ("cancelled", "incomplete", "The ship")


def test_what_a_stream_showed_is_kept_when_the_client_hangs_up(talking):
    with talking.client.stream("POST", RESPONSES, json={"input": "Hello.", "stream": True}) as stream:
        for line in stream.iter_lines():
            if "output_item.added" in line and line.startswith("data: "):
                item = json.loads(line.removeprefix("data: "))["item"]
                break
    talking.wait_until_idle()
    assert n_tokens(talking, [asked("Hello."), reference(item), asked("And now?")]) > n_tokens(
        talking, [asked("Hello."), asked("And now?")]
    )


def response(name, text, tools=()):
    """A response that is kept, with an answer."""
    answer = Item.of({"role": "assistant", "content": text, "id": f"msg_{name}"})
    return KeptResponse({"id": name, "output": [answer], "tools": tools}, [], [answer], ())


def test_what_is_forgotten_takes_its_items_along(monkeypatch):
    monkeypatch.setattr(kept_responses, "_MOST_CHARACTERS", 1000)
    kept = KeptResponses()
    kept.keep(response("a", "x" * 600))
    assert kept.item("msg_a")["content"][0]["text"] == "x" * 600
    kept.keep(response("b", "y" * 600))
    for gone in (lambda: kept.get("a"), lambda: kept.item("msg_a")):
        with pytest.raises(RequestError):
            gone()
    assert kept.get("b").output[0] is kept.item("msg_b")


def test_tools_and_instructions_count_among_what_is_kept(monkeypatch):
    monkeypatch.setattr(kept_responses, "_MOST_CHARACTERS", 1000)
    kept = KeptResponses()
    kept.keep(response("a", "x", tools=[{"name": "t" * 600}]))
    kept.keep(response("b", "y", tools=[{"name": "t" * 600}]))
    assert kept.get("b")
    with pytest.raises(RequestError):
        kept.get("a")
