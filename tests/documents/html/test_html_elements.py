"""Test what becomes of elements of HTML: what a page shows, once, and nothing of what it hides."""

import pytest
from helpers.document_files import word_parts, zipped

from octavo.documents.archive import Archive
from octavo.documents.extract import extract_document
from octavo.documents.html.html import extract_html
from octavo.documents.office.docx import extract_docx


def read(html):
    return extract_html(f"<!doctype html>{html}".encode(), "page.html").text.rstrip("\n")


LONG = "word " * 21
MATH = "<p>So <math{}>{}</math>.</p>"


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<p>a<b> x </b>c <i>y</i> , <b></b>d", "a **x** c *y* , d"),
        ("<b>a<strong>b</strong></b> <code>c <i>d</i></code>", "**ab** `c d`"),
        ("<p>a<br><br><br>b<br>c", "a\n\nb\nc"),
        ("<blockquote><p>a<p>b<ul><li>c</ul></blockquote>d", "> a\n>\n> b\n>\n> - c\n\nd"),
        ("<ul><li><p>a<p>b<li><li>c<ol><li>d</ol>e</ul>f", "- a\n\n  b\n- c\n  1. d\n  e\n\nf"),
        ("<ul><li>a<pre>x\n y</pre></ul>", "- a\n\n  ```\n  x\n   y\n  ```"),
        ("<pre>a<br>b</pre>", "```\na\nb\n```"),
        ("<dl><dt>a<dd>b<dd>c<dt>d<dd><p>e<p>f</dl>g", "a\n:   b\n    c\nd\n:   e\n\n    f\n\ng"),
        ("<h2>a<br>b <b>c</b></h2><h3></h3>d<hr>e", "## a b **c**\n\nd\n\n---\n\ne"),
        ("<details><summary>a</summary>b</details><address>c</address>d", "a\nb\n\nc\nd"),
        ("a<img alt='A  ship'>b<img>", "a ![A ship] b"),
        ("<video src=x>a</video>", "a"),
        ("<svg><title>Map</title><g><text>North</text><text>Sea</text></g></svg>", "Map North Sea"),
        (MATH.format(' alttext="x^2"', "<mi>y</mi>"), "So $x^2$."),
        (MATH.format("", '<mi>y</mi><annotation encoding="application/x-tex">x^2</annotation>'), "So $x^2$."),
        (MATH.format("", '<mi>y</mi><annotation encoding="StarMath 5.0">x^2</annotation>'), "So $y$."),
        (r'<img alt="{\displaystyle x^{2}}">', "$x^{2}$"),
        ("<header>a</header><p>b<footer>c</footer>", "b"),
        ("<header>a</header><footer>b</footer>", "a\n\nb"),
    ],
)
def test_what_becomes_of_an_element(html, text):
    assert read(html) == text


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<mfrac><mi>a</mi><mrow><mi>b</mi><mo>+</mo><mn>1</mn></mrow></mfrac>", r"\frac{a}{b+1}"),
        ("<mfrac linethickness=0><mi>n</mi><mi>k</mi></mfrac>", r"{n \atop k}"),
        ("<msqrt><mi>a</mi><mi>b</mi></msqrt><mroot><mi>c</mi><mn>3</mn></mroot>", r"\sqrt{ab}\sqrt[3]{c}"),
        ("<msup><mi>a</mi><mn>2</mn></msup><msub><mi>b</mi><mi>i</mi></msub>", "a^{2}b_{i}"),
        ("<munderover><mo>∑</mo><mi>i</mi><mi>n</mi></munderover><mi>sin</mi><mi>x</mi>", "∑_{i}^{n} sin x"),
        ("<mover><mi>v</mi><mo>→</mo></mover><munder><mi>lim</mi><mi>n</mi></munder>", r"\vec{v} lim _{n}"),
        ("<mfenced open='['><mi>a</mi><mi>b</mi></mfenced>", "[a,b)"),
        ("<mtable><mtr><mtd>1</mtd><mtd><mn>2</mn></mtd></mtr></mtable>", r"\begin{matrix} & 2\end{matrix}"),
        ("<semantics><mi>a</mi><annotation-xml><ci>b</ci></annotation-xml></semantics><mphantom>c</mphantom>", "a"),
    ],
)
def test_a_formula_is_written_in_a_line(html, text):
    assert read(f"<math>{html}</math>") == f"${text}$"


@pytest.mark.parametrize(
    "html",
    [
        "<p hidden>gone</p>",
        "<p style='DISPLAY : none'>gone</p>",
        "<p style='visibility:hidden'>gone</p>",
        "<p style='color:red;font-size:0'>gone</p>",
        "<p style='opacity: 0.0; x: y'>gone</p>",
        "<span aria-hidden=true>gone</span>",
        "<dialog>gone</dialog>",
        "<p style='color: #FFFFFF'>gone</p>",
        "<p style='color:white'>gone</p>",
    ],
)
def test_what_a_page_does_not_show_is_left_out(html):
    assert read(f"<p>One.</p>{html}<p>Two.</p>") == "One.\n\nTwo."


@pytest.mark.parametrize(
    "html",
    [
        "<div style='background: navy'><p style='color:white'>shown</p></div>",
        "<table bgcolor=black><tr><td style='color:white'>shown</table>",
        "<style>body { background: black }</style><p style='color:white'>shown</p>",
        "<p style='font-size:0.9em; opacity: 0.5'>shown</p>",
        "<p aria-hidden=false>shown</p>",
        "<dialog open>shown</dialog>",
    ],
)
def test_what_a_page_shows_is_read(html):
    assert read(html) == "shown"


@pytest.mark.parametrize(
    ("rows", "lines"),
    [
        ("<caption>Log<tr><th>a<th>b<tr><td>1|2<td>", ["Log", "", "| a | b |", "| --- | --- |", "| 1\\|2 |  |"]),
        ("<tr><td>a<td>b<tr><td>c<tr><td>", ["| a | b |", "| --- | --- |", "| c |  |"]),
        ("<tr><td colspan=2>Title<tr><td>a<td>b", ["| Title |  |", "| --- | --- |", "| a | b |"]),
        (
            "<tr><th>y<th>m<tr><th rowspan=3>20<tr><td>1<tr><td>2",
            ["| y | m |", "| --- | --- |", "| 20 | 1 |", "| 20 | 2 |"],
        ),
        ("<tr><td>a<td>b<tr><td rowspan=2>c<td rowspan=2>d", ["| a | b |", "| --- | --- |", "| c | d |"]),
        (
            f"<tr><td rowspan=2>{LONG}<td>b<tr><td>c",
            [f"| {LONG}| b |", "| --- | --- |", "|  | c |"],
        ),
        ("<tr><td>a<p>b<td><ul><li>c<li>d</ul>", ["| a b | - c - d |", "| --- | --- |"]),
        (
            "<tr><td>a<td>b<tr><td>c<td><table><tr><td>d<td><table><tr><td>e<td>f</table></table>",
            ["| a | b |", "| --- | --- |", "| c | d e f |"],
        ),
    ],
)
def test_each_row_of_a_table_stands_for_itself(rows, lines):
    assert read(f"<table>{rows}</table>").split("\n") == lines


@pytest.mark.parametrize(
    "rows",
    [
        "<tr>" + "<td rowspan=60000>x" * 1000 + "<tr><td>y" * 20_000,
        "<tr>" + "<td>x" * 1000 + "<tr><td colspan=1000>a word<td>y" * 5000,
        ("<tr>" + "<td colspan=1000>x" * 1000) * 50,
    ],
)
def test_spans_cannot_make_a_table_endless(rows):
    text = read(f"<table>{rows}</table>")
    assert len(text) < 5_000_000
    assert max(text.count("x"), text.count("y")) >= 1000


def test_pages_of_a_book_begin_where_their_text_does():
    page = "<a role='doc-pagebreak' aria-hidden=true title='{}'></a>"
    html = f"<p>a{page.format(1)} b</p>{page.format(2)}<table><tr><td>c<td>d</table><ul>{page.format(3)}<li>e</ul>"
    document = extract_html(html.encode(), "page.html")
    starts = [(document.text[place.offset :][:2], place.page) for place in document.places]
    assert starts == [("b\n", "1"), ("| ", "2"), ("- ", "3")]


@pytest.mark.parametrize("name", ["word/document2.xml", "word/document.xml"])
def test_word_numbers_its_document_at_times(tmp_path, name):
    parts = {part.replace("word/document.xml", name): content for part, content in word_parts().items()}
    parts = {part.replace("document.xml.rels", f"{name[5:]}.rels"): content for part, content in parts.items()}
    parts["_rels/.rels"] = parts["_rels/.rels"].replace(b"word/document.xml", name.encode())
    assert "- Petrel\n- Gannet\n" in extract_docx(Archive(zipped(parts), "x")).text
    (tmp_path / "x").write_bytes(zipped(parts))
    assert extract_document(tmp_path / "x").text.startswith("# The Lighthouse\n")
