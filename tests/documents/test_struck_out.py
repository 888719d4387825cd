"""Text that is struck out has marks in every format that says so: the rent is not 900 950."""

import io
import struct

import pytest
from helpers.document_files import ole, zipped

from octavo.documents.archive import Archive
from octavo.documents.extract import extract_document
from octavo.documents.html.html import extract_html
from octavo.documents.office.docx import extract_docx
from octavo.documents.office.flat_xml import extract_sheets_xml
from octavo.documents.office.rtf import extract_rtf
from octavo.documents.office.slides import extract_slides

RENT = "The rent is ~~900~~ 950"


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<p>The rent is <strike>900</strike> 950", RENT),
        ("<p>The rent is <span style='text-decoration: line-through'>900</span> 950", RENT),
        ("<p>The rent is <span style='text-decoration-line: underline line-through'>900</span> 950", RENT),
        ("<p>The rent is <a href=x style='color: red; text-decoration: line-through red'>900</a> 950", RENT),
        ("<style>.old { text-decoration: line-through }</style><p>The rent is <b class=old>900</b> 950",
         "The rent is ~~**900**~~ 950"),
        ("<style>s, del { text-decoration-line: line-through }</style><p>The rent is <s>900</s> 950", RENT),
        ("<style>i { font-style: normal; TEXT-DECORATION:LINE-THROUGH }</style><p>The rent is <i>900</i> 950",
         "The rent is ~~*900*~~ 950"),
        ("<style>p:hover { text-decoration: line-through }</style><p>950", "950"),
        ("<style>@media print { p { text-decoration: line-through } }</style><p>950", "950"),
        ("<style>p { text-decoration: line-through } p { text-decoration: none }</style><p>950", "950"),
        ("<p>The rent is <u style='text-decoration: underline'>950</u>", "The rent is 950"),
        ("<p style='text-decoration: line-through'>900</p><p>950</p>", "~~900~~\n\n950"),
        ("<ul><li style='text-decoration: line-through'>900</li><li>950</li></ul>", "- ~~900~~\n- 950"),
        ("<h2 style='text-decoration: line-through'>Rent</h2><p>950</p>", "## ~~Rent~~\n\n950"),
        ("<table><tr style='text-decoration: line-through'><td>a<td>900<tr><td>b<td>950</table>",
         "| ~~a~~ | ~~900~~ |\n| --- | --- |\n| b | 950 |"),
        ("<p>The rent is <span style='text-decoration: line-through'></span>950", "The rent is 950"),
        ("<p>The rent is <span style='display:block;text-decoration:line-through'>900</span>950",
         "The rent is\n~~900~~\n950"),
        ("<div style='text-decoration: line-through'><p>a <b>b</b></p><ul><li>c<br>d</ul></div><p>e",
         "~~a **b**~~\n\n- ~~c~~\n  ~~d~~\n\ne"),
        ("<del><p>a</p><p><b>b</b></p></del>", "~~a~~\n\n~~**b**~~"),
        ("<p><b>a <s>b<br>c</s> d</b>", "**a ~~b~~\n~~c~~ d**"),
        ("<pre style='text-decoration: line-through'>a</pre><p>950", "```\na\n```\n\n950"),
    ],
)  # fmt: skip
def test_struck_out_text_of_pages(page, text):
    assert extract_html(page.encode(), "a.html").text == text + "\n"


W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"


def word(inner, properties="", styles=""):
    runs = (
        f'<w:r><w:t xml:space="preserve">The rent is </w:t></w:r>{inner}<w:r><w:t xml:space="preserve"> 950</w:t></w:r>'
    )
    paragraph = f"<w:p><w:pPr>{properties}</w:pPr>{runs}</w:p>"
    files = {
        "word/document.xml": f'<w:document xmlns:w="{W}"><w:body>{paragraph}</w:body></w:document>',
        "word/styles.xml": f'<w:styles xmlns:w="{W}">{styles}</w:styles>',
    }
    return extract_docx(Archive(zipped(files), "a.docx")).text


def word_run(properties):
    return f"<w:r><w:rPr>{properties}</w:rPr><w:t>900</w:t></w:r>"


STYLES = """<w:style w:type="character" w:styleId="old"><w:name w:val="old"/><w:rPr><w:dstrike/></w:rPr></w:style>
<w:style w:type="character" w:styleId="older"><w:name w:val="older"/><w:basedOn w:val="old"/></w:style>
<w:style w:type="paragraph" w:styleId="gone"><w:name w:val="gone"/><w:rPr><w:strike/></w:rPr></w:style>"""


@pytest.mark.parametrize(
    ("properties", "is_struck"),
    [
        ("<w:strike/>", True),
        ("<w:dstrike/>", True),
        ('<w:strike w:val="0"/><w:dstrike w:val="true"/>', True),
        ('<w:dstrike w:val="0"/>', False),
        ('<w:rStyle w:val="old"/>', True),
        ('<w:rStyle w:val="older"/>', True),
        ('<w:rStyle w:val="old"/><w:dstrike w:val="off"/>', False),
    ],
)
def test_struck_out_runs_of_word(properties, is_struck):
    assert word(word_run(properties), styles=STYLES) == (RENT if is_struck else RENT.replace("~", "")) + "\n"


def test_a_style_of_word_strikes_a_paragraph_out():
    style = '<w:pStyle w:val="gone"/>'
    assert word(word_run(""), style, STYLES) == "~~The rent is 900 950~~\n"
    assert word(word_run('<w:strike w:val="0"/>'), style, STYLES) == "~~The rent is~~ 900 ~~950~~\n"


@pytest.mark.parametrize(
    ("rtf", "text"),
    [
        (rb"The rent is {\strike 900} 950", RENT),
        (rb"The rent is \striked1 900\striked0  950", RENT),
        (rb"The rent is \strike 900\plain  950", RENT),
        (rb"The rent is {\strike 9}{\strike 0\'30} 950", RENT),
        (rb"The rent is {\strike0 900} 950", RENT.replace("~", "")),
        (rb"The rent is {\strike 10{\super 3}} 950", "The rent is ~~10^3~~ 950"),
    ],
)
def test_struck_out_text_of_rtf(rtf, text):
    assert extract_rtf(rb"{\rtf1\ansi\pard " + rtf + rb"\par}", "a.rtf").text == text + "\n"


SPACES = 'xmlns:o="o" xmlns:text="t" xmlns:table="b" xmlns:style="s"'
LINE = 'style:text-line-through-style="solid"'


def styled(name, family, properties, parent=""):
    about = f'style:name="{name}" style:family="{family}" style:parent-style-name="{parent}"'
    return f"<style:style {about}><style:text-properties {properties}/></style:style>"


def opendocument(tmp_path, body, *styles):
    whole = f"<o:c {SPACES}><o:styles>{''.join(styles)}</o:styles><o:body>{body}</o:body></o:c>"
    (tmp_path / "a.odt").write_bytes(zipped({"content.xml": whole}))
    return extract_document(tmp_path / "a.odt").text


@pytest.mark.parametrize(
    ("styles", "is_struck"),
    [
        ([styled("T", "text", LINE)], True),
        ([styled("T", "text", 'style:text-line-through-type="double"')], True),
        ([styled("T", "text", "", "Old"), styled("Old", "text", LINE)], True),
        ([styled("T", "text", 'style:text-line-through-style="none" style:text-line-through-type="none"')], False),
    ],
)
def test_struck_out_text_of_opendocument(tmp_path, styles, is_struck):
    body = '<o:text><text:p>The rent is <text:span text:style-name="T">900</text:span> 950</text:p></o:text>'
    assert opendocument(tmp_path, body, *styles) == (RENT if is_struck else RENT.replace("~", "")) + "\n"


def test_struck_out_paragraphs_and_cells_of_opendocument(tmp_path):
    cells = "".join(
        f'<table:table-cell table:style-name="{style}"><text:p>{text}</text:p></table:table-cell>'
        for style, text in (("", "Rent"), ("C", "900"), ("", "950"))
    )
    table = f"<table:table><table:table-row>{cells}</table:table-row></table:table>"
    body = f'<o:text><text:p text:style-name="P">The rent is 900</text:p>{table}</o:text>'
    text = opendocument(tmp_path, body, styled("P", "paragraph", LINE), styled("C", "table-cell", LINE))
    assert text == "~~The rent is 900~~\n\n| Rent | ~~900~~ | 950 |\n| --- | --- | --- |\n"


def test_cells_of_opendocument_have_the_style_of_their_column(tmp_path):
    columns = "".join(f'<table:table-column table:default-cell-style-name="{style}"/>' for style in ("", "C", "N"))
    cells = "".join(
        f'<table:table-cell o:value-type="float" o:value="{value}" {about}><text:p>{text}</text:p></table:table-cell>'
        for value, about, text in (("1", "", "1"), ("900", "", "900"), ("-5.5", "", "kr 5.50"), ("-7", "", "(7)"))
    )
    row = f"<table:table-row>{cells}</table:table-row>"
    colour = 'xmlns:fo="f" fo:color="#ff0000"'
    number = f'<n:number-style xmlns:n="n" style:name="F"><style:text-properties {colour}/></n:number-style>'
    red = '<style:style style:name="N" style:family="table-cell" style:data-style-name="F"/>'
    body = f'<o:spreadsheet><table:table table:name="A">{columns}{row}</table:table></o:spreadsheet>'
    text = opendocument(tmp_path, body, styled("C", "table-cell", LINE), number, red)
    assert text.splitlines()[2] == "| 1 | ~~900~~ | -kr 5.50 | (7) |"


@pytest.mark.parametrize(
    ("strike", "text"), [("sngStrike", RENT), ("dblStrike", RENT), ("noStrike", RENT.replace("~", ""))]
)
def test_struck_out_text_of_slides(strike, text):
    pptx = pytest.importorskip("pptx")
    made = pptx.Presentation()
    slide = made.slides.add_slide(made.slide_layouts[6])
    paragraph = slide.shapes.add_textbox(0, 0, 9, 9).text_frame.paragraphs[0]
    paragraph.add_run().text = "The rent is "
    gone = paragraph.add_run()
    gone.text = "900"
    gone._r.get_or_add_rPr().set("strike", strike)
    paragraph.add_run().text = " 950"
    content = io.BytesIO()
    made.save(content)
    assert extract_slides(Archive(content.getvalue(), "a.pptx")).text == f"## Slide 1\n\n{text}\n"


def test_struck_out_cells_of_sheets(tmp_path):
    made = pytest.importorskip("xlsxwriter").Workbook(str(tmp_path / "a.xlsx"))
    sheet, gone = made.add_worksheet("A"), made.add_format({"font_strikeout": True, "num_format": "0.00"})
    sheet.write_rich_string(0, 0, "The rent is ", gone, "900", " 950")
    sheet.write_number(0, 1, 900, gone)
    sheet.write_number(0, 2, 950)
    sheet.write_blank(0, 3, None, gone)
    made.close()
    rows = f"| {RENT} | ~~900.00~~ | 950 |\n| --- | --- | --- |\n"
    assert extract_document(tmp_path / "a.xlsx").text == f"## A\n\n{rows}"


def test_struck_out_cells_of_excel_2003():
    style = '<Styles><Style ss:ID="s"><Font ss:StrikeThrough="1"/></Style></Styles>'
    cells = '<Cell><Data ss:Type="String">The rent is <S>900</S> 950</Data></Cell>'
    cells += '<Cell ss:StyleID="s"><Data ss:Type="Number">900</Data></Cell>'
    content = (
        '<Workbook xmlns="urn:schemas-microsoft-com:office:spreadsheet" '
        f'xmlns:ss="urn:schemas-microsoft-com:office:spreadsheet">{style}<Worksheet ss:Name="A"><Table>'
        f"<Row>{cells}</Row></Table></Worksheet></Workbook>"
    )
    assert extract_sheets_xml(content.encode(), "a.xml").text == f"## A\n\n| {RENT} | ~~900~~ |\n| --- | --- |\n"


def record(kind, body):
    return struct.pack("<HH", kind, len(body)) + body


def test_struck_out_cells_of_old_sheets(tmp_path):
    """The second style has the sixth font, which is number 5 to some characters: there is no number 4."""
    pytest.importorskip("xlrd")
    plain, gone = (
        record(0x31, struct.pack("<HHHHHBBBBBB", 200, how, 0x7FFF, 400, *[0] * 5, 1, 0) + b"A") for how in (0, 8)
    )
    forms = b"".join(record(0xE0, struct.pack("<HHH", font, 0, 1) + bytes(14)) for font in (0, 5))
    text = b"The rent is 900 950"
    cell = struct.pack("<HHHHB", 0, 0, 0, len(text), 0) + text + struct.pack("<HHHHH", 2, 12, 5, 15, 0)
    begin = [record(0x809, struct.pack("<HHHHII", 0x600, kind, 0, 1997, 0, 6)) for kind in (5, 0x10)]
    sheet = begin[1] + record(0xD6, cell) + record(0x203, struct.pack("<HHHd", 0, 1, 1, 900)) + record(0x0A, b"")

    def head(start):
        return (
            begin[0]
            + plain * 4
            + gone
            + forms
            + record(0x85, struct.pack("<IBBBB", start, 0, 0, 2, 0) + b"Q1")
            + record(0x0A, b"")
        )

    (tmp_path / "a.xls").write_bytes(ole({("Workbook",): head(len(head(0))) + sheet}))
    assert extract_document(tmp_path / "a.xls").text == f"## Q1\n\n| {RENT} | ~~900~~ |\n| --- | --- |\n"
