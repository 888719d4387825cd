"""Requests of OpenAI's responses API: the body, and its conversation in the form of chat completions."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from ..kept_responses import Item
from ..request_error import RequestError
from .api_body import ApiObject, AskingBody, Limit, ToolChoice, objects_in
from .attachments import NO_URL, Attachments
from .tool_forms import name_in


class Format(ApiObject):
    """The form of an answer."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    name: str | None = None
    schema_: dict[str, Any] | bool | None = Field(default=None, alias="schema")


class TextOptions(ApiObject):
    """Options of the answer's text."""

    format: Format | None = None


class Reasoning(ApiObject):
    """How much the model thinks."""

    effort: str | None = None
    summary: str | None = None


#: The id of a conversation, alone or in an object.
_Conversation = Annotated[
    str | None, BeforeValidator(lambda value: value.get("id", "") if isinstance(value, dict) else value)
]


class ResponseBody(AskingBody):
    """A client's request."""

    input: str | list[dict[str, Any]] = Field(min_length=1)
    instructions: str | None = None
    max_output_tokens: Limit = None
    top_logprobs: int = Field(0, ge=0, le=100)
    include: list[str] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: ToolChoice = ("auto", None)
    parallel_tool_calls: bool = True
    reasoning: Reasoning = Field(default_factory=Reasoning)
    text: TextOptions = Field(default_factory=TextOptions)
    metadata: dict[str, Any] | None = None
    previous_response_id: str | None = None
    conversation: _Conversation = None
    store: bool = True

    @property
    def stated_choice(self) -> Any:
        """Return which function must be called, for the response."""
        choice, allowed = self.tool_choice
        if allowed is not None:
            tools = [{"type": "function", "name": name} for name in allowed]
            return {"type": "allowed_tools", "mode": choice, "tools": tools}
        return choice if choice in ("auto", "none", "required") else {"type": "function", "name": choice}


async def kept_item(stated: Mapping[str, Any], store: Callable[[str, str], Awaitable[str]]) -> Item:
    """Return a client's item as it is kept: a file in it is stored, and named by its id.

    Parameters
    ----------
    store : callable
        Stores a file, from its name and its bytes in base64, and returns its id.
    """
    content = stated.get("content")
    if not isinstance(content, list):
        return Item.of(stated)
    parts = []
    for part in content:
        if isinstance(part, dict) and isinstance(data := part.get("file_data"), str) and "file_id" not in part:
            others = {name: value for name, value in part.items() if name != "file_data"}
            part = {**others, "file_id": await store(str(part.get("filename") or "document"), data)}
        parts.append(part)
    return Item.of({**stated, "content": parts})


def messages_of(
    items: Sequence[Mapping[str, Any]], attachments: Attachments, left_out: list[str]
) -> list[Mapping[str, Any]]:
    """Return a conversation in the form of chat completions.

    Parameters
    ----------
    items : sequence of dict
        Items of the input.
    left_out : list of str
        Receives the kinds of items of tools that octavo lacks.

    Raises
    ------
    RequestError
        An item cannot be used.
    """
    messages: list[Mapping[str, Any]] = []
    thought = ""  # before the message or call that comes next
    for item in items:
        kind = item.get("type", "message")
        if kind == "message" and item.get("role") in ("user", "assistant", "system", "developer"):
            role = "system" if item["role"] == "developer" else item["role"]
            messages.append({"role": role, "content": _content(item.get("content"), attachments)})
        elif kind in ("function_call", "custom_tool_call") and isinstance(item.get("name"), str):
            free_text = json.dumps({"input": item.get("input", "")})
            arguments = free_text if kind == "custom_tool_call" else str(item.get("arguments", "{}"))
            function = {"name": name_in(item.get("namespace"), item["name"]), "arguments": arguments}
            call = {"id": str(item.get("call_id", "")), "type": "function", "function": function}
            continues = bool(messages) and messages[-1]["role"] == "assistant" and not thought
            said = messages.pop() if continues else {"role": "assistant", "content": ""}  # items of one answer
            messages.append({**said, "tool_calls": [*said.get("tool_calls", ()), call]})
        elif kind in ("function_call_output", "custom_tool_call_output"):
            output = item.get("output")
            content = output if isinstance(output, str) else _texts(output) or json.dumps(output)
            messages.append({"role": "tool", "content": content, "tool_call_id": str(item.get("call_id", ""))})
        elif kind == "reasoning":
            thought = _thought(item)
            continue
        elif kind == "file_search_call":  # each answer is given from the documents themselves
            continue
        elif str(kind).endswith(("_call", "_call_output")):  # of a tool that a service of OpenAI has
            left_out.append(f"input.{kind}")
            continue
        else:
            raise RequestError(f"An item of the input is of no known kind: {kind}.", param="input")
        if thought and messages and messages[-1]["role"] == "assistant":
            messages[-1] = {**messages[-1], "reasoning_content": thought}
        thought = ""
    return messages


def _thought(item: Mapping[str, Any]) -> str:
    return _texts(item.get("content")) or _texts(item.get("summary"))


def _texts(parts: Any) -> str:
    return "\n\n".join(str(part["text"]) for part in objects_in(parts) if "text" in part)


def _content(content: Any, attachments: Attachments) -> str:
    """Return the text of a message's content; documents in it are attached."""
    if isinstance(content, str):
        return content
    texts = []
    for part in content if isinstance(content, list) else []:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind in ("input_text", "output_text", "text") and isinstance(part.get("text"), str):
            texts.append(part["text"])
        elif kind == "input_file" and isinstance(part.get("file_id"), str):
            attachments.name(part["file_id"])
        elif kind == "input_file" and isinstance(part.get("file_url"), str):
            raise RequestError(NO_URL, param="input")
        elif kind == "input_image":
            raise RequestError("octavo reads text and documents: images cannot be sent.", param="input")
        elif kind != "refusal":
            raise RequestError(f"A part of a message is of no known kind: {kind}.", param="input")
    return "\n\n".join(texts)
