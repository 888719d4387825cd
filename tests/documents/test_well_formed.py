"""A text can be encoded, whatever its file holds, and a reader that fails names the document in a sentence."""

import json
import os

import pytest

from octavo.documents.document import Place, document_name
from octavo.documents.extract import extract_document, may_be_document
from octavo.documents.text import notebook
from octavo.errors import OctavoError, failure, shown, well_formed

MAIL = "From: {}\nTo: b@example.com\nSubject: {}\nMIME-Version: 1.0\nContent-Type: text/plain; charset={}\n\n{}\n"
HALF = "\\ud83d"
CHARSETS = [
    "utf-7",
    "unicode_escape",
    "raw_unicode_escape",
    "punycode",
    "undefined",
    "idna",
    "hex",
    "no-such",
    "utf-16",
    "utf-32",
]


def notebook_of(*cells, kind="markdown"):
    written = [{"cell_type": kind, "source": cell, "outputs": []} for cell in cells]
    return json.dumps({"cells": written, "metadata": {}, "nbformat": 4}).encode()


def extracted(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    document = extract_document(tmp_path / name)
    for text in (document.text, document.name, *document.notices, *(str(place) for place in document.places)):
        text.encode()
    return document


@pytest.mark.parametrize("kind", ["markdown", "code", "raw"])
def test_half_an_emoji_in_a_notebook_becomes_one_character(tmp_path, kind):
    document = extracted(tmp_path, "a.ipynb", notebook_of("Two \ud83d ships", "A whole \U0001f600 ship", kind=kind))
    assert "Two \ufffd ships" in document.text
    assert "A whole \U0001f600 ship" in document.text


def test_headings_are_well_formed_and_places_stay(tmp_path):
    document = extracted(tmp_path, "a.ipynb", notebook_of("# Half \ud83d of it", "The keeper"))
    assert document.places[0] == Place(0, None, "Half \ufffd of it > Cell 1")
    assert document.text[document.places[-1].offset :].startswith("The keeper")


@pytest.mark.parametrize("charset", CHARSETS)
def test_a_mail_of_any_charset_is_read(tmp_path, charset):
    body = f"The keeper +2D0- saw {HALF} ships. \\x"
    document = extracted(tmp_path, "a.eml", MAIL.format("a@example.com", "Hello", charset, body).encode())
    headers, body = document.text.split("\n\n", 2)[1:]
    assert headers == "From: a@example.com\nTo: b@example.com"
    assert body.strip()


@pytest.mark.parametrize("charset", CHARSETS)
@pytest.mark.parametrize("word", [HALF, "\\x", "\\N{no}", "+2D0-", "=ff=fe", "", "===="])
def test_headers_of_any_charset_are_read(tmp_path, charset, word):
    encoded = f"=?{charset}?q?{word}?="
    document = extracted(tmp_path, "a.eml", MAIL.format(f"{encoded} <a@b.c>", encoded, encoded, "The body.").encode())
    assert "To: b@example.com" in document.text
    assert "The body." in document.text


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.html", b"<p>Half &#xD83D; of it, and &#55357;&#56832; two</p>"),
        ("a.json", b'{"half": "\\ud83d", "keeper": "ships"}'),
        ("a.csv", b"ship,year\nPetrel,\\ud83d\n"),
        ("a.rtf", b"{\\rtf1\\ansi Half \\u-10179? of it, and \\u-10179?\\u-8704? whole}"),
        ("a.srt", b"1\n00:00:01,000 --> 00:00:02,000\nThe keeper &#xD83D; saw\n"),
        (
            "a.xhtml",
            b'<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"><p>Half &#xDE00; of it</p></html>',
        ),
    ],
)
def test_other_formats_are_well_formed(tmp_path, name, content):
    assert extracted(tmp_path, name, content).text.strip()


@pytest.mark.parametrize(
    "problem", [KeyError("source"), RecursionError(), ValueError("a \ud83d half"), OSError(5, "x")]
)
def test_whatever_a_reader_raises_is_a_sentence(tmp_path, monkeypatch, problem):
    def fail(content, name):
        raise problem

    monkeypatch.setattr(notebook, "extract_notebook", fail)
    (tmp_path / "a.ipynb").write_bytes(notebook_of("The keeper"))
    with pytest.raises(OctavoError, match=rf"^a\.ipynb could not be read: {type(problem).__name__}.*report this\.$"):
        extract_document(tmp_path / "a.ipynb")


def test_memory_that_runs_out_is_no_fault_of_the_document(tmp_path, monkeypatch):
    def fail(content, name):
        raise MemoryError

    monkeypatch.setattr(notebook, "extract_notebook", fail)
    (tmp_path / "a.ipynb").write_bytes(notebook_of("The keeper"))
    with pytest.raises(MemoryError):
        extract_document(tmp_path / "a.ipynb")


def test_a_file_that_no_library_understands_may_be_a_document(tmp_path, monkeypatch):
    def fail(file):
        raise ZeroDivisionError

    monkeypatch.setattr("octavo.documents.extract.zipfile.ZipFile", fail)
    (tmp_path / "a.docx").write_bytes(b"PK\x03\x04 and nothing")
    assert may_be_document(tmp_path / "a.docx")


def test_a_name_that_is_not_utf_8_is_shown_by_its_bytes(tmp_path):
    path = os.path.join(os.fsencode(tmp_path), b"caf\xe9.txt")
    with open(path, "wb") as file:
        file.write(b"The keeper saw ships.")
    document = extract_document(os.fsdecode(path))
    assert document.name == document_name(os.fsdecode(path)) == "caf\\xe9.txt"
    assert os.fsencode(document.path) == os.path.realpath(path)


def test_what_is_shown_can_be_encoded():
    assert shown("caf\u00e9.txt") == "caf\u00e9.txt"
    assert shown(os.fsdecode(b"a\xff\xfe.txt")) == "a\\xff\\xfe.txt"
    assert shown("half \ud83d") == well_formed("half \ud83d") == "half \ufffd"
    assert str(OctavoError(f"{os.fsdecode(bytes([233]))} cannot be opened.")) == "\\xe9 cannot be opened."
    assert failure("a.txt", OctavoError("It is empty.")) == "It is empty."
