"""Test that chapters of books are found, with the headings that their tables of contents name."""

import unicodedata

import pytest
from helpers.document_files import CONTAINER, zipped

from octavo.documents.archive import Archive
from octavo.documents.extract import extract_document
from octavo.documents.html.epub import extract_epub
from octavo.documents.html.fiction_book import extract_fiction_book
from octavo.documents.left_out import LeftOut
from octavo.errors import OctavoError

ITEM = '<item id="i{0}" href="{1}" media-type="application/xhtml+xml"/>'
NAV = '<html xmlns:epub="e"><body><nav epub:type="toc"><ol>{}</ol></nav></body></html>'
NCX = '<ncx xmlns="n"><navMap>{}</navMap></ncx>'
POINT = "<navPoint><navLabel><text>{}</text></navLabel><content src='{}'/>{}</navPoint>"


def book(chapters, hrefs=None, more="", **files):
    items = "".join(ITEM.format(number, href) for number, href in enumerate(hrefs or chapters)) + more
    spine = "".join(f'<itemref idref="i{number}"/>' for number in range(len(hrefs or chapters)))
    package = f'<package xmlns="p"><manifest>{items}</manifest><spine>{spine}</spine></package>'
    files = {"META-INF/container.xml": CONTAINER, "OEBPS/book.opf": package, **files}
    files |= {f"OEBPS/{name}": f"<html><body>{text}</body></html>" for name, text in chapters.items()}
    return extract_epub(Archive(zipped(files), "book.epub"))


def with_contents(chapters, kind, points):
    files = {f"OEBPS/toc.{kind}": NAV.format(points) if kind == "xhtml" else NCX.format(points)}
    media = "application/xhtml+xml" if kind == "xhtml" else "application/x-dtbncx+xml"
    properties = ' properties="nav"' if kind == "xhtml" else ""
    return book(chapters, more=f'<item id="toc" href="toc.{kind}" media-type="{media}"{properties}/>', **files)


@pytest.mark.parametrize(
    ("name", "href"),
    [
        ("c.xhtml", "c.xhtml#start"),
        ("c%20d.xhtml", "c%20d.xhtml"),
        ("c d.xhtml", "c%20d.xhtml"),
        ("C.XHTML", "c.xhtml"),
        ("c.xhtml", "./x/../C.xhtml"),
        ("c#d.xhtml", "c%23d.xhtml"),
        (unicodedata.normalize("NFD", "å.xhtml"), "%C3%A5.xhtml"),
        ("x/c.xhtml", "x\\c.xhtml"),
        ("c.xhtml", "/OEBPS/c.xhtml"),
    ],
)
def test_a_chapter_is_found_however_its_file_is_named(name, href):
    document = book({name: "<p>Text."}, [href])
    assert (document.text, document.notices) == ("Text.\n", ())


def test_a_chapter_of_several_links_is_read_once_and_one_that_is_missing_is_told():
    document = book({"a.xhtml": "<p>One."}, ["a.xhtml#1", "a.xhtml#2", "gone.xhtml"])
    assert document.text == "One.\n"
    assert document.notices == LeftOut({"missing chapter": 1}).notices("book.epub")


def test_a_book_of_pictures_is_refused_and_pictures_of_others_are_counted(tmp_path):
    pictures = {"a.xhtml": "<img src=a.png alt=''>", "b.xhtml": "<svg><image href=b.png /></svg>"}
    with pytest.raises(OctavoError, match=r"^book\.epub has only pictures: make a PDF of it, whose pages octavo"):
        book(pictures)
    document = book({**pictures, "c.xhtml": "<p>Text."})
    assert document.notices == LeftOut(picture=2).notices("book.epub")


CHAPTERS = {
    "a.xhtml": "<p class=x>The <i>east</i> light</p><p>It burns.",
    "b.xhtml": "<div>2<br></div><div>West</div><p>Dark.",
}
LINKS = "<li><a href='a.xhtml'>The east light</a></li><li><a href='b.xhtml'>2. West</a></li>"
POINTS = POINT.format("The east light", "a.xhtml", "") + POINT.format("2. West", "b.xhtml", "")


@pytest.mark.parametrize(("kind", "points"), [("xhtml", LINKS), ("ncx", POINTS)])
def test_lines_that_the_contents_name_are_headings(kind, points):
    document = with_contents(CHAPTERS, kind, points)
    assert document.text == "# The *east* light\n\nIt burns.\n\n# 2 West\n\nDark.\n"
    assert [place.heading for place in document.places] == ["The *east* light", "2 West"]


@pytest.mark.parametrize(
    ("text", "points", "headings"),
    [
        ("<h2>One</h2><p>Text.", POINT.format("One", "a.xhtml", ""), ["One"]),
        ("<p>I<h2>One</h2><p>Text.", POINT.format("Chapter one", "a.xhtml", ""), ["One"]),
        ("<p>Text alone.<p>More.", POINT.format("Preface", "a.xhtml", ""), ["Preface"]),
        (
            "<p>One<p>Text.<p><a id=s></a>Two<p>More.",
            POINT.format("One", "a.xhtml", POINT.format("Two", "a.xhtml#s", "")),
            ["One", "One > Two"],
        ),
        ("<div id=s><p>One<p>Text.</div>", POINT.format("ONE", "a.xhtml#s", ""), ["One"]),
        ("<p>Text.", POINT.format("Gone", "gone.xhtml", "") + POINT.format("Lost", "a.xhtml#lost", ""), []),
        ("", POINT.format("Cover", "a.xhtml", ""), []),
    ],
)
def test_a_heading_stands_where_the_contents_lead(text, points, headings):
    document = with_contents({"a.xhtml": text, "z.xhtml": "<p>End."}, "ncx", points)
    assert [place.heading for place in document.places] == headings


def test_damaged_contents_are_passed_over():
    assert with_contents({"a.xhtml": "<p>Text."}, "ncx", "<a>").text == "Text.\n"


FB2 = """<FictionBook xmlns="f"><description><title-info><book-title>Log</book-title><annotation>
<p>Of <emphasis>ninety</emphasis>
ships.</p></annotation><sequence name="Coast" number="2"/></title-info></description>
<body><image/><section><p>Fog.</p></section>
</body></FictionBook>"""


def test_a_fiction_book_begins_with_its_annotation_and_series(tmp_path):
    (tmp_path / "a.fb2").write_text(FB2, encoding="utf-8")
    document = extract_document(tmp_path / "a.fb2")
    assert document.text == "# Log\n\nCoast 2\n\n> Of *ninety* ships.\n\nFog.\n"
    assert document.notices == LeftOut(picture=1).notices("a.fb2")


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("<p>10<sup>6</sup> l, H<sub>2</sub>O, 2<sup>n+1</sup></p>", "10^6 l, H2O, 2^{n+1}"),
        ("<subtitle>* * *</subtitle><subtitle>Fog</subtitle><p>So.</p>", "* * *\n\n### Fog\n\nSo."),
        ("<p>Type <code>make all</code> now.</p>", "Type `make all` now."),
        ("<p><code>if n:</code></p><p><code>    go(n)</code></p><p>So.</p>", "```\nif n:\n    go(n)\n```\n\nSo."),
    ],
)
def test_powers_and_code_of_fiction_books(body, text):
    book = f"<FictionBook><body><section>{body}</section></body></FictionBook>"
    assert extract_fiction_book(book.encode(), "a.fb2").text.removeprefix("#").strip() == text
