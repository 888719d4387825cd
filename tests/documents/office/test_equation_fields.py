"""Test that formulas in fields of Word are read, in RTF and in DOCX."""

import pytest
from helpers.document_files import zipped

from octavo.documents.archive import Archive
from octavo.documents.office.docx import extract_docx
from octavo.documents.office.equation_fields import equation
from octavo.documents.office.rtf import extract_rtf


@pytest.mark.parametrize(
    ("code", "formula"),
    [
        (r" EQ \f(m,t) ", r"\frac{m}{t}"),
        (r"EQ \r(3,x+1)", r"\sqrt[3]{x+1}"),
        (r"eq \R(5;x)", r"\sqrt[5]{x}"),
        (r"EQ \s\up8(UB)\do4(2)", "^{UB}_{2}"),
        (r"EQ \i\su(i=1,5,x)", "∑_{i=1}^{5} x"),
        (r"EQ \i(a,b,f(x,y) dx)", "∫_{a}^{b} f(x,y) dx"),
        (r"EQ \b\bc\{(\r(x))", r"\{\sqrt{x}\}"),
        (r"EQ \o\ac(○,1)", "○1"),
        (r"EQ x = \f(-b+\r(b\s\up5(2)-4ac),2a)", r"x = \frac{-b+\sqrt{b^{2}-4ac}}{2a}"),
        (r"EQ \a\al\co2(10,20)", "10, 20"),
        (r"EQ 3\,5", "3,5"),
        (r"EQ \f(1", r"\frac{1}{1}"),
    ],
)
def test_each_command_is_written_in_tex(code, formula):
    assert (equation(code) or "").strip("$") == formula


def test_text_in_a_circle_is_no_formula():
    assert equation(r"EQ \o\ac(○,1)") == "○1"
    assert equation(r"EQ \f(1,2)") == r"$\frac{1}{2}$"


def test_other_fields_are_no_formulas():
    assert [equation(code) for code in (r"PAGE \* MERGEFORMAT", "EQUAL", "")] == [None] * 3


@pytest.mark.parametrize(
    "code",
    [
        rb"EQ \\f(m,t)",
        rb"{ EQ \\f(m,t) }",
        rb"{\rtlch\fs24 \ltrch EQ }{\i \\f(m}{,t)}",
    ],
)
def test_a_field_of_rtf_is_read_once(code):
    field = rb"{\field{\*\fldinst " + code + rb"}{\fldrslt old}}"
    assert extract_rtf(rb"{\rtf1\pard So " + field + rb" holds.\par}", "a.rtf").text == "So $\\frac{m}{t}$ holds.\n"


def test_a_field_of_docx_may_be_in_several_runs():
    space = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    mark = '<w:r><w:fldChar w:fldCharType="{}"/></w:r>'
    codes = "".join(f"<w:r><w:instrText>{part}</w:instrText></w:r>" for part in (" EQ ", r"\f(m", ",t)"))
    runs = f"<w:r><w:t>So </w:t></w:r>{mark.format('begin')}{codes}{mark.format('end')}<w:r><w:t> holds.</w:t></w:r>"
    document = f'<w:document xmlns:w="{space}"><w:body><w:p>{runs}</w:p></w:body></w:document>'
    archive = Archive(zipped({"word/document.xml": document}), "a.docx")
    assert extract_docx(archive).text == "So $\\frac{m}{t}$ holds.\n"
