"""Compare written text with accepted answers."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence


def contains(text: str, answers: Sequence[str]) -> float:
    """Return 1 if the text has one of the answers as whole words, else 0. Case does not count."""
    return float(any(re.search(rf"\b{re.escape(answer)}\b", text, re.IGNORECASE) for answer in answers))


def contains_words(text: str, answers: Sequence[str]) -> float:
    """Return 1 if the words of an answer occur in the text in a row, compared as SQuAD does, else 0."""
    written = f" {' '.join(words(text))} "
    return float(any(f" {' '.join(words(answer))} " in written for answer in answers))


def recall(text: str, expected: Sequence[str]) -> float:
    """Return the share of the expected strings, at least one, that the text contains. Case does not count."""
    return sum(wanted.lower() in text.lower() for wanted in expected) / len(expected)


def squad_scores(text: str, answers: Sequence[str]) -> dict[str, float]:
    """Compare a text with at least one answer by SQuAD's measures.

    Returns
    -------
    dict
        "score" is the best F1 over the words of an answer; "exact_match" is 1 if the text is an answer, else 0.
    """
    written = words(text)
    return {
        "score": max(_f1(written, words(answer)) for answer in answers),
        "exact_match": float(any(written == words(answer) for answer in answers)),
    }


def words(text: str) -> list[str]:
    """Split a text into words, in lower case and without punctuation and articles, as SQuAD's evaluation does."""
    plain = "".join(character for character in text.lower() if character not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", plain).split()


def _f1(written: list[str], expected: list[str]) -> float:
    """Compute the harmonic mean of precision and recall over words."""
    common = sum((Counter(written) & Counter(expected)).values())
    if not written or not expected:
        return float(written == expected)
    return 2 * common / (len(written) + len(expected))
