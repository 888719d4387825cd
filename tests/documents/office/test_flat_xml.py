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
