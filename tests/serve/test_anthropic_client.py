"""Anthropic's own client, unmodified, asks the server."""

import base64

import anthropic
import pytest
from helpers.served import serving
from helpers.talking_model import ANSWER

HELLO = [{"role": "user", "content": "Hello?"}]
WEATHER = {
    "name": "get_weather",
    "description": "Tell the weather.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
TEXT = "\n".join(f"In year {year} the keeper saw {year * 7} ships." for year in range(20))


@pytest.fixture(scope="module")
def client(talking):
    """A client of a model that always answers the same."""
    with anthropic.Anthropic(base_url=talking.url, api_key="none", max_retries=0) as made:
        yield made


def ask(client, messages=HELLO, max_tokens=64, **more):
    return client.messages.create(model="tiny", messages=messages, max_tokens=max_tokens, **more)


def over(source, **more):
    block = {"type": "document", "source": source, **more}
    return [{"role": "user", "content": [block, {"type": "text", "text": "What did the keeper see?"}]}]


def test_a_message(client):
    answer = ask(client, system="Be short.")
    [block] = answer.content
    assert (answer.role, block.type, block.text, answer.stop_reason) == ("assistant", "text", ANSWER, "end_turn")
    assert answer.usage.output_tokens == len(ANSWER) + 1
    again = ask(client, system=[{"type": "text", "text": "Be short."}])
    assert again.usage.cache_read_input_tokens + again.usage.input_tokens == answer.usage.input_tokens + (
        answer.usage.cache_read_input_tokens
    )
    assert again.usage.input_tokens == 1
    assert ask(client, max_tokens=2).stop_reason == "max_tokens"


def test_stop_sequences(client):
    answer = ask(client, stop_sequences=["no", "90"])
    assert answer.content[0].text == ANSWER.partition("90")[0]
    assert (answer.stop_reason, answer.stop_sequence) == ("stop_sequence", "90")


def test_a_stream(client):
    with client.messages.stream(model="tiny", messages=HELLO, max_tokens=64) as stream:
        assert "".join(stream.text_stream) == ANSWER
        final = stream.get_final_message()
    assert (final.content[0].text, final.stop_reason) == (ANSWER, "end_turn")
    assert final.usage.output_tokens == len(ANSWER) + 1
    kinds = [event.type for event in ask(client, stream=True)]
    assert kinds[0] == "message_start"
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "get_weather"}])
def test_a_function_that_must_be_called_is_called(client, choice):
    answer = ask(client, tools=[WEATHER], tool_choice=choice)
    [call] = answer.content
    assert (call.type, call.name, call.input.keys()) == ("tool_use", "get_weather", {"city"})
    assert answer.stop_reason == "tool_use"
    with client.messages.stream(
        model="tiny", messages=HELLO, max_tokens=64, tools=[WEATHER], tool_choice=choice
    ) as stream:
        assert stream.get_final_message().content[0].input == call.input
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "sunny"}
    conversation = [*HELLO, {"role": "assistant", "content": answer.content}, {"role": "user", "content": [result]}]
    assert ask(client, conversation, tools=[WEATHER]).content[0].text == ANSWER


def test_functions_that_may_be_called_change_no_text(client):
    for choice in ("auto", "none"):
        assert ask(client, tools=[WEATHER], tool_choice={"type": choice}).content[0].text == ANSWER


def test_tokens_are_counted_as_they_are_read(client):
    usage = ask(client, tools=[WEATHER]).usage
    counted = client.messages.count_tokens(model="tiny", messages=HELLO, tools=[WEATHER]).input_tokens
    assert counted == usage.input_tokens + usage.cache_read_input_tokens
    long = [{"role": "user", "content": "x " * 5000}]
    assert client.messages.count_tokens(model="tiny", messages=long).input_tokens > 5000


def test_an_answer_goes_on_where_it_was_begun(client):
    answer = ask(client, [*HELLO, {"role": "assistant", "content": ANSWER[:4]}])
    assert answer.content[0].text == ANSWER[4:]


def test_documents(client, talking):
    source = {"type": "text", "media_type": "text/plain", "data": TEXT}
    asked = over(source, title="log.txt", citations={"enabled": True})
    first = ask(client, asked)
    again = ask(client, over({"type": "base64", "media_type": "text/plain", "data": encoded(TEXT)}, title="log.txt"))
    assert again.usage.cache_read_input_tokens > 200
    assert again.usage.input_tokens == 1
    [file] = [each for each in talking.client.get("/v1/files").json()["data"] if each["filename"] == "log.txt"]
    named = ask(client, over({"type": "file", "file_id": file["id"]}))
    assert named.content[0].text == again.content[0].text
    for citation in first.content[0].citations or ():
        assert (citation.type, citation.document_title) == ("char_location", "log.txt")
        assert citation.cited_text == TEXT[citation.start_char_index : citation.end_char_index].strip()


def test_sentences_of_an_answer_are_one_text(client):
    """An answer with citations has a block for each sentence, and the next turn sends these back."""
    blocks = [{"type": "text", "text": text, "citations": []} for text in ("It left.", " It came back.\n", "\nWhy?")]

    def n_tokens(content):
        said = [*HELLO, {"role": "assistant", "content": content}, *HELLO]
        return client.messages.count_tokens(model="tiny", messages=said).input_tokens

    assert n_tokens(blocks) == n_tokens("It left. It came back.\n\nWhy?")


def encoded(text):
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("body", "kind", "message"),
    [
        ({"messages": []}, anthropic.BadRequestError, "messages"),
        ({"max_tokens": 0}, anthropic.BadRequestError, "max_tokens"),
        ({"messages": [{"role": "user", "content": "x " * 5000}]}, anthropic.BadRequestError, "context"),
        ({"messages": over({"type": "file", "file_id": "file-none"})}, anthropic.NotFoundError, "file-none"),
        ({"messages": over({"type": "url", "url": "http://a.example"})}, anthropic.BadRequestError, "url"),
        ({"messages": over({"type": "base64", "data": "?"})}, anthropic.BadRequestError, "base64"),
        ({"tools": [WEATHER], "tool_choice": {"type": "tool", "name": "f"}}, anthropic.BadRequestError, "f"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, anthropic.BadRequestError, "images"),
    ],
)
def test_errors_are_those_that_the_client_knows(client, body, kind, message):
    with pytest.raises(kind) as raised:
        ask(client, **body)
    assert raised.value.body["type"] == "error"
    assert message in raised.value.body["error"]["message"]


def test_a_wrong_key(tiny_model, tmp_path):
    with serving(tiny_model, tmp_path, key="secret") as locked:
        with pytest.raises(anthropic.AuthenticationError):
            ask(anthropic.Anthropic(base_url=locked.url, api_key="wrong"))
        assert ask(anthropic.Anthropic(base_url=locked.url, api_key="secret"), max_tokens=1).content
