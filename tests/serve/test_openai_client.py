"""OpenAI's own client, unmodified, asks the server."""

import json
import math

import openai
import pytest
from helpers.served import serving
from helpers.talking_model import ANSWER
from pydantic import BaseModel

HELLO = [{"role": "user", "content": "Hello?"}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Tell the weather.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "unit": {"enum": ["C", "F"]}},
            "required": ["city", "unit"],
        },
    },
}


class Ship(BaseModel):
    """A form of answers."""

    name: str
    big: bool


@pytest.fixture(scope="module")
def client(talking):
    """A client of a model that always answers the same."""
    with openai.OpenAI(base_url=f"{talking.url}/v1", api_key="none", max_retries=0) as made:
        yield made


@pytest.fixture(scope="module")
def rambling(served):
    """A client of a model of random weights."""
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def chat(client, messages=HELLO, **more):
    return client.chat.completions.create(model="tiny", messages=messages, **more)


def test_an_answer(client):
    answer = chat(client)
    [choice] = answer.choices
    assert (choice.message.role, choice.message.content, choice.finish_reason) == ("assistant", ANSWER, "stop")
    assert answer.model == "tiny"
    assert answer.usage.completion_tokens == len(ANSWER) + 1
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_a_stream_and_its_usage(client):
    chunks = list(chat(client, stream=True, stream_options={"include_usage": True}))
    told = [chunk.choices[0] for chunk in chunks if chunk.choices]
    assert "".join(each.delta.content or "" for each in told) == ANSWER
    assert (told[0].delta.role, told[-1].finish_reason) == ("assistant", "stop")
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == len(ANSWER) + 1
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert len({chunk.id for chunk in chunks}) == 1


def test_the_clients_helper_for_streams(client):
    with client.chat.completions.stream(model="tiny", messages=HELLO) as stream:
        deltas = [event.delta for event in stream if event.type == "content.delta"]
        assert stream.get_final_completion().choices[0].message.content == "".join(deltas) == ANSWER


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_weather"}}])
def test_a_function_that_must_be_called_is_called(client, choice):
    answer = chat(client, tools=[WEATHER], tool_choice=choice).choices[0]
    [call] = answer.message.tool_calls
    assert (answer.finish_reason, answer.message.content, call.function.name) == ("tool_calls", None, "get_weather")
    assert json.loads(call.function.arguments).keys() == {"city", "unit"}


def test_the_result_of_a_call_is_read(client):
    call = chat(client, tools=[WEATHER], tool_choice="required").choices[0].message
    result = {"role": "tool", "tool_call_id": call.tool_calls[0].id, "content": "sunny"}
    answer = chat(client, [*HELLO, call, result], tools=[WEATHER])
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == (ANSWER, "stop")
    more = chat(client, [*HELLO, call, {**result, "content": "sunny, with some clouds"}], tools=[WEATHER])
    assert more.usage.prompt_tokens > answer.usage.prompt_tokens


@pytest.mark.parametrize("choice", ["auto", "none"])
def test_functions_that_may_be_called_change_no_text(client, choice):
    answer = chat(client, tools=[WEATHER], tool_choice=choice)
    assert (answer.choices[0].message.content, answer.choices[0].message.tool_calls) == (ANSWER, None)
    assert (answer.usage.prompt_tokens > chat(client).usage.prompt_tokens) == (choice == "auto")


def test_calls_in_a_stream(client):
    chunks = chat(client, tools=[WEATHER], tool_choice="required", stream=True)
    told = [chunk.choices[0] for chunk in chunks]
    [call] = [call for each in told for call in each.delta.tool_calls or ()]
    assert (call.index, call.function.name, told[-1].finish_reason) == (0, "get_weather", "tool_calls")
    assert json.loads(call.function.arguments).keys() == {"city", "unit"}


def test_answers_have_the_form_of_a_schema(client, rambling):
    parsed = client.chat.completions.parse(model="tiny", messages=HELLO, response_format=Ship).choices[0].message
    assert isinstance(parsed.parsed, Ship)
    anything = chat(client, response_format={"type": "json_object"}).choices[0]
    assert isinstance(json.loads(anything.message.content), dict)
    assert chat(rambling, response_format={"type": "json_object"}, max_tokens=9).choices[0].message.content[0] == "{"


def test_log_probabilities(rambling):
    [choice] = chat(rambling, logprobs=True, top_logprobs=3, max_tokens=6).choices
    assert len(choice.logprobs.content) == 6
    for each in choice.logprobs.content:
        assert (each.logprob, each.bytes) == (each.top_logprobs[0].logprob, each.top_logprobs[0].bytes)
        assert len(each.top_logprobs) == 3
        assert sum(math.exp(other.logprob) for other in each.top_logprobs) < 1
    text = b"".join(bytes(each.bytes) for each in choice.logprobs.content)
    assert text.decode(errors="replace") == choice.message.content
    chunks = list(chat(rambling, logprobs=True, top_logprobs=3, max_tokens=6, stream=True))
    told = [each for chunk in chunks if chunk.choices[0].logprobs for each in chunk.choices[0].logprobs.content]
    assert told == choice.logprobs.content


def test_seeds_and_many_answers(rambling):
    def drawn(**more):
        return [each.message.content for each in chat(rambling, max_tokens=12, temperature=1.5, **more).choices]

    assert drawn(seed=7) == drawn(seed=7) != drawn(seed=8)
    three = drawn(seed=7, n=3)
    assert len(set(three)) == 3
    assert three[:1] == drawn(seed=7)
    indices = [chunk.choices[0].index for chunk in chat(rambling, max_tokens=3, n=2, stream=True)]
    assert indices == sorted(indices)
    assert set(indices) == {0, 1}


def test_stop_texts_and_biases(client):
    assert chat(client, stop=", ").choices[0].message.content == ANSWER.partition(",")[0]
    stopped = chat(client, stop=["90", "no"]).choices[0]
    assert (stopped.message.content, stopped.finish_reason) == (ANSWER.partition("90")[0], "stop")
    [token] = client.post("/../tokenize", body={"content": "q"}, cast_to=object)["tokens"]
    biased = chat(client, logit_bias={str(token): 100}, max_tokens=3)
    assert (biased.choices[0].message.content, biased.choices[0].finish_reason) == ("qqq", "length")


def test_a_document_is_uploaded_and_asked(client):
    text = "\n".join(f"In year {year} the keeper saw {year * 7} ships." for year in range(40))
    file = client.files.create(file=("log.txt", text.encode()), purpose="user_data")
    assert client.files.wait_for_processing(file.id, poll_interval=0.1).status == "processed"
    assert file.id in {each.id for each in client.files.list()}
    assert client.files.content(file.id).text == text
    question = {"type": "text", "text": "What did the keeper see?"}
    by_id = [{"role": "user", "content": [{"type": "file", "file": {"file_id": file.id}}, question]}]
    answer = chat(client, by_id, extra_body={"sources": True}, max_tokens=8)
    n_tokens = client.files.retrieve(file.id).model_extra["tokens"]
    assert answer.usage.prompt_tokens_details.cached_tokens >= n_tokens > 400
    for each in answer.to_dict()["choices"][0]["message"]["annotations"]:
        assert each["file_citation"]["quote"] in text
    input_file = {"type": "input_file", "file_id": file.id}
    asked = [{"role": "user", "content": [input_file, {"type": "input_text", "text": "What?"}]}]
    response = client.responses.create(model="tiny", input=asked, extra_body={"sources": True})
    assert response.usage.input_tokens_details.cached_tokens >= n_tokens
    for each in response.output[0].content[0].annotations:
        assert (each.type, each.file_id, each.filename) == ("file_citation", file.id, "log.txt")
    assert client.files.delete(file.id).deleted
    with pytest.raises(openai.NotFoundError):
        chat(client, by_id)


def test_a_document_comes_along(client):
    data = "data:text/plain;base64,VGhlIGtlZXBlciBzYXcgYSBzaGlwLiA="
    part = {"type": "file", "file": {"filename": "note.txt", "file_data": data}}
    asked = [{"role": "user", "content": [part, {"type": "text", "text": "What did the keeper see?"}]}]
    assert chat(client, asked).usage.prompt_tokens > chat(client).usage.prompt_tokens


def test_responses(client):
    response = client.responses.create(model="tiny", input="Hello?", instructions="Be short.")
    assert (response.status, response.output_text) == ("completed", ANSWER)
    assert response.usage.output_tokens == len(ANSWER) + 1
    short = client.responses.create(model="tiny", input="Hello?", max_output_tokens=2)
    assert (short.status, short.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    with client.responses.stream(model="tiny", input="Hello?") as stream:
        deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
        assert stream.get_final_response().output_text == "".join(deltas) == ANSWER


def test_responses_call_functions_and_keep_to_schemas(client):
    tool = {"type": "function", **WEATHER["function"], "strict": False}
    response = client.responses.create(model="tiny", input="Weather?", tools=[tool], tool_choice="required")
    [call] = response.output
    assert (call.type, call.name) == ("function_call", "get_weather")
    assert json.loads(call.arguments).keys() == {"city", "unit"}
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    conversation = [{"role": "user", "content": "Weather?"}, call, result]
    assert client.responses.create(model="tiny", input=conversation, tools=[tool]).output_text == ANSWER
    assert isinstance(client.responses.parse(model="tiny", input="?", text_format=Ship).output_parsed, Ship)
    logprobs = ["message.output_text.logprobs"]
    told = client.responses.create(model="tiny", input="?", include=logprobs, top_logprobs=2).output[0].content[0]
    assert [len(each.top_logprobs) for each in told.logprobs] == [2] * len(ANSWER)


def test_completions_echo_the_log_probabilities_of_the_prompt(rambling):
    answer = rambling.completions.create(model="tiny", prompt="The keeper", echo=True, logprobs=2, max_tokens=3)
    [choice] = answer.choices
    known = choice.logprobs
    assert choice.text.startswith("The keeper")
    assert known.token_logprobs[0] is None
    assert len(known.tokens) == len(known.token_logprobs) == answer.usage.total_tokens
    assert all(value < 0 for value in known.token_logprobs[1:])
    assert known.text_offset[1] == len(known.tokens[0])
    chunks = rambling.completions.create(model="tiny", prompt="The keeper", max_tokens=3, stream=True)
    assert "".join(chunk.choices[0].text for chunk in chunks) == choice.text.removeprefix("The keeper")


def test_models(client):
    [model] = client.models.list()
    assert model == client.models.retrieve(model.id)
    assert (model.id, model.object) == ("tiny", "model")
    with pytest.raises(openai.NotFoundError) as raised:
        client.models.retrieve("other")
    assert raised.value.code == "model_not_found"


@pytest.mark.parametrize(
    ("body", "kind", "message"),
    [
        ({"messages": []}, openai.BadRequestError, "messages"),
        ({"temperature": 1000}, openai.BadRequestError, "temperature"),
        ({"messages": [{"role": "user", "content": "x " * 5000}]}, openai.BadRequestError, "context"),
        (
            {"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "f"}}},
            openai.BadRequestError,
            "no function f",
        ),
        ({"extra_body": {"document": "file-none"}}, openai.NotFoundError, "file-none"),
        ({"extra_body": {"attention": "nonsense"}}, openai.BadRequestError, "nonsense"),
        ({"logit_bias": {"999999": 1}}, openai.BadRequestError, "999999"),
        ({"logit_bias": {"999999": 1}, "stream": True}, openai.BadRequestError, "999999"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "what"}}}},
            openai.BadRequestError,
            "schema",
        ),
    ],
)
def test_errors_are_those_that_the_client_knows(client, body, kind, message):
    with pytest.raises(kind) as raised:
        chat(client, **body)
    assert message in raised.value.message


def test_a_wrong_key_and_no_server(tiny_model, tmp_path):
    with serving(tiny_model, tmp_path, key="secret") as locked:
        url = f"{locked.url}/v1"
        with pytest.raises(openai.AuthenticationError):
            openai.OpenAI(base_url=url, api_key="wrong").models.list()
        assert openai.OpenAI(base_url=url, api_key="secret").models.list().data
    with pytest.raises(openai.APIConnectionError):
        openai.OpenAI(base_url=url, api_key="secret", max_retries=0).models.list()
