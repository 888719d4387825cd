"""Answers that are drawn together are those that are drawn one after another."""

import pytest
from helpers import talking_model

import octavo
from octavo.ask.context.answer_context import at_once
from octavo.ask.context.whole.drawn_together import drawn_together


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    model = talking_model.write_model(folder / "model.gguf")
    for number in range(3):
        (folder / f"{number}.txt").write_text(f"Number {number}. " * 40)
    settings = octavo.ModelSettings(model, n_threads=2, index_dir=folder / "indexes")
    with octavo.open_documents([folder / "*.txt"], settings) as session:
        yield session


def test_each_context_answers_as_alone(session):
    indexes = session._chooser.source
    contexts = [indexes.whole(document) for document in indexes.documents]
    before = session.llama.sequence
    together = at_once(drawn_together(session.llama, contexts, "Why?", indexes.heads, 12))
    alone = [at_once(drawn_together(session.llama, [each], "Why?", indexes.heads, 12))[0] for each in contexts]
    assert [each.text for each in together] == [each.text for each in alone] == [talking_model.ANSWER] * 3
    assert all(
        each.attended.shape[1] == len(context.index.tokens) for each, context in zip(together, contexts, strict=True)
    )
    assert session.llama.sequence is before


def test_an_answer_ends_at_its_limit(session):
    indexes = session._chooser.source
    context = indexes.whole(indexes.documents[0])
    (drawn,) = at_once(drawn_together(session.llama, [context], "Why?", [], 3))
    assert talking_model.ANSWER.startswith(drawn.text)
    assert len(drawn.text) == 3
    assert drawn.attended is None
