# npm: @anthropic-ai/claude-code@^2.1
"""Claude Code: a session of two questions, and a prompt that is too long."""

import json
import os
import subprocess
import sys
import tempfile

URL, ANSWER = sys.argv[1:]

with tempfile.TemporaryDirectory() as home:

    def ask(question, *more, told=""):
        settings = {"ANTHROPIC_BASE_URL": URL, "ANTHROPIC_API_KEY": "none", "HOME": home}
        environment = {**os.environ, **settings, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
        command = ["claude", "-p", question, "--output-format", "json", *more]
        done = subprocess.run(command, capture_output=True, text=True, input=told, env=environment)
        return json.loads(done.stdout)

    first = ask("What is in a.txt?")
    assert (first["result"], first["is_error"], first["num_turns"]) == (ANSWER, False, 2), first
    usage = first["usage"]  # of two requests: the second one's prompt begins with the first one's
    assert usage["cache_read_input_tokens"] > 0.95 * usage["input_tokens"] > 5000, usage
    second = ask("And now?", "--continue")
    assert (second["result"], second["num_turns"]) == (ANSWER, 1), second
    assert second["usage"]["input_tokens"] < 500 < second["usage"]["cache_read_input_tokens"], second
    long = ask("How many?", told="In this year the keeper saw 90 ships.\n" * 5000)
    assert long["is_error"], long
    assert long["terminal_reason"] == "prompt_too_long", long
