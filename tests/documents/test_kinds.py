"""Test what becomes of mail, notebooks, subtitles, slides, sheets, and texts of other programs."""

import base64
import datetime
import io
import json
import random
import struct
import zipfile
from email.message import EmailMessage

import pytest
from helpers.document_files import CELLS, FB2, ODT, ole, zipped

from octavo.documents.extract import extract_document, may_be_document
from octavo.errors import OctavoError


def read(tmp_path, content, name="x"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert may_be_document(path)
    return extract_document(path)


TITLE = "Berth 4 \u2013 rent"


def mail(**how):
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "Ann <a@example.org>", "b@example.org", TITLE
    message["MIME-Version"] = "1.0"
    message.set_content("It is 40 crowns, wärts.\n", **how)
    return message


HEAD = f"# {TITLE}\n\nFrom: Ann <a@example.org>\nTo: b@example.org\n"


@pytest.mark.parametrize("how", [{"cte": "base64"}, {"cte": "quoted-printable"}, {"charset": "iso-8859-1"}], ids=str)
def test_a_mail_is_its_headers_and_its_body(tmp_path, how):
    assert read(tmp_path, bytes(mail(**how))).text == f"{HEAD}\nIt is 40 crowns, wärts.\n"


def test_a_mail_names_its_attachments_and_holds_those_that_are_mail(tmp_path):
    message = mail()
    message.add_alternative("<p>It is <b>40</b> crowns.</p>", subtype="html")
    message.add_attachment(b"%PDF-", maintype="application", subtype="pdf", filename="lease.pdf")
    message.add_attachment(mail())
    text = read(tmp_path, bytes(message)).text
    assert text.startswith(f"{HEAD}Attachments: lease.pdf\n\nIt is 40 crowns, wärts.\n\n{HEAD}")


def test_mail_of_a_mailbox(tmp_path):
    box = b"".join(b"From a@example.org Mon May  2 16:07:05 2005\n" + bytes(mail()) + b"\n" for _ in range(2))
    text = f"{HEAD}\nIt is 40 crowns, wärts.\n"
    assert read(tmp_path, box).text == f"{text}\n{text}"
    assert read(tmp_path, box.replace(b"\n", b"\r\n")).text == f"{text}\n{text}"


def test_parts_of_a_mail_that_a_reader_sees_are_read_and_others_are_named(tmp_path):
    parts = [b"\n\nOne.\n", b"\n\nTwo, \xe4.\n", b"Content-Type: image/png\n\nAAEC\n"]
    head = b'From: a\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="b"\n'
    document = read(tmp_path, head + b"".join(b"\n--b\n" + part.removeprefix(b"\n") for part in parts) + b"\n--b--\n")
    assert document.text == "From: a\nAttachments: image/png\n\nOne.\n\n\nTwo, ä.\n"
    alone = b"From: a\nMIME-Version: 1.0\nContent-Type: application/pdf; name=lease.pdf\n\nAAEC\n"
    assert read(tmp_path, alone).text == "From: a\nAttachments: lease.pdf\n"


def test_a_mail_of_html_alone_is_read_as_html(tmp_path):
    message = EmailMessage()
    message["From"], message["MIME-Version"] = "a@example.org", "1.0"
    message.set_content("<h1>Rent</h1><table><tr><td>a<td>b</table>", subtype="html")
    text = read(tmp_path, bytes(message)).text
    assert text == "From: a@example.org\n\n## Rent\n\n| a | b |\n| --- | --- |\n"
    message["Subject"] = TITLE
    document = read(tmp_path, bytes(message))
    assert document.place(document.text.index("| a")).heading == f"{TITLE} > Rent"


def test_a_saved_page_is_its_html(tmp_path):
    head = b"From: <Saved by Blink>\r\nSubject: Tides\r\nMIME-Version: 1.0\r\n"
    head += b'Content-Type: multipart/related; type="text/html"; boundary="--b"\r\n\r\n----b\r\n'
    page = b"Content-Type: text/html; charset=utf-8\r\n\r\n<html><h2>High</h2><p>At six.</p></html>\r\n----b\r\n"
    picture = b"Content-Type: image/png\r\nContent-Transfer-Encoding: base64\r\n\r\nAAEC\r\n----b--\r\n"
    assert "## High\n\nAt six.\n" in (text := read(tmp_path, head + page + picture).text)
    assert "AAEC" not in text


def test_a_text_that_begins_like_a_mail_stays_as_it_is(tmp_path):
    for text in ("From: Ann\nTo: Bob\n\nThe rent.\n", "Received: yes\n\nno"):
        assert read(tmp_path, text).text == text


def test_a_notebook_is_its_cells_without_pictures(tmp_path):
    outputs = [
        {"output_type": "stream", "text": ["42\n"]},
        {"output_type": "display_data", "data": {"image/png": "AAEC", "text/plain": "<Figure>"}},
        {"output_type": "error", "ename": "ValueError", "evalue": "no", "traceback": ["\x1b[31mlong"]},
    ]
    cells = [
        {"cell_type": "markdown", "source": ["# Tides\n", "A line."]},
        {"cell_type": "code", "source": "# a comment", "outputs": outputs},
    ]
    metadata = {"kernelspec": {"language": "python"}}
    document = read(tmp_path, json.dumps({"cells": cells, "metadata": metadata, "nbformat": 4}))
    blocks = ["```python\n# a comment\n```", "```\n42\n```", "```\n<Figure>\n```", "```\nValueError: no\n```"]
    assert document.text == "\n\n".join(["# Tides\nA line.", *blocks]) + "\n"
    assert [place.heading for place in document.places] == ["Tides > Cell 1", "Tides > Cell 2"]
    (tmp_path / "y").mkdir()
    cells = [{"cell_type": "code", "source": ""}, {"cell_type": "code", "source": "a"}, cells[0]]
    document = read(tmp_path / "y", json.dumps({"cells": cells, "nbformat": 4}))
    assert [place.heading for place in document.places] == ["Cell 2", "Tides > Cell 3"]


def test_json_that_is_not_a_notebook_stays_as_it_is(tmp_path):
    for text in ('{"nbformat": 4}', '{"nbformat": "cells', '{"nbformat": 4, "worksheets": []}'):
        assert read(tmp_path, text).text == text


SRT = (
    "1\r\n00:00:01,000 --> 00:00:02,500\r\n<i>Fog</i>\r\nagain.\r\n\r\n2\r\n01:00:03,000 --> 01:00:04,000\r\nA ship\r\n"
)
VTT = (
    "WEBVTT\n\nNOTE no\n\nid\n00:01.000 --> 00:02.000 align:start\n<v Ann>Fog &amp; ice\n\n00:03.000 --> 00:04.000\nEnd"
)


@pytest.mark.parametrize(
    ("content", "text", "times"),
    [
        (SRT, "[00:00:01] Fog again.\n[01:00:03] A ship\n", ["00:00:01", "01:00:03"]),
        (VTT, "[00:01] Ann: Fog & ice\n[00:03] End\n", ["00:01", "00:03"]),
    ],
)
def test_times_are_the_places_of_subtitles(tmp_path, content, text, times):
    document = read(tmp_path, content)
    assert document.text == text
    assert [place.heading for place in document.places] == times


def test_comments_of_programs_are_not_headings(tmp_path):
    code = "# Imports\nimport os\n"
    assert read(tmp_path, code, "a.py").places == ()
    assert (document := read(tmp_path, code, "a.md")).places != ()
    assert document.text == read(tmp_path, code, "a.py").text == code


PIXEL = "R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"


def test_slides(tmp_path):
    pptx = pytest.importorskip("pptx")
    show, out = pptx.Presentation(), io.BytesIO()
    slide = show.slides.add_slide(show.slide_layouts[1])
    slide.shapes.title.text, slide.placeholders[1].text = "Rent", "It is 40"
    slide.placeholders[1].text_frame.add_paragraph().text = "crowns"
    slide.placeholders[1].text_frame.paragraphs[1].level = 1
    table = show.slides.add_slide(show.slide_layouts[6]).shapes.add_table(1, 2, 0, 0, 9, 9).table
    table.cell(0, 0).text, table.cell(0, 1).text = "a", "b"
    slide.notes_slide.notes_text_frame.text = "Smile."
    merged = show.slides.add_slide(show.slide_layouts[6]).shapes.add_table(2, 2, 0, 0, 9, 9).table
    merged.cell(0, 0).text, merged.cell(0, 1).text, merged.cell(1, 1).text = "North", "7", "8"
    merged.cell(0, 0).merge(merged.cell(1, 0))
    picture = io.BytesIO(base64.b64decode(PIXEL))
    show.slides.add_slide(show.slide_layouts[6]).shapes.add_picture(picture, 0, 0)._element.nvPicPr.cNvPr.set(
        "descr", "A\nship"
    )
    show.save(out)
    document = read(tmp_path, out.getvalue())
    assert document.text == (
        "## Slide 1: Rent\n\nIt is 40\n- crowns\n\nNotes: Smile.\n\n## Slide 2\n\n| a | b |\n| --- | --- |\n"
        "\n## Slide 3\n\n| North | 7 |\n| --- | --- |\n| North | 8 |\n"
        "\n## Slide 4\n\n![A ship]\n"
    )
    assert document.place(document.text.index("| a")).heading == "Slide 2"


def test_sheets(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book, out = openpyxl.Workbook(), io.BytesIO()
    sheet = book.active
    sheet.title = "Q1"
    for row in (["Ship", None, "Crew"], [], ["Petrel|x", "", 0.25], [True, 1.5, "=SUM(C3)"]):
        sheet.append(row)
    sheet["C3"].number_format = "0%"
    other = book.create_sheet("merged")
    for row in ([None, "Ships of 1921"], [None, "North", "Petrel"], [None, None, "Tern"], [None, "All", None, 7]):
        other.append(row)
    for cells in ("B1:D1", "B2:B3", "B4:C4"):
        other.merge_cells(cells)
    book.create_sheet("empty")
    book.save(out)
    document = read(tmp_path, out.getvalue())
    rows = "| Ship |  | Crew |\n| --- | --- | --- |\n| Petrel\\|x |  | 25% |\n| TRUE | 1.5 | =SUM(C3) |\n"
    merged = (
        "| Ships of 1921 |  |  |\n| --- | --- | --- |\n| North | Petrel |  |\n| North | Tern |  |\n| All | All | 7 |\n"
    )
    assert document.text == f"## Q1\n\n{rows}\n## merged\n\n{merged}"
    assert document.place(20).heading == "Q1"


OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def with_parts(content, owner, **parts):
    """A file of Office with parts, to which one of its parts refers by the kinds of relationships that they have."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    folder, name = owner.rsplit("/", 1)
    links = "".join(f'<Relationship Id="x{kind}" Type="{OFFICE}/{kind}" Target="{kind}.xml"/>' for kind in parts)
    path = f"{folder}/_rels/{name}.rels"
    head = b"<Relationships xmlns='http://schemas.openxmlformats.org/package/2006/relationships'>"
    old = files.get(path, head).decode().removesuffix("</Relationships>")
    files[path] = f"{old}{links}</Relationships>"
    return zipped({**files, **{f"{folder}/{kind}.xml": text for kind, text in parts.items()}})


def test_text_boxes_and_remarks_of_sheets(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book, out = openpyxl.Workbook(), io.BytesIO()
    book.active.append(["Ship"])
    book.create_sheet("Boxes")
    book.save(out)
    box = "<d xmlns:a='a'><a:p><a:r><a:t>In </a:t></a:r><a:r><a:t>a box.</a:t></a:r></a:p><a:p/></d>"
    remarks = "<c><comment ref='A1'><text><r><t>Is it?</t></r></text></comment><comment ref='B2'><text/></comment>"
    remarks += "<comment ref='A2'><text><t>[Threaded comment] Your version</t></text></comment></c>"
    thread = "<c><threadedComment ref='A2'><text>It is.</text></threadedComment></c>"
    content = with_parts(
        out.getvalue(), "xl/worksheets/sheet1.xml", drawing=box, comments=remarks, threadedComment=thread
    )
    content = with_parts(content, "xl/worksheets/sheet2.xml", drawing=box)
    text = "## Sheet\n\n| Ship |\n| --- |\n\nIn a box.\n\n[Remark on A1: Is it?]\n\n[Remark on A2: It is.]\n"
    assert read(tmp_path, content).text == f"{text}\n## Boxes\n\nIn a box.\n"


def test_remarks_on_slides(tmp_path):
    pptx = pytest.importorskip("pptx")
    show, out = pptx.Presentation(), io.BytesIO()
    show.slides.add_slide(show.slide_layouts[6])
    show.save(out)
    content = with_parts(out.getvalue(), "ppt/slides/slide1.xml", comments="<l><cm><pos/><text>Is it?</text></cm></l>")
    assert read(tmp_path, content).text == "## Slide 1\n\n[Remark: Is it?]\n"


@pytest.mark.parametrize("is_known", [True, False])
def test_charts_of_slides_are_tables(tmp_path, is_known):
    pptx = pytest.importorskip("pptx")
    from pptx.chart.data import CategoryChartData
    from pptx.enum.chart import XL_CHART_TYPE

    show, data, out = pptx.Presentation(), CategoryChartData(), io.BytesIO()
    data.categories = ["East", "West"]
    data.add_series("Crew", (1.5, None))
    data.add_series("Ships", (3, 4))
    shapes = show.slides.add_slide(show.slide_layouts[6]).shapes
    chart = shapes.add_chart(XL_CHART_TYPE.COLUMN_CLUSTERED, 0, 0, 9, 9, data).chart
    if not is_known:  # by python-pptx
        [plot] = chart._chartSpace.xpath(".//c:barChart")
        plot.tag = plot.tag.replace("barChart", "bar3DChart")
    show.save(out)
    table = "|  | Crew | Ships |\n| --- | --- | --- |\n| East | 1.5 | 3 |\n| West |  | 4 |\n"
    assert read(tmp_path, out.getvalue()).text == f"## Slide 1\n\n{table}"


@pytest.mark.parametrize(("module", "part"), [("pptx", "ppt/presentation.xml"), ("openpyxl", "xl/workbook.xml")])
def test_damaged_files_of_office_are_refused(tmp_path, module, part):
    pytest.importorskip(module)
    with pytest.raises(OctavoError, match=r"^x is damaged: download or save it again\.$"):
        read(tmp_path, zipped({part: "a"}))


def test_mail_of_outlook(tmp_path):
    pytest.importorskip("olefile")
    texts = {"0037": "Berth 4", "0C1A": "Ann", "5D01": "a@example.org", "0E04": "Bob", "1000": "40 crowns."}
    streams = {(f"__substg1.0_{number}001F",): text.encode("utf-16-le") for number, text in texts.items()}
    streams["__attach_version1.0_#00000000", "__substg1.0_3707001F"] = "lease.pdf".encode("utf-16-le")
    ticks = (datetime.date(2021, 5, 1) - datetime.date(1601, 1, 1)).days * 86_400 * 10**7
    streams[("__properties_version1.0",)] = bytes(32) + struct.pack("<HHIQ", 0x40, 0x39, 6, ticks)
    text = read(tmp_path, ole(streams)).text
    head = "# Berth 4\n\nFrom: Ann <a@example.org>\nTo: Bob\nDate: 2021-05-01 00:00 UTC\nAttachments: lease.pdf\n"
    assert text == f"{head}\n40 crowns.\n"


def test_mail_of_outlook_without_a_sender_names_none(tmp_path):
    pytest.importorskip("olefile")
    streams = {("__substg1.0_1000001F",): "Text.".encode("utf-16-le"), ("__properties_version1.0",): bytes(32)}
    assert read(tmp_path, ole(streams)).text == "Text.\n"


FILES = {
    "eml": bytes(mail(cte="base64")),
    "ipynb": b'{"cells": [{"cell_type": "code", "source": "a", "outputs": [{"text": ["4"]}]}], "nbformat": 4}',
    "srt": SRT.encode(),
    "vtt": VTT.encode(),
    "odt": zipped({"content.xml": ODT.format(CELLS)}),
    "fb2": FB2.encode("cp1251"),
}


@pytest.mark.parametrize("kind", FILES)
def test_damaged_files_are_read_or_refused(tmp_path, kind):
    content, rng, path = FILES[kind], random.Random(7), tmp_path / "x"
    damaged = [content[: len(content) * tenth // 10] for tenth in range(10)]
    for n_bytes in [1, 3, 20] * 10:
        copy = bytearray(content)
        for _ in range(n_bytes):
            copy[rng.randrange(len(copy))] = rng.randrange(256)
        damaged.append(bytes(copy))
    for each in damaged:
        path.write_bytes(each)
        try:
            assert extract_document(path).text
        except OctavoError as problem:
            assert str(problem).startswith(("x ", "A table repeats"))  # noqa: PT017
