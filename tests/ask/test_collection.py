"""A conversation over many documents goes on as one over the document that each question is about."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

import octavo
from octavo.ask.context import context_chooser
from octavo.ask.context.document_set import DocumentSet
from octavo.ask.context.excerpts import CannotLayOut
from octavo.ask.search.ranking import Candidate, Span
from octavo.errors import OctavoError

EXCERPTS, WHOLE = octavo.ReadSettings(read="excerpts"), octavo.ReadSettings(read="document")
TEXTS = {
    "ship.txt": "The keeper of the island lighthouse wrote down each ship that passed. One was called Petrel.\n" * 3,
    "tower.txt": "Nobody wrote down who built the tower, or when it fell into the sea.\n" * 5,
}


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    for name, text in TEXTS.items():
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def how(tiny_model, tmp_path):
    sampling = octavo.Sampling(max_tokens=6, temperature=0)
    return {"model": octavo.ModelSettings(tiny_model, n_threads=2, index_dir=tmp_path), "sampling": sampling}


@pytest.fixture
def collection(folder, how):
    with octavo.open_documents([folder], sources=True, reading=WHOLE, **how) as collection:
        yield collection


@pytest.fixture
def route_to(monkeypatch):
    """route_to(name): have questions be about this document; returns the questions that were looked for."""
    asked = []

    def rank(self, question, before, n_batch):
        yield from ()
        asked.append((before, question))
        order = sorted(self.documents, key=lambda document: document.name != route_to.name)
        found = [Candidate(document, 0.5, -float(number)) for number, document in enumerate(order)]
        excerpts = [Span(order[-1], 0, 20), Span(order[0], 30, 70)]
        return SimpleNamespace(candidates=found, excerpts=lambda n_tokens: excerpts)

    def to(name):
        route_to.name = name
        return asked

    monkeypatch.setattr(DocumentSet, "rank_in_steps", rank)
    return to


def alone(folder, how, name, questions):
    with octavo.open_document(folder / name, **how) as document:
        return [document.ask(question).text for question in questions]


def test_an_answer_is_that_of_the_document_alone(collection, folder, how):
    answer = collection.ask("Who built the tower?")
    assert next(each.document.name for each in collection.found) == collection.path.name
    assert {each.document.name for each in collection.found} == set(TEXTS)
    assert collection.n_document < collection.n_tokens
    assert answer.text == alone(folder, how, collection.path.name, ["Who built the tower?"])[0]
    for passage in collection.sources():
        assert " ".join(passage.quote.split()) in " ".join(TEXTS[collection.path.name].split())


def test_a_conversation_over_one_document_goes_on(collection, folder, how, route_to):
    questions = ["Which ship?", "And then?", "Why?"]
    asked = route_to("ship.txt")
    answers = [collection.ask(question).text for question in questions]
    assert answers == alone(folder, how, "ship.txt", questions)
    assert asked == [("", "Which ship?"), ("Which ship?", "And then?"), ("And then?", "Why?")]


def test_a_conversation_moves_to_another_document(collection, route_to):
    route_to("ship.txt")
    collection.ask("Which ship?")
    own = collection.llama.input_ids[collection.n_document : collection.n_tokens].tolist()
    route_to("tower.txt")
    collection.ask("Who built it?")
    assert collection.path.name == "tower.txt"
    llama, start = collection.llama, collection.n_document
    assert llama.input_ids[start : start + len(own)].tolist() == own
    assert collection._context.text_of(collection._context.documents[0]).text == TEXTS["tower.txt"]
    again = "".join(collection.regenerate())
    assert again == collection.answer.text


@pytest.mark.parametrize("problem", [OctavoError("no"), KeyboardInterrupt()])
def test_a_question_whose_document_is_not_found_leaves_the_conversation(
    collection, folder, how, route_to, problem, monkeypatch
):
    route_to("ship.txt")
    first = collection.ask("Which ship?").text
    before = collection.n_tokens

    def fail(self, question, before, n_batch):
        yield None
        self._llama.reset()
        raise problem

    with monkeypatch.context() as patch:
        patch.setattr(DocumentSet, "rank_in_steps", fail)
        with pytest.raises(type(problem)):
            collection.ask("Who?")
    assert collection.n_tokens == before
    assert [first, collection.ask("And then?").text] == alone(folder, how, "ship.txt", ["Which ship?", "And then?"])


def test_a_conversation_that_does_not_fit_after_another_document_stays(folder, how, route_to):
    (folder / "long.txt").write_text(TEXTS["tower.txt"] * 3)
    how["model"] = replace(how["model"], n_ctx=1000)
    with octavo.open_documents([folder], reading=WHOLE, **how) as collection:
        route_to("ship.txt")
        collection.ask("Which ship? " * 20)
        before = collection.n_tokens
        route_to("long.txt")
        with pytest.raises(OctavoError, match=r"does not fit after long\.txt"):
            collection.ask("Who?")
        assert (collection.path.name, collection.n_tokens) == ("ship.txt", before)
        collection.clear()
        assert collection.n_tokens == collection.n_document


@pytest.fixture
def excerpted(folder, how):
    octavo.open_documents([folder], **how).close()  # index them
    with octavo.open_documents([folder], reading=EXCERPTS, sources=True, **how) as collection:
        yield collection


def test_an_answer_from_excerpts_is_that_of_their_keys(excerpted, route_to):
    """The model reads the question after them, and nothing else."""
    route_to("tower.txt")
    answer = excerpted.ask("Who built it?")
    n_prefix = len(excerpted.prompt.head())
    assert excerpted.n_document == n_prefix + 20 + 40
    assert [path.name for path in excerpted.read_from] == ["tower.txt", "ship.txt"]
    assert excerpted.path.name == "tower.txt"
    llama, asked = excerpted.llama, excerpted.prompt.first_question("Who built it?")
    assert answer.timing.prompt_tokens == len(asked)
    own = {
        document.name: excerpted._chooser.source.whole(document).index.tokens
        for document in excerpted._chooser.documents
    }
    expected = [*own["ship.txt"][: n_prefix + 20], *own["tower.txt"][n_prefix + 30 : n_prefix + 70], *asked]
    assert llama.input_ids[: len(expected)].tolist() == expected
    for passage in excerpted.sources():
        text = TEXTS[passage.document.rpartition("/")[2]]
        assert " ".join(text[passage.start : passage.stop].split()) == passage.quote


def test_a_conversation_over_excerpts_goes_on(excerpted, route_to):
    asked = route_to("tower.txt")
    excerpted.ask("Who built it?")
    own = excerpted.llama.input_ids[excerpted.n_document : excerpted.n_tokens].tolist()
    excerpted.ask("Why?")
    start = excerpted.n_document
    assert excerpted.llama.input_ids[start : start + len(own)].tolist() == own
    assert asked == [("", "Who built it?"), ("Who built it?", "Why?")]
    route_to("ship.txt")
    excerpted.ask("Which ship?")
    assert [path.name for path in excerpted.read_from] == ["ship.txt", "tower.txt"]
    assert excerpted.llama.input_ids[start : start + len(own)].tolist() == own


def test_a_question_whose_excerpts_are_not_found_leaves_the_conversation(excerpted, route_to, monkeypatch):
    route_to("tower.txt")
    excerpted.ask("Who built it?")
    before = excerpted.llama.input_ids[: excerpted.n_tokens].tolist()

    def fail(self, question, before, n_batch):
        yield None
        raise OctavoError("no")

    with monkeypatch.context() as patch:
        patch.setattr(DocumentSet, "rank_in_steps", fail)
        with pytest.raises(OctavoError, match="no"):
            excerpted.ask("Why?")
    assert excerpted.llama.input_ids[: excerpted.n_tokens].tolist() == before
    assert excerpted.ask("Why?").text is not None


def test_answers_are_given_from_what_there_is():
    with pytest.raises(OctavoError, match="document or excerpts: 'pages' is none of them"):
        octavo.ReadSettings(read="pages")


def test_excerpts_are_the_default_unless_a_question_is_about_a_whole(folder, how, route_to):
    with octavo.open_documents([folder], reading=octavo.ReadSettings(whole="off"), **how) as collection:
        route_to("tower.txt")
        assert collection.ask("How many ships passed?").read.kind == "excerpts"
        assert not collection.needs_whole
        answer = collection.ask("Summarise the notes about the tower.")
        assert (answer.read.kind, answer.read.share, collection.path.name) == ("document", 1.0, "tower.txt")


def test_where_excerpts_cannot_be_laid_out_the_document_is_read(folder, how, route_to, monkeypatch):
    def refuse(llama, document_set, spans, n_batch):
        raise CannotLayOut("no")

    monkeypatch.setattr(context_chooser, "lay_out", refuse)
    route_to("ship.txt")
    with octavo.open_documents([folder], **how) as collection:
        assert collection.ask("Which ship?").read.kind == "document"
    with octavo.open_documents([folder], reading=EXCERPTS, **how) as collection, pytest.raises(OctavoError, match="no"):
        collection.ask("Which ship?")


def test_excerpts_of_one_document(folder, how):
    octavo.open_documents([folder], **how).close()
    with octavo.open_documents([folder / "tower.txt"], reading=EXCERPTS, **how) as collection:
        collection.ask("Who?")
        assert [path.name for path in collection.read_from] == ["tower.txt"]
        whole = collection._chooser.source.whole(collection._chooser.documents[0]).index.tokens
        assert collection.llama.input_ids[: collection.n_document].tolist() == whole.tolist()


def test_of_one_document_nothing_has_to_be_found(folder, how, monkeypatch):
    monkeypatch.setattr(DocumentSet, "rank", None)
    with octavo.open_documents([folder / "ship.txt"], **how) as collection:
        assert collection.ask("Which ship?").text == alone(folder, how, "ship.txt", ["Which ship?"])[0]
        assert collection.found == []
        assert collection.documents == [folder / "ship.txt"]


@pytest.mark.slow
def test_the_right_document_is_found(real_model, tmp_path):
    """The names differ, and nothing else."""
    filler = "The days were long, and the village went about its work as it had for years.\n"
    for name, fact in (
        ("a.txt", "Captain Ferris has a dog called Biscuit."),
        ("b.txt", "Doctor Halloran eats cherries."),
    ):
        (tmp_path / name).write_text(filler * 6 + fact + "\n" + filler * 6)
    (tmp_path / "c.txt").write_text(filler * 12)
    model = octavo.ModelSettings(real_model, index_dir=tmp_path / "lib")
    how = {"model": model, "sampling": octavo.Sampling(max_tokens=12, temperature=0)}
    with octavo.open_documents([tmp_path], **how) as collection:
        for question, name in (
            ("What is the dog of Captain Ferris called?", "a.txt"),
            ("What does Doctor Halloran eat?", "b.txt"),
        ):
            collection.ask(question)
            assert collection.path.name == name
            collection.clear()
