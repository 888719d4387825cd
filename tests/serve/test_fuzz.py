"""Requests that are changed at random: none fails the server, ends its process, or harms another client's stream."""

import json
import random
import threading

import pytest
from helpers.changed_bodies import changed
from helpers.talking_model import ANSWER

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 20},
        "days": {"type": "array", "items": {"$ref": "#/$defs/day"}},
    },
    "required": ["city"],
    "$defs": {"day": {"enum": ["Monday", 2, None]}},
}
FUNCTION = {"name": "weather", "description": "Tell.", "parameters": SCHEMA}
TOOLS = [{"type": "function", "function": FUNCTION}, {"type": "web_search"}]
HELLO = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "Hello."}]}]
CALL = {"id": "a", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
CALLED = [
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "a", "content": "Fog."},
]
USED = {"type": "tool_use", "id": "a", "name": "weather", "input": {"city": "Oslo"}}
RESULT = {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "Fog."}]}

ALLOWED = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": TOOLS[:1]}}

#: Requests as clients send them.
REQUESTS = [
    ("/v1/chat/completions", {"model": "m", "messages": HELLO, "max_tokens": 4, "temperature": 0.5, "seed": 1}),
    ("/v1/chat/completions", {"messages": [*HELLO, *CALLED], "tools": TOOLS, "tool_choice": "auto", "max_tokens": 4}),
    ("/v1/chat/completions", {"messages": HELLO, "tools": TOOLS, "tool_choice": "required", "max_tokens": 4, "n": 2}),
    ("/v1/chat/completions", {"messages": HELLO, "tools": TOOLS, "tool_choice": ALLOWED, "max_tokens": 4}),
    (
        "/v1/chat/completions",
        {
            "messages": HELLO,
            "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}},
            "max_tokens": 4,
        },
    ),
    (
        "/v1/chat/completions",
        {
            "messages": HELLO,
            "logit_bias": {"5": 1},
            "logprobs": True,
            "top_logprobs": 2,
            "stop": ["."],
            "max_tokens": 4,
        },
    ),
    ("/v1/chat/completions", {"messages": HELLO, "grammar": 'root ::= "a" [b-d]*', "max_tokens": 4, "stream": True}),
    ("/v1/completions", {"prompt": "Hello.", "max_tokens": 4, "echo": True, "logprobs": 1, "stop": "x"}),
    (
        "/v1/completions",
        {"prompt": [[5, 6], [7]], "max_tokens": 2, "n": 2, "stream": True, "stream_options": {"include_usage": True}},
    ),
    ("/v1/messages", {"messages": HELLO[1:], "system": [{"type": "text", "text": "Be brief."}], "max_tokens": 4}),
    (
        "/v1/messages",
        {
            "messages": [*HELLO[1:], {"role": "assistant", "content": [USED]}, {"role": "user", "content": [RESULT]}],
            "tools": [{"name": "weather", "input_schema": SCHEMA}],
            "tool_choice": {"type": "any"},
            "max_tokens": 4,
            "thinking": {"type": "enabled", "budget_tokens": 2},
        },
    ),
    (
        "/v1/messages/count_tokens",
        {"messages": HELLO[1:], "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
    ),
    (
        "/v1/responses",
        {
            "input": [
                {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello."}]},
                {"type": "function_call", "call_id": "a", "name": "weather", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "a", "output": "Fog."},
                {"type": "reasoning", "summary": []},
            ],
            "tools": [{"type": "function", **FUNCTION}, {"type": "custom", "name": "patch"}],
            "max_output_tokens": 4,
        },
    ),
    (
        "/v1/responses",
        {
            "input": "Hello.",
            "text": {"format": {"type": "json_schema", "name": "a", "schema": SCHEMA}},
            "max_output_tokens": 4,
            "stream": True,
        },
    ),
    (
        "/v1/responses",
        {
            "input": [{"role": "user", "content": "Hello."}, {"type": "item_reference", "id": "msg_a"}],
            "tools": [
                {
                    "type": "file_search",
                    "vector_store_ids": ["vs_a"],
                    "filters": {"type": "and", "filters": [{"type": "eq", "key": "a", "value": 1}]},
                    "ranking_options": {"score_threshold": 0.5},
                }
            ],
            "include": ["file_search_call.results"],
            "max_output_tokens": 4,
        },
    ),
    ("/v1/responses", {"input": "Hello.", "conversation": {"id": "conv_a"}, "max_output_tokens": 4}),
    ("/v1/conversations", {"items": [{"role": "user", "content": "Hello."}, CALL], "metadata": {"a": "b"}}),
    ("/v1/vector_stores", {"name": "a", "description": "b", "metadata": {"c": "d"}, "file_ids": []}),
    ("/api/pull", {"model": "tiny", "stream": False}),
    ("/v1/embeddings", {"input": ["Hello.", "Ship."], "encoding_format": "base64"}),
    ("/api/chat", {"model": "m", "messages": [{"role": "user", "content": "Hello."}], "options": {"num_predict": 4}}),
    ("/api/chat", {"messages": CALLED[1:], "tools": TOOLS, "format": SCHEMA, "think": True, "stream": False}),
    ("/api/generate", {"prompt": "Hello.", "system": "Be brief.", "options": {"num_predict": 4, "stop": ["x"]}}),
    ("/api/embed", {"input": ["Hello.", "Ship."], "truncate": True}),
    ("/api/show", {"model": "m", "verbose": False}),
    ("/completion", {"prompt": ["Hello.", 5], "n_predict": 4, "n_probs": 2, "logit_bias": [[5, 1.0], ["a", False]]}),
    ("/completion", {"prompt": "Hello.", "n_predict": 4, "json_schema": SCHEMA, "stream": True, "return_tokens": True}),
    ("/infill", {"input_prefix": "a = ", "input_suffix": "\n", "input_extra": [{"filename": "a.py", "text": "b"}]}),
    ("/apply-template", {"messages": HELLO}),
    ("/tokenize", {"content": "Hello.", "add_special": True}),
    ("/detokenize", {"tokens": [5, 6, 7]}),
]

#: Names of the limit of an answer's tokens.
LIMITS = {"/v1/responses": "max_output_tokens", "/completion": "n_predict", "/infill": "n_predict"}


def fuzz(served, rng, n_requests):
    """Send requests; returns those that fail the server."""
    failed = []
    for _ in range(n_requests):
        path, body = rng.choice(REQUESTS)
        body = changed(rng, body)
        if isinstance(body, dict) and path != "/v1/embeddings":  # no answer is long
            name = LIMITS.get(path, "max_tokens")
            if not isinstance(body.get(name), int) or not 0 <= body[name] < 50:
                body[name] = 3
        content = json.dumps(body)
        response = served.client.post(path, content=content, headers={"content-type": "application/json"})
        if response.status_code >= 500 and response.status_code != 503:
            failed.append((path, content[:500], response.status_code, response.text[:200]))
    return failed


def run(served, seed, n_requests):
    """Fuzz a server while a client streams one answer after another."""
    done, answers = threading.Event(), []

    def stream():
        while not done.is_set():
            events = served.stream("/v1/chat/completions", messages=[{"role": "user", "content": "Hello."}])
            answers.append("".join(event["choices"][0]["delta"].get("content") or "" for event in events))

    client = threading.Thread(target=stream)
    client.start()
    try:
        failed = fuzz(served, random.Random(seed), n_requests)
    finally:
        done.set()
        client.join()
    assert failed == []
    assert len(answers) > 1
    assert set(answers) == {ANSWER}
    assert served.server.engine.n_running == 0


def test_changed_requests_harm_nobody(talking, request):
    run(talking, request.config.getoption("--case-seed"), 300)


@pytest.mark.slow
def test_many_changed_requests_harm_nobody(talking):
    run(talking, 1, 5000)
