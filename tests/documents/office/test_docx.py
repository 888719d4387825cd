"""Test what is read of Word documents: letterheads, headings, numbers, code, forms, and what is left out."""

import pytest
from helpers.document_files import zipped

from octavo.documents.archive import Archive
from octavo.documents.office.docx import extract_docx

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
R = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
MC = "http://schemas.openxmlformats.org/markup-compatibility/2006"
SPACES = f'xmlns:w="{W}" xmlns:r="{R}" xmlns:v="urn:schemas-microsoft-com:vml" xmlns:mc="{MC}"'


def run(text, properties=""):
    return f'<w:r><w:rPr>{properties}</w:rPr><w:t xml:space="preserve">{text}</w:t></w:r>'


def p(text, properties=""):
    inner = text if text.startswith("<") else run(text)
    return f"<w:p><w:pPr>{properties}</w:pPr>{inner}</w:p>"


def style(name, shown, more=""):
    return f'<w:style w:type="paragraph" w:styleId="{name}"><w:name w:val="{shown}"/>{more}</w:style>'


def read(body, styles="", links="", **parts):
    """Read a document of a body, styles, relations (type and target by their names), and parts by their names."""
    relations = "".join(
        f'<Relationship Id="{name}" Type="{R}/{kind}" Target="{target}"/>'
        for name, kind, target in (link.split() for link in links.split(";") if link)
    )
    files = {
        "word/document.xml": f"<w:document {SPACES}><w:body>{body}</w:body></w:document>",
        "word/styles.xml": f"<w:styles {SPACES}>{styles}</w:styles>",
        "word/_rels/document.xml.rels": f'<Relationships xmlns="urn:r">{relations}</Relationships>',
        **{f"word/{name.replace('_', '.')}": text for name, text in parts.items()},
    }
    files["word/_rels/document.xml.rels"] = files["word/_rels/document.xml.rels"].replace(
        "urn:r", "http://schemas.openxmlformats.org/package/2006/relationships"
    )
    return extract_docx(Archive(zipped(files), "a.docx"))


def head(inner):
    return f"<w:hdr {SPACES}>{inner}</w:hdr>"


def section(*kinds, more=""):
    links = "".join(f'<w:headerReference w:type="{kind}" r:id="{name}"/>' for kind, name in kinds)
    return f"<w:sectPr>{links}{more}</w:sectPr>"


PAGE = '<w:r><w:fldChar w:fldCharType="begin"/></w:r><w:r><w:instrText> {} </w:instrText></w:r><w:r>'
PAGE += '<w:fldChar w:fldCharType="separate"/></w:r><w:r><w:t>1</w:t></w:r><w:r><w:fldChar w:fldCharType="end"/></w:r>'


@pytest.mark.parametrize(
    ("inner", "text"),
    [
        (p(run("Board, no. 4711") + "<w:r><w:tab/></w:r>" + run("Page ") + PAGE.format("PAGE")), "Board, no. 4711"),
        (p(run("Board, page ") + PAGE.format("PAGE") + run(" of ") + PAGE.format("NUMPAGES")), "Board"),
        (p(run("Seite ") + PAGE.format("PAGE") + run(" | ") + run("Amt")), "Amt"),
        (p(run("Board ") + PAGE.format("PAGE") + run(" / ") + PAGE.format("NUMPAGES")), "Board"),
        (p(run("Log - Board p. ") + PAGE.format("PAGE")), "Log Board"),
        (p(run("第") + PAGE.format("PAGE") + run("页 海港")), "海港"),
        (p('<w:fldSimple w:instr=" PAGE "><w:r><w:t>1</w:t></w:r></w:fldSimple>') + p("Amt"), "Amt"),
        (p(run("- ") + PAGE.format("PAGE \\* MERGEFORMAT") + run(" -")) + p("Amt") + p("Amt"), "Amt"),
        (
            f"<w:tbl><w:tr><w:tc>{p('Ref')}</w:tc><w:tc>{p('HX-99')}</w:tc></w:tr></w:tbl>",
            "| Ref | HX-99 |\n| --- | --- |",
        ),
        (p("<w:r><mc:AlternateContent><mc:Choice><w:drawing><w:txbxContent>" + p("Board") + p("Quay 4")
           + "</w:txbxContent></w:drawing></mc:Choice><mc:Fallback><w:pict><v:textbox><w:txbxContent>" + p("Board")
           + p("Quay 4") + "</w:txbxContent></v:textbox></w:pict></mc:Fallback></mc:AlternateContent></w:r>"),
         "Board\n\nQuay 4"),
    ],
)  # fmt: skip
def test_letterheads_are_read_once_without_numbers_of_pages(inner, text):
    document = read(p("The rent.") + section(("default", "h")), links="h header header1.xml", header1_xml=head(inner))
    assert document.text == f"{text}\n\nThe rent.\n"


@pytest.mark.parametrize(
    ("kinds", "more", "is_shown"),
    [
        ([("first", "h")], "", False),
        ([("first", "h")], "<w:titlePg/>", True),
        ([("first", "h")], '<w:titlePg w:val="0"/>', False),
        ([("even", "h")], "", False),
        ([("default", "h")], "", True),
    ],
)
def test_letterheads_that_no_page_shows_are_left_out(kinds, more, is_shown):
    document = read(
        p("The rent.") + section(*kinds, more=more), links="h header header1.xml", header1_xml=head(p("Old price"))
    )
    assert ("Old price" in document.text) is is_shown


HEADING = style("Heading1", "heading 1", '<w:pPr><w:outlineLvl w:val="0"/></w:pPr>')


@pytest.mark.parametrize(
    ("styles", "properties", "is_heading"),
    [
        (HEADING + style("B", "Board", '<w:basedOn w:val="Heading1"/>'), '<w:pStyle w:val="B"/>', True),
        (style("B", "Board", '<w:pPr><w:outlineLvl w:val="0"/></w:pPr>'), '<w:pStyle w:val="B"/>', True),
        ("", '<w:outlineLvl w:val="0"/>', True),
        (HEADING + style("B", "x", '<w:basedOn w:val="C"/>') + style("C", "y", '<w:basedOn w:val="Heading1"/>'),
         '<w:pStyle w:val="B"/>', True),
        (HEADING + style("B", "TOC", '<w:basedOn w:val="Heading1"/><w:pPr><w:outlineLvl w:val="9"/></w:pPr>'),
         '<w:pStyle w:val="B"/>', False),
        (style("B", "x", '<w:basedOn w:val="B"/>'), '<w:pStyle w:val="B"/>', False),
    ],
)  # fmt: skip
def test_styles_of_ones_own_may_be_headings(styles, properties, is_heading):
    assert read(p("Harbour", properties) + p("Text."), styles).text == "# " * is_heading + "Harbour\n\nText.\n"


def numbered(*items, more=""):
    """Return the parts of a document whose paragraphs have levels of one list."""
    return "".join(
        p(text, f'<w:numPr><w:ilvl w:val="{level}"/><w:numId w:val="1"/></w:numPr>') for level, text in items
    )


def numbering(*levels):
    inner = "".join(
        f'<w:lvl w:ilvl="{level}"><w:start w:val="1"/><w:numFmt w:val="{form}"/>'
        f'<w:lvlText w:val="{text}"/>{more}</w:lvl>'
        for level, (form, text, more) in enumerate(levels)
    )
    lists = f'<w:abstractNum w:abstractNumId="0">{inner}</w:abstractNum>'
    return f'<w:numbering {SPACES}>{lists}<w:num w:numId="1"><w:abstractNumId w:val="0"/></w:num></w:numbering>'


@pytest.mark.parametrize(
    ("levels", "text"),
    [
        ([("upperRoman", "Art. %1", ""), ("decimal", "Sec. %1.%2", "<w:isLgl/>")],
         "Art. I a\n  Sec. 1.1 b\nArt. II c\n  Sec. 2.1 d\n"),
        ([("upperRoman", "Art. %1", ""), ("decimal", "Sec. %1.%2", '<w:isLgl w:val="0"/>')],
         "Art. I a\n  Sec. I.1 b\nArt. II c\n  Sec. II.1 d\n"),
        ([("upperRoman", "Part %1", ""), ("decimal", "§ %2", '<w:lvlRestart w:val="0"/>')],
         "Part I a\n  § 1 b\nPart II c\n  § 2 d\n"),
        ([("chineseCountingThousand", "第%1条", ""), ("ideographTraditional", "%2、", "")],
         "第一条 a\n  甲、 b\n第二条 c\n  甲、 d\n"),
        ([("decimal", "%1.", ""), ("russianLower", "%2)", "")], "1. a\n  \u0430) b\n2. c\n  \u0430) d\n"),
    ],
)  # fmt: skip
def test_lists_are_numbered_as_word_shows_them(levels, text):
    body = numbered((0, "a"), (1, "b"), (0, "c"), (1, "d"))
    assert read(body, numbering_xml=numbering(*levels)).text == text


def test_lists_in_notes_have_their_numbers():
    note = f'<w:footnote w:id="2">{p("Except:")}{numbered((0, "a"), (0, "b"))}</w:footnote>'
    notes = f"<w:footnotes {SPACES}>{note}</w:footnotes>"
    document = read(
        p(run("Rule.") + '<w:r><w:footnoteReference w:id="2"/></w:r>'),
        links="f footnotes footnotes.xml",
        footnotes_xml=notes,
        numbering_xml=numbering(("lowerLetter", "(%1)", "")),
    )
    assert "(a) a\n" in document.text
    assert "(b) b\n" in document.text


@pytest.mark.parametrize(
    ("styles", "properties", "of_run"),
    [
        (style("SC", "Source Code"), '<w:pStyle w:val="SC"/>', ""),
        (style("SC", "HTML Preformatted"), '<w:pStyle w:val="SC"/>', ""),
        (style("SC", "Listing", '<w:rPr><w:rFonts w:ascii="Consolas"/></w:rPr>'), '<w:pStyle w:val="SC"/>', ""),
        ("", "", '<w:rFonts w:ascii="Courier New"/>'),
        ('<w:style w:type="character" w:styleId="V"><w:name w:val="V"/>'
         '<w:rPr><w:rFonts w:ascii="DejaVu Sans Mono"/></w:rPr></w:style>',
         "", '<w:rStyle w:val="V"/>'),
    ],
)  # fmt: skip
def test_code_keeps_its_blanks(styles, properties, of_run):
    lines = "".join(p(run(line, of_run), properties) for line in ("if dry:", "    # stop", "    stop()"))
    document = read(p("Before.") + lines + p("After."), styles)
    assert document.text == "Before.\n\n```\nif dry:\n    # stop\n    stop()\n```\n\nAfter.\n"
    assert document.places == ()


def test_a_row_may_begin_in_a_later_column():
    def row(*cells, more=""):
        return f"<w:tr><w:trPr>{more}</w:trPr>{''.join(f'<w:tc>{p(cell)}</w:tc>' for cell in cells)}</w:tr>"

    later = row("23", "24", more='<w:gridBefore w:val="1"/>')
    text = read(f"<w:tbl>{row('Boat', 'a', 'b')}{row('Petrel', '11', '12')}{later}</w:tbl>").text
    assert text.splitlines()[2:] == ["| Petrel | 11 | 12 |", "|  | 23 | 24 |"]


@pytest.mark.parametrize(
    ("result", "chosen"), [("", "North"), ('<w:result w:val="1"/>', "South"), ('<w:result w:val="9"/>', "")]
)
def test_a_choice_in_a_form_is_read(result, chosen):
    entries = f'<w:ddList>{result}<w:listEntry w:val="North"/><w:listEntry w:val="South"/></w:ddList>'
    field = PAGE.format("FORMDROPDOWN").replace("<w:t>1</w:t>", "")
    field = field.replace('"begin"/>', f'"begin"><w:ffData>{entries}</w:ffData></w:fldChar>')
    assert read(p(run("Quay: ") + field + run("."))).text == f"Quay: {chosen}.\n".replace(": .", ": .")


def test_word_art_is_read():
    art = '<w:r><w:pict><v:shape><v:textpath string="Summer feast"/></v:shape></w:pict></w:r>'
    assert read(p(art) + p("Bring a chair.")).text == "Summer feast\n\nBring a chair.\n"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a_html", "<p>The deposit is <b>2,700</b> kroner.</p>"),
        ("a_htm", "<html><meta charset=utf-8><body><p>The deposit is <b>2,700</b> kroner."),
        ("a_rtf", r"{\rtf1\ansi The deposit is **2,700** kroner.\par}"),
        ("a_txt", "The deposit is **2,700** kroner."),
        (
            "a_mht",
            "MIME-Version: 1.0\nContent-Type: text/html; charset=utf-8\n\n<p>The deposit is <b>2,700</b> kroner.",
        ),
    ],
)
def test_documents_in_a_document_are_read_where_they_are(name, content):
    body = p("Terms.") + '<w:altChunk r:id="c"/>' + p("Signed.")
    document = read(body, links=f"c aFChunk {name.replace('_', '.')}", **{name: content})
    assert document.text == "Terms.\n\nThe deposit is **2,700** kroner.\n\nSigned.\n"


def test_what_is_left_out_is_counted():
    deleted = "<w:del><w:r><w:delText>900</w:delText></w:r></w:del>"
    hidden = run("a", "<w:vanish/>") + run("b", "<w:vanish/>")
    body = p(run("Text") + deleted + hidden + '<w:r><w:commentReference w:id="0"/></w:r>')
    (notice,) = read(body).notices
    assert notice == "a.docx has 1 deleted passage, 1 hidden passage and 1 remark: octavo leaves them out."


@pytest.mark.parametrize(
    ("body", "styles", "links"),
    [
        (p("Rent is due."), '<w:style><w:name w:val="x"/></w:style><w:style w:type="paragraph"/>', ""),
        (p("Rent is due.", '<w:pStyle w:val="A"/>'), '<w:style w:styleId="A"/><w:style w:styleId="B"/>', ""),
        (p(f'<w:hyperlink r:id="gone">{run("Rent is due.")}</w:hyperlink>'), "", ""),
        (p(f'<w:hyperlink r:id="a">{run("Rent is due.")}</w:hyperlink>'), "", "a footnotes gone.xml"),
        (p(run("Rent is due.") + "<w:r><w:footnoteReference/></w:r><w:r><w:commentReference/></w:r>"), "", ""),
        (p(run("Rent is due.") + '<w:r><w:pict><v:imagedata r:id="gone"/></w:pict></w:r>'), "", ""),
        (p(run("Rent is due.") + '<w:r><w:footnoteReference w:id="9"/></w:r>'), "", ""),
    ],
)
def test_what_a_text_does_not_need_may_be_missing(body, styles, links):
    assert read(body, styles, links).text == "Rent is due.\n"


def test_damaged_remarks_do_not_matter_as_they_are_left_out():
    links, body = "a comments comments.xml", p(run("Rent is due.") + '<w:r><w:commentReference w:id="1"/></w:r>')
    document = read(body, "", links, comments_xml=f"<w:comments {SPACES}><w:comment/></w:comments>")
    assert (document.text, document.notices) == ("Rent is due.\n", ("a.docx has 1 remark: octavo leaves it out.",))


def test_objects_in_a_text_are_told():
    shown = '<w:r><w:object><v:shape/><o:OLEObject xmlns:o="urn:o" Type="Embed" ProgID="Package"/></w:object></w:r>'
    assert read(p(run("Rent is due.") + shown)).notices == ("a.docx has 1 embedded object: octavo leaves it out.",)


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ('<w:rStyle w:val="Up"/>', "10^4 meshes"),
        ('<w:rStyle w:val="Own"/>', "10^4 meshes"),
        ('<w:position w:val="6"/>', "10^4 meshes"),
        ('<w:position w:val="0"/>', "104 meshes"),
        ('<w:rStyle w:val="Up"/><w:vertAlign w:val="baseline"/>', "104 meshes"),
    ],
)
def test_powers_are_marked_however_they_are_raised(properties, text):
    styles = '<w:style w:type="character" w:styleId="{}"><w:name w:val="{}"/>{}</w:style>'
    styles = styles.format("Up", "up", '<w:rPr><w:vertAlign w:val="superscript"/></w:rPr>') + styles.format(
        "Own", "own", '<w:basedOn w:val="Up"/>'
    )
    assert read(p(run("10") + run("4", properties) + run(" meshes")), styles).text == f"{text}\n"


def cell(text, properties=""):
    return f"<w:tc><w:tcPr>{properties}</w:tcPr>{p(text)}</w:tc>"


def test_rows_that_begin_later_and_end_earlier_keep_their_columns():
    inner = f"<w:tbl><w:tr>{cell('Oars')}{cell('8')}</w:tr></w:tbl>"
    rows = (
        cell("Boat") + cell("Tonnes", '<w:gridSpan w:val="2"/>'),
        '<w:trPr><w:gridBefore w:val="1"/></w:trPr>' + cell("23") + cell("24"),
        f'<w:trPr><w:gridAfter w:val="1"/></w:trPr>{cell("Ling")}<w:tc>{inner}{p("")}</w:tc>',
    )
    text = read(f"<w:tbl>{''.join(f'<w:tr>{row}</w:tr>' for row in rows)}</w:tbl>").text
    assert text.splitlines()[::2] == ["| Boat | Tonnes | Tonnes |", "|  | 23 | 24 |"]
    assert text.endswith("| Ling | Oars 8 |  |\n")


@pytest.mark.parametrize(("font", "is_code"), [("Consolas", True), ("Monotype Corsiva", False)])
def test_code_is_known_by_its_font(font, is_code):
    text = read(p(run("a = 1", f'<w:rFonts w:ascii="{font}" w:hAnsi="{font}"/>')) + p("Plain text.")).text
    assert text.startswith("```\na = 1\n```" if is_code else "a = 1\n")


DRAWN = 'xmlns:wp="wp" xmlns:wps="wps"'


def drawn(text, hidden, old=""):
    box = f"<w:txbxContent>{p(text)}</w:txbxContent>"
    anchor = f'<wp:anchor><wp:docPr id="1" hidden="{hidden}"/><wps:wsp>{box}</wps:wsp></wp:anchor>'
    new = f"<w:drawing {DRAWN}>{anchor}</w:drawing>"
    old = f'<mc:Fallback><w:pict><v:shape style="{old}"><v:textbox>{box}</v:textbox></v:shape></w:pict></mc:Fallback>'
    return f"<w:r><mc:AlternateContent><mc:Choice>{new}</mc:Choice>{old}</mc:AlternateContent></w:r>"


def test_hidden_boxes_are_left_out_and_counted():
    old = f'<w:r><w:pict><v:rect style="width:9; visibility: hidden"><v:textbox><w:txbxContent>{p("no")}'
    old += "</w:txbxContent></v:textbox></v:rect></w:pict></w:r>"
    group = drawn("shown", 0).replace("<wps:wsp>", '<wps:wsp><wps:cNvPr hidden="1"/><w:p/></wps:wsp><wps:wsp>')
    group = group.replace("<mc:Fallback>", '<mc:Fallback><w:pict><v:shape style="visibility:hidden"/></w:pict>')
    document = read(p(run("Log")) + p(drawn("gone", 1)) + p(old) + p(group))
    assert document.text == "Log\n\nshown\n"
    assert document.notices == ("a.docx has 3 hidden shapes: octavo leaves them out.",)
