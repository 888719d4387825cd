# npm: @openai/codex@>=0.171
"""Codex: a session of two questions, and a prompt that is too long."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

URL, ANSWER = sys.argv[1:]
CONFIGURATION = f"""
model = "any"
model_provider = "octavo"
[model_providers.octavo]
name = "octavo"
base_url = "{URL}/v1"
wire_api = "responses"
"""

with tempfile.TemporaryDirectory() as home:
    Path(home, "config.toml").write_text(CONFIGURATION)

    def ask(*arguments, told=""):
        command = ["codex", "exec", "--json", "--skip-git-repo-check", "--sandbox", "read-only", *arguments]
        environment = {**os.environ, "CODEX_HOME": home}
        done = subprocess.run(command, capture_output=True, text=True, input=told, env=environment)
        events = [json.loads(line) for line in done.stdout.splitlines()]
        items = [event["item"] for event in events if event["type"] == "item.completed"]
        return items, events[-1]

    items, end = ask("What is in a.txt?")
    assert [item["type"] for item in items if item["type"] != "error"] == ["command_execution", "agent_message"], items
    assert items[-1]["text"] == ANSWER, items
    usage = end["usage"]  # of two requests: the second one's prompt begins with the first one's
    assert usage["cached_input_tokens"] > 0.45 * usage["input_tokens"] > 1000, usage
    items, end = ask("resume", "--last", "And now?")
    assert items[-1]["text"] == ANSWER, items
    items, end = ask("How many?", told="In this year the keeper saw 90 ships.\n" * 5000)
    assert end["type"] == "turn.failed", end
    assert "context window" in end["error"]["message"], end
