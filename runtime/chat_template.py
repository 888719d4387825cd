"""Render a model's own chat template, and cut it at the texts of users and models.

The template is rendered with marks in place of these texts, and cut at the marks. The parts between the marks are the
template's and may hold control tokens. The texts are tokenized separately, as text. So a document that contains
`<|im_end|>` contains just these ten characters.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

from llama_cpp import _internals as internals
from llama_cpp.llama_chat_format import Jinja2ChatFormatter

#: Stands before a document.
INSTRUCTION = "Here is a document. Answer the question about it.\n\n"

_SYSTEM, _DOCUMENT, _QUESTION, _ANSWER, _NEXT = (
    f"[octavo:{name}]" for name in ("system", "document", "question", "answer", "next")
)

#: Key of the chat template in a model's metadata.
TEMPLATE_NAME = "tokenizer.chat_template"

#: The time for the part of an index's identity that a template with dates writes: any, but always the same.
EPOCH = datetime(2000, 1, 1)

#: The time that templates receive; None for the present one.
_TIME: ContextVar[datetime | None] = ContextVar("_TIME", default=None)

#: Largest number of characters that a template may make of a conversation of three short messages.
_MOST_CHARACTERS = 1 << 20


class TemplateError(Exception):
    """A chat template cannot be used, for the reason in the message."""


class TemplateParts(NamedTuple):
    """The texts of a chat template around the texts of users and models.

    Parameters
    ----------
    head : sequence of str
        Before the document; in two parts if a system message stands between them.
    border, between, last : str
        Between document and question, between an answer and the next question, and between a question and its answer.
    """

    head: Sequence[str]
    border: str
    between: str
    last: str


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
        self._formatter.strftime_now = _strftime
        self._parts_at = lru_cache(maxsize=4096)(self._parts)

    def parts(self, has_document: bool, system: bool, at: datetime | None = None, **options: Any) -> TemplateParts:
        """Return the texts around the messages of a conversation.

        Parameters
        ----------
        system : bool
            Whether the head has room for a system message, if the template has such messages.
        at : datetime, optional
            The time that the template receives, by default the present one. What a template draws at random is the same
            for the same time.
        **options
            Further variables of the template.

        Raises
        ------
        TemplateError
            The template raises an error, or changes or omits a message.
        """
        if at is None:
            return self._parts(has_document, system, **options)
        with _at(at):
            return self._parts_at(has_document, system, at)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: list[dict[str, Any]] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> str:
        """Return the text of a conversation up to the beginning of the answer.

        Parameters
        ----------
        tools : list of dict, optional
            Tools in OpenAI's form.
        options : mapping, optional
            Further variables of the template.

        Raises
        ------
        TemplateError
            The template raises an error.
        """
        try:
            return str(self._formatter(messages=messages, tools=tools, **(options or {})).prompt)
        except (MemoryError, TimeoutError, RecursionError):
            raise
        except Exception as problem:  # Jinja's, and any that the template's expressions raise
            raise _failure(problem) from problem

    def _parts(self, has_document: bool, system: bool, at: datetime | None = None, **options: Any) -> TemplateParts:
        """Return the texts for `parts`, whose cache `at` keys."""
        document = f"{INSTRUCTION}{_DOCUMENT}\n\n" if has_document else _DOCUMENT
        messages = [
            {"role": "user", "content": document + _QUESTION},
            {"role": "assistant", "content": _ANSWER},
            {"role": "user", "content": _NEXT},
        ]
        text = self.render(messages, options=options)
        if system and not has_document:
            with suppress(TemplateError):  # a template without system messages may raise anything
                with_system = self.render([{"role": "system", "content": _SYSTEM}, *messages], options=options)
                if with_system.count(_SYSTEM) == with_system.partition(_DOCUMENT)[0].count(_SYSTEM) == 1:
                    text = with_system
        if len(text) > _MOST_CHARACTERS:
            raise TemplateError(f"it makes {len(text):,} characters of three short messages")
        head, border, _, between, last = cut_at_marks(text, (_DOCUMENT, _QUESTION, _ANSWER, _NEXT))
        return TemplateParts(head.split(_SYSTEM), border, between, last)


def now() -> datetime:
    """Return the present time, in the time zone of the machine."""
    return datetime.now()


def _strftime(form: str) -> str:
    """Return the time that templates receive, in a form of `strftime`."""
    return (_TIME.get() or now()).strftime(form)


@contextmanager
def _at(time: datetime) -> Iterator[None]:
    """Tell templates another time, and have them draw the same random things."""
    token, state = _TIME.set(time), random.getstate()
    random.seed(0)
    try:
        yield
    finally:
        random.setstate(state)
        _TIME.reset(token)


def cut_at_marks(text: str, marks: Sequence[str]) -> list[str]:
    """Cut a text at marks, each of which occurs in it once, in this order.

    Returns
    -------
    list of str
        The text before each mark, and the text after the last one.

    Raises
    ------
    TemplateError
        A mark is missing or repeated, or the order is another one.
    """
    if any(text.count(mark) != 1 for mark in marks):
        raise TemplateError("it changes or repeats what is written, or leaves it out")
    parts = []
    for mark in marks:
        before, found, text = text.partition(mark)
        if not found:
            raise TemplateError("it changes the order of what is written")
        parts.append(before)
    return [*parts, text]


def _failure(problem: Exception) -> TemplateError:
    return TemplateError(f"it fails: {problem or type(problem).__name__}")


def special_tokens(model: Any) -> dict[str, str]:
    """Return the texts of the special tokens that templates name, from llama-cpp-python's model."""
    numbers = {"eos_token": model.token_eos(), "bos_token": model.token_bos()}
    return {name: model.token_get_text(number) if number >= 0 else "" for name, number in numbers.items()}


@contextmanager
def without_templates() -> Iterator[None]:
    """Have llama-cpp-python load models without chat templates: it stops at one that it cannot parse."""
    metadata = internals.LlamaModel.metadata

    def without(model: Any) -> dict[str, str]:
        return {name: value for name, value in metadata(model).items() if not name.startswith(TEMPLATE_NAME)}

    internals.LlamaModel.metadata = without
    try:
        yield
    finally:
        internals.LlamaModel.metadata = metadata
