"""What clients of other servers send, in each API: taken, refused in a sentence, or named as ignored."""

import json

import pytest
from helpers.talking_model import ANSWER

HELLO = [{"role": "user", "content": "Hello."}]
CHAT, MESSAGES, RESPONSES, COMPLETIONS = "/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/completions"
MINIMAL = {
    CHAT: {"messages": HELLO},
    MESSAGES: {"messages": HELLO, "max_tokens": 30},
    RESPONSES: {"input": "Hello."},
    COMPLETIONS: {"prompt": "Hello.\n", "max_tokens": 20},
}
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": PARAMETERS}} for name in ("weather", "time")]


def ask(served, path, **more):
    """Post a body on top of the least one; returns the response."""
    return served.client.post(path, json={**MINIMAL[path], **more})


def text_of(path, body):
    """The answer's text."""
    if path == CHAT:
        return body["choices"][0]["message"]["content"]
    if path == COMPLETIONS:
        return body["choices"][0]["text"]
    if path == MESSAGES:
        return "".join(block.get("text", "") for block in body["content"])
    return "".join(part["text"] for item in body["output"] if item["type"] == "message" for part in item["content"])


@pytest.mark.parametrize("path", MINIMAL)
def test_null_counts_as_left_out_and_no_model_must_be_named(talking, path):
    names = "model temperature top_p top_k stop stream tools tool_choice metadata max_completion_tokens response_format"
    names += " logit_bias logprobs top_logprobs seed n stream_options parallel_tool_calls frequency_penalty document"
    names += " presence_penalty reasoning text store include instructions stop_sequences thinking system output_config"
    response = ask(talking, path, **{name: None for name in names.split() if name not in MINIMAL[path]})
    assert response.status_code == 200, response.text
    assert ANSWER in text_of(path, response.json())
    assert "x-octavo-ignored" not in response.headers


@pytest.mark.parametrize(
    ("path", "more"),
    [
        (CHAT, {"max_tokens": -1}),
        (CHAT, {"max_completion_tokens": -1, "top_k": -1}),
        (CHAT, {"stop": [], "n": 1, "tools": [], "tool_choice": "auto"}),
        (COMPLETIONS, {"max_tokens": -1, "top_k": -1}),
        (RESPONSES, {"max_output_tokens": -1, "store": False}),
        (MESSAGES, {"top_k": -1, "metadata": {"user_id": "me"}}),
        (CHAT, {"messages": [{"role": "system", "content": "Be brief."}, *HELLO]}),
        (
            MESSAGES,
            {
                "messages": [
                    *HELLO,
                    {"role": "assistant", "content": "Yes?"},
                    {"role": "system", "content": "Be brief."},
                    *HELLO,
                ]
            },
        ),
    ],
)
def test_forms_of_other_servers_are_taken(talking, path, more):
    response = ask(talking, path, **more)
    assert response.status_code == 200, response.text
    assert text_of(path, response.json()) == ANSWER


def test_an_answer_of_no_tokens_is_empty(talking):
    answer = ask(talking, CHAT, max_tokens=0).json()
    assert (answer["choices"][0]["message"]["content"], answer["usage"]["completion_tokens"]) == ("", 0)
    assert answer["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize(
    "choice",
    [
        "required",
        "any",
        {"type": "any"},
        {"type": "required"},
        {"type": "function", "function": {"name": "time"}},
        {"type": "function", "name": "time"},
        {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [TOOLS[1]]}},
        {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "time"}]},
    ],
)
def test_forms_of_tool_choice_are_taken(talking, choice):
    answer = ask(talking, CHAT, tools=TOOLS, tool_choice=choice).json()["choices"][0]["message"]
    [call] = answer["tool_calls"]
    assert call["function"]["name"] in (("time",) if "time" in json.dumps(choice) else ("weather", "time"))


@pytest.mark.parametrize("choice", ["auto", "none", {"type": "auto"}, {"type": "none"}])
def test_no_call_is_forced_by_other_choices(talking, choice):
    assert ask(talking, CHAT, tools=TOOLS, tool_choice=choice).json()["choices"][0]["message"]["content"] == ANSWER


@pytest.mark.parametrize(
    "choice",
    [
        *("sometimes", 5, [], {}, {"type": "nonsense"}, {"type": []}, {"type": {"a": 1}}),
        {"type": "allowed_tools", "allowed_tools": 5},
        {"type": "allowed_tools", "tools": [{"type": []}]},
    ],
)
def test_a_choice_of_no_known_form_is_refused(talking, choice):
    status, error = talking.refused(CHAT, **MINIMAL[CHAT], tools=TOOLS, tool_choice=choice)
    assert (status, error["param"]) == (400, "tool_choice")


def test_biases_are_of_tokens_or_texts_as_objects_or_pairs(talking):
    [token] = talking.post("/tokenize", content=ANSWER[0])["tokens"]
    for bias in ({str(token): -100}, [[token, -100]], [[token, False]], {ANSWER[0]: -100}, [[ANSWER[0], False]]):
        answer = ask(talking, CHAT, logit_bias=bias, max_tokens=1).json()["choices"][0]["message"]["content"]
        assert answer != ANSWER[0]
    assert ask(talking, CHAT, logit_bias=[[1 << 30, 1]]).status_code == 400


def test_tokens_of_a_chat_are_counted(talking):
    n_tokens = talking.post(f"{CHAT}/input_tokens", **MINIMAL[CHAT])["input_tokens"]
    answer = ask(talking, CHAT, max_tokens=1).json()
    assert answer["usage"]["prompt_tokens"] == n_tokens
    assert answer["timings"]["predicted_per_second"] == 0  # one token takes no step


def test_logprobs_may_be_a_number(talking):
    answer = ask(talking, CHAT, logprobs=2, max_tokens=1).json()["choices"][0]
    assert len(answer["logprobs"]["content"][0]["top_logprobs"]) == 2
    assert ask(talking, CHAT, logprobs=True, max_tokens=1).json()["choices"][0]["logprobs"]["content"]
    assert ask(talking, CHAT, logprobs=False, max_tokens=1).json()["choices"][0]["logprobs"] is None


@pytest.mark.parametrize(
    "more",
    [
        {"response_format": {"type": "json_object", "schema": {"enum": ["W"]}}},
        {"response_format": {"type": "json_schema", "schema": {"enum": ["W"]}}},
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"enum": ["W"]}}}},
        {"json_schema": {"enum": ["W"]}},
        {"grammar": 'root ::= "\\"" letter "\\""\nletter ::= [W]'},
    ],
)
def test_forms_of_an_answers_form_are_taken(talking, more):
    assert ask(talking, CHAT, **more).json()["choices"][0]["message"]["content"] == '"W"'


def test_a_grammar_that_cannot_be_read_is_refused(talking):
    status, error = talking.refused(CHAT, **MINIMAL[CHAT], grammar="root ::= (((")
    assert (status, error["param"]) == (400, "grammar")
    assert talking.refused(CHAT, **MINIMAL[CHAT], grammar="root ::= " + "x" * 100_000)[0] == 400


@pytest.mark.parametrize(
    "path", ["/chat/completions", "/v1//chat/completions", "//v1/chat/completions", "/v1/v1/chat/completions"]
)
def test_paths_may_differ_in_slashes_and_prefix(talking, path):
    answer = talking.client.post(path, json=MINIMAL[CHAT]).json()
    assert answer["choices"][0]["message"]["content"] == ANSWER
    assert talking.client.get(path.replace("chat/completions", "models")).status_code == 200


def test_other_paths_stay_unknown(talking):
    assert talking.client.post("/v1/v1/nothing", json={}).status_code == 404
    assert talking.client.post("/v1/v1/tokenize", json={"content": "a"}).status_code == 200
    assert talking.client.head("/health").status_code == 200
    assert talking.client.get("/favicon.ico").status_code == 204


def test_what_is_ignored_is_named(talking):
    ignored = ask(talking, CHAT, service_tier="auto", user="me").headers["x-octavo-ignored"]
    assert ignored == "service_tier, user"
    search = [{"type": "web_search"}, {"type": "function", "name": "time", "parameters": PARAMETERS}]
    response = ask(talking, RESPONSES, tools=[*search, {"type": "local_shell"}])
    assert response.headers["x-octavo-ignored"] == "tools.web_search, tools.local_shell"
    server = [{"type": "web_search_20250305", "name": "web_search"}]
    assert ask(talking, MESSAGES, tools=server).headers["x-octavo-ignored"] == "tools.web_search_20250305"
    schema = {"type": "string", "not": {"const": "W"}}
    response = ask(talking, CHAT, response_format={"type": "json_object", "schema": schema})
    assert "not" in response.headers["x-octavo-ignored"]


def test_overlong_prompts_are_refused_in_words_that_clients_know(talking):
    text, n_ctx = "Hello. " * 3000, talking.server.engine.llama.context.n_ctx()
    status, error = talking.refused(CHAT, messages=[{"role": "user", "content": text}])
    assert (status, error["code"]) == (400, "context_length_exceeded")
    assert f"This model's maximum context length is {n_ctx} tokens" in error["message"]
    assert error["n_ctx"] == n_ctx < error["n_prompt_tokens"]  # as llama.cpp's clients look for them
    for longer in (text, text * 200):
        _, error = talking.refused(MESSAGES, messages=[{"role": "user", "content": longer}], max_tokens=5)
        assert error["message"].startswith("prompt is too long: ")
        assert f"tokens > {n_ctx} maximum" in error["message"]


def test_a_response_continues_one_that_is_kept(talking):
    first = ask(talking, RESPONSES, instructions="Be brief.").json()
    assert first["store"] is True
    second = ask(talking, RESPONSES, previous_response_id=first["id"], input="And now?").json()
    assert second["previous_response_id"] == first["id"]
    conversation = [
        {"role": "user", "content": "Hello."},
        {"role": "assistant", "content": ANSWER},
        {"role": "user", "content": "And now?"},
    ]
    n_tokens = talking.post("/v1/responses/input_tokens", input=conversation)["input_tokens"]
    assert second["usage"]["input_tokens"] == n_tokens > first["usage"]["input_tokens"]
    assert talking.client.get(f"/v1/responses/{first['id']}").json() == first
    assert talking.client.delete(f"/v1/responses/{first['id']}").json()["deleted"] is True
    assert talking.client.get(f"/v1/responses/{first['id']}").status_code == 404
    status, error = talking.refused(RESPONSES, input="x", previous_response_id=first["id"])
    assert (status, error["code"]) == (404, "not_found")
    unkept = ask(talking, RESPONSES, store=False).json()
    assert talking.client.get(f"/v1/responses/{unkept['id']}").status_code == 404
    streamed = talking.stream(RESPONSES, **MINIMAL[RESPONSES])[-1]["response"]
    assert talking.client.get(f"/v1/responses/{streamed['id']}").json() == streamed


def test_tools_that_take_free_text_are_called_with_it(talking):
    tools = [{"type": "custom", "name": "apply_patch", "description": "Change files."}]
    response = ask(talking, RESPONSES, tools=tools, tool_choice="required").json()
    [call] = response["output"]
    assert (call["type"], call["name"], call["input"]) == ("custom_tool_call", "apply_patch", "W")
    kinds = [event["type"] for event in talking.stream(RESPONSES, input="Hi", tools=tools, tool_choice="required")]
    assert kinds[3:5] == ["response.custom_tool_call_input.delta", "response.custom_tool_call_input.done"]
    output = {"type": "custom_tool_call_output", "call_id": call["call_id"], "output": "Done."}
    after = [{"role": "user", "content": "Hi"}, call, output, {"type": "web_search_call", "id": "ws_1"}]
    response = ask(talking, RESPONSES, input=after, tools=tools)
    assert text_of(RESPONSES, response.json()) == ANSWER
    assert response.headers["x-octavo-ignored"] == "input.web_search_call"


def test_messages_have_a_list_of_citations_and_count_at_their_start(talking):
    assert ask(talking, MESSAGES).json()["content"] == [{"type": "text", "text": ANSWER, "citations": []}]
    events = talking.stream(MESSAGES, **MINIMAL[MESSAGES])
    n_tokens = talking.post("/v1/messages/count_tokens", messages=HELLO)["input_tokens"]
    assert events[0]["message"]["usage"]["input_tokens"] == n_tokens
    block = next(event["content_block"] for event in events if event["type"] == "content_block_start")
    assert block == {"type": "text", "text": "", "citations": []}


def test_a_header_of_bills_changes_no_prompt(talking):
    def n_tokens(*texts):
        system = [{"type": "text", "text": text} for text in texts]
        return talking.post("/v1/messages/count_tokens", messages=HELLO, system=system)["input_tokens"]

    assert n_tokens("x-anthropic-billing-header: cc_version=2; cch=ab12;", "Be brief.") == n_tokens("Be brief.")


def test_answers_of_messages_have_the_form_of_a_schema(talking):
    form = {"type": "json_schema", "schema": {"enum": ["W"]}}
    for more in ({"output_config": {"format": form}}, {"output_format": form}):
        assert text_of(MESSAGES, ask(talking, MESSAGES, **more).json()) == '"W"'


def test_blocks_of_messages_are_read_or_refused(talking):
    found = {
        "type": "search_result",
        "title": "Ships",
        "source": "x.org",
        "content": [{"type": "text", "text": "Ebb."}],
    }
    assert ask(talking, MESSAGES, messages=[{"role": "user", "content": [found]}]).status_code == 200
    call = {"type": "tool_use", "id": "a", "name": "see", "input": {}}
    picture = {"type": "image", "source": {"type": "base64", "data": "", "media_type": "image/png"}}
    result = {"type": "tool_result", "tool_use_id": "a", "content": [picture, {"type": "text", "text": "A ship."}]}
    seen = [*HELLO, {"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    assert ask(talking, MESSAGES, messages=seen).status_code == 200
    url = {"type": "document", "source": {"type": "url", "url": "http://localhost/a.pdf"}}
    status, error = talking.refused(MESSAGES, max_tokens=5, messages=[{"role": "user", "content": [url]}])
    assert (status, error["message"]) == (400, "octavo fetches no url: send the document itself, or upload it.")
