"""Answers come at once from passages, from more as more is read, and from the whole once all is read."""

import dataclasses
import itertools
import re

import numpy as np
import pytest

import octavo
from octavo.ask.context import growing_indexes
from octavo.ask.context.growing_indexes import TimeToRead
from octavo.convert.build_pieces import PIECE
from octavo.library.background.reading_queue import ReadingQueue
from octavo.library.file_texts import FileTexts
from octavo.library.open_index import Indexer
from octavo.library.reading_speed import ReadingSpeed
from octavo.library.source_text import SourceFile
from octavo.library.text_store import TEXTS
from octavo.progress import Silent
from octavo.runtime.document.stored_rows import as_floats
from octavo.runtime.store.index_files import open_index
from octavo.runtime.store.library_snapshot import LibrarySnapshot
from octavo.runtime.store.model_library import Library
from octavo.system.files import read_json, write_json

QUESTION = "Who painted the lighthouse of Skerry?"
FACT = "The lighthouse of Skerry was painted green by Tobias Quill.\n\n"

#: Tokens that a model reads in a second: ten seconds are enough for 100, and a minute for passages of 420.
SPEED = 10.0


def filler(first, last):
    return "".join(f"On day {day} the committee talked about the price of bread.\n\n" for day in range(first, last))


@pytest.fixture(autouse=True)
def started(monkeypatch, tmp_path):
    """How often a reader would have been started; and a queue and a speed of the test's own."""
    calls = []
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("octavo.ask.context.growing_indexes.start_reader", lambda: calls.append(1))
    monkeypatch.setattr(ReadingSpeed, "tokens_per_s", lambda self, text: SPEED)
    return calls


@pytest.fixture
def book(tmp_path):
    path = tmp_path / "book.md"
    path.write_text("# Roads\n\n" + filler(0, 60) + "# Coast\n\n## Lights\n\n" + FACT + "# Bread\n\n" + filler(60, 120))
    return path


@pytest.fixture
def how(tiny_model, tmp_path):
    settings = octavo.ModelSettings(tiny_model, n_threads=2, n_ctx=16384, index_dir=tmp_path / "indexes")
    sampling, reading = octavo.Sampling(max_tokens=6, temperature=0), octavo.ReadSettings(first_answer=60)
    return {"model": settings, "sampling": sampling, "reading": reading}


@pytest.fixture
def library(how):
    return Library.of(how["model"].model, how["model"].index_dir)


def index(how, *paths):
    octavo.index_documents(paths, how["model"])


class Notices(octavo.Progress):
    def __init__(self):
        self.sentences = []

    def notice(self, sentence):
        self.sentences.append(sentence)


def text_before(session):
    llama = session.llama
    return llama.detokenize(llama.sequence.tokens[: session.n_document].tolist()).decode("utf-8", "replace")


def interrupted(how, path, n_pieces):
    """Read the first pieces of a document, as a background reader that was stopped."""

    class Stop(octavo.Progress):
        def __init__(self):
            self.n_left = n_pieces * 1024

        def advance(self, amount):
            self.n_left -= amount
            if self.n_left < -1024:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        octavo.index_documents([path], how["model"], progress=Stop())


def test_what_can_be_read_in_time_is_read_and_no_text_is_kept(tmp_path, how, library, started, monkeypatch):
    monkeypatch.setattr(ReadingSpeed, "tokens_per_s", lambda self, text: 10 * SPEED)
    path = tmp_path / "short.txt"
    path.write_text(FACT * 5)
    with octavo.open_document(path, **how) as session:
        assert session.has_one_context
        assert session.ask(QUESTION).read.kind == "document"
    assert (started, (library.folder / TEXTS).exists()) == ([], False)


def test_a_long_document_is_answered_from_passages_and_read_in_the_background(book, how, library, started):
    with octavo.open_document(book, sources=True, **how) as session:
        answer = session.ask(QUESTION)
        assert answer.read.kind == "excerpts"
        assert 0 < answer.read.share < 0.2
        assert session.rest == "being read"
        assert session.n_document <= 600
        assert "[Coast > Lights]" in text_before(session)
        assert "Tobias Quill" in text_before(session)
    [queued] = ReadingQueue().documents()
    assert (queued.path, queued.library) == (str(book), str(library.folder))
    assert started == [1]


def test_the_queued_job_makes_the_index_that_the_conversation_moves_over_to(book, how):
    from octavo.library.background.background_reader import BackgroundReader

    notices = Notices()
    with octavo.open_document(book, progress=notices, **how) as session:
        session.ask(QUESTION)
        before = session.n_tokens - session.n_document
        BackgroundReader(ReadingQueue()).run()
        answer = session.ask("What did the committee talk about?")
        assert (answer.read.kind, answer.read.share, session.rest) == ("document", 1.0, "indexed")
        assert session.n_tokens - session.n_document > before  # the conversation continues
        session.ask("And then?")
        assert session.has_one_context
        assert notices.sentences.count("book.md is read now: answers come from the whole text.") == 1
        whole = session.llama.input_ids[: session.n_document].copy()
    with octavo.open_document(book, **{**how, "reading": octavo.ReadSettings()}) as session:
        assert session.llama.input_ids[: session.n_document].tolist() == whole.tolist()


def test_a_read_document_is_opened_as_ever_even_under_another_name(book, how, tmp_path, started):
    index(how, book)
    with octavo.open_document(book, **{**how, "reading": octavo.ReadSettings()}) as session:
        expected = session.ask(QUESTION)
    copy = tmp_path / "copy.md"
    copy.write_text(book.read_text())
    for path in (book, copy):
        with octavo.open_document(path, **how) as session:
            answer = session.ask(QUESTION)
            assert session.has_one_context
            assert (answer.text, answer.read) == (expected.text, expected.read)
    assert started == []


def test_passages_follow_the_part_that_is_read(book, how, library):
    interrupted(how, book, 2)
    with octavo.open_document(book, sources=True, **how) as session:
        answer = session.ask(QUESTION)
        (_, part), context = session._context.key, session._context
        layers, tokens = context.index.layers, context.index.tokens
        text = text_before(session)
        session.sources()
        assert answer.read.kind == "part"
        assert answer.read.is_begun
        assert len(part.tokens) in (2048, 3072)
        assert len(part.text.text) / len(book.read_text()) <= answer.read.share <= 1
        assert part.text.text == book.read_text()[: part.n_characters]
        assert text.index("On day 0 ") < text.index("On day 10 ") < text.index("[Coast > Lights]")
        assert text.index("[Coast > Lights]") < text.rindex("Tobias Quill")
    index(how, book)
    [(folder, _)] = LibrarySnapshot(library).indexes
    whole, _ = open_index(folder, library.model_hash)
    n_part = len(part.tokens)
    assert whole.tokens[:n_part].tolist() == tokens[:n_part].tolist()
    for read, known in zip(layers, whole.layers, strict=True):
        order = known.order[0] if known.order.shape[1] else np.arange(known.keys.shape[1])
        for place in range(len(read.keys)):
            order = known.order[place] if known.order.shape[1] else order
            np.testing.assert_array_equal(read.keys[place, :n_part], known.keys[place][np.argsort(order)][:n_part])
            np.testing.assert_array_equal(read.values[place, :n_part], known.values[place][np.argsort(order)][:n_part])


def test_passages_act_as_if_they_were_read_behind_the_part(book, how):
    """Their keys are those of a reading at their own positions."""
    interrupted(how, book, 2)
    with octavo.open_document(book, **how) as session:
        session.ask(QUESTION)
        text, llama = session._context, session.llama
        _, part = text.key
        n_part, n_head = len(part.tokens), part.n_head
        passages = text.index.tokens[n_part:].tolist()
        with llama.attending(octavo.Attention.parse("dense")):
            llama.prefill(text.index.tokens[:n_head].tolist() + passages)
            alone = [llama.context.cache.rows(i, n_head) for i in range(len(text.index.layers))]
        for layer, stored, (keys, values) in zip(llama.context.cache.layers, text.index.layers, alone, strict=True):
            turned = layer.rope.turned(as_floats(keys), n_part - n_head)
            np.testing.assert_allclose(as_floats(stored.keys[:, n_part:]), turned, atol=2e-2)
            np.testing.assert_array_equal(stored.values[:, n_part:], values)


def test_a_part_is_taken_anew_when_half_more_is_read(book, how):
    interrupted(how, book, 1)
    with octavo.open_document(book, **how) as session:
        session.ask(QUESTION)
        first = session._context
        session.ask(QUESTION)
        assert (session._context.key, session._context.index) == (first.key, first.index)
        interrupted(how, book, 1)
        session.ask(QUESTION)
        assert len(session._context.key[1].tokens) > len(first.key[1].tokens)


def queued():
    return [document.name for document in ReadingQueue().documents()]


def test_a_question_over_a_folder_reads_on_only_what_it_needs(book, how, started):
    others = {"mill.md": "A windmill turns in Osterby.\n\n", "sheep.txt": "Sheep graze on the isle of Fenn.\n\n"}
    for name, fact in others.items():
        book.with_name(name).write_text(
            filler(200, 260).replace("committee", "council").replace("bread", "wool") + fact
        )
    for name in ("windmill.csv", "windmill.py", "Windmill.JSON"):  # data and programs
        book.with_name(name).write_text('"windmill in Osterby"\n' * 4)
    notices = Notices()
    paths = sorted(book.parent.glob("*.*"))
    with octavo.open_documents([path for path in paths if path.is_file()], progress=notices, **how) as session:
        session.ask("Which windmill turns in Osterby?")
        assert queued() == ["mill.md"]
        session.ask("And which sheep graze on the isle of Fenn?")
        assert queued()[0] == "sheep.txt"
        assert "book.md" not in queued()
    said = [sentence for sentence in notices.sentences if "in the background" in sentence]
    pattern = r"Reading mill\.md in the background: [\d,]+ tokens, \d+ MiB of disk\. `octavo stop` ends this\."
    assert re.fullmatch(pattern, said[0])
    assert len(said) == 2
    assert started == [1, 1]


def test_a_single_document_of_any_kind_is_read_on(book, how):
    table = book.with_name("table.csv")
    table.write_text("day,price\n" + "".join(f"{day},{day}.50\n" for day in range(400)))
    with octavo.open_document(table, **how) as session:
        session.ask("What is the price on day 7?")
    assert queued() == ["table.csv"]


def test_of_several_documents_the_read_one_is_answered_whole_and_the_likeliest_is_read_first(book, tmp_path, how):
    how["reading"] = octavo.ReadSettings(first_answer=60, read="document")
    mill, short = tmp_path / "mill.md", tmp_path / "short.md"
    mill.write_text("# Mills\n\n" + filler(200, 300) + "A windmill stands in Osterby.\n\n")
    short.write_text("Sheep graze on the isle of Fenn.\n")
    index(how, mill)
    notices = Notices()
    with octavo.open_documents([book, mill, short], progress=notices, **how) as session:
        answer = session.ask("What stands in Osterby, a windmill?")
        assert (answer.read.kind, session.path) == ("document", mill)
        session.clear()
        answer = session.ask("Which sheep graze on the isle of Fenn?")
        assert (answer.read.kind, session.path) == ("excerpts", short)
        assert "short.md" in queued()
        session.clear()
        session.ask(QUESTION)
        assert ReadingQueue().next().name == "book.md"
        index(how, book, short)
        session.clear()
        session.ask(QUESTION)
        assert session.rest == "indexed"
        assert "All 3 documents are read now: answers come from the whole text." in notices.sentences


def test_of_a_read_document_among_others_a_question_about_the_whole_gets_the_whole(book, tmp_path, how):
    mill = tmp_path / "mill.md"
    mill.write_text("# Mills\n\n" + filler(200, 300) + "A windmill stands in Osterby.\n\n")
    index(how, mill)
    how["reading"] = octavo.ReadSettings(first_answer=60, whole="off")
    with octavo.open_documents([book, mill], **how) as session:
        assert session.ask("What stands in Osterby, a windmill?").read.kind == "excerpts"
        session.clear()
        answer = session.ask("Summarise what is said of the windmill in Osterby.")
        assert (answer.read.kind, session.path) == ("document", mill)


def test_a_document_in_parts_is_answered_from_passages_then_from_the_part_of_the_best_one(book, how):
    how["reading"] = octavo.ReadSettings(first_answer=60, read="document")
    how["model"] = octavo.ModelSettings(how["model"].model, n_threads=2, n_ctx=4096, index_dir=how["model"].index_dir)
    with octavo.open_document(book, **how) as session:
        assert session.ask(QUESTION).read.kind == "excerpts"
        index(how, book)
        session.clear()
        answer = session.ask(QUESTION)
        assert answer.read.kind == "part"
        assert not answer.read.is_begun
        assert 0 < answer.read.share < 1
        assert session.rest == "indexed"


def test_of_a_document_in_parts_those_that_are_read_serve_at_once(book, how, monkeypatch):
    how["reading"] = octavo.ReadSettings(first_answer=60, read="document")
    how["model"] = octavo.ModelSettings(how["model"].model, n_threads=2, n_ctx=4096, index_dir=how["model"].index_dir)
    index(how, book)
    library = Library.of(how["model"].model, how["model"].index_dir)
    for folder, manifest in LibrarySnapshot(library).indexes:
        name = manifest["document"]["name"]
        if not name.startswith("book.md, part 1 of"):
            folder.rename(folder.with_name(f"away-{folder.name}.partial"))
    with octavo.open_document(book, **how) as session:
        answer = session.ask("What was talked about on day 3?")
        assert (answer.read.kind, str(session.path).startswith("book.md, part 1 of")) == ("part", True)
        session.clear()
        assert session.ask("What was talked about on day 119?").read.kind == "excerpts"


def test_the_damaged_index_of_a_part_is_made_again_alone(book, how):
    how["reading"] = octavo.ReadSettings(first_answer=60, read="document")
    how["model"] = octavo.ModelSettings(how["model"].model, n_threads=2, n_ctx=4096, index_dir=how["model"].index_dir)
    index(how, book)
    library = Library.of(how["model"].model, how["model"].index_dir)
    for folder, manifest in LibrarySnapshot(library).indexes:
        if manifest["document"]["name"].startswith("book.md, part 1 of"):
            (folder / "layer-000.safetensors").unlink()
        else:
            folder.rename(folder.with_name(f"away-{folder.name}.partial"))
    with octavo.open_document(book, **how) as session:
        answer = session.ask("What was talked about on day 3?")
        assert (answer.read.kind, str(session.path).startswith("book.md, part 1 of")) == ("part", True)
    [(_, manifest)] = LibrarySnapshot(library).indexes
    assert manifest["document"]["name"].startswith("book.md, part 1 of")


def test_what_failed_in_the_background_is_told_once_and_not_tried_again(book, how, started):
    notices = Notices()
    with octavo.open_document(book, progress=notices, **how) as session:
        session.ask(QUESTION)
        queue = ReadingQueue()
        queue.fail(queue.next(), "The disk is full.")
        session.ask(QUESTION)
        session.ask(QUESTION)
    assert notices.sentences.count("book.md could not be read in the background: The disk is full.") == 1
    assert ReadingQueue().next() is None
    assert started == [1]


def test_what_makes_too_many_parts_is_not_read_in_the_background(book, how, started, monkeypatch):
    monkeypatch.setattr("octavo.library.open_index._MOST_PARTS", 2)
    how["model"], notices = dataclasses.replace(how["model"], n_ctx=1024), Notices()
    with octavo.open_document(book, progress=notices, **how) as session:
        for _ in range(2):
            assert (session.ask(QUESTION).read.kind, session.rest) == ("excerpts", "unread")
    [said] = [sentence for sentence in notices.sentences if "too many" in sentence]
    assert re.fullmatch(r"book.md has about [\d,]+ tokens, too many to be indexed with this context of 1,024: .*", said)
    assert not any("in the background" in sentence for sentence in notices.sentences)
    assert (ReadingQueue().documents(), started) == ([], [])


@pytest.mark.parametrize("most_parts", [2, 100])
def test_the_tokens_of_a_document_are_estimated_once(book, how, started, monkeypatch, most_parts):
    monkeypatch.setattr("octavo.library.open_index._MOST_PARTS", most_parts)
    estimated = []
    of_text = growing_indexes.characters_per_token
    monkeypatch.setattr(
        growing_indexes, "characters_per_token", lambda llama, text: estimated.append(text) or of_text(llama, text)
    )
    how["model"] = dataclasses.replace(how["model"], n_ctx=1024)
    with octavo.open_document(book, **how) as session:
        estimated.clear()
        for _ in range(3):
            session.ask(QUESTION)
    assert (len(estimated), bool(started)) == (1, most_parts == 100)


def clock(monkeypatch, seconds):
    """Let each look at the clock of a reading take some seconds."""
    times = itertools.count(step=seconds)
    monkeypatch.setattr("octavo.ask.context.in_time.working_time", lambda: float(next(times)))


@pytest.mark.parametrize("n_documents", [1, 2])
def test_a_reading_that_is_slower_than_expected_is_left_to_the_background(book, how, started, monkeypatch, n_documents):
    """What was read until then is not read again: the answer comes from it, and from passages."""
    monkeypatch.setattr(ReadingSpeed, "tokens_per_s", lambda self, text: 10_000.0)
    noted = []
    monkeypatch.setattr(ReadingSpeed, "note", lambda self, n_tokens, seconds: noted.append((n_tokens, seconds)))
    other = book.with_name("other.md")
    other.write_text(filler(200, 203))
    clock(monkeypatch, 1)
    notices = Notices()
    with octavo.open_documents([book, other][:n_documents], progress=notices, **how) as session:
        answer = session.ask(QUESTION)
        assert (answer.read.kind, answer.read.share < 1, session.rest) == ("part", True, "being read")
        assert "Tobias Quill" in text_before(session)
    assert "Reading takes longer than an answer may wait, so the answer comes from passages." in notices.sentences
    assert [document.name for document in ReadingQueue().documents()][:1] == ["book.md"]
    assert started == [1]
    n_tokens, seconds = noted[0]
    assert n_tokens > PIECE
    assert 2 <= seconds <= 60, "by the clock above"


def test_a_reading_that_is_fast_enough_is_finished(book, how, started, monkeypatch):
    monkeypatch.setattr(ReadingSpeed, "tokens_per_s", lambda self, text: 10_000.0)
    clock(monkeypatch, 0.1)
    with octavo.open_document(book, **how) as session:
        assert session.ask(QUESTION).read.kind == "document"
    assert started == []


@pytest.mark.parametrize("reading", [{"background": False}, {"password": "secret"}], ids=str)
def test_without_a_background_nothing_is_queued(book, how, reading, started):
    how["reading"] = octavo.ReadSettings(first_answer=60, **reading)
    with octavo.open_document(book, **how) as session:
        assert session.ask(QUESTION).read.kind == "excerpts"
    assert (ReadingQueue().documents(), started) == ([], [])


def test_the_time_to_the_first_answer_limits_the_passages(book, how, monkeypatch):
    monkeypatch.setattr(ReadingSpeed, "tokens_per_s", lambda self, text: 10 * SPEED)
    n_tokens = []
    for seconds in (15, 60):
        how["reading"] = octavo.ReadSettings(first_answer=seconds)
        with octavo.open_document(book, **how) as session:
            session.ask("What was talked about on day 3?")
            n_tokens.append(session.n_document)
    assert n_tokens[0] < 0.7 * n_tokens[1]


def test_the_speed_of_a_model_is_measured_and_kept(book, how, library, monkeypatch):
    monkeypatch.undo()
    llama = octavo.Llama(how["model"].model, n_ctx=4096, n_threads=2)
    library.make_folder()
    speed = ReadingSpeed(llama, library)
    measured = speed.tokens_per_s(book.read_text())
    assert measured > 0
    assert ReadingSpeed(llama, library).tokens_per_s("another") == pytest.approx(measured, abs=0.1)
    speed.note(1000, 4.0)
    assert speed.tokens_per_s("") == 250.0
    speed.note(1000, 4.1)  # about the same
    speed.note(10, 1.0)  # too short to tell
    assert speed.tokens_per_s("") == pytest.approx(244, abs=0.1)


@pytest.mark.parametrize("order", [1, -1])
def test_each_document_has_tokens_of_its_own_kind(order, book, how, library, tmp_path):
    """What is left to read is estimated from a sample of each: figures have other tokens than prose."""
    (tmp_path / "figures.csv").write_text("".join(f"{n % 7},{n % 11},{n % 13}\n" for n in range(400)))
    llama, snapshot = octavo.Llama(how["model"].model, n_ctx=16384, n_threads=2), LibrarySnapshot(library)
    files = [SourceFile(path, how["reading"].extraction) for path in (tmp_path / "figures.csv", book)[::order]]
    texts = FileTexts(library, Silent(), 1)
    time_to_read = TimeToRead(Indexer(llama, snapshot, how["reading"], print), texts, files, 1e6)
    assert time_to_read.suffices()
    n_tokens = sum(len(llama.prompt().document(file.path.read_text())) for file in files)
    assert time_to_read.n_left == pytest.approx(n_tokens, rel=0.05)


def test_a_speed_is_certain_once_two_measurements_agree(how, library, monkeypatch):
    monkeypatch.undo()
    llama = octavo.Llama(how["model"].model, n_ctx=4096, n_threads=2)
    library.make_folder()
    speed = ReadingSpeed(llama, library)
    certain = []
    for n_tokens in (500, 1000, 1200, 5000, 4000, 4100):
        speed.note(n_tokens, 5.0)
        certain.append(speed.certain)
    assert certain == [0, 0, 220, 0, 900, 900]  # the last is about as known
    key, measured = next(iter(read_json(library.folder / "reading-speed.json").items()))
    assert measured == [1000, 800]
    write_json(library.folder / "reading-speed.json", {key: 800.0})  # of an older version
    assert (speed.known, speed.certain) == (800, 0)
    speed.note(4100, 5.0)
    assert (speed.known, speed.certain) == (820, 810)


def test_a_first_answer_takes_no_less_than_nothing():
    with pytest.raises(octavo.OctavoError, match=r"0 seconds or more: not -1"):
        octavo.ReadSettings(first_answer=-1)
    with pytest.raises(octavo.OctavoError, match=r"One file or more is read at once: not 0"):
        octavo.ReadSettings(n_jobs=0)


def test_many_texts_are_extracted_by_several_processes(tmp_path, how):
    paths = [tmp_path / f"{number}.md" for number in range(12)]
    for number, path in enumerate(paths):
        path.write_text(f"# Isle {number}\n\n{filler(number, number + 20)}")
    (tmp_path / "bad.pdf").write_bytes(b"%PDF-1.4 nothing")
    how["reading"] = octavo.ReadSettings(first_answer=60, n_jobs=2)
    notices = Notices()
    with octavo.open_documents([*paths, tmp_path / "bad.pdf"], progress=notices, **how) as session:
        assert session.documents == paths
        session.ask("What is written of Isle 7?")
        assert session.path == paths[7]
    assert any(sentence.startswith("Left out: bad.pdf") for sentence in notices.sentences)


def test_a_part_that_serves_before_the_others_says_that_its_file_has_changed(book, how):
    how["reading"] = octavo.ReadSettings(first_answer=60, read="document", whole="off")
    how["model"] = octavo.ModelSettings(how["model"].model, n_threads=2, n_ctx=4096, index_dir=how["model"].index_dir)
    index(how, book)
    for folder, manifest in LibrarySnapshot(Library.of(how["model"].model, how["model"].index_dir)).indexes:
        if not manifest["document"]["name"].startswith("book.md, part 1 of"):
            folder.rename(folder.with_name(f"away-{folder.name}.partial"))
    with octavo.open_document(book, **how) as session:
        assert "changed" not in session.ask("What was talked about on day 3?").notices
        session.clear()
        book.write_text(f"{book.read_text()} More.")
        answer = session.ask("What was talked about on day 3?")
        assert (answer.read.kind, "changed" in answer.notices) == ("part", True)
