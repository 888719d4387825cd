"""Mark the sentences of an answer with their sources, as the answer comes. The text itself stays without marks.

A sentence has ended where the next one begins. Its mark comes before the next one's first letter, so that what may be
the blanks after a sentence is held back until then.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TypeAlias

from ...documents.document import sentence_ends
from ...library.source_text import SourceText
from ...prompts.thought_splitter import Part
from ..answer.answer_stream import AnswerStream
from .answer_words import says_anything
from .find_sources import Passage

#: Passages with their documents, the best first.
Found: TypeAlias = list[tuple[SourceText, Passage]]

#: Finds the sources of a sentence by the first of its steps, the one after its last (None: to the end), and its text.
FindSources: TypeAlias = Callable[[int, int | None, str], Found]

#: Most sources of a sentence.
OF_SENTENCE = 3

#: A sentence has a mark for its best source, and for others with this part of the best one's share.
_ALSO = 0.5

#: The end of a text that may be the blanks after a sentence, or the beginning of a block of Markdown.
_HELD = re.compile(r"[\s|]*(?:\n[ \t]*(?:[-*+|#>]+|\d+[.)]?))?$")

#: What may follow a sentence's last character: blanks, and the bar that ends a row of a table.
_AFTER = " \t\r\n|"


class AnswerMarks:
    """Find the sources of an answer sentence by sentence.

    Parameters
    ----------
    stream : AnswerStream
        The answer as it comes.
    find : FindSources
        Finds the sources of a sentence.
    """

    def __init__(self, stream: AnswerStream, find: FindSources) -> None:
        self._stream, self._find = stream, find
        self._marked: Found = []
        self._others: Found = []
        self._n_shown = self._n_ended = self._stop = 0

    def stream(self, parts: Generator[Part, None, None]) -> Generator[Part, None, None]:
        """Yield the stream's parts as they come, with marks."""
        with closing(parts):
            for part in parts:
                yield from self.add([part]) or [Part("")]

    def add(self, parts: Sequence[Part] = (), is_over: bool = False) -> list[Part]:
        """Take over new text of the stream; return the parts to show now, each sentence's last one with its marks.

        Parameters
        ----------
        parts : sequence of Part
            The stream's new parts. Thoughts stay as they are.
        is_over : bool
            Whether no more text comes, also if the answer has not ended.
        """
        text, is_over = self._stream.text, is_over or self._stream.ended
        shown = [part for part in parts if part.is_thought]
        for end in self._new_ends(text, is_over):
            start, marks = self._n_ended + _n_blank(text[self._n_ended : end]), tuple[int, ...]()
            stop = max(self._n_ended + len(text[self._n_ended : end].rstrip(_AFTER)), start)
            if stop > start and not self._is_fragment(start, is_last=end == len(text)):
                marks = self._marks_of(start, stop, is_last=end == len(text))
            shown.append(Part(text[self._n_shown : stop], marks=marks))
            self._n_shown, self._n_ended = max(self._n_shown, stop), end
        rest = text[self._n_shown :]
        held = None if is_over else _HELD.search(rest)
        if certain := rest[: held.start()] if held else rest:
            shown.append(Part(certain))
            self._n_shown += len(certain)
        return shown

    def named(self, numbers: Sequence[int]) -> Found:
        """Return the sources that marks name."""
        return [self._marked[number - 1] for number in numbers]

    def sources(self, most: int) -> Found:
        """Return the sources of the answer so far: first the ones that marks number, then likely others.

        Parameters
        ----------
        most : int
            Most sources, unless there are marks of more.
        """
        self.add(is_over=True)
        found = list(self._marked)
        for document, passage in sorted(self._others, key=lambda other: -other[1].share):
            if len(found) < most and _place_among(found, document, passage) is None:
                found.append((document, passage))
        total = max(sum(passage.share for _, passage in found), 1.0)
        return [(document, replace(passage, share=passage.share / total)) for document, passage in found]

    def _new_ends(self, text: str, is_over: bool) -> list[int]:
        """Return where more sentences end. One without a letter, such as "1.", is a part of the next."""
        begin, ends = self._n_ended, list[int]()
        for end in (self._n_ended + end for end in sentence_ends(text[self._n_ended :])):
            if text[end:].strip() and any(map(str.isalpha, text[begin:end])):
                ends.append(end)
                begin = end
        return [*ends, len(text)] if is_over and begin < len(text) else ends

    def _is_fragment(self, start: int, is_last: bool) -> bool:
        """Return whether a sentence was cut before it said anything."""
        return is_last and not self._stream.ended_by_model and not says_anything(self._stream.text[start:])

    def _marks_of(self, start: int, stop: int, is_last: bool) -> tuple[int, ...]:
        """Find the sources of a sentence; return their numbers."""
        starts, text = self._stream.starts, self._stream.text[start:stop]
        first = bisect_left(starts, self._stop) if self._stop else 0
        found = self._find(first, None if is_last else bisect_left(starts, stop), text)
        self._stop, numbers = stop, list[int]()
        for document, passage in found:
            if passage.share < _ALSO * found[0][1].share:
                self._others.append((document, passage))
                continue
            place = _place_among(self._marked, document, passage)
            if place is None:
                place = len(self._marked)
                self._marked.append((document, passage))
            if place + 1 not in numbers:
                known = self._marked[place][1]
                marked = replace(known, share=max(known.share, passage.share), marks=(*known.marks, (start, stop)))
                self._marked[place] = self._marked[place][0], marked
                numbers.append(place + 1)
        return tuple(numbers)


def _n_blank(text: str) -> int:
    return len(text) - len(text.lstrip())


def _place_among(found: Found, document: SourceText, passage: Passage) -> int | None:
    """Return which of some passages is the same one: it shares half of the shorter one's characters."""
    for place, (other_document, other) in enumerate(found):
        common = min(passage.stop, other.stop) - max(passage.start, other.start)
        shorter = min(passage.stop - passage.start, other.stop - other.start)
        if document == other_document and common > 0 and 2 * common >= shorter:
            return place
    return None
