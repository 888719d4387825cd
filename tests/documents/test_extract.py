"""Test that a document's content says what it is, and how files that are none are refused."""

import codecs
import io
import os
import struct
import threading
import time

import pytest
from helpers.document_files import BOOK, PAGE, word_file, zipped
from helpers.pdf_files import PdfWriter

from octavo.documents import extract
from octavo.errors import OctavoError
from octavo.settings import Extraction

CONTENTS = {
    "text": (b"Once upon a time.\n", "Once upon a time.\n"),
    "markup in a text": (b"Use <html> and <p>.\n", "Use <html> and <p>.\n"),
    "html": (PAGE.encode("latin-1"), "The Lighthouse"),
    "xhtml": (b"<?xml version='1.0'?>\n<!-- log -->\n<html><body><p>Fog</p></body></html>", "Fog"),
    "html in utf-16": (codecs.BOM_UTF16_LE + "<html><p>Fog</p></html>".encode("utf-16-le"), "Fog\n"),
    "text about pdf": (b"A file begins with `%PDF-1.7`.\n", "A file begins with `%PDF-1.7`.\n"),
    "text about models": (b"GGUF\n====\n", "GGUF\n====\n"),
    "markdown with markup": (b'<p align="center">Log</p>\n', '<p align="center">Log</p>\n'),
    "pdf": (PdfWriter().page((60, 700, "Of ships and lights")).content(), "Of ships and lights"),
    "pdf after blanks": (b"\n\n" + PdfWriter().page((60, 700, "Of ships")).content(), "Of ships"),
    "epub": (zipped(BOOK), "It began here."),
    "docx": (word_file(), "The keeper wrote"),
}


@pytest.mark.parametrize("kind", CONTENTS)
def test_the_content_says_what_a_file_is(tmp_path, kind):
    content, expected = CONTENTS[kind]
    path = tmp_path / "report.bin"
    path.write_bytes(content)
    assert expected in extract.extract_document(path).text


def test_a_part_of_a_page_is_html_by_its_name(tmp_path):
    path = tmp_path / "part.HTML"
    path.write_text("<!-- saved --><p>One</p><p>Two</p>")
    assert extract.extract_document(path).text == "One\n\nTwo\n"


def test_comments_without_end_take_no_time(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"<!---->" * 500 + b"x")
    start = time.perf_counter()
    extract.extract_document(path)
    assert time.perf_counter() - start < 5


@pytest.mark.parametrize("html", ["", '<meta charset="cp1252"><p>'])
def test_a_given_encoding_is_used(tmp_path, html):
    path = tmp_path / "page.html"
    path.write_bytes((html + "Маяк").encode("koi8-r") + b"\n")
    assert extract.extract_document(path, Extraction(encoding="koi8-r")).text == "Маяк\n"
    path.write_bytes((html + "灯台\n").encode("cp932") + b"\x81.\n")
    document = extract.extract_document(path, Extraction(encoding="cp932"))
    assert document.text.startswith("灯台")
    assert document.notices == ("page.html has bytes that are not cp932, the first in line 2: they are read as �.",)


def test_a_pipe_is_read_once(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_text, args=("From a pipe.",))
    writer.start()
    assert extract.extract_document(path).text == "From a pipe."
    writer.join()


def test_standard_input(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"Typed.\n")))
    assert extract.extract_document("-").text == "Typed.\n"


def test_closed_standard_input_is_refused(monkeypatch):
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(OctavoError, match=r"^Standard input is closed: give a file\.$"):
        extract.extract_document("-")


NO_TEXT = r"^x is not text: octavo reads text, HTML, PDF, EPUB, Office files, mail, notebooks and subtitles \(docs/"
REFUSED = {
    "folder": (None, r"is a folder: give a file\."),
    "missing": ("", r"cannot be opened: No such file or directory\."),
    "empty": (b" \n\t", r"^x is empty: there is nothing to read in it\."),
    "zip": (zipped({"a.txt": "a"}), r"^x is a zip archive, but none of a document: unpack it"),
    "other ole": (
        b"\xd0\xcf\x11\xe0\xa1\xb1",
        r"^x is an old file of a kind that octavo does not read: save it as PDF",
    ),
    "encrypted word": (b"\xd0\xcf\x11\xe0" + "EncryptedPackage".encode("utf-16-le"), r"^x is encrypted: save it"),
    "damaged opendocument": (zipped({"content.xml": "a"}), r"^x is damaged: download or save it again\.$"),
    "picture": (b"\x89PNG\r\n\x1a\n", r"^x has only a picture: (install .*, then )?--ocr recognises their text"),
    "gzip": (b"\x1f\x8b\x08", r"^x is packed with gzip: unpack it\."),
    "model": (b"GGUF\3\0\0\0", r"^x is a model: give it with `model`\."),
    "empty html": (b"<html></html>", r"^x is empty"),
    "noise": (bytes(range(250, 0, -1)) * 9, NO_TEXT),
    "program": (b"\x7fELF\2\1\1\0\0\0\xd0\xff" * 9, NO_TEXT),
    "zeros": (bytes(1000), NO_TEXT),
    "numbers": (struct.pack("<500h", *range(500)), NO_TEXT),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_no_document_is_refused(tmp_path, kind):
    content, message = REFUSED[kind]
    path = tmp_path / "x"
    if content is None:
        path.mkdir()
    elif content:
        path.write_bytes(content)
    with pytest.raises(OctavoError, match=message):
        extract.extract_document(path)


def test_a_pipe_without_a_writer_is_refused_at_once(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    start = time.perf_counter()
    with pytest.raises(OctavoError, match=r"^pipe is a pipe without a writer: start the writer first\.$"):
        extract.extract_document(path)
    assert time.perf_counter() - start < 5


def test_a_pipe_whose_writer_is_slow_is_read_whole(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)

    def write():
        with open(path, "w") as pipe:
            for _ in range(3):
                time.sleep(0.6)
                pipe.write("word " * 30_000)
                pipe.flush()

    writer = threading.Thread(target=write)
    writer.start()
    assert len(extract.extract_document(path).text) >= 3 * 5 * 30_000 - 1
    writer.join()


def test_a_device_and_too_much_are_refused(tmp_path, monkeypatch):
    with pytest.raises(OctavoError, match=r"^/dev/zero is a device: give a file\.$"):
        extract.extract_document("/dev/zero")
    monkeypatch.setattr(extract, "MOST_BYTES", 1 << 20)
    path = tmp_path / "long.txt"
    path.write_bytes(b"a" * ((1 << 20) + 1))
    with pytest.raises(OctavoError, match=r"^long\.txt has more than 1 MiB: no model reads so much\. Split it\.$"):
        extract.extract_document(path)
