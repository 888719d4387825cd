"""Describe tools to a model, and find its calls in its answer."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from llama_cpp.llama_grammar import json_schema_to_gbnf

from ..http.api_error import RequestError

_OPENING, _CLOSING, _LIST = "<tool_call>", "</tool_call>", "[TOOL_CALLS]"

#: Length of calls' ids.
_ID_LENGTH = 9

#: Any JSON object.
_ANY_OBJECT: dict[str, Any] = {"type": "object"}


@dataclass(frozen=True)
class ToolCall:
    """A call of a function.

    Parameters
    ----------
    arguments : str
        The arguments, in JSON.
    id : str
        Id that the result refers to: nine letters and digits, as Mistral's templates want.
    """

    name: str
    arguments: str
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:_ID_LENGTH])


def tools_text(tools: Sequence[dict[str, Any]]) -> str:
    """Return the text that describes functions to a model whose template cannot: in the form of Hermes."""
    described = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    return (
        "You may call functions to help with the user's question. These are their signatures:\n"
        f"<tools>\n{described}\n</tools>\n"
        "To call one, write a JSON object with its name and arguments, in these tags:\n"
        f'{_OPENING}\n{{"name": "...", "arguments": {{...}}}}\n{_CLOSING}'
    )


def call_text(call: dict[str, Any]) -> str:
    """Return the text of an earlier call."""
    function = call["function"]
    return f'{_OPENING}\n{{"name": {json.dumps(function["name"])}, "arguments": {function["arguments"]}}}\n{_CLOSING}'


def with_short_ids(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return messages with ids of calls that every template accepts, whatever a client named them."""

    def short(name: Any) -> str:
        return hashlib.sha256(str(name).encode()).hexdigest()[:_ID_LENGTH]

    changed = []
    for message in messages:
        more: dict[str, Any] = {}
        if message.get("tool_calls"):
            more["tool_calls"] = [{**call, "id": short(call.get("id"))} for call in message["tool_calls"]]
        if message.get("tool_call_id"):
            more["tool_call_id"] = short(message["tool_call_id"])
        changed.append({**message, **more})
    return changed


def response_text(result: str) -> str:
    """Return the text of a call's result."""
    return f"<tool_response>\n{result}\n</tool_response>"


def calls_grammar(tools: Sequence[dict[str, Any]], name: str | None) -> str:
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
    forms = [
        {
            "type": "object",
            "properties": {"name": {"const": function["name"]}, "arguments": function.get("parameters") or _ANY_OBJECT},
            "required": ["name", "arguments"],
        }
        for function in functions
    ]
    return grammar_of(forms[0] if len(forms) == 1 else {"anyOf": forms}, "tools", ["name", "arguments"])


def grammar_of(schema: dict[str, Any], param: str, order: list[str] | None = None) -> str:
    """Turn a JSON schema into a GBNF grammar, with the properties of `order` first.

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
        return str(json_schema_to_gbnf(json.dumps(schema), order))
    except Exception as error:  # of any kind: the converter checks little
        what = str(error) or type(error).__name__
        raise RequestError(f"This JSON schema cannot be turned into a grammar: {what}.", param=param) from error


class CallFinder:
    """Separate calls from text in an answer as it comes.

    Parameters
    ----------
    forced : bool
        Whether the whole answer is a call, as a grammar makes it.
    """

    def __init__(self, names: Sequence[str], forced: bool = False) -> None:
        self._names, self._forced = set(names), forced
        self._held, self._begins, self._after_call = "", True, False

    def add(self, text: str) -> list[str | ToolCall]:
        """Add a piece of the answer, and return the parts that are certain."""
        self._held += text
        if self._forced or (self._begins and self._held.lstrip()[:1] in ("", "{")):
            return []
        found: list[str | ToolCall] = []
        while self._held:
            self._begins = False
            if self._after_call:  # line breaks between calls are not text
                self._held = self._held.lstrip("\n")
            starts = [place for mark in (_OPENING, _LIST) if (place := self._held.find(mark)) >= 0]
            if not starts:
                sure = len(self._held) - max(_n_begun(self._held, mark) for mark in (_OPENING, _LIST))
                if sure:
                    found.append(self._held[:sure])
                    self._held, self._after_call = self._held[sure:], False
                break
            start = min(starts)
            if start:
                found.append(self._held[:start])
                self._held, self._after_call = self._held[start:], False
            if self._held.startswith(_LIST) or _CLOSING not in self._held:
                break
            inside, _, rest = self._held[len(_OPENING) :].partition(_CLOSING)
            calls = self._calls(inside)
            found += calls or [f"{_OPENING}{inside}{_CLOSING}"]
            self._held, self._after_call = rest, bool(calls)
        return found

    def end(self) -> list[str | ToolCall]:
        """Return the remainder."""
        held, self._held = self._held, ""
        inside = held.strip().removeprefix(_OPENING).removeprefix(_LIST).removesuffix(_CLOSING)
        return list(self._calls(inside) or ([held] if held else []))

    def _calls(self, text: str) -> list[str | ToolCall]:
        """Return the calls in a JSON text; none if it is something else."""
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return []
        calls: list[str | ToolCall] = []
        for call in value if isinstance(value, list) else [value]:
            if not isinstance(call, dict) or call.get("name") not in self._names:
                return []
            arguments = call.get("arguments", call.get("parameters", {}))
            if isinstance(arguments, str):  # some models write JSON in JSON
                try:
                    arguments = json.loads(arguments)
                except (ValueError, RecursionError):
                    return []
            if not isinstance(arguments, dict):
                return []
            calls.append(ToolCall(call["name"], json.dumps(arguments, ensure_ascii=False)))
        return calls


def _n_begun(text: str, mark: str) -> int:
    """Return the number of characters at the end of a text that may begin a mark."""
    return next((n for n in range(min(len(mark) - 1, len(text)), 0, -1) if text.endswith(mark[:n])), 0)
