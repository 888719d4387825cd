# npm: opencode-ai@^1.18
"""opencode: a session of two questions."""

import json
import os
import subprocess
import sys
import tempfile

URL, ANSWER = sys.argv[1:]
MODEL = {"name": "octavo", "limit": {"context": 40960, "output": 4096}}
PROVIDER = {
    "npm": "@ai-sdk/openai-compatible",
    "name": "octavo",
    "options": {"baseURL": f"{URL}/v1", "apiKey": "none"},
    "models": {"any": MODEL},
}

with tempfile.TemporaryDirectory() as home:

    def ask(*arguments):
        configuration = json.dumps({"provider": {"octavo": PROVIDER}})
        environment = {**os.environ, "HOME": home, "OPENCODE_CONFIG_CONTENT": configuration}
        command = ["opencode", "run", "-m", "octavo/any", "--format", "json", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, env=environment)
        assert done.returncode == 0, done.stderr
        return [json.loads(line)["part"] for line in done.stdout.splitlines()]

    parts = ask("What is in a.txt?")
    [used] = [part for part in parts if part["type"] == "tool"]
    assert (used["tool"], used["state"]["status"]) == ("read", "completed"), used
    assert [part["text"] for part in parts if part["type"] == "text"] == [ANSWER], parts
    first, second = [part["tokens"] for part in parts if part["type"] == "step-finish"]
    assert second["cache"]["read"] >= first["input"] > 1000, (first, second)
    parts = ask("--continue", "And now?")
    assert [part["text"] for part in parts if part["type"] == "text"] == [ANSWER], parts
