"""Take the description of functions that a chat template writes before a document, to put it after the document.

A template is rendered with functions and without: the text that it adds is their description.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from difflib import SequenceMatcher
from typing import Any

from .call_form import common_prefix
from .chat_template import DOCUMENT, ChatTemplate, TemplateError

_MESSAGES = [{"role": "system", "content": "[octavo:system]"}, {"role": "user", "content": DOCUMENT}]

#: A text that may be a token of a template.
_TOKEN = re.compile(r"<[^<>\s]+>|\[/?[A-Z_]+\]")
_ROLE = "(?:system|developer|user)"


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
