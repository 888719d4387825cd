"""Test that running heads of PDFs are read where they begin, page numbers are left out, and nothing else is."""

import pytest
from helpers.pdf_files import WIDE, PdfWriter, lines, read

from octavo.documents.pdf.pdf import extract_pdf

#: A page's own text, of 100 words.
TEXT = [*WIDE, *WIDE[1:4]]


def pages(*edges, text=TEXT, y=700):
    """A file with these texts near the edges of its pages, around a text that differs in one word."""
    writer = PdfWriter()
    for number, edge in enumerate(edges):
        writer.page(*edge, *lines([f"On day {'x' * (number + 1)} it began.", *text], y=y))
    return writer


def test_pages_are_counted_from_the_edge_that_is_seen():
    writer = PdfWriter()
    for number in range(1, 5):
        writer.page((60, 1000, "The Island Log"), *lines(WIDE[:number], y=600), box="0 200 595 1042")
    assert read(writer).text.count("The Island Log") == 1


def test_running_heads_stay_where_they_begin_and_numbers_go():
    edges = [
        [
            (60, 800, f"The Island Log, volume {number // 3}"),
            (290, 40, f"- {number} -"),
            (60, 60, f"Note {number * 'o'}"),
        ]
        for number in range(1, 7)
    ]
    document = read(pages(*edges))
    text = document.text
    heads = [
        (document.place(text.index(f"The Island Log, volume {i}")).page, text.count(f"volume {i}")) for i in range(3)
    ]
    assert heads == [("1", 1), ("3", 1), ("6", 1)]
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


def test_heads_that_change_with_the_chapter_stay_once_and_titles_of_slides_stay():
    titles = [("Of Ships", "Of Lights", "Of Bells", "Of Gales", "Of Seals")[number // 6] for number in range(30)]
    heads = [[(60, 800, title, 9), (290, 40, str(number + 1))] for number, title in enumerate(titles)]
    text = read(pages(*heads)).text
    assert [text.count(title) for title in titles[::6]] == [1] * 5
    slides = pages(*([(60, 800, title, 24)] for title in titles), text=(), y=760)
    assert read(slides).text.count("# Of Gales\n") == 6


@pytest.mark.parametrize(
    ("foot", "stays"),
    [("Page 1", False), ("page 1 / 9", False), ("- Seite 1 von 2 -", False), ("Page 7", True), ("1", True)],
)
def test_lines_that_say_their_page_go(foot, stays):
    assert (foot in read(PdfWriter().page(*lines(WIDE), (290, 40, foot))).text) == stays
    assert foot in read(PdfWriter().page(*lines(WIDE), (290, 400, foot))).text


def test_heads_of_left_and_right_pages_stay_once_and_those_of_few_pages_stay():
    edges = []
    for number in range(20):
        heads = [(60, 800, "The Island Log" if number % 2 else "Of Ships and Lights")]
        edges.append(heads + [(60, 770, "A Table of Tides")] * (number in (4, 9, 14)))
    text = read(pages(*edges)).text
    assert text.count("The Island Log") == text.count("Of Ships and Lights") == 1
    assert text.count("A Table of Tides") == 3


SERIES = {
    "numbers of bills": [f"Invoice no. {1000 + i}" for i in range(5)],
    "dates": [f"{i + 4} March 2026" for i in range(5)],
    "days in Roman numbers": [f"Tag {number}" for number in ("ii", "iii", "iv", "v", "vi")],
    "totals": [f"Total: {200 + 7 * i}.50" for i in range(5)],
    "sections": ["1 Introduction", "2 Sources", "3 Method", "4 Outlook", "5 Index"],
    "years": [str(1986 + i) for i in range(5)],
    "numbers of the pages, counted otherwise": [f"Question {i + 1}" for i in range(5)],
    "lots": [f"Lot {i + 1} of {7 + i}" for i in range(5)],
}


@pytest.mark.parametrize("kind", SERIES)
@pytest.mark.parametrize("y", [800, 40])
def test_lines_that_are_alike_up_to_their_numbers_stay(kind, y):
    text = read(pages(*([(60, y, line)] for line in SERIES[kind]))).text
    assert [text.count(f"{line}\n") for line in SERIES[kind]] == [1] * 5


def test_labels_at_an_edge_stay_with_their_values():
    edges = [
        [(60, 800, "Serial no."), (200, 800, str(88120 + 7 * i)), (60, 785, "Checked by"), (200, 785, "Kari Lund")]
        for i in range(5)
    ]
    text = read(pages(*edges)).text
    assert all(f"Serial no. {88120 + 7 * i}" in text.replace(" | ", " ") for i in range(5))
    assert text.count("Checked by") == text.count("Kari Lund") == 5


def test_a_kind_of_page_is_read_for_each_run_of_pages():
    kinds = ["Cakes", "Cakes", "Soups", "Cakes", "Soups", "Soups"]
    document = read(pages(*([(60, 800, kind)] for kind in kinds)))
    found = [
        document.place(at).page for at in range(len(document.text)) if document.text.startswith(("Cakes", "Soups"), at)
    ]
    assert found == ["1", "3", "4", "5"]


def test_equal_titles_of_slides_stay_where_others_are_between():
    titles = ["Overview", "Results", "Results", "Plans", "Results"]
    document = read(pages(*([(60, 780, title, 24)] for title in titles), text=(), y=600))
    headings = [document.place(document.text.index(f"On day {'x' * (i + 1)} ")).heading for i in range(5)]
    assert headings == titles


def test_books_have_numbers_of_pages_beside_their_heads():
    edges = []
    for number in range(8):
        left = number % 2
        edges.append([(60 if left else 500, 800, str(47 + number)), (250, 800, "Ships" if left else "The Island Log")])
    text = read(pages(*edges)).text
    assert [text.count("The Island Log\n"), text.count("Ships\n")] == [1, 1]
    assert not any(str(47 + number) in text for number in range(8))


@pytest.mark.parametrize("numbers", [["iii", "viii", "1", "4", "15", "40", "41", "96"], [2, 3, 11, 12, 31, 90, 92]])
@pytest.mark.parametrize("y", [800, 40])
def test_numbers_of_pages_go_from_a_part_of_a_book(numbers, y):
    def edge(number):
        is_left = int({"iii": 3, "viii": 8}.get(number, number)) % 2 == 0
        head = "The Island Log" if is_left else "What the keeper wrote"
        return [(60, y, str(number)), (90, y, head)] if is_left else [(350, y, head), (520, y, str(number))]

    document = extract_pdf(pages(*map(edge, numbers)).content(), "part.pdf")
    assert [document.text.count(head) for head in ("The Island Log", "What the keeper wrote")] == [1, 1]
    told = [line.split(", ", 1)[1] for line in document.left_out if "number of the page" in line]
    assert told == [f"number of the page: {number}" for number in numbers]


def test_numbers_that_rise_at_one_side_are_no_numbers_of_pages():
    text = read(pages(*[[(60, 800, "Bill of the harbour"), (520, 800, str(n))] for n in (11, 13, 27, 41, 45, 61)])).text
    assert all(str(n) in text for n in (11, 13, 27, 41, 45, 61))


def test_pages_with_few_words_keep_the_head_of_each():
    edges = [[(60, 800, "Lantern Supplies, Mill Lane 4, Northford")] for _ in range(5)]
    assert read(pages(*edges, text=())).text.count("Lantern Supplies") == 5


def test_a_head_that_begins_within_a_paragraph_follows_it():
    writer = PdfWriter()
    for number in range(8):
        head = (60, 800, "Of Ships" if number < 4 else "Of Lights")
        writer.page(head, *lines([*TEXT, f"and day {'x' * number} ended with"], y=700))
    document = read(writer)
    assert f"ended with {TEXT[0]}" not in document.text
    assert document.text.startswith("Of Ships\n\nThe keeper")
    lower = PdfWriter()
    for number in range(8):
        head = (60, 800, "Of Ships" if number < 4 else "Of Lights")
        lower.page(head, *lines([*TEXT[1:], f"and day {'x' * number} ended with"], y=700))
    text = read(lower).text
    assert f"ended with {TEXT[1]}" in text
    assert (text.count("Of Ships"), text.count("Of Lights")) == (1, 1)


def test_a_text_that_all_pages_have_is_a_paragraph_on_each():
    text = read(pages(*[[(60, 800, f"Copy {number}")] for number in "abc"], text=TEXT)).text
    assert text.count(" ".join(TEXT)) == 3
