"""The questions and answers of a conversation, from which each prompt is rendered anew.

A template may write a finished answer in another way than the model wrote it: it strips thoughts, or puts something
before the text. So the tokens in a context need not be those of the next prompt; what differs is read again.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..runtime.llama import Llama
from ..runtime.prompt import Prompt

#: A message in OpenAI's form.
Message = dict[str, str]


class History:
    """The messages of a conversation, without its document and system prompt.

    Attributes
    ----------
    messages : list of dict
        Questions and answers in turns. The last question has no answer if the model was stopped before it.
    """

    def __init__(self, messages: Sequence[Message] = ()) -> None:
        self.messages = list(messages)
        self._spoken: dict[str, list[int]] = {}

    def ask(self, question: str) -> None:
        """Add a question, in place of one without an answer."""
        if self.messages and self.messages[-1]["role"] == "user":
            self.messages.pop()
        self.messages.append({"role": "user", "content": question})

    def tokens(self, prompt: Prompt) -> list[int]:
        """Return the tokens of the conversation up to the beginning of the answer.

        Raise TemplateError if the template cannot render them.
        """
        return prompt.tokens(prompt.pieces(self.messages), self._spoken)

    def answer(self, llama: Llama, answer: str, reasoning: str, drawn: Sequence[int]) -> None:
        """Add the answer to the last question.

        Parameters
        ----------
        drawn : sequence of int
            All tokens that the model wrote.
        """
        thoughts = {"reasoning_content": reasoning} if reasoning else {}
        self.messages.append({"role": "assistant", "content": answer, **thoughts})
        for text in (answer.strip(), reasoning.strip()):
            tokens = tokens_of(llama, drawn, text)
            if tokens:
                self._spoken[text] = tokens

    def forget_last(self) -> None:
        """Forget the last question, and its answer."""
        while self.messages and self.messages.pop()["role"] != "user":
            pass


def tokens_of(llama: Llama, tokens: Sequence[int], text: str) -> list[int]:
    """Return those of some tokens that make up a text; none if the text begins or ends inside a token."""
    pieces = [llama.piece(token) for token in tokens]
    whole, wanted = b"".join(pieces), text.encode()
    start = whole.find(wanted) if wanted else -1
    ends, n_bytes = [0], 0
    for piece in pieces:
        n_bytes += len(piece)
        ends.append(n_bytes)
    if start < 0 or start not in ends or start + len(wanted) not in ends:
        return []
    first = len(ends) - 1 - ends[::-1].index(start)  # control tokens before it have no bytes
    found = range(first, ends.index(start + len(wanted)))
    return [tokens[number] for number in found] if all(pieces[number] for number in found) else []
