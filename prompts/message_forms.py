"""Rewrite the messages of a conversation, and descriptions of functions, in forms that more chat templates take.

Over a document, the description that a template writes before it is moved after it. The template is rendered with
functions and without: the text that it adds is their description.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from difflib import SequenceMatcher
from typing import Any

from .call_form import HERMES, common_prefix
from .chat_template import DOCUMENT, ChatTemplate, TemplateError

#: A message in OpenAI's form, except that its content is text.
Message = Mapping[str, Any]

#: Length of calls' ids.
ID_LENGTH = 9

#: A conversation that shows what a template writes before a document.
_MESSAGES = [{"role": "system", "content": "[octavo:system]"}, {"role": "user", "content": DOCUMENT}]

#: A text that may be a token of a template.
_TOKEN = re.compile(r"<[^<>\s]+>|\[/?[A-Z_]+\]")
_ROLE = "(?:system|developer|user)"


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


def tool_description(
    template: ChatTemplate, tools: list[dict[str, Any]], options: Mapping[str, Any] | None = None
) -> str | None:
    """Return the text that a template adds before a document to describe functions.

    Returns
    -------
    str or None
        None if the template fails, adds nothing, takes something away, or adds a turn of its own.
    """
    for messages in (_MESSAGES, _MESSAGES[1:]):  # some templates have no system message
        with suppress(TemplateError):
            plain, told = (template.render(messages, each, options).partition(DOCUMENT)[0] for each in (None, tools))
            return _without_turns(_added(plain, told), plain)
    return None


def follows_document(
    template: ChatTemplate,
    messages: Sequence[Mapping[str, Any]],
    tools: list[dict[str, Any]],
    options: Mapping[str, Any],
) -> bool:
    """Return whether a template describes tools after the document by itself, as before the last question."""
    plain, described = (template.render(messages, shown, options).partition(DOCUMENT)[2] for shown in (None, tools))
    name = tools[0]["function"]["name"]
    return described.count(name) > plain.count(name)


def _added(plain: str, told: str) -> str | None:
    """Return the lines that a text adds to another one; None if something is missing."""
    lines, more = plain.splitlines(keepends=True), told.splitlines(keepends=True)
    added = []
    for _, start, stop, first, last in _changes(lines, more):
        before, after = "".join(lines[start:stop]), "".join(more[first:last])
        n_same = len(common_prefix(before, after))
        before, inserted = before[n_same:], after[n_same:]
        if not inserted.endswith(before):
            return None
        inserted = inserted[: len(inserted) - len(before)]
        added.append(_from_token(after[:n_same], inserted))
    return "\n\n".join(text.strip() for text in added if text.strip())


def _changes(lines: Sequence[str], more: Sequence[str]) -> list[tuple[str, int, int, int, int]]:
    return [change for change in SequenceMatcher(None, lines, more, False).get_opcodes() if change[0] != "equal"]


def _from_token(before: str, inserted: str) -> str:
    """Return an insertion that begins with a whole token, where the text before it has taken the token's beginning."""
    opened = max(before.rfind("<"), before.rfind("["))
    begun = before[opened:] if opened > max(before.rfind(">"), before.rfind("]")) else ""
    return begun + inserted.removesuffix(begun) if begun and inserted.endswith(begun) else inserted


def _without_turns(added: str | None, plain: str) -> str | None:
    """Return a description without the tokens and the role of a turn around it.

    Return None if such tokens are inside, or if nothing is left.
    """
    turns = set(_TOKEN.findall(plain))
    if added and turns:
        token = "|".join(map(re.escape, turns))
        added = re.sub(rf"^(\s*({token})\s*({_ROLE}\b[^\n]*\n)?)+", "", added)
        added = re.sub(rf"(({token})\s*({_ROLE})?\s*)+$", "", added)
    return added.strip() if added and added.strip() and not turns & set(_TOKEN.findall(added)) else None
