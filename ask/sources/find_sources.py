"""Turn the attention to a document into passages that one can read and check."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from ...documents.document import Place, hash_text, place_at, sentences
from ...runtime.llama import Llama
from ...settings import check_whole
from .answer_words import has_answer

#: A source needs 4 % of the attention; in a short text twice the mean share of its sentences, at most 25 %. A sentence
#: beside a source needs half of that.
_LEAST, _TIMES, _MOST = 0.04, 2, 0.25

#: Share of the attention from which on a passage is a source, whatever its words: many a wrong answer looks somewhere.
_PLAIN = 0.2

#: Sentences of a quote.
_QUOTED = 2


@dataclass(frozen=True)
class Passage:
    """A passage of a document that an answer comes from.

    Parameters
    ----------
    quote : str
        The one or two sentences with most attention.
    share : float
        Its share of the attention to the document, beyond the attention of any text, in the part of the answer with
        most attention to it: the mean over the retrieval heads. If an answer's parts come from several passages, the
        shares are divided by their sum. 0 of a passage that was found by its words.
    start, stop : int
        Characters of the document's text where the quote starts and stops.
    line : int
        Line in which the quote starts, from 1, in the whole file, even if the document is a part of it.
    page : str or None
        Label of the page, in a document that has pages.
    heading : str or None
        Headings above the passage, from the outermost one on: "Methods > Data".
    document : str or None
        The document's file, if there are several.
    by : {"attention", "words"}
        How it was found: where the model looked, or by names, numbers or phrases that the answer has of it.
    marks : tuple of (int, int)
        Characters of the answer where the sentences that come from it start and stop.
    """

    quote: str
    share: float
    start: int
    stop: int
    line: int
    page: str | None
    heading: str | None
    document: str | None = None
    by: Literal["attention", "words"] = "attention"
    marks: tuple[tuple[int, int], ...] = ()

    def as_json(self) -> dict[str, Any]:
        marks = [{"start": start, "stop": stop} for start, stop in self.marks]
        known = {**asdict(self), "share": round(self.share, 4), "marks": marks}
        return {name: value for name, value in known.items() if name != "document" or value is not None}


@dataclass(frozen=True)
class TokenText:
    """The text of some tokens.

    Parameters
    ----------
    starts : int64 array, shape (n_tokens,)
        Offset of the character in which each token begins.
    places : sequence of Place
        Where its pages and headings begin, by rising offset.
    first_line : int
        Number of the text's first line.
    """

    text: str
    starts: np.ndarray
    places: Sequence[Place] = ()
    first_line: int = 1

    @classmethod
    def of(
        cls, pieces: Sequence[bytes], sha256: str = "", places: Sequence[Place] = (), first_line: int = 1
    ) -> TokenText:
        """Join the pieces of a text.

        Parameters
        ----------
        pieces : sequence of bytes
            Text of each token.
        sha256 : str
            Hash of the tokenized text, in hexadecimal digits: some tokenizers put a blank before it.
        """
        content = b"".join(pieces)
        begins = (np.frombuffer(content + b" ", np.uint8) & 0xC0) != 0x80  # bytes that begin a character
        starts = (np.cumsum(begins) - 1)[np.cumsum([0, *map(len, pieces)])[:-1]]
        text = content.decode("utf-8", "replace")
        if text.startswith(" ") and hash_text(text[1:]) == sha256:
            return cls(text[1:], np.maximum(starts - 1, 0), places, first_line)
        return cls(text, starts, places, first_line)

    @classmethod
    def of_beginning(cls, llama: Llama, tokens: np.ndarray, text: str) -> TokenText:
        """Join the pieces of the first tokens of a text."""
        made = cls.of([llama.piece(token) for token in tokens.tolist()])
        has_blank = made.text.startswith(" ") and not text.startswith(made.text[:2])
        return cls(made.text[1:], np.maximum(made.starts - 1, 0)) if has_blank else made

    @cached_property
    def borders(self) -> np.ndarray:
        """Return the beginnings of the text's sentences, and its end."""
        return np.array(sentences(self.text))

    @cached_property
    def sentence_of(self) -> np.ndarray:
        """Return the number of the sentence in which each token begins."""
        found = np.searchsorted(self.borders, self.starts, side="right") - 1
        return np.clip(found, 0, len(self.borders) - 2)

    def passage(self, start: int, stop: int, share: float = 0.0) -> Passage:
        """Return the passage between two characters; by its words without a share."""
        quote = self.text[start:stop]
        start += len(quote) - len(quote.lstrip())
        place = place_at(self.places, start)
        page, heading = (place.page, place.heading) if place else (None, None)
        line = self.text.count("\n", 0, start) + self.first_line
        how: Literal["attention", "words"] = "attention" if share else "words"
        return Passage(" ".join(quote.split()), share, start, stop, line, page, heading, by=how)


def passages(text: TokenText, attended: np.ndarray, most: int) -> list[Passage]:
    """Find the passages with most attention. Neighbouring sentences with attention form one passage.

    Parameters
    ----------
    attended : float32 array, shape (n_parts, n_tokens)
        Attention of each part of an answer to the tokens, beyond the attention of any text (`Recorder.attended`).

    Returns
    -------
    list of Passage
        At most `most`, the largest shares first; none if no sentence stands out.
    """
    check_whole("most", most, 1)
    borders, n_sentences = text.borders, len(text.borders) - 1
    shares = np.stack([np.bincount(text.sentence_of, part, n_sentences) for part in attended])
    best = shares.max(axis=0)
    least = max(_LEAST, min(_TIMES / n_sentences, _MOST))
    marked = np.flatnonzero(best >= least / 2)
    runs = np.split(marked, np.flatnonzero(np.diff(marked) > 1) + 1)
    found = [(float(shares[:, run].sum(axis=1).max()), run) for run in runs if len(run)]
    found = sorted((candidate for candidate in found if candidate[0] >= least), key=lambda candidate: -candidate[0])
    return [text.passage(*_quoted(run, best, borders), share) for share, run in found[:most]]


def likely_passages(text: TokenText, attended: np.ndarray, answer: str, question: str, most: int) -> list[Passage]:
    """Find the passages with most attention that an answer may come from.

    One with little attention has a word of the answer that the question lacks. See `passages`.
    """
    found = passages(text, attended, most)
    return [each for each in found if each.share >= _PLAIN or has_answer(each.quote, answer, question)]


def _quoted(run: np.ndarray, best: np.ndarray, borders: np.ndarray) -> tuple[int, int]:
    """Return the bounds of a quote: the sentence of a run with most attention, and its better neighbour."""
    first = stop = int(run[best[run].argmax()])
    stop += 1
    while stop - first < min(_QUOTED, len(run)):
        before = best[first - 1] if first > run[0] else -1.0
        after = best[stop] if stop <= run[-1] else -1.0
        first, stop = (first - 1, stop) if before > after else (first, stop + 1)
    return int(borders[first]), int(borders[stop])
