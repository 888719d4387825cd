"""Test that files of Office are read as Office does: strict ones, with paths of Windows, without parts of no matter."""

import io
import re
import zipfile

import pytest
from helpers.document_files import word_parts, zipped

from octavo.documents.archive import Archive
from octavo.documents.extract import extract_document
from octavo.documents.office.package import office_package
from octavo.errors import OctavoError

openpyxl = pytest.importorskip("openpyxl")
pptx = pytest.importorskip("pptx")

LINKS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
SHEETS = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
USUAL = re.compile(rb"http://schemas\.openxmlformats\.org/(\w+)/2006/")
PICTURE = (
    b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1\x08\2\0\0\0\x90wS\xde\0\0\0\x0cIDATx\x9cc\xf8\xcf\xc0\0\0\3\1\1\0"
    b"\xc9\xfe\x92\xef\0\0\0\0IEND\xaeB`\x82"
)


def saved(made):
    out = io.BytesIO()
    made.save(out)
    with zipfile.ZipFile(out) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def workbook():
    made = openpyxl.Workbook()
    made.active.title = "Prices"
    made.active.append(["Apples", 12.5])
    made.active["B1"].number_format = "0.00"
    made.active["A1"].comment = openpyxl.comments.Comment("ripe", "Ada")
    made.create_sheet("Dates").append(["Sown", openpyxl.utils.datetime.from_excel(45000)])
    return saved(made)


def slides():
    made = pptx.Presentation()
    slide = made.slides.add_slide(made.slide_layouts[1])
    slide.shapes.title.text, slide.placeholders[1].text = "Harvest", "Apples 12.50"
    slide.shapes.add_picture(io.BytesIO(PICTURE), 0, 0)
    slide.notes_slide.notes_text_frame.text = "Speak slowly"
    return saved(made)


WORKBOOK = "## Prices\n\n| Apples | 12.50 |\n| --- | --- |\n\n[Remark on A1: ripe]\n\n## Dates\n\n"
WORKBOOK += "| Sown | 2023-03-15 |\n| --- | --- |\n"
SLIDES = "## Slide 1: Harvest\n\n![image.png]\n\nApples 12.50\n\nNotes: Speak slowly\n"
KINDS = {"a.docx": word_parts, "a.xlsx": workbook, "a.pptx": slides}


def read(tmp_path, name, files):
    (tmp_path / name).write_bytes(zipped(files))
    return extract_document(tmp_path / name)


@pytest.fixture
def text(tmp_path):
    return {name: read(tmp_path, name, make()).text for name, make in KINDS.items()}


def test_workbooks_and_slides_have_their_text(text):
    assert text["a.xlsx"] == WORKBOOK
    assert text["a.pptx"] == SLIDES


def strict(files):
    return {name: USUAL.sub(rb"http://purl.oclc.org/ooxml/\1/", _bytes(content)) for name, content in files.items()}


def of_windows(files):
    return {name.replace("/", "\\"): content for name, content in files.items()}


def from_the_root(files):
    return {f"/{name}": content for name, content in files.items()}


def in_other_cases(files):
    """Links in other cases than the names of parts, but for the folders."""
    return {
        name: re.sub(rb'Target="([\w/.]+?)(\w+\.xml)"', lambda m: b'Target="' + m[1] + m[2].upper() + b'"', content)
        if name.endswith(".rels")
        else content
        for name, content in ((name, _bytes(content)) for name, content in files.items())
    }


def _bytes(content):
    return content if isinstance(content, bytes) else content.encode()


@pytest.mark.parametrize("change", [strict, of_windows, from_the_root, in_other_cases])
@pytest.mark.parametrize("name", KINDS)
def test_other_names_of_parts_and_elements_are_known(tmp_path, text, name, change):
    assert read(tmp_path, name, change(KINDS[name]())).text == text[name]


NEEDED = r"\[Content_Types\]|_rels/|word/|xl/(worksheets|workbook|styles|sharedStrings|comments)|comments/|slide\d"
NEEDED += r"|presentation\.xml$|notesSlide"


@pytest.mark.parametrize("name", ["a.xlsx", "a.pptx"])
def test_parts_without_text_may_be_missing_or_broken(tmp_path, text, name):
    files = KINDS[name]()
    others = [part for part in files if not re.search(NEEDED, part) or re.search(r"theme|media", part)]
    assert len(others) > 3
    for part in others:
        changed = {**files, part: b""} if "docProps" in part else _without(files, part)
        assert sorted(read(tmp_path, name, changed).text.split()) == sorted(text[name].split()), part


def _without(files, *parts):
    return {name: content for name, content in files.items() if name not in parts}


def test_a_workbook_with_names_links_and_styles_that_excel_forgives(tmp_path):
    files = workbook()
    book = files["xl/workbook.xml"].decode()
    other = '<externalReference xmlns:r="urn:r" r:id="rId99"/>'
    book = book.replace("</sheets>", f"</sheets><externalReferences>{other}</externalReferences>")
    book = re.sub(
        r"<definedNames\s*/>", '<definedNames><definedName name="Print_Area">#REF!</definedName></definedNames>', book
    )
    files["xl/workbook.xml"] = re.sub(r'tabRatio="\d+"', 'tabRatio="wide"', book)
    files["xl/styles.xml"] = files["xl/styles.xml"].replace(b"<fill>", b'<fill><gradientFill type="round"/>')
    link = f'<Relationship Id="s" Type="{LINKS}/sharedStrings" Target="sharedStrings.xml"/></Relationships>'
    files["xl/_rels/workbook.xml.rels"] = files["xl/_rels/workbook.xml.rels"].replace(
        b"</Relationships>", link.encode()
    )
    font = '<rPr><rFont val="A"/><family val="99"/><u val="wavy"/></rPr>'
    files["xl/sharedStrings.xml"] = (
        f'<sst xmlns="{SHEETS}"><si><r>{font}<t>Apples</t></r><rPh><t>a</t></rPh></si></sst>'
    )
    sheet = re.sub(rb't="inlineStr"><is>.*?</is>', b't="s"><v>0</v>', files["xl/worksheets/sheet1.xml"])
    files["xl/worksheets/sheet1.xml"] = sheet.replace(
        b"</sheetData>", b'</sheetData><dataValidations><dataValidation type="odd"/></dataValidations>'
    )
    assert b't="s"' in sheet
    assert read(tmp_path, "a.xlsx", files).text == WORKBOOK


def test_missing_sheets_and_slides_are_told(tmp_path):
    document = read(tmp_path, "a.xlsx", _without(workbook(), "xl/worksheets/sheet2.xml"))
    assert document.text == WORKBOOK.partition("\n## Dates")[0]
    assert document.notices == ("a.xlsx has 1 missing sheet: octavo leaves it out.",)
    made = pptx.Presentation()
    for title in ("Harvest", "Gone"):
        made.slides.add_slide(made.slide_layouts[5]).shapes.title.text = title
    document = read(tmp_path, "a.pptx", _without(saved(made), "ppt/slides/slide2.xml"))
    assert document.text == "## Slide 1: Harvest\n"
    assert document.notices == ("a.pptx has 1 missing slide: octavo leaves it out.",)


@pytest.mark.parametrize(
    "kind",
    [
        "application/vnd.openxmlformats-officedocument.presentationml.slideshow.main+xml",
        "application/vnd.openxmlformats-officedocument.presentationml.template.main+xml",
        "application/vnd.ms-powerpoint.slideshow.macroEnabled.main+xml",
        "application/vnd.ms-powerpoint.template.macroEnabled.main+xml",
        "application/vnd.ms-powerpoint.presentation.macroEnabled.main+xml",
    ],
)
def test_slide_shows_and_templates_are_presentations(tmp_path, kind):
    files = slides()
    types = files["[Content_Types].xml"].decode()
    files["[Content_Types].xml"] = re.sub(r'"[^"]*presentation\.main\+xml"', f'"{kind}"', types)
    assert kind in files["[Content_Types].xml"]
    assert read(tmp_path, "a.ppsx", files).text == SLIDES


@pytest.mark.parametrize(
    ("what", "other"),
    [
        (rb"<p:spPr/>", rb"<p:spPr><a:xfrm/></p:spPr>"),
        (rb"<a:off [^>]*/>", b""),
        (rb"<a:blip [^>]*/>", b""),
        (rb'(<p:cNvPr) id="\d+"', rb"\1"),
        (rb"(<p:cNvPr [^>]*?name)=", rb'\1="" other='),
    ],
)
def test_slides_lack_what_only_their_look_needs(tmp_path, what, other):
    files = slides()
    files["ppt/slides/slide1.xml"], number = re.subn(what, other, files["ppt/slides/slide1.xml"])
    assert number
    assert sorted(read(tmp_path, "a.pptx", files).text.split()) == sorted(SLIDES.split())


def test_a_picture_in_the_place_of_a_title_is_none(tmp_path):
    made = pptx.Presentation()
    slide = made.slides.add_slide(made.slide_layouts[8])
    next(shape for shape in slide.placeholders if "Picture" in shape.name).insert_picture(io.BytesIO(PICTURE))
    slide.shapes.title._element.getparent().remove(slide.shapes.title._element)
    mark = slide.shapes._spTree.xpath(".//p:pic//p:ph")[0]
    mark.set("type", "title")
    mark.attrib.pop("idx", None)
    slide.shapes.add_textbox(0, 0, 9, 9).text_frame.text = "Harvest"
    document = read(tmp_path, "a.pptx", saved(made))
    assert "Harvest" in document.text
    assert document.notices == ("a.pptx has 1 picture: octavo leaves it out.",)


def test_a_binary_workbook_has_advice(tmp_path):
    with pytest.raises(OctavoError, match=r"a\.xlsb is a binary workbook \(XLSB\), which octavo does not read"):
        read(tmp_path, "a.xlsb", {"xl/workbook.bin": b"\0", "[Content_Types].xml": "<Types/>"})


def test_pictures_are_not_carried_along(tmp_path):
    package = office_package(Archive(zipped(slides()), "a.pptx"))
    assert [name for name in package.names if name.startswith("ppt/media/")]
    assert not any(package.read(name) for name in package.names if name.startswith("ppt/media/"))
    assert not any(name.startswith("docProps/") for name in package.names)
