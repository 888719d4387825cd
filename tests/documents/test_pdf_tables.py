"""Test tables of PDFs."""

from helpers.pdf_files import WIDE, PdfWriter, lines, read


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
    labels = [(x + y % 7, y / 10, "map", 2) for x in range(10, 590, 12) for y in range(10, 8400, 60)]
    names = [
        (x + 7 * (y % 5), y / 2, ("oak", "ford", "mill")[x % 3], 3)
        for y in range(80, 1600, 6)
        for x in range(0, 590, 13)
    ]
    read(PdfWriter().page(*labels).page(*names))
