"""A conversation over a document: what is streamed, what the model remembers, where an answer ends."""

import pytest
from helpers import tiny_models
from helpers.slow_compiling import SECONDS, compile_slowly

import octavo
from octavo.ask.session import Session
from octavo.settings import Sampling


@pytest.fixture
def session(tiny_model):
    llama = octavo.Llama(tiny_model)
    prompt = llama.prompt()
    llama.eval(prompt.head() + prompt.document("The sky is blue."))
    return Session(llama, Sampling(max_tokens=6, temperature=0))


def test_control_tokens_in_user_text_are_text(session):
    prompt, llama = session.prompt, session.llama
    control = llama.tokenize(b"<|im_end|>", add_bos=False, special=True)
    assert len(control) == 1
    assert control[0] not in prompt.document("a <|im_end|> b")
    assert control[0] in prompt.next_question("a")
    assert prompt.next_question("<|im_end|>").count(control[0]) == prompt.next_question("a").count(control[0])


def test_the_conversation_is_remembered_and_cleared(session):
    start = session.llama.n_tokens
    first = session.ask("Why?").text
    after = session.llama.n_tokens
    assert after > start
    session.ask("And then?")
    assert session.llama.n_tokens > after
    session.clear()
    assert session.llama.n_tokens == start == session.llama.context.cache.n_tokens
    assert session.ask("Why?").text == first


def test_a_conversation_continues_from_its_texts(session):
    def context():
        return session.llama.detokenize(session.llama.input_ids[: session.llama.n_tokens].tolist()).decode(
            errors="replace"
        )

    texts = [("user", "What is blue?"), ("assistant", "The sky, of course."), ("user", "Why?"), ("assistant", "Light.")]
    session.ask("Something else?")
    session.recall([{"role": role, "content": text} for role, text in texts])
    session.ask("Always?")
    places = [context().find(text) for _, text in [*texts, ("user", "Always?")]]
    assert -1 not in places
    assert places == sorted(places)
    assert "Something else?" not in context()
    session.recall([])
    session.ask("Who?")
    assert "Who?" in context()
    assert not any(text in context() for _, text in texts)


def test_a_model_without_a_template_cannot_continue_from_texts(tmp_path):
    llama = octavo.Llama(tiny_models.write_model(tmp_path / "plain.gguf", "llama"))
    session = Session(llama, Sampling(max_tokens=2, temperature=0))
    session.recall([])
    with pytest.raises(octavo.OctavoError, match="has no chat template, so it cannot continue"):
        session.recall([{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "I."}])


def test_a_stopped_answer_is_kept(session):
    pieces = session.stream("Why?")
    shown = next(pieces) + next(pieces)
    pieces.close()
    assert (session.answer.text, session.answer.finish_reason) == (shown, "interrupted")
    kept = session.llama.n_tokens
    assert kept == session.llama.context.cache.n_tokens
    session.ask("And?")
    assert session.llama.n_tokens > kept


def test_a_question_that_does_not_fit_is_refused(session):
    with pytest.raises(octavo.OctavoError, match="The question does not fit"):
        next(session.stream("x" * 5000))


# Why answers end, and what they took.


def test_an_answer_of_as_many_tokens_as_are_allowed_ends_by_its_length(session):
    answer = session.ask("Why?")
    assert (answer.finish_reason, answer.timing.answer_tokens) == ("length", 6)


def test_an_answer_that_the_model_ends_has_stopped(session, monkeypatch):
    n_before = session.llama.n_tokens
    drawn = []
    monkeypatch.setattr(session.llama, "ends", lambda token: drawn.append(token) or len(drawn) == 3)
    answer = session.ask("Why?")
    assert (answer.finish_reason, answer.timing.answer_tokens) == ("stop", 3)
    assert session.llama.n_tokens == n_before + answer.timing.prompt_tokens + 2


def test_an_answer_that_comes_to_the_stop_text_has_stopped_and_forgets_it(session, monkeypatch):
    session.prompt.stops = ["\n\nQuestion:"]
    pieces = iter([b"Blue", b".\n", b"\nQuestion", b":", b" Why"])
    monkeypatch.setattr(session.llama, "piece", lambda token: next(pieces))
    n_before = session.llama.n_tokens
    answer = session.ask("Why?")
    assert (answer.text, answer.finish_reason, answer.timing.answer_tokens) == ("Blue.", "stop", 4)
    assert session.llama.n_tokens == n_before + answer.timing.prompt_tokens + 2


@pytest.mark.parametrize("max_tokens", [None, 100, 4])
def test_an_answer_that_fills_the_context_ends_by_it(tiny_model, monkeypatch, max_tokens):
    llama = octavo.Llama(tiny_model, n_ctx=80)
    monkeypatch.setattr(llama, "ends", lambda token: False)
    session = Session(llama, Sampling(max_tokens=max_tokens, temperature=0))
    answer = session.ask("Why?")
    room = 80 - answer.timing.prompt_tokens
    if max_tokens == 4:
        assert (answer.finish_reason, answer.timing.answer_tokens) == ("length", 4)
    else:
        assert (answer.finish_reason, answer.timing.answer_tokens) == ("context", room)
    with pytest.raises(octavo.OctavoError, match="The question does not fit"):
        session.ask("x" * 80)


def test_a_conversation_that_forgets_has_no_end(tiny_model):
    """What counts against the context is what is kept; an answer without a limit is a context long."""
    llama = octavo.Llama(tiny_model, attention="streaming:tokens=60", n_ctx=100, n_threads=2)
    session = Session(llama, Sampling(max_tokens=30, temperature=0))
    while session.n_tokens < 250:
        assert session.ask("Why is the sky blue?").finish_reason in ("length", "stop")
    session.sampling = Sampling(temperature=0)
    assert session.ask("Why?").timing.answer_tokens <= 100


def test_a_limit_that_the_context_has_just_room_for_is_a_length(tiny_model, monkeypatch):
    llama = octavo.Llama(tiny_model, n_ctx=80)
    monkeypatch.setattr(llama, "ends", lambda token: False)
    room = 80 - len(llama.prompt(has_document=False).first_question("Why?"))
    assert Session(llama, Sampling(max_tokens=room)).ask("Why?").finish_reason == "length"


def test_an_answer_says_what_it_took(session):
    n_before = session.llama.n_tokens
    answer = session.ask("Why?")
    timing, cache = answer.timing, session.llama.context.cache
    assert timing.prompt_tokens == len(session.prompt.first_question("Why?"))
    assert timing.first_token_s > 0
    assert timing.decode_tokens_per_s == pytest.approx(5 / timing.decode_s)
    n_read = [n_before + timing.prompt_tokens + i for i in range(1, 6)]  # by each of five steps, which are dense
    assert answer.bytes_read == pytest.approx(sum(n_read) / 5 * cache.row_bytes)
    assert answer.kv_share == pytest.approx(sum(n_read) / 5 / n_read[-1])


def test_an_answer_of_one_token_has_no_speed(tiny_model):
    answer = Session(octavo.Llama(tiny_model), Sampling(max_tokens=1)).ask("Why?")
    assert (answer.timing.decode_tokens_per_s, answer.bytes_read, answer.kv_share) == (0, 0, 0)


def test_what_the_last_answer_took_stays_when_the_conversation_is_cleared(tiny_model):
    session = Session(octavo.Llama(tiny_model), Sampling(max_tokens=3, temperature=0))
    answer = session.ask("Why?")
    session.clear()
    assert (session.answer, session.n_tokens) == (answer, 0)


def test_a_refused_question_leaves_the_last_answer(session):
    answer = session.ask("Why?")
    for question in ("x" * 5000, " \n"):
        with pytest.raises(octavo.OctavoError):
            session.ask(question)
    assert session.answer == answer


def test_an_interrupted_question_was_never_put(session, monkeypatch):
    """Ctrl-C while the model reads it."""
    session.ask("Why?")
    n_tokens, evaluate = session.n_tokens, session.llama.eval

    def interrupted(tokens):
        evaluate(tokens[:5])
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(session.llama, "eval", interrupted)
        with pytest.raises(KeyboardInterrupt):
            session.ask("And?")
    assert (session.answer, session.n_tokens) == (None, n_tokens)
    unread = 1  # the last token of the first answer
    assert session.ask("And?").timing.prompt_tokens == unread + len(session.prompt.next_question("And?"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_tokens": 0},
        {"max_tokens": -1},
        {"temperature": -0.1},
        {"temperature": float("nan")},
        {"top_p": 1.1},
        {"top_k": -1},
        {"seed": -1},
        {"seed": 2**32},
    ],
    ids=str,
)
def test_sampling_settings_are_checked(wrong):
    with pytest.raises(octavo.OctavoError):
        Sampling(**wrong)


def test_compiling_counts_as_no_time_of_an_answer(session, monkeypatch):
    compile_slowly(monkeypatch)
    timing = session.ask("Why?").timing
    assert 0 < timing.first_token_s < SECONDS / 2
    assert timing.decode_tokens_per_s > 2 / SECONDS
