"""Rewrite the messages of a conversation in forms that more chat templates take."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from .call_form import HERMES
from .chat_template import ChatTemplate

#: A message in OpenAI's form, except that its content is text.
Message = Mapping[str, Any]

#: Length of calls' ids.
ID_LENGTH = 9


def with_reminders(messages: Sequence[Message], template: ChatTemplate | None) -> list[Message]:
    """Return messages with one system message, at the beginning, and reminders.

    A reminder is a system message between turns. For templates that do not write it there, it becomes text of the turn
    before it. It never moves to the beginning: the model would have to prefill all that follows again.

    Parameters
    ----------
    template : ChatTemplate or None
        None if reminders always become text.
    """
    n_first = next((n for n, message in enumerate(messages) if message["role"] != "system"), len(messages))
    written = merged(messages[:n_first])
    for message in messages[n_first:]:
        if message["role"] != "system" or (template is not None and template.takes_reminders):
            written.append(message)
            continue
        text = f"<system-reminder>\n{message['content']}\n</system-reminder>"
        if written[-1]["role"] in ("user", "tool"):
            written[-1] = {**written[-1], "content": f"{written[-1]['content']}\n\n{text}".strip()}
        else:
            written.append({"role": "user", "content": text})
    return written


def system_and_turns(messages: Sequence[Message]) -> tuple[str, list[Message]]:
    """Return the text of the system message at the beginning, and the other messages."""
    if messages and messages[0]["role"] == "system":
        return messages[0]["content"].strip(), list(messages[1:])
    return "", list(messages)


def with_system(messages: Sequence[Message], text: str) -> list[Message]:
    """Add a text to the system message."""
    if messages and messages[0]["role"] == "system":
        return [{"role": "system", "content": f"{messages[0]['content']}\n\n{text}"}, *messages[1:]]
    return [{"role": "system", "content": text}, *messages]


def without_system(messages: Sequence[Message]) -> list[Message]:
    """Put the system message before the first question, for templates without system messages."""
    if len(messages) < 2 or messages[0]["role"] != "system":
        return list(messages)
    system, first, *others = messages
    return [{**first, "content": f"{system['content']}\n\n{first['content']}"}, *others]


def merged(messages: Sequence[Message]) -> list[Message]:
    """Join messages of the same role that follow each other; each result of a call stays one of its own."""
    joined: list[Message] = []
    for message in messages:
        before = joined[-1] if joined else None
        if before is None or before["role"] != message["role"] or message["role"] == "tool":
            joined.append(message)
            continue
        texts = [text for text in (before["content"], message["content"]) if text]
        calls = [*before.get("tool_calls", ()), *message.get("tool_calls", ())]
        joined[-1] = {**before, **message, "content": "\n\n".join(texts), **({"tool_calls": calls} if calls else {})}
    return joined


def as_texts(messages: Sequence[Message]) -> list[Message]:
    """Write calls and their results as texts, for templates without them."""
    texts: list[Message] = []
    for message in messages:
        role, content = message["role"], message["content"]
        if role == "tool":
            texts.append({"role": "user", "content": f"<tool_response>\n{content}\n</tool_response>"})
        elif message.get("tool_calls"):
            calls = "\n".join(_call_text(call["function"]) for call in message["tool_calls"])
            texts.append({"role": role, "content": f"{content}\n{calls}".strip()})
        else:
            texts.append(message)
    return texts


def _call_text(function: Mapping[str, Any]) -> str:
    called = f'{{"name": {json.dumps(function["name"])}, "arguments": {function["arguments"]}}}'
    return f"{HERMES.start}\n{called}\n{HERMES.end}"


def tools_text(tools: Sequence[dict[str, Any]]) -> str:
    """Return the text that describes functions to a model whose template cannot: in the form of Hermes."""
    described = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    return (
        "You may call functions to help with the user's question. These are their signatures:\n"
        f"<tools>\n{described}\n</tools>\n"
        "To call one, write a JSON object with its name and arguments, in these tags:\n"
        f'{HERMES.start}\n{{"name": "...", "arguments": {{...}}}}\n{HERMES.end}'
    )


def with_short_ids(messages: Sequence[Message]) -> list[Message]:
    """Return messages with ids of calls that every template accepts, whatever a client named them."""

    def short(name: Any) -> str:
        return hashlib.sha256(str(name).encode()).hexdigest()[:ID_LENGTH]

    changed: list[Message] = []
    for message in messages:
        more: dict[str, Any] = {}
        if message.get("tool_calls"):
            more["tool_calls"] = [{**call, "id": short(call.get("id"))} for call in message["tool_calls"]]
        if message.get("tool_call_id"):
            more["tool_call_id"] = short(message["tool_call_id"])
        changed.append({**message, **more})
    return changed
