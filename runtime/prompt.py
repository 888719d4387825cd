"""Make the prompt around a document from the model's own chat template.

The template is rendered once with marks in place of document, questions and answers, and cut at the marks. The parts
between the marks are the template's and may hold control tokens. What users wrote is tokenized separately, as text. So
a document that contains `<|im_end|>` contains just these ten characters, and no token straddles the border between the
index and the question.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from llama_cpp.llama_chat_format import Jinja2ChatFormatter

_INSTRUCTION = "Here is a document. Answer the question about it.\n\n"
_SYSTEM, _DOCUMENT, _QUESTION, _ANSWER, _NEXT = (
    f"[octavo:{name}]" for name in ("system", "document", "question", "answer", "next")
)


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
    stop : str or None
        Text that ends an answer. A model without a template does not end it by a token: it asks itself the next
        question.
    """

    def __init__(self, llama: Any, has_document: bool = True, system: str = "") -> None:
        self._llama, self._has_document, self._system = llama, has_document, system.strip()
        template = llama.metadata.get("tokenizer.chat_template")
        self.has_template = template is not None
        self.stop = None if self.has_template else "\n\nQuestion:"
        if template is None:
            self._head, self._border = (_INSTRUCTION, "\n\n") if has_document else ("", "")
            self._between, self._last = "\n\nQuestion: ", "\nAnswer:"
            self._first, self._has_system = "Question: ", False
        else:
            self._first = ""
            self._cut(template)

    def _cut(self, template: str) -> None:
        """Render the template, and cut it at the marks."""
        llama = self._llama
        tokens = {name: llama._model.token_get_text(i) if i >= 0 else "" for name, i in self._special_tokens().items()}
        formatter = Jinja2ChatFormatter(template, **tokens)
        document = f"{_INSTRUCTION}{_DOCUMENT}\n\n" if self._has_document else _DOCUMENT
        document += _QUESTION
        messages = [
            {"role": "user", "content": document},
            {"role": "assistant", "content": _ANSWER},
            {"role": "user", "content": _NEXT},
        ]
        text = formatter(messages=messages).prompt
        if self._system and not self._has_document:
            with suppress(Exception):  # a template without system messages may raise anything
                text = formatter(messages=[{"role": "system", "content": _SYSTEM}, *messages]).prompt
        self._has_system = _SYSTEM in text
        self._head, text = text.split(_DOCUMENT)
        self._border, text = text.split(_QUESTION)
        _, text = text.split(_ANSWER)
        self._between, self._last = text.split(_NEXT)

    def _special_tokens(self) -> dict[str, int]:
        """The tokens that templates name."""
        return {"eos_token": self._llama.token_eos(), "bos_token": self._llama.token_bos()}

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
        return (
            self._tokenize(before, special=True)
            + self._tokenize(question, special=False)
            + self._tokenize(self._last, special=True)
        )

    def _tokenize(self, text: str, add_bos: bool = False, special: bool = False) -> list[int]:
        """The tokens of a text; special : whether control tokens count as such."""
        if not text:
            return []
        tokens: list[int] = self._llama.tokenize(text.encode(), add_bos=add_bos, special=special)
        return tokens
