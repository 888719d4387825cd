"""`octavo index` and `inspect`, by their output and exit codes, on a tiny model."""

import json
import os
import re
import shutil
import signal
import time
from pathlib import Path

import pytest
from helpers import tiny_models
from helpers.command_line import SENTENCES, SHORT_ANSWER, fails, interrupt_when, octavo, start
from helpers.pdf_files import PdfWriter

from octavo.documents.document import READS
from octavo.runtime.devices.step_costs import LENGTHS, StepCosts
from octavo.runtime.methods.attention import Attention

AUTO = Attention.parse("auto")


def test_index_is_made_once_and_listed(document, on_tiny, tmp_path):
    first = octavo("index", document, *on_tiny)
    assert (first.exit_code, first.stdout) == (0, "")
    folder = next((tmp_path / "indexes" / "tiny.octavo").glob("island-*"))
    assert first.stderr.startswith("Indexing island.txt, once: ")
    assert "Reading island.txt: " in first.stderr
    assert first.stderr.splitlines()[-1] == f"The index of island.txt is {folder}"

    second = octavo("index", document, *on_tiny, "-o", "json")
    assert json.loads(second.stdout) == [{"document": "island.txt", "path": str(folder)}]
    assert "Reading" not in second.stderr

    [row] = json.loads(octavo("list", *on_tiny[:4], "-o", "json").stdout)
    assert (row["document"], row["model"], row["path"]) == ("island.txt", "tiny.gguf", str(folder))
    assert row["bytes"] == sum(path.stat().st_size for path in folder.iterdir())


def test_the_encoding_of_a_text_can_be_given_and_changed(on_tiny, tmp_path):
    path = tmp_path / "cafe.txt"
    path.write_bytes(("Le café. " * 9).encode("cp1252"))
    folders = []
    for encoding in ("cp1251", "cp1252", "cp1251"):
        result = octavo("index", path, *on_tiny, "--encoding", encoding, "-o", "json")
        assert result.exit_code == 0, result.stderr
        folders.append(json.loads(result.stdout)[0]["path"])
    assert folders[0] == folders[2] != folders[1]
    wrong = octavo("index", path, *on_tiny, "--encoding", "klingon")
    assert wrong.stderr == "Error: There is no encoding named 'klingon': give one such as cp1252 or shift_jis.\n"


@pytest.fixture
def folder_of_documents(tmp_path) -> Path:
    """Three documents, two of them in a folder of the folder, and a picture."""
    folder = tmp_path / "papers"
    (folder / "inner").mkdir(parents=True)
    (folder / "a.txt").write_text(SENTENCES * 16)
    (folder / "inner" / "b.txt").write_text("A second one. " + SENTENCES * 6)
    (folder / "inner" / "c.md").write_text("# A third one\n\n" + SENTENCES * 4)
    (folder / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    return folder


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_folder_is_indexed(folder_of_documents, on_tiny, jobs):
    command = ["index", folder_of_documents, *on_tiny, "--jobs", jobs, "-o", "json"]
    first = octavo(*command)
    assert first.exit_code == 0, first.stderr
    made = json.loads(first.stdout)
    assert [row["document"] for row in made] == ["a.txt", "b.txt", "c.md"]
    assert all((Path(row["path"]) / "manifest.json").exists() for row in made)
    lines = first.stderr.splitlines()
    assert lines[0] == (f"picture.png is left out of {folder_of_documents}: {READS}")
    assert all(f"The index of {row['document']} is {row['path']}" in lines for row in made)
    assert re.fullmatch(r"Indexing: 3/3 documents [\d,]+ tokens [\d,]+ tokens/s in \d:\d\d", lines[-1])
    second = octavo(*command)
    assert second.stdout == first.stdout
    assert "Indexing a.txt" not in second.stderr
    assert octavo("verify", *on_tiny[:4]).exit_code == 0


@pytest.mark.parametrize("jobs", [1, 2])
def test_documents_that_fail_do_not_stop_the_others(document, on_tiny, tmp_path, jobs):
    (tmp_path / "long.txt").write_text(SENTENCES * 6000)  # too long for a hundred parts
    result = octavo(
        "index", tmp_path / "missing.txt", tmp_path / "long.txt", document, *on_tiny, "-j", jobs, "-o", "json"
    )
    assert result.exit_code == 1
    assert [(row["document"], bool(row["path"])) for row in json.loads(result.stdout)] == [
        ("missing.txt", False),
        ("long.txt", False),
        ("island.txt", True),
    ]
    assert result.stderr.splitlines()[-3:] == [
        "Error: 2 of 3 documents could not be indexed, the others are:",
        f"- The document {tmp_path}/missing.txt cannot be opened: No such file or directory.",
        "- long.txt has about 498,049 tokens but this context holds 4,096: split it, or give a long-context model "
        "with -m.",
    ]
    assert octavo("ask", document, "Why?", *on_tiny, "-n", "3").exit_code == 0


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_document_that_is_longer_than_the_context_is_indexed_in_the_parts_that_ask_looks_for(
    document, on_tiny, tmp_path, jobs
):
    long = tmp_path / "long.txt"
    long.write_text("".join(f"{i} {SENTENCES}" for i in range(30)))
    on_small = [*on_tiny, "-c", "1024"]
    result = octavo("index", long, document, *on_small, "-j", jobs, "-o", "json")
    assert result.exit_code == 0, result.stderr
    made, other = json.loads(result.stdout)
    assert (made["document"], made["path"], "parts" in other) == ("long.txt", None, False)
    parts = [Path(part) for part in made["parts"]]
    names = [json.loads((part / "manifest.json").read_text())["document"]["name"] for part in parts]
    assert names == [f"long.txt, part {number} of {len(parts)}" for number in range(1, len(parts) + 1)]
    assert "more than the context of 1,024. So it is read in" in result.stderr
    assert f"The indexes of the {len(parts)} parts of long.txt are in {parts[0].parent}" in result.stderr.splitlines()

    asked = octavo("ask", long, document, "Which ship?", *on_small, "-n", "3")
    assert asked.exit_code == 0, asked.stderr
    assert "Indexing" not in asked.stderr
    assert octavo("index", long, document, *on_small, "-j", jobs, "-o", "json").stdout == result.stdout


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_model_that_cannot_be_used_stops_all(document, on_tiny, folder_of_documents, jobs):
    command = ["index", folder_of_documents, "-m", document, "--index-dir", on_tiny[3], "-j", jobs]
    fails(octavo(*command), 1, "is not a GGUF model")


def test_folders_without_documents_and_patterns_without_matches(tmp_path, on_tiny):
    (tmp_path / "nothing").mkdir()
    fails(octavo("index", tmp_path / "nothing", *on_tiny), 1, "There is no document in the folder")
    fails(octavo("index", tmp_path / "*.odt", *on_tiny), 1, "There is nothing like")


def test_a_cluster_that_is_not_there(document, on_tiny):
    result = octavo("index", document, *on_tiny, "--scheduler", "nonsense://127.0.0.1:1")
    fails(result, 1, "There is no Dask scheduler at nonsense://127.0.0.1:1: start one with `dask scheduler`")


@pytest.mark.slow
def test_interrupted_jobs_go_on(tmp_path, on_tiny):
    folder, library = tmp_path / "long", tmp_path / "indexes"
    folder.mkdir()
    for name in "abc":
        (folder / f"{name}.txt").write_text("".join(f"{name} {i} {SENTENCES}" for i in range(150)))
    command = ["index", folder, *on_tiny, "-c", "20000", "--jobs", "2"]
    process = start(*command)
    _, errors = interrupt_when(process, lambda: len(list(library.glob("*/*.partial/prefill-*.safetensors"))) > 3)
    assert process.returncode == 130
    assert errors.splitlines()[-1] == "Interrupted: the same command resumes where this one stopped."
    assert "Traceback" not in errors
    result = octavo(*command)
    assert result.exit_code == 0, result.stderr
    assert len(list(library.glob("*/[abc]-*/manifest.json"))) == 3
    assert not list(library.glob("*/*.partial"))


def test_interrupted_index_goes_on(tmp_path, on_tiny):
    document = tmp_path / "long.txt"
    document.write_text("".join(f"{i} {SENTENCES}" for i in range(150)))
    library = tmp_path / "indexes"
    command = ["index", document, *on_tiny, "-c", "20000"]
    process = start(*command)
    _, errors = interrupt_when(process, lambda: len(list(library.glob("*/long-*.partial/prefill-*.safetensors"))) > 1)
    assert process.returncode == 130
    assert errors.splitlines()[-1] == "Interrupted: the same command resumes where this one stopped."
    assert "Traceback" not in errors
    [row] = json.loads(octavo("list", *on_tiny[:4], "-o", "json").stdout)
    assert (row["document"], row["model"], row["state"]) == ("long.txt", "tiny.gguf", "unfinished")
    assert row["tokens"] > 0

    result = octavo(*command)
    assert result.exit_code == 0
    assert re.search(r"Reading long.txt: [\d,]+ tokens, \d,\d{3} of them done before", result.stderr)
    assert not list(library.glob("*/*.partial"))


def wait_for(path: Path, line: str) -> None:
    """Until a process has written a line that holds this."""
    deadline = time.monotonic() + 120
    while line not in path.read_text():
        assert time.monotonic() < deadline, path.read_text()
        time.sleep(0.05)


@pytest.mark.slow
def test_watched_folders_are_kept_current(folder_of_documents, on_tiny, tmp_path):
    told = tmp_path / "told"
    with told.open("w") as errors:
        process = start("index", folder_of_documents, "--watch", *on_tiny, stderr=errors)
    wait_for(told, f"Watching {folder_of_documents}: Ctrl-C ends it.")
    assert told.read_text().count("The index of ") == 3
    (folder_of_documents / "new").mkdir()
    (folder_of_documents / "new" / "d.txt").write_text("A fourth one. " + SENTENCES * 3)
    wait_for(told, "The index of d.txt is ")
    with (folder_of_documents / "a.txt").open("a") as file:
        file.write("It has changed.\n")
    wait_for(told, "a.txt has changed since it was indexed, so it is indexed again")
    wait_for(told, "The index of a.txt is ")
    (folder_of_documents / "broken.pdf").write_bytes(b"%PDF-1.7 broken")
    wait_for(told, "broken.pdf is damaged")
    (folder_of_documents / "inner" / "b.txt").unlink()
    wait_for(told, "b.txt is gone; its index stays until `octavo prune` removes it.")
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0
    assert told.read_text().splitlines()[-1] == "Ended: the same command resumes."
    assert "Traceback" not in told.read_text()


def test_what_cannot_be_watched(document, on_tiny):
    fails(octavo("index", document, "--watch", *on_tiny), 1, "island.txt is not a folder: only folders can be watched")
    fails(octavo("index", document.parent, "--watch", "-o", "json", *on_tiny), 2, "--watch tells what it does in lines")


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
    result = octavo("ask", document, "Why?", *on_tiny)
    assert result.exit_code == 0
    assert result.stderr.splitlines()[:2] == [
        "The index of island.txt is damaged, so it is made again; what is whole is kept. "
        f"layer-001.safetensors of the index {folder} has changed since it was written.",
        result.stderr.splitlines()[1],
    ]
    assert result.stderr.splitlines()[1].startswith("Indexing island.txt, once: ")
    assert octavo("verify", *on_tiny[:4]).exit_code == 0


def test_index_of_another_model(folder, document, on_tiny, tmp_path):
    other = tiny_models.write_model(tmp_path / "tiny.gguf", "llama", seed=1)
    with_other = ["-m", other, *on_tiny[2:]]
    [made] = json.loads(octavo("index", document, *with_other, "-o", "json").stdout)
    shutil.rmtree(made["path"])
    shutil.copytree(folder, made["path"])
    fails(octavo("ask", document, "Why?", *with_other), 1, "was made with another model")


def test_index_whose_manifest_is_incomplete(folder, document, on_tiny):
    (folder / "manifest.json").write_text('{"format_version": 4, "files": {}}')
    [row] = json.loads(octavo("list", *on_tiny[:4], "-o", "json").stdout)
    assert row["state"] == "damaged"
    message = f"{folder / 'manifest.json'} is damaged: an entry is missing, or is what it cannot be."
    assert message in octavo("verify", *on_tiny[:4]).stdout
    assert message in octavo("ask", document, "Why?", *on_tiny).stderr
    [row] = json.loads(octavo("list", *on_tiny[:4], "-o", "json").stdout)
    assert row["state"] == ""


def test_an_index_of_another_format_is_told(folder, document, on_tiny):
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["blake3"]
    (folder / "manifest.json").write_text(json.dumps(manifest | {"format_version": 3}))
    for command in (["inspect", folder], ["ask", document, "Why?", *on_tiny]):
        fails(octavo(*command), 1, "has format 3, and this octavo reads 4")


def test_verify_says_which_indexes_are_damaged(folder, document, on_tiny):
    whole = octavo("verify", *on_tiny[:4])
    assert (whole.exit_code, whole.stdout) == (0, "")
    assert re.fullmatch(r"Compared 1 index, .*B, in \d\.\d s: none damaged\.\n", whole.stderr)
    change_a_byte(folder / "layer-001.safetensors", keep_time=True)
    damaged = octavo("verify", document, *on_tiny[:4])
    assert damaged.exit_code == 1
    assert damaged.stdout == (f"layer-001.safetensors of the index {folder} has changed since it was written.\n")
    assert "1 damaged." in damaged.stderr
    [row] = json.loads(octavo("verify", *on_tiny[:4], "-o", "json").stdout)
    assert row == {"document": "island.txt", "path": str(folder), "damage": damaged.stdout.strip()}
    assert "There is no index of other.txt" in octavo("verify", "other.txt", *on_tiny[:4]).stderr


# Inspect


def test_inspect_an_index(folder):
    described = json.loads(octavo("inspect", folder, "-o", "json").stdout)
    assert (described["document"], described["model"]) == ("island.txt", "tiny.gguf")
    assert [file["damage"] for file in described["files"]] == [None] * 4
    lines = octavo("inspect", folder).stdout.splitlines()
    assert lines[0] == "document            island.txt"
    assert "files               4, all intact" in lines


def test_inspect_describes_the_index_of_a_document(folder, document, on_tiny, tmp_path):
    assert octavo("inspect", document).stdout == octavo("inspect", folder).stdout
    octavo("index", document, *on_tiny, "--cache-type", "q8_0")
    both = json.loads(octavo("inspect", document, "-o", "json").stdout)
    assert sorted(one["cache_type"] for one in both) == ["f16", "q8_0"]
    text = octavo("inspect", document).stdout
    assert text.count("document            island.txt") == 2
    other = tmp_path / "other.pdf"
    other.write_text("Not indexed.")
    fails(octavo("inspect", other), 1, f"{other} is not indexed: `octavo index` reads it")
    fails(octavo("inspect", tmp_path / "none"), 1, "cannot be opened")


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
    fails(octavo("inspect", folder), 1, "manifest.json is damaged: an entry is missing")
    manifest.write_text("{")
    fails(octavo("inspect", folder), 1, "manifest.json is damaged: it cannot be read")


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
        "products": {"share": 0.0, "octavo": [], "llama_cpp": ["F32"]},
        "octavo_attention": True,
        "heads": 4,
        "kv_heads": 2,
        "group": 2,
        "head_dim": 64,
        "windows": [{"window": 0, "layers": 3}],
        "kv_bytes_per_token": 3 * 2 * 2 * 2 * 64,
        "auto": {"chooses": str(AUTO.resolve_for(0))},
    }


def test_inspect_a_model_whose_steps_were_measured(tiny_model, monkeypatch):
    costs = StepCosts(LENGTHS, (100.0, 200.0, 400.0), (150.0, 120.0, 200.0))
    monkeypatch.setattr("octavo.runtime.devices.step_costs.kept_costs", lambda layers, n_threads: costs)
    described = json.loads(octavo("inspect", tiny_model, "-o", "json").stdout)["auto"]
    assert described["chooses"] == "sketch:quality=0.95,most=0.25,dense=4096"
    assert described["a layer's step at 2,304 tokens"] == "100 us reading all, 150 us selecting an eighth"
    assert "at 8,192 tokens 400 us reading all, 200 us selecting an eighth" in octavo("inspect", tiny_model).stdout


def test_inspect_counts_the_tokens_that_fit(tiny_model, folder):
    described = json.loads(octavo("inspect", tiny_model, "--memory", "1G", "-o", "json").stdout)
    room = (1 << 30) - tiny_model.stat().st_size - (512 << 20)  # and the memory of loading a model
    tokens = room // described["kv_bytes_per_token"] // 256 * 256  # in whole chunks
    assert described["tokens_that_fit"][0]["tokens"]["f16"] == tokens
    lines = octavo("inspect", tiny_model, "--memory", "1G").stdout.splitlines()
    assert "  attention   share kept           f16          q8_0          q4_0" in lines
    assert any(line.startswith(f"  dense                1{tokens:>14,}") for line in lines)
    fails(octavo("inspect", folder, "--memory", "1G"), 2, "--memory is for a model")


def test_inspect_tells_sliding_layers(tmp_path):
    model = tiny_models.write_model(tmp_path / "gemma.gguf", "gemma3", n_layer=6)
    assert (
        "windows             5 layers see 32 tokens, 1 layers see everything"
        in octavo("inspect", model).stdout.splitlines()
    )


@pytest.mark.parametrize("reading", ["document", "excerpts"])
def test_it_is_said_once_that_the_text_of_an_encrypted_file_is_kept_in_clear(reading, tmp_path, on_tiny):
    secret = tmp_path / "secret.pdf"
    secret.write_bytes(PdfWriter(password="opens").page((60, 700, "The keeper had a cat named Tom.")).content())
    asked = "ask", secret, "Which cat?", "--read", reading, *on_tiny, *SHORT_ANSWER
    assert octavo(*asked).exit_code == 1  # without the password
    told = "secret.pdf is encrypted, but octavo keeps its text in clear on this disk, readable by you alone, and "
    told += "answers from it without the password: `octavo remove secret.pdf` removes it."
    assert octavo(*asked, "--password", "opens").stderr.splitlines().count(told) == 1
    again = octavo(*asked)
    assert (again.exit_code, told in again.stderr) == (0, False)
    assert octavo("remove", secret, *on_tiny[:4], "--yes").exit_code == 0
    assert octavo(*asked).exit_code == 1
    read = octavo("read", secret, "--password", "opens")
    assert "Tom" in read.stdout
    assert read.stderr == ""
