"""Sessions of Claude Code 2.1 and Codex 0.171, in the form in which they send them; each text is ours.

`make test-clients` runs the programs themselves. Here a tiny model calls their tools, and the tests send the results.
"""

import copy
import json

import pytest
from helpers import agent_model
from helpers.agent_model import call_text
from helpers.served import serving

ANSWER = "".join(agent_model.ANSWER)
SCHEMA = "https://json-schema.org/draft/2020-12/schema"
#: The tools of Claude Code have names, descriptions and schemas of all kinds.
READ = {
    "name": "Read",
    "description": "Reads a file.\n\n- Give the whole path.\n- Lines are numbered.",
    "input_schema": {
        "$schema": SCHEMA,
        "type": "object",
        "properties": {
            "file_path": {"description": "The whole path.", "type": "string"},
            "offset": {"type": "integer", "minimum": 0, "maximum": 9007199254740991},
            "limit": {"type": "integer", "exclusiveMinimum": 0, "maximum": 9007199254740991},
        },
        "required": ["file_path"],
        "additionalProperties": False,
    },
}
PLAN = {
    "name": "Plan",
    "description": "Makes a plan.",
    "input_schema": {
        "$schema": SCHEMA,
        "type": "object",
        "properties": {
            "steps": {
                "type": "array",
                "maxItems": 32,
                "items": {"type": "object", "properties": {"what": {"type": "string", "maxLength": 2000}}},
            },
            "labels": {"type": "object", "propertyNames": {"type": "string"}, "additionalProperties": {}},
            "when": {"anyOf": [{"type": "string", "const": "now"}, {"type": "string", "pattern": "^\\d+m$"}]},
            "page": {
                "anyOf": [{"type": "string", "format": "uri"}, {"type": "null"}],
                "default": None,
                "title": "Page",
            },
        },
        "required": ["steps"],
        "additionalProperties": False,
    },
}
SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}
CACHED = {"type": "ephemeral"}
HEADERS = {
    "anthropic-beta": "claude-code-20250219,interleaved-thinking-2025-05-14,mid-conversation-system-2026-04-07",
    "anthropic-dangerous-direct-browser-access": "true",
    "anthropic-version": "2023-06-01",
    "x-api-key": "none",
    "x-app": "cli",
    "user-agent": "claude-cli/2.1.197 (external, sdk-cli)",
}
MESSAGES = "/v1/messages?beta=true"


@pytest.fixture(scope="module")
def agent(real_model, tmp_path_factory):
    """A server on a model that reads a file by both tools, then answers."""
    folder = tmp_path_factory.mktemp("agent")
    sayings = [
        ("Read", call_text("Read", file_path="/a.txt") + call_text("Read", file_path="/b.png")),
        ("mcp__ships__count", call_text("mcp__ships__count", unit="ship")),
        ("apply_patch", call_text("apply_patch", input="*** Begin Patch\n*** End Patch")),
    ]
    model = agent_model.write_model(folder / "agent.gguf", sayings, real_model)
    with serving(model, folder, n_ctx=8192) as server:
        server.client.headers.update(HEADERS)
        yield server


def claude_code(turn, messages):
    """A request of Claude Code; the header of bills is another in each session."""
    return {
        "model": "claude-opus-4-8",
        "messages": messages,
        "system": [
            {"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.1.197.{turn:03x}; cc_entrypoint=cli;"},
            {"type": "text", "text": "You work on code.", "cache_control": CACHED},
            {"type": "text", "text": "\nBe concise. " * 20, "cache_control": CACHED},
        ],
        "tools": [READ, PLAN, SEARCH],
        "metadata": {"user_id": '{"device_id":"1","account_uuid":"","session_id":"2"}'},
        "max_tokens": 64000,
        "thinking": {"type": "adaptive"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "high"},
        "stream": True,
    }


def text(said, **more):
    return {"type": "text", "text": said, **more}


def answered(events):
    """The blocks of a streamed answer as a client puts them together, and its usage."""
    blocks = [event["content_block"] for event in events if event["type"] == "content_block_start"]
    for event in events:
        if event["type"] == "content_block_delta":
            delta, block = event["delta"], blocks[event["index"]]
            if delta["type"] == "text_delta":
                block["text"] += delta["text"]
            elif delta["type"] == "input_json_delta":
                block["input"] = json.loads(delta["partial_json"])
    assert [event["type"] for event in events[-2:]] == ["message_delta", "message_stop"]
    return blocks, events[-2]["usage"]


def test_a_session_of_claude_code(agent):
    assert agent.client.head("/").status_code == 200  # it looks whether there is a server
    asked = [
        {"role": "user", "content": [text("<system-reminder>\nToday.\n</system-reminder>"), text("What is there?")]},
        {"role": "system", "content": "Types of agents:\n- one that searches"},
    ]
    marked = copy.deepcopy(asked)
    marked[0]["content"][-1]["cache_control"] = CACHED  # the last message of a request has the mark
    counted = {name: value for name, value in claude_code(0, asked).items() if name not in ("stream", "max_tokens")}
    n_tokens = agent.post("/v1/messages/count_tokens?beta=true", **counted)["input_tokens"]

    events = agent.stream(MESSAGES, **claude_code(1, marked))
    assert events[0]["message"]["usage"]["input_tokens"] == n_tokens
    calls, usage = answered(events)
    assert [(call["name"], call["input"]) for call in calls] == [
        ("Read", {"file_path": "/a.txt"}),
        ("Read", {"file_path": "/b.png"}),
    ]
    assert (usage["input_tokens"], usage["cache_read_input_tokens"]) == (n_tokens, 0)

    used = [{name: call[name] for name in ("type", "id", "name", "input")} for call in calls]
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
    results = [
        {"tool_use_id": used[0]["id"], "type": "tool_result", "content": "1\tA ship.\n"},
        {
            "tool_use_id": used[1]["id"],
            "type": "tool_result",
            "content": [picture, text("A chart.")],
            "is_error": False,
        },
    ]
    turns = [*asked, {"role": "assistant", "content": used}, {"role": "user", "content": results}]
    _, usage = answered(agent.stream(MESSAGES, **claude_code(1, turns)))
    assert usage["cache_read_input_tokens"] >= n_tokens  # each call is as the model wrote it
    assert usage["input_tokens"] < 120

    turns += [
        {"role": "assistant", "content": [text(ANSWER)]},
        {"role": "user", "content": [text("And now?")]},
        {"role": "system", "content": "The user looks at a.txt."},
    ]
    _, later = answered(agent.stream(MESSAGES, **claude_code(2, turns)))
    assert later["cache_read_input_tokens"] >= n_tokens + usage["input_tokens"]  # though the header of bills changed
    response = agent.client.post(MESSAGES, json={**claude_code(3, turns), "stream": False})
    assert response.headers["x-octavo-ignored"] == "context_management, metadata, tools.web_search_20250305"

    [*_, last] = long = copy.deepcopy(turns[:-1])
    last["content"][0]["text"] = "And now? " * 4000
    status, error = agent.refused(MESSAGES, **{**claude_code(4, long), "stream": False})
    assert (status, error["type"]) == (400, "invalid_request_error")
    assert error["message"].startswith("prompt is too long: ")
    assert " tokens > 8192 maximum" in error["message"]  # Claude Code takes the numbers from these words


def function(name, **properties):
    parameters = {"type": "object", "properties": properties, "additionalProperties": False}
    return {"type": "function", "name": name, "description": "Does it.", "strict": False, "parameters": parameters}


PATCH = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Changes files.",
    "format": {"type": "grammar", "syntax": "lark", "definition": 'start: "*** Begin Patch"'},
}
#: Tools of MCP servers come in namespaces.
SHIPS = {
    "type": "namespace",
    "name": "mcp__ships",
    "description": "Counts ships.",
    "tools": [function("count", unit={"anyOf": [{"type": "string"}, {"type": "null"}]}), function("list")],
}


def codex(items, **more):
    """A request of Codex: it has no `instructions`, and its first messages are a developer's."""
    return {
        "model": "gpt-6-sol",
        "stream": True,
        "input": items,
        "tools": [
            function("Read", file_path={"type": "string"}),
            PATCH,
            SHIPS,
            {"type": "web_search", "external_web_access": False},
            {"type": "local_shell"},
        ],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "reasoning": {"summary": "auto"},
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "0199",
        "client_metadata": {"thread_id": "0199", "x-codex-window-id": "0199:0"},
        **more,
    }


def said(role, words):
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "id": "msg_1", "role": role, "content": [{"type": kind, "text": words}]}


def output(call, words, kind="function_call_output"):
    return {"type": kind, "id": "fco_1", "call_id": call["call_id"], "output": words}


def responded(agent, items):
    """The items that a stream ends, and its usage."""
    events = agent.stream("/v1/responses", **codex(items))
    ended = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert (events[-1]["type"], events[-1]["response"]["output"]) == ("response.completed", ended)
    return ended, events[-1]["response"]["usage"]


def test_a_session_of_codex(agent):
    items = [
        said("developer", "You work on code. " * 40),
        said("developer", "<permissions>read-only</permissions>"),
        said("user", "<environment_context>/home/me</environment_context>"),
        said("user", "What is in a.txt?"),
    ]
    [first, second], usage = responded(agent, items)
    assert (first["type"], first["name"], json.loads(first["arguments"])) == (
        "function_call",
        "Read",
        {"file_path": "/a.txt"},
    )
    assert "namespace" not in first

    items += [first, second, output(first, "A ship."), output(second, [{"type": "input_text", "text": "A chart."}])]
    [counted], later = responded(agent, items)
    assert (counted["namespace"], counted["name"], counted["arguments"]) == ("mcp__ships", "count", '{"unit": "ship"}')
    assert later["input_tokens_details"]["cached_tokens"] >= usage["input_tokens"]  # two calls are one answer's

    items += [counted, output(counted, "Wall time: 0.02 seconds\nOutput:\n90")]
    [patched], last = responded(agent, items)
    assert (patched["type"], patched["input"]) == ("custom_tool_call", "*** Begin Patch\n*** End Patch")
    assert last["input_tokens_details"]["cached_tokens"] >= later["input_tokens"]

    items += [
        patched,
        output(patched, "Done.", "custom_tool_call_output"),
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]},
        {"type": "local_shell_call", "call_id": "c3", "status": "completed", "action": {"type": "exec"}},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "x"}},
        said("developer", "<permissions>writing is allowed</permissions>"),
        said("user", "And now?"),
    ]
    [message], usage = responded(agent, items)
    assert message["content"][0]["text"] == ANSWER
    assert usage["input_tokens_details"]["cached_tokens"] >= last["input_tokens"]  # the developer's stays in its place

    response = agent.client.post("/v1/responses", json=codex(items, stream=False))
    ignored = response.headers["x-octavo-ignored"].split(", ")
    assert {"tools.web_search", "tools.local_shell", "input.local_shell_call", "input.web_search_call"} <= {*ignored}
    assert "tools.namespace" not in ignored
    assert response.json()["tools"][1:3] == [PATCH, SHIPS]
    status, error = agent.refused("/v1/responses", **codex([said("user", "And now? " * 8000)], stream=False))
    assert (status, error["code"]) == (400, "context_length_exceeded")


def test_a_stream_of_responses_that_fails_says_so_in_the_words_of_codex(agent, monkeypatch):
    def fail(*_):
        raise RuntimeError("broken")

    monkeypatch.setattr(agent.server.engine.sequences, "begin", fail)
    told, failed = agent.stream("/v1/responses", **codex([said("user", "Hello.")]))[-2:]
    assert (told["type"], failed["type"]) == ("error", "response.failed")
    assert failed["sequence_number"] == told["sequence_number"] + 1
    assert failed["response"]["status"] == "failed"
    assert failed["response"]["error"] == {"code": "server_error", "message": told["message"]}
