"""Which schemas an answer can be kept to, and that none takes long or ends the process."""

import json

import pytest

import octavo
from octavo.errors import PromptError
from octavo.prompts.call_grammar import calls_grammar, schema_grammar
from octavo.serve.engine.grammar import Grammars
from octavo.serve.request_error import RequestError

NODE = {
    "type": "object",
    "properties": {"value": {"type": "integer"}, "next": {"$ref": "#/$defs/node"}},
    "required": ["value"],
}
LIST = {
    "type": "object",
    "properties": {"head": {"$ref": "#/$defs/node"}},
    "required": ["head"],
    "$defs": {"node": NODE},
}
PAIR = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["a"]}


@pytest.fixture(scope="module")
def grammars(tiny_model):
    """What makes grammars of the tiny model's tokens, each a byte."""
    llama = octavo.Llama(tiny_model, vocab_only=True)
    made = Grammars(llama)
    made.llama = llama
    yield made
    made.close()
    llama.close()


def allows(grammars, lark, text):
    """Whether a grammar allows a text and its end."""
    llama, made = grammars.llama, grammars.made(lark, "response_format")
    for token in [*llama.tokenize(text.encode(), add_bos=False, special=False), llama.token_eos()]:
        if made.forbidden()[token]:
            return False
        made.accept(token)
    return True


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        (True, ["3", '"a"', '{"b": [null]}'], ["b"]),
        ({}, ["3", "[]"], ["]"]),
        (
            PAIR,
            ['{"a": 3}', '{"a":3,"b":"x"}', '{ "a": 3 }'],
            ['{"b": "x"}', '{"a": 3, "c": 4}', '{"a": "3"}'],
        ),
        ({**PAIR, "additionalProperties": {"type": "null"}}, ['{"a": 3, "c": null}'], ['{"a": 3, "c": 4}']),
        (LIST, ['{"head": {"value": 1, "next": {"value": 2}}}'], ['{"head": {"next": {"value": 2}}}']),
        ({"anyOf": [PAIR, {"type": "null"}]}, ["null", '{"a": 1}'], ["true", '{"a": 1, "c": 2}']),
        (
            {"allOf": [PAIR, {"properties": {"c": {"type": "integer"}}, "required": ["c"]}]},
            ['{"a": 1, "c": 2}'],
            ['{"a": 1}'],
        ),
        ({"enum": ["😀", "ß", 3, None]}, ['"😀"', '"ß"', "3", "null"], ['"s"', "4"]),
        ({"type": "string", "pattern": r"^\d{3}-\w+\s?$"}, ['"123-ab "', '"123-a_9"'], ['"12-ab"', '"123- a"']),
        ({"type": "string", "pattern": "ab+c"}, ['"abc"', '"x abbc y"'], ['"ac"']),
        ({"type": "string", "minLength": 2, "maxLength": 3}, ['"éé"', '"abc"'], ['"a"', '"abcd"']),
        ({"type": "string", "format": "date"}, ['"2026-11-27"'], ['"2026-13-27"', '"today"']),
        ({"type": "number", "minimum": -3.5, "exclusiveMaximum": 10}, ["-3.5", "9.99", "0"], ["10", "-3.6"]),
        ({"type": "integer", "minimum": 17, "maximum": 1234}, ["17", "1234"], ["16", "1235", "17.5"]),
        ({"type": ["integer", "null"]}, ["3", "null"], ["3.5"]),
        ({"type": "array", "prefixItems": [{"type": "integer"}], "items": {"type": "string"}}, ['[1, "a"]'], ['["a"]']),
        (
            {"type": "object", "patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": False},
            ['{"xa": 1}'],
            ['{"a": 1}'],
        ),
        ({"not": {"type": "string"}, "type": "integer"}, ["3"], ['"a"']),
    ],
    ids=lambda value: json.dumps(value)[:40] if isinstance(value, dict) else None,
)
def test_answers_are_kept_to_schemas(grammars, schema, right, wrong):
    lark = schema_grammar(schema, "response_format")
    assert [allows(grammars, lark, text) for text in right] == [True] * len(right)
    assert [allows(grammars, lark, text) for text in wrong] == [False] * len(wrong)


LONG = {
    "maxLength": ({"type": "string", "maxLength": 65_536}, '"ab"'),
    "minLength": ({"type": "string", "minLength": 1, "maxLength": 1 << 31}, '"ab"'),
    "maxItems": ({"type": "array", "items": {"type": "integer"}, "maxItems": 65_536}, "[1, 2]"),
    "enum": ({"enum": [f"value {7919 * number}" for number in range(20_000)]}, '"value 15838"'),
    "fields": ({"type": "object", "properties": {f"k{i}": {"type": "integer"} for i in range(3000)}}, '{"k7": 1}'),
    "repeated": ({"type": "string", "pattern": "^(a|b|ab|ba){1,5000}$"}, '"abba"'),
    "nested": ({"type": "string", "pattern": "^((a+)+)+$"}, '"aaaaaaaaaaaaaaaaaaaaaaaa"'),
}


@pytest.mark.parametrize("name", LONG)
def test_large_bounds_are_bounds(grammars, name):
    schema, text = LONG[name]
    assert allows(grammars, schema_grammar(schema, "response_format"), text)


def test_a_schema_that_is_too_much_is_refused(grammars):
    deep = {"type": "integer"}
    for _ in range(500):
        deep = {"type": "object", "properties": {"a": deep}}
    with pytest.raises(PromptError, match="more than 64 levels"):
        schema_grammar(deep, "response_format")
    much = {"type": "string", "pattern": "^(" + "|".join(f"{i:x}+" for i in range(120_000)) + ")*$"}
    with pytest.raises(RequestError, match="This form of an answer cannot be used"):
        grammars.made(schema_grammar(much, "response_format"), "response_format")
    grammars.made(schema_grammar({"type": "integer"}, "response_format"), "response_format")


def test_a_schema_that_ends_a_process_does_not_end_the_servers(grammars):
    for _ in range(2):
        with pytest.raises(RequestError, match="too complex: ask for a simpler one"):
            grammars.made(schema_grammar({"const": -(1 << 63)}, "response_format"), "response_format")
    assert allows(grammars, schema_grammar({"const": 1 << 62}, "response_format"), str(1 << 62))


def test_references_of_parameters_mean_their_schema(grammars):
    """They do although the parameters are a part of what the model writes."""
    from octavo.prompts.call_form import HERMES, CallForm, Style

    tools = [{"type": "function", "function": {"name": "put", "parameters": LIST}}]
    value = '{"head": {"value": 1, "next": {"value": 2}}}'
    lark = calls_grammar(tools, None, HERMES, grammars.pattern)
    assert allows(grammars, lark, f'<tool_call>\n{{"name": "put", "arguments": {value}}}\n</tool_call>')
    assert not allows(grammars, lark, '<tool_call>\n{"name": "put", "arguments": {"head": {"next": 1}}}\n</tool_call>')
    python = calls_grammar(tools, None, CallForm(Style.PYTHON), grammars.pattern)
    assert allows(grammars, python, '[put(head={"value": 1, "next": {"value": 2}})]')
    assert not allows(grammars, python, '[put(head={"next": 1})]')
