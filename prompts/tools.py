"""Describe tools to a model, and find its calls in its answer."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from .call_form import HERMES, CallForm, Style
from .call_parser import CallParser, FoundCall
from .message_forms import ID_LENGTH
from .thought_splitter import Part, n_begun

#: Most texts of an answer that only begin as calls: each may be looked for to the end of the text. A model that
#: repeats them without end calls nothing.
_MOST_FAILED = 50


@dataclass(frozen=True)
class ToolCall:
    """A call of a function.

    Parameters
    ----------
    arguments : str
        The arguments, in JSON.
    id : str
        Id that the result refers to: nine letters and digits, as Mistral's templates want.
    """

    name: str
    arguments: str
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:ID_LENGTH])


class CallFinder:
    """Separate calls from text in an answer as it comes.

    Parameters
    ----------
    tools : sequence of dict
        The functions that may be called, in OpenAI's form.
    forms : sequence of CallForm
        Forms in which the model may write calls.
    forced : bool
        Whether the whole answer is a call, as a grammar makes it.
    hidden : collection of str
        Texts of control tokens, which are not part of an answer's text.
    begins : bool
        Whether the text may begin with a call without its first texts, as an answer may.
    """

    def __init__(
        self,
        tools: Sequence[dict[str, Any]],
        forms: Sequence[CallForm] = (HERMES,),
        forced: bool = False,
        hidden: Collection[str] = (),
        begins: bool = True,
    ) -> None:
        schemas = {tool["function"]["name"]: tool["function"].get("parameters") or {} for tool in tools}
        self._names, self._forced = list(schemas), forced
        self._parsers = [CallParser(form, schemas) for form in forms]
        self._bare = [parser for parser in self._parsers if parser.form.begun or not parser.form.triggers]
        self._bare.append(CallParser(CallForm(Style.OBJECT), schemas))
        self._triggers = [(text, parser) for parser in self._parsers for text in parser.form.triggers]
        self._hidden = re.compile("|".join(map(re.escape, hidden))) if hidden else None
        self._held, self._begins = "", begins
        self._last: CallParser | None = None
        self._n_failed = 0

    def add(self, text: str) -> list[str | ToolCall]:
        """Add a piece of the answer, and return the parts that are certain."""
        self._held += text
        if self._forced or (self._begins and self._may_be_bare()):
            return []
        return self._found(is_whole=False)

    def end(self) -> list[str | ToolCall]:
        """Return the remainder."""
        for parser in [*self._bare, *(self._parsers if self._forced else ())] if self._begins else ():
            held = self._held.strip()
            calls = parser.parse(held, is_whole=True)
            rest = held[calls[-1].stop :] if calls else held
            if calls and (parser.form.begun or not rest.strip()):
                self._held, self._last = rest, parser
                return [*map(_tool_call, calls), *self._found(is_whole=True)]
        return self._found(is_whole=True)

    @property
    def n_held(self) -> int:
        """Return the number of characters that may be a call: each piece has them parsed again."""
        return len(self._held)

    def _may_be_bare(self) -> bool:
        """Return whether the answer may itself be a call."""
        head = self._held.lstrip()
        if head[:1] in ("", "{"):
            return True
        named = any(parser.form.style is Style.NAMED for parser in self._bare)
        return named and any(name.startswith(head) or head.startswith(name) for name in self._names)

    def _found(self, is_whole: bool) -> list[str | ToolCall]:
        """Return the calls and the text that is certain."""
        self._begins, found = False, list[str | ToolCall]()
        while self._held:
            if self._last is not None and not self._after_call(is_whole):
                break
            place = min((at for text, _ in self._triggers if (at := self._held.find(text)) >= 0), default=-1)
            if self._n_failed > _MOST_FAILED:
                found += self._text(len(self._held))
                break
            if place < 0:
                n_unsure = 0 if is_whole else n_begun(self._held, [text for text, _ in self._triggers])
                found += self._text(len(self._held) - n_unsure)
                break
            found += self._text(place)
            parsers = [parser for text, parser in self._triggers if self._held.startswith(text)]
            calls, last = next(
                ((calls, parser) for parser in parsers if (calls := parser.parse(self._held, is_whole))), ([], None)
            )
            if calls:
                found += map(_tool_call, calls)
                self._held, self._last = self._held[calls[-1].stop :], last
            elif not is_whole and self._may_be_call():
                break
            else:
                self._n_failed += 1
                found += self._text(max(len(text) for text, _ in self._triggers if self._held.startswith(text)))
        return found

    def _may_be_call(self) -> bool:
        """Return whether the text begins with a call, as far as it has come."""
        held = self._held
        return any(
            text.startswith(held) or (held.startswith(text) and parser.may_begin(held))
            for text, parser in self._triggers
        )

    def _after_call(self, is_whole: bool) -> bool:
        """Leave out the end of calls, and blanks after a call. Return whether the next text is certain."""
        assert self._last is not None
        self._held = self._held[self._last.ended(self._held) :].lstrip("\n")
        end = self._last.form.end.strip()
        return is_whole or not (self._held and end.startswith(self._held))

    def _text(self, stop: int) -> list[str | ToolCall]:
        """Return the text up to a place, and no longer hold it."""
        text, self._held = self._held[:stop], self._held[stop:]
        if text:
            self._last = None
        text = self._hidden.sub("", text) if self._hidden else text
        return [text] if text else []


class AnswerReader:
    """Find calls in an answer, and in a thought that no answer follows.

    Some models call a function in the middle of a thought, and end. A call in a thought that leads to an answer is part
    of the thought: the model has only planned it.

    Parameters
    ----------
    tools : sequence of dict
        The functions that may be called; this and the others are as in `CallFinder`.
    """

    def __init__(
        self, tools: Sequence[dict[str, Any]], forms: Sequence[CallForm], forced: bool, hidden: Collection[str]
    ) -> None:
        self._answer = CallFinder(tools, forms, forced, hidden)
        self._tools, self._forms = tools, forms
        self._forget_thought()

    def _forget_thought(self) -> None:
        self._in_thought = CallFinder(self._tools, self._forms, begins=False)
        self._thought = ""  # the part that is held back
        self._found: list[Part | ToolCall] = []  # in it, from the first call on

    @property
    def n_held(self) -> int:
        """Return the number of characters that may be calls."""
        return self._answer.n_held + self._in_thought.n_held

    def add(self, text: str, is_thought: bool) -> list[Part | ToolCall]:
        """Add a piece of the answer or of a thought, and return the parts that are certain."""
        if not is_thought:
            before = self._end_of_thought(follows=True) if text.strip() else []
            return [*before, *_parts(self._answer.add(text))]
        self._thought += text
        self._found += _parts(self._in_thought.add(text), is_thought=True)
        n_before = next((n for n, part in enumerate(self._found) if isinstance(part, ToolCall)), len(self._found))
        certain, self._found = self._found[:n_before], self._found[n_before:]
        self._thought = self._thought[sum(len(part.text) for part in certain if isinstance(part, Part)) :]
        return certain

    def _end_of_thought(self, follows: bool) -> list[Part | ToolCall]:
        """Return the rest of a thought, with its calls unless an answer follows."""
        found = [*self._found, *_parts(self._in_thought.end(), is_thought=True)]
        held = self._thought
        self._forget_thought()
        return ([Part(held, True)] if held else []) if follows else found

    def end(self) -> list[Part | ToolCall]:
        """Return the remainder."""
        return [*self._end_of_thought(follows=False), *_parts(self._answer.end())]


def _parts(found: Sequence[str | ToolCall], is_thought: bool = False) -> list[Part | ToolCall]:
    return [Part(each, is_thought) if isinstance(each, str) else each for each in found]


def _tool_call(call: FoundCall) -> ToolCall:
    arguments = json.dumps(call.arguments, ensure_ascii=False)
    return ToolCall(call.name, arguments.encode(errors="replace").decode())  # half a surrogate pair cannot be sent
