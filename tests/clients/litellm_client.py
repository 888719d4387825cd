# /// script
# dependencies = ["litellm>=1.80"]
# ///
"""LiteLLM, by OpenAI's API and by Anthropic's."""

import json
import os
import sys

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # before it is imported: it would fetch prices
import litellm

URL, ANSWER = sys.argv[1:]
HELLO = [{"role": "user", "content": "Hello."}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
FORM = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"enum": ["W"]}, "strict": True}}
WAYS = [
    {"model": "openai/any", "api_base": f"{URL}/v1", "api_key": "none"},
    {"model": "anthropic/claude-any", "api_base": URL, "api_key": "none", "max_tokens": 200},
]
for way in WAYS:
    answer = litellm.completion(messages=HELLO, **way)
    assert answer.choices[0].message.content == ANSWER, answer
    pieces = [chunk.choices[0].delta.content or "" for chunk in litellm.completion(messages=HELLO, stream=True, **way)]
    assert "".join(pieces) == ANSWER, pieces
    called = litellm.completion(messages=HELLO, tools=[WEATHER], tool_choice="required", **way).choices[0]
    [call] = called.message.tool_calls
    assert json.loads(call.function.arguments) == {"city": "W"}, call
    result = {"role": "tool", "tool_call_id": call.id, "content": "Fog."}
    after = litellm.completion(messages=[*HELLO, called.message.model_dump(), result], tools=[WEATHER], **way)
    assert after.choices[0].message.content == ANSWER, after
    try:
        litellm.completion(messages=[{"role": "user", "content": "Hello. " * 5000}], **way)
    except litellm.ContextWindowExceededError:
        pass
    else:
        raise AssertionError("An overlong prompt was taken.")
assert litellm.completion(messages=HELLO, response_format=FORM, **WAYS[0]).choices[0].message.content == '"W"'
