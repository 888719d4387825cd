"""Whether a model thinks before it answers, and how long."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .thought_form import Thoughts

#: Notice that a template cannot turn thinking off.
NO_SWITCH = "This model's chat template has no switch for thinking: octavo ends each thought as soon as it begins."


class Thinking:
    """Settings of thinking, for one model.

    Parameters
    ----------
    thoughts : Thoughts, optional
        How the model thinks; None if it does not.
    think : bool, optional
        Whether the model should think; None leaves that to its chat template.
    budget : int, optional
        Largest number of tokens of a thought.

    Attributes
    ----------
    options : mapping
        Variables of the chat template that turn thinking on or off.
    has_no_switch : bool
        Whether thinking should be off, but the template has no switch. Then each thought ends as soon as it begins.
    """

    def __init__(self, thoughts: Thoughts | None, think: bool | None, budget: int | None) -> None:
        switch = thoughts.switch(think) if thoughts is not None and think is not None else {}
        self.thoughts = thoughts
        self.options: Mapping[str, Any] = switch or {}
        self.has_no_switch = think is False and switch is None
        self._budget = 0 if self.has_no_switch else budget

    @property
    def is_off(self) -> bool:
        """Return whether a thought ends as soon as it begins."""
        return self._budget == 0

    def budget(self, room: int, max_tokens: int | None) -> int:
        """Return how many tokens a thought may have. The answer after it needs room in the context.

        Parameters
        ----------
        room : int
            Number of tokens that still fit the context.
        max_tokens : int, optional
            Largest number of tokens of the answer. The thought leaves room for as many, but for no more than half.
        """
        if self.thoughts is None:
            return 0
        kept = min(room // 2, max_tokens or room)
        most = max(room - kept - len(self.thoughts.closing), 0)
        return most if self._budget is None else min(self._budget, most)
