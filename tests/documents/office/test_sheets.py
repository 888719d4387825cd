"""Small files that unfold: sheets with far cells, merged ones and numbers of rows that nobody has."""

import io
import random
import re

import pytest
from helpers.document_files import zipped

from octavo.documents import archive
from octavo.documents.extract import extract_document
from octavo.documents.left_out import LeftOut
from octavo.documents.office import opendocument, sheets
from octavo.errors import OctavoError

openpyxl = pytest.importorskip("openpyxl")


def read(tmp_path, content):
    (tmp_path / "x").write_bytes(content)
    return extract_document(tmp_path / "x").text


def book(rows, merged=""):
    """A workbook of cells: {row: {column: text}}, with the XML of rows as a hostile program writes it."""
    made, out = openpyxl.Workbook(), io.BytesIO()
    made.active.title = "A"
    made.save(out)
    written = "".join(
        f'<row r="{row}">'
        + "".join(f'<c r="{column}{row}" t="inlineStr"><is><t>{text}</t></is></c>' for column, text in cells.items())
        + "</row>"
        for row, cells in rows.items()
    )
    with archive.zipfile.ZipFile(out) as opened:
        files = {name: opened.read(name) for name in opened.namelist()}
    sheet = files["xl/worksheets/sheet1.xml"].decode()
    sheet = re.sub(r"<sheetData\s*/>|<sheetData>.*</sheetData>", f"<sheetData>{written}</sheetData>{merged}", sheet)
    return zipped({**files, "xl/worksheets/sheet1.xml": sheet})


def saved(made):
    out = io.BytesIO()
    made.save(out)
    return out.getvalue()


def test_hidden_parts_are_left_out_and_counted(tmp_path):
    made = openpyxl.Workbook()
    made.active.title = "A"
    for number in range(4):
        made.active.append([f"a{number}", f"b{number}", f"c{number}", f"d{number}"])
    made.active.row_dimensions[2].hidden = made.active.column_dimensions["B"].hidden = True
    made.active.merge_cells("C3:C4")
    made.active.row_dimensions[9].hidden = True  # without text: nothing is lost
    made.create_sheet("Gone").append(["gone"])
    made["Gone"].sheet_state = "veryHidden"
    (tmp_path / "a.xlsx").write_bytes(saved(made))
    document = extract_document(tmp_path / "a.xlsx")
    rows = "| a0 | c0 | d0 |\n| --- | --- | --- |\n| a2 | c2 | d2 |\n| a3 | c2 | d3 |\n"
    assert document.text == f"## A\n\n{rows}"
    assert document.notices == ("a.xlsx has 1 hidden column, 1 hidden row and 1 hidden sheet: octavo leaves them out.",)


def test_a_formula_with_an_empty_text_shows_nothing_and_one_without_a_value_itself(tmp_path):
    values = (("str", 'IF(1,"","x")', "<v></v>"), ("n", "2*3", ""), ("str", "B2", "<v>z</v>"))
    cells = "".join(
        f'<c r="{"ABC"[i]}1" t="{kind}"><f>{of}</f>{value}</c>' for i, (kind, of, value) in enumerate(values)
    )
    with archive.zipfile.ZipFile(io.BytesIO(book({1: {"A": "a"}}))) as opened:
        files = {name: opened.read(name) for name in opened.namelist()}
    sheet = re.sub(rb'<row r="1">.*</row>', f'<row r="1">{cells}</row>'.encode(), files["xl/worksheets/sheet1.xml"])
    text = read(tmp_path, zipped({**files, "xl/worksheets/sheet1.xml": sheet}))
    assert text == "## A\n\n| =2*3 | z |\n| --- | --- |\n"


def cells_of(tmp_path, cells, more="", calculation=""):
    """Return the cells of one row, given as XML, of a workbook with a mark of when it is calculated."""
    with archive.zipfile.ZipFile(io.BytesIO(book({1: {"A": "a"}}))) as opened:
        files = {name: opened.read(name) for name in opened.namelist()}
    sheet = files["xl/worksheets/sheet1.xml"].decode()
    sheet = re.sub(r"<sheetData>.*</sheetData>", lambda _: f"<sheetData>{cells}</sheetData>{more}", sheet)
    workbook = re.sub(r"<calcPr[^>]*/>", calculation, files["xl/workbook.xml"].decode())
    text = read(tmp_path, zipped({**files, "xl/worksheets/sheet1.xml": sheet, "xl/workbook.xml": workbook}))
    return text.splitlines()[2].strip("| ").split(" | ")


ON_LOAD = '<calcPr calcId="124519" fullCalcOnLoad="1"/>'


@pytest.mark.parametrize(
    ("calculation", "more", "is_shown"),
    [
        (ON_LOAD, "", True),
        (ON_LOAD.replace('"1"', '"true"'), "", True),
        ("", '<sheetCalcPr fullCalcOnLoad="1"/>', True),
        ('<calcPr calcId="191029"/>', "", False),
        ("", '<sheetCalcPr fullCalcOnLoad="0"/>', False),
    ],
)
def test_a_formula_that_awaits_its_calculation_is_shown_in_place_of_a_zero(tmp_path, calculation, more, is_shown):
    """Programs that do not calculate write 0. Another value, a text and a zero without a formula are true."""
    cells = (
        "<row>"
        + "".join(
            f"<c{kind}>{f'<f{array}>{of}</f>' if of else ''}{value}</c>"
            for kind, array, of, value in (
                ("", "", "SUM(B2:B9)", "<v>0</v>"),
                ("", "", "_xlfn._xlws.SORT(B2)-1", "<v>0.0</v>"),
                ("", "", "B2-2", "<v>-3</v>"),
                ("", "", "", "<v>0</v>"),
                (' t="str"', "", "B1", "<v></v>"),
                (' t="b"', "", "B2=1", "<v>0</v>"),
                (' t="e"', "", "1/0", "<v>#DIV/0!</v>"),
                (' t="str"', "", "B3", "<v>north</v>"),
            )
        )
        + "</row>"
    )
    shown = cells_of(tmp_path, cells, more, calculation)
    assert shown == [
        *(("=SUM(B2:B9)", "=SORT(B2)-1") if is_shown else ("0", "0")),
        "-3",
        "0",
        "",
        "FALSE",
        "#DIV/0!",
        "north",
    ]


def test_a_workbook_of_xlsxwriter_shows_its_formulas(tmp_path):
    made = pytest.importorskip("xlsxwriter").Workbook(str(tmp_path / "x"))
    sheet = made.add_worksheet("A")
    day = made.add_format({"num_format": "yyyy-mm-dd"})
    sheet.write_row(0, 0, ["Boat", 0, 12])
    sheet.write_formula(1, 0, "=SUM(B1:C1)")
    sheet.write_formula(1, 1, "=TODAY()", day)
    sheet.write_formula(1, 2, "=B1+C1", None, 12)
    sheet.write_array_formula(2, 0, 2, 1, "{=B1:C1*2}")
    made.close()
    rows = ["| Boat | 0 | 12 |", "| --- | --- | --- |", "| =SUM(B1:C1) | =TODAY() | 12 |", "| =B1:C1*2 | =B1:C1*2 |  |"]
    assert extract_document(tmp_path / "x").text.splitlines()[2:] == rows


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        ("<c><v>NaN</v></c>", "NaN"),
        ("<c><v>1E+999</v></c>", "#NUM!"),
        ('<c t="s"><v>99</v></c>', "#VALUE!"),
        ('<c t="d"><v>2026-06-31</v></c>', "2026-06-31"),
        ('<c t="b"><v>true</v></c>', "true"),
        ('<c><f t="shared" si="0">SUM("</f><v>7</v></c>', "7"),
        ('<c><f t="dataTable" ref="A1:A2" r1="B1"/></c>', ""),
        (f"<c><v>{'9' * 400}</v></c>", "#NUM!"),
    ],
)
def test_a_value_that_cannot_be_read_leaves_the_others(tmp_path, cell, text):
    assert cells_of(tmp_path, f"<row>{cell}<c><v>5</v></c></row>")[-2:] == [*filter(None, [text]), "5"][-2:]


@pytest.mark.parametrize(
    ("runs", "text"),
    [
        ([("10", None), ("6", "superscript"), (" m", None)], "10^6 m"),
        ([("2", None), ("n+1", "superscript")], "2^{n+1}"),
        ([("log", None), ("2", "subscript"), ("8", None)], "log_28"),
        ([("H", None), ("2", "subscript"), ("O", None)], "H2O"),
        ([("the 19", None), ("th", "superscript"), (" of May", None)], "the 19th of May"),
        ([("плотность 10", None), ("-3", "superscript")], "плотность 10^-3"),
    ],
)
def test_powers_in_cells_are_marked(tmp_path, runs, text):
    from openpyxl.cell.rich_text import CellRichText, TextBlock
    from openpyxl.cell.text import InlineFont

    made = openpyxl.Workbook()
    made.active.title = "A"
    made.active.append([CellRichText([TextBlock(InlineFont(vertAlign=place), run) for run, place in runs]), "b"])
    assert read(tmp_path, saved(made)) == f"## A\n\n| {text} | b |\n| --- | --- |\n"


def test_a_far_cell_takes_no_more_than_a_near_one(tmp_path):
    rows = {number: {"A": f"a{number}", "XFD": f"z{number}"} for number in range(1, 400)}
    text = read(tmp_path, book(rows))
    assert text.startswith("## A\n\n| a1 | z1 |\n| --- | --- |\n| a2 | z2 |\n")
    assert len(text) < 20_000


def test_a_number_of_a_row_costs_nothing(tmp_path):
    assert read(tmp_path, book({1: {"A": "a"}, 10**15: {"A": "b"}})) == "## A\n\n| a |\n| --- |\n| b |\n"


def test_empty_columns_between_others_stay(tmp_path):
    assert (
        read(tmp_path, book({1: {"B": "a", "D": "b"}, 2: {"C": ""}})) == "## A\n\n| a |  | b |\n| --- | --- | --- |\n"
    )


@pytest.mark.parametrize("shape", ["full", "diagonal", "far"])
def test_a_sheet_of_too_many_cells_is_refused(tmp_path, monkeypatch, shape):
    monkeypatch.setattr(sheets, "_MOST_CELLS", 1000)
    monkeypatch.setattr(sheets, "_MOST_EMPTY", 500)
    names = [openpyxl.utils.get_column_letter(number) for number in range(1, 51)]
    if shape == "full":
        rows = {row: dict.fromkeys(names, "x") for row in range(1, 30)}
    else:
        rows = {row: {names[row - 1]: "x"} for row in range(1, 51)}
    if shape == "far":  # in few columns: the empty ones go
        assert len(read(tmp_path, book({row: {"A": "x", "XFD": "y"} for row in range(1, 51)}))) < 1000
        return
    with pytest.raises(OctavoError, match=r"^The sheet A has more than 1,000 cells, .*: save the cells that matter"):
        read(tmp_path, book(rows))


def test_merged_cells_are_repeated_as_far_as_there_is_room(tmp_path, monkeypatch):
    rows = {row: {"A": "x", "B": "y", "C": ""} for row in range(1, 5)}
    merged = '<mergeCells><mergeCell ref="B1:XFD1048576"/></mergeCells>'
    assert read(tmp_path, book(rows, merged)).endswith("\n| x | y | y |\n" * 1)
    monkeypatch.setattr(sheets, "_MOST_EMPTY", 5)
    assert read(tmp_path, book(rows, merged.replace("/><", "/>" + '<mergeCell ref="A1:B2"/>' * 1000 + "<")))


def test_old_sheets_have_the_same_limit(monkeypatch):
    monkeypatch.setattr(sheets, "_MOST_CELLS", 10)
    monkeypatch.setattr(sheets, "_MOST_EMPTY", 5)
    with pytest.raises(OctavoError, match="The sheet old has more than 10 cells"):
        sheets.shown_cells("old", {row: {row: "x"} for row in range(6)}, [], [], [], LeftOut())


SPACES = 'xmlns:o="o" xmlns:text="t" xmlns:table="b"'


@pytest.mark.parametrize(
    ("cell", "row", "n_rows"), [("400", "3", 1), ("40", "40", 1), ("4", "4", 100), ("1", "20000", 1)]
)
def test_copies_of_copies_are_counted_together(tmp_path, monkeypatch, cell, row, n_rows):
    one = (
        f'<table:table-row table:number-rows-repeated="{row}"><table:table-cell table:number-columns-repeated="{cell}">'
        "<text:p>x</text:p></table:table-cell></table:table-row>"
    )
    body = (
        f"<o:c {SPACES}><o:body><o:spreadsheet><table:table>{one * n_rows}</table:table></o:spreadsheet></o:body></o:c>"
    )
    assert read(tmp_path, zipped({"content.xml": body})).count("x") >= int(cell) * int(row) * n_rows
    monkeypatch.setattr(opendocument, "_MOST_ADDED", 40_000)
    with pytest.raises(OctavoError, match=r"^A table repeats a cell or row [\d,]+ times: delete the copies"):
        read(tmp_path, zipped({"content.xml": body}))


def test_blanks_are_no_longer_than_a_line(tmp_path):
    body = f'<o:c {SPACES}><o:body><text:p>a<text:s text:c="99999999"/>b</text:p></o:body></o:c>'
    assert len(read(tmp_path, zipped({"content.xml": body}))) < 200


@pytest.mark.parametrize("kind", ["word/document.xml", "content.xml", "OEBPS/a.xhtml"])
def test_text_with_marks_has_a_limit(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(archive, "_MOST_XML", 1 << 20)
    text, noise = "<a>b</a>" * (1 << 18), random.Random(1).randbytes(1 << 15)
    with pytest.raises(OctavoError, match=r"^x has 2 MiB of text with its marks, and octavo reads at most 1"):
        archive.Archive(zipped({kind: text, "noise": noise}), "x")
    archive.Archive(zipped({"xl/worksheets/sheet1.xml": text, "noise": noise}), "x")  # is read in pieces


def test_objects_on_sheets_are_told_once(tmp_path):
    one = '<oleObject progId="Package" shapeId="1025"/>'
    objects = f'<oleObjects>{one}{one}<oleObject progId="Word" shapeId="1026"/></oleObjects>'
    (tmp_path / "a.xlsx").write_bytes(book({1: {"A": "a"}}, objects))
    assert extract_document(tmp_path / "a.xlsx").notices == ("a.xlsx has 2 embedded objects: octavo leaves them out.",)


def test_lines_on_printed_pages_are_told_unless_they_are_numbers(tmp_path):
    made = openpyxl.Workbook()
    sheet = made.active
    sheet["A1"] = "a"
    sheet.oddHeader.left.text, sheet.oddHeader.left.font = "Harbour Board", "Arial,Bold"
    sheet.oddFooter.center.text = "&P / &N"
    (tmp_path / "a.xlsx").write_bytes(saved(made))
    assert extract_document(tmp_path / "a.xlsx").notices == ("a.xlsx has 1 printed head: octavo leaves it out.",)
