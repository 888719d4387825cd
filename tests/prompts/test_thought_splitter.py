"""Thoughts and answers, apart: for each form, and however the text is cut."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.prompts.thought_form import FORMS, Stage, ThoughtForm
from octavo.prompts.thought_splitter import ThoughtSplitter

pytestmark = pytest.mark.sampled

THINK = FORMS[-1]
HARMONY, GEMMA, COMMAND = FORMS[:3]
KIMI, SOLAR = (next(form for form in FORMS if form.start == start) for start in ("<|open|>think<|sep|>", "<|think|>"))


def split(pieces, form, stage=Stage.BEFORE):
    """Return the thought and the answer in some pieces."""
    splitter = ThoughtSplitter(form, stage)
    parts = [part for piece in pieces for part in splitter.add(piece)] + splitter.rest()
    assert all(part.text for part in parts)
    return tuple("".join(part.text for part in parts if part.is_thought is kind) for kind in (True, False))


def ids(form):
    return form.start.strip() + "".join(form.opens[:1])


@pytest.mark.parametrize("form", FORMS, ids=ids)
def test_a_thought_is_no_part_of_the_answer(form):
    text = f"{form.start}\nI add.\n{form.closing}It is 4."
    assert split([text], form) == ("I add.", "It is 4.")
    assert split(text, form) == ("I add.", "It is 4.")
    assert split(text.removeprefix(form.start), form, Stage.THOUGHT) == ("I add.", "It is 4.")


@pytest.mark.parametrize("form", FORMS, ids=ids)
def test_an_answer_without_a_thought_stays_as_it_is(form):
    assert split([" \n It is 4.\n"], form) == ("", " \n It is 4.\n")
    assert split([], form) == ("", "")
    assert split([form.start[:3]], form) == ("", form.start[:3])


@pytest.mark.parametrize("form", FORMS, ids=ids)
def test_an_unfinished_thought_is_a_thought(form):
    assert split([f"{form.start} Let me see \n"], form) == ("Let me see", "")
    assert split([form.start, form.end[:-1]], form) == (form.end[:-1].strip(), "")


@pytest.mark.parametrize("form", FORMS, ids=ids)
def test_no_tag_begins_another(form):
    """So a tag is known as soon as it is whole."""
    tags = {*form.starts, *form.openings}
    assert [pair for pair in itertools.permutations(tags, 2) if pair[0].startswith(pair[1])] == []


@pytest.mark.parametrize("form", [form for form in FORMS if form.closes], ids=ids)
def test_tags_around_the_answer_are_no_part_of_it(form):
    wrapped = f"{form.opens[0] if form.opens else ''}It is 4."
    text = f"{form.start}I add.{form.end}{form.again}{wrapped}"
    if form.opens:
        assert split([wrapped + form.closes[0]], form) == ("", "It is 4.")
        assert split([text + form.closes[0] + "\n"], form) == ("I add.", "It is 4.")
    assert split([text], form) == ("I add.", "It is 4.")


@pytest.mark.parametrize("form", [form for form in FORMS if not form.repeats and form.end not in form.closes], ids=ids)
def test_later_tags_are_text(form):
    """An answer may tell of tags."""
    said = f"Write {form.start}a thought{form.end}, then the answer."
    assert split([said], form) == ("", said)
    assert split([form.start, "hm", form.closing, said], form) == ("hm", said)


def test_a_second_thought_right_after_the_first_is_text():
    assert split(["<think>a</think><think>b</think>c"], THINK) == ("a", "<think>b</think>c")


def test_channels_may_think_again():
    text = (
        "<|channel|>analysis<|message|>One.<|end|><|start|>assistant<|channel|>commentary<|message|>I look.<|end|>"
        "<|start|>assistant<|channel|>analysis<|message|>Two.<|end|><|start|>assistant<|channel|>final<|message|>Four."
    )
    assert split([text], HARMONY) == ("One.\n\nTwo.", "I look.\n\nFour.")
    gemma = "<|channel>thought\nOne.<channel|>I look.<|channel>thought\nTwo.<channel|>Four."
    assert split([gemma], GEMMA) == ("One.\n\nTwo.", "I look.\n\nFour.")


def test_a_call_in_a_channel_stays_for_those_who_read_calls():
    call = '<|channel|>commentary to=functions.add <|constrain|>json<|message|>{"a": 2}'
    assert split(["<|channel|>analysis<|message|>Add.<|end|><|start|>assistant", call], HARMONY) == ("Add.", call)


def test_without_a_form_everything_is_the_answer():
    assert split(["<think>a</think>b"], None) == ("", "<think>a</think>b")


@pytest.mark.parametrize(
    ("form", "prompt", "place"),
    [
        (THINK, "<|im_start|>assistant\n", Stage.BEFORE),
        (THINK, "<|im_start|>assistant\n<think>\n", Stage.THOUGHT),
        (THINK, "<|im_start|>assistant\n<think>\n\n</think>\n\n", Stage.AFTER),
        (THINK, "assistant</think>", Stage.AFTER),
        (THINK, "What does <think> mean?<|im_end|>\n<|im_start|>assistant\n", Stage.BEFORE),
        (HARMONY, "<|start|>user<|message|>4?<|end|><|start|>assistant", Stage.BEFORE),
        (GEMMA, "<|turn>model\n", Stage.BEFORE),
        (GEMMA, "<|turn>model\n<|channel>thought\n<channel|>", Stage.AFTER),
        (COMMAND, "<|START_THINKING|><|END_THINKING|>", Stage.AFTER),
        (KIMI, '<|open|>message role="assistant"<|sep|><|open|>response<|sep|>', Stage.WRAPPED),
        (SOLAR, "<|end|><|begin|>assistant", Stage.BEFORE),
        (SOLAR, "<|end|><|begin|>assistant<|think|><|end|><|begin|>assistant", Stage.AFTER),
    ],
)
def test_a_prompt_may_begin_or_end_a_thought(form, prompt, place):
    assert form.stage_after(prompt) is place


def pieces_of(form):
    """Texts of tags, parts of tags, blanks and words."""
    tags = [form.start, form.end, form.again, *form.opens, *form.closes]
    parts = [tag[:n] for tag in tags for n in range(1, len(tag) + 1, 3)]
    return st.lists(
        st.sampled_from([*tags, *tags, *parts, "\n", " ", "\n\n", "word", "é", "<", "</", "|>"]), max_size=12
    )


@settings(deadline=None, max_examples=40)
@given(st.data())
@pytest.mark.parametrize("stage", Stage)
@pytest.mark.parametrize("form", FORMS, ids=ids)
def test_every_way_of_cutting_a_stream_gives_the_same(form, stage, data):
    text = "".join(data.draw(pieces_of(form)))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[start:stop] for start, stop in itertools.pairwise([0, *cuts, len(text)])]
    whole = split([text], form, stage)
    assert split(pieces, form, stage) == whole
    assert split(text, form, stage) == whole


@settings(deadline=None)
@given(st.data())
def test_nothing_but_tags_and_blanks_is_lost(data):
    words = data.draw(st.lists(st.sampled_from(["a", "b c", "<", "think>", "</think", "\n"]), max_size=8))
    thought, answer = "".join(words), "".join(data.draw(st.permutations(words)))
    found = split(f"<think>{thought}</think>{answer}", ThoughtForm("<think>", "</think>"))
    if "</think>" not in thought + "</":
        assert "".join(found).replace("\n", "") == (thought + answer).replace("\n", "")


@settings(deadline=None)
@given(st.data())
@pytest.mark.parametrize("form", FORMS, ids=ids)
def test_what_may_still_think_is_known(form, data):
    """`continues` promises nothing wrong: text for which it is false begins the answer."""
    text = "".join(data.draw(pieces_of(form)))
    splitter = ThoughtSplitter(form)
    for piece in text:
        may = splitter.continues(piece)
        splitter.add(piece)
        if splitter.stage is Stage.WRAPPED:
            break
        assert may is (splitter.stage is not Stage.ANSWER)
        if not may:
            break
