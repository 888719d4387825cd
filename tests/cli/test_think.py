"""`--think`, `--think-budget` and `/think`, on a tiny model that thinks before it answers."""

import io
import json
import sys

import pytest
from helpers import thinking_model
from helpers.command_line import fails, octavo
from helpers.thinking_model import ANSWER, THOUGHT

from octavo.cli.render import ThoughtPrinter
from octavo.prompts.thought_form import NO_SWITCH

QUESTION = "Which ship?"


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return {
        "thinking": thinking_model.write_model(folder / "thinking.gguf"),
        "opening": thinking_model.write_model(folder / "opening.gguf", thinking_model.OPENING),
        "endless": thinking_model.write_model(folder / "endless.gguf", endless=True),
    }


@pytest.fixture
def document(document):
    """A document that has the numbers of the answer."""
    document.write_text(f"{document.read_text()} {ANSWER}\n")
    return document


@pytest.fixture
def run(models, document, tmp_path):
    """Ask the document; returns the result, without what stderr says of indexing."""

    def ask(model, *options, command="ask", stdin=None):
        common = ["-m", models[model], "--index-dir", tmp_path / "indexes", "-t", "2", "--temp", "0"]
        octavo("index", document, *common[:-2])
        asked = [QUESTION] if command == "ask" else []
        return octavo(command, document, *asked, *common, *options, stdin=stdin)

    return ask


def test_the_answer_alone_is_on_stdout(run):
    result = run("thinking")
    assert (result.exit_code, result.stdout, result.stderr) == (0, f"{ANSWER}\n", "")


def test_a_thought_is_shown_on_stderr(run):
    result = run("thinking", "--think", "show")
    assert (result.stdout, result.stderr) == (f"{ANSWER}\n", f"{THOUGHT}\n\n")
    result = run("thinking", "--think", "hide")
    assert (result.stdout, result.stderr) == (f"{ANSWER}\n", "")


def test_a_terminal_shows_a_thought_dimmed(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    printer = ThoughtPrinter()
    printer.add("I add ")
    printer.add("two.")
    printer.end()
    printer.end()
    shown = terminal.getvalue()
    assert shown.startswith("\x1b[2m")
    assert shown.replace("\x1b[2m", "").replace("\x1b[0m", "") == "I add two.\n\n"


def test_json_has_the_thought(run):
    answer = json.loads(run("thinking", "-o", "json").stdout)
    assert (answer["answer"], answer["reasoning"]) == (ANSWER, THOUGHT)
    tokens = answer["tokens"]
    assert (tokens["thought"], tokens["answer"]) == (len(THOUGHT) + 2, len(ANSWER) + 1)
    assert tokens["context"] == tokens["document"] + tokens["question"] + tokens["thought"] + tokens["answer"] - 1
    *pieces, last = map(json.loads, run("thinking", "-o", "jsonl").stdout.splitlines())
    assert "".join(piece.get("reasoning", "") for piece in pieces) == last["reasoning"] == THOUGHT
    assert "".join(piece.get("piece", "") for piece in pieces) == last["answer"] == ANSWER


def test_n_counts_the_answer_alone(run):
    answer = json.loads(run("thinking", "-o", "json", "-n", "4").stdout)
    assert (answer["answer"], answer["reasoning"], answer["finish_reason"]) == (ANSWER[:4], THOUGHT, "length")


def test_thinking_is_turned_off(run, monkeypatch):
    off = run("thinking", "--think", "off", "-o", "json")
    assert (json.loads(off.stdout)["reasoning"], off.stderr) == ("", "")
    off = run("opening", "--think", "off", "-o", "json")
    answer = json.loads(off.stdout)
    assert (answer["answer"], answer["reasoning"], off.stderr) == (ANSWER, "", f"Note: {NO_SWITCH}\n")
    monkeypatch.setenv("OCTAVO_THINK", "off")
    assert json.loads(run("thinking", "-o", "json").stdout)["reasoning"] == ""


def test_a_thought_ends_at_its_budget(run):
    result = run("endless", "--think-budget", "7", "--think", "show")
    assert result.stdout == f"{ANSWER}\n"
    notice = "(The thought was ended after 8 tokens: --think-budget sets the limit.)"
    assert result.stderr == f"{(THOUGHT * 2)[:6]}\n\n{notice}\n"
    none = run("endless", "--think-budget", "0", "-o", "json")
    assert json.loads(none.stdout)["reasoning"] == ""
    fails(run("endless", "--think-budget", "-2"), 2, "Invalid value for '--think-budget'")


def test_chat_turns_thoughts_on_and_off(run):
    lines = f"{QUESTION}\n/think show\n{QUESTION}\n/think off\n{QUESTION}\n/stats\n/think hide\n{QUESTION}\n/stats\n"
    result = run("thinking", command="chat", stdin=lines)
    assert result.exit_code == 0
    assert result.stdout == "\n".join([f"{ANSWER}\n"] * 4)
    shown, _, rest = result.stderr.partition("The model answers at once.\n")
    assert shown == f"Thoughts are shown.\n{THOUGHT}\n\n"
    off, _, hidden = rest.partition("Thoughts are hidden.\n")
    assert ("thought  " in off, "thought    6 tokens\n" in hidden) == (False, True)
    assert THOUGHT not in rest


def test_chat_refuses_other_ways_to_think(run):
    result = run("thinking", command="chat", stdin="/think aloud\n")
    assert (result.exit_code, result.stderr) == (
        1,
        "Error: /think takes show, hide or off: not 'aloud'.\n",
    )


def test_chat_gives_an_answer_anew_with_its_thought(run):
    lines = f"{QUESTION}\n/regenerate\n"
    *_, last = map(json.loads, run("thinking", "-o", "jsonl", command="chat", stdin=lines).stdout.splitlines())
    assert (last["answer"], last["reasoning"]) == (ANSWER, THOUGHT)


def test_a_saved_conversation_continues_to_think(run, tmp_path):
    name = str(tmp_path / "talk.safetensors")
    run("thinking", command="chat", stdin=f"{QUESTION}\n/save {name}\n")
    lines = f"/load {name}\n{QUESTION}\n/regenerate\n"
    result = run("thinking", "-o", "jsonl", command="chat", stdin=lines)
    answers = [answer for answer in map(json.loads, result.stdout.splitlines()) if "answer" in answer]
    assert [(answer["answer"], answer["reasoning"]) for answer in answers] == [(ANSWER, THOUGHT)] * 2
