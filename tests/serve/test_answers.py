"""Answers that loop, or name what their documents do not, and the temperature of those over documents, in each API."""

from dataclasses import replace

import pytest
from helpers import talking_model
from helpers.served import SAMPLING, serving
from helpers.talking_model import ANSWER, LOOP

#: The notice about an answer that was stopped.
REPEATED = "The answer was stopped: the model repeated itself."
HELLO = [{"role": "user", "content": "Hello?"}]


@pytest.fixture(scope="module")
def looping(tmp_path_factory):
    """A server on a model that repeats LOOP without end, whose limit is far."""
    folder = tmp_path_factory.mktemp("looping")
    model = talking_model.write_model(folder / "looping.gguf", loops=True)
    with serving(model, folder, sampling=replace(SAMPLING, max_tokens=1000)) as server:
        yield server


def is_stopped(text):
    assert text == (LOOP * 200)[: len(text)]
    return len(LOOP) <= len(text) < 5 * len(LOOP)


def test_loops_are_stopped_in_openai_apis(looping):
    answer = looping.post("/v1/chat/completions", messages=HELLO)
    [choice] = answer["choices"]
    assert is_stopped(choice["message"]["content"])
    assert (choice["finish_reason"], answer["cut_by"], answer["notices"]) == ("length", "loop", [REPEATED])
    *chunks, last = looping.stream("/v1/chat/completions", messages=HELLO)
    assert is_stopped("".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks))
    assert (last["choices"][0]["finish_reason"], last["notices"]) == ("length", [REPEATED])
    response = looping.post("/v1/responses", input="Hello?")
    assert (response["status"], response["notices"]) == ("incomplete", [REPEATED])


def test_loops_are_stopped_in_the_apis_of_others(looping):
    message = looping.post("/v1/messages", messages=HELLO, max_tokens=1000)
    assert is_stopped(message["content"][0]["text"])
    assert (message["stop_reason"], message["notices"]) == ("max_tokens", [REPEATED])
    told = looping.post("/api/chat", messages=HELLO, stream=False)
    assert is_stopped(told["message"]["content"])
    assert (told["done_reason"], told["notices"]) == ("length", [REPEATED])


def test_a_full_context_is_told_apart_from_a_limit(looping):
    asked = {"messages": [{"role": "user", "content": "x" * 1900}]}
    full = looping.post("/v1/chat/completions", **asked)
    assert full["usage"]["total_tokens"] == 2048
    assert (full["choices"][0]["finish_reason"], full["cut_by"]) == ("length", "context")
    assert full["notices"] == ["The answer was cut: the context of 2,048 tokens is full."]
    limited = looping.post("/v1/chat/completions", **asked, max_tokens=9)
    assert (limited["choices"][0]["finish_reason"], "cut_by" in limited, "notices" in limited) == (
        "length",
        False,
        False,
    )


def test_what_must_go_on_goes_on(looping):
    """A prompt without a template may be of any text, and a grammar asks for what it asks for."""
    told = looping.post("/completion", prompt="\n", n_predict=600)
    assert (told["tokens_predicted"], "notices" in told) == (600, False)
    grammar = "root ::= [a-zA-Z/,-]+"
    told = looping.post("/v1/chat/completions", messages=HELLO, grammar=grammar, max_tokens=600)
    assert (told["usage"]["completion_tokens"], "notices" in told) == (600, False)


def test_numbers_that_a_document_does_not_have_are_told(talking):
    other = talking.read("other.txt", b"The ship sailed in 1785.")
    same = talking.read("same.txt", b"The ship sailed in 90 days.")
    answer = talking.post("/v1/chat/completions", messages=HELLO, document=other["id"])
    assert answer["choices"][0]["message"]["content"] == ANSWER
    assert answer["notices"] == ["90 is not in the text that was read."]
    assert "notices" not in talking.post("/v1/chat/completions", messages=HELLO, document=same["id"])
    asked = [{"role": "user", "content": "Are there 90?"}]
    assert "notices" not in talking.post("/v1/chat/completions", messages=asked, document=other["id"])
    assert "notices" not in talking.post("/v1/chat/completions", messages=HELLO)


@pytest.mark.parametrize("path", ["/v1/completions", "/completion"])
def test_notices_about_prompts_without_messages(talking, path):
    """The prompt is the question: its numbers need not be in the document."""
    other = talking.read("other.txt", b"The ship sailed in 1785.")
    missing = ["90 is not in the text that was read."]
    told = talking.post(path, prompt="How many?\n", document=other["id"])
    assert (told["notices"], told["basis"]["kind"]) == (missing, "document")
    stream = talking.stream(path, prompt="How many?\n", document=other["id"])
    assert [chunk["notices"] for chunk in stream if "notices" in chunk] == [missing]
    for prompt in ("Are there 90?\n", talking.server.tokens_of("Are there 90?\n")):
        assert "notices" not in talking.post(path, prompt=prompt, document=other["id"])
    assert "notices" not in talking.post(path, prompt="How many?\n")


def test_notices_of_several_answers_are_told_once(talking):
    """Also notices of the first answers, and with the counts at the end of a stream."""
    other, missing = talking.read("other.txt", b"The ship sailed in 1785."), ["90 is not in the text that was read."]
    prompts = {"prompt": ["How many?\n", "How many\n", "Are there 90?\n"], "document": other["id"]}
    assert talking.post("/v1/completions", **prompts)["notices"] == missing
    *chunks, last = talking.stream("/v1/completions", **prompts, stream_options={"include_usage": True})
    assert (last["notices"], any("notices" in chunk for chunk in chunks)) == (missing, False)
    assert [chunk.get("notices") for chunk in talking.stream("/v1/completions", **prompts)].count(missing) == 2
    asked = {"messages": HELLO, "document": other["id"], "n": 2}
    assert talking.post("/v1/chat/completions", **asked)["notices"] == missing


@pytest.fixture(scope="module")
def unset(tmp_path_factory):
    """A server that was started without --temp."""
    folder = tmp_path_factory.mktemp("unset")
    model = talking_model.write_model(folder / "talking.gguf")
    with serving(model, folder, sampling=replace(SAMPLING, temperature=None)) as server:
        yield server


def test_answers_over_documents_are_drawn_at_a_low_temperature_unless_requests_name_one(unset):
    file = unset.read("notes.txt", b"The ship sailed in 90 days.")

    def temperature(**more):
        return unset.post("/v1/responses", input="Hello?", **more)["temperature"]

    assert temperature() == 0.8
    assert temperature(document=file["id"]) == 0.2
    assert temperature(document=file["id"], temperature=0.7) == 0.7
    attached = [{"type": "input_file", "file_id": file["id"]}, {"type": "input_text", "text": "Hello?"}]
    assert unset.post("/v1/responses", input=[{"role": "user", "content": attached}])["temperature"] == 0.2
    told = unset.post("/completion", prompt="\n", document=file["id"], n_predict=2)
    assert told["generation_settings"]["temperature"] == 0.2
    assert unset.client.get("/props").json()["default_generation_settings"]["params"]["temperature"] == 0.8


def test_the_temperature_that_a_server_was_started_with_counts(talking):
    file = talking.read("more.txt", b"The ship sailed in 90 days.")
    assert talking.post("/v1/responses", input="Hello?", document=file["id"])["temperature"] == 0
