"""Test where the characters of a document lie."""

from octavo.documents.document import Document, Place

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
