"""Test what is read of slides of PowerPoint: their order, numbers, powers, formulas, diagrams, charts, hidden ones."""

import io

import pytest

from octavo.documents.archive import Archive
from octavo.documents.office.charts import chart_rows, chart_titles
from octavo.documents.office.reading_order import in_reading_order
from octavo.documents.office.slides import extract_slides

pptx = pytest.importorskip("pptx")
lxml_etree = pytest.importorskip("lxml.etree")


def presentation(*texts):
    """Return a presentation of one slide without a layout, and its boxes, each of a text and a place in inches."""
    made = pptx.Presentation()
    slide = made.slides.add_slide(made.slide_layouts[6])
    boxes = []
    for text, x, y in texts:
        boxes.append(slide.shapes.add_textbox(*(pptx.util.Inches(side) for side in (x, y, 3, 1))))
        boxes[-1].text_frame.text = text
    return made, slide, boxes


def read(made):
    out = io.BytesIO()
    made.save(out)
    return extract_slides(Archive(out.getvalue(), "a.pptx"))


def test_boxes_are_read_as_they_are_seen():
    made, _, _ = presentation(("third", 1, 5), ("first", 1, 1), ("second", 1, 3))
    assert read(made).text == "## Slide 1\n\nfirst\n\nsecond\n\nthird\n"


@pytest.mark.parametrize(
    ("boxes", "order"),
    [
        ({"b": (5, 0, 4, 9), "a": (0, 0, 4, 9)}, "ab"),
        ({"d": (5, 4, 4, 4), "b": (0, 4, 4, 4), "c": (5, 2, 4, 1), "a": (0, 2, 4, 1)}, "abcd"),
        ({"b": (0, 2, 4, 4), "c": (5, 2, 4, 4), "a": (0, 0, 9, 1)}, "abc"),
        ({"b": (1, 2, 4, 4), "a": (0, 1, 4, 4)}, "ab"),
        ({"b": (0, 3, 1, 1), "x": None, "a": (0, 1, 1, 1)}, "abx"),
    ],
)
def test_columns_are_read_one_after_another(boxes, order):
    assert "".join(in_reading_order(list(boxes), boxes.get)) == order


DIAGRAM = "http://schemas.openxmlformats.org/drawingml/2006/diagram"
DRAWING = "http://schemas.openxmlformats.org/drawingml/2006/main"


def test_the_words_of_a_diagram_are_a_list():
    made, slide, _ = presentation(("Steps", 1, 1))
    points = "".join(
        f'<dgm:pt modelId="{number}"{kind}><dgm:t><a:p><a:r><a:t>{text}</a:t></a:r></a:p></dgm:t></dgm:pt>'
        for number, (text, kind) in enumerate([("Draw", ""), ("Büro", ""), ("", ' type="pres"'), ("Build", "")])
    )
    data = f'<dgm:dataModel xmlns:dgm="{DIAGRAM}" xmlns:a="{DRAWING}"><dgm:ptLst>{points}</dgm:ptLst></dgm:dataModel>'
    name = pptx.opc.packuri.PackURI("/ppt/diagrams/data1.xml")
    kind = "application/vnd.openxmlformats-officedocument.drawingml.diagramData+xml"
    part = pptx.opc.package.Part(name, kind, made.part.package, data.encode())
    of_data = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/diagramData"
    frame = slide.shapes.add_table(1, 1, *(pptx.util.Inches(side) for side in (1, 3, 3, 1)))._element
    graphic = frame.graphic.graphicData
    graphic.set("uri", DIAGRAM)
    graphic.remove(graphic.tbl)
    ids = lxml_etree.SubElement(graphic, f"{{{DIAGRAM}}}relIds")
    ids.set(pptx.oxml.ns.qn("r:dm"), slide.part.relate_to(part, of_data))
    document = read(made)
    assert document.text == "## Slide 1\n\nSteps\n\n- Draw\n- Büro\n- Build\n"
    assert document.notices == ()


def test_a_merged_cell_of_a_table_is_repeated_in_the_rows_and_columns_that_it_spans():
    made, slide, _ = presentation()
    table = slide.shapes.add_table(3, 3, 0, 0, 9, 9).table
    for number, text in enumerate(["Store", "Sales", "", "", "2019", "2020", "Quay", "7", "8"]):
        table.cell(*divmod(number, 3)).text = text
    table.cell(0, 0).merge(table.cell(1, 0))
    table.cell(0, 1).merge(table.cell(0, 2))
    rows = "| Store | Sales | Sales |\n| --- | --- | --- |\n| Store | 2019 | 2020 |\n| Quay | 7 | 8 |\n"
    assert read(made).text == f"## Slide 1\n\n{rows}"


def test_a_hidden_slide_is_left_out_and_counted():
    made, slide, _ = presentation(("gone", 1, 1))
    made.slides.add_slide(made.slide_layouts[6]).shapes.add_textbox(0, 0, 9, 9).text_frame.text = "shown"
    slide._element.set("show", "0")
    document = read(made)
    assert document.text == "## Slide 2\n\nshown\n"
    assert document.notices == ("a.pptx has 1 hidden slide: octavo leaves it out.",)


A = "http://schemas.openxmlformats.org/drawingml/2006/main"


def paragraphs(*inner):
    made, _, (box,) = presentation(("", 1, 1))
    body = box.text_frame._txBody
    for text in inner:
        body.append(lxml_etree.fromstring(f'<a:p xmlns:a="{A}">{text}</a:p>'))
    return read(made).text.removeprefix("## Slide 1\n\n")


def run(text, baseline=""):
    return f"<a:r><a:rPr{baseline and f' baseline={chr(34)}{baseline}{chr(34)}'}/><a:t>{text}</a:t></a:r>"


@pytest.mark.parametrize(
    ("runs", "text"),
    [
        ((run("10"), run("6", "30000"), run(" l")), "10^6 l"),
        ((run("2"), run("n", "30000"), run("+1", "30000")), "2^{n+1}"),
        ((run("H"), run("2", "-25000"), run("O")), "H2O"),
        ((run("log"), run("2", "-25000"), run("8")), "log_28"),
        ((run("the 19"), run("th", "30000"), "<a:br/>", run("of")), "the 19th of"),
    ],
)
def test_powers_of_slides_are_marked(runs, text):
    assert paragraphs("".join(runs)) == text + "\n"


def item(text, form, level=0, start=""):
    return f'<a:pPr lvl="{level}"><a:buAutoNum type="{form}"{start}/></a:pPr>{run(text)}'


def test_numbered_lists_have_their_numbers():
    text = paragraphs(
        item("a", "arabicPeriod"),
        item("b", "alphaLcParenR", 1),
        item("c", "alphaLcParenR", 1),
        item("d", "arabicPeriod"),
        run("plain"),
        item("e", "romanUcPeriod", 0, ' startAt="4"'),
        item("f", "arabicParenBoth"),
    )
    assert text == "1. a\n  a) b\n  b) c\n2. d\nplain\nIV. e\n(1) f\n"


def test_a_list_that_begins_after_another_has_its_own_numbers():
    start = ' startAt="4"'
    lists = item("a", "alphaLcParenBoth"), item("b", "alphaLcParenBoth"), item("c", "arabicPeriod", start=start)
    assert paragraphs(*lists, item("d", "arabicPeriod", start=start)) == "(a) a\n(b) b\n4. c\n5. d\n"


def test_a_text_box_that_begins_with_a_hash_sign_is_no_heading():
    document = read(presentation(("# of boats: 3", 1, 1), ("## 12 boxes", 1, 9))[0])
    assert document.text == "## Slide 1\n\n\\# of boats: 3\n\n\\## 12 boxes\n"
    assert [place.heading for place in document.places] == ["Slide 1"]


MATH = "http://schemas.openxmlformats.org/officeDocument/2006/math"


def test_a_box_with_a_formula_is_read():
    made, slide, (box,) = presentation(("The speed is ", 1, 1))
    formula = f'<m xmlns="urn:a14"><m:oMath xmlns:m="{MATH}"><m:r><m:t>v=2</m:t></m:r></m:oMath></m>'
    box.text_frame.paragraphs[0]._p.append(lxml_etree.fromstring(formula))
    space = "http://schemas.openxmlformats.org/markup-compatibility/2006"
    alternatives = lxml_etree.SubElement(slide.shapes._spTree, f"{{{space}}}AlternateContent")
    lxml_etree.SubElement(alternatives, f"{{{space}}}Choice", Requires="a14").append(box._element)
    lxml_etree.SubElement(alternatives, f"{{{space}}}Fallback")
    assert read(made).text == "## Slide 1\n\nThe speed is $v=2$\n"


def series(name, **parts):
    inner = "".join(
        f"<{kind}><cache>{code}"
        f"{''.join(f'<pt idx={chr(34)}{n}{chr(34)}><v>{v}</v></pt>' for n, v in enumerate(values))}"
        f"</cache></{kind}>"
        for kind, (code, values) in parts.items()
    )
    return f"<ser><tx><v>{name}</v></tx>{inner}</ser>"


def chart(inner, titles=""):
    return lxml_etree.fromstring(f"<chartSpace><chart>{titles}<plotArea>{inner}</plotArea></chart></chartSpace>")


LEVELS = '<cat><lvl><pt idx="0"><v>Spring</v></pt><pt idx="1"><v>Autumn</v></pt><pt idx="2"><v>Spring</v></pt></lvl>'
LEVELS += '<lvl><pt idx="0"><v>2025</v></pt><pt idx="2"><v>2026</v></pt></lvl></cat>'


@pytest.mark.parametrize(
    ("inner", "rows"),
    [
        (series("N", xVal=("", [1, 2]), yVal=("", [12, 13])) + series("S", xVal=("", [10, 30]), yVal=("", [27, 29])),
         [["", "x", "y"], ["N", "1", "12"], ["N", "2", "13"], ["S", "10", "27"], ["S", "30", "29"]]),
        (series("N", xVal=("", [1, 2]), yVal=("", [12, 13])) + series("S", xVal=("", [1, 2]), yVal=("", [27, 29])),
         [["", "N", "S"], ["1", "12", "27"], ["2", "13", "29"]]),
        (series("L", cat=("<formatCode>yyyy\\-mm\\-dd</formatCode>", ["46037.0"]), val=("", [101])),
         [["", "L"], ["2026-01-15", "101"]]),
        (series("L", val=("", [11, 12, 13])).replace("<val>", f"{LEVELS}<val>"),
         [["", "L"], ["2025 Spring", "11"], ["2025 Autumn", "12"], ["2026 Spring", "13"]]),
        (series("B", xVal=("", [1, 2]), yVal=("", [3, 4]), bubbleSize=("", [10, 40])),
         [["", "x", "y", "size"], ["B", "1", "3", "10"], ["B", "2", "4", "40"]]),
        (series("L", val=("<formatCode>General</formatCode>", ["4.4000000000000004"])), [["", "L"], ["", "4.4"]]),
    ],
)  # fmt: skip
def test_charts_have_their_own_labels(inner, rows):
    assert list(chart_rows(chart(inner))) == rows


def test_charts_have_the_titles_of_their_axes():
    title = "<title><t>{}</t></title>"
    axes = f"<catAx>{title.format('Year')}</catAx><valAx>{title.format('Thousand tonnes')}</valAx>"
    assert chart_titles(chart(axes, title.format("Catch"))) == ["Catch", "Year", "Thousand tonnes"]
    assert chart_titles(chart("")) == []


def test_objects_on_slides_are_told():
    made, slide, _ = presentation(("first", 1, 1))
    slide.shapes.add_ole_object(io.BytesIO(b"x"), "Package", 0, 0, 9, 9)
    document = read(made)
    assert (document.text, document.notices) == (
        "## Slide 1\n\nfirst\n",
        ("a.pptx has 1 embedded object: octavo leaves it out.",),
    )


def test_a_line_that_begins_with_a_mark_of_markdown_is_no_heading():
    document = read(presentation(("# 4 oars\nfor all\n=====", 1, 1))[0])
    assert document.text == "## Slide 1\n\n\\# 4 oars\nfor all\n\\=====\n"
    assert [place.heading for place in document.places] == ["Slide 1"]


def test_numbers_of_lists_are_in_their_script():
    forms = "hindiNumPeriod", "thaiAlphaPeriod", "ea1JpnKorPeriod", "arabicDbPlain", "hebrew2Minus"
    assert paragraphs(*(item("x", form) for form in forms)) == "१. x\nก. x\n一. x\n１ x\nא- x\n"  # noqa: RUF001


def test_code_of_slides_keeps_its_lines_and_blanks():
    code = '<a:r><a:rPr><a:latin typeface="Courier New"/></a:rPr><a:t>{}</a:t></a:r>'
    lines = code.format("if n:") + "<a:br/>" + code.format("    # go"), code.format("end")
    assert paragraphs(run("So:"), *lines, run("Done.")) == "So:\n```\nif n:\n    # go\nend\n```\nDone.\n"


@pytest.mark.parametrize("mark", ["1", "true"])
def test_shapes_that_the_selection_pane_hides_are_left_out_and_counted(mark):
    made, slide, (gone, inner, _) = presentation(("gone", 1, 1), ("inner", 1, 2), ("shown", 1, 3))
    group = slide.shapes.add_group_shape([inner])
    table = slide.shapes.add_table(1, 2, 9, 9, 9, 9)
    table.table.cell(0, 0).text = "cell"
    for shape in (gone, group, table):
        shape._element._nvXxPr.cNvPr.set("hidden", mark)
    document = read(made)
    assert (document.text, document.notices) == (
        "## Slide 1\n\nshown\n",
        ("a.pptx has 3 hidden shapes: octavo leaves them out.",),
    )


def test_a_hidden_title_is_not_the_heading_of_a_slide():
    made = pptx.Presentation()
    slide = made.slides.add_slide(made.slide_layouts[5])
    slide.shapes.title.text = "gone"
    slide.shapes.title._element._nvXxPr.cNvPr.set("hidden", "1")
    slide.shapes.add_textbox(0, 0, 9, 9).text_frame.text = "shown"
    assert read(made).text == "## Slide 1\n\nshown\n"
    slide.shapes.title._element._nvXxPr.cNvPr.set("hidden", "0")
    assert read(made).text == "## Slide 1: gone\n\nshown\n"
