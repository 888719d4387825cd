"""Test what becomes of OpenDocument and FictionBook."""

import pytest
from helpers.document_files import CELLS, FB2, ODT, zipped

from octavo.documents.extract import extract_document, may_be_document
from octavo.errors import OctavoError


def read(tmp_path, content, name="x"):
    path = tmp_path / name
    path.write_bytes(content)
    assert may_be_document(path)
    return extract_document(path)


def test_opendocument(tmp_path):
    text = read(tmp_path, zipped({"content.xml": ODT.format(CELLS)})).text
    assert text.startswith("## Rent\n\nA b[1] (Six.)\n\n- one\n\n")
    assert text.endswith("| North | 7 |\n| --- | --- |\n| North | 8 |\n")
    assert "Q1" not in text  # names of tables are of their program, those of sheets of their author


def test_a_row_that_is_repeated_without_end_is_refused(tmp_path):
    many = CELLS.replace("<table:table-cell/>", "<table:table-cell><text:p>x</text:p></table:table-cell>")
    with pytest.raises(OctavoError, match=r"^A table repeats a cell or row 1,000,000 times: delete the copies"):
        read(tmp_path, zipped({"content.xml": ODT.format(many)}))


def test_sheets_and_slides_of_opendocument(tmp_path):
    body = '<o:c xmlns:o="o" xmlns:text="t" xmlns:table="b"><o:body>{}</o:body></o:c>'
    sheets = body.format(f"<o:spreadsheet>{CELLS}</o:spreadsheet>")
    assert read(tmp_path, zipped({"content.xml": sheets})).text.startswith("## Q1\n\n| North | 7 |")
    item = "<text:list><text:list-item><text:p>a</text:p></text:list-item></text:list>"
    row = f"<table:table-row>{f'<table:table-cell>{item}</table:table-cell>' * 2}</table:table-row>"
    slides = body.format(
        f'<o:page o:name="One"><text:p text:style-name="Title">T</text:p><table:table>{row}</table:table></o:page>'
    )
    text = read(tmp_path, zipped({"content.xml": slides})).text
    assert text == "## Slide 1: One\n\n# T\n\n| a | a |\n| --- | --- |\n"


def test_fiction_books(tmp_path):
    document = read(tmp_path, FB2.encode("cp1251"))
    assert document.text == "# Маяк\n\nА. Автор\n\n## Один\n\nТуман[1].\n"  # noqa: RUF001
    with pytest.raises(OctavoError, match=r"^x is damaged"):
        read(tmp_path, FB2.encode("cp1251")[:-9])


def test_fiction_books_may_be_zipped(tmp_path):
    assert read(tmp_path, zipped({"book.FB2": FB2.encode("cp1251")})).text.startswith("# Маяк\n\nА. Автор\n")  # noqa: RUF001
    (tmp_path / "x").write_bytes(zipped({"book.fb2": FB2.encode("cp1251"), "other": "a"}))
    assert not may_be_document(tmp_path / "x")


SPACES = 'xmlns:o="o" xmlns:text="t" xmlns:table="b" xmlns:style="s" xmlns:draw="d" xmlns:l="l" xmlns:p="p"'


def content(body, styles=""):
    return f"<o:c {SPACES}><o:styles>{styles}</o:styles><o:body>{body}</o:body></o:c>"


def a_list(items, style=""):
    inner = "".join(
        f"<text:list-item{start}><text:p>{item}</text:p>{more}</text:list-item>" for item, start, more in items
    )
    return f"<text:list{style}>{inner}</text:list>"


LEVELS = """<text:list-style style:name="L"><text:list-level-style-number text:level="1" style:num-format="a"/>
<text:list-level-style-bullet text:level="2"/><text:list-level-style-number text:level="3" style:num-format=""/>
</text:list-style>"""


def test_lists_of_opendocument_have_their_numbers(tmp_path):
    inner = a_list([("in one", "", a_list([("deep", "", "")]))])
    items = [("one", "", inner), ("five", ' text:start-value="5"', ""), ("six", "", "")]
    files = {"content.xml": content(a_list(items, ' text:style-name="L"'), LEVELS)}
    text = "a. one\n   - in one\n     - deep\ne. five\nf. six\n"
    assert read(tmp_path, zipped(files)).text == text
    files = {"content.xml": content(a_list(items, ' text:style-name="L"')), "styles.xml": content("", LEVELS)}
    assert read(tmp_path, zipped(files)).text == text


def test_a_title_of_opendocument_may_have_a_style_of_its_own(tmp_path):
    styles = '<style:style style:name="P1" style:family="paragraph" style:parent-style-name="Title"/>'
    body = '<text:p text:style-name="P1">Log</text:p><text:p>Text</text:p>'
    assert read(tmp_path, zipped({"content.xml": content(body, styles)})).text == "# Log\n\nText\n"


def test_charts_and_formulas_of_opendocument_are_read_once(tmp_path):
    cells = "".join(f"<table:table-cell><text:p>{text}</text:p></table:table-cell>" for text in ("East", "4"))
    chart = f"<c><table:table><table:table-row>{cells}</table:table-row></table:table></c>"
    math = '<math xmlns="http://www.w3.org/1998/Math/MathML"><msup><mi>x</mi><mn>2</mn></msup></math>'
    objects = [
        f'<draw:frame><draw:object l:href="./{name}"/></draw:frame>' for name in ("Chart", "Math", "Chart", "no")
    ]
    files = {"Chart/content.xml": content(chart + objects[0]), "Math/content.xml": math}
    files["content.xml"] = content("".join(objects))
    assert read(tmp_path, zipped(files)).text == "| East | 4 |\n| --- | --- |\n\n$x^{2}$\n"


def test_slides_of_opendocument_have_their_titles_and_notes(tmp_path):
    frame = "<draw:frame{}><draw:text-box><text:p>{}</text:p></draw:text-box></draw:frame>"
    title, notes, other = (frame.format(*each) for each in ((' p:class="title"', "Rent"), ("", "Smile."), ("", "50")))
    body = f'<draw:page draw:name="page1">{frame.format("", "40")}{title}<p:notes>{notes}</p:notes></draw:page>'
    body += f'<draw:page draw:name="page2">{other}<p:notes>{frame.format("", "")}</p:notes></draw:page>'
    document = read(tmp_path, zipped({"content.xml": content(body)}))
    assert document.text == "## Slide 1: Rent\n\n40\n\nNotes:\n\nSmile.\n\n## Slide 2: page2\n\n50\n"
    assert document.place(document.text.index("50")).heading == "Slide 2: page2"


def test_cells_of_opendocument_stand_in_each_column_and_row_that_they_span(tmp_path):
    rows = [
        '<table:table-cell table:number-columns-spanned="2"><text:p>a</text:p></table:table-cell>'
        "<table:covered-table-cell/><table:table-cell><text:p>b</text:p></table:table-cell>",
        "".join(f"<table:table-cell><text:p>{text}</text:p></table:table-cell>" for text in "cde"),
    ]
    table = "".join(f"<table:table-row>{row}</table:table-row>" for row in rows)
    text = read(tmp_path, zipped({"content.xml": content(f"<table:table>{table}</table:table>")})).text
    assert text == "| a | a | b |\n| --- | --- | --- |\n| c | d | e |\n"


def test_elements_that_are_nested_without_end_are_refused(tmp_path):
    deep = f"{'<text:span>' * 3000}x{'</text:span>' * 3000}"
    book = f"<FictionBook><body>{'<section>' * 3000}x{'</section>' * 3000}</body></FictionBook>"
    for file in (zipped({"content.xml": content(deep)}), book.encode()):
        with pytest.raises(OctavoError, match=r"^The elements of x are nested too deeply: save its text in another"):
            read(tmp_path, file)


@pytest.mark.parametrize(
    "files",
    [{"content.xml": b"\x8b\x00\xff"}, {"content.xml": b"", "styles.xml": b"\x01"}, {"encrypted-package": b"\x8b\x00"}],
)
def test_an_encrypted_file_is_said_to_be_one(tmp_path, files):
    """LibreOffice encrypts each part, and since 24.8 the whole archive as one."""
    entry = '<m:file-entry m:full-path="x"><m:encryption-data m:checksum="x"/></m:file-entry>'
    manifest = f'<m:manifest xmlns:m="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0">{entry}</m:manifest>'
    (tmp_path / "a.odt").write_bytes(zipped({**files, "META-INF/manifest.xml": manifest}))
    with pytest.raises(OctavoError, match=r"^a\.odt is encrypted: save it without a password\.$"):
        extract_document(tmp_path / "a.odt")


def test_objects_and_pictures_in_a_text_are_told(tmp_path):
    frames = "<d:frame><d:object-ole/><d:image/></d:frame><d:frame><d:image/></d:frame>"
    text = f'<text:p>Rent<d:g xmlns:d="urn:d">{frames}</d:g></text:p>'
    (tmp_path / "a.odt").write_bytes(zipped({"content.xml": ODT.format(text)}))
    assert extract_document(tmp_path / "a.odt").notices == (
        "a.odt has 1 embedded object and 1 picture: octavo leaves them out.",
    )


def test_boxes_on_a_sheet_follow_its_table(tmp_path):
    box = "<draw:frame><draw:text-box><text:p>Sold in June.</text:p></draw:text-box></draw:frame>"
    cells = "".join(f"<table:table-cell><text:p>{text}</text:p></table:table-cell>" for text in ("Petrel", "41"))
    sheet = f"<table:shapes>{box}</table:shapes><table:table-row>{cells}</table:table-row>"
    sheet = f'<table:table table:name="Boats">{sheet}</table:table>'
    text = read(tmp_path, zipped({"content.xml": content(f"<o:spreadsheet>{sheet}</o:spreadsheet>")})).text
    assert text == "## Boats\n\n| Petrel | 41 |\n| --- | --- |\n\nSold in June.\n"


def sheet_of(*rows, columns="", styles=""):
    """Return a file with one sheet, of the cells of each row."""
    inner = "".join(row if row.startswith("<") else f"<table:table-row>{row}</table:table-row>" for row in rows)
    table = f'<table:table table:name="A">{columns}{inner}</table:table>'
    return zipped({"content.xml": content(f"<o:spreadsheet>{table}</o:spreadsheet>", styles)})


def cell(text="", about=""):
    paragraph = f"<text:p>{text}</text:p>" if text else ""
    return f" <table:table-cell {about}>{paragraph}</table:table-cell>"


@pytest.mark.parametrize(
    ("about", "shown"),
    [
        ('table:formula="of:=SUM([.B2:.B9])"', "=SUM(B2:B9)"),
        ('table:formula="of:=[$Rents.A1]+[.B1]" o:value-type="float"', "=$Rents.A1+B1"),
        ('table:formula="msoxl:=SUM(B2:B9)"', "=SUM(B2:B9)"),
        ('table:formula="ooow:sum&lt;B2:B9&gt;"', "=sum<B2:B9>"),
        ('table:formula="of:=IF([.B1];1;2)" o:value-type="date"', "=IF(B1;1;2)"),
        ('table:formula="of:=[.B1]" o:value-type="float" o:value="7"', "7"),
        ('table:formula="of:=[.B1]" o:value-type="currency" o:value="0"', "=B1"),
        ('o:value-type="float" o:value="0"', "0"),
        ('table:formula="of:=[.B1]" o:value-type="string" o:string-value=""', ""),
        ('o:value-type="float" o:value="1.2.3"', ""),
        ('o:value-type="time" o:time-value="PT1.2.3S"', ""),
    ],
)
def test_a_formula_of_opendocument_without_a_value_is_shown(tmp_path, about, shown):
    file = sheet_of(cell("Rent") + cell("", about) + cell("end"))
    assert read(tmp_path, file).text.splitlines()[2] == f"| Rent | {shown} | end |"
    file = sheet_of(cell("Rent") + cell("0", 'table:formula="of:=[.B1]" o:value-type="float" o:value="0"'))
    assert read(tmp_path, file).text.splitlines()[2] == "| Rent | 0 |"


def merged(text, across=1, down=1):
    return cell(text, f'table:number-columns-spanned="{across}" table:number-rows-spanned="{down}"')


COVERED = " <table:covered-table-cell/>"
GONE = 'table:visibility="collapse"'


def columns_of(*hidden, n_columns=4):
    return "".join(f"<table:table-column {GONE if number in hidden else ''}/>" for number in range(n_columns))


def hidden_row(cells):
    return f"<table:table-row {GONE}>{cells}</table:table-row>"


TITLE = merged("Rents", 3) + COVERED * 2
HEAD = merged("Rents", 3) + COVERED * 2 + cell("Sum")
LINE = "".join(map(cell, "abcd"))


@pytest.mark.parametrize(
    ("rows", "hidden", "shown", "left_out"),
    [
        ([HEAD, LINE], [1], ["Rents|Rents|Sum", "a|c|d"], "1 hidden column"),
        ([HEAD, LINE], [0], ["Rents|Rents|Sum", "b|c|d"], "1 hidden column"),
        ([TITLE, LINE], [0], ["Rents||", "b|c|d"], "1 hidden column"),
        ([HEAD, LINE], [0, 1, 2], ["Sum", "d"], "3 hidden columns"),
        ([merged("x", 1, 3) + cell("1"), hidden_row(COVERED + cell("2")), COVERED + cell("3"), cell("y") + cell("4")],
         [], ["x|1", "x|3", "y|4"], "1 hidden row"),
        ([hidden_row(merged("x", 1, 2) + cell("1")), COVERED + cell("2"), cell("y") + cell("3")],
         [], ["x|2", "y|3"], "1 hidden row"),
        ([merged("x", 1, 3) + cell("1"), COVERED, COVERED + cell("3"), cell("y") + cell("4")],
         [], ["x|1", "x|3", "y|4"], ""),
        ([merged("x", 2, 2) + COVERED + cell("1"), COVERED * 2 + cell("2")], [0], ["x|1", "x|2"], "1 hidden column"),
        ([hidden_row(cell("a") + merged("x", 1, 2)), hidden_row(COVERED * 2), LINE], [], ["a|b|c|d"], "1 hidden row"),
        ([cell("a") * 2 + merged("x", 1, 2), merged("b", 2) + COVERED * 2], [], ["a|a|x", "b|b|x"], ""),
        ([cell("a") + merged("x", 1, 2), cell("b") + COVERED, cell("c") + cell("d")], [], ["a|x", "b|x", "c|d"], ""),
        ([cell("a") + cell("", "table:number-columns-repeated='2'") + cell("d"), LINE], [1], ["a||d", "a|c|d"],
         "1 hidden column"),
    ],
)  # fmt: skip
def test_merged_cells_of_opendocument_stay_in_their_columns_beside_hidden_ones(tmp_path, rows, hidden, shown, left_out):
    (tmp_path / "a.ods").write_bytes(sheet_of(*rows, columns=columns_of(*hidden)))
    document = extract_document(tmp_path / "a.ods")
    lines = [line.strip("|").replace(" ", "") for line in document.text.splitlines() if line[:2] == "| "]
    assert [line for line in lines if "---" not in line] == shown
    assert document.notices == (
        (f"a.ods has {left_out}: octavo leaves {'it' if left_out[0] == '1' else 'them'} out.",) if left_out else ()
    )


@pytest.mark.parametrize("kind", ["xlsx", "xml"])
@pytest.mark.parametrize(("hidden", "shown"), [(0, ["Rents||", "b|c|d"]), (1, ["Rents||", "a|c|d"])])
def test_a_merged_title_is_read_beside_a_hidden_column_in_other_sheets(tmp_path, kind, hidden, shown):
    path = tmp_path / f"a.{kind}"
    if kind == "xlsx":
        made = pytest.importorskip("openpyxl").Workbook()
        made.active.append(["Rents"])
        made.active.append(list("abcd"))
        made.active.merge_cells("A1:C1")
        made.active.column_dimensions["AB"[hidden]].hidden = True
        made.save(path)
    else:
        cells = "".join(f'<Cell><Data ss:Type="String">{text}</Data></Cell>' for text in "abcd")
        path.write_text(
            '<?xml version="1.0"?><Workbook xmlns="urn:schemas-microsoft-com:office:spreadsheet" '
            'xmlns:ss="urn:schemas-microsoft-com:office:spreadsheet"><Worksheet ss:Name="A"><Table>'
            f'<Column ss:Index="{hidden + 1}" ss:Hidden="1"/><Row><Cell ss:MergeAcross="2"><Data ss:Type="String">Rents'
            f"</Data></Cell></Row><Row>{cells}</Row></Table></Worksheet></Workbook>"
        )
    lines = extract_document(path).text.splitlines()
    assert [line.strip("|").replace(" ", "") for line in (lines[2], lines[4])] == shown


def test_an_empty_column_of_a_table_in_a_text_stays_a_column(tmp_path):
    table = (
        f"<table:table>{columns_of(n_columns=2)}<table:table-row>{cell('Name')}{cell()}</table:table-row></table:table>"
    )
    assert read(tmp_path, zipped({"content.xml": ODT.format(table)})).text.endswith("\n| Name |\n| --- |\n")


@pytest.mark.parametrize("about", ['l:display="none"', 'draw:layer="off"'])
def test_hidden_frames_of_slides_are_left_out_and_counted(tmp_path, about):
    box = "<draw:text-box><text:p>{}</text:p></draw:text-box>"
    page = (
        f'<draw:page draw:name="One"><draw:frame p:class="title" {about}>{box.format("Gone")}</draw:frame>'
        f"<draw:custom-shape {about}><text:p>no</text:p></draw:custom-shape>"
        f'<draw:frame l:display="printer" draw:layer="on">{box.format("Shown")}</draw:frame></draw:page>'
    )
    styles = (
        '<draw:layer-set><draw:layer draw:name="off" draw:display="none"/><draw:layer draw:name="on"/></draw:layer-set>'
    )
    (tmp_path / "a.odp").write_bytes(zipped({"content.xml": content(page, styles)}))
    document = extract_document(tmp_path / "a.odp")
    assert document.text == "## Slide 1: One\n\nShown\n"
    assert document.notices == ("a.odp has 2 hidden shapes: octavo leaves them out.",)


def test_a_table_that_lays_out_a_page_of_text_repeats_nothing(tmp_path):
    inner = f"<table:table><table:table-row>{cell('a ' * 200)}{cell('b')}</table:table-row></table:table>"
    nested = f" <table:table-cell>{inner}</table:table-cell>"
    rows = merged("Harbour", 2) + COVERED + cell("Page"), nested + cell("c") + cell("d")
    table = "".join(f"<table:table-row>{row}</table:table-row>" for row in rows)
    text = read(tmp_path, zipped({"content.xml": ODT.format(f"<table:table>{table}</table:table>")})).text
    assert text.count("Harbour") == 1
    assert "| b |" in text
