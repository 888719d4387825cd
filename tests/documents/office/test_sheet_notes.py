"""What a sheet has beside its cells: text boxes, remarks, pictures, charts and slicers."""

from helpers.document_files import zipped

from octavo.documents.archive import Archive
from octavo.documents.left_out import LeftOut
from octavo.documents.office.sheet_notes import sheet_notes

KINDS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
NAMES = (
    'xmlns:xdr="http://schemas.openxmlformats.org/drawingml/2006/spreadsheetDrawing" '
    'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main" '
    'xmlns:c="http://schemas.openxmlformats.org/drawingml/2006/chart" '
    'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'
)


def notes(kind, content):
    """Return the notes of a sheet with one part of a kind, and what is left out."""
    links = (
        '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
        f'<Relationship Id="r1" Type="{KINDS}/{kind}" Target="../{kind}1.xml"/></Relationships>'
    )
    files = {"xl/worksheets/_rels/sheet1.xml.rels": links, f"xl/{kind}1.xml": content}
    left_out = LeftOut()
    return sheet_notes(Archive(zipped(files), "a.xlsx"), "xl/worksheets/sheet1.xml", left_out), +left_out


def box(text):
    return f"<xdr:sp><xdr:txBody><a:p><a:r><a:t>{text}</a:t></a:r></a:p></xdr:txBody></xdr:sp>"


def drawing(inner):
    return notes("drawing", f"<xdr:wsDr {NAMES}><xdr:twoCellAnchor>{inner}</xdr:twoCellAnchor></xdr:wsDr>")


def test_boxes_are_paragraphs_and_pictures_and_charts_are_counted():
    text, left_out = drawing(box("Prices without tax") + box("Ab  Mai") + "<xdr:pic/><c:chart/><xdr:pic/>")
    assert text == "\nPrices without tax\n\nAb Mai\n"
    assert left_out == {"picture": 2, "chart": 1}


def test_what_old_programs_show_in_place_of_a_slicer_is_not_text():
    choice = '<mc:Choice Requires="a14"><xdr:graphicFrame/></mc:Choice>'
    fallback = f"<mc:Fallback>{box('This shape represents a slicer.')}</mc:Fallback>"
    slicer = f"<mc:AlternateContent>{choice}{fallback}</mc:AlternateContent>"
    assert drawing(slicer + box("Stock")) == ("\nStock\n", {})


def test_remarks_say_which_cell_they_are_about():
    """Of a thread, old programs have another remark, which says so."""
    remarks = "".join(
        f'<comment ref="{cell}"><text><r><t>{text}</t></r></text></comment>'
        for cell, text in (("B2", "Who counted?"), ("C3", "[Threaded comment] Your version ..."), ("D4", "  "))
    )
    assert notes("comments", f"<comments><commentList>{remarks}</commentList></comments>") == (
        "\n[Remark on B2: Who counted?]\n",
        {},
    )
    thread = '<ThreadedComments><threadedComment ref="C3"><text>Zählt nach</text></threadedComment></ThreadedComments>'
    assert notes("threadedComment", thread)[0] == "\n[Remark on C3: Zählt nach]\n"


def test_a_sheet_without_other_parts_has_no_notes():
    assert sheet_notes(Archive(zipped({"a": ""}), "a.xlsx"), "xl/worksheets/sheet1.xml", LeftOut()) == ""


def named(text, about):
    return box(text).replace("<xdr:sp>", f"<xdr:sp><xdr:nvSpPr><xdr:cNvPr {about}</xdr:cNvPr></xdr:nvSpPr>")


def test_a_hidden_box_is_left_out_and_a_control_that_excel_draws_itself_is_not():
    control = '<a:extLst><a:ext><a14:compatExt xmlns:a14="m" spid="_x0000_s1025"/></a:ext></a:extLst>'
    boxes = named("gone", 'hidden="1">'), named("Print", f'hidden="1">{control}'), named("Stock", 'hidden="0">')
    assert drawing("".join(boxes)) == ("\nPrint\n\nStock\n", {"hidden shape": 1})


def test_struck_out_text_of_boxes_has_marks():
    struck = '<a:r><a:rPr strike="sngStrike"/><a:t>900</a:t></a:r>'
    old = box("Rent ").replace("</a:p>", f"{struck}<a:br/><a:r><a:t>950</a:t></a:r></a:p>")
    assert drawing(old)[0] == "\nRent ~~900~~ 950\n"
