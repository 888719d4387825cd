"""Lists: the sentences of a text that have what a question asks for all of, merged where they say the same.

A model may leave out what it lists, repeat it or invent it. So it only words an item: each item is a sentence of the
text that has most words of the question, or that the model's answer comes from.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ....library.document_parts import without_part
from ....library.question_words import asks_which_texts, roots, says_something, sought_words
from ....library.source_text import SourceText
from ...answer.notices import unfounded
from ...answer.written_numbers import NUMBER, folded, plain_number
from ...sources.answer_words import has_answer
from ...sources.find_sources import Passage, passages
from ..answer_context import Context
from .finding import Finding

#: Share of the question's words that an item's sentence has; and that one has from which the model's answer comes.
_ITEM, _ANSWER = 0.75, 0.5

#: Marks before a line of a list.
_MARK = re.compile(r"^\s*([-*•]|\d+[.)])\s*")

#: A number, a word, and a sign that changes what a number says.
_WORD = re.compile(rf"{NUMBER.pattern}|[^\W\d_]+|(?<!\w)[-\u2212](?=\d)|[$€£¥%<>=+°]")

#: The "not" of "wasn't".
_NOT = re.compile(r"n['\u2019]t\b")

#: A word with a capital letter after another word: a name in most languages.
_NAME = re.compile(r"(?<=[^\W\d_] )[^\W\d_]+")

#: Words without which items say the same, in a line for each language: articles, forms of "be", and "of".
_CHANGE_NOTHING = """
a an the of s is are was were be been
der die das des dem den ein eine einer eines einem einen von vom ist sind war waren
le la les l de d du des un une est sont était étaient
el los las del una unos unas es son era eran
il lo i gli di dello della dei degli delle uno è sono
o os as do da dos das um uma é são
"""
_SILENT = frozenset(_CHANGE_NOTHING.split())

#: Words that a line has to share with the sentence that proves it.
_NO = """
not no never without nicht kein keine keinen keinem keiner nie ohne niet geen nooit zonder ne pas jamais sans nunca non
senza não sem
"""
_NEGATIONS = frozenset(_NO.split())

#: Most sources of one item that are named.
_NAMED = 3


def items_of(context: Context, attended: np.ndarray | None, answer: str, question: str) -> list[tuple[str, Passage]]:
    """Return the items of an excerpt of one document, each with its sentence.

    Parameters
    ----------
    attended : float32 array, shape (n_parts, n_tokens), or None
        The attention of the answer to the context.
    answer : str
        What the model answers over the excerpt.
    """
    sought = roots(sought_words(question))
    found = [
        passage
        for passage in _sentences(context)
        if sought and len(sought & roots(passage.quote)) >= _ITEM * len(sought)
    ]
    if not found and not asks_which_texts(question):
        found = [
            passage
            for passage in _attended(context, attended)
            if len(sought & roots(passage.quote)) >= _ANSWER * len(sought)
            and has_answer(passage.quote, answer, question)
        ][:1]
    return [(_worded(passage, answer, question), passage) for passage in found]


def _sentences(context: Context) -> Iterator[Passage]:
    """Yield the sentences of a context."""
    for document, start, stop in context.spans:
        text = context.text_of(document)
        for number in np.unique(text.sentence_of[start:stop]).tolist():
            yield text.passage(*text.borders[number : number + 2].tolist())


def _attended(context: Context, attended: np.ndarray | None) -> Iterator[Passage]:
    """Yield the passages of a context with most attention."""
    if attended is None:
        return
    at = context.index.n_prefix
    for document, start, stop in context.spans:
        text = context.text_of(document)
        of_document = np.zeros((len(attended), len(text.starts)), np.float32)
        of_document[:, start:stop] = attended[:, at : at + stop - start]
        at += stop - start
        yield from passages(text, of_document, 1)


def _worded(passage: Passage, answer: str, question: str) -> str:
    """Return the lines of an answer that a sentence proves, or else the sentence."""
    lines = [_MARK.sub("", line).strip().rstrip(".:;,") for line in answer.split("\n")]
    quote = passage.quote.encode()
    proven = [
        line
        for line in dict.fromkeys(lines)
        if has_answer(passage.quote, line, question)
        and not unfounded(f"It is {line}", [question], [quote])
        and roots(line) <= roots(passage.quote) | roots(question)
        and _NEGATIONS.isdisjoint({*_said(passage.quote)} - {*_said(line)})
    ]
    return "; ".join(proven) or passage.quote


@dataclass
class Row:
    """A line of a list.

    Parameters
    ----------
    text : str
        The item; the name of a document, where documents are asked for.
    sources : list of (SourceText, Passage)
        The sentences that have it, with their documents.
    """

    text: str
    sources: list[tuple[SourceText, Passage]]


def rows_of(findings: Iterable[Finding], question: str) -> list[Row]:
    """Merge the items of findings: a line of an answer is an item, and its passage the one of the same number.

    Items that have the same words in the same order, or the same sentence, are one. Words that name the kind of item do
    not count. Where a question asks which texts mention something, each text is one.
    """
    by_text, wanted = asks_which_texts(question), _named(question)
    rows: dict[object, Row] = {}
    of_places: dict[tuple[SourceText, int], Row] = {}
    for finding in findings:
        name = without_part(finding.document.name)
        for text, passage in zip(finding.answer.split("\n"), finding.passages, strict=False):
            source, place = (finding.document, passage), (finding.document, passage.start)
            words = tuple(word for word in _said(text) if word.removesuffix("s") not in wanted)
            key: object = finding.document.of_file if by_text else words or place
            row = rows.get(key) or of_places.get(place)
            if row is None:
                row = rows[key] = Row(name if by_text else text, [])
            if all((other, one.start) != place for other, one in row.sources):
                row.sources.append(source)
            of_places[place] = row
    return list(rows.values())


def _said(text: str) -> list[str]:
    """Return the words, numbers and signs of an item in order, without case; without those that change nothing."""
    words = (word.casefold() for word in _WORD.findall(_NOT.sub(" not", folded(text))))
    return [plain_number(word) if NUMBER.fullmatch(word) else word for word in words if word not in _SILENT]


def _named(question: str) -> set[str]:
    """Return the words of a question that name what it lists: not names and numbers, which differ among items."""
    names = {name.casefold() for name in _NAME.findall(question) if name[0].isupper()}
    words = (word for word in _said(question) if says_something(word) and word.isalpha() and word not in names)
    return {word.removesuffix("s") for word in words}


def written(rows: Sequence[Row], n_texts: int) -> tuple[str, list[tuple[int, int]]]:
    """Write a list with its proof, as Markdown; return it, and where each item begins and ends.

    Parameters
    ----------
    n_texts : int
        How many documents there are, where documents are listed; 0 for a list of other things.
    """
    of = f" of {n_texts:,} documents" if n_texts else ""
    text, places = f"{len(rows):,}{of} found:\n", list[tuple[int, int]]()
    for number, row in enumerate(rows, 1):
        quote = row.sources[0][1].quote
        shown = "; ".join(_place(*source) for source in row.sources[:_NAMED])
        more = f" and {len(row.sources) - _NAMED:,} more" if len(row.sources) > _NAMED else ""
        item = f"{number}. {'' if row.text == quote else f'{row.text}: '}“{quote}”"
        start = len(text) + len("\n")
        places.append((start, start + len(item)))
        text += f"\n{item} ({shown}{more})"
    return text, places


def _place(document: SourceText, passage: Passage) -> str:
    page = f"page {passage.page}" if passage.page else f"line {passage.line:,}"
    return f"{document.name}, {page}"
