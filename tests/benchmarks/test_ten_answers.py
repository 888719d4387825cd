"""benchmarks/ten_answers.py: PDFs hold what is asked for, and figures count answers and passages."""

import sys
from pathlib import Path

import pypdfium2

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from ten_answers import Way, _cells, _plain, measure, pieces_of, write_pdf

from octavo.documents.extract import extract_document
from octavo.evaluation.folders.folder_task import Asked

LONG = "Salt & <pepper> were kept in the cellar, which nobody but the cook's brother-in-law had entered. "
ASKED = [
    Asked("Who painted the lighthouse?", ("Tobias Quill",), "", "The lighthouse was painted green by Tobias Quill."),
    Asked("When?", ("1871",), "", "That was in 1871."),
]
TEXT = "\n\n".join([LONG * 40, f"{LONG * 3}{ASKED[0].passage} {ASKED[1].passage}", LONG * 40])


class Reader(Way):
    """Answer the first question alone, from the second half of a document."""

    def open(self, path):
        self.text = extract_document(path).text

    def ask(self, question):
        return "It was Tobias Quill." if "painted" in question else "Never.", self.text[: self.text.index("That was")]


def test_both_readers_find_the_passages_of_a_pdf(tmp_path):
    path = tmp_path / "long.pdf"
    write_pdf(path, TEXT)
    with pypdfium2.PdfDocument(path) as document:
        assert len(document) > 1
        plain = "\n".join(page.get_textpage().get_text_range() for page in document)
    for text in (plain, extract_document(path).text):
        assert _plain(TEXT) in _plain(text)


def test_answers_and_passages_are_counted(tmp_path):
    path = tmp_path / "long.pdf"
    write_pdf(path, TEXT)
    rows = measure(Reader(), {path: ASKED})
    assert (rows[0]["right"], rows[0]["passages"], rows[0]["both"]) == (0.5, 0.5, 0.5)
    assert 0 < rows[0]["first"] <= rows[0]["all"]
    lucky = {**rows[0], "right": 1.0}  # one of two right answers without its passage
    cells = _cells({"rows": [*rows, lucky], "disk": 2_500_000, "memory": 10**9})
    assert cells[3:] == ["0.500", "1.000", "0.750", "0.250", "2.5", "1,000"]


def test_pieces_hold_the_text_and_end_with_sentences():
    sentences = [f"Sentence {number} has a few words of its own. " for number in range(100)]
    pieces = pieces_of("".join(sentences).strip())
    assert all(len(piece) <= 1200 and piece.endswith(".") for piece in pieces)
    assert all(any(sentence.strip() in piece for piece in pieces) for sentence in sentences)
    assert len(pieces_of("x" * 3000)) == 3
    assert pieces_of("") == []
