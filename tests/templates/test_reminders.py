"""Conversations of agents, by each chat template of llama-cpp-python's source archive: no text is refused or lost."""

import os
from pathlib import Path

import pytest
from helpers import tiny_models

import octavo

FOLDER = os.environ.get("OCTAVO_TEST_TEMPLATES")
SOURCES = {path.stem: path for path in sorted(Path(FOLDER).glob("*.jinja"))} if FOLDER else {}
pytestmark = pytest.mark.skipif(not FOLDER, reason="`make test-templates` runs it")

PARAMETERS = {"type": "object", "properties": {"path": {"type": "string"}}}
TOOLS = [{"type": "function", "function": {"name": "look_up", "description": "Looks.", "parameters": PARAMETERS}}]
CALL = {"id": "toolu_0123456789", "type": "function", "function": {"name": "look_up", "arguments": '{"path": "/a"}'}}


def message(role, text, **more):
    return {"role": role, "content": text, **more}


ASKED = [message("system", "Be kind."), message("user", "Who came?"), message("system", "It rains.")]
CALLED = [message("assistant", "", tool_calls=[CALL]), message("tool", "Nobody.", tool_call_id=CALL["id"])]
#: Claude Code sends reminders, and Codex several messages of the user.
CASES = {
    "a reminder after the question": ASKED,
    "a call after it": [*ASKED, *CALLED],
    "a reminder after a result": [*ASKED[:2], *CALLED, ASKED[2]],
    "a second turn": [*ASKED, *CALLED, message("assistant", "Nobody came."), message("user", "And now?")],
    "two messages of the user": [ASKED[0], message("user", "At home."), ASKED[1], *CALLED],
}


@pytest.mark.parametrize("name", SOURCES)
def test_conversations_of_agents_are_whole(name, tmp_path):
    path = tiny_models.write_model(tmp_path / "t.gguf", "llama", n_layer=1, chat_template=SOURCES[name].read_text())
    llama = octavo.Llama(path, n_ctx=512, n_threads=1)
    try:
        prompt = llama.prompt(has_document=False)
        for case, messages in CASES.items():
            told = llama.detokenize(prompt.tokens(messages, TOOLS), special=True).decode()
            texts = [each["content"] for each in messages if each["content"]]
            assert [text for text in texts if text not in told] == [], case
            places = [told.rindex(each["content"]) for each in messages if each["content"] and each != ASKED[0]]
            assert places == sorted(places), case
    finally:
        llama.close()
