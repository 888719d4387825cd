"""The questions and answers of a conversation, from which each prompt is rendered anew.

A template may write a finished answer in another way than the model wrote it: it strips thoughts, or puts something
before the text. So the tokens in a context need not be those of the next prompt; what differs is read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ...library.source_text import SourceText
from ...system.files import FileVersion

#: A message in OpenAI's form.
Message = dict[str, str]


@dataclass
class History:
    """The messages of a conversation, without its document and system prompt.

    Parameters
    ----------
    messages : list of dict
        Questions and answers in turns. The last question has no answer if the model was stopped before it.
    spoken : dict of str to list of int
        Tokens of the texts that the model wrote.
    read : list of FileVersion
        The files that answers came from, as they were then.
    """

    messages: list[Message] = field(default_factory=list)
    spoken: dict[str, list[int]] = field(default_factory=dict)
    read: list[FileVersion] = field(default_factory=list)

    def copy(self) -> History:
        return History([*self.messages], {**self.spoken}, [*self.read])

    def asked(self, question: str, documents: Iterable[SourceText] = ()) -> History:
        """Return a copy with a further question over some documents, in place of one without an answer."""
        answered = self.messages[:-1] if self.messages and self.messages[-1]["role"] == "user" else self.messages
        versions = [document.version for document in documents if document.version is not None]
        read = [*dict.fromkeys([*self.read, *versions])]
        return History([*answered, {"role": "user", "content": question}], {**self.spoken}, read)

    def answer(self, answer: str, reasoning: str, drawn: Sequence[tuple[int, bytes]]) -> None:
        """Add the answer to the last question.

        Parameters
        ----------
        drawn : sequence of (int, bytes)
            All tokens that the model wrote, with their texts; control tokens have none.
        """
        thoughts = {"reasoning_content": reasoning} if reasoning else {}
        self.messages.append({"role": "assistant", "content": answer, **thoughts})
        for text in (answer.strip(), reasoning.strip()):
            tokens = tokens_of(drawn, text)
            if tokens:
                self.spoken[text] = tokens

    @property
    def last_question(self) -> str:
        """Return the last question; "" without one."""
        asked = (message["content"] for message in reversed(self.messages) if message["role"] == "user")
        return str(next(asked, ""))

    def forget_last(self) -> None:
        """Forget the last question, and its answer."""
        while self.messages and self.messages.pop()["role"] != "user":
            pass


def tokens_of(drawn: Sequence[tuple[int, bytes]], text: str) -> list[int]:
    """Return those of some tokens that make up a text; none if the text begins or ends inside a token."""
    pieces = [piece for _, piece in drawn]
    whole, wanted = b"".join(pieces), text.encode()
    if whole.decode(errors="replace") == text:  # whose bytes need not be UTF-8
        wanted = whole
    start = whole.find(wanted) if wanted else -1
    ends, n_bytes = [0], 0
    for piece in pieces:
        n_bytes += len(piece)
        ends.append(n_bytes)
    if start < 0 or start not in ends or start + len(wanted) not in ends:
        return []
    first = len(ends) - 1 - ends[::-1].index(start)  # control tokens before it have no bytes
    found = range(first, ends.index(start + len(wanted)))
    return [drawn[number][0] for number in found] if all(pieces[number] for number in found) else []
