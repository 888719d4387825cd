"""A model that thinks: its thought comes apart from its answer, ends at its budget, and counts for itself."""

import pytest
from helpers import thinking_model
from helpers.thinking_model import ANSWER, THOUGHT, say

import octavo
from octavo.ask.session import Session
from octavo.prompts.thought_form import Thinking, Thoughts
from octavo.settings import Sampling

N_TAGS = 2


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return thinking_model.write_model(tmp_path_factory.mktemp("thinking") / "model.gguf")


@pytest.fixture(scope="module")
def opening_model(tmp_path_factory):
    return thinking_model.write_model(tmp_path_factory.mktemp("opening") / "model.gguf", thinking_model.OPENING)


@pytest.fixture(scope="module")
def endless_model(tmp_path_factory):
    return thinking_model.write_model(tmp_path_factory.mktemp("endless") / "model.gguf", endless=True)


@pytest.fixture(scope="module")
def channel_model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("channels")
    return thinking_model.write_model(folder / "model.gguf", thinking_model.IN_CHANNELS)


@pytest.fixture(scope="module")
def hidden_model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hidden")
    return thinking_model.write_model(folder / "model.gguf", thinking_model.IN_HIDDEN_TAGS)


def open_session(model, text="", n_ctx=512, **sampling):
    llama = octavo.Llama(model, n_ctx=n_ctx, n_threads=2)
    if text:
        prompt = llama.prompt()
        llama.eval(prompt.head() + prompt.document(text))
    return Session(llama, Sampling(**({"max_tokens": 32, "temperature": 0} | sampling)))


def context(session):
    return session.llama.detokenize(session.llama.input_ids[: session.n_tokens].tolist(), special=True).decode()


def test_a_thought_comes_apart(model):
    session = open_session(model)
    parts = list(session.stream_parts("Why?"))
    assert "".join(part.text for part in parts if part.is_thought) == THOUGHT
    assert "".join(part.text for part in parts if not part.is_thought) == ANSWER
    answer = session.answer
    assert (answer.text, answer.reasoning, answer.finish_reason, answer.thought_cut) == (ANSWER, THOUGHT, "stop", False)
    assert answer.timing.thought_tokens == len(THOUGHT) + N_TAGS
    assert answer.timing.answer_tokens == len(ANSWER) + 1
    assert context(session).endswith(f"<|im_start|>assistant\n<think>{THOUGHT}</think>{ANSWER}")


def test_a_stream_has_the_answer_alone(model):
    pieces = list(open_session(model).stream("Why?"))
    assert "".join(pieces) == ANSWER
    assert pieces[: len(THOUGHT)] == [""] * len(THOUGHT)  # a caller may stop while the model thinks


def test_a_prompt_may_begin_the_thought(opening_model):
    session = open_session(opening_model)
    answer = session.ask("Why?")
    assert (answer.text, answer.reasoning) == (ANSWER, THOUGHT)
    assert answer.timing.thought_tokens == len(THOUGHT) + 1


def test_a_limit_counts_the_answer_alone(model):
    answer = open_session(model, max_tokens=4).ask("Why?")
    assert (answer.text, answer.reasoning, answer.finish_reason) == (ANSWER[:4], THOUGHT, "length")
    assert answer.timing.answer_tokens == 4


def test_a_budget_ends_a_thought(endless_model):
    session = open_session(endless_model, think_budget=10)
    answer = session.ask("Why?")
    assert (answer.text, answer.finish_reason, answer.thought_cut) == (ANSWER, "stop", True)
    assert answer.reasoning == (THOUGHT * 3)[:9]  # the tag counts
    assert answer.timing.thought_tokens == 10 + 1
    assert context(session).endswith(f"<think>{answer.reasoning}</think>{ANSWER}")
    assert session.ask("And?").text == ANSWER


def test_a_thought_leaves_room_for_the_answer(endless_model):
    """Without a budget, too."""
    session = open_session(endless_model, n_ctx=80, think_budget=None, max_tokens=len(ANSWER) + 1)
    answer = session.ask("Why?")
    assert (answer.text, answer.finish_reason, answer.thought_cut) == (ANSWER, "stop", True)
    assert session.n_tokens == 80 - 1  # all room is used, but for the token that ends the answer


def test_an_endless_answer_and_an_endless_thought_share_the_room(endless_model, monkeypatch):
    session = open_session(endless_model, n_ctx=100, think_budget=None, max_tokens=None)
    monkeypatch.setattr(session.llama, "ends", lambda token: False)
    answer = session.ask("Why?")
    assert answer.finish_reason == "context"
    assert answer.timing.answer_tokens == pytest.approx(answer.timing.thought_tokens, abs=2)


@pytest.mark.parametrize("think_budget", [0, 1])
def test_a_thought_without_a_budget_is_empty(model, think_budget):
    session = open_session(model, think_budget=think_budget)
    answer = session.ask("Why?")
    assert (answer.text, answer.reasoning) == (ANSWER, "")
    assert context(session).endswith(f"assistant\n<think></think>{ANSWER}")


def test_a_prompt_that_begins_a_thought_ends_it_at_once(opening_model):
    session = open_session(opening_model, think_budget=0)
    answer = session.ask("Why?")
    assert (answer.text, answer.reasoning) == (ANSWER, "")
    assert answer.timing.thought_tokens == 0
    assert context(session).endswith(f"assistant\n<think></think>{ANSWER}")


def test_thinking_is_turned_off_by_the_templates_switch(model, opening_model):
    session = open_session(model, think=False)
    assert (session.thinking.options, session.thinking.has_no_switch) == ({"enable_thinking": False}, False)
    answer = session.ask("Why?")
    assert (answer.text, answer.reasoning, answer.timing.thought_tokens) == (ANSWER, "", 0)
    session.think(None)
    assert session.ask("And?").reasoning == THOUGHT
    session = open_session(opening_model, think=False)
    assert session.thinking.has_no_switch
    assert session.ask("Why?").reasoning == ""


def test_thinking_is_turned_off_over_a_document(model):
    """The document was read before, with the head of the default."""
    session = open_session(model, "The sky is blue. <think> is a word.", think=False)
    answer = session.ask("Why?")
    assert (answer.text, answer.reasoning) == (ANSWER, "")
    assert context(session).count("<think>") == 2


def test_a_model_that_does_not_think_has_nothing_to_turn_off(tiny_model):
    session = open_session(tiny_model, think=False)
    assert (session.thinking.options, session.thinking.has_no_switch) == ({}, False)
    assert session.ask("Why?").timing.thought_tokens == 0


def test_channels(channel_model, monkeypatch):
    session = open_session(channel_model)
    thought = "<|channel|>analysis<|message|>I add.<|end|><|start|>assistant<|channel|>final<|message|>"
    say(monkeypatch, session.llama, thought + "It is 4.")
    parts = list(session.stream_parts("2+2?"))
    assert "".join(part.text for part in parts if not part.is_thought) == session.answer.text == "It is 4."
    assert session.answer.reasoning == "I add."
    assert session.answer.timing.answer_tokens == len(session.llama.tokenize(b"It is 4.", add_bos=False)) + 1
    assert context(session).endswith(f"assistant{thought}It is 4.")


def test_tags_that_have_no_text(hidden_model, monkeypatch):
    session = open_session(hidden_model)
    said = "<|START_THINKING|>I add.<|END_THINKING|><|START_RESPONSE|>It is 4.<|END_RESPONSE|>"
    say(monkeypatch, session.llama, said)
    answer = session.ask("2+2?")
    assert (answer.text, answer.reasoning) == ("It is 4.", "I add.")
    [start] = session.llama.tokenize(b"<|START_THINKING|>", add_bos=False, special=True)
    monkeypatch.setattr(session.llama, "ends", lambda token: token == start or token == 270)
    spelled = session.llama.tokenize(b"<|START_THINKING|>", add_bos=False, special=False)
    tokens = iter([*spelled, 270])
    monkeypatch.setattr(session.llama, "sample", lambda **_: next(tokens))
    assert session.ask("What begins a thought?").text == "<|START_THINKING|>"


def test_a_tag_inside_a_thought_that_ends_answers_elsewhere_ends_the_thought(hidden_model, monkeypatch):
    session = open_session(hidden_model)
    [end] = session.llama.tokenize(b"<|END_THINKING|>", add_bos=False, special=True)
    ends = session.llama.ends
    monkeypatch.setattr(session.llama, "ends", lambda token: token == end or ends(token))
    say(monkeypatch, session.llama, "<|START_THINKING|>I add.<|END_THINKING|>It is 4.")
    answer = session.ask("2+2?")
    assert (answer.text, answer.reasoning) == ("It is 4.", "I add.")


def test_an_interrupted_thought_ends_before_the_next_question(model):
    session = open_session(model)
    parts = session.stream_parts("Why?")
    for _ in range(3):
        next(parts)
    parts.close()
    assert (session.answer.text, session.answer.reasoning, session.answer.finish_reason) == (
        "",
        THOUGHT[:2],
        "interrupted",
    )
    assert session.ask("And?").text == ANSWER
    assert f"<think>{THOUGHT[:2]}</think>" in context(session)


def test_a_model_may_end_inside_a_thought(model, monkeypatch):
    session = open_session(model)
    say(monkeypatch, session.llama, "<think>I add.")
    answer = session.ask("2+2?")
    assert (answer.text, answer.reasoning, answer.finish_reason) == ("", "I add.", "stop")


def test_an_answer_is_given_anew_with_its_thought(model):
    session = open_session(model, "The sky is blue.")
    first = session.ask("Why?")
    n_tokens = session.n_tokens
    assert "".join(session.regenerate()) == ANSWER
    assert (session.answer.reasoning, session.n_tokens) == (first.reasoning, n_tokens)


STRIPPING = thinking_model.TEMPLATE.replace(
    "{% if message['reasoning_content'] %}", "{% if message['reasoning_content'] and loop.last %}"
)


def test_thoughts_that_a_template_strips_are_stripped_from_earlier_turns(tmp_path):
    session = open_session(thinking_model.write_model(tmp_path / "model.gguf", STRIPPING), "The sky is blue.")
    session.ask("Why?")
    assert context(session).count(f"<think>{THOUGHT}</think>") == 1
    session.ask("And?")
    assert context(session).count(f"<think>{THOUGHT}</think>") == 1
    assert f"assistant\n{ANSWER}<|im_end|>" in context(session)
    assert session.ask("So?").reasoning == THOUGHT


def test_thoughts_that_a_template_keeps_are_read_once(model):
    session = open_session(model)
    session.ask("Why?")
    answer = session.ask("And?")
    assert context(session).count(f"<think>{THOUGHT}</think>{ANSWER}") == 2
    assert answer.timing.prompt_tokens == len(session.prompt.next_question("And?"))


def test_a_saved_conversation_keeps_thoughts_apart(model, tmp_path):
    session = open_session(model, "The sky is blue.")
    session.ask("Why?")
    session.save(str(tmp_path / "talk.safetensors"))
    other = open_session(model, "The sky is blue.")
    other.load(str(tmp_path / "talk.safetensors"))
    told = {"role": "assistant", "content": ANSWER, "reasoning_content": THOUGHT}
    assert other.conversation().history.messages == [{"role": "user", "content": "Why?"}, told]
    assert other.ask("And?").reasoning == session.ask("And?").reasoning == THOUGHT
    assert context(other) == context(session)


def test_sources_are_those_of_the_answer(model, monkeypatch):
    """Queries of a thought do not count."""
    from octavo.runtime.query_recorder import QueryHead, Recorder

    session = open_session(model, "The sky is blue.")
    context = session.llama.context
    recorder = Recorder(context.nodes, context.shapes, [QueryHead(0, 0, 0)])
    session._recorder = recorder
    context.record(recorder)
    session.ask("Why?")
    assert len(recorder.steps) == len(ANSWER) + 1  # the step that predicts the end counts


def test_a_budget_never_takes_the_room_of_the_answer(model):
    thoughts = Thoughts.of(octavo.Llama(model, n_ctx=64))
    n_closing = len(thoughts.closing)
    assert Thinking(thoughts, None, 10).budget(100, 20) == 10
    assert Thinking(thoughts, None, None).budget(100, 20) == 80 - n_closing
    assert Thinking(thoughts, None, 1000).budget(100, None) == 50 - n_closing
    assert Thinking(thoughts, None, None).budget(1, None) == 0
    assert Thinking(None, False, None).budget(100, 20) == 0


def test_a_negative_budget_is_refused():
    with pytest.raises(octavo.OctavoError, match="A thought has 0 tokens or more"):
        Sampling(think_budget=-1)
