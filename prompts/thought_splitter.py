"""Separate a model's thoughts from its answer, as the text comes. Knows no model: text in, parts out."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from typing import NamedTuple

from .thought_form import Stage, ThoughtForm


class Part(NamedTuple):
    """A piece of an answer, or of a thought before it.

    Parameters
    ----------
    marks : tuple of int, optional
        Numbers of the sources, from 1, of the sentence that ends with this piece; None within a sentence, and of
        answers without marks (ask/sources/answer_marks.py).
    """

    text: str
    is_thought: bool = False
    marks: tuple[int, ...] | None = None


def without_thoughts(parts: Generator[Part, None, None]) -> Generator[str, None, None]:
    """Yield the texts of an answer's parts; nothing for parts of thoughts."""
    with closing(parts):
        for part in parts:
            yield "" if part.is_thought else part.text


class ThoughtSplitter:
    """Split a text into thoughts and an answer: the same ones, however the text is cut into pieces.

    A thought counts at the beginning. Later tags are text, unless the form has several thoughts in an answer. Blanks
    around a thought belong to neither.

    Parameters
    ----------
    form : ThoughtForm, optional
        How the model writes thoughts; without one, everything is the answer.
    stage : Stage
        Where the text begins: the prompt may have begun a thought, or ended one.

    Attributes
    ----------
    stage : Stage
        Where the text is.
    """

    def __init__(self, form: ThoughtForm | None, stage: Stage = Stage.BEFORE) -> None:
        self._form, self.stage = form, stage if form else Stage.ANSWER
        self._held = ""
        self._begun = False  # whether more than blanks of the current thought has come
        self._is_new = False  # whether nothing has been given since the last tag
        self._given: set[bool] = set()  # whether thoughts, and parts of the answer, have been given

    def add(self, text: str) -> list[Part]:
        """Add a piece of text; return the parts that are certain."""
        self._held += text
        parts: list[Part] = []
        while self._held:
            if self._form is None:
                part = self._take(len(self._held))
            elif self.stage is Stage.THOUGHT:
                part = self._think(self._form)
            elif self.stage in (Stage.ANSWER, Stage.WRAPPED):
                part = self._answer(self._form)
            else:
                part = self._begin(self._form)
            if part is None:  # more must come first
                break
            if part.text:
                parts.append(self._apart(part))
        return parts

    def rest(self) -> list[Part]:
        """Return the parts that were held back: the text has ended."""
        held, self._held = self._held, ""
        if self.stage is Stage.THOUGHT:
            held = held.rstrip() if self._begun else held.strip()
        elif self.stage is Stage.AFTER:
            held = held.strip()
        return [self._apart(Part(held, self.stage is Stage.THOUGHT))] if held else []

    def _apart(self, part: Part) -> Part:
        """Return a part, with a blank line before it if it begins another thought, or another part of the answer."""
        before = "\n\n" if self._is_new and part.is_thought in self._given else ""
        self._is_new = False
        self._given.add(part.is_thought)
        return part._replace(text=before + part.text)

    def continues(self, text: str) -> bool:
        """Return whether with a further text there may still come a thought, or the tag that opens the answer."""
        if self._form is None or self.stage in (Stage.ANSWER, Stage.WRAPPED):
            return False
        ahead = (self._held + text).lstrip()
        may_begin = not ahead or any(tag.startswith(ahead) or ahead.startswith(tag) for tag in self._tags())
        return self.stage is Stage.THOUGHT or may_begin

    def _tags(self) -> list[str]:
        assert self._form is not None
        thinks = self.stage is Stage.BEFORE or self._form.repeats
        return [*(self._form.starts if thinks else ()), *self._form.openings]

    def _begin(self, form: ThoughtForm) -> Part | None:
        """Find the beginning of a thought, of an answer in tags, or of an answer."""
        ahead, tags = self._held.lstrip(), self._tags()
        tag = next((tag for tag in tags if ahead.startswith(tag)), None)
        if tag is not None:
            return self._pass(len(self._held) - len(ahead) + len(tag), form, tag)
        if not ahead or any(tag.startswith(ahead) for tag in tags):
            return None
        if self.stage is Stage.AFTER:
            self._held = ahead.removeprefix(form.again)
        self.stage = Stage.ANSWER
        return Part("")

    def _think(self, form: ThoughtForm) -> Part | None:
        """Take a part of a thought, up to its end. Blanks at its end wait for the next text."""
        if not self._begun:
            self._held = self._held.lstrip()
        end = self._held.find(form.end)
        if end >= 0:
            return self._take(len(self._held[:end].rstrip()), True) or self._pass(end + len(form.end), form, form.end)
        sure = self._held[: len(self._held) - n_begun(self._held, [form.end])].rstrip()
        self._begun |= bool(sure)
        return self._take(len(sure), True)

    def _answer(self, form: ThoughtForm) -> Part | None:
        """Take a part of an answer, up to the tag that closes it, or to another thought."""
        tags = [*(form.closes if self.stage is Stage.WRAPPED else ()), *(form.starts if form.repeats else ())]
        found = [(place, tag) for tag in tags if (place := self._held.find(tag)) >= 0]
        if not found:
            return self._take(len(self._held) - n_begun(self._held, tags))
        place, tag = min(found)
        return self._take(place) or self._pass(len(tag), form, tag)

    def _pass(self, n: int, form: ThoughtForm, tag: str) -> Part:
        """Pass a tag, which ends after n characters."""
        self._held, self._begun, self._is_new = self._held[n:], False, True
        is_opening = self.stage in (Stage.BEFORE, Stage.AFTER)
        self.stage = Stage.THOUGHT if tag in form.starts else Stage.WRAPPED if is_opening else Stage.AFTER
        return Part("")

    def _take(self, n: int, is_thought: bool = False) -> Part | None:
        """Take n characters off the held text; None if there are none to take."""
        if n == 0:
            return None
        part = Part(self._held[:n], is_thought)
        self._held = self._held[n:]
        return part


def n_begun(text: str, tags: Sequence[str]) -> int:
    """Return the number of characters at the end of a text that may begin one of some tags."""
    lengths = (
        next((n for n in range(min(len(tag) - 1, len(text)), 0, -1) if text.endswith(tag[:n])), 0) for tag in tags
    )
    return max(lengths, default=0)
