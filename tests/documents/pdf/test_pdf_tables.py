"""Test tables of PDFs."""

import pytest
from helpers.pdf_files import WIDE, PdfWriter, lines, read, seen


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


def test_a_table_is_one_wherever_its_cells_are_aligned():
    rows = [("Ship", "1999", "2000"), ("Petrel", "5", "123,456"), ("Gannet", "12,345"), ("Total", "12,350", "123,456")]
    cells = [
        (x - 5.56 * len(text) * (x > 60), 700 - 13 * number, text)
        for number, row in enumerate(rows)
        for x, text in zip((60, 300, 400), row, strict=False)
    ]
    text = read(PdfWriter().page(*cells)).text
    assert text == (
        "| Ship | 1999 | 2000 |\n| --- | --- | --- |\n| Petrel | 5 | 123,456 |\n| Gannet | 12,345 |  |\n"
        "| Total | 12,350 | 123,456 |\n"
    )


def test_empty_cells_keep_their_columns():
    rows = ["Berth,Depth,Crane,Owner", "1,4.2 m,,", "2,,2,Board", "3,6.0 m,,Town", "4,,5,", "5,3.1 m,,Board"]
    placed = [
        (60 + 90 * column, 700 - 15 * number, text)
        for number, row in enumerate(rows)
        for column, text in enumerate(row.split(","))
        if text
    ]
    text = read(PdfWriter().page(*placed)).text
    assert [line.replace(" ", "") for line in text.splitlines()[2:]] == [
        "|" + row.replace(",", "|").replace(" ", "") + "|" for row in rows[1:]
    ]


def test_a_cell_of_two_lines_is_one_cell():
    placed = []
    for number, (ship, load) in enumerate(
        [("Ship", "Load"), ("Petrel", "timber and"), ("Gannet", "salt"), ("Skua", "oil")]
    ):
        placed += [(60, 700 - 26 * number, ship), (200, 700 - 26 * number, load), (330, 700 - 26 * number, "yes")]
    text = read(PdfWriter().page(*placed, (200, 662, "rope"))).text
    assert "| Petrel | timber and rope | yes |\n| Gannet | salt | yes |" in text


def test_rows_whose_columns_are_not_clear_stay_lines():
    rows = [(60, 700, "Ship and all"), (200, 700, "port"), (60, 687, "Petrel"), (130, 687, "Leith at first")]
    assert read(PdfWriter().page(*rows)).text == "Ship and all port\nPetrel Leith at first\n"


def test_no_page_takes_long():
    labels = [(x + y % 7, y / 10, "map", 2) for x in range(10, 590, 24) for y in range(10, 8400, 120)]
    names = [
        (x + 7 * (y % 5), y / 2, ("oak", "ford", "mill")[x % 3], 3)
        for y in range(80, 1600, 12)
        for x in range(0, 590, 26)
    ]
    text = read(PdfWriter().page(*labels).page(*names)).text
    assert sum(text.count(name) for name in ("map", "oak", "ford", "mill")) == len(labels) + len(names)


def rules(xs, ys):
    """Rules around cells, from the first to the last of each."""
    level = [f"{xs[0]} {y} m {xs[-1]} {y} l S" for y in ys]
    return " ".join([*level, *(f"{x} {ys[0]} m {x} {ys[-1]} l S" for x in xs)])


def rows(text):
    """The cells of a table, row by row, without the line below its head."""
    lines = [line for line in text.splitlines() if line.startswith("|") and "---" not in line]
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in lines]


def test_cells_between_rules_hold_paragraphs_and_may_be_empty():
    texts = [
        (65, 685, "Ship"),
        (205, 685, "Load"),
        (65, 665, "Petrel"),
        (65, 645, "of Leith"),
        (205, 665, "• salt and tim-"),
    ]
    drawn = rules((60, 200, 340), (700, 680, 630, 600))
    text = read(PdfWriter().page(*texts, (205, 645, "ber"), (205, 615, "none"), drawn=drawn)).text
    assert rows(text) == [["Ship", "Load"], ["Petrel of Leith", "• salt and timber"], ["", "none"]]


@pytest.mark.parametrize("closed", [True, False])
def test_merged_heads_keep_the_columns_below(closed):
    texts = [(65, 685, "Ship"), (150, 685, "Tons in the years"), (150, 665, "1920"), (250, 665, "1921")]
    texts += [(65, 645, "Skua"), (150, 645, "12"), (250, 645, "17")]
    sides = "60 640 m 60 700 l S 340 640 m 340 700 l S" if closed else ""
    drawn = "60 700 m 340 700 l S 140 680 m 340 680 l S 60 660 m 340 660 l S 60 640 m 340 640 l S "
    drawn += f"140 640 m 140 700 l S 240 640 m 240 680 l S {sides}"
    text = read(PdfWriter().page(*texts, drawn=drawn)).text
    assert rows(text) == [["Ship", "Tons in the years", ""], ["", "1920", "1921"], ["Skua", "12", "17"]]


def test_areas_have_sides_as_rules_and_words_stay_whole():
    drawn = " ".join(f".9 g {x} {y} 100 20 re f" for x in (60, 160, 260) for y in (680, 660)) + " 0 g"
    texts = [(x + 5, y, f"{name}{y}") for x, name in ((60, "a"), (160, "b"), (260, "c")) for y in (685, 665)]
    text = read(PdfWriter().page(*texts, (140, 673, "overlapping", 6), under=drawn)).text
    assert rows(text) == [["a685", "b685", "c685"], ["overlapping a665", "b665", "c665"]]


def test_numbers_between_two_rules_are_rows():
    texts = [(65, 685, "Ship"), (165, 685, "Tons"), (265, 685, "Crew")]
    for number, (ship, tons, crew) in enumerate([("Skua", "12", "3"), ("Tern", "1,240", "11"), ("Knot", "7", "-")]):
        texts += [(65, 665 - 12 * number, ship), (165, 665 - 12 * number, tons), (265, 665 - 12 * number, crew)]
    text = read(PdfWriter().page(*texts, drawn=rules((60, 160, 260, 360), (700, 680, 630)))).text
    assert rows(text)[1:] == [["Skua", "12", "3"], ["Tern", "1,240", "11"], ["Knot", "7", "-"]]


def test_columns_whose_borders_differ_from_row_to_row_are_one():
    drawn = rules((60, 360), (700, 680, 660)) + " 200 700 m 200 680 l S 230 680 m 230 660 l S"
    texts = [(65, 685, "Name"), (205, 685, "Halcyon"), (65, 665, "Home port"), (235, 665, "Grimstad")]
    assert rows(read(PdfWriter().page(*texts, drawn=drawn)).text) == [["Name", "Halcyon"], ["Home port", "Grimstad"]]


def test_cells_of_striped_rows_keep_their_columns():
    stripes = (
        " ".join(f".9 g 60 {y} 300 20 re f" for y in (680, 640)) + " 0 g " + rules((60, 160, 260, 360), (680, 660))
    )
    texts = [(x, y + 5, f"{x} {y}") for x in (65, 165, 265) for y in (680, 660, 640)]
    text = read(PdfWriter().page(*texts, under=stripes)).text
    assert rows(text) == [[f"{x} {y}" for x in (65, 165, 265)] for y in (680, 660, 640)]


@pytest.mark.parametrize("degrees", [0, 90])
def test_tables_of_forms_and_turned_pages(degrees):
    placed = [(65, 685, "Name"), (205, 685, "Port"), (65, 665, "Halcyon")]
    texts = [(x, y, text) if not degrees else (500 - y + 400, x, text, 10, "text", 90) for x, y, text in placed]
    drawn = rules((60, 200, 340), (700, 680, 660))
    box = (210, 661, 330, 679) if not degrees else (900 - 679, 210, 900 - 661, 330)
    turn = "0 1 -1 0 900 0 cm " if degrees else ""
    field = f"<< /Type /Annot /Subtype /Widget /Rect [{' '.join(map(str, box))}] /F 4 /FT /Tx /T (a) /V (Grimstad) >>"
    text = read(PdfWriter().page(*texts, drawn=turn + drawn, notes=field, rotate=degrees)).text
    assert rows(text) == [["Name", "Port"], ["Halcyon", "Grimstad"]]


def test_tables_from_right_to_left_begin_on_the_right():
    texts = [(265, 685, seen("אונייה")), (65, 685, seen("נמל")), (265, 665, seen("שלום")), (65, 665, seen("חיפה"))]
    texts = [(*text, 10, "hebrew") for text in texts]
    text = read(PdfWriter().page(*texts, drawn=rules((60, 200, 340), (700, 680, 660)))).text
    assert rows(text) == [["אונייה", "נמל"], ["שלום", "חיפה"]]


def test_boxes_frames_and_patterns_are_no_tables():
    frame = rules((40, 560), (820, 600, 40))
    paper = rules(range(60, 520, 20), range(710, 600, -13))
    for drawn in (frame, paper):
        assert read(PdfWriter().page(*lines(WIDE), drawn=drawn)).text == " ".join(WIDE) + "\n"


def test_heads_of_columns_may_stand_elsewhere():
    texts = [(60, 700, "Year"), (150, 700, "Ships that were seen in it")]
    texts += [(x, 685 - 15 * i, text) for i in range(3) for x, text in ((60, f"{1920 + i}"), (215, f"{12 + i}"))]
    assert rows(read(PdfWriter().page(*texts)).text)[0] == ["Year", "Ships that were seen in it"]


def table_of(texts, xs, ys):
    """The rows that are read of texts at places."""
    placed = [(x, y, cell) for y, row in zip(ys, texts, strict=True) for x, cell in zip(xs, row, strict=True) if cell]
    return rows(read(PdfWriter().page(*placed)).text)


@pytest.mark.parametrize("gap", [14, 16, 24])
def test_totals_and_rows_of_a_group_are_rows(gap):
    """Whatever the gap below the head is."""
    texts = [
        ["Pos.", "Article", "Amount"],
        ["1", "Door", "310.00"],
        ["2", "Table", "480.00"],
        ["", "Net total", "790.00"],
    ]
    texts += [["", "VAT 20 %", "158.00"], ["", "Amount due", "948.00"]]
    assert table_of(texts, (60, 120, 300), [700, *(700 - gap - 14 * i for i in range(5))]) == texts
    texts = [["Shift", "Post", "Name"], ["Early", "gate", "Ann"], ["", "yard", "Ben"], ["Late", "mill", "Eve"]]
    assert table_of(texts, (60, 120, 300), [700, *(700 - gap - 14 * i for i in range(3))]) == texts


@pytest.mark.parametrize("off", [0, 6, 12])
def test_cells_of_two_lines_are_whole_wherever_those_beside_them_stand(off):
    placed = []
    for number in range(4):
        y = 700 - 40 * number
        placed += [
            (60, y - off, f"0{number + 1}.05."),
            (130, y, "bridge basket pepper"),
            (130, y - 12, "orchard falcon"),
        ]
        placed += [(300, y - off, f"{number}4.50")]
    assert rows(read(PdfWriter().page(*placed)).text) == [
        [f"0{n + 1}.05.", "bridge basket pepper orchard falcon", f"{n}4.50"] for n in range(4)
    ]


def test_a_head_of_two_rows_is_in_the_table():
    placed = [(165, 715, "2024", 10, "bold"), (265, 715, "2025", 10, "bold")]
    texts = [
        ["Field", "Oats", "Rye", "Wheat", "Hops"],
        *([f"field {i}", *(str(10 * i + j) for j in range(4))] for i in range(4)),
    ]
    placed += [
        (60 + 50 * x + 30 * (x > 0), 700 - 15 * y, cell) for y, row in enumerate(texts) for x, cell in enumerate(row)
    ]
    assert rows(read(PdfWriter().page(*placed)).text)[1:] == texts


def test_a_head_may_stand_beside_its_column():
    texts = [["Date", "Debit", "Balance"], *([f"0{i}.05.", f"{i}4.50", f"{1000 + i}.10"] for i in range(1, 6))]
    placed = [
        (x if not y or not x - 60 else x + 60 - 5 * len(cell), 700 - 15 * y, cell)
        for y, row in enumerate(texts)
        for x, cell in zip((60, 150, 260), row, strict=True)
    ]
    assert rows(read(PdfWriter().page(*placed)).text) == texts


def test_numbers_in_narrow_columns_keep_their_places():
    texts = [["Year", "North", "South", "East"]]
    for i in range(9):
        numbers = [f"{11 + i},{100 + 7 * i * j}" for j in range(3)]
        texts.append([str(2010 + i), *(number if (i + j) % 3 else "" for j, number in enumerate(numbers))])
    placed = [
        (x - 5.2 * len(cell) * (x > 60), 700 - 14 * y, cell)
        for y, row in enumerate(texts)
        for x, cell in zip((60, 150, 186, 222), row, strict=True)
        if cell
    ]
    assert rows(read(PdfWriter().page(*placed)).text)[1:] == texts[1:]


@pytest.mark.parametrize("wrapped", [False, True])
def test_entries_between_rules_that_are_only_vertical_are_rows(wrapped):
    drawn = (
        " ".join(f"{x} 600 m {x} 720 l S" for x in (60, 160, 300, 360, 440))
        + " 60 720 m 440 720 l S 60 600 m 440 600 l S "
    )
    drawn += "60 700 m 440 700 l S"
    placed = [(x, 706, head) for x, head in ((65, "Date"), (165, "Text"), (305, "Debit"), (365, "Balance"))]
    for i in range(4):
        y = 685 - 24 * i
        placed += [(65, y, f"0{i}.05.2026"), (165, y, "bread and"), (305, y, f"{i}.50"), (365, y, f"100{i}.10")]
        placed += [(165, y - 10, "butter")] if wrapped else []
    text = "bread and butter" if wrapped else "bread and"
    assert rows(read(PdfWriter().page(*placed, drawn=drawn)).text)[1:] == [
        [f"0{i}.05.2026", text, f"{i}.50", f"100{i}.10"] for i in range(4)
    ]


def test_letters_of_one_width_keep_their_columns():
    texts = [(60, 700, "Date   Debit Credit", 10, "code"), (60, 688, "01/04         11.40", 10, "code")]
    texts += [(60, 676, "02/04  28.40", 10, "code")]
    assert "Date   Debit Credit\n01/04         11.40\n02/04  28.40\n" in read(PdfWriter().page(*texts)).text
