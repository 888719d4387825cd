"""Where the characters of a document lie, and the text of its parts with their pages and headings."""

import pytest

from octavo.documents.document import Document, Place, marked_text

PLACES = (Place(0, "i", None), Place(10, "i", "Data"), Place(25, "1", "Data > Sources"))


def test_a_character_lies_in_the_last_place_that_begins_before_it():
    document = Document("x" * 40, PLACES)
    assert [document.place(offset) for offset in (0, 9, 10, 24, 25, 39)] == [
        PLACES[0],
        PLACES[0],
        PLACES[1],
        PLACES[1],
        PLACES[2],
        PLACES[2],
    ]


def test_what_lies_before_all_places_lies_nowhere():
    assert Document("x").place(0) is None
    assert Document("xy", (Place(1, None, "Data"),)).place(0) is None


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
