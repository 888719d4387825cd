"""`octavo read`, by its output and exit code."""

import json

from helpers.command_line import fails, octavo
from helpers.ocr import needs_tesseract, scan
from helpers.pdf_files import PdfWriter


def test_a_text_is_printed_with_its_places(tmp_path):
    path = tmp_path / "log.md"
    path.write_text("Before.\n\n# Ships\n\nPetrel.\n\n## Ports\n\nLeith.\n")
    result = octavo("read", path)
    assert result.exit_code == 0
    assert result.stdout == ("Before.\n\n--- Ships\n# Ships\n\nPetrel.\n\n--- Ships > Ports\n## Ports\n\nLeith.\n")
    assert result.stderr == ""


def test_a_place_within_a_line_begins_a_line(tmp_path):
    path = tmp_path / "two.pdf"
    path.write_bytes(PdfWriter().page((60, 700, "One ship and")).page((60, 700, "another ship.")).content())
    found = json.loads(octavo("read", path, "-o", "json").stdout)
    first, second = found["places"]
    text = found["text"]
    between = "" if text[second["offset"] - 1] == "\n" else "\n"
    assert octavo("read", path).stdout == (
        f"--- page 1\n{text[: second['offset']]}{between}--- page 2\n{text[second['offset'] :]}"
    )
    assert (first["page"], second["page"], found["document"]) == ("1", "2", "two.pdf")


def test_all_of_a_document_has_what_was_left_out(tmp_path):
    path = tmp_path / "one.pdf"
    path.write_bytes(PdfWriter().page((60, 700, "One ship."), (60, 40, "Page 1 of 1")).content())
    assert octavo("read", path).stdout == "--- page 1\nOne ship.\n"
    rest = "page 1, number of the page: Page 1 of 1"
    assert octavo("read", path, "--all").stdout == f"--- page 1\nOne ship.\n\n--- left out\n{rest}\n"
    assert json.loads(octavo("read", path, "--all", "-o", "json").stdout)["left_out"] == [rest]
    assert "left_out" not in json.loads(octavo("read", path, "-o", "json").stdout)


def test_notices_and_errors_are_sentences(tmp_path):
    path = tmp_path / "cafe.txt"
    path.write_bytes("Le café, à la".encode("cp1252"))
    fails(octavo("read", path), 1, "cafe.txt is not UTF-8 text: byte 0xe9 in line 1.")
    assert octavo("read", path, "--encoding", "cp1252").stdout == "Le café, à la\n"
    path.write_bytes(("Der Wärter läutete schön im Nebel, über der Straße. " * 20).encode("cp1252"))
    assert octavo("read", path).stderr == (
        "cafe.txt is read as cp1252: give its --encoding, or save it as UTF-8, if that is wrong.\n"
    )


def test_a_text_without_places_is_printed_as_it_is(tmp_path):
    path = tmp_path / "plain.txt"
    for text in ("One line without an end", "Two\nlines\n"):
        path.write_text(text)
        result = octavo("read", path)
        assert (result.exit_code, result.stdout) == (0, text.removesuffix("\n") + "\n")


@needs_tesseract
def test_scanned_pages_are_recognised_with_progress(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = tmp_path / "scan.pdf"
    path.write_bytes(scan([(60, 700, "The north bridge was closed in March.", 12)]))
    fails(octavo("read", path), 1, "--ocr recognises their text")
    monkeypatch.setenv("OCTAVO_OCR", "1")
    result = octavo("read", path)
    assert result.stdout == "--- page 1\nThe north bridge was closed in March.\n"
    assert "Recognising scan.pdf: 1/1 pages" in result.stderr
    assert octavo("read", path).stderr == "tesseract recognised the text of a page of scan.pdf, and may have erred.\n"
    monkeypatch.delenv("OCTAVO_OCR")
    assert octavo("read", path).stdout == result.stdout
    assert octavo("remove", path).exit_code == 0
    fails(octavo("read", path), 1, "--ocr recognises their text")
