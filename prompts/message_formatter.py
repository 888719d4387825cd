"""Turn a conversation in OpenAI's form into a prompt's tokens, by the model's own chat template.

Users' texts never become control tokens: see prompts/chat_template.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from ..errors import PromptError
from .call_form import CallForm, forms_of, shows_calls
from .chat_template import ChatTemplate, TemplateError
from .model import PromptModel
from .prompt import Prompt
from .tools import call_text, response_text, tools_text, with_short_ids

#: A message in OpenAI's form, except that its content is text.
Message = Mapping[str, Any]


class MessageFormatter:
    """Turn messages into tokens.

    Attributes
    ----------
    stops : list of str
        Texts that end an answer besides the model's own tokens.
    forms : list of CallForm
        Forms in which the model may write calls, the likeliest first.
    marks : dict of int to str
        Texts of the control tokens in these forms.
    """

    def __init__(self, llama: PromptModel) -> None:
        self._llama = llama
        self.stops = llama.prompt(has_document=False).stops
        self.forms = forms_of(llama.chat_template)
        self.marks = _control_texts(llama, self.forms)
        self._shows_calls = llama.chat_template is not None and shows_calls(llama.chat_template)
        self._takes_reminders = llama.chat_template is not None and _takes_reminders(llama.chat_template)

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
        PromptError
            The template refuses the conversation.
        """
        messages, begun = _begun(messages)
        messages = _settled(messages, self._takes_reminders)
        if self._llama.chat_template is None:
            return self._plain(messages, tools) + self._text(begun)
        shown = list(tools) if tools and self._knows(tools) else None
        if tools and shown is None:
            messages = _with_system(_as_texts(messages), tools_text(tools))
        prompt = self._llama.prompt(has_document=False, options=options)
        tokens = self._cut(prompt, self._variants(messages, _without_system), shown)
        if not isinstance(tokens, list):
            tokens = self._whole(prompt, messages, shown, options, tokens)
        return tokens + self._text(begun)

    def after_document(
        self,
        messages: Sequence[Message],
        tools: Sequence[dict[str, Any]] = (),
        options: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """Return the tokens of a conversation after its document; parameters are as in `tokens`."""
        messages, begun = _begun(messages)
        system, turns = _parted(_settled(messages, False))
        if not turns or turns[0]["role"] != "user":
            raise PromptError("A conversation over a document begins with the user's question.", param="messages")
        if tools and self._knows(tools):
            prompt = self._llama.prompt(has_document=True, system=system, options=options)
            tokens = self._cut(prompt, self._variants(turns, _merged), list(tools))
            if isinstance(tokens, list):
                return tokens + self._text(begun)
        if tools:
            system = f"{system}\n\n{tools_text(tools)}".strip()
        prompt = self._llama.prompt(has_document=True, system=system, options=options)
        if not prompt.has_template:
            return self._in_turns(prompt, turns) + self._text(begun)
        tokens = self._cut(prompt, self._variants(turns, _merged), None)
        if not isinstance(tokens, list):
            raise _refusal(tokens)
        return tokens + self._text(begun)

    def _cut(
        self, prompt: Prompt, variants: Iterable[list[Message]], tools: list[dict[str, Any]] | None
    ) -> list[int] | TemplateError:
        """Return the tokens of the first variant of a conversation that the template renders and can be cut from.

        Returns
        -------
        list of int, or TemplateError
            The problem of the first variant, if the template renders none.
        """
        problem: TemplateError | None = None
        for messages in variants:
            try:
                return prompt.tokens(prompt.pieces(messages, tools))
            except TemplateError as failure:
                problem = problem or failure
        assert problem is not None
        return problem

    def _variants(
        self, messages: Sequence[Message], simpler: Callable[[Sequence[Message]], list[Message]]
    ) -> Iterator[list[Message]]:
        """Yield forms of a conversation, the best first: as it is, with other ids, calls as texts, made simpler.

        Each comes with turns of one role joined, too, as some templates refuse two in a row.
        """
        forms: list[list[Message]] = []
        if self._shows_calls:
            forms = [list(messages), list(with_short_ids(messages))]
        forms.append(_as_texts(messages))
        tried: list[list[Message]] = []
        for form in [*forms, *map(simpler, forms)]:
            for each in (form, _merged(form)):
                if each not in tried:
                    tried.append(each)
                    yield each

    def _in_turns(self, prompt: Prompt, messages: Sequence[Message]) -> list[int]:
        """Return the tokens of a conversation by turns, for a model without a template."""
        tokens: list[int] = []
        for number, message in enumerate(_merged(_as_texts(messages))):
            if message["role"] != "user":
                tokens += self._text(f" {message['content']}")
            else:
                question = message["content"]
                tokens += prompt.next_question(question) if number else prompt.first_question(question)
        return tokens

    def _plain(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> list[int]:
        """Return the tokens of a conversation for a model without a chat template."""
        if tools:
            messages = _with_system(_as_texts(messages), tools_text(tools))
        system, turns = _parted(messages)
        prompt = self._llama.prompt(has_document=False, system=system)
        return self._in_turns(prompt, turns)

    def _knows(self, tools: Sequence[dict[str, Any]]) -> bool:
        """Return whether the template describes tools to the model."""
        template, asked = self._llama.chat_template, [{"role": "user", "content": "?"}]
        if template is None:
            return False
        with suppress(TemplateError):
            return template.render(asked, list(tools)) != template.render(asked)
        return False

    def _whole(
        self,
        prompt: Prompt,
        messages: Sequence[Message],
        tools: list[dict[str, Any]] | None,
        options: Mapping[str, Any] | None,
        problem: TemplateError,
    ) -> list[int]:
        """Return tokens by a template that changes texts, so that it cannot be cut at them.

        Raise PromptError if the texts hold control tokens, or if the template refuses the messages.
        """
        template = self._llama.chat_template
        assert template is not None
        try:
            rendered = template.render(messages, tools, options)
        except TemplateError:
            raise _refusal(problem) from problem
        if not all(prompt.is_text(message["content"]) for message in messages):
            raise PromptError(
                "A message holds the text of a control token, and this model's chat template changes messages: "
                "they cannot be told apart.",
                param="messages",
            )
        return self._special(rendered)

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


def _control_texts(llama: PromptModel, forms: Sequence[CallForm]) -> dict[int, str]:
    """Return the texts of the control tokens in forms."""
    texts = {}
    for literal in {literal for form in forms for literal in form.literals}:
        for token in llama.tokenize(literal.encode(), add_bos=False, special=True):
            if not llama.piece(token):
                texts[token] = llama.detokenize([token], special=True).decode(errors="replace")
    return texts


def _refusal(problem: TemplateError) -> PromptError:
    return PromptError(f"The model's chat template refuses the messages: {problem}", param="messages")


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
    if messages[0]["role"] != "system" or len(messages) == 1:
        return list(messages)
    system, first, *others = messages
    return [{**first, "content": f"{system['content']}\n\n{first['content']}"}, *others]


def _merged(messages: Sequence[Message]) -> list[Message]:
    """Join messages of the same role that follow each other; each result of a call stays one of its own."""
    merged: list[Message] = []
    for message in messages:
        before = merged[-1] if merged else None
        if before is None or before["role"] != message["role"] or message["role"] == "tool":
            merged.append(message)
            continue
        texts = [text for text in (before["content"], message["content"]) if text]
        calls = [*before.get("tool_calls", ()), *message.get("tool_calls", ())]
        merged[-1] = {**before, **message, "content": "\n\n".join(texts), **({"tool_calls": calls} if calls else {})}
    return merged


def _parted(messages: Sequence[Message]) -> tuple[str, list[Message]]:
    """Return the text of the system message at the beginning, and the other messages."""
    if messages and messages[0]["role"] == "system":
        return messages[0]["content"], list(messages[1:])
    return "", list(messages)


def _settled(messages: Sequence[Message], takes_reminders: bool) -> list[Message]:
    """Return messages with one system message, at the beginning, and reminders.

    A reminder is a system message between turns. Where templates do not write it there, it becomes text of the turn
    before it. It never moves to the beginning: all that follows would have to be read anew.
    """
    n_first = next((n for n, message in enumerate(messages) if message["role"] != "system"), len(messages))
    settled = _merged(messages[:n_first])
    for message in messages[n_first:]:
        if message["role"] != "system" or takes_reminders:
            settled.append(message)
            continue
        text = f"<system-reminder>\n{message['content']}\n</system-reminder>"
        if settled[-1]["role"] in ("user", "tool"):
            settled[-1] = {**settled[-1], "content": f"{settled[-1]['content']}\n\n{text}".strip()}
        else:
            settled.append({"role": "user", "content": text})
    return settled


def _takes_reminders(template: ChatTemplate) -> bool:
    """Return whether a template writes a system message where it stands, between turns."""
    texts = [f"text{number}" for number in range(6)]
    roles = ["system", "user", "system", "assistant", "user", "system"]
    messages = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=True)]
    with suppress(TemplateError):
        rendered = template.render(messages)
        places = [rendered.find(text) for text in texts]
        return -1 not in places and places == sorted(places)
    return False
