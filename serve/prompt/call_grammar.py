"""Grammars that constrain an answer to a call, in the form in which the model writes calls, or to a JSON schema."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from llama_cpp.llama_grammar import SchemaConverter, json_schema_to_gbnf

from ...runtime.call_form import ANY, CallForm, Style
from ..http.api_error import RequestError

#: Any JSON object, and any JSON value.
_ANY_OBJECT: dict[str, Any] = {"type": "object"}
_ANY_VALUE: dict[str, Any] = {}

#: Rules of values in nested tags, without their texts before tags.
_NESTED = """
nested-text ::= {text}
nested-tag ::= {opening} nested-name ">" nested-value {closing} nested-name ">"
nested-name ::= [^<>]+
nested-value ::= nested-text | nested-tag+"""

#: Rules of Gemma 4's notation.
_GEMMA = r"""
gemma-string ::= "<|\"|>" ( [^<] | "<" [^|] )* "<|\"|>"
gemma-number ::= "-"? [0-9]+ ( "." [0-9]+ )?
gemma-key ::= [a-zA-Z0-9_-]+
gemma-object ::= "{" ( gemma-key ":" gemma-value ( "," gemma-key ":" gemma-value )* )? "}"
gemma-list ::= "[" ( gemma-value ( "," gemma-value )* )? "]"
gemma-value ::= gemma-string | gemma-number | "true" | "false" | "null" | gemma-object | gemma-list"""


def grammar_of(schema: dict[str, Any], param: str) -> str:
    """Turn a JSON schema into a GBNF grammar.

    Parameters
    ----------
    param : str
        The field of the request with the schema.

    Raises
    ------
    RequestError
        The schema cannot be turned into a grammar.
    """
    try:
        return str(json_schema_to_gbnf(json.dumps(schema)))
    except Exception as error:  # of any kind: the converter checks little
        raise _refusal(error, param) from error


def calls_grammar(tools: Sequence[dict[str, Any]], name: str | None, form: CallForm) -> str:
    """Return the grammar of a call.

    Parameters
    ----------
    name : str, optional
        The function to call; by default any.

    Raises
    ------
    RequestError
        The function is unknown, or its parameters cannot be turned into a grammar.
    """
    functions = [tool["function"] for tool in tools if name in (None, tool["function"]["name"])]
    if not functions:
        raise RequestError(f"There is no function {name} among the tools.", param="tool_choice")
    try:
        return _Rules(form).grammar(functions)
    except Exception as error:  # of any kind: the converter checks little
        raise _refusal(error, "tools") from error


def _refusal(error: Exception, param: str) -> RequestError:
    what = str(error) or type(error).__name__
    return RequestError(f"This JSON schema cannot be turned into a grammar: {what}.", param=param)


class _Rules:
    """The rules of calls in one form."""

    def __init__(self, form: CallForm) -> None:
        self._form = form
        order = {key: number for number, key in enumerate((form.name_key, form.arguments_key)) if key}
        self._schemas: Any = SchemaConverter(prop_order=order, allow_fetch=False, dotall=False, raw_pattern=False)

    def grammar(self, functions: Sequence[Mapping[str, Any]]) -> str:
        """Return the grammar of a call of one of some functions. The texts that end a call may be missing."""
        form = self._form
        calls = " | ".join(self._call(number, function) for number, function in enumerate(functions))
        if form.lists or form.style is Style.PYTHON:
            calls = f'"[" ( {calls} ) "]"'
        start, end = self._literal(form.start.strip()), self._literal(form.end.strip())
        first, last = (f"{text} ws" if text else "" for text in (start, end))
        closing = self._literal(form.closing.strip())
        ending = f"( ws {closing} ( ws {last} )? )?" if closing and last else f"( ws {closing or last} )?"
        root = f"root ::= {first} ( {calls} ) {ending if closing or last else ''}"
        more = _GEMMA if form.style is Style.GEMMA else self._nested_rules() if form.style is Style.NESTED else ""
        return f"{self._schemas.format_grammar()}\nws ::= [ \\n]?\n{root}{more}\n"

    def _call(self, number: int, function: Mapping[str, Any]) -> str:
        """Return the pattern of a call of a function."""
        form, name = self._form, function["name"]
        parameters = self._schemas.resolve_refs(function.get("parameters") or _ANY_OBJECT, f"call-{number}")
        if form.style is Style.OBJECT:
            fields = {name: parameters}
            if form.name_key:
                fields = {form.name_key: {"const": name}, form.arguments_key: parameters}
            schema = {"type": "object", "properties": fields, "required": list(fields)}
            return str(self._schemas.visit(schema, f"call-{number}"))
        opening = "" if form.begun else self._literal(form.opening.lstrip())
        head = f"{opening} {self._literal(name)} {self._literal(form.middle)}"
        if form.style is Style.NAMED:
            return f"{head} {self._schemas.visit(parameters, f'call-{number}')}"
        inside = self._arguments(f"call-{number}", parameters)
        around = {Style.PYTHON: ('"("', '")"'), Style.GEMMA: ('"{"', '"}"')}.get(form.style, ("", ""))
        return f"{head} {around[0]} {inside} {around[1]}"

    def _arguments(self, rule: str, parameters: Mapping[str, Any]) -> str:
        """Return the pattern of the fields of an object."""
        needed = parameters.get("required") or ()
        pairs = {key: self._pair(f"{rule}-{key}", key, of) for key, of in (parameters.get("properties") or {}).items()}
        required = [pair for key, pair in pairs.items() if key in needed]
        optional = [pair for key, pair in pairs.items() if key not in needed]
        return _sequence(required, optional, {Style.PYTHON: '", "', Style.GEMMA: '","'}.get(self._form.style, ""))

    def _pair(self, rule: str, key: str, schema: Mapping[str, Any]) -> str:
        """Return the pattern of an argument."""
        form, is_string = self._form, schema.get("type") == "string"
        if form.style is Style.PYTHON:
            return f"{self._literal(f'{key}=')} {self._schemas.visit(schema or _ANY_VALUE, rule)}"
        if form.style is Style.GEMMA:
            kinds = {"string": "gemma-string", "number": "gemma-number", "integer": "gemma-number"}
            kinds |= {"object": "gemma-object", "array": "gemma-list", "boolean": '( "true" | "false" )'}
            return f"{self._literal(f'{key}:')} {kinds.get(str(schema.get('type')), 'gemma-value')}"
        if form.style is Style.NESTED:
            return self._tag(rule, key, schema)
        if is_string and schema.get("enum"):
            value = " | ".join(self._literal(str(choice)) for choice in schema["enum"])
        elif is_string:
            value = self._text_before(form.value_closing)
        else:
            value = self._schemas.visit(schema or _ANY_VALUE, rule)
        opening = form.value_opening if is_string else form.other_opening
        before = self._literal(f"{form.key_opening}{key}{opening}")
        return f"{before} ( {value} ) {self._literal(form.value_closing)}"

    def _tag(self, rule: str, name: str, schema: Mapping[str, Any]) -> str:
        """Return the pattern of a value in a tag, and tags inside for lists and objects."""
        kind, form = schema.get("type"), self._form
        if schema.get("enum"):
            value = " | ".join(self._literal(_text_of(choice)) for choice in schema["enum"])
        elif kind == "array":
            value = f"( {self._tag(f'{rule}-item', 'item', schema.get('items') or _ANY_VALUE)} )*"
        elif kind == "object" and schema.get("properties"):
            value = self._arguments(rule, schema)
        elif kind in ("integer", "number", "boolean"):
            value = self._schemas.visit(schema, rule)
        else:
            value = "nested-text" if kind == "string" else "nested-value"
        opening, closing = f"{form.key_opening}{name}{form.value_opening}", f"{form.value_closing}{name}>"
        return f"{self._literal(opening)} ( {value} ) {self._literal(closing)}"

    def _nested_rules(self) -> str:
        """Return the rules of values in nested tags."""
        opening, closing = self._form.key_opening, self._form.value_closing
        return _NESTED.format(
            text=self._text_before(closing), opening=self._literal(opening), closing=self._literal(closing)
        )

    def _text_before(self, text: str) -> str:
        """Return the pattern of a text that does not hold the first two characters of another one."""
        first, second = text.strip()[0], text.strip()[1]
        return f"( [^{_in_class(first)}] | {self._literal(first)} [^{_in_class(second)}] )*"

    def _literal(self, text: str) -> str:
        """Return the pattern of a text of the form, with any id in place of ANY."""
        parts = [str(self._schemas._format_literal(part)) if part else "" for part in text.split(ANY)]
        return " [a-zA-Z0-9]+ ".join(parts).strip()


def _sequence(required: Iterable[str], optional: Sequence[str], separator: str) -> str:
    """Return the pattern of arguments: those that are required in order, then any of the others."""
    needed, others = f" {separator} ".join(required), " | ".join(optional)
    if not others:
        return needed
    more = f"( {separator} ( {others} ) )*"
    return f"{needed} {more}" if needed else f"( ( {others} ) {more} )?"


def _text_of(value: Any) -> str:
    """Return a value as a template writes it."""
    return value if isinstance(value, str) else json.dumps(value)


def _in_class(character: str) -> str:
    """Return a character as it stands in a class of characters."""
    return f"\\{character}" if character in "\\]^-" else character
