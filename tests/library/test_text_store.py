"""A store finds the pieces of texts that a question is about by their words, and forgets a text that changed."""

import itertools
import os
import sqlite3
from dataclasses import replace

import numpy as np
import pytest

from octavo.documents.document import Document, Place, hash_text
from octavo.errors import OctavoError
from octavo.library.text_store import BLOCK, PIECE, TextStore, is_gone
from octavo.system.files import FileVersion

FILLER = "The committee met again and talked about the weather, the roads and the price of bread.\n\n"
FACT = "The lighthouse of Skerry was painted green by Tobias Quill.\n\n"


@pytest.fixture
def store(tmp_path):
    with TextStore(tmp_path / "texts.sqlite") as store:
        yield store


def words_of(store, piece):
    return store.document(piece.text).text[piece.start : piece.stop]


def test_a_fact_is_found_in_a_long_text(store):
    text = FILLER * 500 + FACT + FILLER * 500
    number = store.add(Document(text, name="long.txt")).number
    found = store.search("Who painted the lighthouses of Skerry?", [number])
    assert "Tobias Quill" in words_of(store, found[0])
    assert [piece.score for piece in found] == sorted((piece.score for piece in found), reverse=True)
    assert all(0 < piece.stop - piece.start <= PIECE for piece in found)


def test_no_piece_cuts_a_sentence_that_fits(store):
    sentence = "On day {} the keeper of the lighthouse wrote\nto the committee, and the committee did not answer."
    text = " ".join(sentence.format(day) for day in range(50))
    number = store.add(Document(text, name="a")).number
    found = store.search("Who wrote to the committee?", [number])
    assert "".join(words_of(store, piece) for piece in sorted(found)) == text
    assert all(words_of(store, piece).startswith("On day") for piece in found)
    assert max(piece.stop - piece.start for piece in found) > 0.8 * PIECE


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("Das Café öffnet um acht Uhr.", "Wann öffnet das CAFE?"),
        ("灯塔是绿色的。船长很高兴。", "灯塔是什么颜色?"),
        ("Маяк покрасил Тобиас.", "Кто покрасил маяк?"),
        ("It can't be helped: foo_bar's value is \"x\".", 'What is "foo_bar"? can\'t say'),
    ],
)
def test_words_are_found_in_any_language(store, text, question):
    numbers = [store.add(Document(text, name="a")).number, store.add(Document(FILLER, name="b")).number]
    assert words_of(store, store.search(question, numbers)[0]).strip() == text


@pytest.mark.parametrize("question", ["", "?!", '"', "zyxwv", "a" * 10_000])
def test_a_question_without_known_words_finds_nothing(store, question):
    number = store.add(Document(FILLER, name="a")).number
    assert store.search(question, [number]) == []
    assert store.first_pieces(number)[0].start == 0


def test_only_the_texts_that_are_asked_for_are_searched(store):
    numbers = [store.add(Document(FACT, name=name)).number for name in ("a", "b")]
    assert {piece.text for piece in store.search("lighthouse", numbers)} == set(numbers)
    assert {piece.text for piece in store.search("lighthouse", numbers[1:])} == {numbers[1]}


def test_rare_words_count_more_and_pieces_cover_the_text_once(store):
    number = store.add(Document((FILLER * 30 + "The bread of Zanzibar.\n\n") * 20, name="a")).number
    found = store.search("the bread of Zanzibar", [number])
    assert all("Zanzibar" in words_of(store, piece) for piece in found[:20])
    bounds = sorted((piece.start, piece.stop) for piece in found)
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(bounds))


def test_a_text_is_kept_with_its_places_until_its_file_changes(tmp_path):
    path = tmp_path / "texts.sqlite"
    places = (Place(0, "iv", None), Place(60, "v", "Ships > Sails"))
    document = Document(FACT * 3, places, name="a.pdf", path="/there/a.pdf", mtime_ns=5, n_bytes=7)
    with TextStore(path) as store:
        kept = store.add(document)
    assert (kept.sha256, kept.length) == (hash_text(document.text), len(document.text))
    with TextStore(path) as store:
        found = store.find(FileVersion("/there/a.pdf", 5, 7))
        assert (found.sha256, found.number, found.length) == (kept.sha256, kept.number, kept.length)
        assert store.find(FileVersion("/there/a.pdf", 6, 7)) is None
        again = store.document(kept.number)
        assert (again.text, again.places, again.name) == (document.text, places, "a.pdf")
        changed = Document("A shorter text about a windmill.", name="a.pdf", path="/there/a.pdf", mtime_ns=6, n_bytes=7)
        new = store.add(changed).number
        assert store.search("lighthouse", [new]) == []
        assert store.search("windmill", [new])
        assert new > kept.number  # an open conversation must not meet the text of another file
        for look in (lambda: store.document(kept.number), lambda: store.check([kept])):
            with pytest.raises(OctavoError, match="has changed since it was opened"):
                look()
    with sqlite3.connect(path) as raw:  # nothing of the old text is left
        assert raw.execute("SELECT COUNT(*) FROM texts").fetchone() == (1,)
        assert raw.execute("SELECT COUNT(*) FROM blocks").fetchone() == (1,)
        raw.execute("INSERT INTO words (words) VALUES ('integrity-check')")


def test_blocks_make_the_index_smaller_than_an_eighth_of_the_text(tmp_path):
    rng = np.random.default_rng(0)
    words = np.array(
        ["".join(chr(97 + letter) for letter in rng.integers(26, size=size)) for size in rng.integers(2, 9, 4000)]
    )
    chances = 1 / np.arange(1, len(words) + 1)
    text = " ".join(rng.choice(words, 150_000, p=chances / chances.sum()))
    with TextStore(tmp_path / "texts.sqlite") as store:
        store.add(Document(text, name="a"))
        n_bytes = store._db.execute("SELECT SUM(LENGTH(block)) FROM words_data").fetchone()[0]
        assert store._db.execute("SELECT MAX(stop - start) FROM blocks").fetchone()[0] <= BLOCK
    assert n_bytes < len(text) / 8
    assert os.path.getsize(tmp_path / "texts.sqlite") < len(text)


@pytest.mark.parametrize("is_forgotten", [True, False])
def test_the_number_of_a_text_serves_no_other(store, is_forgotten):
    """The newest text is forgotten, or its file changes: the next text must not take its number."""
    store.add(Document(FILLER, name="a.txt", path="/there/a.txt"))
    gate = store.add(Document(FACT, name="gate.txt", path="/there/gate.txt"))
    if is_forgotten:
        store.forget({"/there/gate.txt"}.__contains__)
        other = store.add(Document("The moon is made of cheese.", name="other.txt", path="/there/other.txt"))
    else:
        other = store.add(Document("The moon is made of cheese.", name="gate.txt", path="/there/gate.txt"))
    assert other.number > gate.number
    store.check([other])
    with pytest.raises(OctavoError, match="has changed since it was opened"):
        store.check([gate, other])


def test_a_text_that_is_kept_again_keeps_its_number(store):
    """Its file was touched."""
    first = store.add(Document(FACT, name="gate.txt", path="/there/gate.txt", mtime_ns=1))
    again = store.add(Document(FACT, name="gate.txt", path="/there/gate.txt", mtime_ns=2))
    assert again.number == first.number
    assert store.find(FileVersion("/there/gate.txt", 1, 0)) is None
    assert store.find(FileVersion("/there/gate.txt", 2, 0)).number == first.number
    assert [piece.text for piece in store.search("lighthouse", [first.number])] == [first.number]


def test_a_number_in_a_file_that_was_made_anew_is_of_another_text(tmp_path):
    path = tmp_path / "texts.sqlite"
    with TextStore(path) as store:
        gate = store.add(Document(FACT, name="gate.txt"))
    path.unlink()
    with TextStore(path) as store:
        other = store.add(Document(FILLER, name="other.txt"))
        assert other.number == gate.number
        with pytest.raises(OctavoError, match="has changed since it was opened"):
            store.check([gate])


def test_texts_of_the_version_before_are_kept(tmp_path):
    """Its numbers were used again."""
    path = tmp_path / "texts.sqlite"
    with TextStore(path) as store:
        for name in ("a", "b"):
            store.add(Document(f"{FACT}{name}", name=name, path=f"/there/{name}", mtime_ns=5, n_bytes=7))
    with sqlite3.connect(path, isolation_level=None) as older:
        older.executescript(
            "ALTER TABLE texts RENAME TO newer; CREATE TABLE texts (number INTEGER PRIMARY KEY, source TEXT UNIQUE, "
            "name TEXT, mtime_ns INTEGER, n_bytes INTEGER, sha256 TEXT, length INTEGER, places TEXT, text BLOB); "
            "INSERT INTO texts SELECT number, source, name, mtime_ns, n_bytes, sha256, length, places, text FROM newer;"
            "DROP TABLE newer; PRAGMA user_version = 2"
        )
    with TextStore(path) as store:
        kept = store.find(FileVersion("/there/b", 5, 7, "of-now"))
        assert store.document(kept.number).text == f"{FACT}b"
        assert {piece.text for piece in store.search("lighthouse", [1, 2])} == {1, 2}
        store.forget({"/there/b"}.__contains__)
        assert store.add(Document(FILLER, name="c")).number > kept.number


def test_texts_of_another_version_are_read_again(tmp_path):
    path = tmp_path / "texts.sqlite"
    with sqlite3.connect(path) as older:
        older.execute("CREATE TABLE texts (number INTEGER PRIMARY KEY, source TEXT UNIQUE, text BLOB)")
        older.execute("INSERT INTO texts (source, text) VALUES ('/there/a.pdf', 'x')")
    with TextStore(path) as store:
        assert store.find(FileVersion("/there/a.pdf", 5, 7)) is None
        kept = store.add(Document(FACT, name="a.pdf", path="/there/a.pdf", mtime_ns=5, n_bytes=7))
    with TextStore(path) as store:
        assert store.find(FileVersion("/there/a.pdf", 5, 7)).number == kept.number


def test_a_damaged_file_is_reported_in_a_sentence(tmp_path):
    path = tmp_path / "texts.sqlite"
    path.write_bytes(b"not a database" * 1000)
    with pytest.raises(OctavoError, match=r"texts\.sqlite cannot be used: file is not a database\. .* delete it"):
        TextStore(path)


def test_two_processes_add_at_once(tmp_path):
    stores = [TextStore(tmp_path / "texts.sqlite") for _ in range(2)]
    for number in range(10):
        stores[number % 2].add(Document(f"{FACT}{number}", name=f"{number}"))
    found = stores[0].search("lighthouse", range(1, 11))
    assert len(found) == 10
    for store in stores:
        store.close()


def test_the_texts_of_files_that_are_gone_are_forgotten(tmp_path):
    path, there, gone = tmp_path / "texts.sqlite", tmp_path / "there.txt", tmp_path / "gone.txt"
    there.write_text(FACT)
    with TextStore(path) as store:
        numbers = [store.add(Document(FACT * 50, name=file.name, path=str(file))).number for file in (there, gone)]
        standard_input = store.add(Document(FACT, name="Standard input")).number
        assert (store.forget(is_gone), store.forget(is_gone)) == (1, 0)
        found = store.search("lighthouse", [*numbers, standard_input])
        assert {piece.text for piece in found} == {numbers[0], standard_input}


def test_the_question_before_counts_less(store):
    """A question of its own words is about them; one without any is about the question before."""
    texts = {"ships.md": "The Petrel sank in the gale.", "bread.md": "The baker kneads dough at night."}
    numbers = {store.add(Document(text, name=name)).number: name for name, text in texts.items()}

    def best(question, before=""):
        return numbers[store.search(question, list(numbers), before)[0].text]

    assert best("Which Petrel sank?") == "ships.md"
    assert best("Who kneads dough?", before="Which Petrel sank?") == "bread.md"
    assert best("And why?", before="Which Petrel sank?") == "ships.md"
    assert best("And why at night?", before="Which Petrel sank?") == "bread.md"


def test_notices_about_a_text_are_kept_with_it(tmp_path):
    path, lacks = tmp_path / "texts.sqlite", ("a.pdf has 2 pages without text.",)
    version = FileVersion("/there/a.pdf", 5, 7)
    document = Document(FACT, name="a.pdf", path=version.path, mtime_ns=5, n_bytes=7, notices=lacks)
    with TextStore(path) as store:
        assert store.add(document).notices == lacks
    with TextStore(path) as store:
        assert store.find(version).notices == lacks
        store.add(replace(document, notices=()))
        assert store.find(version).notices == ()
        store.add(document)
        store.forget({version.path}.__contains__)
        assert store._db.execute("SELECT COUNT(*) FROM notices").fetchone() == (0,)


def test_a_store_of_an_octavo_that_kept_no_notices_opens(tmp_path):
    path, version = tmp_path / "texts.sqlite", FileVersion("/there/a", 5, 7)
    with TextStore(path) as store:
        number = store.add(Document(FACT, name="a", path=version.path, mtime_ns=5, n_bytes=7)).number
    with sqlite3.connect(path, isolation_level=None) as older:
        older.execute("DROP TABLE notices")
    with TextStore(path) as store:
        kept = store.find(version)
        assert (kept.number, kept.notices) == (number, ())
