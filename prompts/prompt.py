"""Make the prompt around a document from the model's own chat template.

The template's parts may hold control tokens; users' texts are tokenized separately, as text (chat_template.py). So no
token straddles the border between the index and the question.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from .chat_template import DOCUMENT, INSTRUCTION, TOOLS, ChatTemplate, TemplateError, TemplateParts
from .marked_messages import Piece
from .tool_description import tool_description


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
        Further variables of the chat template. Those that change the text before a document change nothing there, as
        the document was read before.
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
        self._options = dict(options or {})
        parts: TemplateParts | None = None
        self._first = ""
        if llama.chat_template is not None:
            with suppress(TemplateError):
                parts = llama.chat_template.parts(has_document, bool(self._system), at, self._options)
        self.has_template = parts is not None
        self.stops = [] if self.has_template else ["\n\nQuestion:"]
        if parts is None:
            self._first = "Question: "
            head, border = (INSTRUCTION, "\n\n") if has_document else ("", "")
            parts = TemplateParts([head], border, "\n\nQuestion: ", "\nAnswer:")
        self._head, self._border, self._between, self._last = parts
        if has_document and options:  # the document was read with the default head
            self._head = llama.prompt(at=at)._head

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

    def is_text(self, text: str) -> bool:
        """Return whether a text holds no control tokens."""
        return self._tokenize(text, special=True) == self._tokenize(text)

    def document(self, text: str) -> list[int]:
        """Return the tokens of a document, control tokens as text."""
        return self._tokenize(text)

    def pieces(self, messages: Sequence[Mapping[str, Any]], tools: list[dict[str, Any]] | None = None) -> list[Piece]:
        """Return a conversation up to the beginning of the answer, after the document if there is one.

        Parameters
        ----------
        messages : sequence of mapping
            Messages in OpenAI's form. Over a document the first one is the user's, and the system prompt comes before
            it.
        tools : list of dict, optional
            Tools in OpenAI's form. Over a document the template's description of them comes after it.

        Raises
        ------
        TemplateError
            There is no template, or it cannot render the messages (see `ChatTemplate.pieces`), or its description of
            tools cannot stand after a document.
        """
        template, (first, *others) = self._llama.chat_template, messages
        if template is None:
            raise TemplateError("there is none")
        system = f"{self._system}\n\n" if self._system else ""
        if self._has_document:
            return self._after_document(template, f"{system}{first['content']}", first, others, tools)
        if system:
            with suppress(TemplateError):  # of a template without system messages
                messages = [{"role": "system", "content": self._system}, *messages]
                return list(template.pieces(messages, tools, self._options, is_text=self.is_text))
            messages = [{**first, "content": system + first["content"]}, *others]
        pieces: list[Piece] = template.pieces(messages, tools, self._options, is_text=self.is_text)
        return pieces

    def _after_document(
        self,
        template: ChatTemplate,
        asked: str,
        first: Mapping[str, Any],
        others: Sequence[Mapping[str, Any]],
        tools: list[dict[str, Any]] | None,
    ) -> list[Piece]:
        """Return a conversation after the document. `asked` is the system prompt with the first question."""

        def messages(before: str) -> list[Mapping[str, Any]]:
            return [{**first, "content": f"{INSTRUCTION}{DOCUMENT}\n\n{before}{asked}"}, *others]

        description = ""
        if tools and not _follows_document(template, messages(""), tools, self._options):
            description = tool_description(template, tools, self._options) or ""
            if not description:
                raise TemplateError("it describes tools in a way that cannot stand after a document")
        told = messages(f"{TOOLS}\n\n" if description else "")
        if words := template.sought_words(self._system, self.is_text):  # the template may decide by them
            with suppress(TemplateError):  # of a template without system messages
                heard = [{"role": "system", "content": words}, *told]
                return _cut(template.pieces(heard, tools, self._options, is_text=self.is_text), description)
        return _cut(template.pieces(told, tools, self._options, is_text=self.is_text), description)

    def tokens(self, pieces: Sequence[Piece], spoken: Mapping[str, Sequence[int]] | None = None) -> list[int]:
        """Return the tokens of pieces: control tokens only where the template wrote them.

        Parameters
        ----------
        spoken : mapping of str to sequence of int, optional
            Tokens of texts that the model wrote itself.
        """
        tokens: list[int] = []
        for text, is_template in pieces:
            known = None if is_template else (spoken or {}).get(text)
            tokens += self._tokenize(text, special=is_template) if known is None else known
        return tokens

    def first_question(self, question: str) -> list[int]:
        """Return the tokens from the end of the document to the beginning of the answer, the question's as text."""
        with suppress(TemplateError):
            return self.tokens(self.pieces([{"role": "user", "content": question}]))
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


def _follows_document(
    template: ChatTemplate,
    messages: Sequence[Mapping[str, Any]],
    tools: list[dict[str, Any]],
    options: Mapping[str, Any],
) -> bool:
    """Return whether a template describes tools after the document by itself, as before the last question."""
    plain, told = (template.render(messages, each, options).partition(DOCUMENT)[2] for each in (None, tools))
    name = tools[0]["function"]["name"]
    return told.count(name) > plain.count(name)


def _cut(pieces: Sequence[Piece], description: str) -> list[Piece]:
    """Return the pieces after the document, with a description in the place of TOOLS."""
    at = next(number for number, piece in enumerate(pieces) if piece.is_template and DOCUMENT in piece.text)
    after = pieces[at].text.partition(DOCUMENT)[2]
    left = [*([Piece(after, True)] if after else []), *pieces[at + 1 :]]
    return [Piece(text.replace(TOOLS, description) if is_template else text, is_template) for text, is_template in left]
