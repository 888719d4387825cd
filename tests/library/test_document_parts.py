"""A long document's parts: together the whole text, each short enough, cut where a reader would."""

import dataclasses
import re
import shutil
from collections import Counter

import pytest
from helpers.command_line import octavo as command_line
from helpers.index_builds import Recorded
from hypothesis import given
from hypothesis import strategies as st

import octavo
from octavo import api
from octavo.documents.document import Document, Place
from octavo.errors import OctavoError
from octavo.library import source_text
from octavo.library.document_parts import parts_of, with_file_name
from octavo.library.open_index import Indexer
from octavo.runtime.store.library_snapshot import LibrarySnapshot
from octavo.runtime.store.model_library import Library


def n_words(text):
    return len(text.split())


def with_headings(n_sections, n_words_of_each):
    text, places = "", []
    for number in range(n_sections):
        places.append(Place(len(text), str(number + 1), f"Chapter {number}"))
        text += f"# Chapter {number}\n\n" + "word " * n_words_of_each + "\n\n"
    return Document(text, tuple(places), name="novel.txt", path="/novel.txt", notices=("said",))


def test_parts_begin_at_headings():
    document = with_headings(12, 100)
    parts = parts_of(document, 420, n_words)
    assert "".join(part.text for part in parts) == document.text
    assert all(part.text.startswith("# Chapter") for part in parts)
    assert all(n_words(part.text) <= 420 for part in parts)
    assert [part.name for part in parts] == [f"novel.txt, part {i} of {len(parts)}" for i in range(1, len(parts) + 1)]
    assert {part.path for part in parts} == {"/novel.txt"}
    assert [part.notices for part in parts] == [("said",), *[()] * (len(parts) - 1)]
    for part in parts:
        start, stop = part.part
        assert document.text[start:stop] == part.text
        assert document.text.splitlines()[part.first_line - 1] == part.text.splitlines()[0]


def test_a_part_knows_its_pages_and_headings():
    document = with_headings(3, 400)
    start = 0
    for part in parts_of(document, 150, n_words):
        for offset in range(0, len(part.text), 97):
            assert part.place(offset)[1:] == document.place(start + offset)[1:]
        start += len(part.text)


@pytest.mark.parametrize("border", ["\n\n", "\n", ". ", " "])
def test_without_headings_parts_end_where_something_ends(border):
    document = Document(border.join(["some words"] * 200))
    parts = parts_of(document, 60, n_words)
    assert len(parts) > 5
    assert all(part.text.endswith(border) for part in parts[:-1])


@given(text=st.text(max_size=300), most=st.integers(1, 50))
def test_any_text_is_cut_into_parts_that_fit(text, most):
    parts = parts_of(Document(text), most, len)
    assert "".join(part.text for part in parts) == text
    assert all(len(part.text) <= most for part in parts)


def test_a_document_that_fits_is_one_part():
    document = Document("short", (Place(0, "1", None),), name="a.txt")
    [part] = parts_of(document, 10, n_words)
    assert (part.text, part.places) == (document.text, document.places)


@pytest.fixture
def how(tiny_model, tmp_path):
    return {
        "model": octavo.ModelSettings(tiny_model, n_ctx=1024, n_threads=2, index_dir=tmp_path),
        "sampling": octavo.Sampling(max_tokens=4, temperature=0),
    }


def test_a_question_about_a_long_document_is_answered_from_a_part(how, tmp_path):
    (tmp_path / "long.txt").write_text("".join(f"The keeper wrote down ship {i} that passed.\n\n" for i in range(80)))
    progress = Recorded()
    with octavo.open_documents([tmp_path / "long.txt"], progress=progress, **how) as collection:
        parts = collection.documents
        assert [path.name for path in parts] == [
            f"long.txt, part {i} of {len(parts)}" for i in range(1, len(parts) + 1)
        ]
        first = collection.ask("Which ship?").text
        assert collection.path in parts
    [sentence] = [sentence for sentence in progress.notices if "is read in" in sentence]
    assert f"more than the context of 1,024. So it is read in {len(parts)} parts, " in sentence
    assert sentence.count("parts, ") == 1
    progress.notices.clear()
    with octavo.open_documents([tmp_path / "long.txt"], progress=progress, **how) as collection:
        assert collection.ask("Which ship?").text == first
    assert not any(sentence.startswith("Indexing") for sentence in progress.notices)


@pytest.fixture
def long(tmp_path):
    path = tmp_path / "long.txt"
    path.write_text("".join(f"The keeper wrote down ship {i} that passed.\n\n" for i in range(80)))
    return path


@pytest.fixture
def counted(monkeypatch):
    """How often models are loaded, and files are read."""
    counted = Counter()

    def count(module, name):
        usual = getattr(module, name)

        def call(*arguments, **settings):
            counted[name] += 1
            return usual(*arguments, **settings)

        monkeypatch.setattr(module, name, call)

    count(api, "load")
    count(source_text, "extract_document")
    return counted


def test_a_long_document_opens_as_its_parts(how, long, counted):
    """The model is loaded once, and the file is read once."""
    with octavo.open_document(long, sources=True, **how) as opened:
        assert isinstance(opened, octavo.Collection)
        assert [path.name for path in opened.documents] == [f"long.txt, part {i} of 5" for i in range(1, 6)]
        assert opened.n_tokens == 0  # nothing is attached before a question
        opened.ask("Which ship?")
        assert opened.path in opened.documents
        opened.sources()
    assert counted == {"load": 1, "extract_document": 1}
    with octavo.open_documents([long], **how) as collection:
        assert collection.documents == opened.documents


def test_a_long_document_is_split_on_the_command_line(tiny_model, long, counted, tmp_path):
    options = ["-m", tiny_model, "--index-dir", tmp_path, "-t", "2", "-c", "1024", "-n", "4", "--temp", "0"]
    asked = command_line("ask", long, "Which ship?", *options)
    assert asked.exit_code == 0
    assert re.search(r"^\(From \d passages?, [\d.]+% of long\.txt\.\)$", asked.stderr, re.M)
    assert counted == {"load": 1, "extract_document": 1}
    chat = command_line("chat", *options, stdin=f"/document {long}\nWhich ship?\n")
    assert (chat.exit_code, chat.stdout) == (0, asked.stdout)


def test_a_conversation_over_a_part_is_saved(how, long, tmp_path):
    how |= {"reading": octavo.ReadSettings(read="document")}
    with octavo.open_document(long, **how) as opened:
        opened.ask("Which ship?")
        opened.save(str(tmp_path / "saved.safetensors"))
        path, tokens = opened.path, opened.llama.input_ids[: opened.n_tokens].tolist()
    with octavo.open_document(long, **how) as opened:
        opened.load(str(tmp_path / "saved.safetensors"))
        assert (opened.path, opened.llama.input_ids[: opened.n_tokens].tolist()) == (path, tokens)
        assert "".join(opened.regenerate()) is not None


def test_a_conversation_over_excerpts_of_parts_continues(how, long, tmp_path):
    with octavo.open_document(long, **how) as opened:
        answer = opened.ask("Which ship?").text
        opened.save(str(tmp_path / "saved.safetensors"))
    with octavo.open_document(long, **how) as opened:
        opened.load(str(tmp_path / "saved.safetensors"))
        assert "".join(opened.regenerate()) == answer
        assert opened.has_turns


def test_a_text_of_too_many_parts_is_refused(how, tmp_path):
    (tmp_path / "endless.txt").write_text("The keeper wrote down each ship that passed the island.\n\n" * 3000)
    with pytest.raises(OctavoError, match=r"endless\.txt has about [\d,]+ tokens but this context holds 1,024"):
        octavo.open_documents([tmp_path / "endless.txt"], **how)


@pytest.fixture
def how_long(how):
    """A context that holds the document."""
    return {**how, "model": dataclasses.replace(how["model"], n_ctx=8192)}


def test_a_document_that_was_indexed_whole_is_asked_in_parts_with_a_shorter_context(how, how_long, long):
    with octavo.open_document(long, **how_long) as opened:
        assert [path.name for path in opened.documents] == ["long.txt"]
        whole = opened.ask("Which ship?").text
    with octavo.open_document(long, **how) as opened:
        assert len(opened.documents) > 1
        parts = [path.name for path in opened.documents]
        answer = opened.ask("Which ship?").text
    for settings, names, text in ((how_long, ["long.txt"], whole), (how, parts, answer)):  # each has its indexes
        progress = Recorded()
        with octavo.open_document(long, progress=progress, **settings) as opened:
            assert ([path.name for path in opened.documents], opened.ask("Which ship?").text) == (names, text)
        assert not any(sentence.startswith("Indexing") for sentence in progress.notices)


def test_parts_for_another_context_do_not_count_as_read(how, how_long, long):
    """With passages in place of an answer that waits, as nothing is in time."""
    octavo.index_documents([long], how["model"])
    reading = octavo.ReadSettings(first_answer=0, background=False)
    for n_ctx, kind in ((1024, {"excerpts", "part"}), (2048, {"excerpts"}), (8192, {"excerpts"})):
        settings = {**how, "model": dataclasses.replace(how["model"], n_ctx=n_ctx), "reading": reading}
        progress = Recorded()
        with octavo.open_document(long, progress=progress, **settings) as opened:
            opened.ask("Which ship?")
            assert (opened.rest, opened.answer.read.kind in kind) == ("indexed" if n_ctx == 1024 else "unread", True)
        assert not any(sentence.startswith("Indexing") for sentence in progress.notices)


def test_a_missing_part_does_not_count_as_read(how, long):
    folders = octavo.index_documents([long], how["model"])
    shutil.rmtree(folders[1])
    settings = {**how, "reading": octavo.ReadSettings(first_answer=0, background=False)}
    with octavo.open_document(long, **settings) as opened:
        opened.ask("Which ship?")
        assert opened.rest == "unread"


def test_the_cost_of_documents_names_parts_if_these_are_more(how, tmp_path):
    llama = octavo.Llama(how["model"].model, n_ctx=1024, n_threads=2)
    snapshot = LibrarySnapshot(Library.of(how["model"].model, tmp_path))
    indexer = Indexer(llama, snapshot, octavo.ReadSettings(), print)
    assert re.match(r"300 tokens, \d+ MiB of disk$", indexer.cost([100, 200]))
    assert indexer.cost([100, 5000]).startswith(f"{1 + -(-5000 // indexer._most)} parts, 5,100 tokens, ")


def test_a_part_gets_the_name_of_its_file():
    assert with_file_name("r.pdf, part 2 of 3", "2023/r.pdf") == "2023/r.pdf, part 2 of 3"
    assert with_file_name("r.pdf", "2023/r.pdf") == "2023/r.pdf"
