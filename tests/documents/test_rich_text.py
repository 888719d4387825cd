"""One rich text, through every format that octavo reads: the same sentences, cells, headings and numbers in each."""

import email.message
import io
import json
import re

import pytest
from helpers.document_files import zipped

from octavo.documents.extract import extract_document

TITLE, PART, SUBPART = "The Skerry Light", "Keepers of the tower", "Their wages"
SENTENCES = ["Agnes Moir kept the light for 31 years.", "The lamp burned 1,250 litres of oil a year, über den Winter."]
CELLS = [["Keeper", "Years", "Wage"], ["Agnes Moir", "31", "48.50"], ["Tobias Quill", "7", "-12.25"]]
ITEMS, INNER = ["Trim the wick", "Wind the clock"], ["Oil the wheels", "Count to ninety"]
QUOTE, NOTE, POWER = "No ship was lost that winter.", "The log of 1889 says so.", "10^6"
WITH_NOTE, WITH_POWER = "Nobody doubts it", "The tower weighs"

RICH_HTML = f"""<html><head><title>{TITLE}</title></head><body><h1>{TITLE}</h1><p>{SENTENCES[0]}</p>
<h2>{PART}</h2><p>{SENTENCES[1]}</p><table>{"".join(f"<tr>{''.join(f'<td>{c}</td>' for c in r)}</tr>" for r in CELLS)}
</table><h3>{SUBPART}</h3><ul><li>{ITEMS[0]}<ul><li>{INNER[0]}</li><li>{INNER[1]}</li></ul></li><li>{ITEMS[1]}</li></ul>
<blockquote><p>{QUOTE}</p></blockquote><p>{WITH_NOTE}.<sup><a href="#n1">1</a></sup></p>
<p>{WITH_POWER} 10<sup>6</sup> grams.</p><p id="n1">{NOTE}</p></body></html>"""

MARKDOWN = f"""# {TITLE}

{SENTENCES[0]}

## {PART}

{SENTENCES[1]}

| {" | ".join(CELLS[0])} |
| --- | --- | --- |
| {" | ".join(CELLS[1])} |
| {" | ".join(CELLS[2])} |

### {SUBPART}

- {ITEMS[0]}
  - {INNER[0]}
  - {INNER[1]}
- {ITEMS[1]}

> {QUOTE}

{WITH_NOTE}.[^1]

{WITH_POWER} 10^6 grams.

[^1]: {NOTE}
"""


def rest_text():
    rows = "\n".join(f"   * - {row[0]}\n     - {row[1]}\n     - {row[2]}" for row in CELLS)
    title, part, sub = ((text, mark * len(text)) for text, mark in ((TITLE, "="), (PART, "-"), (SUBPART, "~")))
    return (
        f"{title[0]}\n{title[1]}\n\n{SENTENCES[0]}\n\n{part[0]}\n{part[1]}\n\n{SENTENCES[1]}\n\n"
        f".. list-table::\n\n{rows}\n\n"
        f"{sub[0]}\n{sub[1]}\n\n* {ITEMS[0]}\n\n  * {INNER[0]}\n  * {INNER[1]}\n\n* {ITEMS[1]}\n\n    {QUOTE}\n\n"
        f"{WITH_NOTE} [1]_.\n\n{WITH_POWER} 10^6 grams.\n\n.. [1] {NOTE}\n"
    )


def asciidoc():
    rows = "\n".join(f"| {' | '.join(row)}" for row in CELLS)
    return (
        f"= {TITLE}\n\n{SENTENCES[0]}\n\n== {PART}\n\n{SENTENCES[1]}\n\n|===\n{rows}\n|===\n\n=== {SUBPART}\n\n"
        f"* {ITEMS[0]}\n** {INNER[0]}\n** {INNER[1]}\n* {ITEMS[1]}\n\n____\n{QUOTE}\n____\n\n"
        f"{WITH_NOTE}.footnote:[{NOTE}]\n\n{WITH_POWER} 10^6^ grams.\n"
    )


def org():
    rows = "\n".join(f"| {' | '.join(row)} |" for row in CELLS)
    return (
        f"* {TITLE}\n\n{SENTENCES[0]}\n\n** {PART}\n\n{SENTENCES[1]}\n\n{rows}\n\n*** {SUBPART}\n\n- {ITEMS[0]}\n"
        f"  - {INNER[0]}\n  - {INNER[1]}\n- {ITEMS[1]}\n\n#+BEGIN_QUOTE\n{QUOTE}\n#+END_QUOTE\n\n"
        f"{WITH_NOTE}.[fn:1]\n\n{WITH_POWER} 10^6 grams.\n\n[fn:1] {NOTE}\n"
    )


def latex():
    rows = " \\\\\n".join(" & ".join(row) for row in CELLS)
    return (
        f"\\documentclass{{report}}\n\\begin{{document}}\n\\chapter{{{TITLE}}}\n{SENTENCES[0]}\n\\section{{{PART}}}\n"
        f"{SENTENCES[1]}\n\\begin{{tabular}}{{lll}}\n{rows}\n\\end{{tabular}}\n\\subsection{{{SUBPART}}}\n"
        f"\\begin{{itemize}}\n\\item {ITEMS[0]}\n"
        f"\\begin{{itemize}}\n\\item {INNER[0]}\n\\item {INNER[1]}\n\\end{{itemize}}\n"
        f"\\item {ITEMS[1]}\n\\end{{itemize}}\n\\begin{{quote}}{QUOTE}\\end{{quote}}\n"
        f"{WITH_NOTE}.\\footnote{{{NOTE}}}\n\n"
        f"{WITH_POWER} $10^6$ grams.\n\\end{{document}}\n"
    )


def word():
    from docx import Document

    document, content = Document(), io.BytesIO()
    document.add_heading(TITLE, 1)
    document.add_paragraph(SENTENCES[0])
    document.add_heading(PART, 2)
    document.add_paragraph(SENTENCES[1])
    table = document.add_table(0, 3)
    for row in CELLS:
        for cell, text in zip(table.add_row().cells, row, strict=True):
            cell.text = text
    document.add_heading(SUBPART, 3)
    for text, style in (
        (ITEMS[0], "List Bullet"),
        (INNER[0], "List Bullet 2"),
        (INNER[1], "List Bullet 2"),
        (ITEMS[1], "List Bullet"),
        (QUOTE, "Quote"),
        (f"{WITH_NOTE}. ({NOTE})", None),
    ):
        document.add_paragraph(text, style)
    power = document.add_paragraph(f"{WITH_POWER} 10")
    power.add_run("6").font.superscript = True
    power.add_run(" grams.")
    document.save(content)
    return content.getvalue()


def slides():
    from pptx import Presentation
    from pptx.util import Cm

    show, content = Presentation(), io.BytesIO()
    for title, texts in (
        (TITLE, [(SENTENCES[0], 0)]),
        (PART, [(SENTENCES[1], 0)]),
        (SUBPART, [(ITEMS[0], 0), (INNER[0], 1), (INNER[1], 1), (ITEMS[1], 0), (QUOTE, 0), (f"{WITH_NOTE}.", 0)]),
    ):
        slide = show.slides.add_slide(show.slide_layouts[1])
        slide.shapes.title.text = title
        frame = slide.placeholders[1].text_frame
        for number, (text, level) in enumerate(texts):
            paragraph = frame.paragraphs[0] if not number else frame.add_paragraph()
            paragraph.text, paragraph.level = text, level
    power = frame.add_paragraph()
    power.add_run().text = f"{WITH_POWER} 10"
    raised = power.add_run()
    raised.text = "6"
    raised.font._element.set("baseline", "30000")
    power.add_run().text = " grams."
    slide.notes_slide.notes_text_frame.text = NOTE
    table = show.slides[1].shapes.add_table(3, 3, Cm(2), Cm(12), Cm(15), Cm(4)).table
    for row, texts in enumerate(CELLS):
        for column, text in enumerate(texts):
            table.cell(row, column).text = text
    show.save(content)
    return content.getvalue()


def sheets():
    from openpyxl import Workbook
    from openpyxl.cell.rich_text import CellRichText, TextBlock
    from openpyxl.cell.text import InlineFont
    from openpyxl.comments import Comment

    book, content = Workbook(), io.BytesIO()
    book.active.title = TITLE
    book.active.append([SENTENCES[0]])
    for title, rows in ((PART, [[SENTENCES[1]], *CELLS]), (SUBPART, [[text] for text in [*ITEMS, *INNER, QUOTE]])):
        page = book.create_sheet(title)
        for row in rows:
            page.append([float(text) if re.fullmatch(r"-?[\d.]+", text) else text for text in row])
    for row in book[PART].iter_rows(min_row=3, min_col=3):
        row[0].number_format = "0.00"
    page.append([f"{WITH_NOTE}."])
    page["A6"].comment = Comment(NOTE, "Moir")
    raised = TextBlock(InlineFont(vertAlign="superscript"), "6")
    page.append([CellRichText(f"{WITH_POWER} 10", raised, " grams.")])
    book.save(content)
    return content.getvalue()


_ODF = (
    " ".join(
        f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{long}:1.0"'
        for name, long in (("office", "office"), ("text", "text"), ("table", "table"), ("style", "style"))
    )
    + ' xmlns:fo="urn:oasis:names:tc:opendocument:xmlns:xsl-fo-compatible:1.0"'
)
_ODF_STYLES = (
    '<office:automatic-styles><style:style style:name="up" style:family="text"><style:text-properties '
    'style:text-position="super 58%"/></style:style></office:automatic-styles>'
)


def opendocument_body():
    rows = "".join(
        "<table:table-row>"
        + "".join(f"<table:table-cell><text:p>{cell}</text:p></table:table-cell>" for cell in row)
        + "</table:table-row>"
        for row in CELLS
    )

    def items(texts, more=""):
        first, *others = (f"<text:list-item><text:p>{text}</text:p>" for text in texts)
        return f"<text:list>{'</text:list-item>'.join([first + more, *others, ''])}</text:list>"

    return (
        f'<office:body><office:text><text:h text:outline-level="1">{TITLE}</text:h><text:p>{SENTENCES[0]}</text:p>'
        f'<text:h text:outline-level="2">{PART}</text:h><text:p>{SENTENCES[1]}</text:p>'
        f'<table:table table:name="t"><table:table-column table:number-columns-repeated="3"/>{rows}</table:table>'
        f'<text:h text:outline-level="3">{SUBPART}</text:h>{items(ITEMS, items(INNER))}<text:p>{QUOTE}</text:p>'
        f'<text:p>{WITH_NOTE}.<text:note text:id="n1" text:note-class="footnote"><text:note-citation>1'
        f"</text:note-citation><text:note-body><text:p>{NOTE}</text:p></text:note-body></text:note></text:p>"
        f'<text:p>{WITH_POWER} 10<text:span text:style-name="up">6</text:span> grams.</text:p>'
        "</office:text></office:body>"
    )


def odt():
    kind = "application/vnd.oasis.opendocument.text"
    inner = f"{_ODF_STYLES}{opendocument_body()}"
    content = f'<office:document-content {_ODF} office:version="1.2">{inner}</office:document-content>'
    manifest = (
        '<manifest:manifest xmlns:manifest="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0"><manifest:file-entry '
        f'manifest:full-path="/" manifest:media-type="{kind}"/></manifest:manifest>'
    )
    return zipped({"mimetype": kind, "content.xml": content, "META-INF/manifest.xml": manifest})


def fodt():
    return (
        f'<?xml version="1.0" encoding="UTF-8"?><office:document {_ODF} office:version="1.2" '
        f'office:mimetype="application/vnd.oasis.opendocument.text">{_ODF_STYLES}{opendocument_body()}</office:document>'
    )


def rtf():
    rows = "".join(
        r"\trowd\cellx2000\cellx4000\cellx6000" + "".join(rf"\pard\intbl {cell}\cell" for cell in row) + "\\row\n"
        for row in CELLS
    )
    listed = "".join(
        rf"\pard\ls1\ilvl{level}{{\listtext\'b7\tab}}{text}\par" + "\n"
        for text, level in ((ITEMS[0], 0), (INNER[0], 1), (INNER[1], 1), (ITEMS[1], 0))
    )
    body = (
        rf"\pard\s1 {TITLE}\par\pard {SENTENCES[0]}\par\pard\s2 {PART}\par\pard {SENTENCES[1]}\par" + f"\n{rows}"
        rf"\pard\s3 {SUBPART}\par" + f"\n{listed}" + rf"\pard {QUOTE}\par\pard {WITH_NOTE}.{{\super\chftn"
        rf"{{\footnote\pard {{\super\chftn}} {NOTE}}}}}\par\pard {WITH_POWER} 10{{\super 6}} grams.\par"
    ).replace("ü", r"\'fc")
    styles = r"{\stylesheet{\s1\outlinelevel0 heading 1;}{\s2\outlinelevel1 heading 2;}{\s3\outlinelevel2 heading 3;}}"
    lists = (
        r"{\*\listtable{\list\listtemplateid1{\listlevel\levelnfc23{\leveltext\'01\'b7;}{\levelnumbers;}}"
        r"{\listlevel\levelnfc23{\leveltext\'01\'b7;}{\levelnumbers;}}\listid1}}{\*\listoverridetable{\listoverride"
        r"\listid1\listoverridecount0\ls1}}"
    )
    return rf"{{\rtf1\ansi\ansicpg1252{styles}{lists}{body}}}"


def epub():
    container = (
        '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container" version="1.0"><rootfiles><rootfile '
        'full-path="book.opf" media-type="application/oebps-package+xml"/></rootfiles></container>'
    )
    package = (
        '<package xmlns="http://www.idpf.org/2007/opf" version="3.0"><metadata xmlns:dc="http://purl.org/dc/elements/1.1/">'
        f'<dc:title>{TITLE}</dc:title></metadata><manifest><item id="a" href="a.xhtml" '
        'media-type="application/xhtml+xml"/></manifest><spine><itemref idref="a"/></spine></package>'
    )
    page = RICH_HTML.replace("<html>", '<html xmlns="http://www.w3.org/1999/xhtml">')
    files = {"META-INF/container.xml": container, "book.opf": package, "a.xhtml": page}
    return zipped({"mimetype": "application/epub+zip", **files})


def mail():
    message = email.message.EmailMessage()
    message["From"], message["To"], message["Subject"] = "agnes@example.org", "tobias@example.org", TITLE
    message["Date"] = "Tue, 09 Jun 2026 10:00:00 +0000"
    message.set_content(RICH_HTML, subtype="html")
    return message.as_bytes()


def notebook():
    parts = filter(str.strip, MARKDOWN.split("\n\n"))
    cells = [{"cell_type": "markdown", "metadata": {}, "source": f"{part}\n"} for part in parts]
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


FILES = {
    "page.html": lambda: RICH_HTML, "text.md": lambda: MARKDOWN, "text.rst": rest_text, "text.adoc": asciidoc,
    "text.org": org, "text.tex": latex, "text.docx": word, "show.pptx": slides, "book.xlsx": sheets, "text.odt": odt,
    "text.fodt": fodt, "text.rtf": rtf, "book.epub": epub, "letter.eml": mail, "work.ipynb": notebook,
}  # fmt: skip

#: Formats whose text stays as it is, so that tables and powers have their own signs.
AS_IT_IS = (".rst", ".adoc", ".org", ".tex")


@pytest.fixture(scope="module")
def read(tmp_path_factory):
    """read(name): the document of a file."""
    folder = tmp_path_factory.mktemp("rich")

    def read_it(name):
        content = FILES[name]()
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return extract_document(folder / name)

    return read_it


@pytest.mark.parametrize("name", FILES)
def test_a_rich_text_is_the_same_in_every_format(name, read):
    document = read(name)
    text, suffix = document.text, name[name.index(".") :]
    for sentence in (*SENTENCES, QUOTE, NOTE, *ITEMS, *INNER, WITH_NOTE, WITH_POWER):
        assert text.count(sentence) == 1, sentence
    assert re.search(r"10\^6[$^]? grams", text)
    headings = [re.sub("^Slide .: ", "", place.heading.split(" > ")[-1]) for place in document.places if place.heading]
    headings += re.findall(r"(?m)^#+ (.*)", text) if suffix == ".ipynb" else []
    assert [each for each in dict.fromkeys(headings) if each in (TITLE, PART, SUBPART)] == [TITLE, PART, SUBPART]
    if suffix not in AS_IT_IS:
        for row in CELLS:
            assert f"| {' | '.join(row)} |" in text
        at = text.index(INNER[0])
        line = text[text.rfind("\n", 0, at) + 1 : at]
        assert suffix == ".xlsx" or re.fullmatch(r"\s+- ", line) or (line, suffix) == ("- ", ".pptx")
        assert text.index(ITEMS[0]) < at < text.index(INNER[1]) < text.index(ITEMS[1]) or suffix == ".xlsx"
    assert document.notices == ()
