"""Turn conversations into tokens by the model's own chat template: for sessions, servers, indexes and evaluations.

Only the template's own parts become control tokens. The texts of users, models and documents are tokenized separately,
as text (chat_template.py). So no token straddles the border between the index of a document and the question.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from ..errors import PromptError
from .chat_template import (
    DOCUMENT,
    INSTRUCTION,
    TOOLS,
    ChatTemplate,
    Piece,
    PromptModel,
    TemplateError,
    TemplateParts,
)
from .message_forms import (
    Message,
    as_texts,
    follows_document,
    merged,
    system_and_turns,
    tool_description,
    tools_text,
    with_reminders,
    with_short_ids,
    with_system,
    without_system,
)

#: The plain form of conversations without a template, over nothing and over a document.
_PLAIN = TemplateParts([""], "", "\n\nQuestion: ", "\nAnswer:")
_PLAIN_OVER_DOCUMENT = _PLAIN._replace(head=[INSTRUCTION], border="\n\n")


class ConversationTokens:
    """The tokens of conversations with a model. `Llama.prompt` makes one.

    Parameters
    ----------
    model : PromptModel
        The model.
    has_document : bool
        Whether the conversations are over a document. If not, the first question includes the head of the prompt.
    system : str
        System prompt; may be empty. Without a document it is the template's system message. Over a document it comes
        after the document, so that the same index serves all system prompts.
    options : mapping, optional
        Further variables of the chat template, such as `enable_thinking`. Those that change the text before a document
        change nothing there, because the index has the default.
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
        model: PromptModel,
        has_document: bool,
        system: str = "",
        options: Mapping[str, Any] | None = None,
        at: datetime | None = None,
    ) -> None:
        self._model, self._has_document, self._system = model, has_document, system.strip()
        self._options, template = dict(options or {}), model.chat_template
        self._parts, self.has_template = _PLAIN_OVER_DOCUMENT if has_document else _PLAIN, False
        if template is not None:
            with suppress(TemplateError):
                parts = template.parts(has_document, bool(self._system), at, self._options)
                head = template.parts(True, False, at).head if has_document and options else parts.head
                self._parts, self.has_template = parts._replace(head=head), True
        self.stops = [] if self.has_template else ["\n\nQuestion:"]

    def head(self) -> list[int]:
        """Return the tokens before the document."""
        first, *others = self._parts.head
        # a template has its own BOS token; otherwise the vocabulary decides
        adds_bos = not self.has_template and bool(self._model._model.add_bos_token())
        tokens = self._tokenize(first, add_bos=adds_bos, special=True)
        for after in others:
            tokens += self._tokenize(self._system) + self._tokenize(after, special=True)
        return tokens

    def document(self, text: str) -> list[int]:
        """Return the tokens of a document, control tokens as text."""
        return self._tokenize(text)

    def question(self, question: str) -> list[int]:
        """Return the tokens of a question alone, as in `first_question`."""
        return self._tokenize(question)

    def first_question(self, question: str) -> list[int]:
        """Return the tokens from the end of the document to the beginning of the answer, the question's as text."""
        with suppress(PromptError):
            return self.tokens([{"role": "user", "content": question}])
        return self._first_turn(self._system, question)

    def next_question(self, question: str) -> list[int]:
        """Return the tokens from the end of an answer to the beginning of the next one, the question's as text."""
        return self._turn(self._parts.between, question)

    def tail(self) -> list[int]:
        """Return the tokens between a question and its answer."""
        return self._tokenize(self._parts.last, special=True)

    def tokens(
        self,
        messages: Sequence[Message],
        tools: Sequence[dict[str, Any]] = (),
        written: Mapping[str, Sequence[int]] | None = None,
    ) -> list[int]:
        """Return the tokens of a conversation, after its document, up to the beginning of the answer.

        Parameters
        ----------
        messages : sequence of messages
            The conversation. If the last one is the assistant's, the answer continues it.
        tools : sequence of dict
            Tools in OpenAI's form.
        written : mapping of str to sequence of int, optional
            Tokens of texts that the model wrote itself.

        Raises
        ------
        PromptError
            The template refuses the conversation, or a conversation over a document does not begin with a question.
        """
        begun = ""
        if messages[-1]["role"] == "assistant" and not messages[-1].get("tool_calls"):
            messages, begun = messages[:-1], messages[-1]["content"]
        if self._system:
            messages = [{"role": "system", "content": self._system}, *messages]
        template = self._model.chat_template
        messages = with_reminders(messages, None if self._has_document else template)
        if self._has_document and [turn["role"] for turn in system_and_turns(messages)[1][:1]] != ["user"]:
            raise PromptError("A conversation over a document begins with the user's question.", param="messages")
        if template is None or (self._has_document and not self.has_template):
            tokens = self._in_turns(with_system(messages, tools_text(tools)) if tools else messages)
        else:
            tokens = []
            for text, is_template in self._rendered(template, messages, list(tools)):
                known = None if is_template else (written or {}).get(text)
                tokens += self._tokenize(text, special=is_template) if known is None else known
        return tokens + self._tokenize(begun)

    def pieces(self, messages: Sequence[Message], tools: list[dict[str, Any]] | None = None) -> list[Piece]:
        """Return a conversation after its document, as the template writes exactly these messages.

        Parameters
        ----------
        messages : sequence of messages
            The conversation. Over a document the text of the system message comes before the first question.
        tools : list of dict, optional
            Tools in OpenAI's form. Over a document the template's description of them comes after it.

        Raises
        ------
        TemplateError
            There is no template, or it cannot render the messages (see `ChatTemplate.pieces`), or its description of
            tools cannot follow a document.
        """
        template = self._model.chat_template
        if template is None:
            raise TemplateError("there is none")
        if not self._has_document:
            return template.pieces(messages, tools, self._options, is_text=self._is_text)
        system, (first, *others) = system_and_turns(messages)
        asked = f"{system}\n\n{first['content']}" if system else first["content"]
        whole = [{**first, "content": f"{INSTRUCTION}{DOCUMENT}\n\n{asked}"}, *others]
        description = ""
        if tools and not follows_document(template, whole, tools, self._options):
            description = tool_description(template, tools, self._options) or ""
            if not description:
                raise TemplateError("it describes tools in a way that cannot follow a document")
            whole[0] = {**first, "content": f"{INSTRUCTION}{DOCUMENT}\n\n{TOOLS}\n\n{asked}"}
        trials: list[list[Message]] = [whole]
        if words := sorted((word for word in template.sought(self._is_text) if word in system), key=system.index):
            trials.insert(0, [{"role": "system", "content": " ".join(words)}, *whole])  # it may decide by them
        while True:
            try:
                pieces = template.pieces(trials.pop(0), tools, self._options, is_text=self._is_text)
                break
            except TemplateError:  # of a template without system messages
                if not trials:
                    raise
        at = next(number for number, piece in enumerate(pieces) if piece.is_template and DOCUMENT in piece.text)
        after = Piece(pieces[at].text.partition(DOCUMENT)[2], True)
        return [
            Piece(text.replace(TOOLS, description) if is_template else text, is_template)
            for text, is_template in [*([after] if after.text else []), *pieces[at + 1 :]]
        ]

    def _rendered(self, template: ChatTemplate, messages: list[Message], tools: list[dict[str, Any]]) -> list[Piece]:
        """Return the pieces of the first form of a conversation that the template takes."""
        trials: list[tuple[list[Message], list[dict[str, Any]] | None]] = [(messages, None)]
        if tools:
            described = with_system(messages if self._has_document else as_texts(messages), tools_text(tools))
            trials = [(messages, tools)] if template.describes(tools) else [(described, None)]
            trials += [(described, None)] if self._has_document else []
        problem = TemplateError()
        for messages, shown in trials:
            for number, variant in enumerate(self._variants(template, messages)):
                try:
                    return self.pieces(variant, shown)
                except TemplateError as failure:
                    problem = problem if number else failure
        if self._has_document:
            raise _refusal(problem)
        return self._whole(template, *trials[-1], problem)

    def _variants(self, template: ChatTemplate, messages: list[Message]) -> Iterator[list[Message]]:
        """Yield forms of a conversation, the best first: as it is, with other ids, calls as texts, made simpler.

        Each comes with turns of one role joined, too, as some templates refuse two in a row.
        """
        forms = [messages]
        if any(message["role"] == "tool" or message.get("tool_calls") for message in messages):
            forms = [*([messages, with_short_ids(messages)] if template.shows_calls else []), as_texts(messages)]
        if not self._has_document:
            forms += map(without_system, list(forms))
        tried: list[list[Message]] = []
        for form in forms:
            for variant in (form, merged(form)):
                if variant not in tried:
                    tried.append(variant)
                    yield variant

    def _whole(
        self,
        template: ChatTemplate,
        messages: list[Message],
        tools: list[dict[str, Any]] | None,
        problem: TemplateError,
    ) -> list[Piece]:
        """Render with a template that changes texts, so that its output cannot be cut at them.

        Raise PromptError if the texts hold control tokens, or if the template refuses the messages.
        """
        try:
            rendered = template.render(messages, tools, self._options)
        except TemplateError:
            raise _refusal(problem) from problem
        if not all(self._is_text(message["content"]) for message in messages):
            raise PromptError(
                "A message holds the text of a control token, and this model's chat template changes messages: "
                "they cannot be told apart.",
                param="messages",
            )
        return [Piece(rendered, True)]

    def _in_turns(self, messages: Sequence[Message]) -> list[int]:
        """Return the tokens of a conversation in the plain form."""
        system, turns = system_and_turns(messages)
        tokens: list[int] = []
        for number, message in enumerate(merged(as_texts(turns))):
            if message["role"] != "user":
                tokens += self._tokenize(f" {message['content']}")
            else:
                question = message["content"]
                tokens += self.next_question(question) if number else self._first_turn(system, question)
        return tokens

    def _first_turn(self, system: str, question: str) -> list[int]:
        """Return the tokens of a first question, from the parts of the template or the plain form."""
        tokens, border = [] if self._has_document else self.head(), self._parts.border
        first = "" if self.has_template else "Question: "
        if system and len(self._parts.head) == 1:  # the head has no place for it
            tokens += self._tokenize(border, special=True) + self._tokenize(f"{system}\n\n")
            return tokens + self._turn(first, question)
        return tokens + self._turn(border + first, question)

    def _turn(self, before: str, question: str) -> list[int]:
        return self._tokenize(before, special=True) + self.question(question) + self.tail()

    def _is_text(self, text: str) -> bool:
        """Return whether a text holds no control tokens."""
        return self._tokenize(text, special=True) == self._tokenize(text)

    def _tokenize(self, text: str, add_bos: bool = False, special: bool = False) -> list[int]:
        """Return the tokens of a text; with `special`, control tokens count as such."""
        return self._model.tokenize(text.encode(), add_bos=add_bos, special=special) if text else []


def _refusal(problem: TemplateError) -> PromptError:
    return PromptError(f"The model's chat template refuses the messages: {problem}", param="messages")
