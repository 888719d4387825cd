"""The prompt around a document, from the model's own chat template.

The template is rendered once with marks in place of document, questions and answers, and cut at the marks. What lies
between them is the template's and may hold control tokens; what users wrote is tokenized apart, as text, so a document
that contains `<|im_end|>` contains just these ten characters, and no token straddles the border between the index
and the question.
"""

from __future__ import annotations

from typing import Any

from llama_cpp.llama_chat_format import Jinja2ChatFormatter

_INSTRUCTION = "Here is a document. Answer the question about it.\n\n"
_DOCUMENT, _QUESTION, _ANSWER, _NEXT = (f"[octavo:{name}]" for name in ("document", "question", "answer", "next"))


class Prompt:
    """Token pieces of a conversation over one document.

    has_document : False for a conversation over nothing: the first question then brings the head
    has_template : False where the model has no chat template, and plain "Question: ... Answer:" is used
    stop : text that ends an answer, where no token does: a model without a template asks itself the next question
    """

    def __init__(self, llama: Any, has_document: bool = True) -> None:
        self._llama, self._has_document = llama, has_document
        template = llama.metadata.get("tokenizer.chat_template")
        self.has_template = template is not None
        self.stop = None if self.has_template else "\n\nQuestion:"
        if template is None:
            self._head, self._border = (_INSTRUCTION, "\n\n") if has_document else ("", "")
            self._between, self._last = "\n\nQuestion: ", "\nAnswer:"
            self._first = "Question: "
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
        self._head, text = text.split(_DOCUMENT)
        self._border, text = text.split(_QUESTION)
        _, text = text.split(_ANSWER)
        self._between, self._last = text.split(_NEXT)

    def _special_tokens(self) -> dict[str, int]:
        return {"eos_token": self._llama.token_eos(), "bos_token": self._llama.token_bos()}

    @property
    def _adds_bos(self) -> bool:
        """Templates name the BOS token themselves; without one, the vocabulary says."""
        return not self.has_template and bool(self._llama._model.add_bos_token())

    def head(self) -> list[int]:
        """Tokens before the document."""
        return self._tokenize(self._head, add_bos=self._adds_bos, special=True)

    def document(self, text: str) -> list[int]:
        """Tokens of the document."""
        return self._tokenize(text, special=False)

    def first_question(self, question: str) -> list[int]:
        """Tokens from the end of the document to where the answer begins."""
        head = [] if self._has_document else self.head()
        return head + self._turn(self._border + self._first, question)

    def next_question(self, question: str) -> list[int]:
        """Tokens from the end of an answer to where the next one begins."""
        return self._turn(self._between, question)

    def _turn(self, before: str, question: str) -> list[int]:
        return (
            self._tokenize(before, special=True)
            + self._tokenize(question, special=False)
            + self._tokenize(self._last, special=True)
        )

    def _tokenize(self, text: str, add_bos: bool = False, special: bool = False) -> list[int]:
        if not text:
            return []
        tokens: list[int] = self._llama.tokenize(text.encode(), add_bos=add_bos, special=special)
        return tokens
