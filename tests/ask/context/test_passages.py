"""Documents that were not read are answered from passages that words find, and stay unread."""

from pathlib import Path

import pytest
from helpers.fake_embedder import FakeEmbedder, embedding

import octavo
from octavo.ask.context.passages import PASSAGE_TOKENS
from octavo.errors import OctavoError
from octavo.library.meaning import advice
from octavo.library.source_text import SourceFile
from octavo.library.text_store import TextStore

EXCERPTS = octavo.ReadSettings(read="excerpts")
FILLER = "The committee met again and talked about the weather and the price of bread.\n\n"
FACT = "The lighthouse of Skerry was painted green by Tobias Quill.\n\n"


@pytest.fixture(autouse=True)
def _has_no_embedder():
    """Find passages by words alone, also where the extra `meaning` is installed; tests of it bring an embedder."""
    with embedding(None):
        yield


@pytest.fixture
def book(tmp_path):
    path = tmp_path / "book.md"
    path.write_text("# Roads\n\n" + FILLER * 100 + "# Coast\n\n## Lights\n\n" + FACT + "# Bread\n\n" + FILLER * 100)
    return path


@pytest.fixture
def how(tiny_model, tmp_path):
    settings = octavo.ModelSettings(tiny_model, n_threads=2, index_dir=tmp_path / "indexes")
    return {"model": settings, "sampling": octavo.Sampling(max_tokens=6, temperature=0), "reading": EXCERPTS}


def text_before(session):
    llama = session.llama
    return llama.detokenize(llama.sequence.tokens[: session.n_document].tolist()).decode("utf-8", "replace")


def indexes(how):
    return [path for path in Path(how["model"].index_dir).rglob("*") if path.name.startswith("document")]


def test_a_long_document_is_answered_from_the_passages_that_words_find(book, how):
    with octavo.open_documents([book], sources=True, **how) as session:
        answer = session.ask("Who painted the lighthouse of Skerry?")
        assert "[Coast > Lights]" in text_before(session)
        assert "Tobias Quill" in text_before(session)
        assert session.n_document <= 1.5 * PASSAGE_TOKENS
        assert answer.read.kind == "excerpts"
        assert answer.read.n_passages >= 1
        assert 0 < answer.read.share < 1
        assert session.rest == "unread"
        assert session.read_from == [book]
        for passage in session.sources():
            text = book.read_text()
            assert " ".join(text[passage.start : passage.stop].split()) == passage.quote
            assert text.count("\n", 0, passage.start) + 1 == passage.line
    assert indexes(how) == []  # nothing was indexed


def test_each_token_of_a_passage_knows_its_place_in_the_text(tmp_path, how):
    path = tmp_path / "blanks.txt"
    path.write_text("\n\n   \n" + FACT + FILLER * 60)
    with octavo.open_documents([path], **how) as session:
        session.ask("Who painted the lighthouse of Skerry?")
        context, llama = session._context, session.llama
        text = context.text_of(context.documents[0])
        tokens = llama.sequence.tokens[context.index.n_prefix : session.n_document].tolist()
        shown = [llama.piece(token).decode() for token in tokens]
    assert len(shown) == len(text.starts) > 50
    for start, piece in zip(text.starts, shown, strict=True):
        assert text.text.startswith(piece, start) or not piece.strip()


def test_the_likeliest_passage_stands_last_next_to_the_question(tmp_path, how):
    path = tmp_path / "order.txt"
    path.write_text(FILLER * 150 + FACT + FILLER * 150 + "The lighthouse had two keepers.\n\n" + FILLER * 20)
    with octavo.open_documents([path], **how) as session:
        session.ask("Who painted the lighthouse of Skerry green?")
        before = text_before(session)
    assert before.index("two keepers") < before.index("painted green")


def test_the_same_passages_are_not_read_twice_and_the_conversation_goes_on(book, how, monkeypatch):
    read = []
    with octavo.open_documents([book], **how) as session:
        session.ask("Who painted the lighthouse of Skerry?")
        monkeypatch.setattr("octavo.ask.context.passages.evaluate_as_text", lambda *arguments: read.append(arguments))
        session.ask("Who painted the lighthouse of Skerry?")
        assert read == []
        assert session.n_tokens > session.n_document


def test_a_question_without_a_word_of_the_text_is_answered_from_its_beginning(book, how):
    with octavo.open_documents([book], **how) as session:
        session.ask("Zyxwv?")
        assert "Roads" in text_before(session)


def test_several_documents_are_named_before_their_passages_the_likeliest_first(book, tmp_path, how):
    other = tmp_path / "other.txt"
    other.write_text(FILLER + "Skerry has no lighthouse keeper any more.\n\n")
    with octavo.open_documents([other, book], **how) as session:
        session.ask("Which lighthouse of Skerry did Tobias Quill paint green?")
        assert session.read_from[0] == book
        assert "[book.md, Coast > Lights]" in text_before(session)


def test_files_of_one_name_are_named_with_their_folders(tmp_path, how):
    for year, colour in (("2023", "green"), ("2024", "blue")):
        (tmp_path / year).mkdir()
        (tmp_path / year / "log.txt").write_text(f"The lighthouse of Skerry was painted {colour} in {year}.\n\n")
    with octavo.open_documents([tmp_path / "2023", tmp_path / "2024"], **how) as session:
        session.ask("Which colour was the lighthouse of Skerry painted?")
        assert "[2023/log.txt]" in text_before(session)
        assert "[2024/log.txt]" in text_before(session)
        assert set(session.names.values()) == {"2023/log.txt", "2024/log.txt"}


def test_what_is_indexed_is_answered_from_its_index(book, how):
    book.write_text(FACT * 5)
    with octavo.open_documents([book], **{**how, "reading": octavo.ReadSettings()}):
        pass
    with octavo.open_documents([book], **how) as session:
        assert session.ask("Who painted the lighthouse?").read.kind == "excerpts"
        assert session.rest == "indexed"


def test_a_file_that_changed_is_read_again_and_one_that_cannot_be_read_is_left_out(book, tmp_path, how):
    (tmp_path / "bad.pdf").write_bytes(b"%PDF-1.4 nothing")
    notices = []

    class Notices:
        def notice(self, sentence):
            notices.append(sentence)

        def start(self, task, total, unit, done=0): ...

        def advance(self, amount): ...

    with octavo.open_documents([book, tmp_path / "bad.pdf"], progress=Notices(), **how) as session:
        session.ask("Who painted the lighthouse?")
    assert any(sentence.startswith("Left out: bad.pdf") for sentence in notices)
    book.write_text("A windmill stands in Skerry.\n")
    with octavo.open_documents([book], **how) as session:
        session.ask("What stands in Skerry?")
        assert "windmill" in text_before(session)
        assert "lighthouse" not in text_before(session)
    with pytest.raises(OctavoError, match=r"bad\.pdf"):
        octavo.open_documents([tmp_path / "bad.pdf"], **how)


def test_a_document_in_parts_that_changed_is_not_indexed_again(book, how):
    """Its parts are answered from as long as the file stays the same."""
    how["model"] = octavo.ModelSettings(how["model"].model, n_threads=2, n_ctx=2048, index_dir=how["model"].index_dir)
    book.write_text("".join(f"On day {day} {FILLER}" for day in range(100)))
    octavo.open_documents([book], **{**how, "reading": octavo.ReadSettings()}).close()
    with octavo.open_documents([book], **how) as session:
        assert session.ask("Who painted the lighthouse?").read.kind == "excerpts"
        assert session.rest == "indexed"
    book.write_text(book.read_text() + FACT)
    with octavo.open_documents([book], **how) as session:
        assert session.ask("Who painted the lighthouse?").read.kind == "excerpts"
        assert session.rest == "unread"


@pytest.mark.parametrize("what", ["forgotten", "changed"])
def test_an_open_conversation_quotes_no_other_file(tmp_path, how, what):
    """Its text is forgotten, or replaced, by another process, which then keeps the text of another file."""
    gate, other = tmp_path / "gate.txt", tmp_path / "other.txt"
    gate.write_text(FACT)
    other.write_text("The moon is made of cheese.")
    with octavo.open_documents([gate], sources=True, **how) as session:
        session.ask("Who painted the lighthouse?")
        with TextStore(session.library.folder / "texts.sqlite") as store:
            if what == "forgotten":
                assert store.forget(lambda source: source == str(gate)) == 1
            else:
                gate.write_text("The gate is red.")
                store.add(SourceFile(gate).extract())
            store.add(SourceFile(other).extract())
        for question in ("Who painted the lighthouse?", "What is the moon made of?", "Xyzzy?"):
            with pytest.raises(OctavoError, match="A document has changed since it was opened: open it again"):
                session.ask(question)
    with octavo.open_documents([gate], **how) as session:
        assert session.ask("Which gate?").text is not None


def test_meaning_is_prepared_in_the_time_that_an_answer_may_take(book, how):
    how["reading"] = octavo.ReadSettings(first_answer=0, background=False)
    with embedding(FakeEmbedder()) as embedder, octavo.open_documents([book], **how) as session:
        session.ask("Who painted the lighthouse?")
    assert embedder.passages == []


def test_a_question_without_a_word_of_the_text_is_answered_by_meaning(tmp_path, how, monkeypatch):
    path, notices = tmp_path / "book.txt", []
    topics = "Bread was dear. " * 150, "The weather was fair. " * 150
    path.write_text("\n\n".join([*topics, FACT]))

    class Notices(octavo.Progress):
        def notice(self, sentence):
            notices.append(sentence)

    def asked():
        notices.clear()
        with octavo.open_documents([path], progress=Notices(), **how) as session:
            session.ask("¿Quién pintó el faro?")
            return text_before(session)

    with embedding(None):
        assert "Tobias Quill" not in asked()
        assert [sentence for sentence in notices if "No word" in sentence] == [advice(False)]
    with embedding(FakeEmbedder()) as embedder:
        with monkeypatch.context() as patch:
            patch.setattr("octavo.ask.context.context_chooser._FOR_MEANING", 0)
            assert "Tobias Quill" not in asked()
            assert "Words find passages; their meaning counts, too, in 0% of the text so far." in notices
            assert advice(False) in notices
        assert "Tobias Quill" in asked()
        assert not [sentence for sentence in notices if "word" in sentence.lower()]
        with monkeypatch.context() as patch:
            patch.setattr(TextStore, "search", lambda *_: [])
            asked()
            assert advice(True) in notices
        n_passages = len(embedder.passages)
        assert "Tobias Quill" in asked()
        assert len(embedder.passages) == n_passages > 0
        monkeypatch.setattr("octavo.ask.context.context_chooser.embed_texts", _fails)
        assert "Tobias Quill" in asked()
        assert "The disk is full." in notices


def _fails(*arguments):
    raise OctavoError("The disk is full.")
