"""Grammars, in llguidance's Lark, of a call in the form in which the model writes calls, and of a JSON schema."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..errors import PromptError
from .answer_schema import closed, part_of, resolved
from .call_form import ANY, CallForm, Style

#: Any JSON object.
_ANY_OBJECT: dict[str, Any] = {"type": "object"}

#: Blanks between tokens of JSON, where lines and indents would cost time; and between the texts of a form.
_JSON_BLANK, _BLANK = "/ ?/", r"/[ \n]?/"

#: Rules of Gemma 4's notation.
_GEMMA = r"""
gemma_string: {} {}
gemma_number: /-?[0-9]+(\.[0-9]+)?/
gemma_key: /[a-zA-Z0-9_-]+/
gemma_object: "{{" ( gemma_key ":" gemma_value ( "," gemma_key ":" gemma_value )* )? "}}"
gemma_list: "[" ( gemma_value ( "," gemma_value )* )? "]"
gemma_value: gemma_string | gemma_number | "true" | "false" | "null" | gemma_object | gemma_list"""
_GEMMA_QUOTE = '<|"|>'

#: The kinds of values in Gemma 4's notation, by types of JSON schema.
_GEMMA_KINDS = {
    "string": "gemma_string",
    "number": "gemma_number",
    "integer": "gemma_number",
    "object": "gemma_object",
    "array": "gemma_list",
    "boolean": '( "true" | "false" )',
}

#: Any text.
_TEXT = "/(?s:.*)/"


def schema_grammar(schema: Any, param: str) -> str:
    """Return the grammar of the JSON values that fit a schema. Raise PromptError if it is not a schema."""
    return f"start: {_json(closed(schema, param))}"


def calls_grammar(
    tools: Sequence[dict[str, Any]], name: str | None, form: CallForm, pattern: Callable[[str], list[str]]
) -> str:
    """Return the grammar of a call.

    Parameters
    ----------
    name : str, optional
        The function to call; by default any.
    pattern : callable
        Returns the patterns of a text's parts: special tokens, and the texts between them (`Grammars.pattern`).

    Raises
    ------
    PromptError
        The function is unknown, or its parameters are not a schema.
    """
    functions = [tool["function"] for tool in tools if name in (None, tool["function"]["name"])]
    if not functions:
        raise PromptError(f"There is no function {name} among the tools.", param="tool_choice")
    return _Rules(form, pattern).grammar(functions)


def _json(schema: Mapping[str, Any]) -> str:
    """Return the pattern of the JSON values that fit a schema."""
    how = {"whitespace_pattern": " ", "lenient": True}
    return f"%json {json.dumps({**schema, 'x-guidance': how})}"


class _Rules:
    """The rules of calls in one form."""

    def __init__(self, form: CallForm, pattern: Callable[[str], list[str]]) -> None:
        self._form, self._pattern = form, pattern
        self._rules: list[str] = []

    def grammar(self, functions: Sequence[Mapping[str, Any]]) -> str:
        """Return the grammar of a call of one of some functions. The texts that end a call may be missing."""
        form = self._form
        calls = " | ".join(map(self._call, functions))
        if form.lists or form.style is Style.PYTHON:
            calls = f'"[" ( {calls} ) "]"'
        start, end, closing = (self._literal(text.strip()) for text in (form.start, form.end, form.closing))
        first, last = (f"{text} {_BLANK}" if text else "" for text in (start, end))
        ending = f"( {_BLANK} {closing} ( {_BLANK} {last} )? )?" if closing and last else ""
        ending = ending or (f"( {_BLANK} {closing or last} )?" if closing or last else "")
        if form.style is Style.GEMMA:
            self._rules.append(_GEMMA.format(self._literal(_GEMMA_QUOTE), self._until(_GEMMA_QUOTE)).strip())
        return "\n".join([f"start: {first} ( {calls} ) {ending}", *self._rules])

    def _rule(self, body: str, options: str = "") -> str:
        """Add a rule, and return its name."""
        name = f"rule_{len(self._rules)}"
        self._rules.append(f"{name}{options}: {body}")
        return name

    def _call(self, function: Mapping[str, Any]) -> str:
        form, name = self._form, function["name"]
        parameters = closed(function.get("parameters") or _ANY_OBJECT, "tools")
        if form.style is Style.OBJECT:
            value = self._rule(_json(parameters))
            if not form.name_key:
                return _object({name: value})
            return _object({form.name_key: json.dumps(json.dumps(name)), form.arguments_key: value})
        opening = "" if form.begun else self._literal(form.opening.lstrip())
        head = f"{opening} {self._literal(name)} {self._literal(form.middle)}"
        if form.style is Style.NAMED:
            return f"{head} {self._rule(_json(parameters))}"
        around = {Style.PYTHON: ('"("', '")"'), Style.GEMMA: ('"{"', '"}"')}.get(form.style, ("", ""))
        return f"{head} {around[0]} {self._arguments(parameters, parameters)} {around[1]}"

    def _arguments(self, root: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
        """Return the pattern of the fields of an object; `root` is the schema that references of `schema` mean."""
        needed = schema.get("required") or ()
        pairs = {key: self._pair(root, key, of) for key, of in (schema.get("properties") or {}).items()}
        required = [pair for key, pair in pairs.items() if key in needed]
        optional = [pair for key, pair in pairs.items() if key not in needed]
        return _sequence(required, optional, {Style.PYTHON: '", "', Style.GEMMA: '","'}.get(self._form.style, ""))

    def _value(self, root: Mapping[str, Any], schema: Any) -> str:
        """Return the pattern of a JSON value that is part of a schema."""
        return self._rule(_json(part_of(root, schema)))

    def _pair(self, root: Mapping[str, Any], key: str, schema: Any) -> str:
        form, known = self._form, resolved(root, schema)
        if form.style is Style.PYTHON:
            return f"{self._literal(f'{key}=')} {self._value(root, schema)}"
        if form.style is Style.GEMMA:
            return f"{self._literal(f'{key}:')} {_GEMMA_KINDS.get(str(known.get('type')), 'gemma_value')}"
        if form.style is Style.NESTED:
            return self._tag(root, key, schema)
        is_string = known.get("type") == "string"
        before = self._literal(f"{form.key_opening}{key}{form.value_opening if is_string else form.other_opening}")
        if is_string and not known.get("enum"):
            return f"{before} {self._until(form.value_closing)}"
        choices = " | ".join(self._literal(str(choice)) for choice in known.get("enum") or ())
        value = choices if is_string else self._value(root, schema)
        return f"{before} ( {value} ) {self._literal(form.value_closing)}"

    def _tag(self, root: Mapping[str, Any], name: str, schema: Any) -> str:
        """Return the pattern of a value in a tag, and tags inside for lists and objects."""
        known, form = resolved(root, schema), self._form
        kind, choices = known.get("type"), known.get("enum")
        opening = self._literal(f"{form.key_opening}{name}{form.value_opening}")
        closing = self._literal(f"{form.value_closing}{name}>")
        if choices:
            value = " | ".join(self._literal(_text_of(choice)) for choice in choices)
        elif kind == "array":
            value = f"( {self._tag(root, 'item', known.get('items') or {})} )*"
        elif kind == "object" and known.get("properties"):
            value = self._arguments(root, known)
        elif kind in ("integer", "number", "boolean"):
            value = self._value(root, schema)
        else:  # a text, or for values of no type perhaps tags
            return f"{opening} {self._until(f'{form.value_closing}{name}>')}"
        return f"{opening} ( {value} ) {closing}"

    def _until(self, text: str) -> str:
        """Return the pattern of any text up to and with another one."""
        parts = self._pattern(text.lstrip())
        if parts[0].startswith("<["):  # a special token, which no text holds
            return " ".join([_TEXT, *parts])
        first, *rest = self._pattern(text)
        return " ".join([self._rule(_TEXT, f"[suffix={first}]"), *rest])

    def _literal(self, text: str) -> str:
        """Return the pattern of a text of the form, with any id in place of ANY."""
        return " /[a-zA-Z0-9]+/ ".join(" ".join(self._pattern(part)) for part in text.split(ANY)).strip()


def _object(values: Mapping[str, str]) -> str:
    """Return the pattern of a JSON object from the patterns of its values."""
    colon = f'{_JSON_BLANK} ":" {_JSON_BLANK}'
    fields = (f"{json.dumps(json.dumps(key))} {colon} {value}" for key, value in values.items())
    between = f' {_JSON_BLANK} "," {_JSON_BLANK} '
    return f'"{{" {_JSON_BLANK} {between.join(fields)} {_JSON_BLANK} "}}"'


def _sequence(required: Iterable[str], optional: Sequence[str], separator: str) -> str:
    """Return the pattern of arguments: those that are required in order, then any of the others."""
    needed, others = f" {separator} ".join(required), " | ".join(optional)
    if not others:
        return needed
    more = f"( {separator} ( {others} ) )*"
    return f"{needed} {more}" if needed else f"( ( {others} ) {more} )?"


def _text_of(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
