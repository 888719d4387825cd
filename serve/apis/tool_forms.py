"""Tools in the forms of all APIs: functions that octavo knows, and others, which it leaves out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ..request_error import RequestError
from .api_body import objects_in

#: The parameters of a tool that takes free text: Codex has such.
_FREE_TEXT = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}

#: Types of tools that are functions, in the APIs in which their types differ.
_FUNCTIONS = ("function", "custom", None)


class Tools(NamedTuple):
    """The functions of a request as in chat completions, and kinds of other tools.

    Parameters
    ----------
    free_text : frozenset of str
        Names of the functions that take free text.
    spaces : dict
        Namespace and name of each function that has a namespace: Codex gives tools of MCP such.
    """

    functions: list[dict[str, Any]]
    free_text: frozenset[str]
    spaces: dict[str, tuple[str, str]]
    left_out: list[str]


def name_in(namespace: Any, name: str) -> str:
    """Return the name by which the model knows a function in a namespace, or in none."""
    return f"{namespace}__{name}" if namespace else name


def tools_of(tools: Sequence[dict[str, Any]] | None, allowed: Sequence[str] | None = None) -> Tools:
    """Read the tools of a request.

    Parameters
    ----------
    allowed : sequence of str, optional
        Names of the functions that may be called; by default all.

    Raises
    ------
    RequestError
        A function has no name.
    """
    functions, free_text, spaces, left_out = [], set[str](), dict[str, tuple[str, str]](), list[str]()
    for namespace, tool in _in_namespaces(tools or ()):
        kind = tool.get("type")
        if kind not in _FUNCTIONS:
            left_out.append(f"tools.{kind}")
            continue
        stated = tool.get("function", tool.get("custom", tool))
        name = stated.get("name") if isinstance(stated, dict) else None
        if not isinstance(name, str) or not name:
            raise RequestError("A tool has no name.", param="tools")
        if allowed is not None and name not in allowed:
            continue
        if namespace:
            own, name = name, name_in(namespace, name)
            spaces[name] = namespace, own
        parameters = stated.get("parameters", stated.get("input_schema"))
        if kind == "custom" and parameters is None:
            free_text.add(name)
            parameters = _FREE_TEXT
        known = {"description": stated.get("description"), "parameters": parameters}
        function = {"name": name, **{key: value for key, value in known.items() if value is not None}}
        functions.append({"type": "function", "function": function})
    return Tools(functions, frozenset(free_text), spaces, left_out)


def _in_namespaces(tools: Sequence[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield tools, each with the name of the namespace that holds it."""
    for tool in tools:
        if tool.get("type") == "namespace":
            yield from ((str(tool.get("name") or ""), each) for each in objects_in(tool.get("tools")))
        else:
            yield "", tool
