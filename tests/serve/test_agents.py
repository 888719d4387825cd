"""Sessions of Claude Code and of Codex: requests as they send them, one turn after another."""

import copy

from helpers.talking_model import ANSWER

READ = {
    "name": "Read",
    "description": "Reads a file.",
    "input_schema": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "file_path": {"description": "The absolute path.", "type": "string"},
            "offset": {"type": "integer", "minimum": 0, "maximum": 9007199254740991},
        },
        "required": ["file_path"],
        "additionalProperties": False,
    },
}
SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}
CACHED = {"type": "ephemeral"}


def claude_code(turn, messages):
    """A request of Claude Code; the header of bills is another in each turn."""
    return {
        "model": "claude-sonnet-4-6",
        "max_tokens": 40,
        "system": [
            {
                "type": "text",
                "text": f"x-anthropic-billing-header: cc_version=2.1.154; cc_entrypoint=cli; cch={turn:05x};",
            },
            {"type": "text", "text": "You are Claude Code, Anthropic's official CLI.", "cache_control": CACHED},
            {"type": "text", "text": "Be concise. " * 20, "cache_control": CACHED},
        ],
        "messages": messages,
        "tools": [READ, SEARCH],
        "metadata": {"user_id": "user_1_account__session_2"},
        "thinking": {"type": "adaptive"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "medium"},
        "stream": True,
    }


def text(said, **more):
    return {"type": "text", "text": said, **more}


def answered(events):
    """The blocks of a streamed answer, and its usage."""
    blocks = [event["content_block"] for event in events if event["type"] == "content_block_start"]
    for event in events:
        if event["type"] == "content_block_delta" and event["delta"]["type"] == "text_delta":
            blocks[event["index"]]["text"] += event["delta"]["text"]
    return blocks, next(event for event in events if event["type"] == "message_delta")["usage"]


def test_a_session_of_claude_code(talking):
    reminder = text("<system-reminder>\nToday's date is 2026-11-27.\n</system-reminder>")
    asked = [{"role": "user", "content": [reminder, text("What is in a.txt?", cache_control=CACHED)]}]
    counted = {name: value for name, value in claude_code(0, asked).items() if name not in ("stream", "max_tokens")}
    response = talking.client.post("/v1/messages/count_tokens?beta=true", json=counted)
    assert response.status_code == 200, response.text
    n_tokens = response.json()["input_tokens"]

    events = talking.stream("/v1/messages?beta=true", **claude_code(1, asked))
    assert events[0]["message"]["usage"]["input_tokens"] == n_tokens
    blocks, usage = answered(events)
    assert [block["text"] for block in blocks if block["type"] == "text"] == [ANSWER]
    assert usage["input_tokens"] + usage["cache_read_input_tokens"] == n_tokens

    used = {"type": "tool_use", "id": "toolu_01", "name": "Read", "input": {"file_path": "/a.txt"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_01", "content": "1\\tA ship.", "cache_control": CACHED}
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
    shown = {
        "type": "tool_result",
        "tool_use_id": "toolu_02",
        "content": [picture, text("A chart.")],
        "is_error": False,
    }
    turns = [
        *asked,
        {"role": "assistant", "content": [text(ANSWER), used, {**used, "id": "toolu_02"}]},
        {"role": "user", "content": [result, shown]},
        {"role": "system", "content": "The user has sent a new message while you worked."},
        {"role": "user", "content": [text("And now?", cache_control=CACHED)]},
    ]
    _, usage = answered(talking.stream("/v1/messages?beta=true", **claude_code(2, turns)))
    assert usage["cache_read_input_tokens"] > 0.9 * n_tokens  # though the header of bills has changed
    response = talking.client.post("/v1/messages?beta=true", json={**claude_code(3, turns), "stream": False})
    assert response.headers["x-octavo-ignored"] == "context_management, metadata, tools.web_search_20250305"

    [*_, last] = long = copy.deepcopy(turns)
    last["content"][0]["text"] = "And now? " * 4000
    status, error = talking.refused("/v1/messages?beta=true", **{**claude_code(4, long), "stream": False})
    assert (status, error["type"]) == (400, "invalid_request_error")
    assert error["message"].startswith("prompt is too long: ")


def codex(items, **more):
    """A request of Codex."""
    return {
        "model": "gpt-5.1-codex",
        "instructions": "You are Codex, a coding agent. " * 10,
        "input": items,
        "tools": [
            {
                "type": "function",
                "name": "shell",
                "description": "Runs a command.",
                "strict": False,
                "parameters": {
                    "type": "object",
                    "properties": {"command": {"type": "array", "items": {"type": "string"}}},
                    "required": ["command"],
                    "additionalProperties": False,
                },
            },
            {
                "type": "custom",
                "name": "apply_patch",
                "description": "Changes files.",
                "format": {"type": "grammar", "syntax": "lark", "definition": 'start: "*** Begin Patch"'},
            },
            {"type": "web_search", "external_web_access": True},
            {"type": "local_shell"},
        ],
        "tool_choice": "auto",
        "parallel_tool_calls": False,
        "reasoning": {"effort": "medium", "summary": "auto"},
        "store": False,
        "stream": True,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "0199",
        "text": {"verbosity": "medium"},
        **more,
    }


def said(role, words):
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": words}]}


def test_a_session_of_codex(talking):
    items = [
        said("developer", "<permissions>read-only</permissions>"),
        said("user", "<environment_context>/home/me</environment_context>"),
        said("user", "What is in a.txt?"),
    ]
    events = talking.stream("/v1/responses", **codex(items))
    first = events[-1]["response"]
    assert (events[-1]["type"], first["status"]) == ("response.completed", "completed")
    [message] = [item for item in first["output"] if item["type"] == "message"]
    assert message["content"][0]["text"] == ANSWER

    items += [
        *first["output"],
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "Hm."}],
            "encrypted_content": "x",
        },
        {"type": "function_call", "call_id": "c1", "name": "shell", "arguments": '{"command": ["cat", "a.txt"]}'},
        {"type": "function_call_output", "call_id": "c1", "output": "A ship."},
        {
            "type": "custom_tool_call",
            "call_id": "c2",
            "name": "apply_patch",
            "input": "*** Begin Patch\\n*** End Patch",
        },
        {"type": "custom_tool_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "Done."}]},
        {
            "type": "local_shell_call",
            "call_id": "c3",
            "status": "completed",
            "action": {"type": "exec", "command": ["ls"]},
        },
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "x"}},
        said("user", "And now?"),
    ]
    second = talking.stream("/v1/responses", **codex(items))[-1]["response"]
    assert second["status"] == "completed"
    assert second["usage"]["input_tokens_details"]["cached_tokens"] > 0.8 * first["usage"]["input_tokens"]
    response = talking.client.post("/v1/responses", json=codex(items, stream=False))
    ignored = response.headers["x-octavo-ignored"].split(", ")
    assert {"tools.web_search", "tools.local_shell", "input.local_shell_call", "input.web_search_call"} <= {*ignored}
    tools = codex(items)["tools"]
    assert talking.client.post("/v1/responses", json=codex(items, stream=False)).json()["tools"][1] == tools[1]
