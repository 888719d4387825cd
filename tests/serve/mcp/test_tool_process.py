"""`octavo mcp` as a process, by the SDK's own client over standard input and output, and over HTTP."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager

import httpx
import pytest
from helpers import talking_model
from mcp import Client, StdioServerParameters

PROGRAM = [sys.executable, "-P", "-c", "from octavo.cli.main import main; main()", "mcp"]


@pytest.fixture
def options(folder, talking_file, tmp_path):
    """The options of the command."""
    return [folder, "-m", talking_file, "--index-dir", tmp_path / "indexes", "-t", "1", "--temp", "0", "-n", "20"]


@contextmanager
def listening(options, *more):
    """Start the server over HTTP; yields its process and its address."""
    command = [*PROGRAM, "--http", "--port", "0", *map(str, (*options, *more))]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        said = ""
        while (found := re.search(r"(http://\S+):", said)) is None:
            line = process.stderr.readline()
            assert line, said
            said += line
        yield process, found[1]
    finally:
        process.kill()
        process.communicate()


async def conversation(target, mode):
    """Call each tool; returns what comes back."""
    heard = []

    async def hear(reached, total, message):
        heard.append(message)

    async with Client(target, mode=mode) as client:
        calls = {
            "list_documents": {},
            "find_passages": {"question": "Who was Agnes Moir?"},
            "read_range": {"document": "bridge.pdf", "pages": "2"},
            "ask": {"question": "Who was the keeper?", "documents": ["bridge.pdf"]},
        }
        results = [await client.call_tool(name, arguments, progress_callback=hear) for name, arguments in calls.items()]
        results.append(await client.call_tool("read_range", {"document": "../secret.txt"}))
        return client.server_info, results, heard


def check(server_info, results, heard):
    """Check a conversation."""
    listed, found, read, answer, refused = results
    assert server_info.name == "octavo"
    assert [each["name"] for each in listed.structured_content["documents"]] == ["bridge.pdf", "log.md"]
    assert found.structured_content["passages"][0]["document"] == "bridge.pdf"
    assert read.content[0].text.startswith("--- page 2\nIts keeper was Agnes Moir.")
    given = json.loads(answer.content[0].text)
    assert given == answer.structured_content
    assert (given["answer"], given["basis"]["kind"]) == (talking_model.ANSWER, "document")
    assert any(message.startswith("Reading bridge.pdf") for message in heard)
    assert refused.is_error
    assert "outside of what may be used" in refused.content[0].text


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_each_tool_answers_over_standard_input_and_output(options, mode):
    """Modern clients ask at once; those of today begin with a handshake."""
    environment = {**os.environ, "OCTAVO_FIRST_ANSWER": "1h"}
    server = StdioServerParameters(command=PROGRAM[0], args=[*PROGRAM[1:], *map(str, options)], env=environment)
    check(*asyncio.run(conversation(server, mode)))


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_each_tool_answers_over_http(options, mode):
    with listening(options, "--first-answer", "1h") as (_, address):
        check(*asyncio.run(conversation(address, mode)))


def started(options, name, **arguments):
    """Start the server over standard input and output, and call a tool; returns its process."""
    start = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    called = {"name": name, "arguments": arguments, "_meta": {"progressToken": 7}}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen([*PROGRAM, *map(str, options)], text=True, **pipes)
    for message in (
        {"id": 1, "method": "initialize", "params": start},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": called},
    ):
        process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    process.stdin.flush()
    return process


def test_nothing_but_the_protocol_is_on_standard_output(options):
    process = started(options, "ask", question="Who was the keeper?")
    messages = []
    while not messages or messages[-1].get("id") != 2:
        messages.append(json.loads(process.stdout.readline()))
    rest, errors = process.communicate(timeout=60)  # which closes its input: the client is gone
    assert talking_model.ANSWER in messages[-1]["result"]["content"][0]["text"]
    assert {message.get("method", "") for message in messages} == {"", "notifications/progress"}
    assert (rest, process.returncode) == ("", 0), errors
    assert "Traceback" not in errors


def test_a_server_ends_with_its_client_while_it_reads(folder, tiny_model, tmp_path):
    (folder / "long.txt").write_text("".join(f"The keeper wrote line {i} of the log.\n" for i in range(4000)))
    options = [folder, "-m", tiny_model, "--index-dir", tmp_path / "indexes", "-t", "1", "--first-answer", "1h"]
    process = started(options, "ask", question="Who?", documents=["long.txt"])
    while "Reading long.txt" not in (line := process.stdout.readline()):
        assert line
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "Traceback" not in errors
    assert [path for path in (tmp_path / "indexes").glob("*/long*") if not path.name.endswith(".partial")] == []


def test_ctrl_c_ends_a_server_that_waits_for_input(options):
    process = started(options, "list_documents")
    while '"id":2' not in process.stdout.readline():
        pass
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == -signal.SIGINT
    assert "Traceback" not in process.communicate()[1]


def test_requests_over_http_are_guarded(options):
    with listening(options, "--api-key", "k") as (process, address):
        asked = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        key = {"Authorization": "Bearer k"}
        refused = httpx.post(address, json=asked)
        assert (refused.status_code, refused.json()["error"]["message"]) == (
            401,
            "A key is needed: send it as a bearer token.",
        )
        for header in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}):
            assert httpx.post(address, json=asked, headers={**key, **header}).status_code == 403
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0
        assert "Traceback" not in errors
