"""Test how octavo says what it leaves out of documents."""

import json

import pytest
from helpers.document_files import BOOK, zipped

from octavo.documents.extract import extract_document
from octavo.documents.html.html import extract_html
from octavo.documents.left_out import LeftOut


def test_what_is_left_out_is_told_in_one_sentence():
    left_out = LeftOut()
    assert left_out.notices("a.docx") == ()
    left_out["picture"] += 1
    assert left_out.notices("a.docx") == ("a.docx has 1 picture: octavo leaves it out.",)
    left_out["hidden row"] += 1200
    left_out["hidden sheet"] += 1
    (sentence,) = left_out.notices("a.docx")
    assert sentence == "a.docx has 1,200 hidden rows, 1 hidden sheet and 1 picture: octavo leaves them out."


def test_a_kind_that_was_only_looked_at_is_not_told():
    assert LeftOut({"picture": 0}).notices("x") == ()


def test_a_page_tells_of_text_that_it_hides():
    page = b"<html><body><p>Seen.</p><p hidden>Not <i>seen</i>.</p><p style='display:none'></p></body></html>"
    assert extract_html(page, "a.html").notices == ("a.html has 1 hidden passage: octavo leaves it out.",)


W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
R = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PAGE = "<p>Seen.</p><p hidden>Not seen.</p><img src=a.png>"
RUN = "<w:r>{}<w:t>{}</w:t></w:r>"
WORD = f"""<w:document xmlns:w="{W}" xmlns:r="{R}" xmlns:o="o" xmlns:a="a"><w:body><w:p>{RUN.format("", "Seen.")}
{RUN.format("<w:rPr><w:vanish/></w:rPr>", "no")}<w:del><w:r><w:delText>no</w:delText></w:r></w:del>
<w:r><w:commentReference w:id="0"/></w:r><w:r><w:drawing><a:blip/></w:drawing></w:r><w:r><o:OLEObject/></w:r></w:p>
<w:altChunk r:id="c"/><w:altChunk r:id="d"/></w:body></w:document>"""
LINKS = f"""<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">
<Relationship Id="c" Type="{R}/aFChunk" Target="c.html"/><Relationship Id="d" Type="{R}/aFChunk" Target="d.docx"/>
</Relationships>"""
DOCX = {"word/document.xml": WORD, "word/_rels/document.xml.rels": LINKS, "word/c.html": PAGE, "word/d.docx": "PK\3\4"}
RTF = r"""{\rtf1 Seen.{\v no}{\deleted no}{\pict 00}{\object\objemb{\result}}{\*\annotation no}\par}"""
SPACES = 'xmlns:o="o" xmlns:text="t" xmlns:table="b" xmlns:draw="d" xmlns:style="s" xmlns:l="l"'
TEXT = f"""<o:c {SPACES}><o:body><o:text><text:tracked-changes><text:deletion><text:p>no</text:p></text:deletion>
</text:tracked-changes><text:p>Seen.<o:annotation><text:p>no</text:p></o:annotation><draw:frame><draw:image/></draw:frame>
<draw:frame><draw:object-ole/></draw:frame></text:p><text:section text:display="none"><text:p>no</text:p></text:section>
</o:text></o:body></o:c>"""
ROW = "<table:table-row{}><table:table-cell{}><text:p>{}</text:p></table:table-cell></table:table-row>"
CELLS = f"""<o:c {SPACES}><o:body><o:spreadsheet><table:table table:name="A">
{ROW.format("", "", "Seen.")}{ROW.format(' table:visibility="collapse"', "", "no")}</table:table>
<table:table table:name="B" table:display="false">{ROW.format("", "", "no")}</table:table>
</o:spreadsheet></o:body></o:c>"""
FB2 = '<FictionBook xmlns="f"><body><section><p>Seen.</p><image/></section></body></FictionBook>'
ENEX = f"<en-export><note><content><![CDATA[{PAGE}]]></content><resource/></note></en-export>"
MAIL = f"Subject: A\nFrom: a@example.org\nMIME-Version: 1.0\nContent-Type: text/html\n\n{PAGE}"
CARD = "BEGIN:VCARD\nVERSION:4.0\nFN:Seen.\nPHOTO:data:image/png;base64,AAAA\nEND:VCARD\n"
CELL = {"cell_type": "code", "source": "1", "outputs": [{"output_type": "display_data", "data": {"image/png": "AAAA"}}]}
NOTEBOOK = json.dumps({"nbformat": 4, "nbformat_minor": 4, "metadata": {}, "cells": [CELL]})
SHEETS = """<Workbook xmlns="urn:schemas-microsoft-com:office:spreadsheet"
 xmlns:ss="urn:schemas-microsoft-com:office:spreadsheet"><Worksheet ss:Name="A"><Table><Column ss:Hidden="1"/>
<Row><Cell><Data ss:Type="String">no</Data></Cell><Cell><Data ss:Type="String">Seen.</Data></Cell></Row>
<Row ss:Hidden="1"><Cell ss:Index="2"><Data ss:Type="String">no</Data></Cell></Row></Table></Worksheet></Workbook>"""


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.html", PAGE, "1 hidden passage and 1 picture"),
        ("a.docx", DOCX, "1 deleted passage, 2 embedded objects, 2 hidden passages, 2 pictures and 1 remark"),
        ("a.rtf", RTF, "1 deleted passage, 1 embedded object, 1 hidden passage, 1 picture and 1 remark"),
        ("a.odt", {"mimetype": "application/vnd.oasis.opendocument.text", "content.xml": TEXT},
         "1 deleted passage, 1 embedded object, 1 hidden passage, 1 picture and 1 remark"),
        ("a.ods", {"mimetype": "application/vnd.oasis.opendocument.spreadsheet", "content.xml": CELLS},
         "1 hidden row and 1 hidden sheet"),
        ("a.xml", f'<?xml version="1.0"?><?mso-application progid="Excel.Sheet"?>{SHEETS}',
         "1 hidden column and 1 hidden row"),
        ("a.epub", {**BOOK, "OEBPS/one.xhtml": PAGE}, "1 hidden passage, 1 missing chapter and 1 picture"),
        ("a.fb2", FB2, "1 picture"),
        ("a.enex", ENEX, "1 attachment, 1 hidden passage and 1 picture"),
        ("a.eml", MAIL, "1 hidden passage and 1 picture"),
        ("a.vcf", CARD, "1 picture"),
        ("a.ipynb", NOTEBOOK, "1 picture"),
        ("a.md", "Seen. ![](data:image/png;base64,AAAA)\n", "1 picture"),
    ],
)  # fmt: skip
def test_each_reader_tells_all_that_it_leaves_out(tmp_path, name, content, told):
    """Slides, XLSX, XLS and PDF have tests of their own, as libraries make their files."""
    path = tmp_path / name
    path.write_bytes(zipped(content) if isinstance(content, dict) else content.encode())
    document = extract_document(path)
    pronoun = "it" if told in ("1 picture",) else "them"
    assert document.notices == (f"{name} has {told}: octavo leaves {pronoun} out.",)
    assert "no\n" not in document.text
