"""Test what becomes of HTML, EPUB and DOCX."""

import random
import re

import pytest
from helpers.document_files import BOOK, PACKAGE, PAGE, word_file, word_parts, zipped

from octavo.documents.archive import Archive
from octavo.documents.document import Document
from octavo.documents.html.epub import extract_epub
from octavo.documents.html.html import extract_html
from octavo.documents.office.docx import extract_docx
from octavo.errors import OctavoError


def test_what_html_says_survives_and_the_site_around_it_does_not():
    text = extract_html(PAGE.encode("latin-1"), "page.html").text
    for part in (
        "# The Lighthouse\n",
        "The keeper wrote **each** ship down at the log",
        "## Ships\n",
        "- Petrel\n  - of Leith\n- Gannet\n",
        "1. first\n2. second\n",
        "| Ship | Port |\n| --- | --- |\n| Petrel | Leith |\n",
        "```\nring(bell)\n  twice\n```",
        "> Fog again.",
        "A ship",
    ):
        assert part in text
    for part in (
        "Site name",
        "Home",
        "alert",
        "color",
        "not this",
        "hidden",
        "gone",
        "Advertisement",
        "Imprint",
        "/log",
    ):
        assert part not in text


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<p>Fog\n   and&nbsp;ice</p><pre>a\n  b</pre>", "Fog and ice\n\n```\na\n  b\n```"),
        ("<p>10<sup>6</sup>, the 19<sup>th</sup></p>", "10^6, the 19th"),
        ("<p>so.<sup><a href='#1'>1</a></sup> no.<sup>[2]</sup></p>", "so.[1] no.[2]"),
        ("<h1>Log<a href='#log'>¶</a></h1><p>A note. <a href='#r1'>↩</a></p>", "# Log\n\nA note."),
        ("<p>So <math><mi>x</mi><annotation>x^2</annotation></math> is.</p>", "So $x^2$ is."),
        ("<table><tr><td>a|b</td><td>c</td></tr></table>", "| a\\|b | c |\n| --- | --- |"),
        ("<table><tr><td><table><tr><td>a<td>b</table><td>c</table>", "| a | b |\n| --- | --- |\n\nc"),
        ("<table><tr><td><p>One<p>Two</table>", "One\n\nTwo"),
        (
            "<table><tr><td>Ship<td>Cargo<tr><td>Petrel<td>"
            "<table><tr><td>Salt<td>4 t<tr><td>Tar<td>9 t</table></table>",
            "| Ship | Cargo |\n| --- | --- |\n| Petrel | Salt 4 t, Tar 9 t |",
        ),
        (
            "<table><tr><td rowspan=2>North<td>Petrel<td>7<tr><td>Tern<td>3<tr><td colspan=2>All<td>10</table>",
            "| North | Petrel | 7 |\n| --- | --- | --- |\n| North | Tern | 3 |\n| All | All | 10 |",
        ),
        (
            "<table><tr><td>a<td rowspan=9>b<td>c<tr><td>d<td>e<tr><td>f</table>",
            "| a | b | c |\n| --- | --- | --- |\n| d | b | e |\n| f | b |  |",
        ),
        ("<p>The un&shy;im&shy;portant zero&#8203;width", "The unimportant zerowidth"),
        ("<ruby>港<rp>(</rp><rt>みなと</rt><rp>)</rp></ruby>の<ruby>橋<rt>はし</ruby>", "港(みなと)の橋(はし)"),
        (
            "<form><label>Ship <input value=Petrel></label><label>Port "
            "<select><option>Leith<option selected>Oban</select></label> <input type=checkbox checked> insured"
            "<input type=radio> not<input type=hidden value=x></form>",
            "Ship Petrel Port Oban [x] insured [ ] not",
        ),
        ("<select><option>Leith<option>Oban</select> <textarea>Twice\na week</textarea>", "Leith Twice a week"),
        ("<ol type=a start=2><li>x<li>y<ol><li>z</ol></ol>", "b. x\nc. y\n   1. z"),
        ("<article><p>One<aside>A box</aside></article><aside>Advertisement</aside>", "One\n\nA box"),
    ],
)
def test_what_becomes_of_an_element_is_what_is_on_the_page(html, text):
    assert extract_html(html.encode(), "page.html").text == text + "\n"


def test_headings_of_html_are_places():
    document = extract_html(PAGE.encode("latin-1"), "page.html")
    assert document.place(document.text.index("Gannet")).heading == "The Lighthouse > Ships"


@pytest.mark.parametrize(
    "html",
    [
        '<meta charset="windows-1251"><p>Маяк</p>'.encode("cp1251"),
        b"\xef\xbb\xbf" + "<p>Маяк".encode(),
        "<?xml version='1.0' encoding='utf-8'?><html><p>Маяк</p></html>".encode(),
        '<meta charset="utf-16"><p>Маяк</p>'.encode(),
    ],
)
def test_html_says_its_encoding(html):
    assert extract_html(html, "page.html").text == "Маяк\n"


def test_html_that_names_the_wrong_encoding_is_read_in_one_that_can_be_told():
    said = "Смотритель маяка записывал каждый корабль, что проходил мимо острова этой зимой."
    document = extract_html(f'<meta charset="utf-8"><p>{said}</p>'.encode("cp1251"), "page.html")
    assert document.text == said + "\n"
    assert document.notices == (
        "page.html is read as cp1251: give its `encoding`, or save it as UTF-8, if that is wrong.",
    )


def test_html_that_names_no_encoding_is_what_browsers_take_it_for():
    document = extract_html("<p>The café naïveté – “quoted” € 20.</p>".encode("cp1252"), "page.html")  # noqa: RUF001
    assert document.text == "The café naïveté – “quoted” € 20.\n"  # noqa: RUF001
    assert document.notices[0].startswith("page.html is read as cp1252: ")


def test_html_keeps_the_encoding_that_it_names_despite_a_bad_byte():
    html = '<meta charset="shift_jis"><p>' + "灯台守は島のそばを通る。" * 40
    document = extract_html(html.encode("cp932") + b"\x81.", "page.html")
    assert document.text == "灯台守は島のそばを通る。" * 40 + "�.\n"
    assert document.notices == ("page.html has bytes that are not cp932, the first in line 1: they are read as �.",)


def test_latin_1_is_what_browsers_take_it_for():
    html = '<meta charset="iso-8859-1"><p>“Fog”</p>'.encode("cp1252")
    assert extract_html(html, "page.html").text == "“Fog”\n"


def test_html_may_leave_out_end_tags():
    items, table = b"<ul><li>a<li>b<ul><li>c</ul></ul>", b"<table><tr><td>1<td>2<tr><td>3<td>4</table>"
    html = b"<html><head><title>T</title><body>" + items + table
    assert extract_html(html, "page.html").text == "# T\n\n- a\n- b\n  - c\n\n| 1 | 2 |\n| --- | --- |\n| 3 | 4 |\n"


def test_a_title_heads_a_page_without_a_heading():
    assert extract_html(b"<title>Log &amp; Book</title><p>One<p>Two", "p.html").text == "# Log & Book\n\nOne\n\nTwo\n"


@pytest.mark.parametrize(
    "html",
    [
        "<pre>a" + " " * 100_000 + "b</pre>",
        "".join(f"<span role='doc-pagebreak' title='{i}'></span>" for i in range(60)) + "x",
        "<table>" * 90 + "<tr><td>a<td>b",
        "<h1>" + "[" * 50_000,
        "<ol>" + "<li>a\n" * 20_000,
        "<p>a\nb</p>\n" * 20_000,
        "<p>" + "<!--a--><input value=a>\n" * 5000,
    ],
)
def test_no_html_takes_long(html):
    """A search that goes back and forth would hang here."""
    extract_html(html.encode(), "page.html")


def test_html_that_is_nested_without_end_is_refused():
    with pytest.raises(OctavoError, match=r"^page\.html cannot be read|elements of page\.html are nested"):
        extract_html(b"<div>" * 3000 + b"deep", "page.html")


def read_book(files):
    return extract_epub(Archive(zipped(files), "book.epub"))


def test_a_book_is_read_in_its_order():
    document = read_book(BOOK)
    assert document.text == "# One\n\nIt began here.\n\n# Two\n\nThe end.\n"
    assert document.place(document.text.index("began")) == (0, "7", "One")
    assert document.place(document.text.index("here")).page == "8"
    assert document.place(document.text.index("end")).heading == "Two"


def test_a_protected_book_is_refused_and_one_with_hidden_fonts_is_not():
    scheme = '<encryption><EncryptedData><EncryptionMethod Algorithm="{}"/></EncryptedData></encryption>'
    fonts = {**BOOK, "META-INF/encryption.xml": scheme.format("http://www.idpf.org/2008/embedding")}
    assert read_book(fonts).text == read_book(BOOK).text
    with pytest.raises(OctavoError, match=r"^book\.epub is protected \(DRM\): octavo reads books that are not\.$"):
        read_book({**BOOK, "META-INF/encryption.xml": scheme.format("http://www.w3.org/2001/04/xmlenc#aes128-cbc")})


def test_notes_and_boxes_of_a_book_stay():
    note = '<p>Text<a epub:type="noteref" href="#n">1</a>.</p><aside epub:type="footnote"><p>1. A note.</p></aside>'
    page = f"<html><body><header>Part I</header><aside><p>A box.</p></aside>{note}</body></html>"
    assert read_book({**BOOK, "OEBPS/one.xhtml": page}).text.startswith("Part I\n\nA box.\n\nText[1].\n\n1. A note.\n")


ABOUT = '<metadata xmlns:dc="d"><dc:title>The {}\n Book</dc:title><dc:creator>A. Writer</dc:creator></metadata>'


def test_a_book_begins_with_its_title_and_authors_once():
    about = PACKAGE.replace("<manifest>", ABOUT.format("Harbour") + "<manifest>")
    document = read_book({**BOOK, "OEBPS/book.opf": about})
    assert document.text.startswith("# The Harbour Book\n\nA. Writer\n\n# One\n\nIt began")
    assert document.place(document.text.index("began")) == (31, "7", "One")
    page = "<html><body><h1>THE HARBOUR BOOK</h1><p>by A. Writer</p></body></html>"
    text = read_book({**BOOK, "OEBPS/book.opf": about, "OEBPS/one.xhtml": page}).text
    assert text.startswith("# THE HARBOUR BOOK\n\nby A. Writer\n\n# Two")


LAUGHS = "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10}">' for i in range(1, 12))
BOMB = (
    f'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY l0 "ha">{LAUGHS}]><container><rootfile full-path="&l11;"/></container>'
)


def test_entities_that_explode_are_refused():
    with pytest.raises(OctavoError, match=r"^book\.epub is damaged"):
        read_book({**BOOK, "META-INF/container.xml": BOMB})
    parts = dict(word_parts())
    with pytest.raises(OctavoError, match=r"^report\.docx is damaged"):
        read_word(zipped({**parts, "word/document.xml": BOMB}))


def test_an_archive_that_explodes_is_refused():
    with pytest.raises(OctavoError, match=r"^book\.epub unpacks to 100 MiB in 1 files, which no document needs"):
        Archive(zipped({"a": bytes(100 << 20)}), "book.epub")


def read_word(content):
    return extract_docx(Archive(content, "report.docx"))


def test_what_a_word_document_says_survives():
    document = read_word(word_file())
    for part in (
        "# The Lighthouse\n",
        "# Ships\n",
        "The keeper wrote **each**",
        "- Petrel\n- Gannet\n",
        "1. first\n",
        "| Petrel | Leith |\n",
    ):
        assert part in document.text
    assert document.place(document.text.index("Gannet")).heading == "Ships"


LEVEL = '<w:lvl w:ilvl="{}"><w:start w:val="1"/><w:numFmt w:val="{}"/>{}<w:lvlText w:val="{}"/></w:lvl>'
LIST = '<w:abstractNum w:abstractNumId="{0}">{1}</w:abstractNum>'
LIST += '<w:num w:numId="{0}"><w:abstractNumId w:val="{0}"/></w:num>'
OF_HEADINGS = [LEVEL.format(i, "decimal", f'<w:pStyle w:val="Heading{i + 1}"/>', ("%1", "%1.%2")[i]) for i in (0, 1)]


def numbered(paragraphs):
    """A Word document of (text, list, level, style); list 77 is of headings, 81 of numbers, and 82 of letters."""
    parts, body = word_parts(), ""
    lists = LIST.format(77, "".join(OF_HEADINGS)) + LIST.format(81, LEVEL.format(0, "decimal", "", "%1."))
    lists += LIST.format(82, LEVEL.format(0, "lowerLetter", "", "%1)") + LEVEL.format(1, "upperRoman", "", "(%2)"))
    numbering = parts["word/numbering.xml"].decode()
    numbering = numbering.replace("</w:numbering>", f"{lists}</w:numbering>")
    for text, name, level, style in paragraphs:
        own = f'<w:numPr><w:ilvl w:val="{level}"/><w:numId w:val="{name}"/></w:numPr>' if name else ""
        body += f'<w:p><w:pPr><w:pStyle w:val="{style}"/>{own}</w:pPr><w:r>{text}</w:r></w:p>'
    document = parts["word/document.xml"].decode()
    document = document[: document.index("<w:body>") + 8] + body + document[document.index("<w:sectPr") :]
    return read_word(zipped({**parts, "word/numbering.xml": numbering, "word/document.xml": document})).text


def test_headings_of_a_word_document_have_their_numbers():
    headings = [("Scope", 77, 0, "Heading1"), ("Rent", 77, 0, "Heading1"), ("Amount", 77, 1, "Heading2")]
    headings += [("As clause 2.1 says.", 0, 0, "Normal"), ("Late", 77, 1, "Heading2"), ("End", 77, 0, "Heading1")]
    text = numbered([(f"<w:t>{text}</w:t>", *rest) for text, *rest in headings])
    assert text == "# 1 Scope\n\n# 2 Rent\n\n## 2.1 Amount\n\nAs clause 2.1 says.\n\n## 2.2 Late\n\n# 3 End\n"


def test_lists_of_a_word_document_have_their_own_numbers():
    items = [("one", 81, 0), ("two", 81, 0), ("x", 82, 0), ("in x", 82, 1), ("y", 82, 0), ("three", 81, 0)]
    text = numbered([(f"<w:t>{text}</w:t>", *rest, "Normal") for text, *rest in items])
    assert text == "1. one\n2. two\n  a) x\n    (I) in x\n  b) y\n3. three\n"


def test_hidden_text_of_a_word_document_is_left_out():
    hidden = (
        '<w:rPr><w:vanish/></w:rPr><w:t>secret</w:t></w:r><w:r><w:rPr><w:vanish w:val="0"/></w:rPr><w:t>plain</w:t>'
    )
    assert numbered([(hidden, 0, 0, "Normal")]) == "plain\n"


BOX = '<w:sdt><w:sdtPr><w14:checkbox xmlns:w14="http://schemas.microsoft.com/office/word/2010/wordml"><w14:checked '
BOX += 'w14:val="{}"/></w14:checkbox></w:sdtPr><w:sdtContent><w:r><w:t>☒</w:t></w:r></w:sdtContent></w:sdt><w:r>'


def test_boxes_of_a_word_document_show_whether_they_are_ticked():
    boxes = [f"</w:r>{BOX.format(ticked)}<w:t> {text}</w:t>" for ticked, text in ((1, "Crane"), (0, "Water"))]
    assert numbered([(box, 0, 0, "Normal") for box in boxes]) == "[x] Crane\n\n[ ] Water\n"


PARAGRAPH = "<w:p><w:r><w:t>{}</w:t></w:r>{}</w:p>"


def test_letterheads_of_a_word_document_are_read_once():
    space = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    number = '<w:fldSimple w:instr="PAGE"><w:r><w:t>7</w:t></w:r></w:fldSimple>'
    lines = PARAGRAPH.format("Harbour Office", "") + PARAGRAPH.format("The Lighthouse", "")
    head = f"<w:hdr {space}>{lines}{PARAGRAPH.format('page ', number)}</w:hdr>"
    foot = f"<w:ftr {space}>{PARAGRAPH.format('Tel. 4', '')}</w:ftr>"
    parts = word_parts()
    named, links = "", ""
    for path, part in {"header1.xml": head, "header2.xml": head, "footer1.xml": foot, "header3.xml": head}.items():
        parts[f"word/{path}"] = part.replace("Harbour", "Pilot") if path == "header3.xml" else part
        kind, page = path[:6], "even" if path == "header2.xml" else "default"
        if path != "header3.xml":  # which nothing names
            named += f'<w:{kind}Reference w:type="{page}" r:id="{path}"/>'
            links += f'<Relationship Id="{path}" Type="x/{kind}" Target="{path}"/>'
    section = (
        f'<w:sectPr xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships">{named}</w:sectPr>'
    )
    parts["word/document.xml"] = re.sub(rb"<w:sectPr.*</w:sectPr>", section.encode(), parts["word/document.xml"])
    parts["word/settings.xml"] = f"<w:settings {space}><w:evenAndOddHeaders/></w:settings>"
    rels = "word/_rels/document.xml.rels"
    parts[rels] = parts[rels].replace(b"</Relationships>", f"{links}</Relationships>".encode())
    text = read_word(zipped(parts)).text
    assert text.startswith("Harbour Office\n\n# The Lighthouse\n")
    assert text.endswith("| Petrel | Leith |\n\nTel. 4\n")
    assert text.count("Harbour") == text.count("Lighthouse") == 1
    assert "Pilot" not in text


FORMULA = """<m:oMath xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"><m:r><m:t>E=</m:t></m:r>
<m:f><m:num><m:r><m:t>m</m:t></m:r></m:num><m:den><m:r><m:t>2</m:t></m:r></m:den></m:f>
<m:sSup><m:e><m:r><m:t>c</m:t></m:r></m:e><m:sup><m:r><m:t>2</m:t></m:r></m:sup></m:sSup>
<m:nary><m:naryPr><m:chr m:val="∑"/></m:naryPr><m:sub><m:r><m:t>i</m:t></m:r></m:sub><m:sup/>
<m:e><m:rad><m:deg/><m:e><m:r><m:t>x</m:t></m:r></m:e></m:rad></m:e></m:nary></m:oMath>"""


def test_formulas_of_a_word_document_are_written_in_a_line():
    parts = word_parts()
    written = parts["word/document.xml"].replace(b"</w:p>", FORMULA.encode() + b"</w:p>", 1)
    assert (
        "# The Lighthouse$E=\\frac{m}{2}c^{2}∑_{i} \\sqrt{x}$\n"
        in read_word(zipped({**parts, "word/document.xml": written})).text
    )


def test_html_with_some_damaged_bytes_is_read():
    document = extract_html('<meta charset="utf-8"><p>Маяк и туман'.encode() + b"\xff.", "page.html")
    assert document.text == "Маяк и туман�.\n"
    assert document.notices == ("page.html has bytes that are not UTF-8, the first in line 1: they are read as �.",)


NOTES = """<w:footnotes xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main">
<w:footnote w:id="5"><w:p><w:r><w:t>Or so they say.</w:t></w:r></w:p></w:footnote></w:footnotes>"""
RELATION = (
    '<Relationship Id="rId99" Target="footnotes.xml" '
    'Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/footnotes"/></Relationships>'
)


def test_notes_of_a_word_document_follow_its_text():
    parts = word_parts()
    name = "word/_rels/document.xml.rels"
    parts[name] = parts[name].replace(b"</Relationships>", RELATION.encode())
    mark = b'<w:r><w:footnoteReference w:id="5"/></w:r></w:p>'
    parts["word/document.xml"] = parts["word/document.xml"].replace(b"</w:p>", mark, 1)
    text = read_word(zipped({**parts, "word/footnotes.xml": NOTES})).text
    assert "# The Lighthouse[1]\n" in text
    assert text.endswith("1. Or so they say.\n")


READERS = {
    "book.epub": (lambda: zipped(BOOK), lambda content: extract_epub(Archive(content, "book.epub"))),
    "report.docx": (word_file, lambda content: extract_docx(Archive(content, "report.docx"))),
    "page.html": (lambda: PAGE.encode("latin-1"), lambda content: extract_html(content, "page.html")),
}


def is_read_or_refused(name, content):
    """Whether a damaged file becomes a document, or an error that names it."""
    try:
        return isinstance(READERS[name][1](content), Document)
    except OctavoError as problem:
        return name in str(problem)


@pytest.mark.parametrize("name", READERS)
def test_damaged_files_are_read_or_refused(name):
    content, rng = READERS[name][0](), random.Random(7)
    for tenth in range(10):
        assert is_read_or_refused(name, content[: len(content) * tenth // 10])
    for _ in range(40):
        damaged = bytearray(content)
        for _ in range(rng.choice([1, 3, 20])):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        assert is_read_or_refused(name, bytes(damaged))


@pytest.mark.parametrize("name", ["book.epub", "report.docx"])
def test_damaged_parts_of_archives_are_read_or_refused(name):
    """As above, behind the checksums of the archive."""
    parts, rng = (BOOK if name == "book.epub" else word_parts()), random.Random(8)
    names = [part for part in parts if part.endswith(("xml", "opf", "rels"))]
    for _ in range(15):
        part = rng.choice(names)
        damaged = bytearray(parts[part] if isinstance(parts[part], bytes) else parts[part].encode())
        for _ in range(rng.choice([1, 3, 20])):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        assert is_read_or_refused(name, zipped({**parts, part: bytes(damaged)}))


def test_a_book_hides_what_its_style_sheet_hides_but_no_notes():
    page = '<html><head><link rel="stylesheet" href="../a%20b.css"/></head><body><p class="x">Hidden.</p><p>Seen.</p>'
    page += '<aside epub:type="footnote">1. A note.</aside></body></html>'
    document = read_book({**BOOK, "OEBPS/one.xhtml": page, "a b.css": ".x, aside {display: none}"})
    assert document.text.startswith("Seen.\n\n1. A note.\n")
    assert document.notices == ("book.epub has 1 hidden passage and 1 missing chapter: octavo leaves them out.",)
