"""Test what the styles of OpenDocument say: numbers, hidden text, powers, code, letterheads, and values of cells."""

import pytest
from helpers.document_files import zipped

from octavo.documents.archive import Archive
from octavo.documents.office.opendocument import extract_flat_opendocument, extract_opendocument

SPACES = (
    'xmlns:o="o" xmlns:text="t" xmlns:table="b" xmlns:style="s" xmlns:fo="f" xmlns:draw="d" xmlns:l="l" xmlns:p="p"'
)
SPACES += ' xmlns:svg="v"'


def tree(body, styles="", kind="text"):
    return f"<o:c {SPACES}><o:styles>{styles}</o:styles><o:body><o:{kind}>{body}</o:{kind}></o:body></o:c>"


def read(body, styles="", kind="text", **files):
    content = {
        "content.xml": tree(body, styles, kind),
        **{name.replace("_", "."): text for name, text in files.items()},
    }
    return extract_opendocument(Archive(zipped(content), "x.odt"))


def a_list(*items, style="L", more=""):
    inner = "".join(f"<text:list-item>{item}</text:list-item>" for item in items)
    return f'<text:list text:style-name="{style}"{more}>{inner}</text:list>'


def p(text, style=""):
    return f'<text:p text:style-name="{style}">{text}</text:p>'


def levels(*forms):
    inner = "".join(
        f'<text:list-level-style-number text:level="{level}" {form}/>' for level, form in enumerate(forms, 1)
    )
    return f'<text:list-style style:name="L">{inner}</text:list-style>'


NUMBERED = levels(
    'style:num-format="1" style:num-suffix="."', 'style:num-format="a" style:num-suffix=")"', 'style:num-format="i"'
)
LEGAL = levels(
    'style:num-format="1" style:num-prefix="§ " text:start-value="4"', 'style:num-format="1" text:display-levels="2"'
)
GOES_ON = ' text:continue-numbering="true"'


@pytest.mark.parametrize(
    ("styles", "body", "text"),
    [
        (LEGAL, a_list(p("pay") + a_list(p("on time"), p("in cash"))) + p("Free.") + a_list(p("mend"), more=GOES_ON),
         "§ 4 pay\n    4.1 on time\n    4.2 in cash\n\nFree.\n\n§ 5 mend\n"),
        (NUMBERED, a_list(p("keel") + a_list(p("oak"))) + p("Wait.")
         + a_list(a_list(p("ash")), p("mast"), more=GOES_ON),
         "1. keel\n   a) oak\n\nWait.\n  b) ash\n2. mast\n"),
        (NUMBERED, a_list(p("a")) + p("x") + a_list(p("b")), "1. a\n\nx\n\n1. b\n"),
        (NUMBERED, a_list(p("a"), more=' text:id="one"') + a_list(p("b")) + p("x")
         + a_list(p("c"), more=' text:continue-list="one"'), "1. a\n\n1. b\n\nx\n\n2. c\n"),
        (levels('style:num-format="一, 二, 三, ..." style:num-prefix="第" style:num-suffix="条"'),
         a_list(*map(p, "甲乙丙")), "第一条 甲\n第二条 乙\n第三条 丙\n"),
        (levels('style:num-format="イ, ロ, ハ, ..." style:num-suffix=")"'), a_list(*map(p, "ab")), "イ) a\nロ) b\n"),
        (levels('style:num-format="א, י, ק, ..."'), a_list(p("a")), "1. a\n"),  # noqa: RUF001
        (levels('style:num-format="I" style:num-suffix="."'), a_list(p("a") + p("more"), p("b")),
         "I. a\n\n   more\nII. b\n"),
    ],
)  # fmt: skip
def test_lists_are_numbered_as_their_styles_say(styles, body, text):
    assert read(body, styles).text == text


def h(text, level=1):
    return f'<text:h text:outline-level="{level}">{text}</text:h>'


@pytest.mark.parametrize(
    ("styles", "body"),
    [
        (LEGAL.replace("§ ", "").replace('"4"', '"1"'),
         a_list(h("Scope")) + p("x") + a_list(a_list(h("Guests", 2)), more=GOES_ON) + a_list(h("Rent"), more=GOES_ON)),
        ('<text:outline-style><text:outline-level-style text:level="1" style:num-format="1" style:num-suffix="."/>'
         '<text:outline-level-style text:level="2" style:num-format="1" text:display-levels="2"/></text:outline-style>',
         h("Scope") + p("x") + h("Guests", 2) + h("Rent")),
    ],
)  # fmt: skip
def test_numbered_headings_are_places(styles, body):
    document = read(body, styles)
    assert document.text == "# 1. Scope\n\nx\n\n## 1.1 Guests\n\n# 2. Rent\n"
    assert [place.heading for place in document.places] == ["1. Scope", "1. Scope > 1.1 Guests", "2. Rent"]


def text_style(name, properties, family="text", parent=""):
    return (
        f'<style:style style:name="{name}" style:family="{family}" style:parent-style-name="{parent}">'
        f"<style:text-properties {properties}/></style:style>"
    )


@pytest.mark.parametrize("position", ["super 58%", "33% 58%", "super", "50%"])
def test_powers_are_marked(position):
    styles = text_style("T", f'style:text-position="{position}"') + text_style("U", "", parent="T")
    span = '<text:span text:style-name="{}">{}</text:span>'
    body = p(f"10{span.format('T', 4)} or 2{span.format('U', 'n')}{span.format('U', '+1')} meshes")
    assert read(body, styles).text == "10^4 or 2^{n+1} meshes\n"


@pytest.mark.parametrize("position", ["sub 58%", "-33% 58%"])
def test_indices_are_marked_where_they_would_be_misread(position):
    body = p('log<text:span text:style-name="T">2</text:span>8, H<text:span text:style-name="T">2</text:span>O')
    assert read(body, text_style("T", f'style:text-position="{position}"')).text == "log_28, H2O\n"


@pytest.mark.parametrize(
    "body",
    [
        '<text:section text:display="none"><text:p>999</text:p></text:section>',
        '<text:section text:display="condition" text:is-hidden="true"><text:p>999</text:p></text:section>',
        p("999", "H"),
        p('<text:span text:style-name="T">999</text:span>'),
        p('<text:hidden-text text:is-hidden="true">999</text:hidden-text>'),
        '<text:p><text:hidden-paragraph text:is-hidden="true"/>999</text:p>',
    ],
)
def test_hidden_text_is_left_out_and_counted(body):
    hidden = 'text:display="none"'
    styles = text_style("T", hidden) + text_style("H", hidden, "paragraph")
    document = read(body + p("The price is 40."), styles)
    assert document.text == "The price is 40.\n"
    assert document.notices == ("x.odt has 1 hidden passage: octavo leaves it out.",)


def test_deleted_text_remarks_and_pictures_are_counted():
    deleted = "<text:tracked-changes><text:changed-region><text:deletion><text:p>900</text:p></text:deletion>"
    deleted += "</text:changed-region></text:tracked-changes>"
    remark = "<o:annotation><text:p>Why?</text:p></o:annotation>"
    picture = '<draw:frame><draw:image l:href="a.png"/>{}</draw:frame>'
    body = deleted + p(f"a{remark}") + p(picture.format("")) + p(picture.format("<svg:desc>A ship</svg:desc>"))
    document = read(body)
    assert document.text == "a\n\n![A ship]\n"
    assert document.notices == ("x.odt has 1 deleted passage, 2 pictures and 1 remark: octavo leaves them out.",)


def test_code_keeps_its_blanks_and_its_signs():
    styles = text_style("P1", "", "paragraph", "Preformatted_20_Text")
    body = (
        p("while dry:", "P1") + '\n<text:p text:style-name="P1"><text:s text:c="4"/>wait()</text:p>' + p("# run", "P1")
    )
    document = read(body + p("End."), styles)
    assert document.text == "```\nwhile dry:\n    wait()\n# run\n```\n\nEnd.\n"
    assert document.places == ()


def page(name, inner):
    return f'<style:master-page style:name="{name}">{inner}</style:master-page>'


def test_letterheads_of_pages_in_use_are_read_once():
    number = "<text:page-number>1</text:page-number>"
    pages = f"Harbour Board<text:tab/>Page {number} of <text:page-count>3</text:page-count>"
    head = f"<style:header>{p(pages)}</style:header>"
    head += f"<style:header-left>{p('Harbour Board')}</style:header-left>"
    head += f'<style:footer style:display="false">{p("Never")}</style:footer>'
    styles = page("Standard", head) + page("Other", f"<style:header>{p('Unused')}</style:header>")
    styles += page("Used", f"<style:footer>{p('Quay Street 4')}{p(f'- {number} -')}</style:footer>")
    first = '<style:style style:name="P1" style:family="paragraph" style:master-page-name="Used"/>'
    document = read(p("The rent.", "P1"), first, styles_xml=tree("", styles))
    assert document.text == "Harbour Board\n\nThe rent.\n\nQuay Street 4\n"


def test_the_letterhead_of_the_pages_after_the_first_is_read():
    styles = page("First", f"<style:header>{p('Harbour Board')}</style:header>").replace(
        "style:name=", 'style:next-style-name="Rest" style:name='
    )
    styles += page("Rest", f"<style:footer>{p('Quay Street 4')}</style:footer>")
    first = '<style:style style:name="P1" style:family="paragraph" style:master-page-name="First"/>'
    document = read(p("The rent.", "P1"), first, styles_xml=tree("", styles))
    assert document.text == "Harbour Board\n\nThe rent.\n\nQuay Street 4\n"


def math(body):
    return f'<math xmlns="http://www.w3.org/1998/Math/MathML">{body}</math>'


def test_formulas_stay_in_their_line():
    frame = '<draw:frame><draw:object l:href="M/"/></draw:frame>'
    files = {"content.xml": tree(p(f"It is {frame} high.")), "M/content.xml": math("<mi>h</mi><mo>=</mo><mn>2</mn>")}
    assert extract_opendocument(Archive(zipped(files), "x")).text == "It is $h=2$ high.\n"


def cell(attributes="", text=""):
    return f"<table:table-cell {attributes}>{text and p(text)}</table:table-cell>"


def sheet(*rows, columns="", more=""):
    lines = "".join(f"<table:table-row{of}>{''.join(cells)}</table:table-row>" for of, *cells in rows)
    return f'<table:table table:name="Q1"{more}>{columns}{lines}</table:table>'


@pytest.mark.parametrize(
    ("attributes", "shown"),
    [
        ('o:value-type="float" o:value="87"', "87"),
        ('o:value-type="float" o:value="65.5"', "65.5"),
        ('o:value-type="percentage" o:value="0.125"', "12.5%"),
        ('o:value-type="currency" o:value="40" o:currency="EUR"', "40 EUR"),
        ('o:value-type="date" o:date-value="2026-06-09"', "2026-06-09"),
        ('o:value-type="time" o:time-value="PT36H30M00S"', "36:30"),
        ('o:value-type="time" o:time-value="P1DT2H"', "26:00"),
        ('o:value-type="time" o:time-value="PT90S"', "00:01:30"),
        ('o:value-type="boolean" o:boolean-value="true"', "TRUE"),
        ('o:value-type="string" o:string-value="Cod"', "Cod"),
    ],
)
def test_a_cell_without_text_shows_its_value(attributes, shown):
    table = sheet(("", cell(text="a"), cell(attributes)), ("", cell(text="b"), cell(text="c")))
    assert read(table, kind="spreadsheet").text == f"## Q1\n\n| a | {shown} |\n| --- | --- |\n| b | c |\n"


def test_a_chart_in_a_cell_follows_the_table():
    frame = '<draw:frame><draw:object l:href="C/"/></draw:frame>'
    chart = tree(
        p("Tonnes") + sheet(("", cell(text="x"), cell(text="1")), ("", cell(text="y"), cell(text="2"))), kind="chart"
    )
    table = sheet(
        ("", cell(text="Petrel"), cell(text="41")),
        ("", cell(text="Gannet"), f"<table:table-cell>{frame}{p('52')}</table:table-cell>"),
    )
    text = extract_opendocument(
        Archive(zipped({"content.xml": tree(table, kind="spreadsheet"), "C/content.xml": chart}), "x")
    ).text
    assert text == (
        "## Q1\n\n| Petrel | 41 |\n| --- | --- |\n| Gannet | 52 |\n\nTonnes\n\n| x | 1 |\n| --- | --- |\n| y | 2 |\n"
    )


def test_hidden_rows_columns_and_sheets_are_left_out_and_counted():
    columns = '<table:table-column/><table:table-column table:visibility="collapse"/><table:table-column/>'
    row = (cell(text="a"), cell(text="999"), cell(text="b"))
    hidden = (
        '<style:style style:name="S" style:family="table"><style:table-properties table:display="false"/></style:style>'
    )
    shown = sheet(("", *row), (' table:visibility="filter"', *row), ("", *row), columns=columns)
    document = read(shown + sheet(("", *row), more=' table:style-name="S"'), hidden, "spreadsheet")
    assert document.text == "## Q1\n\n| a | b |\n| --- | --- |\n| a | b |\n"
    (notice,) = document.notices
    assert notice == "x.odt has 1 hidden column, 1 hidden row and 1 hidden sheet: octavo leaves them out."


def frame(text, x, y, kind=""):
    place = f'svg:x="{x}cm" svg:y="{y}cm" svg:width="5cm" svg:height="2cm" p:class="{kind}"'
    return f"<draw:frame {place}><draw:text-box>{p(text)}</draw:text-box></draw:frame>"


def test_slides_are_read_as_they_are_seen():
    number = frame("<text:page-number>&lt;number&gt;</text:page-number>", 0, 20, "page-number")
    shapes = frame("third", 0, 10) + frame("first", 0, 2) + frame("second", 0, 6)
    hidden = (
        '<style:style style:name="H" style:family="drawing-page"><style:drawing-page-properties p:visibility="hidden"/>'
    )
    pages = f'<draw:page draw:name="a">{shapes}<p:notes>{frame("Say it.", 0, 0, "notes")}{number}</p:notes></draw:page>'
    pages += f'<draw:page draw:style-name="H" draw:name="b">{frame("gone", 0, 0)}</draw:page>'
    document = read(pages, f"{hidden}</style:style>", "presentation")
    assert document.text == "## Slide 1: a\n\nfirst\n\nsecond\n\nthird\n\nNotes:\n\nSay it.\n"
    assert document.notices == ("x.odt has 1 hidden slide: octavo leaves it out.",)


def test_items_of_slides_have_only_their_own_mark():
    deep = a_list(a_list(a_list(p("oak"))), style="B")
    assert read(a_list(p("boats"), style="A") + deep, kind="presentation").text == "- boats\n    - oak\n"


def test_a_file_that_is_one_file_of_xml_is_read_as_a_packed_one():
    picture = "<draw:frame><draw:image><o:binary-data>iVBORw0KGgo=</o:binary-data></draw:image></draw:frame>"
    formula = f"<draw:frame><draw:object>{math('<mi>x</mi>')}</draw:object></draw:frame>"
    document = extract_flat_opendocument(tree(h("Harbour") + p(f"See {formula}. {picture}")).encode(), "x.fodt")
    assert document.text == "# Harbour\n\nSee $x$.\n"
    assert document.notices == ("x.fodt has 1 picture: octavo leaves it out.",)


MONO = text_style("M", 'style:font-name="Liberation Mono"', "paragraph") + text_style("C", 'style:font-name="Consolas"')
MONO += text_style("Standard", 'style:font-name="Courier New"', "paragraph") + text_style(
    "P", "", "paragraph", "Standard"
)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (p("if dry:", "M") + p("<text:tab/># run", "M"), "```\nif dry:\n\t# run\n```\n"),
        (p('<text:span text:style-name="C">run()</text:span>'), "```\nrun()\n```\n"),
        (p('Type <text:span text:style-name="C">run()</text:span>'), "Type run()\n"),
        (p("All of it", "Standard") + p("is typewritten.", "P"), "All of it\n\nis typewritten.\n"),
        (p("", "M") + p("x"), "x\n"),
    ],
)
def test_text_in_a_font_for_code_is_code(body, text):
    assert read(body, MONO).text == text


def test_readings_of_signs_stand_in_brackets():
    ruby = "<text:ruby><text:ruby-base>港</text:ruby-base><text:ruby-text>みなと</text:ruby-text></text:ruby>"
    assert read(p(ruby)).text == "港(みなと)\n"
