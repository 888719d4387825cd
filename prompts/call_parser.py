"""Parse calls of functions in a form from the text of an answer."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import isfinite
from typing import Any, NamedTuple

from .call_form import ANY, CallForm, Style
from .python_notation import python_calls, python_literal

_KEY = r"(?P<key>[^<>\"\s=]+?)"

#: A string, and a key, in Gemma 4's notation.
_GEMMA_TOKEN = re.compile(
    r'<\|"\|>(?P<text>.*?)<\|"\|>|(?<=[{,])(?P<key>[^\s:{},\[\]<>]++)(?=:)|(?<=[:,\[])(?P<word>None|True|False)\b',
    re.DOTALL,
)
_GEMMA_QUOTE = '<|"|>'

#: The schema of a value that a schema leaves out.
_ANYTHING: dict[str, Any] = {}

#: Number of characters that have the texts before a call, and its name.
_HEAD = 500

#: Most characters in the place of ANY, and most levels of tags in tags that are looked into.
_LONGEST_ID, _MOST_LEVELS = 200, 30

#: Keys that models write in place of the keys of their form.
_NAME_KEYS, _ARGUMENTS_KEYS = ("name", "tool_name", "function"), ("arguments", "parameters")


def _finite(written: str) -> float:
    """Return a number of JSON, which has no infinity: neither has an answer to a client."""
    number = float(written)
    if not isfinite(number):
        raise ValueError(f"{written} is too large")
    return number


_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=lambda name: _finite(name))


class FoundCall(NamedTuple):
    """A call in a text: name, arguments, and the place where it ends."""

    name: str
    arguments: dict[str, Any]
    stop: int


class CallParser:
    """Parse calls in one form, in time that is linear in the text: its patterns give no blanks, keys or texts back.

    Parameters
    ----------
    schemas : mapping of str to dict
        For each function, the schema of its parameters.
    """

    def __init__(self, form: CallForm, schemas: Mapping[str, dict[str, Any]]) -> None:
        self.form, self._schemas = form, schemas
        ends = form.end if form.style in (Style.OBJECT, Style.PYTHON) else form.closing
        self._ends = [*ends.replace(ANY, " ").split(), ""][0]
        arguments = "|".join(filter(None, (_loose(form.key_opening), _loose(form.closing)))) or r"\{"
        arguments = arguments if form.style in (Style.KEYED, Style.NESTED) else r"\{"
        opening = f"(?:{_loose(form.opening)})?" if form.begun else _loose(form.opening)
        names = "|".join(map(re.escape, sorted(schemas, key=len, reverse=True)))
        name = rf"(?P<name>{names})(?![\w.-])"
        self._opening = re.compile(rf"\s*+{opening}{name}{_loose(form.middle)}(?=\s*+(?:{arguments}))")
        keyed = r"\s*+" + _loose(form.key_opening) + _KEY + _between(form.value_opening, form.other_opening)
        value, after = _exact_end(form.value_closing), f"{_loose(form.key_opening)}|{_loose(form.closing) or '$'}"
        self._tag = re.compile(rf"\s*+{_loose(form.key_opening)}(?P<key>[^<>/\s]++){_loose(form.value_opening)}")
        self._argument = re.compile(rf"(?>{keyed})(?P<value>.*?){value}(?=\s*+(?:{after}))", re.DOTALL)
        self._in_tags: dict[tuple[int, str, int], tuple[Any, int] | None] = {}  # of the text that is parsed

    def parse(self, text: str, is_whole: bool) -> list[FoundCall]:
        """Return the calls at the beginning of a text.

        Parameters
        ----------
        is_whole : bool
            Whether nothing follows the text: then the last texts of the form may be missing.

        Returns
        -------
        list of FoundCall
            Nothing if the text is not a call, or not yet.
        """
        if not is_whole and self._ends not in text:
            return []
        start = re.compile(rf"{_loose(self.form.start)}\s*+" if self.form.start.strip() else "").match(text)
        at = start.end() if start else 0
        if self.form.style is Style.OBJECT:
            calls = self._objects(text, at)
        elif self.form.style is Style.PYTHON:
            calls = self._python(text, at)
        else:
            calls = self._named(text, at, is_whole)
        if not calls or any(call.name not in self._schemas for call in calls):
            return []
        last = calls[-1]
        if (end := self.form.end.strip()) and self.form.style in (Style.OBJECT, Style.PYTHON):
            found = re.compile(rf"\s*+{_loose(end)}").match(text, last.stop)
            if found is None and not is_whole:
                return []
            calls[-1] = last._replace(stop=found.end() if found else last.stop)
        return calls

    def may_begin(self, text: str) -> bool:
        """Return whether a text that continues may begin with a call."""
        parts = self.form.start, self.form.opening, text[:_HEAD]
        start, opening, given = ("".join(part.split()) for part in parts)
        rest = given.removeprefix(start)
        if ANY in start + opening or not rest or start.startswith(given):
            return True
        if self.form.style is Style.OBJECT:
            return rest.lstrip(",;")[:1] in ("", "{", "[")
        if self.form.style is not Style.PYTHON and opening.startswith(rest):
            return True
        name = rest.lstrip("[") if self.form.style is Style.PYTHON else rest.removeprefix(opening)
        return any(known.startswith(name) or name.startswith(known) for known in self._schemas)

    def ended(self, text: str) -> int:
        """Return the length of the text that ends all calls, at the beginning of the text after a call."""
        found = re.match(rf"\s*+{_loose(self.form.end)}", text) if self.form.end.strip() else None
        return found.end() if found else 0

    def _objects(self, text: str, at: int) -> list[FoundCall]:
        """Return calls in JSON objects: one object or list, or before `end` several."""
        calls: list[FoundCall] = []
        while True:
            at = re.compile(r"[\s,;]*+").match(text, at).end()  # type: ignore[union-attr]  # it may be empty
            if text[at : at + 1] not in ("{", "[") or (calls and not self.form.end.strip()):
                return calls
            try:
                value, at = _DECODER.raw_decode(text, at)
            except (ValueError, RecursionError):
                return calls if calls and not text[at:].strip() else []
            for each in value if isinstance(value, list) else [value]:
                call = self._of_object(each, at)
                if call is None:
                    return []
                calls.append(call)

    def _of_object(self, value: Any, stop: int) -> FoundCall | None:
        if not isinstance(value, dict) or not value:
            return None
        form = self.form
        name: Any
        if not form.name_key and len(value) == 1:
            name, arguments = next(iter(value.items()))
        else:
            name = next((value[key] for key in (form.name_key, *_NAME_KEYS) if key in value), None)
            arguments = next((value[key] for key in (form.arguments_key, *_ARGUMENTS_KEYS) if key in value), {})
        if isinstance(arguments, str):  # some models write JSON in JSON
            with suppress(ValueError, RecursionError):
                arguments = _DECODER.decode(arguments)
        if not isinstance(name, str) or not isinstance(arguments, dict):
            return None
        return FoundCall(name, arguments, stop)

    def _python(self, text: str, at: int) -> list[FoundCall]:
        ends = (text.find(mark, at) for mark in (self.form.end.strip(), self.form.start.strip()) if mark)
        stop = min((end for end in ends if end >= 0), default=len(text))
        with suppress(ValueError):
            calls = python_calls(text[at:stop], self._schemas)
            return [FoundCall(name, arguments, stop) for name, arguments in calls]
        return []

    def _named(self, text: str, at: int, is_whole: bool) -> list[FoundCall]:
        """Return the first call of those whose arguments follow the name."""
        opened = self._opening.match(text, at)
        if opened is None:
            return []
        at, arguments = opened.end(), dict[str, Any]()
        schema = self._schemas.get(opened["name"], {})
        if self.form.style is Style.NESTED:
            self._in_tags.clear()
            tags, at = self._tags(text, at, schema)
            arguments = dict(tags)
        elif self.form.style is Style.KEYED:
            properties = schema.get("properties") or {}
            while (found := self._argument.match(text, at)) is not None:
                kind, key = found.groupdict().get("kind"), found["key"]
                arguments[key] = _value_of(found["value"], properties.get(key), kind)
                at = found.end()
        else:
            decoded = _gemma_object(text, at) if self.form.style is Style.GEMMA else _json_object(text, at)
            if decoded is None:
                return []
            arguments, at = decoded
        closed = re.compile(rf"\s*+{_loose(self.form.closing)}" if self.form.closing.strip() else "").match(text, at)
        rest = text[at:].strip()
        if closed is None and not (is_whole and self.form.closing.strip().startswith(rest)):
            return []
        return [FoundCall(opened["name"], arguments, closed.end() if closed else len(text))]

    def _tags(self, text: str, at: int, schema: Any, level: int = 0) -> tuple[list[tuple[str, Any]], int]:
        """Return names and values of the tags at a place of a text, and the place after them.

        Parameters
        ----------
        schema : dict
            Schema of the object or list that they make up.
        level : int
            Number of the tags that they are in.
        """
        found = []
        while (tag := self._tag.match(text, at)) is not None:
            inside = _schema_inside(schema, tag["key"])
            known = tag.end(), tag["key"], id(inside)
            if known not in self._in_tags:  # within a tag that does not close as expected, others come twice
                self._in_tags[known] = self._in_tag(text, tag.end(), tag["key"], inside, level + 1)
            if (value := self._in_tags[known]) is None:
                break
            found.append((tag["key"], value[0]))
            at = value[1]
        return found, at

    def _in_tag(self, text: str, at: int, name: str, schema: Any, level: int) -> tuple[Any, int] | None:
        """Return the value in a tag, and the place after its closing tag; None if it does not close."""
        closing, kind = f"{self.form.value_closing}{name}{self.form.value_opening}", schema.get("type")
        if kind != "string" and level < _MOST_LEVELS:
            inside, stop = self._tags(text, at, schema, level)
            if inside and (closed := re.compile(rf"\s*+{re.escape(closing.lstrip())}").match(text, stop)):
                is_list = kind == "array" or (kind != "object" and all(key == "item" for key, _ in inside))
                return [value for _, value in inside] if is_list else dict(inside), closed.end()
        stop = text.find(closing, at)
        if stop < 0:
            return None
        if stop == at and kind in ("array", "object"):
            return [] if kind == "array" else {}, stop + len(closing)
        return _value_of(text[at:stop], schema, None), stop + len(closing)


def _schema_inside(schema: Any, name: str) -> dict[str, Any]:
    """Return the schema of a field of an object, or of a list's items."""
    inside = schema.get("items") if schema.get("type") == "array" else (schema.get("properties") or {}).get(name)
    return inside if isinstance(inside, dict) else _ANYTHING


def _json_object(text: str, at: int) -> tuple[dict[str, Any], int] | None:
    """Return the JSON object at a place of a text, and the place after it."""
    try:
        value, stop = _DECODER.raw_decode(text, at + len(text[at:]) - len(text[at:].lstrip()))
    except (ValueError, RecursionError):
        return None
    return (value, stop) if isinstance(value, dict) else None


def _gemma_object(text: str, at: int) -> tuple[dict[str, Any], int] | None:
    """Return the object in Gemma 4's notation at a place of a text, and the place after it."""
    stop = _gemma_end(text, at)
    if not text.startswith("{", at) or stop < 0:
        return None

    def as_json(token: re.Match[str]) -> str:
        if token["word"]:  # its template writes nested values in Python's notation
            return {"None": "null", "True": "true", "False": "false"}[token["word"]]
        return json.dumps(token["key"] if token["text"] is None else token["text"])

    decoded = _json_object(_GEMMA_TOKEN.sub(as_json, text[at:stop]), 0)
    return None if decoded is None else (decoded[0], stop)


def _gemma_end(text: str, at: int) -> int:
    """Return the place after the last brace outside of strings and before any other token; -1 without a brace."""
    stop = -1
    while True:
        token = text.find("<", at)
        token = len(text) if token < 0 else token
        brace = text.rfind("}", at, token)
        stop = brace + 1 if brace >= 0 else stop
        closing = text.find(_GEMMA_QUOTE, token + 1) if text.startswith(_GEMMA_QUOTE, token) else -1
        if closing < 0:
            return stop
        at = closing + len(_GEMMA_QUOTE)


def _value_of(text: str, schema: Any, kind: str | None) -> Any:
    """Return the value of an argument that a model wrote between texts.

    Parameters
    ----------
    schema : dict, optional
        Schema of the argument; a string is not decoded.
    kind : str, optional
        The type that the form names for the value.
    """
    if text.startswith("<![CDATA[") and text.endswith("]]>"):
        return text[len("<![CDATA[") : -len("]]>")]
    types = schema.get("type") if isinstance(schema, dict) else None
    if kind in ("true", "string") or (kind is None and types == "string"):
        return text
    with suppress(ValueError, RecursionError):
        return _DECODER.decode(text)
    with suppress(ValueError):  # some templates write Python's notation
        return python_literal(text)
    return text


def _between(of_strings: str, of_others: str) -> str:
    """Return a pattern of the text between a key and a value, which may say the value's type."""
    if of_strings == of_others:
        return _exact_end(of_strings, after=True)
    prefix = next(n for n, pair in enumerate(zip(of_strings, of_others, strict=False)) if pair[0] != pair[1])
    suffix = of_strings[of_strings.index('"', prefix) :] if '"' in of_strings[prefix:] else ""
    return _loose(of_strings[:prefix]) + r"(?P<kind>\w*)" + _exact_end(suffix, after=True)


def _loose(text: str) -> str:
    """Return a pattern of a text of the form, with any blanks in place of blanks, and any id in place of ANY."""
    pattern, parts = "", _parts(text)
    for number, part in enumerate(parts):
        if part == ANY:
            follows = "".join(parts[number + 1 : number + 2])
            any_id = rf"[^{{}}\n]{{0,{_LONGEST_ID}}}?"
            pattern += rf"(?>{any_id}(?={re.escape(follows)}))" if follows.strip() else any_id
        else:
            pattern += r"\s*+" if part.isspace() else re.escape(part)
    return pattern


def _exact_end(text: str, after: bool = False) -> str:
    """Return a pattern of a text beside a value, whose own blanks it leaves alone: the form's may be missing."""
    core = text.strip()
    blanks = text[len(text.rstrip()) :] if after else text[: len(text) - len(text.lstrip())]
    optional = f"(?:{re.escape(blanks)})?" if blanks else ""
    return _loose(core) + optional if after else optional + _loose(core)


def _parts(text: str) -> Sequence[str]:
    return [part for part in re.split(rf"(\s+|{ANY})", text) if part]
