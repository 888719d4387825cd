"""Test what becomes of PDF files."""

import io
import random
import re

import pytest
from helpers.pdf_files import PdfWriter

from octavo.documents.document import Document
from octavo.documents.pdf import read_pdf
from octavo.documents.pdf_legible import is_legible
from octavo.documents.recognition import Recognition
from octavo.errors import OctavoError
from octavo.settings import Extraction

#: What helps with pages without text, whether tesseract is installed or not.
HELPS = r"(install tesseract .*, then )?--ocr recognises their text\."

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
    return read_pdf(writer.content(), "report.pdf", Recognition(b"", "", Extraction(password)))


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


def test_a_hyphen_at_the_end_of_a_line_stays_between_words():
    texts = [
        "The factors are price-",
        "setting, a well-",
        "known and long-",
        "term har-",
        "bour plan. The setting of a price.",
    ]
    assert read(PdfWriter().page(*lines(texts))).text.startswith(
        "The factors are price-setting, a well-known and long-term harbour plan."
    )


def test_soft_hyphens_within_a_line_go():
    soft = (60, 700, "It is unim\u00adpor\u00adtant to AB\u00ad12 and the har\u00ad", 10, "hebrew")
    assert read(PdfWriter().page(soft, (60, 687, "bour."))).text == "It is unimportant to AB-12 and the harbour.\n"


def test_a_foot_note_does_not_cut_a_sentence_over_the_page():
    note = (60, 80, "1 The line was sold.", 7)
    writer = PdfWriter().page(*lines(WIDE[:2]), note).page(*lines(["and then it ended."], y=780))
    document = read(writer)
    assert document.text == f"1 The line was sold.\n\n{WIDE[0]} {WIDE[1]} and then it ended.\n"
    assert document.place(document.text.index("and then")).page == "2"


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


@pytest.mark.parametrize(("degrees", "x", "y", "step"), [(90, 100, 60, 13), (180, 550, 100, 0), (270, 500, 800, -13)])
def test_turned_pages_are_read_as_they_are_seen(degrees, x, y, step):
    turned = [(x + i * step, y + (not step) * 13 * i, text, 10, "text", degrees) for i, text in enumerate(WIDE)]
    assert read(PdfWriter().page(*turned, rotate=degrees)).text == " ".join(WIDE) + "\n"


@pytest.mark.parametrize(("size", "matrix"), [(1, (10, 0, 0, 10)), (-10, (-1, 0, 0, -1)), (40, (0.25, 0, 0, 0.25))])
def test_sizes_are_those_on_the_page(size, matrix):
    title = (60, 730, "Of Ships", 2 * size, "text", matrix)
    text = read(PdfWriter().page(title, *((*line, size, "text", matrix) for line in lines(WIDE)))).text
    assert text == "# Of Ships\n\n" + " ".join(WIDE) + "\n"


def test_slanted_letters_stay_in_their_line():
    texts = [
        (60, 700, "They sail on"),
        (122, 700, "Friday the ninth", 10, "text", (1, 0, 0.21, 1)),
        (197, 700, "of May."),
    ]
    assert read(PdfWriter().page(*texts)).text == "They sail on Friday the ninth of May.\n"


def test_lines_that_lean_are_lines():
    leaning = (60, 687, WIDE[1], 10, "text", 1.2)
    assert read(PdfWriter().page((60, 700, WIDE[0]), leaning)).text == f"{WIDE[0]} {WIDE[1]}\n"


def test_small_text_across_the_page_is_read():
    across = (300, 300, "measured by night", 8, "text", 45)
    assert read(PdfWriter().page(*lines(WIDE), across)).text.endswith("\n\nmeasured by night\n")


def test_pages_are_counted_from_the_edge_that_is_seen():
    writer = PdfWriter()
    for number in range(1, 5):
        writer.page((60, 1000, "The Island Log"), *lines(WIDE[:number], y=600), box="0 200 595 1042")
    assert "Island Log" not in read(writer).text


def seen(text):
    """Hebrew or Arabic as it is drawn, from left to right."""
    return text[::-1]


@pytest.mark.parametrize(("font", "word"), [("hebrew", "הגשר"), ("arabic", "الجسر")])
def test_text_from_right_to_left_has_the_order_of_reading(font, word):
    texts = [(260, 700 - 13 * i, f".{i} Tj 2016 {seen(f'{word} {word} {word}')}", 10, font) for i in range(3)]
    assert (
        read(PdfWriter().page(*texts)).text == " ".join(f"{word} {word} {word} {i} Tj 2016." for i in range(3)) + "\n"
    )


def test_columns_from_right_to_left_begin_on_the_right():
    right, left = (
        [
            (x, 700 - 13 * i, seen(f"{word} {i} " + "הגשר נסגר בחודש מרץ לאחר בדיקה שלמה של העיר"), 10, "hebrew")
            for i in range(9)
        ]
        for x, word in ((320, "ימין"), (60, "שמאל"))
    )
    text = read(PdfWriter().page(*(each for pair in zip(left, right, strict=True) for each in pair))).text
    assert text.index("ימין 8") < text.index("שמאל 0")


def test_words_from_right_to_left_within_others():
    texts = [(60, 700, f"The bridge is called {seen('הגשר הצפוני')} in the book.", 10, "hebrew"), *lines(WIDE, y=687)]
    assert read(PdfWriter().page(*texts)).text.startswith("The bridge is called הגשר הצפוני in the book.\n")


def test_stamps_in_margins_and_watermarks_are_left_out():
    stamp, mark = (30, 200, "arXiv:1706.03762v5 [cs.CL]", 20, "text", 90), (90, 200, "DRAFT", 90, "text", 45)
    assert read(PdfWriter().page(*lines(WIDE), stamp, mark)).text == " ".join(WIDE) + "\n"


def test_powers_stay_in_their_line():
    texts = [(60, 700, "It grew as x"), (111.5, 704, "2", 7), (118, 700, "and no more, as all who were there will say")]
    text = read(PdfWriter().page(*texts, (60, 687, "without a doubt."))).text
    assert text == "It grew as x^2 and no more, as all who were there will say without a doubt.\n"


def test_a_line_at_a_right_angle_within_the_page_is_read():
    beside = (300, 200, "Height in metres", 10, "text", 90)
    assert read(PdfWriter().page(*lines(WIDE), beside)).text.endswith("\n\nHeight in metres\n")


def test_small_digits_around_a_stroke_are_a_fraction():
    texts = [(60, 700, "Take 3"), (90.9, 704, "1", 6), (94.3, 700, "/"), (97.2, 699, "2", 6), (103, 700, "cups of x")]
    assert read(PdfWriter().page(*texts, (143.2, 704, "2", 6))).text == "Take 3 1/2 cups of x^2\n"


@pytest.mark.parametrize(("capital", "first"), [("T", "he ship of the keeper"), ("A", " ship of the keeper")])
def test_large_capitals_begin_their_paragraph(capital, first):
    beside = [
        (86, 700, first.strip() + " sailed on, and nobody saw a ship again that day, though"),
        (86, 687, WIDE[1][:80]),
    ]
    text = read(PdfWriter().page((60, 687, capital, 32), *beside, *lines(WIDE, y=674))).text
    assert text.startswith(f"{capital}{first} sailed on")
    assert text.count("\n\n") == 0


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


@pytest.mark.parametrize("font", ["computer-modern", "nimbus"])
def test_bold_fonts_of_latex_make_headings(font):
    text = read(PdfWriter().page((60, 780, "Of Ships", 10, font), *lines(WIDE, y=750))).text
    assert text.startswith("# Of Ships\n")


def test_the_outline_says_the_levels():
    writer = PdfWriter().page((60, 780, "Part One", 12, "bold"), *lines(WIDE, y=750))
    writer.outline = [("Part One", 0)]
    writer.page((60, 780, "A Picture of a Ship", 20, "bold"), *lines(WIDE, y=750))
    assert "# Part One\n" in read(writer).text


def test_what_the_outline_names_is_a_heading_in_whatever_font():
    writer = PdfWriter().page(*lines(["2.1 Of Ships"], y=780), *lines(WIDE, y=750))
    writer.outline = [("Of Ships", 0)]
    assert read(writer).text.startswith("# 2.1 Of Ships\n\nThe keeper")


def test_a_page_may_have_columns_only_below():
    title = [(200, 790 - 14 * i, f"Line {i} of what stands above both", 11) for i in range(12)]
    left, right = lines(NARROW, y=600), lines([line.upper() for line in NARROW], x=320, y=594, size=8)
    text = read(PdfWriter().page(*title, *left, *right)).text
    assert " ".join(NARROW) in text
    assert text.index("above both") < text.index(NARROW[-1]) < text.index(NARROW[0].upper())


def test_a_file_that_says_that_all_is_bold_has_no_headings_of_it():
    texts = [(60, 700 - 30 * i, text, 10, "bold") for i, text in enumerate(WIDE)]
    assert "#" not in read(PdfWriter().page(*texts)).text


def test_recognised_text_has_no_headings_of_lines_that_seem_larger():
    sizes = (9.1, 10.4, 9.7, 10.9, 9.4, 10.2)
    texts = [(60, 700 - 13 * i, text, sizes[i]) for i, text in enumerate(NARROW)]
    text = read(PdfWriter().page((60, 740, "Of Ships", 17.3), *texts)).text
    assert text == "# Of Ships\n\n" + " ".join(NARROW) + "\n"


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


def test_a_paragraph_goes_on_over_a_page():
    writer = PdfWriter().page(*lines(WIDE)).page(*lines(["and then it ended, as all", "things do."]))
    document = read(writer)
    assert f"{WIDE[-1]} and then it ended, as all things do." in document.text
    assert document.place(document.text.index("Then") if "Then" in document.text else 0).page == "1"
    assert document.place(document.text.index("then it ended")).page == "2"


def test_a_paragraph_that_continues_after_an_empty_page_is_on_its_own_page():
    writer = PdfWriter().page(*lines(["A paragraph of the first page that does not end", "where the page"]))
    writer.page(image=True).page(*lines(["ends but continues on the third one."]))
    document = read(writer)
    assert document.place(document.text.index("A paragraph")).page == "1"
    assert document.place(document.text.index("third one")).page == "3"


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


def test_columns_of_short_lines_are_no_table():
    left = [f"{number}. What of {word}?" if word else "Nothing" for number in (7, 8, 9) for word in ("ships", "", "")]
    right = [f"{number}. Who sees {word}?" if word else "Nobody" for number in (10, 11, 12) for word in ("it", "", "")]
    text = read(PdfWriter().page(*lines(left, step=16), *lines(right, x=320, step=16))).text
    assert "|" not in text
    assert text.index("9. What of ships?") < text.index("10. Who sees it?")


def test_marks_of_lists_are_no_column():
    texts = [(x, 700 - 15 * i, text) for i in range(4) for x, text in ((60, "•"), (90, f"ship number {i}"))]
    assert read(PdfWriter().page(*texts)).text == "".join(f"- ship number {i}\n" for i in range(4))


def test_rows_whose_columns_are_not_clear_stay_lines():
    rows = [(60, 700, "Ship and all"), (200, 700, "port"), (60, 687, "Petrel"), (130, 687, "Leith at first")]
    assert read(PdfWriter().page(*rows)).text == "Ship and all port\nPetrel Leith at first\n"


def test_bold_words_and_numbers_within_a_paragraph_make_no_heading_or_list():
    bold = [(60, 687, WIDE[1], 9.6, "bold"), *lines(["3. And so on, as was said."], y=674)]
    text = read(PdfWriter().page((60, 700, WIDE[0]), *bold)).text
    assert text == f"{WIDE[0]} {WIDE[1]} 3. And so on, as was said.\n"


def test_bold_bullets_are_a_list():
    texts = [(60, 700, "• Ships", 10, "bold"), (60, 687, "• Lights", 10, "bold")]
    assert read(PdfWriter().page(*texts)).text == "- Ships\n- Lights\n"


def test_no_page_takes_long():
    labels = [(x + y % 7, y / 10, "map", 2) for x in range(10, 590, 12) for y in range(10, 8400, 60)]
    names = [
        (x + 7 * (y % 5), y / 2, ("oak", "ford", "mill")[x % 3], 3)
        for y in range(80, 1600, 6)
        for x in range(0, 590, 13)
    ]
    read(PdfWriter().page(*labels).page(*names))


def test_an_encrypted_file_needs_its_password():
    writer = PdfWriter(password="secret").page(*lines(WIDE))
    assert read(writer, "secret").text == " ".join(WIDE) + "\n"
    with pytest.raises(OctavoError, match=r"^report\.pdf is encrypted: give its --password\.$"):
        read(writer)
    with pytest.raises(OctavoError, match="password is wrong"):
        read(writer, "guess")
    with pytest.raises(OctavoError, match="is damaged"):
        read_pdf(PdfWriter().page().content().replace(b"/Root 1 0 R", b"/Root 9 0 R"), "other.pdf")


def test_pictures_of_text_name_what_helps():
    with pytest.raises(OctavoError, match=rf"^report\.pdf has only pictures or drawings on its 2 pages: {HELPS}$"):
        read(PdfWriter().page(image=True).page(image=True))
    document = read(PdfWriter().page(*lines(WIDE)).page(image=True).page())
    assert len(document.notices) == 1
    assert re.fullmatch(
        rf"report\.pdf has only pictures or drawings on 1 of 3 pages \(2\): {HELPS}", document.notices[0]
    )


def field(kind, x, y, width, entries):
    return f"<< /Type /Annot /Subtype /{kind} /Rect [{x} {y} {x + width} {y + 20}] /F 4 {entries} >>"


def test_values_of_fields_and_ticked_boxes_are_read_beside_their_labels():
    labels = [(60, 700, "Name of the ship:"), (60, 660, "Cargo insured:"), (60, 620, "Cargo sold:")]
    states = "/AP << /N << /Yes 6 0 R /Off 6 0 R >> >>"
    notes = [
        field("Widget", 200, 695, 150, "/FT /Tx /T (a) /V (Halcyon Dawn)"),
        field("Widget", 200, 655, 20, f"/FT /Btn /T (b) /V /Yes /AS /Yes {states}"),
        field("Widget", 200, 615, 20, f"/FT /Btn /T (c) /V /Off /AS /Off {states}"),
        field("Widget", 200, 555, 20, "/FT /Tx /T (d) /Ff 8192 /V (secret)"),
    ]
    text = read(PdfWriter().page(*labels, notes=" ".join(notes))).text
    assert text == "Name of the ship: Halcyon Dawn\n\nCargo insured: [x]\n\nCargo sold: [ ]\n"


def test_typed_text_and_remarks_are_read():
    notes = field("FreeText", 60, 500, 200, "/Contents (Typed on the page)")
    notes += field("Text", 60, 400, 20, "/Contents (Is this\nso?)") + field(
        "Text", 60, 300, 20, "/F 2 /Contents (unseen)"
    )
    writer = PdfWriter().page(*lines(WIDE), notes=notes).page(*lines(["and it was."]))
    document = read(writer)
    assert document.text.endswith("Typed on the page\n\n[Remark: Is this so?]\n\nand it was.\n")
    assert document.place(document.text.index("and it was.")).page == "2"


def test_blank_pages_and_drawings_are_called_so():
    with pytest.raises(OctavoError, match=r"^report\.pdf is blank: there is nothing to read in it\.$"):
        read(PdfWriter().page())
    with pytest.raises(OctavoError, match=rf"^report\.pdf has only pictures or drawings on its page: {HELPS}$"):
        read(PdfWriter().page(drawn="100 100 50 50 re f"))


def test_invisible_text_is_left_out():
    hidden = "1 1 1 rg BT /text 10 Tf 60 600 Td (white) Tj ET 0 g BT /text 10 Tf 3 Tr 60 580 Td (unseen) Tj ET"
    texts = [(60, -200, "beside"), (60, 560, "tiny", 0.5)]
    document = read(PdfWriter().page(*lines(WIDE), *texts, drawn=hidden))
    assert document.text == " ".join(WIDE) + "\n"
    assert read(PdfWriter().page(drawn="BT /text 10 Tf 3 Tr 60 580 Td (unseen) Tj ET")).text == "unseen\n"
    assert document.notices == ("report.pdf has invisible text on its page: octavo leaves it out.",)


def test_white_text_on_a_dark_ground_and_text_of_a_scan_are_read():
    white = "50 690 200 30 re f 1 1 1 rg BT /text 10 Tf 60 700 Td (White) Tj ET"
    scanned = "0 g BT /text 10 Tf 3 Tr 120 400 Td (Seen) Tj ET"
    document = read(PdfWriter().page(image=True, drawn=f"{white} {scanned}"))
    assert document.text == "White\n\nSeen\n"
    assert document.notices == ()


@pytest.mark.parametrize("text", ["!),$)(*/#'*$/#(*%$-,8$#4$8)", "7KHQRUWKEULGJHZDVFORVHGLQ0DUFK"])
def test_letters_without_meaning_are_not_text(text):
    unclear = [(60, 600 - 13 * i, text, 10, "unclear") for i in range(3)]
    with pytest.raises(OctavoError, match=rf"^report\.pdf does not tell which letters it has on its page: {HELPS}$"):
        read(PdfWriter().page(*unclear))
    document = read(PdfWriter().page(*lines(WIDE)).page(*lines(WIDE), *unclear))
    assert document.text.count(WIDE[0]) == 2
    assert text[:5] not in document.text
    assert re.search(rf"on 1 of 2 pages \(2\): {HELPS}$", document.notices[0])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("TheNorthBridge", True),
        ("Výbavanapřání", True),
        ("1.51.00.50.00.5", True),
        ("ab", True),
        ("rrrrrrrr", True),
        ("の削除・インストールについて", True),
        ("MMLU-Pro(EM)GPQA-Diamond(Pass@1)", True),
        ("9ROXPHV7KHQRUWK", False),
        ("!),$)(*/#", False),
        ("ԔϸЇΰÎΨϣķgϙ", False),
    ],
)
def test_what_could_be_text(text, expected):
    assert is_legible(text) == expected


def test_text_in_a_font_that_nobody_has_is_named():
    writer = PdfWriter().page(*lines(WIDE), (60, 500, "±±ÇÅ", 12, "chinese"))
    document = read(writer)
    assert "北桥" in document.text or "(SimSun): install them, or fonts-noto-cjk." in document.notices[0]


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


@pytest.mark.parametrize("font_type", [3, 42])
def test_a_file_of_another_program(font_type):
    """matplotlib embeds parts of TrueType fonts, as outlines or as they are."""
    import matplotlib
    from matplotlib.backends.backend_pdf import PdfPages
    from matplotlib.figure import Figure

    out = io.BytesIO()
    with matplotlib.rc_context({"pdf.fonttype": font_type}), PdfPages(out) as pages:
        for number in range(1, 4):
            figure = Figure((8.3, 11.7))
            figure.text(0.1, 0.9, f"Chapter {number}", fontsize=22)
            for i, line in enumerate([*WIDE, "Ångström, Œuvre: naïve."]):
                figure.text(0.1, 0.8 - 0.02 * i, line, fontsize=11)
            pages.savefig(figure)
    document = read_pdf(out.getvalue(), "figures.pdf", None)
    assert [place.heading for place in document.places if place.heading] == [f"Chapter {i}" for i in (1, 2, 3)]
    assert " ".join(WIDE) in document.text
    assert document.text.count("Ångström, Œuvre: naïve.") == 3
