"""Test that what a page's own style sheets hide is left out and told, and what they show is read."""

import pytest

from octavo.documents.html.html import extract_html

HIDDEN = ("page.html has 1 hidden passage: octavo leaves it out.",)


def page(sheet, body, media=""):
    return extract_html(f"<!doctype html><style{media}>{sheet}</style><p>One.</p>{body}".encode(), "page.html")


@pytest.mark.parametrize(
    ("sheet", "body"),
    [
        (".draft, .print-only { display: none }", "<p class='a draft'>gone</p>"),
        ("#old{visibility:hidden}", "<div id=old>gone</div>"),
        ("p.old[lang|=en] { font-size: 0px }", "<p class=old lang=en-GB>gone</p>"),
        ("div > p.x { opacity: 0 }", "<div><p class=x>gone</p></div>"),
        (".note { color: #fff }", "<p class=note>gone</p>"),
        (".far { position: absolute; left: -9999px }", "<p class=far>gone</p>"),
        ("@media screen { .a { display: none } } @media print { .a { display: block } }", "<p class=a>gone</p>"),
        ("@layer base { @supports (display: grid) { .a .b { display: none } } }", "<div class=a><p class=b>gone</div>"),
        (
            "/* .a { display: block } */ h1 + .a { display: none !important } .a { display: block }",
            "<h1></h1><p class=a>gone",
        ),
        ("@import 'x.css'; .a { display: none; }", "<p class=a>gone</p>"),
    ],
)
def test_what_a_sheet_hides_is_left_out_and_told(sheet, body):
    document = page(sheet, body)
    assert (document.text, document.notices) == ("One.\n", HIDDEN)


@pytest.mark.parametrize(
    ("sheet", "body"),
    [
        ("@media print { .a { display: none } }", "<p class=a>shown</p>"),
        ("@media (max-width: 600px) { .a { display: none } }", "<p class=a>shown</p>"),
        (".a { display: none } @media (min-width: 600px) { .w\\:a { display: block } }", "<p class='a w:a'>shown</p>"),
        (".a { display: none } p.a { display: block }", "<p class=a>shown</p>"),
        (".a { display: none } .a { display: block }", "<p class=a>shown</p>"),
        ("#b { display: block } .a { display: none }", "<p class=a id=b>shown</p>"),
        (".a { display: none }", "<p class=a style='display: block'>shown</p>"),
        (".a:not(.b) { display: none } .a::before { display: none }", "<p class='a b'>shown</p>"),
        (".a { opacity: 0 } .seen { opacity: 1 }", "<p class=a>shown</p>"),
        ("body { background: black } .a { color: white }", "<p class=a>shown</p>"),
        (".tab { display: none }", "<p><button onclick=\"show(event, 'b')\">B</button></p><p class=tab id=b>shown</p>"),
        ("{ .a { display: none", "<p class=a>shown</p>"),
    ],
)
def test_what_a_sheet_shows_is_read(sheet, body):
    document = page(sheet, body)
    assert document.text.endswith("shown\n")
    assert document.notices == ()


def test_a_sheet_for_printing_hides_nothing_on_the_screen():
    assert page(".a { display: none }", "<p class=a>shown", " media=print").text == "One.\n\nshown\n"


def test_a_sheet_says_what_stands_on_a_line_and_how_lists_are_numbered():
    sheet = ".line { display: block } ol.law { list-style: lower-alpha inside } ol ol { list-style-type: upper-roman }"
    body = "<p><span class=line>a</span><span class=line>b</span></p><ol class=law><li>c<ol><li>d</ol></ol>"
    assert page(sheet, body).text == "One.\n\na\nb\n\na. c\n   I. d\n"


def test_a_sheet_of_a_shadow_root_is_for_that_alone():
    shadow = (
        "<x-a><template shadowrootmode=open><style>.a{display:none}</style><p class=a>gone</p><slot></slot></template>"
    )
    assert page("", f"{shadow}<p class=a>shown</p></x-a><p class=a>too</p>").text == "One.\n\nshown\n\ntoo\n"


@pytest.mark.parametrize(
    ("sheet", "body"),
    [
        ("body { display: none } body.loaded { display: block }", ""),
        ("html { visibility: hidden }", ""),
        ("html, body { opacity: 0 } .old { display: none }", ""),
        ("", "<body style='display:none'>"),
        ("", "<body hidden>"),
    ],
)
def test_a_page_that_a_script_shows_as_a_whole_is_read(sheet, body):
    page = f"<!doctype html><style>{sheet}</style>{body or '<body>'}<p>One.</p><p hidden>gone</p>"
    document = extract_html(page.encode(), "page.html")
    assert (document.text, document.notices) == ("One.\n", HIDDEN)


@pytest.mark.parametrize(
    ("sheet", "body"),
    [
        (
            ".pane { display: none } #t1:checked ~ #p1, #t2:checked ~ #p2 { display: block }",
            "<input type=hidden id=t1><input type=hidden id=t2><p class=pane id=p1>A.</p><p class=pane id=p2>B.</p>",
        ),
        (".more { display: none } .more:target { display: grid }", "<p class=more>A.</p><p class=more>B.</p>"),
        ("p .tip { visibility: hidden } p:hover .tip { visibility: visible }", "<p><b class=tip>A.</b></p><p>B.</p>"),
        ("i { opacity: 0 } i:focus-within { opacity: 1 }", "<p><i>A.</i></p>B."),
        ("a:hover { display: none } a:focus { font-size: 0 }", "<p><a>A.</a></p>B."),
    ],
)
def test_what_a_reader_can_have_shown_is_read(sheet, body):
    document = page(sheet, body)
    assert document.text.replace("*", "") == "One.\n\nA.\n\nB.\n"
    assert not document.notices


def test_cells_by_style_stand_apart():
    text = page(".c { display: table-cell }", "<p><span class=c>Ane</span><span class=c>Holm</span></p>").text
    assert text == "One.\n\nAne Holm\n"
