"""Small files that unfold: sheets with far cells, merged ones and numbers of rows that nobody has."""

import io
import random
import re

import pytest
from helpers.document_files import zipped

from octavo.documents import archive
from octavo.documents.extract import extract_document
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
        sheets.text_of_sheet("old", {row: {row: "x"} for row in range(6)}, [])


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
