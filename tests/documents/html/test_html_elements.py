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
        ("<p>2<i><sup>n+1</sup></i> and <b><sub>x</sub></b></p>", "2^{n+1} and x"),
        ('<p>a<a href="#n" role="doc-noteref"><sup>1</sup></a> b</p>', "a[1] b"),
        ('<p>a<a href="#n" style="vertical-align: super">1</a> b</p>', "a[1] b"),
        ("<h2><button>When?</button></h2><div hidden>At nine.</div>", "## When?\n\nAt nine."),
        ("<dl><dt><button type=button>Cost?</button><dd style='display:none'>Ten.</dl>", "Cost?\n:   Ten."),
        ("<table><tr><td class=gutter><pre>1\n2</pre><td><pre>a\n b</pre></table>", "```\na\n b\n```"),
        ("<pre><span class=ln>1</span>a = 1\n<span class=ln>2</span>b = 2</pre>", "```\na = 1\nb = 2\n```"),
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


ACCORDION = "<div><h2><button data-bs-target='#a'>{}</button></h2><div id=a class=collapse{}><p>{}</p></div></div>"


@pytest.mark.parametrize(
    ("html", "text"),
    [
        (ACCORDION.format("When?", "", "At nine."), "## When?\n\nAt nine."),
        (ACCORDION.format("When?", " hidden", "At nine."), "## When?\n\nAt nine."),
        ("<details><summary><button>When?</button></summary>At nine.</details>", "When?\nAt nine."),
        ("<dl><dt><button aria-expanded=false>When?</button><dd style='display:none'>At nine.", "When?\n:   At nine."),
        (
            "<button class=accordion>When?</button><div class=panel style='display: none'><p>At nine.</div>",
            "When?\n\nAt nine.",
        ),
        (
            "<div><button role=tab aria-controls=t>Tides</button></div><div id=t aria-hidden=true>High.</div>",
            "Tides\n\nHigh.",
        ),
        ("<ul><li><a role=tab href='#t'>Tides</a></ul><div id=t hidden>High.</div>", "- Tides\n\nHigh."),
        ("<div role=tabpanel hidden>High.</div><div hidden=until-found>Low.</div>", "High.\n\nLow."),
        ("<form><button>Send</button><div>Later.</div></form><p>a <button>Copy</button>", "Later.\n\na"),
    ],
)
def test_accordions_and_tabs_are_read_with_what_they_open(html, text):
    assert read(html) == text


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<p>a<aside>Never dry.</aside><p>b", "a\n\nNever dry.\n\nb"),
        ("<main><p>a</main><aside>Advertisement</aside>", "a"),
        ("<header><h1>Title</h1><p>Ane Holm</header><p>b", "# Title\n\nAne Holm\n\nb"),
        ("<header><h1>Site</h1></header><h1>Title</h1><p>b", "# Title\n\nb"),
        ("<blockquote><p>a<footer>Ane, 1998</footer></blockquote>b", "> a\n>\n> Ane, 1998\n\nb"),
        ("<figure>a<header>b</header></figure>", "a\n\nb"),
        ("<p>a<footer role=doc-footnote>1. A note.</footer>", "a\n\n1. A note."),
        ("<table><tr><td>a<td>b<footer>c</footer></table>", "| a | b c |\n| --- | --- |"),
    ],
)
def test_margins_of_a_part_of_a_page_belong_to_its_text(html, text):
    assert read(html) == text


HIGH, LOW = "def tide():", "    # high\n    return 9"
CODE = f"{HIGH}\n{LOW}"
LINE = "<span style='display:block'>{}</span>"


@pytest.mark.parametrize(
    "html",
    [
        "<pre><code><b>def <i>tide</i>():</b>\n<span>    <em># high</em></span>\n    return 9</code></pre>",
        f"<pre><code><div>{HIGH}</div><div>    # high</div><div>    return 9</div></code></pre>",
        f"<pre>{LINE.format(HIGH)}{LINE.format('    # high')}    return 9</pre>",
        f"<pre>{HIGH}<br>    # high<br>    return 9<button>Copy</button></pre>",
        f"<table><tr><td><pre class=linenos>1\n2\n3</pre><td><pre>{CODE}</pre></table>",
        f"<pre><span class=lineno>1 </span>{HIGH}\n<span class=lineno>2 </span>{LOW}\n</pre>",
        f"<pre><a aria-hidden=true></a>{HIGH}\n<a aria-hidden=true></a>    # high\n    <u>return <s>9</s></u></pre>",
    ],
)
def test_code_in_colours_keeps_its_lines(html):
    assert read(html) == f"```\n{CODE}\n```"


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<ol style='list-style-type: lower-alpha'><li>x<li>y</ol>", "a. x\nb. y"),
        ("<ol style='list-style: outside upper-roman'><li>x<li>y</ol>", "I. x\nII. y"),
        ("<ol type=a style='list-style-type:decimal-leading-zero'><li>x</ol>", "01. x"),
        ("<ol><li style='list-style-type: lower-latin'>x<li type=I>y</ol>", "a. x\nII. y"),
        ("<ol style='list-style: none'><li>x</ol>", "- x"),
        ("<ul style='list-style-type: lower-roman'><li>x<li>y</ul>", "i. x\nii. y"),
        ("<ol style='list-style-type: lower-greek'><li>x<li>y</ol>", "\u03b1. x\n\u03b2. y"),
        ("<ol style='list-style-type: cjk-ideographic' start=12><li>x</ol>", "十二. x"),
        ("<style>ol{list-style-type:hebrew}</style><ol start=15><li>x</ol>", "\u05d8\u05d5. x"),
        ("<ol reversed><li>x<li>y<ol><li>z</ol><li>w</ol>", "3. x\n2. y\n   1. z\n1. w"),
        ("<ol reversed start=10 type=A><li>x<li>y<li value=3>z<li>w</ol>", "J. x\nI. y\nC. z\nB. w"),
    ],
)
def test_items_have_the_numbers_that_the_page_shows(html, text):
    assert read(html) == text


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<svg><foreignObject><div><p>Ask</p></div></foreignObject><text>b</text></svg>", "Ask\n\nb"),
        ("<svg><text><tspan x=1 dy=0>quay</tspan><tspan x=1 dy=16>is</tspan></text></svg>", "quay is"),
        ("<svg><text>qu<tspan dy=0>ay</tspan> <tspan font-weight=bold>4</tspan></text></svg>", "quay 4"),
        ("<svg><switch><foreignObject><b>a</b></foreignObject><text>a</text></switch></svg>", "**a**"),
        ("<svg><style>.a{}</style><desc>no</desc><a><text>yes</text></a></svg>", "yes"),
        ("<p>See <svg><title>a ship</title></svg> there.", "See a ship there."),
        ("<p><span style='display: block'>a</span><span style='display:flex'>b</span>c", "a\nb\nc"),
        (
            "<p><a style='display:block'>a</a><b style='display: block'>b</b>c<img alt=d style='display:block'>e",
            "a\n**b**\nc\n![d]\ne",
        ),
        ("10<span style='vertical-align:super'>5</span> l, log<i style='vertical-align: sub'>2</i>8", "10^5 l, log_28"),
        ("late<sup>(<a href=#n>1</a>)</sup>, early<sup><a href=#m>2</a></sup>", "late(1), early[2]"),
        ("<style>.up{vertical-align:super}</style>10<span class=up>-4</span> g", "10^-4 g"),
        (
            "<h3><button id=q aria-expanded=false>Why?</button></h3><div aria-labelledby=q hidden>So.</div>",
            "### Why?\n\nSo.",
        ),
        ("<x-a><template shadowrootmode=open><h2>Open</h2><p>At nine.</template></x-a>", "## Open\n\nAt nine."),
        (
            "<x-a><template shadowrootmode=closed><h2><slot name=t>no</slot></h2><slot>none</slot></template>"
            "<p>At nine.</p><i slot=t><b></b>Open</i></x-a>",
            "## *Open*\n\nAt nine.",
        ),
        ("<x-a><template shadowrootmode=open><slot>none</slot></template></x-a><template>no</template>", "none"),
        ("<p><![CDATA[if a < 4 & b]]></p>", "if a < 4 & b"),
        (
            '<p xmlns:m="http://www.w3.org/1998/Math/MathML"><m:math><m:mfrac><m:mn>1</m:mn><m:mn>2</m:mn></m:mfrac></m:math>',
            r"$\frac{1}{2}$",
        ),
    ],
)
def test_what_a_browser_shows_is_read(html, text):
    assert read(html) == text


@pytest.mark.parametrize("text", ["# 12 ropes", "```", "~~~", "---", "==="])
def test_a_text_on_a_page_is_no_mark(text):
    document = extract_html(f"<h1>Stores</h1><p>The shed:<br>{text}</p><p># 9 oars</p>".encode(), "a.html")
    assert [place.heading for place in document.places] == ["Stores"]
    assert document.text == f"# Stores\n\nThe shed:\n\\{text}\n\n\\# 9 oars\n"


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<title>T</title><section><p>One.</p></section><p>Two.", "# T\n\nOne.\n\nTwo."),
        ("<meta charset=utf-8><main>One.<p>Two.</main>", "One.\n\nTwo."),
        ("<title>T</title><article>One.</article><style>p { }</style><section>Two.</section>", "# T\n\nOne.\n\nTwo."),
        ("<html><head><title>T</title><details><p>One.</details><p>Two.", "# T\n\nOne.\n\nTwo."),
        ("<link rel=icon href=x><script>no</script><my-app>One.</my-app> Two.", "One. Two."),
    ],
)
def test_a_page_without_a_body_is_read(html, text):
    """Any element but those of a head begins the body, also one that is newer than the parser."""
    assert read(html) == text
