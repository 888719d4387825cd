"""Find the sentence that an answer was taken from by its words: names, numbers and phrases that the question lacks.

It is the source of an answer whose attention names none: a model may know what it read a moment ago by other heads. A
sentence counts only if it also has much of the question, as far as the text has it: most wrong answers are made of
words of their text, too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain, pairwise

from ...library.question_words import rarity, root, says_something
from ...library.text_store import split_characters
from ..answer.written_numbers import NUMBER, folded, numbers_of, plain_number

#: A number, or a word.
_WORD = re.compile(rf"{NUMBER.pattern}|[^\W\d_]+")

#: Fewest letters of a name.
_NAME = 3

#: Most new words of an answer that is a phrase by itself.
_SHORT = 3

#: Weight of the question's words in the sentence before; the share of them all that a sentence needs, and that
#: one needs with a phrase of an answer without names and numbers.
_BEFORE, _LEAST, _OF_PHRASE = 0.5, 0.5, 0.75


class _Words:
    """The words of a sentence, an answer or a question that say something.

    Attributes
    ----------
    written, plain : list of str
        As they are written, and as they compare.
    facts, roots : set of str
        The words, the numbers in all their readings and the dates; and the words without their endings.
    """

    def __init__(self, text: str) -> None:
        words = _WORD.findall(split_characters(folded(text)))
        self.written = [word for word in words if says_something(word)]
        self.plain = [word.casefold() if word[0].isalpha() else plain_number(word) for word in self.written]
        numbers = {number for number in numbers_of(text) if len(number) > 1}  # "one" and "first" say little
        self.facts, self.roots = {*self.plain, *numbers}, set(map(root, self.plain))

    @property
    def phrases(self) -> set[tuple[str, str]]:
        """Return the pairs of words that follow one another."""
        return set(pairwise(self.plain))


class ReadSentences:
    """The sentences that a model saw, by their words.

    Parameters
    ----------
    sentences : sequence of str
        The sentences in order. The last one of a paragraph ends with a blank line.
    """

    def __init__(self, sentences: Sequence[str]) -> None:
        self._ends_paragraph = [sentence.endswith("\n\n") for sentence in sentences]
        self._read = list(map(_Words, sentences))
        self._facts, self._roots = (_Rarities(getattr(one, kind) for one in self._read) for kind in ("facts", "roots"))
        self._written = {word for one in self._read for word in one.written}

    def best(self, answer: str, question: str) -> int | None:
        """Return the number of the sentence that an answer was taken from, as its words say; None if they do not."""
        read, given, wanted = self._read, _Words(answer), _Words(question)
        new = _new(given, wanted)
        telling = new & _names_and_numbers(given, self._written)
        if not telling and len(new) <= _SHORT:
            telling = new
        of_facts, of_roots = self._facts, self._roots
        least, best, number_of_best = (_LEAST if telling else _OF_PHRASE) * of_roots.sum(wanted.roots), 0.0, None
        for number, one in enumerate(read):
            shared = telling & one.facts if telling else new & set(chain(*given.phrases & one.phrases))
            if not shared:
                continue
            begins = number == 0 or self._ends_paragraph[number - 1]
            before = set() if begins else read[number - 1].roots - one.roots
            of_question = of_roots.sum(wanted.roots & one.roots) + _BEFORE * of_roots.sum(wanted.roots & before)
            if of_question >= least and (score := of_facts.sum(shared) + of_question) > best:
                best, number_of_best = score, number
        return number_of_best

    def likeliest(self, question: str, most: int) -> list[int]:
        """Return the numbers of the sentences that share most with a question, by rare words; the best one first."""
        wanted = _Words(question).roots
        scores = [self._roots.sum(wanted & one.roots) for one in self._read]
        found = [number for number, score in enumerate(scores) if score > 0]
        return sorted(found, key=lambda number: -scores[number])[:most]


def has_answer(quote: str, answer: str, question: str) -> bool:
    """Return whether a quote has a word or a number of an answer that its question lacks."""
    quoted, new = _Words(quote), _new(_Words(answer), _Words(question))
    return not new.isdisjoint(quoted.facts) or not quoted.roots.isdisjoint(map(root, new))


def says_anything(text: str) -> bool:
    """Return whether a text has a word that says something, or a number."""
    return bool(_Words(text).written)


class _Rarities:
    """How rare words are among sentences."""

    def __init__(self, sentences: Iterable[set[str]]) -> None:
        of_sentences = list(sentences)
        self._n, self._n_with = len(of_sentences), Counter(word for one in of_sentences for word in one)

    def sum(self, words: Iterable[str]) -> float:
        """Return the sum of the rarities of words, 0 for a word that no sentence has."""
        return sum(rarity(self._n_with[word], self._n) for word in words if word in self._n_with)


def _new(answer: _Words, wanted: _Words) -> set[str]:
    """Return the words and numbers of an answer that its question lacks, with any ending."""
    return {fact for fact in answer.facts if fact not in wanted.facts and root(fact) not in wanted.roots}


def _names_and_numbers(answer: _Words, in_text: set[str]) -> set[str]:
    """Return the names and numbers of an answer. A word that the text has in lower case is not a name."""
    numbers = {fact for fact in answer.facts if fact[0].isdigit()}
    capitals = {word.casefold() for word in answer.written if word[0].isupper() and len(word) >= _NAME}
    return numbers | (capitals - in_text)
