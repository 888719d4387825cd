"""The command line, by its output and exit codes, on a tiny model whose answers are random bytes."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import namedtuple
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from helpers import tiny_models

from octavo.cli import main as cli_main

SENTENCES = "The keeper of the island lighthouse wrote down each ship that passed. One was called Petrel.\n"
NO_HEAVY_IMPORTS = ("llama_cpp", "numba", "numpy", "sklearn", "rich", "prompt_toolkit", "psutil", "joblib")


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch, tmp_path):
    """No OCTAVO_... variable of the tester's reaches a test, and no test reaches the tester's history."""
    for name in [name for name in os.environ if name.startswith("OCTAVO_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def document(tmp_path) -> Path:
    path = tmp_path / "island.txt"
    path.write_text(SENTENCES * 6)
    return path


@pytest.fixture
def on_tiny(tiny_model, tmp_path) -> list[str]:
    """Options that every command takes here."""
    return ["-m", str(tiny_model), "--index-dir", str(tmp_path / "indexes"), "-t", "2"]


SHORT_ANSWER = ["--temp", "0", "-n", "5"]


def octavo(*arguments: object, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(cli_main.cli, [str(argument) for argument in arguments], input=stdin, prog_name="octavo")


def start(*arguments: object, **settings) -> subprocess.Popen:
    """The same in a process of its own."""
    command = [sys.executable, "-c", "from octavo.cli.main import main; main()", *map(str, arguments)]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, **{**pipes, **settings})


def fails(result: Result, code: int, message: str) -> None:
    """Nothing but one error message that holds `message`, on stderr."""
    lines = result.stderr.strip().splitlines()
    assert (result.exit_code, result.stdout) == (code, "")
    assert lines[-1].startswith("Error: ")
    assert message in lines[-1]
    assert "Traceback" not in result.stderr


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


def test_version():
    assert octavo("--version").stdout == "octavo, version 0.1.0\n"


def test_each_shared_option_names_its_environment_variable():
    text = octavo("ask", "--help").stdout
    found = set(re.findall(r"OCTAVO_\w+", text))
    names = "MODEL THREADS CTX_SIZE CACHE_TYPE DEVICE INDEX_DIR ATTENTION BUDGET PLAN RETRIEVAL_HEADS "
    names += "PREDICT TEMP TOP_P TOP_K SEED ROPE_SCALING ROPE_SCALE"
    assert found == {f"OCTAVO_{name}" for name in names.split()}


@pytest.mark.parametrize("command", ["ask", "chat", "index", "bench"])
def test_each_command_that_runs_a_model_has_the_type_of_its_cache(command):
    text = " ".join(octavo(command, "--help").stdout.split())
    assert "--cache-type [f16|q8_0] How keys and values are stored: q8_0 takes half the memory." in text
    assert "[env var: OCTAVO_CACHE_TYPE; default: f16]" in text


@pytest.mark.parametrize("command", ["ask", "chat", "index", "bench", "profile", "eval"])
def test_each_command_that_runs_a_model_has_its_device(command):
    text = " ".join(octavo(command, "--help").stdout.split())
    assert "--device [auto|cpu|metal] Where attention runs" in text
    assert "[env var: OCTAVO_DEVICE; default: auto]" in text


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
        (["-n", "0"], "0 tokens are no answer"),
        (["-n", "many"], "'many' is not a valid integer range."),
        (["-t", "0"], "0 is not in the range 1<=x<=512."),
        (["-c", "-1"], "-1 is not in the range x>=0."),
        (["--cache-type", "q4_0"], "'q4_0' is not one of 'f16', 'q8_0'."),
        (["-o", "xml"], "'xml' is not one of 'text', 'json'."),
        (["--nonsense"], "No such option"),
    ],
)
def test_bad_options(document, on_tiny, arguments, message):
    fails(octavo("ask", document, "Why?", *on_tiny, *arguments), 2, message)


def test_bad_arguments(document, on_tiny):
    fails(octavo("ask", document, "  ", *on_tiny), 2, "The question is empty.")
    fails(octavo("ask", document, "-", *on_tiny, stdin=""), 2, "The question is empty.")
    fails(octavo("ask", document, "-", *on_tiny, stdin=b"\xff"), 2, "The question on standard input is not UTF-8")
    fails(octavo("ask", document), 2, "Missing argument 'QUESTION'.")
    fails(octavo("index"), 2, "Name the documents to index, or give --list without any.")
    fails(octavo("index", document, "--list"), 2, "Name the documents to index, or give --list without any.")
    fails(octavo("summon"), 2, "No such command 'summon'.")


def test_environment_variables(document, on_tiny, monkeypatch):
    monkeypatch.setenv("OCTAVO_BUDGET", "7")
    fails(octavo("ask", document, "Why?", *on_tiny), 2, "7.0 is not in the range 0<x<=1.")
    monkeypatch.setenv("OCTAVO_BUDGET", "0.5")
    for name, value in zip(("MODEL", "INDEX_DIR", "THREADS"), on_tiny[1::2], strict=True):
        monkeypatch.setenv(f"OCTAVO_{name}", value)
    monkeypatch.setenv("OCTAVO_PREDICT", "2")
    result = octavo("ask", document, "Why?", "--temp", "0", "-o", "json")
    assert json.loads(result.stdout)["budget"] == 0.5


# Bad documents and models: exit code 1, before anything else is said


@pytest.mark.parametrize("command", [["index"], ["ask", "Why?"], ["chat"]], ids=lambda command: command[0])
def test_documents_that_cannot_be_read(command, tmp_path, on_tiny):
    name, *question = command
    missing, empty, latin = tmp_path / "missing.txt", tmp_path / "empty.txt", tmp_path / "latin.txt"
    empty.write_text(" \n")
    latin.write_bytes(b"one\ntwo \xe9\n")
    for path, message in {
        missing: f"The document {missing} cannot be opened: No such file or directory.",
        tmp_path: f"{tmp_path} is a folder: give a text or Markdown file.",
        empty: f"{empty} is empty: there is nothing to read in it.",
        latin: f"{latin} is not UTF-8 text: byte 0xe9 in line 2. Save it as UTF-8.",
    }.items():
        result = octavo(name, path, *question, *on_tiny)
        fails(result, 1, message)
        assert len(result.stderr.splitlines()) == 1


def test_models_that_cannot_be_loaded(document, tiny_model, tmp_path):
    truncated, text = tmp_path / "truncated.gguf", tmp_path / "text.gguf"
    truncated.write_bytes(tiny_model.read_bytes()[: tiny_model.stat().st_size // 2])
    text.write_text("This is no model.")
    for path, message in {
        tmp_path / "missing.gguf": "cannot be opened: No such file or directory.",
        tmp_path: "is a folder: give the GGUF file in it.",
        text: "is not a GGUF model",
        truncated: "truncated.gguf cannot be loaded: it is incomplete",
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


def test_document_longer_than_the_context(document, on_tiny):
    result = octavo("ask", document, "Why?", *on_tiny, "-c", "200")
    fails(result, 1, "but this context holds 200: split it")


def test_question_longer_than_the_context(document, on_tiny):
    result = octavo("ask", document, "Why? " * 200, *on_tiny, "-c", "900")
    fails(result, 1, "The question does not fit")


def test_full_disk(document, on_tiny, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10, 10, 0))
    fails(octavo("index", document, *on_tiny), 1, "free some, or give another folder with --index-dir.")


# Index


def test_index_is_made_once_and_listed(document, on_tiny, tmp_path):
    first = octavo("index", document, *on_tiny)
    assert (first.exit_code, first.stdout) == (0, "")
    folder = next((tmp_path / "indexes" / "tiny.octavo").glob("island-*"))
    assert first.stderr.splitlines()[0] == "Indexing island.txt, once."
    assert "Reading island.txt: " in first.stderr
    assert first.stderr.splitlines()[-1] == f"The index of island.txt is {folder}"

    second = octavo("index", document, *on_tiny, "-o", "json")
    assert json.loads(second.stdout) == [{"document": "island.txt", "path": str(folder)}]
    assert "Reading" not in second.stderr

    [row] = json.loads(octavo("index", "--list", *on_tiny, "-o", "json").stdout)
    assert row.keys() == {"document", "model", "tokens", "cache_type", "bytes", "created", "path"}
    assert (row["document"], row["model"], row["path"]) == ("island.txt", "tiny.gguf", str(folder))
    assert row["cache_type"] == "f16"
    assert row["bytes"] == sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    header, _, line = octavo("index", "--list", *on_tiny).stdout.splitlines()
    assert header.split() == ["document", "model", "tokens", "cache", "type", "size", "created", "path"]
    assert line.split()[0] == "island.txt"
    assert str(folder) in line


def test_several_documents_are_checked_before_the_first_is_indexed(document, on_tiny, tmp_path):
    fails(octavo("index", document, tmp_path / "missing.txt", *on_tiny), 1, "missing.txt cannot be opened")
    result = octavo("index", "--list", *on_tiny)
    assert (result.stdout, result.exit_code) == ("", 0)
    assert result.stderr == f"There are no indexes in {tmp_path / 'indexes' / 'tiny.octavo'}.\n"


def interrupt_when(process: subprocess.Popen, happened) -> tuple[str, str]:
    """Press Ctrl-C in a process once `happened()`; its output and errors."""
    deadline = time.monotonic() + 120
    while not happened() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    return output.decode(), errors.decode()


def test_interrupted_index_goes_on(tmp_path, on_tiny):
    document = tmp_path / "long.txt"
    document.write_text("".join(f"{i} {SENTENCES}" for i in range(150)))
    library = tmp_path / "indexes"
    command = ["index", document, *on_tiny, "-c", "20000"]
    process = start(*command)
    _, errors = interrupt_when(process, lambda: len(list(library.glob("*/long-*.partial/prefill-*.safetensors"))) > 1)
    assert process.returncode == 130
    assert errors.splitlines()[-1] == "Interrupted: the same command goes on where this one stopped."
    assert "Traceback" not in errors
    assert octavo("index", "--list", *on_tiny).stdout == ""

    result = octavo(*command)
    assert result.exit_code == 0
    assert re.search(r"Reading long.txt: [\d,]+ tokens, \d,\d{3} of them done before", result.stderr)
    assert not list(library.glob("*/*.partial"))


# Ask


def test_ask_prints_the_answer_and_nothing_else_on_stdout(document, on_tiny):
    first = octavo("ask", document, "Which ship?", *on_tiny, *SHORT_ANSWER)
    assert first.exit_code == 0
    assert first.stdout.endswith("\n")
    assert first.stderr.splitlines()[0] == "Indexing island.txt, once."
    again = octavo("ask", document, "-", *on_tiny, *SHORT_ANSWER, stdin="Which ship?\n")
    assert (again.exit_code, again.stderr) == (0, "")
    assert again.stdout == first.stdout


def test_ask_as_json(document, on_tiny):
    text = octavo("ask", document, "Which ship?", *on_tiny, *SHORT_ANSWER).stdout
    result = octavo("ask", document, "Which ship?", *on_tiny, *SHORT_ANSWER, "-o", "json")
    answer = json.loads(result.stdout)
    assert result.stderr == ""
    assert list(answer) == ["answer", "attention", "budget", "timing"]
    assert list(answer["timing"]) == ["open_s", "first_token_s", "decode_tokens_per_s"]
    assert answer["answer"] == text.removesuffix("\n") or answer["answer"] == text
    assert (answer["attention"], answer["budget"]) == ("squeezed", 0.125)
    assert answer["timing"]["open_s"] > 0
    dense = octavo("ask", document, "Which ship?", *on_tiny, *SHORT_ANSWER, "-o", "json", "--attention", "dense")
    assert json.loads(dense.stdout)["budget"] == 1.0


def test_a_document_is_asked_with_each_type_of_cache(document, on_tiny, monkeypatch):
    """Each has an index of its own, and a question finds the right one, by option or by environment."""
    for cache_type in ("q8_0", "f16"):
        result = octavo("ask", document, "Which ship?", *on_tiny, *SHORT_ANSWER, "--cache-type", cache_type)
        assert result.exit_code == 0
        assert result.stderr.splitlines()[0] == "Indexing island.txt, once."
    rows = json.loads(octavo("index", "--list", *on_tiny, "-o", "json").stdout)
    sizes = {row["cache_type"]: row["bytes"] for row in rows}
    assert sizes.keys() == {"f16", "q8_0"}
    assert 0.5 < sizes["q8_0"] / sizes["f16"] < 0.6
    for row in rows:
        assert json.loads(octavo("inspect", row["path"], "-o", "json").stdout)["cache_type"] == row["cache_type"]
        assert f"cache type          {row['cache_type']}" in octavo("inspect", row["path"]).stdout.splitlines()
        monkeypatch.setenv("OCTAVO_CACHE_TYPE", row["cache_type"])
        result = octavo("ask", document, "Which ship?", *on_tiny, *SHORT_ANSWER)
        assert (result.exit_code, result.stderr) == (0, "")


def test_chat_with_the_smaller_cache(document, on_tiny):
    small = ["--cache-type", "q8_0", *on_tiny]
    octavo("index", document, *small)
    result = octavo("chat", document, *small, *SHORT_ANSWER, stdin="/stats\nWhich ship?\n/stats\n")
    asked = octavo("ask", document, "Which ship?", *small, *SHORT_ANSWER)
    assert (result.exit_code, result.stdout) == (0, asked.stdout)
    octavo("index", document, *on_tiny)
    full = octavo("chat", document, *on_tiny, stdin="/stats\n")
    held = [float(re.search(r"KV cache +([\d,.]+) KiB", each.stderr)[1].replace(",", "")) for each in (result, full)]
    assert held[0] / held[1] == pytest.approx((64 + 4) / (2 * 64), rel=0.01)


def test_same_seed_same_answer(document, on_tiny):
    first, second = (octavo("ask", document, "Why?", *on_tiny, "-n", "8", "--seed", "7").stdout for _ in range(2))
    assert first == second


def test_control_tokens_in_a_document_are_text(document, on_tiny):
    plain = json.loads(octavo("index", document, *on_tiny, "-o", "json").stdout)[0]["path"]
    document.write_text(SENTENCES * 6 + "<|im_end|>")
    result = octavo("index", document, *on_tiny, "-o", "json")
    marked = json.loads(result.stdout)[0]["path"]
    assert result.stderr.splitlines()[0] == "island.txt has changed since it was indexed: indexing it again."
    sizes = {row["path"]: row["tokens"] for row in json.loads(octavo("index", "--list", *on_tiny, "-o", "json").stdout)}
    assert sizes[marked] - sizes[plain] == len(["<", "|", "i", "m", "_", "e", "nd", "|", ">"])


def test_model_without_a_chat_template(document, tmp_path):
    model = tiny_models.write_model(tmp_path / "plain.gguf", "llama")
    result = octavo("ask", document, "Why?", "-m", model, "--index-dir", tmp_path, *SHORT_ANSWER)
    assert result.exit_code == 0
    assert "this model has no chat template" in result.stderr.splitlines()[0]
    assert "chat template       no" in octavo("inspect", model).stdout.splitlines()


def test_context_longer_than_the_models_own_is_told(document, on_tiny):
    result = octavo("ask", document, "Why?", *on_tiny, *SHORT_ANSWER, "-c", "5000")
    assert result.exit_code == 0
    assert result.stderr.splitlines()[0] == "Note: this model was trained on 4,096 tokens, and -c allows 5,000."


def test_interrupted_answer(document, on_tiny, monkeypatch):
    """What came is kept, and its line is ended."""
    from octavo.runtime.session import Session

    def stream(self, question):
        yield "The Pet"
        raise KeyboardInterrupt

    monkeypatch.setattr(Session, "stream", stream)
    result = octavo("ask", document, "Which ship?", *on_tiny)
    assert (result.exit_code, result.stdout) == (130, "The Pet\n")
    assert result.stderr.splitlines()[-1] == "Interrupted."


def test_ctrl_c_while_a_question_is_read(document, on_tiny, tmp_path):
    question = tmp_path / "question.txt"
    question.write_text(SENTENCES * 1000)
    octavo("index", document, *on_tiny)
    with question.open() as stdin:
        process = start("ask", document, "-", *on_tiny, "-c", "200000", stdin=stdin)
        noted = os.read(process.stderr.fileno(), 4096).decode()  # the model is loaded
        time.sleep(1)
        _, errors = interrupt_when(process, lambda: True)
    assert noted.startswith("Note: this model was trained on 4,096 tokens")
    assert (process.returncode, errors) == (130, "Interrupted.\n")


def test_closed_pipe_is_quiet(document, on_tiny):
    octavo("index", document, *on_tiny)
    process = start("ask", document, "Why?", *on_tiny, "-n", "100", "--temp", "0")
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() != 0


# Indexes that are not what they were


@pytest.fixture
def folder(document, on_tiny) -> Path:
    return Path(json.loads(octavo("index", document, *on_tiny, "-o", "json").stdout)[0]["path"])


def change_a_byte(path: Path, keep_time: bool = False) -> None:
    before = path.stat()
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    if keep_time:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_index_that_was_changed(folder, document, on_tiny):
    change_a_byte(folder / "layer-001.safetensors")
    message = (
        f"layer-001.safetensors of the index {folder} has changed since it was written: "
        "delete that folder and index the document again."
    )
    fails(octavo("ask", document, "Why?", *on_tiny), 1, message)


def test_index_of_another_model(folder, document, on_tiny, tmp_path):
    other = tiny_models.write_model(tmp_path / "tiny.gguf", "llama", seed=1)
    with_other = ["-m", other, *on_tiny[2:]]
    [made] = json.loads(octavo("index", document, *with_other, "-o", "json").stdout)
    shutil.rmtree(made["path"])
    shutil.copytree(folder, made["path"])
    fails(octavo("ask", document, "Why?", *with_other), 1, "was made with another model")


def test_index_whose_manifest_is_incomplete(folder, document, on_tiny):
    (folder / "manifest.json").write_text('{"format_version": 3, "files": {}}')
    message = f"{folder / 'manifest.json'} is incomplete: delete {folder} and index the document again."
    fails(octavo("index", "--list", *on_tiny), 1, message)
    fails(octavo("ask", document, "Why?", *on_tiny), 1, message)


# Inspect


def test_inspect_an_index(folder):
    described = json.loads(octavo("inspect", folder, "-o", "json").stdout)
    assert (described["document"], described["model"]) == ("island.txt", "tiny.gguf")
    assert [file["damage"] for file in described["files"]] == [None] * 4
    lines = octavo("inspect", folder).stdout.splitlines()
    assert lines[0] == "document            island.txt"
    assert "files               4, all intact" in lines


def test_inspect_finds_damage_that_left_size_and_time(folder):
    change_a_byte(folder / "layer-002.safetensors", keep_time=True)
    result = octavo("inspect", folder)
    assert result.exit_code == 1
    assert "files               4, some damaged" in result.stdout.splitlines()
    assert "layer-002.safetensors of the index" in result.stderr
    result = octavo("inspect", folder, "-o", "json")
    assert result.exit_code == 1
    assert [bool(file["damage"]) for file in json.loads(result.stdout)["files"]] == [False, False, False, True]


def test_inspect_refuses_what_is_no_index(folder, tmp_path):
    fails(octavo("inspect", tmp_path), 1, f"{tmp_path} is not an index")
    partial = folder.rename(folder.with_name("island.partial"))
    fails(octavo("inspect", partial), 1, "is an index that is not finished")
    manifest = partial.rename(folder) / "manifest.json"
    manifest.write_text('{"files": {}}')
    fails(octavo("inspect", folder), 1, "manifest.json is incomplete: delete")
    manifest.write_text("{")
    fails(octavo("inspect", folder), 1, "manifest.json cannot be read")


def test_inspect_a_model(tiny_model):
    described = json.loads(octavo("inspect", tiny_model, "-o", "json").stdout)
    assert described.pop("bytes") == tiny_model.stat().st_size
    assert described.pop("parameters") > 0
    assert described == {
        "model": "tiny.gguf",
        "architecture": "llama",
        "layers": 3,
        "context_length": 4096,
        "chat_template": True,
        "octavo_attention": True,
        "heads": 4,
        "kv_heads": 2,
        "group": 2,
        "head_dim": 64,
        "windows": [{"window": 0, "layers": 3}],
        "kv_bytes_per_token": 3 * 2 * 2 * 2 * 64,
    }


def test_inspect_tells_sliding_layers(tmp_path):
    model = tiny_models.write_model(tmp_path / "gemma.gguf", "gemma3", n_layer=6)
    assert (
        "windows             5 layers see 32 tokens, 1 layers see everything"
        in octavo("inspect", model).stdout.splitlines()
    )
