"""Test what becomes of HTML, EPUB and DOCX."""

import random

import pytest
from helpers.document_files import BOOK, PAGE, word_file, word_parts, zipped

from octavo.documents.archive import Archive
from octavo.documents.document import Document
from octavo.documents.docx import read_docx
from octavo.documents.epub import read_epub
from octavo.documents.html import read_html
from octavo.errors import OctavoError


def test_what_html_says_survives_and_the_site_around_it_does_not():
    text = read_html(PAGE.encode("latin-1"), "page.html").text
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
    ],
)
def test_what_becomes_of_an_element(html, text):
    assert read_html(html.encode(), "page.html").text == text + "\n"


def test_headings_of_html_are_places():
    document = read_html(PAGE.encode("latin-1"), "page.html")
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
    assert read_html(html, "page.html").text == "Маяк\n"


def test_html_that_names_the_wrong_encoding_is_read_in_one_that_can_be_told():
    said = "Смотритель маяка записывал каждый корабль, что проходил мимо острова этой зимой."
    document = read_html(f'<meta charset="utf-8"><p>{said}</p>'.encode("cp1251"), "page.html")
    assert document.text == said + "\n"
    assert document.notices == (
        "page.html is read as cp1251: give its --encoding, or save it as UTF-8, if that is wrong.",
    )


def test_html_that_names_no_encoding_is_what_browsers_take_it_for():
    document = read_html("<p>The café naïveté – “quoted” € 20.</p>".encode("cp1252"), "page.html")  # noqa: RUF001
    assert document.text == "The café naïveté – “quoted” € 20.\n"  # noqa: RUF001
    assert document.notices[0].startswith("page.html is read as cp1252: ")


def test_html_keeps_the_encoding_that_it_names_despite_a_bad_byte():
    html = '<meta charset="shift_jis"><p>' + "灯台守は島のそばを通る。" * 40
    document = read_html(html.encode("cp932") + b"\x81.", "page.html")
    assert document.text == "灯台守は島のそばを通る。" * 40 + "�.\n"
    assert document.notices == ("page.html has bytes that are not cp932, the first in line 1: they are read as �.",)


def test_latin_1_is_what_browsers_take_it_for():
    html = '<meta charset="iso-8859-1"><p>“Fog”</p>'.encode("cp1252")
    assert read_html(html, "page.html").text == "“Fog”\n"


def test_html_may_leave_out_end_tags():
    items, table = b"<ul><li>a<li>b<ul><li>c</ul></ul>", b"<table><tr><td>1<td>2<tr><td>3<td>4</table>"
    html = b"<html><head><title>T</title><body>" + items + table
    assert read_html(html, "page.html").text == "# T\n\n- a\n- b\n  - c\n\n| 1 | 2 |\n| --- | --- |\n| 3 | 4 |\n"


def test_a_title_heads_a_page_without_a_heading():
    assert read_html(b"<title>Log &amp; Book</title><p>One<p>Two", "page.html").text == "# Log & Book\n\nOne\n\nTwo\n"


def test_marks_of_pages_are_not_taken_from_a_text():
    assert read_html("<p>\ue000a\ue001b</p>".encode(), "page.html").text == "ab\n"


@pytest.mark.parametrize(
    "html",
    [
        "<pre>a" + " " * 100_000 + "b</pre>",
        "".join(f"<span role='doc-pagebreak' title='{i}'></span>" for i in range(60)) + "x",
        "<table>" * 90 + "<tr><td>a<td>b",
        "<h1>" + "[" * 50_000,
    ],
)
def test_no_html_takes_long(html):
    """A search that goes back and forth would hang here."""
    read_html(html.encode(), "page.html")


def test_html_that_is_nested_without_end_is_refused():
    with pytest.raises(OctavoError, match=r"^page\.html cannot be read|elements of page\.html are nested"):
        read_html(b"<div>" * 3000 + b"deep", "page.html")


def read_book(files):
    return read_epub(Archive(zipped(files), "book.epub"))


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
    return read_docx(Archive(content, "report.docx"), content)


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


FORMULA = """<m:oMath xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"><m:r><m:t>E=</m:t></m:r>
<m:f><m:num><m:r><m:t>m</m:t></m:r></m:num><m:den><m:r><m:t>2</m:t></m:r></m:den></m:f>
<m:sSup><m:e><m:r><m:t>c</m:t></m:r></m:e><m:sup><m:r><m:t>2</m:t></m:r></m:sup></m:sSup>
<m:nary><m:naryPr><m:chr m:val="∑"/></m:naryPr><m:sub><m:r><m:t>i</m:t></m:r></m:sub><m:sup/>
<m:e><m:rad><m:deg/><m:e><m:r><m:t>x</m:t></m:r></m:e></m:rad></m:e></m:nary></m:oMath>"""


def test_formulas_of_a_word_document_are_written_in_a_line():
    parts = word_parts()
    written = parts["word/document.xml"].replace(b"</w:p>", FORMULA.encode() + b"</w:p>", 1)
    assert (
        "# The Lighthouse$E=(m)/(2)c^{2}∑_{i} √(x)$\n"
        in read_word(zipped({**parts, "word/document.xml": written})).text
    )


def test_html_with_some_damaged_bytes_is_read():
    document = read_html('<meta charset="utf-8"><p>Маяк и туман'.encode() + b"\xff.", "page.html")
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
    "book.epub": (lambda: zipped(BOOK), lambda content: read_epub(Archive(content, "book.epub"))),
    "report.docx": (word_file, lambda content: read_docx(Archive(content, "report.docx"), content)),
    "page.html": (lambda: PAGE.encode("latin-1"), lambda content: read_html(content, "page.html")),
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
