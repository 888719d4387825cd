"""The command line as a whole, by its output and exit codes: help, bad use, bad documents and models."""

import json
import re
import shutil
import subprocess
import sys
from collections import namedtuple

import pytest
from helpers import tiny_models
from helpers.command_line import fails, octavo

from octavo.cli import main as cli_main
from octavo.cli.eval import TaskType
from octavo.cli.option_types import AttentionType

NO_HEAVY_IMPORTS = ("llama_cpp", "numba", "numpy", "sklearn", "rich", "prompt_toolkit", "psutil", "joblib")


# Help


def test_help_imports_nothing_heavy():
    script = (
        "import sys\nfrom octavo.cli.main import cli\n"
        "for arguments in (['--help'], ['--version']):\n"
        "    try: cli(arguments)\n    except SystemExit: pass\n"
        f"print([name for name in {NO_HEAVY_IMPORTS} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("name", cli_main.COMMANDS)
def test_the_table_of_commands_has_each_commands_own_help(name):
    command = cli_main.cli.get_command(None, name)
    assert command.name == name
    assert command.help.splitlines()[0] == cli_main.COMMANDS[name]
    assert name in octavo("--help").stdout
    assert octavo(name, "--help").exit_code == 0


def test_a_command_that_is_mistyped_is_guessed():
    fails(octavo("lits"), 2, "No such command 'lits'. Did you mean `list`?")
    fails(octavo("xyz"), 2, "No such command 'xyz'.")


def test_python_runs_the_package_as_the_command():
    done = subprocess.run([sys.executable, "-m", "octavo", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == octavo("--version").stdout


#: A command that fails because its callback did not run: Ctrl-C came, and ctypes swallowed it.
SWALLOWED = """
import ctypes, os, signal, click
from octavo.cli.main import main
def run(group, context):
    ctypes.CFUNCTYPE(None)(lambda: os.kill(os.getpid(), {number}))()
    raise RuntimeError("It is half built.")
click.Group.invoke = run
main()
"""


@pytest.mark.parametrize(("number", "code", "said"), [("signal.SIGINT", 130, "Interrupted."), ("0", 1, "RuntimeError")])
def test_what_fails_for_a_ctrl_c_is_interrupted(number, code, said):
    script = SWALLOWED.format(number=number)
    result = subprocess.run([sys.executable, "-c", script, "models"], capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (code, "")
    assert result.stderr.splitlines()[-1].startswith(said)
    assert ("Traceback" in result.stderr) == (code == 1)


def test_version():
    assert octavo("--version").stdout == "octavo, version 0.4.0\n"


def test_each_shared_option_names_its_environment_variable():
    text = octavo("ask", "--help-all").stdout
    found = set(re.findall(r"OCTAVO_\w+", text))
    names = "MODEL HF_REPO THREADS CTX_SIZE CACHE_TYPE DEVICE INDEX_DIR ATTENTION BUDGET QUALITY PLAN "
    names += "RETRIEVAL_HEADS PREFILL PREDICT TEMP TOP_P TOP_K MIN_P REPEAT_PENALTY SEED DRAFT SYSTEM_PROMPT PASSWORD "
    names += (
        "ROPE_SCALING ROPE_SCALE STATE_EVERY THINK THINK_BUDGET READ WHOLE FIRST_ANSWER BACKGROUND JOBS ENCODING OCR"
    )
    names += " OCR_LANGUAGES QUIET"
    assert found == {f"OCTAVO_{name}" for name in names.split()}


@pytest.mark.parametrize("command", ["ask", "chat", "index"])
def test_each_command_that_runs_a_model_has_the_type_of_its_cache(command):
    text = _all_help(command)
    assert (
        "--cache-type [f16|q8_0|q4_0] How keys and values are stored: q8_0 takes half the memory, q4_0 a little over a"
        in text
    )
    assert "[env var: OCTAVO_CACHE_TYPE; default: f16]" in text


@pytest.mark.parametrize("command", ["ask", "chat", "index", "bench", "profile", "eval"])
def test_each_command_that_runs_a_model_has_its_device(command):
    text = _all_help(command)
    assert "--device [auto|cpu|metal] Where attention runs" in text
    assert "[env var: OCTAVO_DEVICE; default: auto]" in text


def _all_help(command):
    """Return the help about all options, in one line."""
    has_short_help = "--help-all" in octavo(command, "--help").stdout
    return " ".join(octavo(command, "--help-all" if has_short_help else "--help").stdout.split())


# Bad use: exit code 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--budget", "0"], "0.0 is not in the range 0<x<=1."),
        (["--budget", "1.5"], "1.5 is not in the range 0<x<=1."),
        (["--budget", "nan"], "nan is not in the range 0<x<=1."),
        (["--attention", "sparse"], "There is no attention named 'sparse'"),
        (["--attention", "llama.cpp"], "--attention llama.cpp reads no index"),
        (["--temp", "-1"], "-1.0 is not in the range x>=0."),
        (["--temp", "inf"], "inf is not in the range x>=0."),
        (["--top-p", "2"], "2.0 is not in the range 0<=x<=1."),
        (["--top-k", "-3"], "-3 is not in the range x>=0."),
        (["-n", "0"], "0 tokens are not an answer"),
        (["-n", "many"], "'many' is not a valid whole number."),
        (["-t", "0"], "0 is not in the range 1<=x<=512."),
        (["-c", "-1"], "-1 is not in the range x>=0."),
        (["--cache-type", "q4_1"], "'q4_1' is not one of 'f16', 'q8_0', 'q4_0'."),
        (["-o", "xml"], "'xml' is not one of 'text', 'json', 'jsonl'."),
        (["--nonsense"], "No such option"),
    ],
)
def test_bad_options(document, on_tiny, arguments, message):
    fails(octavo("ask", document, "Why?", *on_tiny, *arguments), 2, message)


def test_bad_arguments(document, on_tiny):
    fails(octavo("ask", document, "  ", *on_tiny), 2, "The question is empty.")
    fails(octavo("ask", document, "-", *on_tiny, stdin=""), 2, "The question is empty.")
    fails(octavo("ask", document, "-", *on_tiny, stdin=b"\xff"), 2, "The question on standard input is not UTF-8")
    fails(octavo("ask"), 2, "Missing argument 'DOCUMENT... QUESTION'.")
    fails(octavo("index"), 2, "Missing argument 'DOCUMENT...'.")
    fails(octavo("summon"), 2, "No such command 'summon'.")


def test_environment_variables(document, on_tiny, monkeypatch):
    monkeypatch.setenv("OCTAVO_BUDGET", "7")
    fails(octavo("ask", document, "Why?", *on_tiny), 2, "7.0 is not in the range 0<x<=1.")
    monkeypatch.setenv("OCTAVO_BUDGET", "0.5")
    for name, value in zip(("MODEL", "INDEX_DIR", "THREADS"), on_tiny[1::2], strict=True):
        monkeypatch.setenv(f"OCTAVO_{name}", value)
    monkeypatch.setenv("OCTAVO_PREDICT", "2")
    result = octavo("ask", document, "Why?", "--temp", "0", "-o", "json")
    assert json.loads(result.stdout)["attention"] == "auto:most=0.5"
    result = octavo("ask", document, "Why?", "--temp", "0", "--attention", "squeezed", "-o", "json")
    assert json.loads(result.stdout)["budget"] == 0.5


# Bad documents and models: exit code 1, before anything else is said


@pytest.mark.parametrize("command", [["index"], ["ask", "Why?"], ["chat"]], ids=lambda command: command[0])
def test_documents_that_cannot_be_read(command, tmp_path, on_tiny):
    name, *question = command
    missing, empty, latin = tmp_path / "missing.txt", tmp_path / "empty.txt", tmp_path / "latin.txt"
    empty.write_text(" \n")
    (tmp_path / "folder").mkdir()
    latin.write_bytes(b"one\ntwo \xe9\n")
    for path, message in {
        missing: f"The document {missing} cannot be opened: No such file or directory.",
        tmp_path / "folder": f"There is no document in the folder {tmp_path / 'folder'}: octavo reads text,",
        empty: "empty.txt is empty: there is nothing to read in it.",
        latin: "latin.txt is not UTF-8 text: byte 0xe9 in line 2. Nor can another encoding be told: give its "
        "--encoding, or save it as UTF-8.",
    }.items():
        result = octavo(name, path, *question, *on_tiny)
        fails(result, 1, message)
        assert len(result.stderr.splitlines()) == 1


def test_standard_input_is_the_document_or_the_question(on_tiny):
    fails(octavo("ask", "-", "-", *on_tiny), 2, "Standard input holds the document or the question")
    fails(octavo("chat", "-", *on_tiny), 2, "Standard input is where questions come from")


def test_models_that_cannot_be_loaded(document, tiny_model, tmp_path):
    truncated, text = tmp_path / "truncated.gguf", tmp_path / "text.gguf"
    truncated.write_bytes(tiny_model.read_bytes()[: tiny_model.stat().st_size // 2])
    text.write_text("This is no model.")
    for path, message in {
        tmp_path / "missing.gguf": "cannot be opened: No such file or directory.",
        tmp_path: "is a folder: give the GGUF file in it.",
        text: "is not a GGUF model",
        truncated: "truncated.gguf is damaged or incomplete: its tensors end at",
    }.items():
        result = octavo("ask", document, "Why?", "-m", path)
        fails(result, 1, message)
        assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("architecture", tiny_models.REFUSED)
def test_architectures_that_octavo_cannot_run(architecture, document, tmp_path):
    model = tiny_models.write_model(tmp_path / "refused.gguf", architecture)
    fails(octavo("ask", document, "Why?", "-m", model, "--index-dir", tmp_path), 1, f"'{architecture}' models")
    described = octavo("inspect", model, "-o", "json")
    assert described.exit_code == 0
    assert json.loads(described.stdout)["octavo_attention"] is False


@pytest.mark.parametrize("arguments", [("index",), ("ask", "Why?")], ids=lambda arguments: arguments[0])
def test_document_longer_than_a_hundred_contexts(arguments, document, on_tiny):
    command, *question = arguments
    fails(octavo(command, document, *question, *on_tiny, "-c", "50"), 1, "but this context holds 50: split it")


def test_question_longer_than_the_context(document, on_tiny):
    result = octavo("ask", document, "Why? " * 200, *on_tiny, "-c", "900")
    fails(result, 1, "The question does not fit")


def test_full_disk(document, on_tiny, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10, 10, 0))
    fails(octavo("index", document, *on_tiny), 1, "free some, or give another folder with --index-dir.")


@pytest.mark.parametrize(
    ("arguments", "guess"),
    [
        (["ask", "a", "b", "--attention", "squezed:tokens=1"], "Did you mean `squeezed`?"),
        (["eval", "nedle"], "Did you mean `needle`?"),
        (["indx"], "Did you mean `index`?"),
    ],
)
def test_mistyped_names_are_guessed(arguments, guess):
    result = octavo(*arguments)
    assert result.exit_code == 2
    assert result.stderr.rstrip().endswith(guess)
    assert "Did you mean" not in octavo(*arguments[:-1], "zzzz").stderr


@pytest.mark.parametrize(
    ("kind", "typed", "offered"),
    [
        (AttentionType(), "sq", ["squeezed", "squeezed2"]),
        (AttentionType(), "llama", ["llama.cpp"]),
        (TaskType(), "pass", ["passkey"]),
        (TaskType(), "x", []),
    ],
)
def test_shells_complete_values(kind, typed, offered):
    assert [item.value for item in kind.shell_complete(None, None, typed)] == offered
