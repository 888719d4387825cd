"""A table of behaviours over the doors of octavo: what one shows of an answer, all show."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from helpers.doors import DOORS, Door, House, How
from helpers.talking_model import ANSWER, LOOP

#: A text without the number that the model names, and one with it.
WITHOUT, WITH = "The ship sailed in 1785.", "The ship sailed in 90 days."

QUESTION = "Who painted the lighthouse of Skerry?"
FACT = "The lighthouse of Skerry was painted green by Tobias Quill.\n\n"

#: More than two pieces of an index, which are read one after another.
BOOK = "".join(f"On day {day} the committee talked about the price of bread.\n\n" for day in range(50)) + FACT


def stopped_for_repeating(door: Door) -> None:
    ship = door.house.write("ship.txt", WITH)
    said = door.ask("Hello?", [ship], How(model="looping", limit=1000))
    assert said.text == (LOOP * 200)[: len(said.text)]
    assert len(LOOP) <= len(said.text) < 5 * len(LOOP)  # without its repeats
    assert said.ended == "loop"


def cut_by_the_limit(door: Door) -> None:
    ship = door.house.write("ship.txt", WITH)
    said = door.ask("Hello?", [ship], How(limit=3))
    assert (said.text, said.ended) == (ANSWER[:3], "length")


def thought_cut(door: Door) -> None:
    ship = door.house.write("ship.txt", WITH)
    said = door.ask("Hello?", [ship], How(model="endless thought", think_budget=8))
    assert (said.text, said.ended, said.thought_was_cut) == (ANSWER, "stop", True)


def names_not_in_the_text(door: Door) -> None:
    said = door.ask("Hello?", [door.house.write("without.txt", WITHOUT)], How())
    assert (said.text, said.is_unfounded) == (ANSWER, True)
    said = door.ask("Hello?", [door.house.write("with.txt", WITH)], How())
    assert (said.text, said.is_unfounded) == (ANSWER, False)


def half_read_document(door: Door) -> None:
    book = door.house.write(f"half {door.name}.md", BOOK)
    door.house.index_in_part(book, How())
    assert door.ask(QUESTION, [book], How(waits=False)).is_from_part


def question_about_a_whole(door: Door) -> None:
    book = door.house.write("wool.md", BOOK)
    assert not door.ask(QUESTION, [book], How(waits=False)).needs_whole
    assert door.ask("Summarise the document.", [book], How(waits=False)).needs_whole


def list_of_all(door: Door) -> None:
    """Each document answers, and code writes the list: each door shows all of it, marks each item, and proves it."""
    filler = "1 2 3 4 5 6 7 8 9 0.\n\n" * 18
    facts = [f"The captain of the ship {ship} was {who}." for ship, who in (("Heron", "Amos"), ("Tern", "Edith"))]
    logs = [door.house.write(f"ship {n}.md", f"{filler}{fact}\n\n{filler}") for n, fact in enumerate(facts)]
    said = door.ask("List every ship and its captain.", logs, How(limit=400, sources=True))
    assert said.is_from_all
    assert said.text.startswith("2 found:")
    for number, fact in enumerate(facts, 1):
        assert f"“{fact}” (ship {number - 1}.md, line " in said.text
        assert f"“{fact}” [{number}]" in said.marked
        assert fact in said.sources


TOO_LITTLE = "quest:budget=.001"


def budget_warning(door: Door) -> None:
    book = door.house.write("book.md", BOOK)
    assert door.ask(QUESTION, [book], How(attention=TOO_LITTLE)).warns_of_budget
    assert not door.ask(QUESTION, [book], How()).warns_of_budget


def budget_warning_of_several(door: Door) -> None:
    books = [door.house.write(f"{number}.md", BOOK) for number in (1, 2)]
    assert door.ask(QUESTION, books, How(attention=TOO_LITTLE)).warns_of_budget
    assert not door.ask(QUESTION, books, How()).warns_of_budget


def budget_warning_without_document(door: Door) -> None:
    assert door.ask(QUESTION, [], How(attention=TOO_LITTLE)).warns_of_budget
    assert not door.ask(QUESTION, [], How()).warns_of_budget


def changed_document(door: Door) -> None:
    name = f"changed {door.name}.txt"
    assert door.ask("Hello?", [door.house.write(name, WITHOUT)], How()).is_unfounded
    assert not door.ask("Hello?", [door.house.write(name, WITH)], How()).is_unfounded


def changed_after_it_was_indexed(door: Door) -> None:
    """A door reads the file again, or says that it has changed: no old text answers without a word."""
    name = f"saved {door.name}.txt"
    path = door.house.write(name, WITHOUT)
    said = door.ask("Hello?", [path], How())
    assert (said.is_unfounded, said.has_changed) == (True, False)
    door.house.write(name, WITH)
    door.house.left.add(path)
    said = door.ask("Hello?", [path], How())
    assert said.is_unfounded == said.has_changed


def sources(door: Door) -> None:
    filler = "The sea was calm, and nobody came to the harbour that day.\n\n"
    fact = "The password of the lighthouse at Corvane is marmalade."
    log = door.house.write("log.md", f"{filler * 6}{fact}\n\n{filler * 6}")
    how = How(model="", limit=16, sources=True)
    said = door.ask("What is the password of the lighthouse at Corvane?", [log], how)
    assert "marmalade" in said.text
    assert fact in said.sources


def source_by_its_words(door: Door) -> None:
    """The tiny model's attention names nothing, and still no door says that a right answer is not from the document."""
    filler = "Nobody came to the harbour that day, and the sea was calm. "
    log = door.house.write("voyage.md", f"{filler * 12}\n\nThe vessel sailed for 90 days.\n\n{filler * 12}")
    said = door.ask("For how many days did the vessel sail?", [log], How(sources=True))
    assert said.text == ANSWER
    assert "sailed for 90 days." in said.sources


def marks_inside_the_answer(door: Door) -> None:
    """Each door draws the mark behind the sentence, and the text of the answer stays without it."""
    filler = "Nobody came to the harbour that day, and the sea was calm. "
    log = door.house.write("passage.md", f"{filler * 12}\n\nThe vessel sailed for 90 days.\n\n{filler * 12}")
    how = How(sources=True)
    said = door.ask("For how many days did the vessel sail?", [log], how)
    assert (said.text, said.marked) == (ANSWER, f"{ANSWER} [1]")
    unfounded = door.ask("Who came to the harbour that day?", [log], how)
    assert (unfounded.text, unfounded.marked) == (ANSWER, ANSWER)


def refused_question(door: Door) -> None:
    """A question that is refused leaves no trace in what the next answer is given from."""
    ship = door.house.write("ship.txt", WITH)
    refused = door.refuse(ship, How(), "Where?", "long " * 4000)
    assert refused.sentence
    assert refused.first[0] == ANSWER
    assert refused.again == refused.first


ROWS: tuple[Callable[[Door], None], ...] = (
    stopped_for_repeating,
    cut_by_the_limit,
    thought_cut,
    names_not_in_the_text,
    half_read_document,
    question_about_a_whole,
    list_of_all,
    budget_warning,
    budget_warning_of_several,
    budget_warning_without_document,
    changed_document,
    changed_after_it_was_indexed,
    sources,
    source_by_its_words,
    marks_inside_the_answer,
    refused_question,
)

_CLIENTS = "The client keeps the conversation, and sends a refused question again or not."

#: Cells that a door has no use for.
NOT_OFFERED = {
    ("refused_question", "chat completions"): _CLIENTS,
    ("refused_question", "messages"): _CLIENTS,
    ("refused_question", "MCP"): "Each call is a conversation of its own.",
    ("budget_warning_without_document", "MCP"): "The tools answer from documents alone.",
}


def cells():
    for door in DOORS:
        for row in ROWS:
            cell = row.__name__, door.name
            if cell not in NOT_OFFERED:
                yield pytest.param(door, row, id=f"{door.name}-{row.__name__}")


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    house = House(tmp_path_factory.mktemp("house"))
    yield house
    house.close()


@pytest.mark.parametrize(("door", "row"), list(cells()))
def test_each_door_shows_the_same(door, row, house):
    try:
        row(door(house))
    finally:
        house.cancel()


def test_tables_name_cells():
    names = {(row.__name__, door.name) for row in ROWS for door in DOORS}
    assert names >= NOT_OFFERED.keys()
