"""How a model thinks: found in its template and its vocabulary, turned on and off by the template's own switch."""

import pytest
from helpers import thinking_model

import octavo
from octavo.prompts.chat_template import LAST_WORDS, ChatTemplate
from octavo.prompts.thought_form import FORMS, Stage, Thoughts, closing_of, form_of, switch_of

TURNS = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
WITH_THOUGHTS = (
    "{% for m in messages %}<{{ m.role }}>"
    "{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n{% endif %}{{ m.content }}"
    "{% endfor %}<assistant>"
)
OPENED = TURNS + "<assistant><think>\n"
CLOSED_IF_TOLD = (
    TURNS + "<assistant>{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
)
OFF_BY_DEFAULT = TURNS + "<assistant>{% if thinking %}<think>{% else %}</think>{% endif %}"
ON_IN_THE_HEAD = "{% if enable_thinking %}Think: <think>, </think>.{% endif %}" + TURNS + "<assistant>"
BY_WORDS = (
    "{% set ns = namespace(on=true) %}{% for m in messages %}{% if '/no_think' in m.content %}{% set ns.on = false %}"
    "{% endif %}<{{ m.role }}>{{ m.content.replace(' /no_think', '') }}{% endfor %}<assistant><think>"
    "{% if not ns.on %}</think>{% endif %}"
)
BY_EFFORT = TURNS + "<assistant>{% if reasoning_effort == 'none' %}[THINK][/THINK]{% else %}[THINK]{% endif %}"
EFFORT_ONLY = (
    "Reasoning: {{ reasoning_effort or 'medium' }}" + TURNS + "{# <|channel|>analysis<|message|> #}<|start|>assistant"
)
THINK = FORMS[-1]


def found(source, tokens=()):
    return form_of(ChatTemplate(source, {"bos_token": "", "eos_token": ""}), source, lambda text: text in tokens)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.start.strip() + "".join(form.opens[:1]))
def test_a_form_is_known_by_a_template_that_writes_it(form):
    source = TURNS + "{# " + f"{form.again}{form.start}x{form.closing}{form.sign}" + " #}"
    assert found(source) is form


def test_a_form_is_known_by_what_a_template_makes_of_a_thought():
    """It may put the tags together."""
    source = "{% for m in messages %}{{ '<' ~ 'think>' ~ m.reasoning ~ '</' ~ 'think>' ~ m.content }}{% endfor %}"
    assert found(source) is THINK


def test_a_form_is_known_by_its_tokens():
    assert found(TURNS) is None
    assert found(TURNS, ["<think>"]) is None
    assert found(TURNS, ["<think>", "</think>"]) is THINK


@pytest.mark.parametrize(
    ("source", "closing"),
    [
        (WITH_THOUGHTS, "\n</think>\n"),  # as the template writes it
        (OPENED, "\n</think>\n\n"),
        (BY_EFFORT, "\n[/THINK]"),
        (EFFORT_ONLY, "<|end|><|start|>assistant<|channel|>final<|message|>"),
    ],
)
def test_a_thought_ends_as_the_template_ends_it(source, closing):
    template = ChatTemplate(source, {"bos_token": "", "eos_token": ""})
    assert closing_of(template, form_of(template, source, lambda text: text in ("<think>", "</think>"))) == closing


@pytest.mark.parametrize(
    ("source", "off", "on"),
    [
        (OPENED, None, {}),
        (CLOSED_IF_TOLD, {"enable_thinking": False}, {}),
        (OFF_BY_DEFAULT, {}, {"thinking": True}),
        (ON_IN_THE_HEAD, {}, {"enable_thinking": True}),
        (BY_WORDS, {LAST_WORDS: " /no_think"}, {}),
        (BY_EFFORT, {"reasoning_effort": "none"}, {}),
        (EFFORT_ONLY, None, None),
    ],
)
def test_the_switch_is_found_by_trying(source, off, on):
    template = ChatTemplate(source, {"bos_token": "", "eos_token": ""})
    form = form_of(template, source, lambda text: text in ("<think>", "</think>"))
    assert (switch_of(template, form, on=False), switch_of(template, form, on=True)) == (off, on)


def test_words_follow_the_last_question_alone():
    template = ChatTemplate(BY_WORDS, {"bos_token": "", "eos_token": ""})
    parts = template.parts(False, False, options={LAST_WORDS: " /no_think"})
    assert parts.last == "<assistant><think></think>"
    assert parts.border == ""


def test_a_control_token_counts_as_such_alone(tmp_path):
    """Text that spells it is text; so it does in a thought about thoughts."""
    llama = octavo.Llama(thinking_model.write_model(tmp_path / "hidden.gguf", thinking_model.IN_HIDDEN_TAGS))
    thoughts = Thoughts.of(llama)
    assert sorted(thoughts.texts.values()) == sorted(thinking_model.HIDDEN)
    [start] = llama.tokenize(b"<|START_THINKING|>", add_bos=False, special=True)
    assert (llama.piece(start), thoughts.form.start) == (b"", thoughts.characters[start])
    assert thoughts.form.start.translate(thoughts.texts) == thoughts.plain.start == "<|START_THINKING|>"
    assert llama.detokenize(list(thoughts.closing), special=True) == thoughts.plain.closing.encode()
    assert thoughts.stage_after(llama, [65, start]) is Stage.THOUGHT
    assert thoughts.stage_after(llama, llama.tokenize(b"assistant\n", add_bos=False)) is Stage.BEFORE


def test_a_model_that_does_not_think_has_no_thoughts(tiny_model):
    assert Thoughts.of(octavo.Llama(tiny_model)) is None
