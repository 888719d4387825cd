"""Test documents of office programs that are one file of XML."""

import pytest

from octavo.documents.extract import extract_document, may_be_document
from octavo.documents.office.flat_xml import extract_evernote, extract_sheets_xml, extract_word_xml
from octavo.errors import OctavoError

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
PARAGRAPH = "<w:p>{}<w:r><w:t>{}</w:t></w:r></w:p>"
HEADING = PARAGRAPH.format('<w:pPr><w:pStyle w:val="Heading1"/></w:pPr>', "Harbour")
STYLES = '<w:styles{}><w:style w:type="paragraph" w:styleId="Heading1"><w:name w:val="heading 1"/></w:style></w:styles>'
CELLS = (
    f"<w:tbl><w:tr><w:tc>{PARAGRAPH.format('', 'Rent')}</w:tc><w:tc>{PARAGRAPH.format('', '40')}</w:tc></w:tr></w:tbl>"
)

WORD_2003 = f"""<?xml version="1.0"?><?mso-application progid="Word.Document"?>
<w:wordDocument xmlns:w="http://schemas.microsoft.com/office/word/2003/wordml" xmlns:wx="wx">{STYLES.format("")}
<w:body><wx:sect><wx:sub-section>{HEADING}{PARAGRAPH.format("", "The lamp burns.")}</wx:sub-section>{CELLS}</wx:sect
></w:body>
</w:wordDocument>"""
PART = '<pkg:part pkg:name="{}"><pkg:xmlData>{}</pkg:xmlData></pkg:part>'
BODY = (
    f'<w:document xmlns:w="{W}"><w:body>{HEADING}{PARAGRAPH.format("", "The lamp burns.")}{CELLS}</w:body></w:document>'
)
PACKAGE = '<?xml version="1.0"?><pkg:package xmlns:pkg="http://schemas.microsoft.com/office/2006/xmlPackage">'
PACKAGE += PART.format("/word/document.xml", BODY)
PACKAGE += PART.format("/word/styles.xml", STYLES.format(f' xmlns:w="{W}"')) + "</pkg:package>"


@pytest.mark.parametrize("content", [WORD_2003, PACKAGE])
def test_word_documents_of_one_file(content):
    document = extract_word_xml(content.encode(), "x.xml")
    assert document.text == "# Harbour\n\nThe lamp burns.\n\n| Rent | 40 |\n| --- | --- |\n"


NOTED = f"""<w:wordDocument xmlns:w="http://schemas.microsoft.com/office/word/2003/wordml" xmlns:wx="wx">
<w:body><wx:sect><w:p><w:pPr><w:listPr><w:ilvl w:val="0"/><wx:t wx:val="2."/></w:listPr></w:pPr>
<w:r><w:t>Oil</w:t></w:r>
<w:r><w:footnote>{PARAGRAPH.format("", "Paid.")}</w:footnote></w:r></w:p><w:sectPr><w:hdr w:type="odd">
{PARAGRAPH.format("", "Harbour Board")}</w:hdr><w:ftr w:type="first">{PARAGRAPH.format("", "Never")}</w:ftr>
</w:sectPr></wx:sect></w:body></w:wordDocument>"""


def test_notes_numbers_and_letterheads_of_word_2003():
    assert extract_word_xml(NOTED.encode(), "x.xml").text == "Harbour Board\n\n2. Oil[1]\n\n1. Paid.\n"


SHEETS = """<?xml version="1.0"?><Workbook xmlns="urn:schemas-microsoft-com:office:spreadsheet"
 xmlns:ss="urn:schemas-microsoft-com:office:spreadsheet"><Worksheet ss:Name="Catch"><Table>
<Row><Cell ss:MergeAcross="1"><Data ss:Type="String">Boat</Data></Cell
><Cell><Data ss:Type="String">Tonnes</Data></Cell></Row>
<Row ss:Index="3"><Cell><Data ss:Type="String">Petrel</Data></Cell
><Cell ss:Index="3"><Data ss:Type="Number">41</Data></Cell></Row>
<Row ss:Hidden="1"><Cell><Data ss:Type="Number">999</Data></Cell></Row></Table></Worksheet>
<Worksheet ss:Name="Old"><Table/><WorksheetOptions><Visible>SheetHidden</Visible></WorksheetOptions></Worksheet
></Workbook>"""


def test_sheets_of_one_file():
    document = extract_sheets_xml(SHEETS.encode(), "x.xml")
    assert document.text == "## Catch\n\n| Boat | Boat | Tonnes |\n| --- | --- | --- |\n| Petrel |  | 41 |\n"
    assert document.notices == ("x.xml has 1 hidden row and 1 hidden sheet: octavo leaves them out.",)


NOTES = """<?xml version="1.0"?><!DOCTYPE en-export SYSTEM "x"><en-export><note><title>Nets &amp; oars</title>
<tag>store</tag><content><![CDATA[<?xml version="1.0"?><!DOCTYPE en-note SYSTEM "x"><en-note><div>Buy nets.</div>
<div><en-todo checked="true"/>Oars</div></en-note>]]></content><resource><data>iVBORw0KGgo=</data></resource></note
></en-export>"""


VALUES = SHEETS.replace(
    "<Worksheet",
    """<Styles><Style ss:ID="s1"><NumberFormat ss:Format="Fixed"/></Style>
<Style ss:ID="s2"><NumberFormat ss:Format="Short Date"/></Style>
<Style ss:ID="s3"><NumberFormat ss:Format="0&quot; t&quot;"/>
</Style></Styles><Worksheet""",
    1,
)
VALUES = (
    VALUES[: VALUES.index("<Row>")]
    + """<Column ss:Index="3" ss:Span="1" ss:Hidden="1"/>
<Row><Cell ss:StyleID="s1"><Data ss:Type="Number">4.5</Data><Comment><Data>Low</Data></Comment></Cell>
<Cell ss:StyleID="s2"><Data ss:Type="DateTime">2026-06-09T00:00:00.000</Data></Cell>
<Cell><Data ss:Type="String">no</Data></Cell>
<Cell ss:Index="5" ss:StyleID="s3"><Data ss:Type="Number">7</Data></Cell><Cell><Data ss:Type="Boolean">1</Data></Cell>
<Cell ss:StyleID="s2"><Data ss:Type="DateTime">1899-12-31T09:30:00.000</Data></Cell></Row>
</Table></Worksheet></Workbook>"""
)


def test_values_of_sheets_of_one_file_have_their_formats():
    document = extract_sheets_xml(VALUES.encode(), "x.xml")
    head, _, *others = document.text.splitlines()[2:]
    assert head == "| 4.50 | 2026-06-09 | 7 t | TRUE | 09:30 |"
    assert others == ["", "[Remark on A1: Low]"]
    assert document.notices == ("x.xml has 1 hidden column: octavo leaves it out.",)


def test_notes_of_evernote():
    document = extract_evernote(NOTES.encode(), "x.enex")
    assert document.text == "# Nets & oars\n\nstore\n\nBuy nets.\n\n[x] Oars\n"
    assert document.notices == ("x.enex has 1 attachment: octavo leaves it out.",)


FLAT = '<office:document xmlns:office="o" xmlns:text="t"><office:body><office:text><text:p>a</text:p></office:text>'


@pytest.mark.parametrize(
    "content", [WORD_2003, PACKAGE, SHEETS, NOTES, f"{FLAT}</office:body></office:document>", f"\ufeff\n{NOTES[21:]}"]
)
def test_the_content_says_which_program_wrote_a_file(tmp_path, content):
    path = tmp_path / "x.xml"
    path.write_text(content, "utf-8")
    assert may_be_document(path)
    text = extract_document(path).text
    assert "<" not in text
    path.write_text(content[:-9], "utf-8")
    with pytest.raises(OctavoError, match=r"^x\.xml is damaged"):
        extract_document(path)


def test_durations_and_powers_of_sheets_of_one_file():
    style = '<Styles><Style ss:ID="d"><NumberFormat ss:Format="[h]:mm"/></Style></Styles>'
    cells = '<Cell ss:StyleID="d"><Data ss:Type="DateTime">1900-01-01T12:00:00.000</Data></Cell>'
    cells += '<Cell><Data ss:Type="String">10<Sup>6</Sup> <B>l</B>, CO<Sub>2</Sub></Data></Cell>'
    head = SHEETS[: SHEETS.index("<Worksheet")]
    sheet = f'{head}{style}<Worksheet ss:Name="A"><Table><Row>{cells}</Row></Table></Worksheet></Workbook>'
    assert extract_sheets_xml(sheet.encode(), "x.xml").text.splitlines()[2] == "| 36:00 | 10^6 l, CO2 |"


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        ('<Cell ss:Formula="=SUM(R[-8]C:R[-1]C)"/>', "=SUM(R[-8]C:R[-1]C)"),
        ('<Cell ss:Formula="=R1C1"><Data ss:Type="Number"/></Cell>', "=R1C1"),
        ('<Cell ss:Formula="=R1C1"><Data ss:Type="Number">0</Data></Cell>', "0"),
        ('<Cell ss:Formula="=R1C1"><Data ss:Type="String"></Data></Cell>', ""),
        ('<Cell><Data ss:Type="Number">INF</Data></Cell>', "#NUM!"),
        ('<Cell><Data ss:Type="DateTime">9999-12-31T23:59:59.999</Data></Cell>', "9999-12-31 23:59:59"),
        ('<Cell><Data ss:Type="DateTime">2026-06-31T00:00:00.000</Data></Cell>', "2026-06-31T00:00:00.000"),
    ],
)
def test_formulas_without_values_and_values_out_of_range_of_sheets_of_one_file(cell, shown):
    head = SHEETS[: SHEETS.index("<Worksheet")]
    end = '<Cell><Data ss:Type="String">end</Data></Cell>'
    sheet = f'{head}<Worksheet ss:Name="A"><Table><Row>{end}{cell}{end}</Row></Table></Worksheet></Workbook>'
    assert extract_sheets_xml(sheet.encode(), "x.xml").text.splitlines()[2] == f"| end | {shown} | end |"
