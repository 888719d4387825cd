# npm: @modelcontextprotocol/inspector@^0.17
"""The inspector of the Model Context Protocol, which starts `octavo mcp`."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path


def inspect(*arguments):
    command = ["mcp-inspector", "--cli", sys.executable, "-m", "octavo", "mcp", folder, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


with tempfile.TemporaryDirectory() as folder:
    Path(folder, "log.txt").write_text("In this year the keeper saw 90 ships.\n")
    tools = {tool["name"] for tool in inspect("--method", "tools/list")["tools"]}
    assert tools == {"list_documents", "ask", "find_passages", "read_range"}, tools
    found = ["--method", "tools/call", "--tool-name", "find_passages", "--tool-arg", "question=How many ships?"]
    assert "90 ships" in json.dumps(inspect(*found))
