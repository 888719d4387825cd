"""Turn a conversation in OpenAI's form into a prompt's tokens, by the model's own chat template.

Users' texts never become control tokens: see runtime/chat_template.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ...runtime.chat_template import TemplateError, cut_at_marks
from ...runtime.llama import Llama
from ..http.api_error import RequestError
from .tools import call_text, response_text, tools_text

#: A message in OpenAI's form, except that its content is text.
Message = Mapping[str, Any]


class MessageFormatter:
    """Turn messages into tokens.

    Attributes
    ----------
    stops : list of str
        Texts that end an answer besides the model's own tokens.
    """

    def __init__(self, llama: Llama) -> None:
        self._llama = llama
        self.stops = llama.prompt(has_document=False).stops

    def tokens(
        self,
        messages: Sequence[Message],
        tools: Sequence[dict[str, Any]] = (),
        options: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """Return the tokens of a conversation up to the beginning of the answer.

        Parameters
        ----------
        messages : sequence of messages
            The conversation. If the last one is the assistant's, the answer continues it.
        tools : sequence of dict
            Tools in OpenAI's form.
        options : mapping, optional
            Further variables of the template, such as `enable_thinking`.

        Raises
        ------
        RequestError
            The template refuses the conversation.
        """
        messages, begun = _begun(messages)
        if self._llama.chat_template is None:
            return self._plain(messages, tools) + self._text(begun)
        knows_tools = bool(tools) and self._knows(tools)
        if tools and not knows_tools:
            messages = _with_system(_as_texts(messages), tools_text(tools))
        texts = [message["content"] for message in messages]
        marks = [f"[octavo:message-{number}]" for number in range(len(messages))]
        marked = [
            {**message, "content": mark if text else ""}
            for message, mark, text in zip(messages, marks, texts, strict=True)
        ]
        shown = list(tools) if knows_tools else None
        try:
            rendered = self._render(marked, shown, options)
        except RequestError:
            if messages[0]["role"] != "system" or len(messages) == 1:
                raise
            return self.tokens(_without_system(messages), tools if knows_tools else (), options) + self._text(begun)
        try:
            parts = cut_at_marks(rendered, [mark for mark, text in zip(marks, texts, strict=True) if text])
        except TemplateError:
            return self._whole(messages, shown, options) + self._text(begun)
        tokens = self._special(parts[0])
        for text, after in zip(filter(None, texts), parts[1:], strict=True):
            tokens += self._text(text) + self._special(after)
        return tokens + self._text(begun)

    def after_document(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]] = ()) -> list[int]:
        """Return the tokens of a conversation after its document; messages and tools are as in `tokens`."""
        messages, begun = _begun(messages)
        messages = _as_texts(messages)
        if tools:
            messages = _with_system(messages, tools_text(tools))
        system = "\n\n".join(message["content"] for message in messages if message["role"] == "system")
        turns = _merged([message for message in messages if message["role"] != "system"])
        if not turns or turns[0]["role"] != "user":
            raise RequestError("A conversation over a document begins with the user's question.", param="messages")
        prompt = self._llama.prompt(has_document=True, system=system)
        tokens = prompt.first_question(turns[0]["content"])
        for message in turns[1:]:
            if message["role"] == "user":
                tokens += prompt.next_question(message["content"])
            else:
                tokens += self._text(message["content"])
        return tokens + self._text(begun)

    def _plain(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> list[int]:
        """Return the tokens of a conversation for a model without a chat template."""
        messages = _as_texts(messages)
        if tools:
            messages = _with_system(messages, tools_text(tools))
        system = "\n\n".join(message["content"] for message in messages if message["role"] == "system")
        turns = _merged([message for message in messages if message["role"] != "system"])
        prompt = self._llama.prompt(has_document=False, system=system)
        tokens: list[int] = []
        for number, message in enumerate(turns):
            if message["role"] != "user":
                tokens += self._text(f" {message['content']}")
            else:
                question = message["content"]
                tokens += prompt.next_question(question) if number else prompt.first_question(question)
        return tokens

    def _knows(self, tools: Sequence[dict[str, Any]]) -> bool:
        """Return whether the template describes tools to the model."""
        asked = [{"role": "user", "content": "?"}]
        try:
            return self._render(asked, list(tools), None) != self._render(asked, None, None)
        except RequestError:
            return False

    def _render(
        self, messages: Sequence[Message], tools: list[dict[str, Any]] | None, options: Mapping[str, Any] | None
    ) -> str:
        """Render the template. Raise RequestError if it refuses."""
        assert self._llama.chat_template
        try:
            return self._llama.chat_template.render([_with_arguments(message) for message in messages], tools, options)
        except TemplateError as problem:
            raise RequestError(
                f"The model's chat template refuses the messages: {problem}", param="messages"
            ) from problem

    def _whole(
        self, messages: Sequence[Message], tools: list[dict[str, Any]] | None, options: Mapping[str, Any] | None
    ) -> list[int]:
        """Return tokens by a template that changes texts; then texts may hold no control tokens."""
        for message in messages:
            if self._special(message["content"]) != self._text(message["content"]):
                raise RequestError(
                    "A message holds the text of a control token, and this model's chat template changes messages: "
                    "they cannot be told apart.",
                    param="messages",
                )
        return self._special(self._render(messages, tools, options))

    def _special(self, text: str) -> list[int]:
        return self._llama.tokenize(text.encode(), add_bos=False, special=True) if text else []

    def _text(self, text: str) -> list[int]:
        return self._llama.tokenize(text.encode(), add_bos=False, special=False) if text else []


def _begun(messages: Sequence[Message]) -> tuple[list[Message], str]:
    """Split off an answer that has begun."""
    last = messages[-1]
    if last["role"] == "assistant" and not last.get("tool_calls"):
        return list(messages[:-1]), last["content"]
    return list(messages), ""


def _with_arguments(message: Message) -> dict[str, Any]:
    """Return a message whose calls have their arguments as objects: templates write them as JSON."""
    calls = []
    for call in message.get("tool_calls") or ():
        try:
            arguments = json.loads(call["function"]["arguments"])
        except ValueError:
            arguments = call["function"]["arguments"]
        calls.append({**call, "function": {**call["function"], "arguments": arguments}})
    others = {name: value for name, value in message.items() if value is not None and name != "tool_calls"}
    return {**others, "tool_calls": calls} if calls else others


def _as_texts(messages: Sequence[Message]) -> list[Message]:
    """Write calls and their results as texts, for templates without them."""
    texts: list[Message] = []
    for message in messages:
        role, content = message["role"], message["content"]
        if role == "tool":
            texts.append({"role": "user", "content": response_text(content)})
        elif message.get("tool_calls"):
            calls = "\n".join(call_text(call) for call in message["tool_calls"])
            texts.append({"role": role, "content": f"{content}\n{calls}".strip()})
        else:
            texts.append(message)
    return texts


def _with_system(messages: Sequence[Message], text: str) -> list[Message]:
    """Add a text to the system message."""
    if messages and messages[0]["role"] == "system":
        return [{"role": "system", "content": f"{messages[0]['content']}\n\n{text}"}, *messages[1:]]
    return [{"role": "system", "content": text}, *messages]


def _without_system(messages: Sequence[Message]) -> list[Message]:
    """Put the system message before the first question, for templates without system messages."""
    system, first, *others = messages
    return [{**first, "content": f"{system['content']}\n\n{first['content']}"}, *others]


def _merged(messages: Sequence[Message]) -> list[Message]:
    """Join messages of the same role that follow each other."""
    merged: list[Message] = []
    for message in messages:
        if merged and merged[-1]["role"] == message["role"]:
            merged[-1] = {**merged[-1], "content": f"{merged[-1]['content']}\n\n{message['content']}"}
        else:
            merged.append(message)
    return merged
