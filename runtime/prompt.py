"""Make the prompt around a document from the model's own chat template.

The template's parts may hold control tokens; users' texts are tokenized separately, as text (chat_template.py). So no
token straddles the border between the index and the question.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

from .chat_template import INSTRUCTION, TemplateError, TemplateParts


class Prompt:
    """The token pieces of a conversation. `Llama.prompt` makes one.

    Parameters
    ----------
    has_document : bool
        Whether the conversation is over a document. If not, the first question includes the head of the prompt.
    system : str
        System prompt; may be empty. Without a document it is the template's system message. With one it comes after
        the document, so that the same index serves all system prompts.
    options : mapping, optional
        Further variables of the chat template.
    at : datetime, optional
        The time that the template receives, by default the present one.

    Attributes
    ----------
    has_template : bool
        Whether the model has a chat template. Without one, questions have the form "Question: ... Answer:".
    stops : list of str
        Texts that end an answer. A model without a template does not end it by a token, but asks itself the next
        question.
    """

    def __init__(
        self,
        llama: Any,
        has_document: bool,
        system: str,
        options: Mapping[str, Any] | None = None,
        at: datetime | None = None,
    ) -> None:
        self._llama, self._has_document, self._system = llama, has_document, system.strip()
        parts: TemplateParts | None = None
        self._first = ""
        if llama.chat_template is not None:
            with suppress(TemplateError):
                parts = llama.chat_template.parts(has_document, bool(self._system), at, **(options or {}))
        self.has_template = parts is not None
        self.stops = [] if self.has_template else ["\n\nQuestion:"]
        if parts is None:
            self._first = "Question: "
            head, border = (INSTRUCTION, "\n\n") if has_document else ("", "")
            parts = TemplateParts([head], border, "\n\nQuestion: ", "\nAnswer:")
        self._head, self._border, self._between, self._last = parts

    @property
    def _adds_bos(self) -> bool:
        """Return whether to add a BOS token to the head. A template has its own; otherwise the vocabulary decides."""
        return not self.has_template and bool(self._llama._model.add_bos_token())

    @property
    def _has_system(self) -> bool:
        """Return whether the head has room for the system message."""
        return len(self._head) > 1

    def head(self) -> list[int]:
        """Return the tokens before the document."""
        tokens = self._tokenize(self._head[0], add_bos=self._adds_bos, special=True)
        for after in self._head[1:]:
            tokens += self._tokenize(self._system) + self._tokenize(after, special=True)
        return tokens

    def document(self, text: str) -> list[int]:
        """Return the tokens of a document, control tokens as text."""
        return self._tokenize(text)

    def first_question(self, question: str) -> list[int]:
        """Return the tokens from the end of the document to the beginning of the answer, the question's as text."""
        head = [] if self._has_document else self.head()
        if self._system and not self._has_system:
            head += self._tokenize(self._border, special=True) + self._tokenize(f"{self._system}\n\n")
            return head + self._turn(self._first, question)
        return head + self._turn(self._border + self._first, question)

    def question(self, question: str) -> list[int]:
        """Return the tokens of a question alone, as in `first_question`."""
        return self._tokenize(question)

    def next_question(self, question: str) -> list[int]:
        """Return the tokens from the end of an answer to the beginning of the next one, the question's as text."""
        return self._turn(self._between, question)

    def tail(self) -> list[int]:
        """Return the tokens between a question and its answer."""
        return self._tokenize(self._last, special=True)

    def _turn(self, before: str, question: str) -> list[int]:
        """Return the tokens of a question, with the template's around it."""
        return self._tokenize(before, special=True) + self.question(question) + self.tail()

    def _tokenize(self, text: str, add_bos: bool = False, special: bool = False) -> list[int]:
        """Return the tokens of a text; with `special`, control tokens count as such."""
        if not text:
            return []
        tokens: list[int] = self._llama.tokenize(text.encode(), add_bos=add_bos, special=special)
        return tokens
