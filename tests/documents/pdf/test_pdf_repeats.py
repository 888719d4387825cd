"""Test that running heads and page numbers of PDFs are left out, and nothing else."""

import pytest
from helpers.pdf_files import WIDE, PdfWriter, lines, read


def test_pages_are_counted_from_the_edge_that_is_seen():
    writer = PdfWriter()
    for number in range(1, 5):
        writer.page((60, 1000, "The Island Log"), *lines(WIDE[:number], y=600), box="0 200 595 1042")
    assert "Island Log" not in read(writer).text


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


def test_rows_of_tables_are_no_running_heads():
    writer, rows = PdfWriter(), 0
    for _ in range(5):
        texts = [(60, 800, "No."), (160, 800, "Berth"), (300, 800, "Fee")]
        for i in range(1, 52):
            rows += 1
            texts += [
                (60, 800 - 15 * i, f"{rows}"),
                (160, 800 - 15 * i, f"Berth {rows % 7}"),
                (300, 800 - 15 * i, "5.10"),
            ]
        writer.page(*texts, (290, 12, f"{len(writer.pages) + 1}"))
    text = read(writer).text
    assert text.count("| Berth ") - text.count("| Berth |") == 255
    assert text.count("| No. | Berth | Fee |") == 5
    assert "\n5\n" not in text


def test_clauses_and_what_few_pages_repeat_stay():
    writer = PdfWriter()
    for number in range(9):
        clause = [(60, 800, f"Clause {number // 2 + 1}")] if number % 2 == 0 else []
        agenda = [(60, 60, "Agenda")] if number < 3 else []
        writer.page(*clause, *lines(WIDE[: 1 + number % 4], y=700), *agenda)
    text = read(writer).text
    assert [f"Clause {i}" in text for i in range(1, 6)] == [True] * 5
    assert text.count("Agenda") == 3


def test_heads_that_change_with_the_chapter_go_and_titles_of_slides_stay():
    writer, slides = PdfWriter(), PdfWriter()
    for number in range(30):
        title = ("Of Ships", "Of Lights", "Of Bells", "Of Gales", "Of Seals")[number // 6]
        own = lines([f"What is said here is said {'again and ' * number}again."], y=760)
        writer.page((60, 800, title, 9), *own, (290, 40, str(number + 1)))
        slides.page((60, 800, title, 24), *own)
    assert "Of Ships" not in read(writer).text
    assert read(slides).text.count("# Of Gales\n") == 6


@pytest.mark.parametrize(
    ("foot", "stays"),
    [("Page 1", False), ("page 1 / 9", False), ("- Seite 1 von 2 -", False), ("Page 7", True), ("1", True)],
)
def test_lines_that_say_their_page_go(foot, stays):
    assert (foot in read(PdfWriter().page(*lines(WIDE), (290, 40, foot))).text) == stays
    assert foot in read(PdfWriter().page(*lines(WIDE), (290, 400, foot))).text


def test_heads_of_left_and_right_pages_go_and_those_of_few_stay():
    writer = PdfWriter()
    for number in range(20):
        heads = [(60, 800, "The Island Log" if number % 2 else "Of Ships and Lights")]
        heads += [(60, 770, "A Table of Tides")] * (number in (4, 9, 14))
        writer.page(*heads, *lines([f"What is said on page {'x' * number} stands here."]))
    text = read(writer).text
    assert "The Island Log" not in text
    assert "Of Ships and Lights" not in text
    assert text.count("A Table of Tides") == 3
