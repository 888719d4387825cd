"""Make the prompt around a document from the model's own chat template.

The template is rendered once with marks in place of document, questions and answers, and cut at the marks. The parts
between the marks are the template's and may hold control tokens. What users wrote is tokenized separately, as text. So
a document that contains `<|im_end|>` contains just these ten characters, and no token straddles the border between the
index and the question.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from llama_cpp import _internals as internals
from llama_cpp.llama_chat_format import Jinja2ChatFormatter

_INSTRUCTION = "Here is a document. Answer the question about it.\n\n"
_SYSTEM, _DOCUMENT, _QUESTION, _ANSWER, _NEXT = (
    f"[octavo:{name}]" for name in ("system", "document", "question", "answer", "next")
)

#: Entry of a model's metadata that is its chat template.
TEMPLATE_NAME = "tokenizer.chat_template"

#: Most characters that a template may make of a conversation of three short messages.
_MOST_CHARACTERS = 1 << 20


class TemplateError(Exception):
    """A chat template cannot be used; the message says why."""


class TemplateParts(NamedTuple):
    """The texts of a chat template around what users and models write.

    Parameters
    ----------
    head, border, between, last : str
        Before the document, between document and question, between an answer and the next question, and between a
        question and its answer.
    """

    head: str
    border: str
    between: str
    last: str


def cut_template(template: str, tokens: dict[str, str], has_document: bool, system: bool) -> TemplateParts:
    """Render a chat template with marks in place of what is written, and cut it at the marks.

    Parameters
    ----------
    template : str
        The template, of Jinja.
    tokens : dict of str to str
        Texts of the tokens that templates name (`special_tokens`).
    has_document : bool
        Whether the conversation is over a document.
    system : bool
        Whether the head is to have the mark of a system message, if the template has such messages.

    Raises
    ------
    TemplateError
        The template raises an error, or changes what is written, or leaves it out.
    """
    document = f"{_INSTRUCTION}{_DOCUMENT}\n\n" if has_document else _DOCUMENT
    messages = [
        {"role": "user", "content": document + _QUESTION},
        {"role": "assistant", "content": _ANSWER},
        {"role": "user", "content": _NEXT},
    ]
    try:
        formatter = Jinja2ChatFormatter(template, **tokens)
        text = formatter(messages=messages).prompt
        if system and not has_document:
            with suppress(Exception):  # a template without system messages may raise anything
                text = formatter(messages=[{"role": "system", "content": _SYSTEM}, *messages]).prompt
    except (MemoryError, TimeoutError, RecursionError):
        raise
    except Exception as problem:  # Jinja's, and whatever the template's expressions raise
        raise TemplateError(f"it fails: {problem or type(problem).__name__}") from problem
    if len(text) > _MOST_CHARACTERS:
        raise TemplateError(f"it makes {len(text):,} characters of three short messages")
    marks = [mark for mark in (_DOCUMENT, _QUESTION, _ANSWER, _NEXT) if text.count(mark) != 1]
    if marks or text.count(_SYSTEM) > 1:
        raise TemplateError("it changes or repeats what is written, or leaves it out")
    parts = []
    for mark in (_DOCUMENT, _QUESTION, _ANSWER, _NEXT):
        before, found, text = text.partition(mark)
        if not found:
            raise TemplateError("it changes the order of what is written")
        parts.append(before)
    return TemplateParts(parts[0], parts[1], parts[3], text)


def special_tokens(model: Any) -> dict[str, str]:
    """Return the texts of the tokens that templates name, of llama-cpp-python's model."""
    numbers = {"eos_token": model.token_eos(), "bos_token": model.token_bos()}
    return {name: model.token_get_text(number) if number >= 0 else "" for name, number in numbers.items()}


def is_template(name: str) -> bool:
    """Return whether an entry of a model's metadata is a chat template."""
    return name == TEMPLATE_NAME or name.startswith(f"{TEMPLATE_NAME}.")


@contextmanager
def without_templates() -> Iterator[None]:
    """Have llama-cpp-python load models as if they had no chat templates: it stops at one that cannot be parsed."""
    metadata = internals.LlamaModel.metadata

    def without(model: Any) -> dict[str, str]:
        return {name: value for name, value in metadata(model).items() if not name.startswith(TEMPLATE_NAME)}

    internals.LlamaModel.metadata = without
    try:
        yield
    finally:
        internals.LlamaModel.metadata = metadata


class Prompt:
    """The token pieces of a conversation.

    Parameters
    ----------
    llama : Llama
        The model.
    has_document : bool
        Whether the conversation is over a document. Without one, the first question brings the head of the prompt.
    system : str
        What the model is told before the first question; nothing if it is empty. Without a document it is the
        template's system message. With one it comes after the document, so that the same index serves whatever it says.

    Attributes
    ----------
    has_template : bool
        Whether the model has a chat template. Without one, questions are put as "Question: ... Answer:".
    stops : list of str
        Texts that end an answer. A model without a template does not end it by a token: it asks itself the next
        question.
    """

    def __init__(self, llama: Any, has_document: bool = True, system: str = "") -> None:
        self._llama, self._has_document, self._system = llama, has_document, system.strip()
        template = llama.metadata.get(TEMPLATE_NAME)
        parts, self._first = None, ""
        if template is not None:
            with suppress(TemplateError):  # as Llama has found and said
                parts = cut_template(template, special_tokens(llama._model), has_document, bool(self._system))
        self.has_template = parts is not None
        self.stops = [] if self.has_template else ["\n\nQuestion:"]
        if parts is None:
            self._first = "Question: "
            head, border = (_INSTRUCTION, "\n\n") if has_document else ("", "")
            parts = TemplateParts(head, border, "\n\nQuestion: ", "\nAnswer:")
        self._head, self._border, self._between, self._last = parts
        self._has_system = _SYSTEM in self._head

    @property
    def _adds_bos(self) -> bool:
        """Whether the head begins with a BOS token. A template names it itself; otherwise the vocabulary says."""
        return not self.has_template and bool(self._llama._model.add_bos_token())

    def head(self) -> list[int]:
        """Return the tokens before the document."""
        if not self._has_system:
            return self._tokenize(self._head, add_bos=self._adds_bos, special=True)
        before, after = self._head.split(_SYSTEM)
        tokens = self._tokenize(before, add_bos=self._adds_bos, special=True)
        return tokens + self._tokenize(self._system) + self._tokenize(after, special=True)

    def document(self, text: str) -> list[int]:
        """Return the tokens of a document.

        Parameters
        ----------
        text : str
            The document. What looks like a control token is text.
        """
        return self._tokenize(text, special=False)

    def first_question(self, question: str) -> list[int]:
        """Return the tokens from the end of the document to where the answer begins.

        Parameters
        ----------
        question : str
            The question. What looks like a control token is text.
        """
        head = [] if self._has_document else self.head()
        if self._system and not self._has_system:
            head += self._tokenize(self._border, special=True) + self._tokenize(f"{self._system}\n\n")
            return head + self._turn(self._first, question)
        return head + self._turn(self._border + self._first, question)

    def question(self, question: str) -> list[int]:
        """Return the tokens of a question alone, as they stand among those of `first_question`."""
        return self._tokenize(question, special=False)

    def next_question(self, question: str) -> list[int]:
        """Return the tokens from the end of an answer to where the next one begins.

        Parameters
        ----------
        question : str
            The question. What looks like a control token is text.
        """
        return self._turn(self._between, question)

    def tail(self) -> list[int]:
        """Return the tokens between a question and its answer."""
        return self._tokenize(self._last, special=True)

    def _turn(self, before: str, question: str) -> list[int]:
        """The tokens of a question, with the template's around it."""
        return self._tokenize(before, special=True) + self.question(question) + self._tokenize(self._last, special=True)

    def _tokenize(self, text: str, add_bos: bool = False, special: bool = False) -> list[int]:
        """The tokens of a text; special : whether control tokens count as such."""
        if not text:
            return []
        tokens: list[int] = self._llama.tokenize(text.encode(), add_bos=add_bos, special=special)
        return tokens
