"""Test that a page of a PDF is drawn with a passage marked."""

import io

import pytest
from helpers.pdf_files import PdfWriter, lines
from PIL import Image, ImageChops

from octavo.documents.pdf.pdf_picture import draw_page
from octavo.errors import OctavoError

TEXTS = [
    "The keeper wrote down each ship that",
    "passed, and when the fog lay on the",
    "sound he rang the bell until it lif-",
    "ted.",
]


def marked(content, label, quote):
    """The box of what is marked, in points, and where it begins."""
    picture = draw_page(content, label, quote)
    image = Image.open(io.BytesIO(picture.png)).convert("RGB")
    unmarked = Image.open(io.BytesIO(draw_page(content, label, "").png)).convert("RGB")
    box, scale = ImageChops.difference(image, unmarked).getbbox(), 842 / image.height
    return (box and [round(scale * each) for each in box]), picture.top


def test_a_passage_is_marked_over_lines_and_hyphens():
    content = PdfWriter().page(*lines(TEXTS)).page(*lines(TEXTS[:1])).content()
    box, top = marked(content, "1", "when the fog lay on the sound he rang the bell until it lifted.")
    assert box[0] == pytest.approx(60, abs=3)
    assert box[1] == pytest.approx(842 - 687 - 8, abs=4)
    assert box[3] == pytest.approx(842 - 661 + 3, abs=4)
    assert top == pytest.approx(box[1] / 842, abs=0.01)
    assert marked(content, "1", "nothing of this is on it") == (None, None)
    assert marked(content, "2", "") == (None, None)


def test_a_passage_that_begins_or_ends_on_another_page_is_marked_in_part():
    content = PdfWriter().page(*lines(TEXTS)).content()
    before, _ = marked(content, "1", "as was told. The keeper wrote down each ship that passed")
    after, _ = marked(content, "1", "he rang the bell until it lifted. And then he went home to his wife")
    assert before[1] == pytest.approx(842 - 700 - 8, abs=4)
    assert after[3] == pytest.approx(842 - 661 + 3, abs=4)


@pytest.mark.parametrize("rotate", [90, 180, 270])
def test_turned_pages_are_marked_too(rotate):
    content = PdfWriter().page(*lines(TEXTS), rotate=rotate).content()
    assert marked(content, "1", TEXTS[0])[0] is not None


def test_other_pages_and_files_are_refused():
    content = PdfWriter().page(*lines(TEXTS)).content()
    with pytest.raises(OctavoError, match=r"^There is no page 3\.$"):
        draw_page(content, "3", "x")
    for other in (b"no PDF", PdfWriter(password="secret").page().content()):
        with pytest.raises(OctavoError, match="cannot draw"):
            draw_page(other, "1", "x")
