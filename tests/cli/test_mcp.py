"""`octavo mcp`: what it refuses before a client can ask."""

import sys

from helpers.command_line import fails, octavo


def test_wrong_arguments_are_sentences(document, on_tiny, tmp_path):
    fails(octavo("mcp", tmp_path / "nothing", *on_tiny), 1, "There is no file or folder")
    fails(octavo("mcp", document, "-m", tmp_path / "none.gguf"), 1, "There is no model")
    fails(octavo("mcp", document, *on_tiny, "--port", "9000"), 2, "The options of an address go with --http")
    fails(octavo("mcp", document, *on_tiny, "--http", "--host", "0.0.0.0"), 1, "give a key with --api-key")


def test_without_the_sdk_the_error_says_what_to_install(document, on_tiny, monkeypatch):
    monkeypatch.delitem(sys.modules, "octavo.serve.mcp.tool_server", raising=False)
    monkeypatch.setitem(sys.modules, "mcp", None)
    monkeypatch.setitem(sys.modules, "mcp.server", None)
    fails(octavo("mcp", document, *on_tiny), 1, 'pip install "octavo[mcp]"')


def test_a_first_answer_comes_before_programs_give_up(monkeypatch):
    monkeypatch.delenv("OCTAVO_FIRST_ANSWER")
    text = " ".join(octavo("mcp", "--help-all").stdout.split())
    assert "OCTAVO_FIRST_ANSWER; default: 20s" in text
