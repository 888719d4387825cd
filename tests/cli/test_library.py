"""`octavo list`, `remove` and `prune`, by their output."""

import json
import os
import re
import time
from pathlib import Path

import pytest
from helpers import tiny_models
from helpers.command_line import SENTENCES, SHORT_ANSWER, fails, octavo

from octavo.system.locks import locked

DAY = 24 * 3600


@pytest.fixture
def report(tmp_path):
    path = tmp_path / "report.md"
    path.write_text("# Fog\n\n" + SENTENCES * 3)
    return path


@pytest.fixture
def indexed(document, report, on_tiny):
    """Options with which both documents are indexed."""
    assert octavo("index", document, report, *on_tiny).exit_code == 0
    return on_tiny[:4]


def listed(*options):
    """What is listed, by document."""
    return {row["document"]: row for row in json.loads(octavo("list", *options, "-o", "json").stdout)}


def test_documents_are_listed_for_programs_and_for_people(document, indexed):
    rows = listed(*indexed)
    assert rows.keys() == {"island.txt", "report.md"}
    row = rows["island.txt"]
    assert (row["model"], row["cache_type"], row["state"]) == ("tiny.gguf", "f16", "")
    assert row["tokens"] > 100
    assert row["bytes"] > row["tokens"] * 2 * 2 * 64 * 2  # keys and values in f16
    result = octavo("list", *indexed)
    assert result.stdout.split("\n")[0].split() == [
        "document",
        "model",
        "tokens",
        "type",
        "size",
        "last",
        "used",
        "state",
        "index",
    ]
    assert result.stderr.startswith("2 indexes, ")


def test_nothing_is_listed_where_nothing_is(on_tiny):
    result = octavo("list", *on_tiny[:4])
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "Nothing is indexed yet.\n")
    assert json.loads(octavo("list", *on_tiny[:4], "-o", "json").stdout) == []


def test_all_models_are_listed_that_were_used(report, indexed, tmp_path):
    (tmp_path / "other").mkdir()
    other = tiny_models.write_model(tmp_path / "other" / "second.gguf", "llama")
    octavo("index", report, "-m", other, "-t", "2")
    rows = json.loads(octavo("list", "-o", "json").stdout)
    assert sorted((row["model"], row["document"]) for row in rows) == [
        ("second.gguf", "report.md"),
        ("tiny.gguf", "island.txt"),
        ("tiny.gguf", "report.md"),
    ]


def test_the_time_of_use_is_that_of_the_last_question(document, indexed, on_tiny):
    before = listed(*indexed)["island.txt"]
    octavo("ask", document, "Why?", *on_tiny, *SHORT_ANSWER)
    used = time.time() - 3 * DAY
    os.utime(os.path.join(before["path"], "used"), (used, used))
    assert listed(*indexed)["island.txt"]["used"] < before["used"]
    octavo("ask", document, "Why?", *on_tiny, *SHORT_ANSWER)
    assert listed(*indexed)["island.txt"]["used"] >= before["used"]


def test_what_became_of_documents_is_told(document, report, indexed):
    os.utime(document, (1, 1))  # touched, but the same
    assert {name: row["state"] for name, row in listed(*indexed).items()} == {"island.txt": "", "report.md": ""}
    text = document.read_text()
    document.write_text(text.swapcase())
    os.utime(document, (1, 1))  # changed, with the same size and time
    assert listed(*indexed)["island.txt"]["state"] == "changed"
    document.write_text(text)
    assert listed(*indexed)["island.txt"]["state"] == ""
    document.write_text("Another text.")
    report.unlink()
    assert {name: row["state"] for name, row in listed(*indexed).items()} == {
        "island.txt": "changed",
        "report.md": "gone",
    }


def test_remove_asks_and_removes_a_document(document, indexed):
    answer = octavo("remove", document, *indexed, stdin="n\n")
    assert answer.exit_code == 1
    assert "Remove 1 of the indexes, " in answer.stderr
    assert len(listed(*indexed)) == 2
    result = octavo("remove", "island.txt", *indexed, stdin="y\n")
    assert result.exit_code == 0
    assert listed(*indexed).keys() == {"report.md"}
    assert document.exists()
    fails(octavo("remove", "island.txt", *indexed), 2, "There is no index of island.txt: `octavo list` shows what")


@pytest.mark.slow
def test_parts_of_a_long_document_follow_its_file(tmp_path, on_tiny):
    path, settings = tmp_path / "long.txt", [*on_tiny, "-c", "1024"]
    text = "".join(f"The keeper wrote down ship {number} that passed.\n\n" for number in range(80))
    path.write_text(text)
    assert octavo("index", path, *settings).exit_code == 0
    parts = sorted(listed(*on_tiny[:4]))
    assert len(parts) > 1
    assert parts == [f"long.txt, part {number} of {len(parts)}" for number in range(1, len(parts) + 1)]
    assert "is indexed already" in octavo("index", path, *settings).stderr

    path.write_text(text.replace("ship 79 ", "boat 79 "))  # of the last part
    states = {name: row["state"] for name, row in listed(*on_tiny[:4]).items()}
    assert states == dict.fromkeys(parts, "") | {parts[-1]: "changed"}
    assert f"{parts[-1]} has changed since it was indexed" in octavo("index", path, *settings).stderr
    assert octavo("prune", *on_tiny[:4], "--yes").stderr.count("Removed ") == 1
    assert octavo("verify", "long.txt", *on_tiny[:4]).stderr.startswith(f"Compared {len(parts)} indexes")
    path.unlink()
    assert {row["state"] for row in listed(*on_tiny[:4]).values()} == {"gone"}
    assert octavo("remove", "long.txt", "--yes", *on_tiny[:4]).stderr.count("Removed ") == len(parts)
    assert listed(*on_tiny[:4]) == {}


def test_prune_removes_what_is_of_no_use(document, report, indexed, on_tiny):
    assert octavo("prune", *indexed, "--yes").stderr == "There is nothing to remove.\n"
    folder = listed(*indexed)["report.md"]["path"]
    os.rename(folder, f"{folder}.partial")
    document.write_text("Another text.")
    assert sorted(row["state"] for row in listed(*indexed).values()) == ["changed", "unfinished"]
    result = octavo("prune", *indexed, "--stale", "--yes")
    assert result.stderr.startswith("Removed ")
    assert [row["state"] for row in listed(*indexed).values()] == ["unfinished"]
    octavo("prune", *indexed, "--yes")
    assert listed(*indexed) == {}


def test_prune_forgets_the_texts_of_files_that_are_gone(document, tmp_path, on_tiny):
    gone = tmp_path / "gone.txt"
    gone.write_text("The keeper of the lighthouse had a cat.")
    asked = octavo("ask", gone, "Who had a cat?", "--read", "excerpts", *on_tiny, *SHORT_ANSWER)
    assert "(From 1 passage of gone.txt.)" in asked.stderr
    assert listed(*on_tiny[:4]) == {}  # nothing was indexed
    gone.unlink()
    assert octavo("prune", *on_tiny[:4], "--yes").stderr == "Forgot the texts of files that are gone: 1.\n"
    assert octavo("prune", *on_tiny[:4], "--yes").stderr == "There is nothing to remove.\n"


def test_remove_forgets_the_texts_too(document, report, on_tiny):
    at_once = [*on_tiny, *SHORT_ANSWER, "--read", "excerpts"]
    octavo("ask", document, "Which ship?", *at_once)
    octavo("ask", report, "Which ship?", *at_once)
    stays = "A conversation about it stays: `octavo chats` lists what is kept.\n"
    assert octavo("remove", document, *on_tiny[:4], "--yes").stderr == f"Forgot a text.\n{stays}"
    octavo("index", report, *on_tiny)
    result = octavo("remove", "report.md", *on_tiny[:4], "--yes")
    assert re.fullmatch(rf"Removed .*\nForgot a text\.\n{stays}", result.stderr)
    assert octavo("remove", document, *on_tiny[:4], "--yes").exit_code == 2


def test_what_is_being_read_is_listed_so_and_not_pruned(document, indexed, on_tiny):
    folder = listed(*indexed)["report.md"]["path"]
    os.rename(folder, f"{folder}.partial")
    with locked(Path(f"{folder}.partial")):
        assert sorted(row["state"] for row in listed(*indexed).values()) == ["", "being read"]
        assert octavo("prune", *indexed, "--yes").stderr == "There is nothing to remove.\n"
    assert sorted(row["state"] for row in listed(*indexed).values()) == ["", "unfinished"]


@pytest.fixture(params=["profile", "passkeys-000.safetensors", "losses.json"])
def measured(request, indexed, tmp_path):
    """The folder of a profile's measurements, as this octavo or an older one leaves it."""
    folder = tmp_path / "indexes" / "tiny.octavo" / "plan-4fbf9a4da3bf.partial"
    folder.mkdir()
    (folder / request.param).touch()
    (folder / "prose-000.safetensors").write_bytes(b"measured" * 1000)
    return folder


def test_prune_leaves_what_a_profile_has_measured(measured, indexed):
    with locked(measured):
        row = listed(*indexed)["(profile)"]
        assert (row["state"], row["path"]) == ("being measured", str(measured))
        for option in ([], ["--unfinished"], ["--larger-than", "1K", "--older-than", "1h"]):
            octavo("prune", *indexed, "--yes", *option)
            assert measured.exists()
        assert "is in use" in octavo("remove", measured.name, *indexed, "--yes").stderr
    assert listed(*indexed)["(profile)"]["state"] == "unfinished"
    assert octavo("prune", *indexed, "--yes").stderr == "There is nothing to remove.\n"
    assert measured.exists()
    assert f"Removed {measured}" in octavo("prune", *indexed, "--unfinished", "--yes").stderr


def test_the_unfinished_index_of_a_document_named_plan_is_no_profile(indexed, tmp_path):
    folder = tmp_path / "indexes" / "tiny.octavo" / "plan-4fbf9a4da3bf.partial"
    folder.mkdir()
    (folder / "prefill-00001024.safetensors").touch()
    assert listed(*indexed)["plan"]["state"] == "unfinished"
    assert f"Removed {folder}" in octavo("prune", *indexed, "--yes").stderr


def test_prune_by_size_passes_over_what_is_being_made(indexed, document):
    folder = Path(listed(*indexed)["island.txt"]["path"])
    os.rename(folder, f"{folder}.partial")
    with locked(Path(f"{folder}.partial")):
        result = octavo("prune", *indexed, "--larger-than", "1K", "--yes")
    assert result.exit_code == 0
    assert list(listed(*indexed)) == [folder.name.rpartition("-")[0]]


def test_an_index_stays_whose_drive_is_not_connected(tmp_path, on_tiny):
    drive = tmp_path / "drive"
    drive.mkdir()
    for name in ("a.txt", "b.txt"):
        (drive / name).write_text(f"{name} is about the keeper of the lighthouse.")
    octavo("index", drive, *on_tiny)
    octavo("ask", drive, "Who?", "--read", "excerpts", *on_tiny, *SHORT_ANSWER)
    drive.rename(tmp_path / "elsewhere")
    assert {row["state"] for row in listed(*on_tiny[:4]).values()} == {"away"}
    assert octavo("prune", *on_tiny[:4], "--yes").stderr == "There is nothing to remove.\n"
    (tmp_path / "elsewhere").rename(drive)
    (drive / "a.txt").unlink()
    assert {name: row["state"] for name, row in listed(*on_tiny[:4]).items()} == {"a.txt": "gone", "b.txt": ""}
    assert octavo("prune", *on_tiny[:4], "--yes").stderr.count("Removed ") == 1


def test_prune_by_age_and_size(document, indexed, on_tiny):
    octavo("ask", document, "Why?", *on_tiny, *SHORT_ANSWER)
    used = time.time() - 3 * DAY
    row = listed(*indexed)["island.txt"]
    os.utime(os.path.join(row["path"], "used"), (used, used))
    for limit in (("--older-than", "4d"), ("--larger-than", "1G")):
        assert octavo("prune", *indexed, "--yes", *limit).stderr == "There is nothing to remove.\n"
    octavo("prune", *indexed, "--yes", "--older-than", "48h")
    assert listed(*indexed).keys() == {"report.md"}
    octavo("prune", *indexed, "--yes", "--larger-than", "1K")
    assert listed(*indexed) == {}


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--older-than", "soon", "'soon' is not a span of time, such as 30d, 12h or 8w."),
        ("--older-than", "d", "'d' is not a span of time"),
        ("--larger-than", "huge", "'huge' is not a number of bytes, such as 500M or 2G."),
    ],
)
def test_limits_that_are_none(option, value, message):
    fails(octavo("prune", option, value), 2, message)


def test_a_damaged_index_is_listed_and_can_go(indexed):
    folder = listed(*indexed)["report.md"]["path"]
    with open(os.path.join(folder, "manifest.json"), "w") as file:
        file.write("{")
    assert sorted(row["state"] for row in listed(*indexed).values()) == ["", "damaged"]
    octavo("prune", *indexed, "--yes")
    assert listed(*indexed).keys() == {"island.txt"}


def test_an_older_version_of_a_document_is_counted_and_not_listed(document, indexed, on_tiny):
    document.write_text("Another text.\n")
    changed = octavo("list", *indexed)
    assert (changed.stdout.count("island.txt"), changed.stdout.count("changed")) == (1, 1)
    octavo("index", document, *on_tiny)
    result = octavo("list", *indexed)
    assert (result.stdout.count("island.txt"), result.stdout.count("changed")) == (1, 0)
    first, last = result.stderr.splitlines()
    assert first == "1 index of an older version is not shown: `octavo prune` removes it."
    assert last.startswith("3 indexes, ")
    assert [row["state"] for row in json.loads(octavo("list", *indexed, "-o", "json").stdout)].count("changed") == 1
    octavo("prune", *indexed, "--yes")
    assert octavo("list", *indexed).stderr.startswith("2 indexes, ")
