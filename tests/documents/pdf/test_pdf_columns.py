"""Test which gaps on a PDF's page part columns, and which part the cells of rows."""

import re

import pytest
from helpers.pdf_files import NARROW, WIDE, PdfWriter, lines, read

LABELS = ["Length of the ladder", "Weight without wheels", "Colour of the handles", "Time between two tests"]
VALUES = ["about four metres", "between twelve and 15 kg", "dark green, matt", "nine months or 210 days"]


def rows(texts, places, y=700, step=18):
    """Rows of cells, as PdfWriter takes them; cells are at places, or end there if these are negative."""
    return [
        (place if place > 0 else -place - 5.56 * len(text), y - step * number, text)
        for number, row in enumerate(texts)
        for place, text in zip(places, row, strict=True)
        if text
    ]


def written(*texts):
    return read(PdfWriter().page(*texts)).text


def cells(text):
    """The cells of the tables of a text, row by row."""
    return [line[2:-2].split(" | ") for line in text.splitlines() if line.startswith("|") and "---" not in line]


@pytest.mark.parametrize("step", [16, 18, 24])
@pytest.mark.parametrize("right", [240, 320])
def test_labels_and_values_are_rows(step, right):
    text = written(*rows(zip(LABELS, VALUES, strict=True), (60, right), step=step))
    assert cells(text) == [list(row) for row in zip(LABELS, VALUES, strict=True)]


@pytest.mark.parametrize(("columns", "lowest"), [(2, 10), (3, 1000), (5, 100)])
def test_numbers_are_rows(columns, lowest):
    table = [[f"{lowest * (3 + row * columns + column) % 99999}" for column in range(columns)] for row in range(9)]
    table = [[str(2010 + row), *numbers] for row, numbers in enumerate(table)]
    assert cells(written(*rows(table, (60, *(-150 - 50 * c for c in range(columns))), step=14))) == table


@pytest.mark.parametrize("above", [0, 1, 2])
def test_a_term_is_beside_its_text(above):
    """Beside the first line, the middle or the last line of it."""
    texts = []
    for number in range(4):
        y = 700 - 54 * number
        texts += [(60, y - 13 * above, f"Term {number}"), *lines(NARROW[:3], x=150, y=y)]
    assert cells(written(*texts)) == [[f"Term {number}", " ".join(NARROW[:3])] for number in range(4)]


@pytest.mark.parametrize("off", [0, 4, 7])
def test_a_side_bar_is_no_row_of_the_text_beside_it(off):
    bar = [
        (60, 700 - off - 11 * i, word)
        for i, word in enumerate(["Welding", "Forklift", "Planning", "Danish", "Latin", "Chess"])
    ]
    text = written(*bar, *lines([*NARROW, *NARROW], x=200))
    assert " ".join([*NARROW, *NARROW]) in text
    assert text.index("Welding") < text.index("Chess") < text.index(NARROW[0])


def test_a_note_beside_a_paragraph_does_not_cut_it():
    text = written(*lines(NARROW), (340, 694, "Ask the warden first.", 8), (340, 684, "See the plan.", 8))
    assert " ".join(NARROW) in text
    assert "Ask the warden first." in text


@pytest.mark.parametrize("n", [2, 3])
def test_an_index_is_read_by_column(n):
    words = sorted(f"{a}{b}rk" for a in "abcdefgh" for b in "aei")
    columns = [words[i * len(words) // n : (i + 1) * len(words) // n] for i in range(n)]
    placed = [
        (60 + 160 * x, 700 - 14 * y, f"{word}, {7 * y + x + 1}, {90 + y}")
        for x, column in enumerate(columns)
        for y, word in enumerate(column)
    ]
    text = written(*placed)
    assert [line.split(",")[0] for line in text.split("\n") if line] == words


def test_addresses_side_by_side_are_no_rows():
    left, right = ["Robin Sample", "Hill Road", "Southby"], ["Harbour Board", "Pier Street", "Northford"]
    assert " ".join(written(*lines(left), *lines(right, x=300)).split()) == " ".join(left + right)


@pytest.mark.parametrize("mark", ["{})", "{}.", "({})"])
def test_choices_side_by_side_follow_their_question(mark):
    texts = []
    for number in range(4):
        y = 700 - 50 * number
        texts.append((60, y, f"{number + 1}. Which of the ships was sold?"))
        for i, letter in enumerate("abcd"):
            texts.append((75 + 150 * (i % 2), y - 14 - 13 * (i // 2), f"{mark.format(letter)} ship {number}{letter}"))
    text = written(*texts)
    order = [text.index(f"ship {number}{letter}") for number in range(4) for letter in "abcd"]
    assert order == sorted(order)
    assert text.index("ship 0d") < text.index("2. Which")


def test_messages_left_and_right_keep_their_order():
    texts = [(60 + 250 * (i % 2), 700 - 40 * i, f"Message {i} says when it is.") for i in range(8)]
    text = written(*texts)
    assert [text.index(f"Message {i} ") for i in range(8)] == sorted(text.index(f"Message {i} ") for i in range(8))


def test_dates_at_the_right_stand_with_their_titles():
    texts = []
    for number in range(4):
        y = 700 - 90 * number
        texts += [(60, y, f"Post {number}", 11, "bold"), (480, y, f"{2010 + number} to 2020")]
        texts += lines(NARROW[:4], y=y - 15)
    document = read(PdfWriter().page(*texts))
    assert document.place(document.text.index(NARROW[0])).heading == "Post 0 2010 to 2020"


@pytest.mark.parametrize("mark", ["-", "\u2013", "7", "(c)", "A.1"])
def test_a_line_that_crosses_a_gap_further_down_keeps_what_is_before_it(mark):
    items = [(x, 700 - 13 * i, text) for i, line in enumerate(WIDE[:3]) for x, text in ((60, mark), (82, line))]
    below = [*lines(NARROW, y=600), *lines([line.upper() for line in NARROW], x=320, y=594, size=8)]
    text = written(*items, *below)
    before = "-" if mark == "\u2013" else re.escape(mark)
    assert re.findall(rf"{before} (?:\| )?(The keeper|that passed|and when)", text) == [
        "The keeper",
        "that passed",
        "and when",
    ]
    assert " ".join(NARROW) in text


@pytest.mark.parametrize("values", [["form,", "name,", "yard"], ["fee"], ["crew,", "guests"]])
@pytest.mark.parametrize("style", ["text", "code"])
def test_the_words_of_a_command_are_beside_what_they_name(values, style):
    """Some name several lines, of which a long one makes the others seem to continue in sentences."""
    words = ["select", "from", "where", "order by"]
    named = [values, ["ships_of_the_harbour"], ["harbour = 'the_old_harbour_of_the_isle'"], ["age;"]]
    texts, y = [], 700
    for word, those in zip(words, named, strict=True):
        texts += [(60, y, word, 10, style), *lines(those, x=150, y=y, size=10, font=style)]
        y -= 13 * len(those)
    text = written(*texts)
    order = [text.index(word) for pair in zip(words, named, strict=True) for word in (pair[0], pair[1][-1])]
    assert order == sorted(order)
