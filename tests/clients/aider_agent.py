# /// script
# dependencies = ["aider-chat>=0.86"]
# ///
"""aider: two questions about a file."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

URL, ANSWER = sys.argv[1:]
AIDER = Path(sys.executable).with_name("aider")

with tempfile.TemporaryDirectory() as home:
    Path(home, "a.txt").write_text("The keeper saw 90 ships.\n")
    settings = {"OPENAI_API_BASE": f"{URL}/v1", "OPENAI_API_KEY": "none", "HOME": home}
    options = ["--model", "openai/any", "--no-git", "--yes-always", "--no-check-update", "--no-show-model-warnings"]
    for more in ([], ["--no-stream"], ["--edit-format", "diff", "--restore-chat-history"]):
        done = subprocess.run(
            [AIDER, *options, *more, "--message", "How many ships?", "a.txt"],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            cwd=home,
            env={**os.environ, **settings},
        )
        assert ANSWER in done.stdout, done.stdout + done.stderr
        assert "Tokens: " in done.stdout, done.stdout
