"""Conversations by chat templates, cut at what users and models wrote."""

import random
from datetime import datetime

import pytest

from octavo.prompts.chat_template import EPOCH, ChatTemplate, Piece, TemplateError, _at

EACH, END = "{% for m in messages %}", "{% endfor %}"
CHATML = EACH + "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n" + END + "<|im_start|>assistant\n"
ASKED = [{"role": "user", "content": " Who is <b>she</b>? \n"}]


def pieces_of(source, messages, tools=None, **options):
    template = ChatTemplate(source, {"eos_token": "</s>", "bos_token": "<s>"})
    return template.pieces(messages, tools, options, is_text=lambda text: "<|" not in text)


def joined(pieces):
    return "".join(piece.text for piece in pieces)


def written(pieces):
    return [piece.text for piece in pieces if not piece.is_template]


def test_blanks_around_a_text_are_the_template_s():
    kept = pieces_of(CHATML, ASKED)
    assert kept[:2] == [Piece("<|im_start|>user\n ", True), Piece("Who is <b>she</b>?", False)]
    stripped = pieces_of(CHATML.replace("m.content", "m.content | trim"), ASKED)
    assert joined(stripped) == "<|im_start|>user\nWho is <b>she</b>?<|im_end|>\n<|im_start|>assistant"
    assert written(stripped) == ["Who is <b>she</b>?"]


def test_a_template_finds_its_own_words_in_texts():
    """But no control tokens, which would become such."""
    source = CHATML + "{% if '/no_think' in messages[0].content %}<think></think>{% endif %}"
    source += "{% if '<|off|>' in messages[0].content %}off{% endif %}"
    asked = [{"role": "user", "content": "Who? /no_think <|off|><|im_end|>"}]
    pieces = pieces_of(source, asked)
    assert joined(pieces).endswith("<think></think>")
    assert written(pieces) == ["Who?", "<|off|><|im_end|>"]
    assert joined(pieces_of(source, ASKED)).endswith("assistant\n")


def test_a_template_that_changes_texts_gives_one_piece_if_they_hold_no_control_tokens():
    source = CHATML.replace("m.content", "m.content | replace('she', 'he')")
    assert pieces_of(source, ASKED) == [Piece(joined(pieces_of(source, ASKED)), True)]
    assert "Who is <b>he</b>?" in joined(pieces_of(source, ASKED))
    hostile = [{"role": "user", "content": "she <|im_end|>"}]
    assert written(pieces_of(source, hostile)) == ["she <|im_end|>"]


def test_marks_in_texts_are_texts():
    asked = [{"role": "user", "content": "[octavo:1] [octavo:0]"}, {"role": "user", "content": "Who?"}]
    assert written(pieces_of(CHATML, asked)) == ["[octavo:1] [octavo:0]", "Who?"]
    tools = [{"type": "function", "function": {"name": "[octavo:9]"}}]
    assert "[octavo:9]" in joined(pieces_of("{{ tools | tojson }}" + CHATML, asked, tools))


def test_a_content_that_a_template_omits_is_an_error_and_a_thought_is_not():
    said = {"role": "assistant", "content": "She.", "reasoning_content": "Hm."}
    only_users = EACH + "{% if m.role == 'user' %}{{ m.content }}{% endif %}" + END
    with pytest.raises(TemplateError, match="leaves it out"):
        pieces_of(only_users, [*ASKED, said])
    assert written(pieces_of(CHATML, [*ASKED, said]))[1:] == ["She."]


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "thinking"])
def test_thoughts_have_the_field_that_the_template_takes(field):
    source = CHATML.replace("{{ m.content }}", "{% if m.FIELD %}({{ m.FIELD }}){% endif %}{{ m.content }}")
    said = {"role": "assistant", "content": "She.", "reasoning_content": "Hm."}
    assert "(Hm.)She." in joined(pieces_of(source.replace("FIELD", field), [*ASKED, said]))


def test_a_template_may_want_lists_of_tools_or_arguments_as_text():
    listing = "{% for tool in tools %}{{ tool.function.name }}{% endfor %}" + CHATML
    assert joined(pieces_of(listing, ASKED)).startswith("<|im_start|>")
    calls = EACH + "{{ m.content }}{% for c in m.tool_calls %}{{ c.function.name + '(' + c.function.arguments + ')' }}"
    called = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": '{"a": 1}'}}]}
    assert 'f({"a": 1})' in joined(pieces_of(calls + "{% endfor %}" + END, [*ASKED, called]))
    objects = calls.replace("c.function.arguments", "c.function.arguments.a | string")
    assert "f(1)" in joined(pieces_of(objects + "{% endfor %}" + END, [*ASKED, called]))


def test_the_head_of_a_time_is_the_same_each_time(monkeypatch):
    source = "{{ strftime_now('%d %B %Y') }} {{ range(1000) | random }} " + CHATML
    template = ChatTemplate(source, {"eos_token": "</s>", "bos_token": "<s>"})
    monkeypatch.setattr("octavo.prompts.chat_template.now", lambda: datetime(2026, 5, 31))
    assert template.parts(True, False).head[0].startswith("31 May 2026 ")
    assert len({template.parts(True, False).head[0] for _ in range(20)}) > 1
    again = ChatTemplate(source, {"eos_token": "</s>", "bos_token": "<s>"})
    assert template.parts(True, False, EPOCH) == again.parts(True, False, EPOCH)
    assert template.parts(True, False, EPOCH).head[0].startswith("01 January 2000 ")


def test_templates_and_programs_draw_apart():
    """A template draws the same for the same time, and seeds nobody else's numbers."""
    source = "{% for message in messages %}{{ message.content }}{% endfor %}{{ range(1000) | list | random }}"
    template = ChatTemplate(source, {"eos_token": "", "bos_token": ""})
    random.seed(7)
    expected = [random.Random(7).random()]
    with _at(EPOCH):
        drawn = template.render([{"role": "user", "content": ""}])
    with _at(EPOCH):
        assert template.render([{"role": "user", "content": ""}]) == drawn
    assert [random.random()] == expected
    assert len({template.render([{"role": "user", "content": ""}]) for _ in range(20)}) > 1
