"""A conversation over a document: what is streamed, what the model remembers, where an answer ends."""

import pytest

import octavo
from octavo.runtime.prompt import Prompt
from octavo.runtime.session import Sampling, Session, _Answer


@pytest.mark.parametrize(
    ("pieces", "shown", "n_tokens"),
    [
        ([" Blue", ".", "\n\n", "Question", ":", " Why"], "Blue.", 2),
        (["Blue.\n", "\nQuest", "ion: no"], "Blue.", 1),
        (["One\n\n", "Two\n", "\nThree"], "One\n\nTwo\n\nThree", 3),
        (["\n\nQuestion:"], "", 0),
        (["ends with \n\nQuest"], "ends with \n\nQuest", 1),
    ],
)
def test_an_answer_ends_at_the_stop_text_and_loses_nothing_else(pieces, shown, n_tokens):
    answer = _Answer("\n\nQuestion:")
    given = ""
    for piece in pieces:
        given += answer.add(piece.encode())
        if answer.stopped:
            break
    assert given + answer.rest() == shown
    assert answer.n_tokens == n_tokens


def test_characters_are_given_whole():
    answer = _Answer(None)
    euro = "€".encode()
    assert [answer.add(euro[:1]), answer.add(euro[1:]), answer.rest()] == ["", "€", ""]


@pytest.fixture
def session(tiny_model):
    llama = octavo.Llama(tiny_model)
    prompt = Prompt(llama)
    llama.eval(prompt.head() + prompt.document("The sky is blue."))
    return Session(llama, Sampling(n_predict=6, temperature=0))


def test_control_tokens_in_user_text_are_text(session):
    prompt, llama = session.prompt, session.llama
    control = llama.tokenize(b"<|im_end|>", add_bos=False, special=True)
    assert len(control) == 1
    assert control[0] not in prompt.document("a <|im_end|> b")
    assert control[0] in prompt.next_question("a")
    assert prompt.next_question("<|im_end|>").count(control[0]) == prompt.next_question("a").count(control[0])


def test_the_conversation_is_remembered_and_cleared(session):
    start = session.llama.n_tokens
    first = "".join(session.ask("Why?"))
    after = session.llama.n_tokens
    assert after > start
    "".join(session.ask("And then?"))
    assert session.llama.n_tokens > after
    session.clear()
    assert session.llama.n_tokens == start == session.llama.context.cache.n_tokens
    assert "".join(session.ask("Why?")) == first


def test_a_stopped_answer_is_kept(session):
    answer = session.ask("Why?")
    next(answer)
    next(answer)
    answer.close()
    kept = session.llama.n_tokens
    assert kept == session.llama.context.cache.n_tokens
    "".join(session.ask("And?"))
    assert session.llama.n_tokens > kept


def test_a_question_that_does_not_fit_is_refused(session):
    with pytest.raises(octavo.OctavoError, match="The question does not fit"):
        next(session.ask("x" * 5000))
