"""Test which letters of a PDF are read, and in what order."""

import io
import re

import pytest
from helpers.pdf_files import HELPS, WIDE, PdfWriter, lines, read, seen

from octavo.documents.pdf.pdf import extract_pdf
from octavo.documents.pdf.pdf_legible import is_legible
from octavo.errors import OctavoError


def test_soft_hyphens_within_a_line_go():
    soft = (60, 700, "It is unim\u00adpor\u00adtant to AB\u00ad12 and the har\u00ad", 10, "hebrew")
    assert read(PdfWriter().page(soft, (60, 687, "bour."))).text == "It is unimportant to AB-12 and the harbour.\n"


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


@pytest.mark.parametrize(("font", "word"), [("hebrew", "הגשר"), ("arabic", "الجسر")])
def test_text_from_right_to_left_has_the_order_of_reading(font, word):
    texts = [(260, 700 - 13 * i, f".{i} Tj 2016 {seen(f'{word} {word} {word}')}", 10, font) for i in range(3)]
    assert (
        read(PdfWriter().page(*texts)).text == " ".join(f"{word} {word} {word} {i} Tj 2016." for i in range(3)) + "\n"
    )


def test_words_from_right_to_left_within_others():
    texts = [(60, 700, f"The bridge is called {seen('הגשר הצפוני')} in the book.", 10, "hebrew"), *lines(WIDE, y=687)]
    assert read(PdfWriter().page(*texts)).text.startswith("The bridge is called הגשר הצפוני in the book.\n")


def test_stamps_in_margins_and_watermarks_follow_the_text_once():
    stamp, mark = (30, 200, "arXiv:1706.03762v5 [cs.CL]", 20, "text", 90), (90, 200, "DRAFT", 90, "text", 45)
    writer = PdfWriter().page(*lines(WIDE), stamp, mark)
    for _ in range(3):
        writer.page(*lines(WIDE), mark, (90, 300, "DRAFT", 90, "text", 45))
    whole = " ".join(WIDE)
    assert read(writer).text == f"{whole}\n\narXiv:1706.03762v5 [cs.CL]\nDRAFT\n\n{whole}\n\n{whole}\n\n{whole}\n"


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
    document = extract_pdf(out.getvalue(), "figures.pdf")
    assert [place.heading for place in document.places if place.heading] == [f"Chapter {i}" for i in (1, 2, 3)]
    assert " ".join(WIDE) in document.text
    assert document.text.count("Ångström, Œuvre: naïve.") == 3


@pytest.mark.parametrize(
    ("word", "mark", "expected"),
    [
        ("Yield", "a", "Yield^a"),
        ("sold", "3)", "sold^3)"),
        ("XVI", "e", "XVIe"),
        ("5", "th", "5th"),
        ("12.5", "b", "12.5^b"),
    ],
)
def test_marks_of_notes_stay_at_their_word(word, mark, expected):
    width = {"Yield": 23.3, "sold": 18.9, "XVI": 16.1, "5": 5.6, "12.5": 19.5}[word]
    texts = [(60, 700, word), (60.2 + width, 704, mark, 6), (75 + width, 700, "and more")]
    assert read(PdfWriter().page(*texts)).text.startswith(expected + " and")


def test_ticks_and_boxes_of_symbol_fonts_are_read():
    texts = [(60, 700, "Insured:"), (110, 700, "\xfe", 10, "boxes"), (125, 700, "Yes")]
    texts += [(150, 700, "\xa8", 10, "boxes"), (165, 700, "No"), (60, 660, "a \xa3 b", 10, "symbols")]
    document = read(PdfWriter().page(*texts))
    assert document.text.split() == ["Insured:", "☑", "Yes", "☐", "No", *"\u03b1≤\u03b2"]
    assert document.notices == ()


def test_signs_of_unknown_fonts_leave_a_mark_and_a_notice():
    document = read(PdfWriter().page(*lines(WIDE)).page((60, 700, "\x95", 10, "icons"), (75, 700, "+47 555 0101")))
    assert document.text.endswith("\ufffd +47 555 0101\n")
    [notice] = document.notices
    assert notice.endswith("do not say what they mean on 1 of 2 pages (2): octavo writes \ufffd for each.")


@pytest.mark.parametrize("words", [("meadow", "mirror"), ("ginger", "oak"), ("12", "mai")])
def test_words_that_are_moved_apart_without_blanks_are_apart(words):
    first, second = words
    drawn = f"BT /text 10 Tf 60 700 Td ({first[:-1]}) Tj 3 Tc ({first[-1]}) Tj 0 Tc ({second} and more) Tj ET"
    assert read(PdfWriter().page(drawn=drawn)).text == f"{first} {second} and more\n"


def test_letters_that_are_moved_apart_are_words():
    drawn = "BT /text 10 Tf 60 700 Td (The riv) Tj -2.78 Tc ( ) Tj 0 Tc (er) Tj 0 -20 Td 3 Tc (WINTER) Tj ET"
    assert read(PdfWriter().page(drawn=drawn)).text.split() == ["The", "river", "WINTER"]


@pytest.mark.parametrize("degrees", [15, 30, 45, 60, 290])
def test_words_of_slanted_lines_stay_whole(degrees):
    text = read(PdfWriter().page(*lines(WIDE), (200, 300, "PAID 14 May 2026", 18, "text", degrees))).text
    assert text.endswith("\n\nPAID 14 May 2026\n")


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("Candle . . . . . . .95", "Candle ... .95"),
        ("Button ........ 1.25", "Button ... 1.25"),
        ("Oars ........ .50", "Oars ... .50"),
        ("Sails . . . . . . 12", "Sails ... 12"),
        ("Ropes.........95", "Ropes ... 95"),
    ],
)
def test_dots_that_lead_to_a_price_leave_its_own(entry, expected):
    assert read(PdfWriter().page((60, 700, entry))).text == f"{expected}\n"


@pytest.mark.parametrize("is_fixed", [True, False])
def test_letters_of_one_width_are_code_whatever_the_name_of_their_font(is_fixed):
    widths = " ".join("600" if is_fixed else str(300 + 40 * (code % 12)) for code in range(32, 127))
    writer = PdfWriter()
    writer.others[500] = (
        "<< /Type /Font /Subtype /Type1 /BaseFont /Gothic /Encoding /WinAnsiEncoding /FirstChar 32 /LastChar 126 "
        f"/Widths [{widths}] /FontDescriptor << /Type /FontDescriptor /FontName /Gothic /Flags 32 >> >>"
    )
    writer.resources = "/Font << /plain 500 0 R >>"
    drawn = " ".join(
        f"BT /plain 10 Tf 1 0 0 1 {x} {y} Tm ({text}) Tj ET"
        for x, y, text in ((60, 700, "SELECT"), (132, 700, "time, mill"), (60, 688, "FROM"), (132, 688, "weirs w"))
    )
    text = read(writer.page(drawn=drawn)).text
    assert (text == "```\nSELECT      time, mill\nFROM        weirs w\n```\n") == is_fixed
