"""Texts with the pages and headings of their parts, whole and cut anywhere."""

import pytest

from octavo.documents.document import Document, Place
from octavo.documents.marked_text import marked_text

DOCUMENT = Document("Title.\nOne ship and another.\nThe end.\n", (Place(7, "1", None), Place(20, "2", "Ports")))


@pytest.mark.parametrize(
    ("start", "stop", "expected"),
    [
        (0, None, "Title.\n--- page 1\nOne ship and \n--- page 2, Ports\nanother.\nThe end.\n"),
        (0, 5, "Title\n"),
        (0, 7, "Title.\n"),
        (7, 20, "--- page 1\nOne ship and \n"),
        (11, 24, "--- page 1\nship and \n--- page 2, Ports\nanot\n"),
        (20, 24, "--- page 2, Ports\nanot\n"),
        (31, 31, "\n"),
    ],
)
def test_a_part_begins_with_its_place(start, stop, expected):
    assert marked_text(DOCUMENT, start, stop) == expected


def test_a_page_without_text_at_the_end_is_there():
    document = Document("One.\n", (Place(0, "1", None), Place(5, "2", None)))
    assert marked_text(document) == "--- page 1\nOne.\n--- page 2\n"
    assert marked_text(document, 0, 4) == "--- page 1\nOne.\n"
