"""Test that the text of scanned pages is recognised once, by tesseract, and kept."""

from functools import partial

import pypdfium2
import pytest
from helpers.ocr import needs_tesseract, scan, written
from helpers.pdf_files import PdfWriter

from octavo.documents.extract import extract_document
from octavo.documents.ocr import recognition
from octavo.documents.ocr.recognised_pages import file_version, recognised_pages
from octavo.errors import OctavoError
from octavo.library.file_texts import forget_texts, kept_texts
from octavo.library.source_text import SourceFile
from octavo.library.text_store import TextStore, is_gone
from octavo.settings import Extraction

OCR = Extraction(ocr=True)
LEFT = [
    "The north bridge was closed in March, as",
    "the ice had broken two of its pillars, and",
    "nobody knew whether the others would bear",
    "the weight of a cart in the spring floods.",
]
RIGHT = [
    "The ferry ran instead, from six in the",
    "morning until dusk, and took forty carts",
    "on each voyage; those that came late had",
    "to wait on the shore for the next day.",
]
HEADING = (60, 760, "The winter of 1921", 24)


@pytest.fixture(autouse=True)
def state(monkeypatch, tmp_path):
    """Nothing is recognised before a test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def recognised(monkeypatch):
    """The numbers of the pages that tesseract has recognised."""
    numbers, recognise = [], recognition.recognise

    def noted(pictures, languages):
        for number, pdf in recognise(pictures, languages):
            yield number, pdf
            numbers.append(number)

    monkeypatch.setattr(recognition, "recognise", noted)
    return numbers


def lines(texts, x=60, y=700):
    return [(x, y - 16 * i, text, 12) for i, text in enumerate(texts)]


@needs_tesseract
def test_a_scanned_page_is_read_as_a_page_of_text(tmp_path):
    path = tmp_path / "scan.pdf"
    path.write_bytes(scan([HEADING, *lines(4 * LEFT), *lines(4 * RIGHT, x=320)], lines(RIGHT)))
    document = extract_document(path, OCR)
    left, right = " ".join(4 * LEFT), " ".join(4 * RIGHT)
    assert document.text == f"# The winter of 1921\n\n{left}\n\n{right}\n\n{' '.join(RIGHT)}\n"
    assert document.place(len(document.text) - 3).page == "2"
    assert document.notices == ("tesseract recognised the text of 2 pages of scan.pdf, and may have erred.",)


@needs_tesseract
def test_only_pages_without_text_are_recognised(tmp_path, recognised):
    mixed, scanned = pypdfium2.PdfDocument(written([lines(LEFT), lines(["Qzrwx vbnk."])])), scan(lines(RIGHT))
    mixed.import_pages(pypdfium2.PdfDocument(scanned), index=1)
    path = tmp_path / "mixed.pdf"
    mixed.save(path)
    assert extract_document(path, OCR).text == f"{' '.join(LEFT)}\n\n{' '.join(RIGHT)}\n\nQzrwx vbnk.\n"
    assert recognised == [1]


@needs_tesseract
def test_what_was_recognised_is_read_from_then_on(tmp_path, monkeypatch):
    path = tmp_path / "scan.pdf"
    path.write_bytes(scan(lines(LEFT)))
    version = file_version(path)
    assert file_version(path, OCR) is None  # the text that is kept of the file may lack pages
    first = extract_document(path, OCR)
    monkeypatch.setenv("PATH", "")
    assert extract_document(path) == first
    moved = path.rename(tmp_path / "moved.pdf")
    assert extract_document(moved, OCR).text == first.text
    assert file_version(moved, OCR) == file_version(moved)
    assert file_version(moved)[:3] == (str(moved), first.mtime_ns, first.n_bytes)
    assert version[1:3] != (first.mtime_ns, first.n_bytes)
    with TextStore(tmp_path / "texts.sqlite") as store:
        store.add(extract_document(moved))
        assert store.find(SourceFile(moved, OCR).version) is not None


@needs_tesseract
def test_an_interrupted_recognition_resumes(tmp_path, recognised):
    path = tmp_path / "scan.pdf"
    path.write_bytes(scan(lines(LEFT), lines(RIGHT), lines(LEFT)))
    told = []

    class Interrupting:
        notice = told.append

        def start(self, *task):
            told.append(task)

        def advance(self, amount):
            if len(recognised) == 1:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        extract_document(path, OCR, Interrupting())
    assert file_version(path, OCR) is None
    recognised.clear()
    told.clear()
    assert extract_document(path, OCR, Interrupting()).text.count(LEFT[0]) == 2
    assert recognised == [2] or recognised == [1, 2]
    assert told == [("Recognising scan.pdf", 3, "pages", 3 - len(recognised))]


@needs_tesseract
def test_a_picture_is_read(tmp_path):
    picture = pypdfium2.PdfDocument(written([lines(LEFT)]))[0].render(scale=200 / 72).to_pil()
    for kind in ("PNG", "JPEG", "TIFF"):
        path = tmp_path / f"photo.{kind.lower()}"
        picture.save(path, kind, dpi=(200, 200))
        with pytest.raises(OctavoError, match=rf"^{path.name} has only a picture: --ocr recognises their text\.$"):
            extract_document(path)
        assert extract_document(path, OCR).text == " ".join(LEFT) + "\n"
    picture.crop((0, 0, 100, 100)).save(path, "TIFF")
    with pytest.raises(OctavoError, match="is blank"):
        extract_document(path, OCR)


@pytest.fixture
def fake(monkeypatch):
    """What takes the place of tesseract: it reads on each page in which languages it reads."""

    def recognise(pictures, languages):
        for number, _ in pictures:
            yield number, PdfWriter().page(*lines([f"Read in {languages}."])).content()

    monkeypatch.setattr(recognition, "chosen_languages", lambda named: named or "eng")
    monkeypatch.setattr(recognition, "recognise", recognise)


@pytest.mark.usefixtures("fake")
def test_letters_without_meaning_and_pages_with_a_stamp_alone_are_recognised(tmp_path):
    path = tmp_path / "stamped.pdf"
    picture = "q 595 0 0 842 0 0 cm /Im Do Q"
    stamped = PdfWriter().page((60, 820, "Filed 03/04/21"), drawn=picture).page(*lines(LEFT), drawn=picture)
    path.write_bytes(stamped.content())
    document = extract_document(path)
    assert document.notices[0].startswith("stamped.pdf has only pictures or drawings on 1 of 2 pages (1)")
    assert extract_document(path, OCR).text == f"Read in eng.\n\n{' '.join(LEFT)}\n"
    unclear = [(60, 500 - 13 * i, "!),$)(*/#'*$/", 10, "unclear") for i in range(3)]
    path.write_bytes(PdfWriter().page(*lines(LEFT), *unclear).content())
    assert extract_document(path, OCR).text == "Read in eng.\n"


@pytest.mark.usefixtures("fake")
def test_other_languages_are_recognised_anew(tmp_path):
    path = tmp_path / "scan.pdf"
    path.write_bytes(scan(lines(LEFT)))
    read = partial(extract_document, path)
    assert read(OCR).text == "Read in eng.\n"
    german = Extraction(ocr=True, ocr_languages="deu")
    assert file_version(path, german) is None
    assert (read(german).text, read(OCR).text, read().text) == ("Read in deu.\n",) * 3
    assert file_version(path, german) == file_version(path, OCR) == file_version(path)


@pytest.mark.usefixtures("fake")
def test_pages_are_noted_for_the_version_that_was_read(tmp_path, monkeypatch):
    """The file is replaced while its pages are recognised."""
    path, recognise = tmp_path / "scan.pdf", recognition.recognise
    path.write_bytes(scan(lines(LEFT)))

    def replaced_meanwhile(*arguments):
        path.write_bytes(scan(lines(LEFT), lines(RIGHT)))
        return recognise(*arguments)

    monkeypatch.setattr(recognition, "recognise", replaced_meanwhile)
    first = extract_document(path, OCR)
    assert first.text == "Read in eng.\n"
    assert file_version(path, OCR) is None  # nothing is known of the new one
    assert not first.version.is_kept(file_version(path))
    monkeypatch.setattr(recognition, "recognise", recognise)
    second = extract_document(path, OCR)
    assert second.text.count("Read in eng.") == 2
    assert second.version.is_kept(file_version(path, OCR))


def test_files_that_need_no_recognition_keep_their_version(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("Text.\n")
    assert file_version(path, OCR) is None
    extract_document(path, OCR)
    assert file_version(path, OCR) == file_version(path)
    assert file_version(path)[:3] == (str(path), path.stat().st_mtime_ns, 6)


@pytest.mark.usefixtures("fake")
def test_recognised_pages_are_forgotten_with_their_file(tmp_path):
    path = tmp_path / "scan.pdf"
    path.write_bytes(scan(lines(LEFT)))
    extract_document(path, OCR)
    assert kept_texts([]) == {str(path)}
    assert forget_texts([], is_gone) == 0
    path.rename(tmp_path / "moved.pdf")
    assert forget_texts([], is_gone) == 1
    assert kept_texts([]) == set()
    with pytest.raises(OctavoError, match="only pictures"):
        extract_document(tmp_path / "moved.pdf")


def test_a_missing_program_or_language_is_named(tmp_path, monkeypatch):
    path = tmp_path / "scan.pdf"
    path.write_bytes(scan(lines(LEFT)))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(OctavoError, match=r"^`ocr` needs a program that is missing: install tesseract \("):
        extract_document(path, OCR)
    with pytest.raises(
        OctavoError, match=r"^scan\.pdf has only pictures .*: install tesseract \(.*\), then --ocr recog"
    ):
        extract_document(path)
    program = tmp_path / "tesseract"
    program.write_text("#!/bin/sh\nif [ $1 = --list-langs ]; then echo List; echo eng; echo osd; else exit 3; fi\n")
    program.chmod(0o755)
    with pytest.raises(OctavoError, match=r"^tesseract has no language 'deu' here: it has eng\.$"):
        extract_document(path, Extraction(ocr=True, ocr_languages="eng+deu"))
    with pytest.raises(OctavoError, match=r"^tesseract failed: it ended with 3$"):
        extract_document(path, OCR)


def test_a_damaged_file_of_recognised_pages_is_named(tmp_path):
    path = tmp_path / "state" / "octavo" / "recognised.sqlite"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"nothing" * 1000)
    with pytest.raises(OctavoError, match="delete it: --ocr makes it anew"):
        recognised_pages()
