"""Ask models that think for the answer alone: of a text's parts, and where scores judge answers, not thoughts."""

from __future__ import annotations

from collections.abc import Callable

from .chat_template import PromptModel
from .conversation_tokens import ConversationTokens
from .thought_form import Stage, Thinking, Thoughts


class DirectPrompt(ConversationTokens):
    """A prompt whose answers come without a thought: the template's own switch is off, or each thought is empty."""

    def __init__(self, llama: PromptModel, has_document: bool = True) -> None:
        self._thinking = Thinking(Thoughts.of(llama), think=False, budget=None)
        super().__init__(llama, has_document, "", self._thinking.options)

    def first_question(self, question: str) -> list[int]:
        """Return the tokens from the end of the document to the beginning of the answer."""
        return self._without_thought(super().first_question(question))

    def tail(self) -> list[int]:
        """Return the tokens between a question and its answer."""
        return self._without_thought(super().tail())

    def _without_thought(self, tokens: list[int]) -> list[int]:
        """Add an empty thought, or the end of one that the prompt has begun, if the template has no switch."""
        thoughts = self._thinking.thoughts
        if thoughts is None or not self._thinking.has_no_switch:
            return tokens
        stage = thoughts.stage_after(self._model, tokens)
        start = self._tokenize(thoughts.plain.start, special=True) if stage is Stage.BEFORE else []
        return [*tokens, *start, *thoughts.closing] if stage in (Stage.BEFORE, Stage.THOUGHT) else tokens


def say_that_it_does_not_think(llama: PromptModel, notice: Callable[[str], None]) -> None:
    """Say that a model which thinks answers at once."""
    if Thoughts.of(llama) is not None:
        notice("This model thinks before it answers. Here it answers at once: scores judge answers, not thoughts.")
