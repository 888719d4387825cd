"""Test what becomes of drawings, formulas and hidden text of Word documents."""

import xml.etree.ElementTree as ElementTree

import pytest
from helpers.document_files import word_parts, zipped

from octavo.documents.archive import Archive
from octavo.documents.html.formulas import formula
from octavo.documents.office.docx import extract_docx

SPACES = """xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"
 xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"
 xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"
 xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"
 xmlns:c="http://schemas.openxmlformats.org/drawingml/2006/chart"
 xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"
 xmlns:dgm="http://schemas.openxmlformats.org/drawingml/2006/diagram" xmlns:v="urn:schemas-microsoft-com:vml\""""


def word(body, strict=False, kind="t", **parts):
    """Read a Word document with a body, and parts that it refers to by these names."""
    document = f"<w:document {SPACES}><w:body>{body}</w:body></w:document>"
    if strict:
        document = document.replace("http://schemas.openxmlformats.org/wordprocessingml/2006/", STRICT)
    links = "".join(f'<Relationship Id="{name}" Type="{kind}" Target="{name}.xml"/>' for name in parts)
    about = (
        word_parts()["word/_rels/document.xml.rels"].decode().replace("</Relationships>", f"{links}</Relationships>")
    )
    files = {f"word/{name}.xml": text for name, text in parts.items()}
    files |= {"word/document.xml": document, "word/_rels/document.xml.rels": about}
    return extract_docx(Archive(zipped({**word_parts(), **files}), "report.docx")).text


STRICT = "http://purl.oclc.org/ooxml/wordprocessingml/"


def paragraph(text, style="", of_run=""):
    return f"<w:p><w:pPr>{style}</w:pPr><w:r><w:rPr>{of_run}</w:rPr><w:t>{text}</w:t></w:r></w:p>"


def drawing(inner):
    return f"<w:p><w:r><w:t>See</w:t></w:r><w:r><w:drawing>{inner}</w:drawing></w:r></w:p>"


def points(name, values):
    each = "".join(f'<c:pt idx="{number}"><c:v>{value}</c:v></c:pt>' for number, value in enumerate(values))
    return f"<c:{name}><c:ref><c:cache>{each}</c:cache></c:ref></c:{name}>"


def test_the_numbers_of_a_chart_follow_the_paragraph_that_shows_it():
    series = points("tx", ["Crew"]) + points("cat", ["East", "West"]) + points("val", ["4.4000000000000004", "7"])
    title = "<c:title><c:tx><a:p><a:r><a:t>By</a:t></a:r><a:r><a:t> port</a:t></a:r></a:p></c:tx></c:title>"
    chart = f"<c:chartSpace {SPACES}><c:chart>{title}<c:bar><c:ser>{series}</c:ser></c:bar></c:chart></c:chartSpace>"
    text = word(drawing('<c:chart r:id="chart7"/>') + paragraph("After."), chart7=chart)
    assert text == "See\n\nBy port\n\n|  | Crew |\n| --- | --- |\n| East | 4.4 |\n| West | 7 |\n\nAfter.\n"


def test_the_words_of_a_diagram_follow_the_paragraph_that_shows_it():
    words = ["<a:r><a:t>Load</a:t></a:r><a:r><a:t> salt</a:t></a:r>", "", "<a:r><a:t>Sail</a:t></a:r>"]
    data = "".join(f"<dgm:pt><dgm:t><a:p>{each}</a:p></dgm:t></dgm:pt>" for each in words)
    text = word(drawing('<dgm:relIds r:dm="data7"/>'), data7=f"<dgm:dataModel {SPACES}>{data}</dgm:dataModel>")
    assert text == "See\n\nLoad salt\n\nSail\n"


def test_a_drawing_of_a_missing_part_is_left_out():
    assert word(drawing('<c:chart r:id="gone"/>')) == "See\n"


BOX = f"<w:txbxContent>{paragraph('In a box.')}</w:txbxContent>"
NEW = f"<w:r><w:drawing><a:wsp>{BOX}</a:wsp></w:drawing></w:r>"
OLD = f"<w:r><w:pict><v:shape><v:textbox>{BOX}</v:textbox></v:shape></w:pict></w:r>"


@pytest.mark.parametrize(
    "box",
    [
        NEW,
        OLD,
        f"<mc:AlternateContent><mc:Choice>{NEW}</mc:Choice><mc:Fallback>{OLD}</mc:Fallback></mc:AlternateContent>",
        f"<mc:AlternateContent><mc:Choice>{NEW}</mc:Choice><mc:Fallback/></mc:AlternateContent>",
        f"<mc:AlternateContent><mc:Choice>{NEW}</mc:Choice></mc:AlternateContent>",
    ],
)
def test_the_text_of_a_box_is_read_once(box):
    assert word(f"<w:p>{box}<w:r><w:t>Beside.</w:t></w:r></w:p>") == "Beside.\n\nIn a box.\n"


def test_boxes_in_boxes_are_read_once():
    begin, end = "<w:p><w:r><w:drawing><w:txbxContent>", "</w:txbxContent></w:drawing></w:r></w:p>"
    assert word(begin * 20 + paragraph("In boxes.") + end * 20) == "In boxes.\n"


WHITE, SHADE = '<w:color w:val="FFFFFF"/>', '<w:shd w:val="clear" w:fill="000000"/>'
HIDING = f'<w:style w:type="character" w:styleId="Gone"><w:rPr><w:vanish/></w:rPr></w:style>{"</w:styles>"}'


def test_text_that_is_white_or_of_a_hidden_style_is_left_out():
    assert word(paragraph("one", of_run=WHITE) + paragraph("two")) == "two\n"
    styles = word_parts()["word/styles.xml"].decode().replace("</w:styles>", HIDING)
    assert word(paragraph("one", of_run='<w:rStyle w:val="Gone"/>') + paragraph("two"), styles=styles) == "two\n"


@pytest.mark.parametrize(
    "body",
    [
        paragraph("White.", of_run=WHITE + SHADE),
        paragraph("White.", style=SHADE, of_run=WHITE),
        f"<w:tbl><w:tr><w:tc>{paragraph('White.', of_run=WHITE)}</w:tc></w:tr></w:tbl>",
    ],
)
def test_white_text_on_a_ground_is_read(body):
    assert word(body) == "White.\n"


def test_files_that_are_strict_about_the_standard_are_read_alike():
    numbers = '<w:numPr><w:ilvl w:val="0"/><w:numId w:val="0"/></w:numPr>'
    hidden = paragraph("no", of_run="<w:vanish/>")
    assert word(paragraph("One.", style=numbers) + hidden, strict=True) == "One.\n"


M = 'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"'


@pytest.mark.parametrize(
    ("inner", "text"),
    [
        ("<m:r><m:t>\U0001d465 = 5$</m:t></m:r>", r"$x = 5\$$"),
        ("<m:f><m:num>{a}</m:num><m:den>{b}</m:den></m:f>", r"$\frac{a}{b}$"),
        (
            '<m:f><m:fPr><m:type m:val="noBar"/></m:fPr><m:num>{a}</m:num><m:den>{b}</m:den></m:f>',
            r"${a \atop b}$",
        ),
        ("<m:rad><m:deg>{a}</m:deg><m:e>{b}</m:e></m:rad>", r"$\sqrt[a]{b}$"),
        ("<m:sSubSup><m:e>{a}</m:e><m:sub>{b}</m:sub><m:sup>{a}</m:sup></m:sSubSup>", "$a_{b}^{a}$"),
        ("<m:sPre><m:sub>{a}</m:sub><m:sup/><m:e>{b}</m:e></m:sPre>", "${}_{a}b$"),
        ("<m:nary><m:sub>{a}</m:sub><m:sup>{b}</m:sup><m:e>{a}</m:e></m:nary>", "$∫_{a}^{b} a$"),
        ("<m:func><m:fName><m:limLow><m:e>{a}</m:e><m:lim>{b}</m:lim></m:limLow></m:fName></m:func>", "$a_{b}$"),
        ("<m:limUpp><m:e>{a}</m:e><m:lim>{b}</m:lim></m:limUpp>", "$a^{b}$"),
        ('<m:d><m:dPr><m:begChr m:val="{{"/></m:dPr><m:e>{a}</m:e><m:e>{b}</m:e></m:d>', r"$\{a|b)$"),
        ('<m:acc><m:accPr><m:chr m:val="→"/></m:accPr><m:e>{a}</m:e></m:acc>', r"$\vec{a}$"),
        ("<m:groupChr><m:e>{a}</m:e></m:groupChr>", r"$\underbrace{a}$"),
        ('<m:bar><m:barPr><m:pos m:val="top"/></m:barPr><m:e>{a}</m:e></m:bar>', r"$\overline{a}$"),
        ("<m:eqArr><m:e>{a}</m:e><m:e>{b}</m:e></m:eqArr>", r"$a \\ b$"),
        ("<m:m><m:mr><m:e>{a}</m:e><m:e>{b}</m:e></m:mr></m:m>", r"$\begin{matrix}a & b\end{matrix}$"),
        ("", ""),
    ],
)
def test_a_formula_of_word_is_written_in_a_line(inner, text):
    letters = {letter: f"<m:r><m:t>{letter}</m:t></m:r>" for letter in "ab"}
    assert formula(ElementTree.fromstring(f"<m:oMath {M}>{inner.format(**letters)}</m:oMath>")) == text


def test_formulas_in_a_row_are_apart():
    formulas = "<m:oMath><m:r><m:t>a</m:t></m:r></m:oMath>" * 2
    assert word(f"<w:p>{formulas}</w:p>") == "$a$ $a$\n"
    assert word(f"<w:p><m:oMathPara>{formulas}</m:oMathPara></w:p>") == "$a$ $a$\n"


def run(text):
    return f"<w:r>{text}</w:r>"


SEEN = "<w:r><w:t>seen</w:t></w:r>"
RUBY = "<w:ruby><w:rt><w:r><w:t>みなと</w:t></w:r></w:rt><w:rubyBase><w:r><w:t>港</w:t></w:r></w:rubyBase></w:ruby>"


@pytest.mark.parametrize(
    ("inner", "text"),
    [
        (f'<w:fldSimple w:instr="REF a"><w:fldSimple w:instr="b">{SEEN}</w:fldSimple></w:fldSimple>', "seen"),
        (f'<w:bdo w:val="rtl">{SEEN}</w:bdo><w:dir w:val="rtl">{SEEN}</w:dir>', "seenseen"),
        (run('<w:t>a</w:t><w:ptab/><w:t>b</w:t><w:cr/><w:t>c</w:t><w:br w:type="page"/><w:t>d</w:t>'), "a b\nc\nd"),
        (run(RUBY), "港(みなと)"),
    ],
)
def test_text_that_mammoth_does_not_know_is_read(inner, text):
    assert word(f"<w:p>{inner}</w:p>") == text + "\n"


def test_notes_have_their_formulas_and_fields():
    note = f'<w:p><w:r><w:t>See </w:t></w:r><w:fldSimple w:instr="a">{SEEN}</w:fldSimple>'
    note += "<m:oMath><m:f><m:num><m:r><m:t>a</m:t></m:r></m:num><m:den><m:r><m:t>b</m:t></m:r></m:den></m:f></m:oMath>"
    notes = f'<w:footnotes {SPACES}><w:footnote w:id="5">{note}</w:p></w:footnote></w:footnotes>'
    kind = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/footnotes"
    text = word(f'<w:p>{SEEN}<w:r><w:footnoteReference w:id="5"/></w:r></w:p>', kind=kind, footnotes=notes)
    assert text == "seen[1]\n\n1. See seen$\\frac{a}{b}$\n"
