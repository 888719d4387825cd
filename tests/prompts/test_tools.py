"""Functions: their grammar, and how calls are found in what a model writes."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import octavo
from octavo.errors import PromptError
from octavo.prompts.call_form import ANY, HERMES, TAUGHT, CallForm, Style
from octavo.prompts.call_grammar import calls_grammar, schema_grammar
from octavo.prompts.thought_splitter import Part
from octavo.prompts.tools import AnswerReader, CallFinder, ToolCall
from octavo.serve.engine.grammar import Grammars
from octavo.serve.request_error import RequestError

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": PARAMETERS}} for name in ("weather", "time")]
ROME = '{"name": "weather", "arguments": {"city": "Rome"}}'
OSLO = '{"name": "time", "arguments": {"city": "Oslo"}}'
BOTH = [("weather", "Rome"), ("time", "Oslo")]


FORMS = [HERMES, TAUGHT["[TOOL_CALLS]"]]


def found_in(pieces, forced=False):
    """The text of an answer, and its calls."""
    finder = CallFinder(TOOLS, FORMS, forced)
    found = [each for piece in pieces for each in finder.add(piece)] + finder.end()
    calls = [(each.name, json.loads(each.arguments)["city"]) for each in found if isinstance(each, ToolCall)]
    return "".join(each for each in found if isinstance(each, str)), calls


@pytest.mark.parametrize(
    ("answer", "text", "calls"),
    [
        ("It is sunny.", "It is sunny.", []),
        ("", "", []),
        (ROME, "", [("weather", "Rome")]),
        (f" \n{ROME}\n", "", [("weather", "Rome")]),
        (f"[{ROME}, {OSLO}]", f"[{ROME}, {OSLO}]", []),
        (f"<tool_call>\n{ROME}\n</tool_call>", "", [("weather", "Rome")]),
        (
            f"<tool_call>{ROME}</tool_call>\n<tool_call>{OSLO}</tool_call>\n",
            "",
            [("weather", "Rome"), ("time", "Oslo")],
        ),
        (f"Let me see. <tool_call>{ROME}</tool_call> So.", "Let me see.  So.", [("weather", "Rome")]),
        (f"<tool_call>{ROME}", "", [("weather", "Rome")]),
        (f"[TOOL_CALLS][{ROME}, {OSLO}]", "", BOTH),
        (f"Yes [TOOL_CALLS] [{ROME}]", "Yes ", [("weather", "Rome")]),
        (ROME.replace("arguments", "parameters"), "", [("weather", "Rome")]),
        (ROME.replace('{"city": "Rome"}', json.dumps('{"city": "Rome"}')), "", [("weather", "Rome")]),
        ('{"a": 1}', '{"a": 1}', []),
        ("{ no JSON", "{ no JSON", []),
        (ROME.replace("weather", "unknown"), ROME.replace("weather", "unknown"), []),
        (ROME.replace('{"city": "Rome"}', '"Rome"'), ROME.replace('{"city": "Rome"}', '"Rome"'), []),
        (ROME.replace('{"city": "Rome"}', "[1]"), ROME.replace('{"city": "Rome"}', "[1]"), []),
        ("<tool_call>nothing</tool_call>", "<tool_call>nothing</tool_call>", []),
        ("a <tool_ b [TOOL c", "a <tool_ b [TOOL c", []),
        ("[" * 100_000, "[" * 100_000, []),
        ("<tool_call>" + "[" * 100_000 + "</tool_call>", "<tool_call>" + "[" * 100_000 + "</tool_call>", []),
    ],
)
def test_calls_are_told_from_text(answer, text, calls):
    assert found_in([answer]) == (text, calls)
    if len(answer) < 1000:
        assert found_in(answer) == (text, calls)


@given(
    st.lists(st.sampled_from([ROME, OSLO, "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "\n", " ", "a", "{", "<"])),
    st.lists(st.integers(1, 30)),
)
def test_pieces_make_no_difference(parts, sizes):
    answer, pieces, at = "".join(parts), [], 0
    for size in sizes:
        pieces.append(answer[at : at + size])
        at += size
    assert found_in([*pieces, answer[at:]]) == found_in([answer])


def test_text_is_told_as_soon_as_it_is_sure():
    finder = CallFinder(TOOLS)
    assert finder.add("Hello ") == ["Hello "]
    assert finder.add("<to") == []
    assert finder.add("p> x") == ["<top> x"]


def test_text_is_told_as_soon_as_it_can_be_no_call():
    finder = CallFinder(TOOLS, FORMS)
    assert finder.add("Models write <tool_call> and") == ["Models write ", "<tool_call>", " and"]
    for begun in ("<tool_call>", '<tool_call>\n{"name"', "[TOOL_CALLS] [", "[TOOL_CALLS]\n"):
        assert CallFinder(TOOLS, FORMS).add(begun) == []


CALL = f"<tool_call>{ROME}</tool_call>"


@pytest.mark.parametrize(
    ("thought", "answer", "shown", "calls"),
    [
        (f"Hm. {CALL}", "", "Hm. ", BOTH[:1]),
        (f"Hm. {CALL}\n<tool_call>{OSLO}</tool_call>\n", "\n\n", "Hm. ", BOTH),
        (f"{CALL} I wait.", "", " I wait.", BOTH[:1]),
        (f"Hm. <tool_call>{ROME}", "", "Hm. ", BOTH[:1]),
        (ROME, "", ROME, []),
        ("Is it <tool_call>{?", "", "Is it <tool_call>{?", []),
        # These calls are only planned.
        (f"So {CALL}. Or not.", "Yes.", f"So {CALL}. Or not.", []),
        (f"So {CALL}", f"<tool_call>{OSLO}</tool_call>", f"So {CALL}", BOTH[1:]),
        ("Is it <tool_call>{?", "No.", "Is it <tool_call>{?", []),
    ],
)
def test_a_call_counts_in_a_thought_that_no_answer_follows(thought, answer, shown, calls):
    parted = [(letter, True) for letter in thought] + [(letter, False) for letter in answer]
    whole = [(thought, True), (answer, False)]
    for pieces in (whole, parted):
        reader = AnswerReader(TOOLS, FORMS, False, ())
        found = [each for piece in pieces for each in reader.add(*piece)] + reader.end()
        made = [(each.name, json.loads(each.arguments)["city"]) for each in found if isinstance(each, ToolCall)]
        told = [each for each in found if not isinstance(each, ToolCall)]
        assert ("".join(part.text for part in told if part.is_thought), made) == (shown, calls)
        assert "".join(part.text for part in told if not part.is_thought).strip() == ("" if calls else answer.strip())


def test_a_thought_is_told_as_it_comes():
    reader = AnswerReader(TOOLS, FORMS, False, ())
    assert reader.add("I think of <tool_call> and", True) == [
        Part("I think of ", True),
        Part("<tool_call>", True),
        Part(" and", True),
    ]
    assert reader.add(" {", True) == [Part(" {", True)]


def test_an_answer_that_must_be_a_call_is_told_at_the_end():
    assert found_in(ROME, forced=True) == ("", [("weather", "Rome")])
    assert found_in([ROME[:20]], forced=True) == (ROME[:20], [])


def test_grammars_name_the_functions():
    both, one = call_grammar(TOOLS, None, HERMES), call_grammar(TOOLS, "time", HERMES)
    assert ("weather" in both, "time" in both) == (True, True)
    assert ("weather" in one, "time" in one) == (False, True)
    with pytest.raises(PromptError, match="no function other"):
        call_grammar(TOOLS, "other", HERMES)


@pytest.mark.parametrize("schema", [{"type": "what"}, {"$ref": "#/nowhere"}, {"type": "object", "properties": 3}, 3])
def test_schemas_that_cannot_be_are_refused(schema):
    with pytest.raises((PromptError, RequestError), match=r"cannot be used|is an object") as raised:
        sampled.grammars.made(schema_grammar(schema, "response_format"), "response_format")
    assert raised.value.param == "response_format"


#: Forms as models' templates show them, and the text of a call in each.
SHOWN = {
    "a name and JSON": (
        CallForm(Style.NAMED, "<calls>", "</calls>", "<call>functions.", f":{ANY}<args>", "</call>"),
        '<calls><call>functions.weather:0<args>{"city": "Ro\\nme </call>", "days": 3}</call></calls>',
    ),
    "arguments by keys": (
        CallForm(
            Style.KEYED,
            opening="<tool_call>\n<function=",
            middle=">\n",
            closing="</function>\n</tool_call>",
            key_opening="<parameter=",
            value_opening=">\n",
            other_opening=">\n",
            value_closing="\n</parameter>\n",
        ),
        "<tool_call>\n<function=weather>\n<parameter=city>\nRo\nme </call>\n</parameter>\n<parameter=days>\n3\n"
        "</parameter>\n</function>\n</tool_call>",
    ),
    "arguments with types": (
        CallForm(
            Style.KEYED,
            "<calls>",
            "</calls>",
            '<invoke name="',
            '">\n',
            "</invoke>\n",
            key_opening='<parameter name="',
            value_opening='" string="true">',
            other_opening='" string="false">',
            value_closing="</parameter>\n",
        ),
        '<calls>\n<invoke name="weather">\n<parameter name="city" string="true">Ro\nme </call></parameter>\n'
        '<parameter name="days" string="false">3</parameter>\n</invoke>\n</calls>',
    ),
    "nested tags": (
        CallForm(
            Style.NESTED,
            "]<[<calls>",
            "]<[</calls>",
            ']<[<invoke name="',
            '">',
            "]<[</invoke>\n",
            key_opening="]<[<",
            value_opening=">",
            other_opening=">",
            value_closing="]<[</",
        ),
        ']<[<calls>\n]<[<invoke name="weather">]<[<city>Ro\nme </call>]<[</city>]<[<days>3]<[</days>]<[</invoke>\n'
        "]<[</calls>",
    ),
    "Python": (
        CallForm(Style.PYTHON, "<|tool_call_start|>", "<|tool_call_end|>"),
        "<|tool_call_start|>[weather(city='Ro\nme </call>', days=3)]<|tool_call_end|>",
    ),
    "Gemma": (
        CallForm(Style.GEMMA, opening="<|tool_call>call:", closing="<tool_call|>"),
        '<|tool_call>call:weather{city:<|"|>Ro\nme </call><|"|>,days:3}<tool_call|>',
    ),
    "objects with other keys": (
        CallForm(Style.OBJECT, "<|ACTION|>", "<|END|>", name_key="tool_name", arguments_key="parameters", lists=True),
        '<|ACTION|>[\n  {"id": "0", "tool_name": "weather", "parameters": {"city": "Ro\\nme </call>", "days": 3}}\n]'
        "<|END|>",
    ),
    "names as keys": (
        CallForm(Style.OBJECT, "<|tools|>", "<|/tools|>", name_key="", arguments_key="", lists=True),
        '<|tools|>[{"weather": {"city": "Ro\\nme </call>", "days": 3}}]<|/tools|>',
    ),
}
WHAT = {"city": "Ro\nme </call>", "days": 3}
DAYS = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}
OF_DAYS = [{"type": "function", "function": {"name": name, "parameters": DAYS}} for name in ("weather", "look-up")]


@pytest.mark.parametrize("name", SHOWN)
def test_calls_are_found_in_the_form_of_the_model(name):
    form, text = SHOWN[name]
    for said in (text, f"Well. {text}", f"Well. {text} So", text * 2, text.replace("weather", "look-up")):
        for pieces in ([said], list(said)):
            finder = CallFinder(OF_DAYS, [form, HERMES])
            found = [each for piece in pieces for each in finder.add(piece)] + finder.end()
            calls = [(each.name, json.loads(each.arguments)) for each in found if isinstance(each, ToolCall)]
            called = "look-up" if "look-up" in said else "weather"
            assert calls == [(called, WHAT)] * said.count(called)
            rest = "".join(each for each in found if isinstance(each, str))
            assert rest.split() == said.replace(text, "").replace(text.replace("weather", "look-up"), "").split()


@pytest.mark.parametrize("name", SHOWN)
def test_a_call_is_sent_when_it_is_whole(name):
    form, text = SHOWN[name]
    finder = CallFinder(OF_DAYS, [form])
    found = [each for piece in [*text, "\n", "So"] for each in finder.add(piece)]
    assert any(isinstance(each, ToolCall) for each in found)


@pytest.mark.parametrize("name", SHOWN)
def test_what_only_begins_as_a_call_is_text(name):
    form, text = SHOWN[name]
    for said in (text[: len(text) // 2], text.replace("weather", "unknown"), form.triggers[0] + " is how one calls"):
        finder = CallFinder(OF_DAYS, [form])
        found = [each for piece in said for each in finder.add(piece)] + finder.end()
        assert "".join(each for each in found if isinstance(each, str)) == said


def test_control_tokens_of_calls_are_not_part_of_the_text():
    finder = CallFinder(OF_DAYS, [TAUGHT["[TOOL_CALLS]"]], hidden=["[TOOL_CALLS]", "<|call|>"])
    assert [*finder.add("Yes.<|call|>"), *finder.add("[TOOL_CALLS]no"), *finder.end()] == ["Yes.", "no"]


def test_values_have_the_types_of_the_schema_or_of_their_text():
    form = SHOWN["arguments by keys"][0]
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    values = {
        "a": "42",
        "b": "42",
        "c": "True",
        "d": "{'x': None}",
        "e": '[1, "y"]',
        "f": "so it is",
        "g": "<![CDATA[<b>]]>",
    }
    text = "<tool_call>\n<function=f>\n"
    text += "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items())
    finder = CallFinder([{"function": {"name": "f", "parameters": schema}}], [form])
    [call] = [*finder.add(text + "</function>\n</tool_call>"), *finder.end()]
    assert json.loads(call.arguments) == {
        "a": "42",
        "b": 42,
        "c": True,
        "d": {"x": None},
        "e": [1, "y"],
        "f": "so it is",
        "g": "<b>",
    }


STAY = {"type": "object", "properties": {"from": {"type": "string"}, "days": {"type": "integer"}}}
TRIP = {
    "type": "object",
    "properties": {"stays": {"type": "array", "items": STAY}, "by": {"enum": ["sea", 3]}, "more": {}},
    "required": ["stays"],
}
TRIPS = [{"type": "function", "function": {"name": "go", "parameters": TRIP}}]
IN_TAGS = (
    '<calls><invoke name="go"><stays><item><from>12</from><days>3</days></item><item><from>a<b</from></item></stays>'
    "<by>sea</by>{}</invoke></calls>"
)
STAYS = [{"from": "12", "days": 3}, {"from": "a<b"}]


def in_tags(text):
    """A text with what stands before each of its tags in a form."""
    return re.sub(r"<(?=/?(calls|invoke|stays|item|from|days|by|more|a|x)\b)", "]<[<", text)


@pytest.mark.parametrize(
    ("more", "value"),
    [
        ("<more>4</more>", 4),
        ("<more><item>true</item><item><a>x</a></item></more>", [True, {"a": "x"}]),
        ("<more><a><x>1</x></a></more>", {"a": {"x": 1}}),
    ],
)
def test_tags_may_hold_tags(more, value):
    form, text = SHOWN["nested tags"][0], in_tags(IN_TAGS.format(more))
    finder = CallFinder(TRIPS, [form])
    [call] = [each for piece in text for each in finder.add(piece)] + finder.end()
    assert json.loads(call.arguments) == {"stays": STAYS, "by": "sea", "more": value}
    assert sampled(call_grammar(TRIPS, None, form), text)


def test_a_tag_that_does_not_close_is_no_argument():
    form = SHOWN["nested tags"][0]
    text = in_tags('<calls><invoke name="go"><more><a>1')
    for said in (text, f"{text}{in_tags('</more></invoke></calls>')}"[: len(text) + 3]):
        finder = CallFinder(TRIPS, [form])
        assert "".join([*finder.add(said), *finder.end()]) == said


def sampled(grammar, text):
    """Whether a grammar allows a text and its end."""
    llama, made = sampled.llama, sampled.grammars.made(grammar, "tools")
    for token in [*llama.tokenize(text.encode(), add_bos=False, special=False), llama.token_eos()]:
        if made.forbidden()[token]:
            return False
        made.accept(token)
    return True


def call_grammar(tools, name, form):
    return calls_grammar(tools, name, form, sampled.grammars.pattern)


@pytest.fixture(scope="module", autouse=True)
def _vocabulary(tiny_model):
    sampled.llama = octavo.Llama(tiny_model, vocab_only=True)
    sampled.grammars = Grammars(sampled.llama)
    yield
    sampled.grammars.close()
    sampled.llama.close()


@pytest.mark.parametrize("name", SHOWN)
def test_grammars_have_the_form_of_the_model(name):
    form, text = SHOWN[name]
    text = text.replace(" </call>", "").replace("\n  {", "{").replace("}\n]", "}]").replace('"id": "0", ', "")
    if form.style is Style.PYTHON:
        text = text.replace("'Ro\nme'", '"Rome"')
    grammar = call_grammar(OF_DAYS, None, form)
    assert sampled(grammar, text)
    assert sampled(grammar, text.replace("weather", "look-up"))
    assert not sampled(grammar, text.replace("weather", "unknown"))
    assert not sampled(grammar, text.replace("city", "town"))
    assert not sampled(grammar, f"Well. {text}")
    assert not sampled(call_grammar(OF_DAYS, "look-up", form), text)
    finder = CallFinder(OF_DAYS, [form], forced=True)
    [call] = [*finder.add(text), *finder.end()]
    assert call.name == "weather"
