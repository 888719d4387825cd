"""Functions: their grammar, and how calls are found in what a model writes."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.serve.http.api_error import RequestError
from octavo.serve.prompt.tools import CallFinder, ToolCall, calls_grammar, grammar_of

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": PARAMETERS}} for name in ("weather", "time")]
ROME = '{"name": "weather", "arguments": {"city": "Rome"}}'
OSLO = '{"name": "time", "arguments": {"city": "Oslo"}}'
BOTH = [("weather", "Rome"), ("time", "Oslo")]


def found_in(pieces, forced=False):
    """The text of an answer, and its calls."""
    finder = CallFinder(["weather", "time"], forced)
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
    finder = CallFinder(["weather"])
    assert finder.add("Hello ") == ["Hello "]
    assert finder.add("<to") == []
    assert finder.add("p> x") == ["<top> x"]


def test_an_answer_that_must_be_a_call_is_told_at_the_end():
    assert found_in(ROME, forced=True) == ("", [("weather", "Rome")])
    assert found_in([ROME[:20]], forced=True) == (ROME[:20], [])


def test_grammars_name_the_functions():
    both, one = calls_grammar(TOOLS, None), calls_grammar(TOOLS, "time")
    assert ("weather" in both, "time" in both) == (True, True)
    assert ("weather" in one, "time" in one) == (False, True)
    with pytest.raises(RequestError, match="no function other"):
        calls_grammar(TOOLS, "other")


@pytest.mark.parametrize("schema", [{"type": "what"}, {"$ref": "#/nowhere"}, {"type": "object", "properties": 3}])
def test_schemas_that_cannot_be_are_refused(schema):
    with pytest.raises(RequestError, match="cannot be turned into a grammar") as raised:
        grammar_of(schema, "response_format")
    assert raised.value.param == "response_format"
