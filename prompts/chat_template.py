"""Render a model's own chat template, and cut it at the texts of users and models.

The template is rendered with marks in place of these texts, and cut at the marks. The parts between the marks are the
template's and may hold control tokens. The texts are tokenized separately, as text. So a document that contains
`<|im_end|>` contains just these ten characters.

A mark replaces a text without the blanks around it, so that a template can strip them. Words that the template may
look for, such as "/no_think", stay between the marks.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from datetime import datetime
from functools import cached_property
from typing import Any, NamedTuple, Protocol

from jinja2 import nodes, pass_context
from llama_cpp import _internals as internals
from llama_cpp.llama_chat_format import Jinja2ChatFormatter

#: The instruction before a document.
INSTRUCTION = "Here is a document. Answer the question about it.\n\n"

_SYSTEM, _DOCUMENT, _QUESTION, _ANSWER, _NEXT = (
    f"[octavo:{name}]" for name in ("system", "document", "question", "answer", "next")
)

#: Key of the chat template in a model's metadata.
TEMPLATE_NAME = "tokenizer.chat_template"

#: The mark of the document in a message.
DOCUMENT = _DOCUMENT

#: The mark of the description of tools in a message.
TOOLS = "[octavo:tools]"

#: Fields of a message that users and models write, and a mark in place of a part of one.
_FIELDS, _MARK = ("content", "reasoning_content"), re.compile(r"\[octavo:(\d+)\]")

#: Fields of a message in which templates look for thoughts; OpenAI's form has the first.
_THOUGHTS = ("reasoning_content", "reasoning", "thinking")

#: The time for the part of an index's identity that a template with dates writes: any, but always the same.
EPOCH = datetime(2000, 1, 1)

#: The time that templates receive; None for the present one.
_TIME: ContextVar[datetime | None] = ContextVar("_TIME", default=None)

#: Random numbers for templates that choose; None for any.
_RANDOM: ContextVar[random.Random | None] = ContextVar("_RANDOM", default=None)

#: The variable with words for a template to find after the last question, such as "/no_think".
LAST_WORDS = "octavo_last_words"

#: The value of an argument in a call that a template may write.
_CALLED = "octavo value"

#: Largest number of characters that a template may make of a conversation of three short messages.
_MOST_CHARACTERS = 1 << 20


class TemplateError(Exception):
    """A chat template cannot be used, for the reason in the message."""


class Piece(NamedTuple):
    """A piece of a prompt: the template's own text, which may hold control tokens, or a user's or a model's."""

    text: str
    is_template: bool


class TemplateParts(NamedTuple):
    """The texts of a chat template around the texts of users and models.

    Parameters
    ----------
    head : sequence of str
        Before the document; in two parts if a system message is between them.
    border, between, last : str
        Between document and question, between an answer and the next question, and between a question and its answer.
    """

    head: Sequence[str]
    border: str
    between: str
    last: str


class MarkedMessages:
    """Messages with marks in place of texts.

    Parameters
    ----------
    messages : sequence of mapping
        Messages in OpenAI's form, with contents as text.
    words : collection of str
        Words that a template may look for in texts.

    Attributes
    ----------
    messages : list of dict
        The messages with marks.
    """

    def __init__(self, messages: Sequence[Mapping[str, Any]], words: Collection[str]) -> None:
        in_order = sorted(words, key=len, reverse=True)
        self._words = re.compile(f"({'|'.join(map(re.escape, in_order))})") if words else None
        self._texts: list[str] = []
        self._of_contents: set[int] = set()
        self.messages = [
            {**message, **{name: self._marked(name, message[name]) for name in _FIELDS if message.get(name)}}
            for message in messages
        ]

    def _marked(self, field: str, text: str) -> str:
        parts = self._words.split(text) if self._words else [text]
        marked = []
        for number, part in enumerate(parts):
            core = "" if number % 2 else part.strip()
            if core:
                before, _, after = part.partition(core)
                part = f"{before}[octavo:{len(self._texts)}]{after}"
                if field == "content":
                    self._of_contents.add(len(self._texts))
                self._texts.append(core)
            marked.append(part)
        return "".join(marked)

    def cut(self, rendered: str) -> list[Piece]:
        """Cut a template's output for the messages. Raise TemplateError if it leaves out a content."""
        texts, *others = _MARK.split(rendered)
        pieces, found = [Piece(texts, True)], set[int]()
        for number, after in zip(map(int, others[::2]), others[1::2], strict=True):
            is_known = number < len(self._texts)
            pieces.append(Piece(self._texts[number], False) if is_known else Piece(f"[octavo:{number}]", True))
            pieces.append(Piece(after, True))
            found.add(number)
        if not self._of_contents <= found:
            raise TemplateError("it changes what is written, or leaves it out")
        return [piece for piece in pieces if piece.text]


class ChatTemplate:
    """A model's chat template.

    Parameters
    ----------
    tokens : dict of str to str
        Texts of the tokens that templates name (`special_tokens`).

    Raises
    ------
    TemplateError
        The template cannot be parsed.
    """

    def __init__(self, source: str, tokens: dict[str, str]) -> None:
        try:
            self._formatter = Jinja2ChatFormatter(source, **tokens)
        except (MemoryError, TimeoutError, RecursionError):
            raise
        except Exception as problem:  # Jinja's
            raise _failure(problem) from problem
        self._formatter.strftime_now, self.source = _strftime, source
        tree = self._formatter._environment.environment.parse(source)
        constants = {node.value for node in tree.find_all(nodes.Const) if isinstance(node.value, str)}
        # the strings that the template compares, looks for, or takes fields by
        self._strings = constants | {node.attr for node in tree.find_all(nodes.Getattr)}
        self._thoughts = next((name for name in _THOUGHTS if name in self._strings), _THOUGHTS[0])
        self._formatter._environment.environment.filters["random"] = _chosen
        self._words: set[str] | None = None
        self._parts_at: dict[tuple[bool, bool, datetime], TemplateParts] = {}

    def parts(
        self,
        has_document: bool,
        system: bool,
        at: datetime | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> TemplateParts:
        """Return the texts around the messages of a conversation.

        Parameters
        ----------
        system : bool
            Whether the head has room for a system message, if the template has such messages.
        at : datetime, optional
            The time that the template receives, by default the present one. Random numbers of a template are the
            same for the same time.
        options : mapping, optional
            Further variables of the template.

        Raises
        ------
        TemplateError
            The template raises an error, or changes or omits a message.
        """
        if not options and at is not None and (known := self._parts_at.get((has_document, system, at))):
            return known
        document = f"{INSTRUCTION}{_DOCUMENT}\n\n" if has_document else _DOCUMENT
        messages = [
            {"role": "user", "content": document + _QUESTION},
            {"role": "assistant", "content": _ANSWER},
            {"role": "user", "content": _NEXT},
        ]
        with nullcontext() if at is None else _at(at):
            text = self.render(messages, options=options)
            if system and not has_document:
                with suppress(TemplateError):  # a template without system messages may raise anything
                    with_system = self.render([{"role": "system", "content": _SYSTEM}, *messages], options=options)
                    if with_system.count(_SYSTEM) == with_system.partition(_DOCUMENT)[0].count(_SYSTEM) == 1:
                        text = with_system
        if len(text) > _MOST_CHARACTERS:
            raise TemplateError(f"it makes {len(text):,} characters of three short messages")
        marks = _DOCUMENT, _QUESTION, _ANSWER, _NEXT
        if any(text.count(mark) != 1 for mark in marks):
            raise TemplateError("it changes or repeats what is written, or leaves it out")
        if (cut := re.fullmatch("(.*)".join(("", *map(re.escape, marks), "")), text, re.DOTALL)) is None:
            raise TemplateError("it changes the order of what is written")
        head, border, _, between, last = cut.groups()
        parts = TemplateParts(head.split(_SYSTEM), border, between, last)
        if at is not None and not options:
            self._parts_at[has_document, system, at] = parts
        return parts

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: list[dict[str, Any]] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> str:
        """Return the text of a conversation up to the beginning of the answer.

        Parameters
        ----------
        messages : sequence of mapping
            Messages in OpenAI's form: the arguments of calls are JSON.
        tools : list of dict, optional
            Tools in OpenAI's form.
        options : mapping, optional
            Further variables of the template; LAST_WORDS follows the last question.

        Raises
        ------
        TemplateError
            The template raises an error.
        """
        if words := (options or {}).get(LAST_WORDS, ""):
            last = max(number for number, message in enumerate(messages) if message["role"] == "user")
            said = {**messages[last], "content": f"{messages[last]['content']}{words}"}
            messages = [*messages[:last], said, *messages[last + 1 :]]
        problem: TemplateError | None = None
        called = any(message.get("tool_calls") for message in messages)
        for as_objects in (True, False) if called else (True,):  # a few templates want the JSON
            adapted = [_adapted(message, as_objects, self._thoughts) for message in messages]
            for listed in (None, []) if tools is None else (tools,):  # or always a list
                functions = (
                    json.dumps(listed, ensure_ascii=False, indent=4) if listed else None if listed is None else ""
                )
                others = {"functions": functions, "datetime": _strftime("%b %d %Y %H:%M:%S"), **(options or {})}
                try:
                    return str(self._formatter(messages=adapted, tools=listed, **others).prompt)
                except (MemoryError, TimeoutError):
                    raise
                except Exception as failure:  # Jinja's, and any that the template's expressions raise
                    problem = problem or _failure(failure)
        raise problem or TemplateError()

    @cached_property
    def shows_calls(self) -> bool:
        """Return whether the template writes earlier calls, rather than leave them out."""
        function = {"name": "octavo_tool", "arguments": json.dumps({"octavo_key": _CALLED})}
        call = {"id": "octavoid1", "type": "function", "function": function}
        asked, called = {"role": "user", "content": "?"}, {"role": "assistant", "content": "", "tool_calls": [call]}
        result = {"role": "tool", "tool_call_id": "octavoid1", "name": "octavo_tool", "content": "?"}
        with suppress(TemplateError):
            return _CALLED in self.render([asked, called, result])
        return False

    @cached_property
    def takes_reminders(self) -> bool:
        """Return whether the template writes system messages between turns, in their places."""
        texts = [f"text{number}" for number in range(6)]
        roles = ["system", "user", "system", "assistant", "user", "system"]
        with suppress(TemplateError):
            rendered = self.render([{"role": role, "content": text} for role, text in zip(roles, texts, strict=True)])
            places = [rendered.find(text) for text in texts]
            return -1 not in places and places == sorted(places)
        return False

    def describes(self, tools: Sequence[dict[str, Any]]) -> bool:
        """Return whether the template describes tools to the model."""
        question = [{"role": "user", "content": "?"}]
        with suppress(TemplateError):
            return self.render(question, list(tools)) != self.render(question)
        return False

    def pieces(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: list[dict[str, Any]] | None = None,
        options: Mapping[str, Any] | None = None,
        *,
        is_text: Callable[[str], bool],
    ) -> list[Piece]:
        """Return the text of a conversation as `render` does, cut at the texts of users and models.

        Parameters
        ----------
        is_text : callable
            Returns whether a text holds no control tokens. Where the template changes texts in other ways than by
            stripping blanks, or decides by them, these must hold none.

        Raises
        ------
        TemplateError
            The template raises an error, omits a content, or would decide by a text that holds control tokens.
        """
        marked = MarkedMessages(messages, self.sought(is_text) | {DOCUMENT, TOOLS})
        with _at(_TIME.get() or now()):
            rendered, whole = (self.render(each, tools, options) for each in (marked.messages, messages))
        pieces = marked.cut(rendered)
        if "".join(piece.text for piece in pieces) == whole:
            return pieces
        return [Piece(whole, True)] if is_text(_texts(messages)) else pieces

    def sought(self, is_text: Callable[[str], bool]) -> set[str]:
        """Return the words that the template may look for in texts, such as "/no_think": none of common texts."""
        if self._words is None:
            long = {string for string in self._strings if len(string) > 3 and not string.isspace()}
            self._words = {string for string in long if not set(string).isdisjoint("/<>|[]") and is_text(string)}
        return self._words


class PromptModel(Protocol):
    """A model that turns texts into tokens and back, such as `octavo.Llama`.

    Attributes
    ----------
    chat_template : ChatTemplate or None
        None without a usable one.
    """

    _model: Any  # llama-cpp-python's, for the attributes of single tokens

    @property
    def chat_template(self) -> ChatTemplate | None: ...

    def tokenize(self, text: bytes, add_bos: bool = True, special: bool = False) -> list[int]: ...

    def piece(self, token: int, special: bool = False) -> bytes: ...


def now() -> datetime:
    """Return the present time, in the time zone of the machine."""
    return datetime.now()


def _strftime(form: str) -> str:
    """Return the time that templates receive, in a form of `strftime`."""
    return (_TIME.get() or now()).strftime(form)


@contextmanager
def _at(time: datetime) -> Iterator[None]:
    """Give templates another time, and the same random numbers."""
    token, numbers = _TIME.set(time), _RANDOM.set(random.Random(0))
    try:
        yield
    finally:
        _RANDOM.reset(numbers)
        _TIME.reset(token)


@pass_context
def _chosen(context: Any, values: Sequence[Any]) -> Any:
    """Return a random one of some values, as Jinja's filter does, but not by numbers that other threads share."""
    return (_RANDOM.get() or random).choice(values)


def _texts(messages: Sequence[Mapping[str, Any]]) -> str:
    return "\n".join(str(message[name]) for message in messages for name in _FIELDS if message.get(name))


def _adapted(message: Mapping[str, Any], as_objects: bool, thoughts: str) -> dict[str, Any]:
    """Return a message as templates expect it: without empty fields, and with arguments as objects if they can be."""
    adapted = {name: value for name, value in message.items() if value is not None}
    if calls := adapted.pop("tool_calls", None):
        adapted["tool_calls"] = [_with_arguments(call) if as_objects else call for call in calls]
    if thoughts != _THOUGHTS[0] and _THOUGHTS[0] in adapted:
        adapted[thoughts] = adapted.pop(_THOUGHTS[0])
    return adapted


def _with_arguments(call: Mapping[str, Any]) -> dict[str, Any]:
    arguments = call["function"]["arguments"]
    with suppress(ValueError):
        arguments = json.loads(arguments)
    return {**call, "function": {**call["function"], "arguments": arguments}}


def _failure(problem: Exception) -> TemplateError:
    return TemplateError(f"it fails: {problem or type(problem).__name__}")


def special_tokens(model: Any) -> dict[str, str]:
    """Return the texts of the special tokens that templates name, from llama-cpp-python's model."""
    numbers = {"eos_token": model.token_eos(), "bos_token": model.token_bos()}
    return {name: model.token_get_text(number) if number >= 0 else "" for name, number in numbers.items()}


@contextmanager
def without_templates(only_named: bool) -> Iterator[None]:
    """Have llama-cpp-python load models without chat templates: it stops at one that it cannot parse.

    Parameters
    ----------
    only_named : bool
        Whether to leave it the default one.
    """
    metadata, prefix = internals.LlamaModel.metadata, f"{TEMPLATE_NAME}." if only_named else TEMPLATE_NAME
    internals.LlamaModel.metadata = lambda model: {
        name: value for name, value in metadata(model).items() if not name.startswith(prefix)
    }
    try:
        yield
    finally:
        internals.LlamaModel.metadata = metadata
