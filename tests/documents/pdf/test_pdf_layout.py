"""Test paragraphs, columns, headings and lists of PDFs."""

import pytest
from helpers.pdf_files import NARROW, WIDE, PdfWriter, lines, read, seen

from octavo.documents.pdf.pdf import extract_pdf
from octavo.documents.pdf.pdf_layout import _is_title


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


def test_a_picture_with_words_and_a_line_that_is_too_long_leave_columns():
    left, right = lines([*NARROW, NARROW[0] + " an", *NARROW]), lines(NARROW, x=320, y=620)
    names = [(330 + 40 * (i % 5), 700 - 7 * i, f"part {i}", 5) for i in range(10)]
    text = read(PdfWriter().page(*left, *names, *right)).text
    assert " ".join(NARROW) + f" {NARROW[0]} an " in text
    assert text.endswith(" ".join(NARROW) + "\n")


def test_what_spans_the_columns_comes_in_order():
    upper, lower = (
        [*lines(NARROW, y=y), *lines([line.upper() for line in NARROW], x=320, y=y, size=8)] for y in (700, 500)
    )
    middle = [(60, 600, "Between the two halves of the page stands a sentence as wide as both of the columns are.")]
    text = read(PdfWriter().page(*upper, *middle, *lower)).text
    parts = [text.index(NARROW[0]), text.index(NARROW[-1].upper()), text.index("Between"), text.rindex(NARROW[0])]
    assert parts == sorted(parts)


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


def test_a_font_with_a_plain_name_is_not_bold_whatever_weight_it_states():
    text = read(PdfWriter().page((60, 780, "Of Ships", 10, "groff-bold"), *lines(WIDE, y=750, size=10, font="groff")))
    assert text.text == f"# Of Ships\n\n{' '.join(WIDE)}\n"


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


def test_columns_of_short_lines_are_no_table():
    left = [f"{number}. What of {word}?" if word else "Nothing" for number in (7, 8, 9) for word in ("ships", "", "")]
    right = [f"{number}. Who sees {word}?" if word else "Nobody" for number in (10, 11, 12) for word in ("it", "", "")]
    text = read(PdfWriter().page(*lines(left, step=16), *lines(right, x=320, step=16))).text
    assert "|" not in text
    assert text.index("9. What of ships?") < text.index("10. Who sees it?")


def test_marks_of_lists_are_no_column():
    texts = [(x, 700 - 15 * i, text) for i in range(4) for x, text in ((60, "•"), (90, f"ship number {i}"))]
    assert read(PdfWriter().page(*texts)).text == "".join(f"- ship number {i}\n" for i in range(4))


def test_bold_words_and_numbers_within_a_paragraph_make_no_heading_or_list():
    bold = [(60, 687, WIDE[1], 9.6, "bold"), *lines(["3. And so on, as was said."], y=674)]
    text = read(PdfWriter().page((60, 700, WIDE[0]), *bold)).text
    assert text == f"{WIDE[0]} {WIDE[1]} 3. And so on, as was said.\n"


def test_bold_bullets_are_a_list():
    texts = [(60, 700, "• Ships", 10, "bold"), (60, 687, "• Lights", 10, "bold")]
    assert read(PdfWriter().page(*texts)).text == "- Ships\n- Lights\n"


def test_lists_side_by_side_are_columns():
    left = [(60, 700, "1. Ships of the line"), (60, 680, "2. Lights"), (60, 660, "3. Bells")]
    right = [(300, 699, "•"), (325, 700, "Gales"), (300, 679, "•"), (325, 680, "Seals"), (325, 660, "and ice")]
    text = read(PdfWriter().page(*left, *right)).text
    assert " ".join(text.split()) == "1. Ships of the line 2. Lights 3. Bells - Gales - Seals and ice"


def test_a_sentence_in_wider_lines_is_one_paragraph():
    texts = [*lines(WIDE), (60, 500, WIDE[0] + " on"), (60, 480, "that day."), (60, 450, "it ends.")]
    assert " on that day.\n\nit ends." in read(PdfWriter().page(*texts)).text


def test_a_foot_note_does_not_cut_a_sentence_over_the_column():
    note, right = (60, 600, "1 The line was sold.", 7), ["and then it ended, as all that the keeper had", *NARROW]
    text = read(PdfWriter().page(*lines(NARROW), note, *lines(right, x=320))).text
    assert text == f"1 The line was sold.\n\n{' '.join([*NARROW, *right])}\n"


def test_items_keep_their_numbers_as_they_are():
    texts = [(60, 700, "1. Ships"), (60, 670, "(2) Lights"), (60, 640, "3) Bells"), (60, 610, "b) Gales")]
    assert read(PdfWriter().page(*texts)).text == "1. Ships\n(2) Lights\n3) Bells\n- b) Gales\n"


@pytest.mark.parametrize("text", ["TOTAL: 60.80", "1986", "60.80 EUR", "Amount due: $ 60", "2,140.00"])
def test_values_and_years_are_no_headings(text):
    writer = PdfWriter().page((60, 780, "Of Ships", 14, "bold"), *lines(WIDE, y=750), (60, 600, text, 12, "bold"))
    document = read(writer.page(*lines(WIDE)))
    assert text in document.text
    assert document.places[-1].heading == "Of Ships"


def test_a_total_with_its_amount_at_the_right_is_no_heading():
    text = read(
        PdfWriter().page((60, 700, "TOTAL", 12, "bold"), (400, 700, "60.80", 12, "bold"), *lines(WIDE, y=600))
    ).text
    assert text.startswith("TOTAL 60.80\n")


@pytest.mark.parametrize("text", ["# of bells: 14", "## 12 ##", "# open both valves first"])
def test_a_line_that_begins_as_a_heading_of_markdown_is_text(text):
    document = read(PdfWriter().page((60, 780, "Of Ships", 14, "bold"), (60, 740, text), *lines(WIDE, y=700)))
    assert f"\n\\{text}\n" in document.text
    assert {place.heading for place in document.places} == {"Of Ships"}


@pytest.mark.parametrize("capital", ["B", "L"])
def test_a_large_letter_before_a_name_is_apart(capital):
    texts = [
        (60, 692, capital, 24),
        (85, 700, "London lies on a river"),
        (85, 687, "and so it does not"),
        *lines(WIDE, y=600),
    ]
    assert f"{capital} London lies" in read(PdfWriter().page(*texts)).text


def test_a_large_capital_may_hang_below_its_line():
    texts = [
        (60, 700, "arbour lantern meadow ladder pebble river"),
        (60, 685.5, "H", 32),
        (86, 689, "tunnel beacon meadow and"),
    ]
    content = PdfWriter().page(*texts, *lines(WIDE, y=660)).content()
    text = extract_pdf(content, "report.pdf").text  # PDFium's own text has the capital at another word
    assert text.startswith("Harbour lantern")
    assert "river tunnel beacon" in text


def test_lines_of_a_list_without_marks_stay_lines():
    texts = ["anchors, 3, 40", "of iron, 41", "barges, 7", "boats, 12", "repair of, 15", "cables, 9, 31"]
    assert read(PdfWriter().page(*lines(texts))).text == "\n".join(texts) + "\n"


def headings(*texts):
    """The headings of a page with these texts."""
    return [line for line in read(PdfWriter().page(*texts)).text.splitlines() if line.startswith("#")]


@pytest.mark.parametrize("title", ["Of Ships", "(1) Of Ships", "2 Of Ships", "Who keeps the light?", "III. The Light"])
@pytest.mark.parametrize("room", [26, 13])
def test_a_short_line_in_a_font_of_its_own_over_a_paragraph_is_a_heading(title, room):
    """With more room above it than below, or under the end of a sentence."""
    above = lines([*WIDE, "So it ended."], y=700)
    y = above[-1][1] - room
    found = headings(*above, (60, y, title, 10, "italic"), *lines(WIDE, y=y - 14))
    assert found == [f"# {title}"]


@pytest.mark.parametrize(
    ("line", "room", "below"),
    [
        ("and carried by it", 26, WIDE),
        ("The Island Log", 13, WIDE),  # under a line that is full
        ("In the words of the keeper:", 26, WIDE),
        ("12 May 1986", 26, ["of the third year,", *WIDE]),
        ("Figure 3 The old light", 26, WIDE),
        ("harbour@island.example", 26, WIDE),
        (WIDE[0], 26, WIDE),
    ],
)
def test_other_lines_in_a_font_of_their_own_are_no_headings(line, room, below):
    above = lines(WIDE, y=700)
    y = above[-1][1] - room
    assert headings(*above, (60, y, line, 10, "italic"), *lines(below, y=y - 14)) == []


@pytest.mark.parametrize("n", [5, 9])
def test_many_bold_lines_are_no_heading(n):
    names = [f"Keeper {name}" for name in ("Ann", "Bo", "Carl", "Dora", "Eli", "Finn", "Gus", "Hans", "Ida")[:n]]
    text = read(PdfWriter().page(*lines(names, y=780, step=14, size=12, font="bold"), *lines(WIDE, y=500))).text
    assert " ".join(text.split()).startswith(" ".join(names))


def test_a_summary_in_bold_type_is_one_paragraph():
    bold = lines([*WIDE, "and there it ends."], y=780, size=10, font="bold")
    text = read(PdfWriter().page(*bold, *lines([*WIDE, *WIDE, *WIDE], y=600))).text
    assert text.startswith(f"{' '.join(WIDE)} and there it ends.\n\n")


def test_small_bold_words_in_a_picture_are_no_heading_but_titles_of_notes_are():
    label = [(300, 500, "Locking nut", 8, "bold"), (320, 460, "Keyway", 8)]
    title = [(60, 780, "Of Nuts", 12, "bold"), (60, 760, "Second part", 8, "bold")]
    note = [(60, 400, "On Words", 8, "bold"), *lines([line.lower() for line in WIDE[:3]], y=389, step=10, size=8)]
    assert headings(*title, *lines(WIDE), *label, *note) == ["# Of Nuts", "## Second part", "## On Words"]


@pytest.mark.parametrize(
    ("text", "is_heading"), [("3 Use", True), ("5 맺으며", True), ("12 kg", False), ("25 EUR", False)]
)
def test_a_section_with_a_short_name_is_no_number_with_its_unit(text, is_heading):
    assert _is_title(text) == is_heading
