"""Files of any name and content: each is read or named in a sentence, and none stops the others."""

import json
import os
from pathlib import Path

import pytest
from helpers.command_line import SENTENCES, SHORT_ANSWER, octavo

from octavo.documents.text import notebook

FACT = "The lighthouse of Skerry was painted green by Tobias Quill.\n\n"


def named(folder, name):
    """A file of a name in bytes, as commands get it."""
    path = Path(os.fsdecode(os.path.join(os.fsencode(folder), name)))
    path.write_text(FACT + SENTENCES * 3)
    return path


@pytest.fixture(params=[b"caf\xe9.txt", b"\xff\xfe\xfd.txt"])
def path(request, tmp_path):
    return named(tmp_path, request.param)


@pytest.fixture
def folder(tmp_path):
    """A folder with a good document, one of an odd name, half an emoji, and an odd mail."""
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "good.txt").write_text(FACT)
    named(folder, b"caf\xe9.txt")
    cell = {"cell_type": "markdown", "source": "Half \ud83d of the ships"}
    (folder / "a_notebook.ipynb").write_text(json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4}))
    head = "From: a@b.c\nTo: d@e.f\nSubject: =?unicode_escape?q?\\x?=\n"
    (folder / "mail.eml").write_text(f"{head}Content-Type: text/plain; charset=utf-7\n\n+2D0- ship\n")
    return folder


def succeeds(*arguments, **more):
    result = octavo(*arguments, **more)
    assert (result.exit_code, "Traceback" in result.stderr) == (0, False), result.stderr
    return result


def shown(path):
    return path.name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def test_a_document_whose_name_is_not_utf_8_passes_all_commands(path, on_tiny):
    where = on_tiny[:4]
    assert succeeds("read", path).stdout.startswith(FACT)
    assert shown(path) in succeeds("index", path, *on_tiny).stderr
    assert f"{shown(path)} is indexed already" in succeeds("index", path, *on_tiny).stderr
    [row] = json.loads(succeeds("list", *where, "-o", "json").stdout)
    assert (row["document"], row["state"]) == (shown(path), "")
    manifest = json.loads((Path(row["path"]) / "manifest.json").read_text())
    assert os.fsencode(manifest["document"]["path"]) == os.path.realpath(os.fsencode(path))
    for reads in ([], ["--read", "excerpts"], ["--sources"]):
        assert succeeds("ask", path, "Who painted it?", *on_tiny, *SHORT_ANSWER, *reads).stdout
    assert succeeds("ask", path, "Who?", "-o", "json", *on_tiny, *SHORT_ANSWER).stdout
    assert succeeds("chat", path, *on_tiny, *SHORT_ANSWER, stdin="Who painted it?\n").stdout
    assert "0 damaged" not in succeeds("verify", path, *where).stderr
    assert "Removed " in succeeds("remove", path, *where, "--yes").stderr
    assert json.loads(succeeds("list", *where, "-o", "json").stdout) == []


def test_passages_of_a_document_whose_name_is_not_utf_8(path, on_tiny):
    result = succeeds("ask", path, "Who painted it?", *on_tiny, *SHORT_ANSWER, "--first-answer", "0")
    assert f"(From 1 passage of {shown(path)}.)" in " ".join(result.stderr.split())


def test_a_folder_of_odd_files_is_read_whole(folder, on_tiny):
    assert succeeds("index", folder, *on_tiny).stderr.count("The index of ") == 4
    names = {row["document"] for row in json.loads(succeeds("list", *on_tiny[:4], "-o", "json").stdout)}
    assert names == {"good.txt", "caf\\xe9.txt", "a_notebook.ipynb", "mail.eml"}
    for reads in ("document", "excerpts"):
        assert succeeds("ask", folder, "Who painted Skerry?", "--read", reads, *on_tiny, *SHORT_ANSWER).stdout


@pytest.mark.parametrize("arguments", [[], ["--jobs", "2"]])
def test_a_reader_that_fails_does_not_stop_others(folder, on_tiny, monkeypatch, arguments):
    if arguments:  # other processes read the file, which no patch reaches
        (folder / "a_notebook.ipynb").write_bytes(b"%PDF-1.4 nothing")
    else:
        monkeypatch.setattr(notebook, "extract_notebook", lambda content, name: {}["source"])
    result = octavo("index", folder, *on_tiny, *arguments)
    assert result.exit_code == 1
    assert "1 of 4 documents could not be indexed, the others are. a_notebook.ipynb" in " ".join(result.stderr.split())
    names = {row["document"] for row in json.loads(octavo("list", *on_tiny[:4], "-o", "json").stdout)}
    assert names == {"good.txt", "caf\\xe9.txt", "mail.eml"}


@pytest.mark.parametrize("reads", [["--read", "document"], ["--read", "excerpts"], ["--first-answer", "0"]])
def test_a_question_leaves_out_a_document_whose_reader_fails(folder, on_tiny, monkeypatch, reads):
    monkeypatch.setattr(notebook, "extract_notebook", lambda content, name: {}["source"])
    result = octavo("ask", folder, "Who painted Skerry?", *reads, *on_tiny, *SHORT_ANSWER)
    assert result.exit_code == 0
    assert "Left out: a_notebook.ipynb could not be read: KeyError: 'source'." in " ".join(result.stderr.split())


@pytest.mark.parametrize("problem", [ValueError("odd"), MemoryError(), OSError(5, "Input/output error")])
def test_a_document_that_cannot_be_indexed_does_not_stop_others(folder, on_tiny, monkeypatch, problem):
    from octavo.convert.index_builder import IndexBuilder

    build = IndexBuilder.build

    def fail(self, *arguments):
        if self.document.name == "mail.eml":
            raise problem
        return build(self, *arguments)

    monkeypatch.setattr(IndexBuilder, "build", fail)
    result = octavo("index", folder, *on_tiny)
    assert result.exit_code == 1
    assert "the others are. mail.eml could not be read" in " ".join(result.stderr.split())
    assert len(json.loads(octavo("list", *on_tiny[:4], "-o", "json").stdout)) == 3
