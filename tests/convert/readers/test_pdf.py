"""Test what becomes of PDF files."""

import random

import pytest
from helpers.pdf_files import PdfWriter

from octavo.convert.readers.document import Document
from octavo.convert.readers.pdf import read_pdf
from octavo.errors import OctavoError

#: Lines of a column of 240 points, and of a page of 480, in 10-point letters.
NARROW = [
    "The keeper of the lighthouse wrote down each ship",
    "that passed, with her port and what she carried,",
    "and when the fog lay on the sound he rang the bell",
    "each quarter of an hour until it lifted, though no",
    "one but the seals could hear it in the winter gale.",
    "So the years went by, and the book grew heavy with",
]
WIDE = [f"{first} {second}" for first, second in zip(NARROW, NARROW[1:] + NARROW[:1], strict=True)]


def read(writer, password=None):
    return read_pdf(writer.content(), "report.pdf", password)


def lines(texts, x=60, y=700, step=13, **style):
    return [(x, y - i * step, text, *style.values()) for i, text in enumerate(texts)]


def test_lines_become_paragraphs():
    second = lines(["It was the last", "of them."], y=700 - 13 * len(WIDE) - 14)
    text = read(PdfWriter().page(*lines(WIDE), *second)).text
    assert text == " ".join(WIDE) + "\n\nIt was the last of them.\n"


def test_an_indent_begins_a_paragraph():
    indented = [(75, 700 - 39, f"A new thought: {WIDE[3]}"), (60, 700 - 52, "It goes on.")]
    text = read(PdfWriter().page(*lines(WIDE[:3]), *indented)).text
    assert text.split("\n\n")[1].strip() == f"A new thought: {WIDE[3]} It goes on."


def test_a_hyphen_at_the_end_of_a_line_goes_unless_the_word_has_one():
    texts = ["This exam-", "ple of a well-", "known rule has exceptions.", "A well-known rule is old."]
    text = read(PdfWriter().page(*lines(texts))).text
    assert "This example of a well-known rule has" in text


def test_columns_are_read_one_after_another():
    title = [(60, 760, "A Title Across Both of the Columns of This Page", 18, "bold")]
    left, right = lines(NARROW * 3), lines([line.upper() for line in NARROW * 3], x=320, size=8)
    text = read(PdfWriter().page(*(each for pair in zip(left, right, strict=True) for each in pair), *title)).text
    assert text.startswith("# A Title Across Both of the Columns of This Page\n\n")
    assert text.index(NARROW[-1]) < text.index(NARROW[0].upper())
    assert " ".join(NARROW) in text


def test_what_spans_the_columns_comes_in_order():
    upper, lower = (
        [*lines(NARROW, y=y), *lines([line.upper() for line in NARROW], x=320, y=y, size=8)] for y in (700, 500)
    )
    middle = [(60, 600, "Between the two halves of the page stands a sentence as wide as both of the columns are.")]
    text = read(PdfWriter().page(*upper, *middle, *lower)).text
    parts = [text.index(NARROW[0]), text.index(NARROW[-1].upper()), text.index("Between"), text.rindex(NARROW[0])]
    assert parts == sorted(parts)


def test_headings_have_levels_and_paths():
    texts = [
        (60, 780, "Of Ships", 20, "bold"),
        *lines(WIDE, y=750),
        (60, 640, "Of Lights", 14, "bold"),
        *lines(WIDE, y=620),
        (60, 520, "Of Bells", 14, "bold"),
        *lines(WIDE, y=500),
    ]
    document = read(PdfWriter().page(*texts))
    assert [line for line in document.text.splitlines() if line.startswith("#")] == [
        "# Of Ships",
        "## Of Lights",
        "## Of Bells",
    ]
    assert document.place(document.text.rindex("book grew")).heading == "Of Ships > Of Bells"


def test_the_outline_says_the_levels():
    writer = PdfWriter().page((60, 780, "Part One", 12, "bold"), *lines(WIDE, y=750))
    writer.outline = [("Part One", 0)]
    writer.page((60, 780, "A Picture of a Ship", 20, "bold"), *lines(WIDE, y=750))
    assert "# Part One\n" in read(writer).text


def test_running_heads_and_numbers_go_and_what_stands_once_stays():
    writer = PdfWriter()
    for number in range(1, 7):
        head = [(60, 800, f"The Island Log, volume {number // 3}"), (290, 40, f"- {number} -")]
        note = (60, 60, f"Note {number * 'o'}")
        writer.page(*head, *lines([f"Chapter text of page number {number} stands here."]), note)
    text = read(writer).text
    assert "Island Log" not in text
    assert "- 3 -" not in text
    assert all(f"Note {number * 'o'}" in text for number in range(1, 7))


def test_a_paragraph_goes_on_over_a_page():
    writer = PdfWriter().page(*lines(WIDE)).page(*lines(["and then it ended, as all", "things do."]))
    document = read(writer)
    assert f"{WIDE[-1]} and then it ended, as all things do." in document.text
    assert document.place(document.text.index("Then") if "Then" in document.text else 0).page == "1"
    assert document.place(document.text.index("then it ended")).page == "2"


def test_pages_have_their_labels():
    writer = PdfWriter()
    for i in range(3):
        writer.page(*lines([f"This is what page {i} says."]))
    writer.labels = "0 << /S /r >> 1 << /S /D /St 10 >>"
    document = read(writer)
    pages = [document.place(document.text.index(f"page {i}")).page for i in range(3)]
    assert pages == ["i", "10", "11"]


def test_lists_tables_and_code_survive():
    texts = [
        *lines(WIDE, y=780),
        (70, 690, "• one ship, that came from the"),
        (80, 677, "north"),
        (70, 664, "• two ships"),
        *lines(WIDE, y=640),
        *(
            (x, 540 - 13 * row, f"{name}{row}")
            for row in range(3)
            for x, name in ((60, "ship "), (200, "port "), (320, "day "))
        ),
        (60, 480, "def ring(bell):", 10, "code"),
        (84, 467, "bell.ring()", 10, "code"),
    ]
    text = read(PdfWriter().page(*texts)).text
    assert "- one ship, that came from the north\n- two ships\n\n" in text
    assert "| ship 0 | port 0 | day 0 |\n| --- | --- | --- |\n| ship 1 | port 1 | day 1 |\n" in text
    assert "```\ndef ring(bell):\n    bell.ring()\n```" in text


def test_an_encrypted_file_needs_its_password():
    writer = PdfWriter(password="secret").page(*lines(WIDE))
    assert read(writer, "secret").text == " ".join(WIDE) + "\n"
    with pytest.raises(OctavoError, match=r"^report\.pdf is encrypted: give its --password\.$"):
        read(writer)
    with pytest.raises(OctavoError, match="password is wrong"):
        read(writer, "guess")


def test_pictures_of_text_name_what_helps():
    with pytest.raises(OctavoError, match=r"^report\.pdf has no text, only pictures of it: `ocrmypdf report\.pdf OUT"):
        read(PdfWriter().page(image=True))
    document = read(PdfWriter().page(*lines(WIDE)).page(image=True).page())
    assert document.notices == ("report.pdf has no text on 1 of 3 pages (2): `ocrmypdf` finds such text.",)


def example():
    writer = PdfWriter()
    for _ in range(3):
        writer.page((60, 780, "Of Ships", 20, "bold"), *lines(WIDE, y=750), image=True)
    writer.outline = [("Of Ships", 0)]
    return writer.content()


def is_read_or_refused(content):
    """Whether a damaged file becomes a document, or an error that names it."""
    try:
        return isinstance(read_pdf(content, "report.pdf"), Document)
    except OctavoError as problem:
        return str(problem).startswith("report.pdf ")


def test_a_file_that_is_cut_off_is_read_or_refused():
    content = example()
    for tenth in range(10):
        assert is_read_or_refused(content[: len(content) * tenth // 10])


def test_damaged_files_are_read_or_refused():
    content, rng = example(), random.Random(5)
    for _ in range(300):
        damaged = bytearray(content)
        for _ in range(rng.choice([1, 3, 20])):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        assert is_read_or_refused(bytes(damaged))


def test_the_same_file_gives_the_same_text():
    assert read_pdf(example(), "a.pdf") == read_pdf(example(), "b.pdf")
