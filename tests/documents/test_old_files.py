"""Test what becomes of old files: RTF, and those of Word, PowerPoint, Excel and Outlook before 2007."""

import io
import stat
import struct

import pytest
from helpers.document_files import ole, word_file

from octavo.documents.extract import extract_document, may_be_document
from octavo.errors import OctavoError


def read(tmp_path, content):
    path = tmp_path / "x"
    path.write_bytes(content)
    assert may_be_document(path)
    return extract_document(path)


FONTS = rb"{\fonttbl{\f0 Arial;}{\f1\fcharset204 Arial;}}{\stylesheet{\s0 Normal;}{\s1\outlinelevel0 heading 1;}}"
ROW = rb"\trowd%b\cellx1\cellx2\pard\intbl %b\cell %b\cell\row "


@pytest.mark.parametrize(
    ("rtf", "text"),
    [
        (rb"\ansicpg1252 The caf\'e9.\par {\b Two}\u8364?}", "The café.\n\nTwo€"),
        (rb"\s1 Log\par\pard a\line b\par\outlinelevel1 c", "# Log\n\na\nb\n\n## c"),
        (rb"{\f1 \'cc\'e0\'ff\'ea}\'80 \u-10179?\u-8704?\uc0\u945 \emdash\~x", "Маяк€ \U0001f600\u03b1— x"),
        (rb"a{\v gone}\v gone\v0 b{\*\other gone}{\pict 0102}\bin3 }}}c", "abc"),
        (rb"a{\footnote Or\par so.\par}. b{\field{\*\fldinst HYPERLINK}{\fldrslt c}}", "a (Or so.). bc"),
        (rb"{\listtext\'b7\tab}a\par{\listtext\'b7\tab}b\par{\listtext 1.\tab}c", "- a\n- b\n\n1. c"),
        (ROW % (b"", b"a", b"b|c") + ROW % (b"", b"d", rb"e\par f") + rb"\pard g",
         "| a | b\\|c |\n| --- | --- |\n| d | e f |\n\ng"),
        (ROW % (rb"\clvmgf", b"a", b"b") + ROW % (rb"\clvmrg", b"", b"c"), "| a | b |\n| --- | --- |\n| a | c |"),
        (rb"\trowd\clmgf\cellx1\clmrg\cellx2\cellx3\intbl a\cell\cell b\cell\row",
         "| a | a | b |\n| --- | --- | --- |"),
        (rb"{\shp{\*\shpinst{\sp{\sn gone}}{\shptxt In a box.}}{\shprslt gone}}", "In a box."),
        (rb"a}}} b{{{", "a b"),
        (
            rb"\fromhtml1{\*\htmltag64 <p>}{\*\htmltag84 <b>}\htmlrtf {\b \htmlrtf0 2 < 3\htmlrtf }\htmlrtf0"
            rb"{\*\htmltag92 </b>} is \'80.\htmlrtf\par\htmlrtf0{\*\htmltag72 </p>}",
            "**2 < 3** is €.",
        ),
    ],
)  # fmt: skip
def test_rtf(tmp_path, rtf, text):
    assert read(tmp_path, rb"{\rtf1\ansi" + FONTS + rtf + b"}").text == text + "\n"


def test_mail_of_outlook_may_have_its_text_in_compressed_rtf_alone(tmp_path):
    compress = pytest.importorskip("compressed_rtf").compress
    text = rb"{\rtf1\ansi\fromhtml1 {\*\htmltag84 <b>}40 crowns{\*\htmltag92 </b>}\htmlrtf no\htmlrtf0}"
    streams = {("__substg1.0_10090102",): compress(text), ("__properties_version1.0",): bytes(32)}
    assert read(tmp_path, ole(streams)).text == "**40 crowns**\n"
    plain = {**streams, ("__substg1.0_1000001F",): "One.\r\nTwo.\r\n".encode("utf-16-le")}
    assert read(tmp_path, ole(plain)).text == "One.\nTwo.\n"
    page = {**streams, ("__substg1.0_1013001F",): "<p>Seen.<p hidden>No.".encode("utf-16-le")}
    del page["__substg1.0_10090102",]
    assert read(tmp_path, ole(page)).notices == ("x has 1 hidden passage: octavo leaves it out.",)
    streams["__substg1.0_10090102",] = b"no"
    with pytest.raises(OctavoError, match=r"^x is damaged"):
        read(tmp_path, ole(streams))


ATTACHED = "__attach_version1.0_#0000000"
INNER = "__substg1.0_3701000D"


def message(subject, body, *attachments, sent=0, folder=(), head=32):
    """The streams of a mail; an attachment is its name, or the keywords of a mail."""
    properties = bytes(head) + struct.pack("<HHIQ", 0x40, 0x39, 0, sent)
    streams = {(*folder, "__properties_version1.0"): properties}
    for number, text in (("0037", subject), ("1000", body)):
        streams[*folder, f"__substg1.0_{number}001F"] = text.encode("utf-16-le")
    for number, each in enumerate(attachments):
        place = (*folder, f"{ATTACHED}{number}")
        if isinstance(each, str):
            streams[*place, "__substg1.0_3707001F"] = each.encode("utf-16-le")
        else:
            streams |= message(*each, sent=sent, folder=(*place, INNER), head=24)
    return streams


def test_a_mail_attached_to_a_mail_of_outlook_is_read(tmp_path):
    ticks = 133_600_000_000_000_000
    inner = ("Re: Oil", "Paid.\r\n", "bill.pdf", ("Oil", "Forty crowns."))
    text = read(tmp_path, ole(message("Fwd: Oil", "See below.", inner, "map.png", sent=ticks))).text
    date = "Date: 2024-05-12 15:06 UTC"
    assert text == (
        f"# Fwd: Oil\n\n{date}\nAttachments: map.png\n\nSee below.\n\n"
        f"# Re: Oil\n\n{date}\nAttachments: bill.pdf\n\nPaid.\n\n# Oil\n\n{date}\n\nForty crowns.\n"
    )


def test_mail_of_outlook_within_each_other_has_an_end_and_other_objects_have_their_name(tmp_path):
    nested = ("10", "no")
    for depth in range(9, 1, -1):
        nested = (str(depth), "x", nested)
    streams = message("1", "x", nested)
    streams[f"{ATTACHED}1", INNER, "contents"] = b"a drawing"
    streams[f"{ATTACHED}1", "__substg1.0_3001001F"] = "Drawing".encode("utf-16-le")
    text = read(tmp_path, ole(streams)).text
    assert [line for line in text.splitlines() if line[:1] == "#"] == [f"# {depth}" for depth in range(1, 10)]
    assert text.splitlines()[2] == "Attachments: Drawing"
    assert text.count("unnamed") == 1


def record(kind, body):
    return struct.pack("<HH", kind, len(body)) + body


def workbook(cells, merged=(), about=b"", raised=False, names=b""):
    """Cells (row, column, text or number or (number, format)) as a workbook of Excel 97 with one sheet."""

    def begin(kind):
        return record(0x809, struct.pack("<HHHHII", 0x600, kind, 0, 1997, 0, 6))

    sheet = begin(0x10)
    for row, column, value in cells:
        if isinstance(value, str):
            text = struct.pack("<HHHHB", row, column, 0, len(value), 1) + value.encode("utf-16-le")
            sheet += record(0x204, text)
        else:
            number, form = value if isinstance(value, tuple) else (value, 0)
            sheet += record(0x203, struct.pack("<HHHd", row, column, form, number))
    sheet += about + record(
        0xE5, struct.pack("<H", len(merged)) + b"".join(struct.pack("<HHHH", *each) for each in merged)
    )
    font, last = (
        record(0x31, struct.pack("<HHHHHBBBBBB", 200, 0, 0x7FFF, 400, side, 0, 0, 0, 0, 1, 0) + b"A")
        for side in (0, int(raised))
    )
    forms = b"".join(record(0xE0, struct.pack("<HHH", 0, form, 1) + bytes(14)) for form in (0, 9, 14))

    def head(start):
        name = record(0x85, struct.pack("<IBBBB", start, 0, 0, 2, 0) + b"Q1")
        return begin(5) + font * 4 + last + forms + name + names + record(0x0A, b"")

    return ole({("Workbook",): head(len(head(0))) + sheet + record(0x0A, b"")})


def test_old_sheets(tmp_path):
    pytest.importorskip("xlrd")
    cells = [(0, 1, "Ship"), (0, 2, "Crew"), (1, 1, "Petrel"), (1, 2, (0.25, 1)), (2, 2, 7.5), (2, 3, (7976.0, 2))]
    document = read(tmp_path, workbook(cells, merged=[(1, 2, 1, 1)]))
    table = "| Ship | Crew |  |\n| --- | --- | --- |\n| Petrel | 25% |  |\n| Petrel | 7.5 | 1921-11-01 |\n"
    assert document.text == f"## Q1\n\n{table}"
    assert document.place(20).heading == "Q1"
    with pytest.raises(OctavoError, match=r"^x is damaged: download or save it again\.$"):
        read(tmp_path, ole({("Workbook",): b"no"}))


def test_hidden_rows_and_columns_of_old_sheets_are_left_out_and_counted(tmp_path):
    pytest.importorskip("xlrd")
    cells = [(row, column, f"{'abc'[column]}{row}") for row in (0, 1, 2, 5) for column in range(3)]
    hidden_row = record(0x208, struct.pack("<HHHHHHHH", 1, 0, 3, 255, 0, 0, 0x120, 15))
    hidden_column = record(0x7D, struct.pack("<HHHHHH", 1, 1, 2304, 15, 1, 0))
    (tmp_path / "a.xls").write_bytes(workbook(cells, about=hidden_row + hidden_column))
    document = extract_document(tmp_path / "a.xls")
    assert document.text == "## Q1\n\n| a0 | c0 |\n| --- | --- |\n| a2 | c2 |\n| a5 | c5 |\n"
    assert document.notices == ("a.xls has 1 hidden column and 1 hidden row: octavo leaves them out.",)


def test_powers_in_cells_of_old_sheets_are_marked(tmp_path):
    """The fifth font, which is number 5, is above the line: there is no number 4."""
    pytest.importorskip("xlrd")
    text = "10" + "6" + " m"
    runs = struct.pack("<HHHHH", 2, 2, 5, 3, 0)
    cell = struct.pack("<HHHHB", 0, 0, 0, len(text), 0) + text.encode() + runs
    (tmp_path / "a.xls").write_bytes(workbook([(0, 1, "b")], about=record(0xD6, cell), raised=True))
    assert extract_document(tmp_path / "a.xls").text == "## Q1\n\n| 10^6 m | b |\n| --- | --- |\n"


def test_remarks_on_cells_of_old_sheets_are_read(tmp_path):
    pytest.importorskip("xlrd")
    note = record(0x1C, struct.pack("<HHHHHB", 1, 0, 0, 7, 3, 0) + b"Ada\0")
    about = drawn(0x19, 7, "Sold in\nMay") + note
    (tmp_path / "a.xls").write_bytes(workbook([(0, 0, "Ship"), (1, 0, "Petrel")], about=about))
    table = "## Q1\n\n| Ship |\n| --- |\n| Petrel |\n"
    assert extract_document(tmp_path / "a.xls").text == f"{table}\n[Remark on A2: Sold in May]\n"


def formula(column, result, code, flags=0):
    """A formula of the second row: the bytes of its result, and its code."""
    head = struct.pack("<HHH8sHIH", 1, column, 0, result, flags, 0, len(code))
    return record(0x06, head + code)


EMPTY, SUM = b"\3\0\0\0\0\0\xff\xff", struct.pack("<BHHHHBBH", 0x25, 0, 0, 0xC000, 0xC001, 0x22, 1, 4)
ONE_MORE = struct.pack("<BHHBHB", 0x24, 0, 0xC000, 0x1E, 1, 3)


@pytest.mark.parametrize(
    ("formulas", "shown"),
    [
        ([(EMPTY, 0), (EMPTY, 0)], ["=SUM(A1:B1)", "=A1+1"]),  # as xlwt writes them
        ([(bytes(8), 3), (bytes(8), 3)], ["=SUM(A1:B1)", "=A1+1"]),  # as WriteExcel writes them
        ([(EMPTY, 2), (struct.pack("<d", 5), 2)], ["=SUM(A1:B1)", "5"]),
        ([(EMPTY, 0), (struct.pack("<d", 5), 0)], ["", "5"]),  # as IF(A1="","",7)
        ([(bytes(8), 0), (EMPTY, 1)], ["0", ""]),
    ],
)
def test_formulas_of_old_sheets_without_a_value_are_shown(tmp_path, formulas, shown):
    pytest.importorskip("xlrd")
    codes = zip(formulas, (SUM, ONE_MORE), strict=True)
    about = b"".join(formula(column, result, code, flags) for column, ((result, flags), code) in enumerate(codes))
    (tmp_path / "a.xls").write_bytes(workbook([(0, 0, 4.0), (0, 1, 3.0), (1, 2, "end")], about=about))
    assert extract_document(tmp_path / "a.xls").text.splitlines()[4] == f"| {' | '.join([*shown, 'end'])} |"


@pytest.mark.parametrize("code", [b"\1\0\0\0\0", b"\x23\7\0\0\0", b"\xff", b""])
def test_a_formula_of_an_old_sheet_that_cannot_be_read_does_no_harm(tmp_path, code):
    """One that it shares with other cells, one with a name, damaged ones."""
    pytest.importorskip("xlrd")
    (tmp_path / "a.xls").write_bytes(workbook([(0, 0, "Ship"), (1, 1, 3.0)], about=formula(0, EMPTY, code)))
    assert extract_document(tmp_path / "a.xls").text == "## Q1\n\n| Ship |  |\n| --- | --- |\n|  | 3 |\n"


@pytest.mark.parametrize(
    ("number", "form", "shown"),
    [
        (20260609, 2, "#VALUE!"),
        (-1e9, 2, "#VALUE!"),
        (float("inf"), 1, "#NUM!"),
        (float("inf"), 2, "#VALUE!"),
        (float("nan"), 2, "#VALUE!"),
        (float("nan"), 0, "#NUM!"),
        (1e300, 1, f"1{'0' * 302}%"),
    ],
)
def test_a_number_that_its_format_cannot_show_leaves_the_other_cells_of_an_old_sheet(tmp_path, number, form, shown):
    pytest.importorskip("xlrd")
    (tmp_path / "a.xls").write_bytes(workbook([(0, 0, "Ship"), (0, 1, (number, form)), (0, 2, 3.0)]))
    assert extract_document(tmp_path / "a.xls").text.splitlines()[2] == f"| Ship | {shown} | 3 |"


def drawn(kind, number, text, *, encoding="latin-1", most=8000):
    """The records of a drawn object of a kind, with a text in pieces."""
    made = record(0x5D, struct.pack("<HHHHH", 0x15, 0x12, kind, number, 0) + bytes(12) + bytes(4))
    made += record(0x1B6, struct.pack("<HH6xHHH", 0x212, 0, len(text), 16 if text else 0, 0) + bytes(4))
    pieces = [text[start : start + most] for start in range(0, len(text), most)]
    flag = b"\0" if encoding == "latin-1" else b"\1"
    made += b"".join(record(0x3C, flag + piece.encode(encoding)) for piece in pieces)
    return made + (record(0x3C, struct.pack("<HHIHHI", 0, 0, 0, len(text), 0, 0)) if text else b"")


@pytest.mark.parametrize(
    ("boxes", "lines"),
    [
        ([drawn(6, 1, "Sold in May.")], ["Sold in May."]),
        ([drawn(2, 1, "Sold\n\nin  May.\n")], ["Sold", "in May."]),
        ([drawn(6, 1, "\u041c\u0430\u044f\u043a", encoding="utf-16-le")], ["\u041c\u0430\u044f\u043a"]),
        ([drawn(14, 1, "Sold in May.", most=5), drawn(11, 2, "Paid")], ["Sold in May.", "Paid"]),
        ([drawn(6, 1, ""), drawn(7, 2, "Print")], ["Print"]),
    ],
)
def test_text_boxes_of_old_sheets_are_read(tmp_path, boxes, lines):
    pytest.importorskip("xlrd")
    (tmp_path / "a.xls").write_bytes(workbook([(0, 0, "Ship")], about=b"".join(boxes)))
    document = extract_document(tmp_path / "a.xls")
    assert document.text == "## Q1\n\n| Ship |\n| --- |\n" + "".join(f"\n{line}\n" for line in lines)
    assert document.notices == ()


def shape(visibility):
    """The record of a drawing: a shape with two properties, one of which says whether it is hidden."""
    properties = struct.pack("<HIHI", 0x80, 7, 0x3BF, visibility)
    inner = struct.pack("<HHIII", 0xA2, 0xF00A, 8, 1025, 0xA00) + struct.pack("<HHI", 0x23, 0xF00B, 12) + properties
    return record(0xEC, struct.pack("<HHI", 0xF, 0xF004, len(inner)) + inner)


def test_hidden_boxes_of_old_sheets_are_left_out_and_counted(tmp_path):
    pytest.importorskip("xlrd")
    place_of_text = record(0xEC, struct.pack("<HHI", 0, 0xF00D, 0))  # between an object and its text
    text = struct.pack("<HH", 0x1B6, 20)
    gone = drawn(6, 1, "gone").replace(text, place_of_text + text)
    about = shape(0xA0002) + gone + shape(0xA0000) + drawn(6, 2, "shown") + shape(2) + drawn(6, 3, "too")
    (tmp_path / "a.xls").write_bytes(workbook([(0, 0, "Ship")], about=about + shape(0x20002) + drawn(6, 4, "")))
    document = extract_document(tmp_path / "a.xls")
    assert document.text == "## Q1\n\n| Ship |\n| --- |\n\nshown\n\ntoo\n"
    assert document.notices == ("a.xls has 1 hidden shape: octavo leaves it out.",)
    assert place_of_text in gone


def test_pictures_and_charts_of_old_sheets_are_told(tmp_path):
    pytest.importorskip("xlrd")
    axis = record(0x809, struct.pack("<HHHHII", 0x600, 0x20, 0, 1997, 0, 6)) + record(0x0A, b"")
    about = drawn(8, 1, "") + drawn(5, 2, "") + axis + drawn(8, 3, "") + drawn(6, 4, "Sold")
    (tmp_path / "a.xls").write_bytes(workbook([(0, 0, "Ship")], about=about))
    document = extract_document(tmp_path / "a.xls")
    assert document.text.endswith("\nSold\n")
    assert document.notices == ("a.xls has 1 chart and 2 pictures: octavo leaves them out.",)


@pytest.mark.parametrize("stream", ["Workbook", "WORKBOOK", "workbook", "Book", "BOOK"])
def test_an_old_workbook_is_known_by_its_stream_in_any_case(tmp_path, stream):
    pytest.importorskip("xlrd")
    content = workbook([(0, 0, "Ship")]).replace(
        "Workbook".encode("utf-16-le"), stream.encode("utf-16-le").ljust(16, b"\0")
    )
    content = content.replace(struct.pack("<HB", 18, 2), struct.pack("<HB", 2 * len(stream) + 2, 2))
    assert read(tmp_path, content).text == "## Q1\n\n| Ship |\n| --- |\n"


def test_a_name_with_a_wrong_formula_does_no_harm(tmp_path):
    """A name whose formula has a token that only cells may have: Excel opens such a workbook."""
    pytest.importorskip("xlrd")
    formula = struct.pack("<BHHHH", 0x2D, 0, 1, 0, 1)
    name = record(0x18, struct.pack("<HBBHHHBBBB", 0, 0, 1, len(formula), 0, 0, 0, 0, 0, 0) + b"\0A" + formula)
    content = workbook([(0, 0, "Ship")], names=name)
    assert read(tmp_path, content).text == "## Q1\n\n| Ship |\n| --- |\n"


def program(folder, name, script):
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_old_word_files_need_a_program(tmp_path, monkeypatch):
    content = ole({("WordDocument",): b"text"})
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(OctavoError, match=r"^x is an old Word file: install antiword or LibreOffice, or save it as"):
        read(tmp_path, content)
    program(tmp_path, "antiword", 'echo "The rent is 40 crowns."')
    assert read(tmp_path, content).text == "The rent is 40 crowns.\n"
    program(tmp_path, "antiword", "exit 1")
    with pytest.raises(OctavoError, match=r"^x cannot be read by antiword: save it as DOCX or PDF\.$"):
        read(tmp_path, content)


def slides():
    pptx = pytest.importorskip("pptx")
    show, out = pptx.Presentation(), io.BytesIO()
    show.slides.add_slide(show.slide_layouts[5]).shapes.title.text = "Rent"
    show.save(out)
    return out.getvalue()


@pytest.mark.parametrize(
    ("stream", "made", "text"),
    [
        ("WordDocument", "document.docx", "# The Lighthouse\n"),
        ("PowerPoint Document", "document.pptx", "## Slide 1: Rent\n"),
    ],
)
def test_old_files_are_read_by_libreoffice(tmp_path, monkeypatch, stream, made, text):
    content = ole({(stream,): b"text"})
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (tmp_path / "made").write_bytes(slides() if made.endswith("pptx") else word_file())
    program(tmp_path, "soffice", f'cp {tmp_path}/made "$6/{made}"')  # $6 is the folder
    assert read(tmp_path, content).text.startswith(text)
    program(tmp_path, "soffice", "exit 0")
    kind = "PPTX" if made.endswith("pptx") else "DOCX"
    with pytest.raises(OctavoError, match=rf"^x cannot be read by LibreOffice: save it as {kind} or PDF\.$"):
        read(tmp_path, content)


def test_old_slides_need_libreoffice(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        OctavoError, match=r"^x is an old PowerPoint file: install LibreOffice, or save it as PPTX or PDF"
    ):
        read(tmp_path, ole({("PowerPoint Document",): b"text"}))
