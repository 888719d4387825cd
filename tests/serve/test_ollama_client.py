"""Ollama's own client, unmodified, asks the server; and what its API has besides."""

import json

import numpy as np
import ollama
import pytest
from helpers import thinking_model, tiny_models
from helpers.served import serving
from helpers.talking_model import ANSWER

from octavo.prompts.conversation_tokens import ConversationTokens
from octavo.runtime.embedder import MEAN
from octavo.serve.engine.sampler import TokenSampler

HELLO = [{"role": "user", "content": "Hello?"}]
TEXT = "\n".join(f"In year {year} the pilot counted {year * 9} boats." for year in range(20))
ASKED = {"model": "tiny", "messages": HELLO, "stream": False}
CALL = '<tool_call>{"name": "get_weather", "arguments": {"city": "Rome"}}</tool_call>'


def get_weather(city: str) -> str:
    """Tell the weather.

    Args:
        city: The city.
    """
    return f"Rain in {city}."


def client_of(served):
    return ollama.Client(host=served.url)


@pytest.fixture(scope="module")
def client(talking):
    """A client of a model that always answers the same."""
    return client_of(talking)


@pytest.fixture(scope="module")
def thinking(tmp_path_factory):
    """A server on a model that thinks."""
    folder = tmp_path_factory.mktemp("thinking")
    with serving(thinking_model.write_model(folder / "model.gguf"), folder) as served:
        yield served


def test_a_chat(client):
    answer = client.chat(model="tiny", messages=[{"role": "system", "content": "Be brief."}, *HELLO])
    assert (answer.message.role, answer.message.content, answer.message.thinking) == ("assistant", ANSWER, None)
    assert (answer.model, answer.done, answer.done_reason) == ("tiny:latest", True, "stop")
    assert answer.eval_count == len(ANSWER) + 1
    assert answer.prompt_eval_count > 0
    assert answer.total_duration >= answer.prompt_eval_duration + answer.eval_duration > 1000


def test_a_chat_streams(client):
    parts = list(client.chat(model="tiny", messages=HELLO, stream=True))
    assert "".join(part.message.content for part in parts) == ANSWER
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    assert (parts[-1].done_reason, parts[-1].eval_count) == ("stop", len(ANSWER) + 1)


def test_answers_stream_by_default_as_json_lines(talking):
    for path, body in (("chat", {"messages": HELLO}), ("generate", {"prompt": "Hello?"})):
        response = talking.client.post(f"/api/{path}", json=body)
        assert response.headers["content-type"] == "application/x-ndjson"
        parts = [json.loads(line) for line in response.text.splitlines()]
        assert [part["done"] for part in parts] == [False] * (len(parts) - 1) + [True]


def test_a_silent_stream_gets_parts_without_text(talking, monkeypatch):
    monkeypatch.setattr("octavo.serve.http.requests._SILENCE", 0.02)
    with talking.paused(), talking.client.stream("POST", "/api/chat", json={"messages": HELLO}) as response:
        first = json.loads(next(response.iter_lines()))
    assert (first["message"]["content"], first["done"]) == ("", False)


@pytest.mark.parametrize(("limit", "length"), [(3, 3), (0, 0), (-1, len(ANSWER)), (-2, len(ANSWER))])
def test_options_limit_an_answer(client, limit, length):
    answer = client.chat(model="tiny", messages=HELLO, options={"num_predict": limit})
    assert answer.message.content == ANSWER[:length]
    assert answer.done_reason == ("stop" if length == len(ANSWER) else "length")


def test_options_draw_and_stop_answers(client, talking):
    options = {"stop": [ANSWER[4:6]], "temperature": 0.1, "top_k": 1, "top_p": 0.5, "min_p": 0.1, "seed": -1}
    options |= {"repeat_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
    assert client.chat(model="tiny", messages=HELLO, options=options).message.content == ANSWER[:4]
    hot = {"temperature": 50.0, "num_predict": 12, "seed": 3}
    drawn = {client.generate(model="tiny", prompt="Hello?", raw=True, options=hot).response for _ in range(2)}
    assert len(drawn) == 1
    for options in ({"temperature": -1}, {"num_predict": -3}, {"top_p": 2}, {"repeat_penalty": 0}):
        response = talking.client.post("/api/chat", json={**ASKED, "options": options})
        assert response.status_code == 400
        assert response.json()["error"].startswith(f"options.{next(iter(options))}")


def test_what_is_ignored_is_named(talking):
    more = {"keep_alive": "5m", "options": {"num_ctx": 4096, "temperature": 0, "mirostat": 1}}
    response = talking.client.post("/api/chat", json={**ASKED, **more})
    assert response.headers["x-octavo-ignored"] == "keep_alive, options.mirostat, options.num_ctx"
    response = talking.client.post("/api/generate", json={"prompt": "Hello?", "context": [1, 2], "stream": False})
    assert (response.headers["x-octavo-ignored"], response.json()["response"]) == ("context", ANSWER)


@pytest.mark.parametrize("form", ["json", {"type": "object", "properties": {"a": {"enum": ["W"]}}, "required": ["a"]}])
def test_answers_have_a_form(client, form):
    options = {"num_predict": 20}
    for text in (
        client.chat(model="tiny", messages=HELLO, format=form, options=options).message.content,
        client.generate(model="tiny", prompt="Hello?", format=form, options=options).response,
        client.generate(model="tiny", prompt="Hello?", format=form, options=options, raw=True).response,
    ):
        assert text.startswith("{")
        assert form == "json" or json.loads(text) == {"a": "W"}


def test_log_probabilities(client):
    answer = client.chat(model="tiny", messages=HELLO, logprobs=True, top_logprobs=2)
    assert "".join(each.token for each in answer.logprobs) == ANSWER
    assert [len(each.top_logprobs) for each in answer.logprobs] == [2] * len(ANSWER)
    parts = list(client.generate(model="tiny", prompt="Hello?", logprobs=True, stream=True))
    assert "".join(each.token for part in parts for each in part.logprobs or ()) == ANSWER


def test_functions_are_called_and_their_results_read(client, talking, monkeypatch):
    llama, asked = talking.server.engine.llama, []
    say(monkeypatch, llama, CALL + CALL.replace("Rome", "Oslo"))
    answer = client.chat(model="tiny", messages=HELLO, tools=[get_weather], options={"num_predict": -1})
    calls = answer.message.tool_calls
    assert [(call.function.name, call.function.arguments) for call in calls] == [
        ("get_weather", {"city": "Rome"}),
        ("get_weather", {"city": "Oslo"}),
    ]
    assert answer.done_reason == "stop"
    say(monkeypatch, llama, CALL + CALL.replace("Rome", "Oslo"))
    parts = client.chat(model="tiny", messages=HELLO, tools=[get_weather], stream=True, options={"num_predict": -1})
    streamed = [call for part in parts for call in part.message.tool_calls or ()]
    assert [call.function.arguments["city"] for call in streamed] == ["Rome", "Oslo"]
    monkeypatch.undo()
    tokens = ConversationTokens.tokens

    def noted(prompt, messages, *more):
        asked.extend(messages)
        return tokens(prompt, messages, *more)

    monkeypatch.setattr(ConversationTokens, "tokens", noted)
    results = [{"role": "tool", "tool_name": "get_weather", "content": get_weather(city)} for city in ("Rome", "Oslo")]
    answer = client.chat(model="tiny", messages=[*HELLO, answer.message, *results], tools=[get_weather])
    assert answer.message.content == ANSWER
    said = asked[1]["tool_calls"]
    assert [json.loads(call["function"]["arguments"])["city"] for call in said] == ["Rome", "Oslo"]
    assert [message["tool_call_id"] for message in asked[2:]] == [call["id"] for call in said]
    assert len({call["id"] for call in said}) == 2


def say(monkeypatch, llama, text):
    """Have the model say a text, and end."""
    tokens = iter([*llama.tokenize(text.encode(), add_bos=False, special=True), tiny_models.IM_END])
    monkeypatch.setattr(TokenSampler, "draw", lambda *_: (next(tokens), None))


def test_thoughts(thinking):
    client = client_of(thinking)
    answer = client.chat(model="tiny", messages=HELLO, think=True)
    assert (answer.message.thinking, answer.message.content) == (thinking_model.THOUGHT, thinking_model.ANSWER)
    parts = list(client.generate(model="tiny", prompt="Hello?", think="high", stream=True))
    assert "".join(part.thinking or "" for part in parts) == thinking_model.THOUGHT
    assert "".join(part.response for part in parts) == thinking_model.ANSWER
    answer = client.chat(model="tiny", messages=[*HELLO, answer.message, *HELLO], think=False)
    assert (answer.message.thinking, answer.message.content) == (None, thinking_model.ANSWER)


def test_a_model_that_cannot_think_is_not_asked_to(client):
    with pytest.raises(ollama.ResponseError, match="does not support thinking"):
        client.chat(model="tiny", messages=HELLO, think=True)
    assert client.chat(model="tiny", messages=HELLO, think=False).message.content == ANSWER


def test_a_prompt(client):
    answer = client.generate(model="tiny", prompt="Hello?", system="Be brief.")
    assert (answer.response, answer.done_reason, answer.eval_count) == (ANSWER, "stop", len(ANSWER) + 1)
    without = client.generate(model="tiny", prompt="Hello?")
    assert answer.prompt_eval_count > without.prompt_eval_count
    raw = client.generate(model="tiny", prompt="Hello?\n", raw=True)
    assert raw.response == ANSWER
    assert raw.prompt_eval_count < without.prompt_eval_count


def test_a_gap_is_filled(filling, client):
    assert client_of(filling).generate(model="tiny", prompt="a = ", suffix=" + b").response == ANSWER
    with pytest.raises(ollama.ResponseError, match="was not made to fill a gap"):
        client.generate(model="tiny", prompt="a = ", suffix=" + b")


def test_what_octavo_cannot_do_is_refused_in_a_sentence(client, talking):
    refused = {
        "its own template": {"template": "{{ .Prompt }}"},
        "images cannot be sent": {"images": ["aGVsbG8="]},
        "`system` is for the chat template": {"raw": True, "system": "Be brief."},
    }
    for words, more in refused.items():
        with pytest.raises(ollama.ResponseError, match=words.replace("its own", "the model's own")) as problem:
            client.generate(model="tiny", prompt="Hello?", **more)
        assert problem.value.status_code == 400
    with pytest.raises(ollama.ResponseError, match="images cannot be sent"):
        client.chat(model="tiny", messages=[{**HELLO[0], "images": ["aGVsbG8="]}])
    response = talking.client.post("/api/nothing", json={"model": "qwen3"})
    assert (response.status_code, response.json()) == (404, {"error": "There is no /api/nothing."})
    lines = talking.client.post("/api/chat", json={"messages": [{"role": "user", "content": "Hello. " * 3000}]})
    assert lines.status_code == 400
    assert "maximum context length" in lines.json()["error"]


def test_a_request_without_a_prompt_loads_the_model(client):
    assert client.generate(model="tiny").done_reason == "load"
    answer = client.chat(model="tiny", messages=[])
    assert (answer.done, answer.done_reason, answer.message.content) == (True, "load", "")


def test_answers_over_a_document(talking):
    file = talking.read("ships.txt", TEXT.encode())
    for path, body in (("chat", {"messages": HELLO}), ("generate", {"prompt": "Hello?"})):
        answer = talking.post(f"/api/{path}", **body, stream=False, document="ships.txt", sources=True)
        text = answer["response"] if path == "generate" else answer["message"]["content"]
        assert (text, answer["document"]["file_id"]) == (ANSWER, file["id"])
        assert (answer["basis"]["kind"], answer["prompt_eval_count"] > 300) == ("document", True)
        assert isinstance(answer["annotations"], list)
    response = talking.client.post("/api/chat", json={**ASKED, "document": "none.txt"})
    assert response.status_code == 404


def test_the_model_is_described(client, talking):
    [listed] = client.list().models
    assert (listed.model, listed.details.format, listed.details.family) == ("tiny:latest", "gguf", "llama")
    assert (len(listed.digest), listed.size > 100_000) == (64, True)
    assert listed.details.parameter_size[-1] in "KM"
    [running] = client.ps().models
    assert (running.model, running.size_vram, running.context_length) == ("tiny:latest", 0, 2048)
    shown = client.show("tiny")
    assert shown.capabilities == ["completion", "tools"]
    assert shown.modelinfo["general.architecture"] == "llama"
    assert shown.modelinfo["llama.context_length"] == 2048
    assert shown.modelinfo["llama.block_count"] == 2
    assert shown.template == tiny_models.CHAT_TEMPLATE
    assert talking.client.get("/api/version").json()["version"] >= "0.12"


def test_what_the_model_can_is_told(thinking, filling):
    assert client_of(thinking).show("tiny").capabilities == ["completion", "tools", "thinking"]
    assert client_of(filling).show("tiny").capabilities == ["completion", "tools", "insert"]


def test_embeddings(tmp_path_factory, client):
    folder = tmp_path_factory.mktemp("embedder")
    model = tiny_models.write_model(folder / "embedder.gguf", "llama", pooling=MEAN, add_eos=True)
    with serving(model, folder) as served:
        theirs = client_of(served)
        answer = theirs.embed(model="tiny", input=["Ships.", TEXT])
        assert np.linalg.norm(answer.embeddings, axis=1) == pytest.approx([1, 1])
        assert answer.prompt_eval_count > 200
        assert theirs.embed(model="tiny", input="Ships.").embeddings == answer.embeddings[:1]
        assert theirs.embeddings(model="tiny", prompt="Ships.").embedding == answer.embeddings[0]
        assert theirs.show("tiny").capabilities == ["embedding"]
        response = served.client.post("/api/embed", json={"input": "Ships.", "truncate": True})
        assert response.headers["x-octavo-ignored"] == "truncate"
        with pytest.raises(ollama.ResponseError, match="the context has 2,048"):
            theirs.embed(model="tiny", input=TEXT * 20)
    with pytest.raises(ollama.ResponseError, match="computes no embeddings"):
        client.embed(model="tiny", input="Ships.")


def test_a_model_that_is_served_is_there_to_pull(client, talking):
    assert client.pull("tiny").status == "success"
    assert [step.status for step in client.pull("tiny:latest", stream=True)] == ["pulling manifest", "success"]
    assert talking.post("/api/pull", name="TINY", stream=False) == {"status": "success"}
    assert talking.client.post("/api/pull", json={}).json() == {"error": "The request names no model."}


@pytest.mark.parametrize(
    "change",
    [
        lambda client: client.pull("llama3.2"),
        lambda client: list(client.pull("llama3.2", stream=True)),
        lambda client: client.create("other", from_="tiny", system="Be brief."),
        lambda client: client.copy("tiny", "other"),
        lambda client: client.push("me/tiny"),
        lambda client: client.delete("tiny"),
    ],
)
def test_changes_of_models_are_refused_in_a_sentence(client, change):
    with pytest.raises(ollama.ResponseError, match=r"serves those that it was started with \(tiny:latest\)") as raised:
        change(client)
    assert raised.value.status_code == 400
