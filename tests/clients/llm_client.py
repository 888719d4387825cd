# /// script
# dependencies = ["llm>=0.26"]
# ///
"""simonw's llm, with a model of its list of OpenAI-compatible servers."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

URL, ANSWER = sys.argv[1:]
LLM = Path(sys.executable).with_name("llm")
with tempfile.TemporaryDirectory() as folder:
    Path(folder, "extra-openai-models.yaml").write_text(
        f"- model_id: octavo\n  model_name: any\n  api_base: {URL}/v1\n  api_key_name: octavo\n"
        "  supports_tools: true\n  supports_schema: true\n"
    )
    Path(folder, "keys.json").write_text('{"octavo": "none"}')

    def run(*arguments, told=None):
        command, environment = [LLM, *arguments], {**os.environ, "LLM_USER_PATH": folder}
        done = subprocess.run(command, capture_output=True, text=True, input=told, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    assert run("-m", "octavo", "Hello.", told="") == ANSWER
    assert run("-m", "octavo", "-c", "And?", told="") == ANSWER
    assert run("-m", "octavo", "--no-stream", "Hello.", told="") == ANSWER
    assert run("-m", "octavo", "-s", "Be brief.", told="A text.") == ANSWER
    schema = '{"type": "object", "properties": {"a": {"enum": ["W"]}}, "required": ["a"]}'
    assert run("-m", "octavo", "--schema", schema, "Hello.", told="").replace(" ", "") == '{"a":"W"}'
