"""Compare written text with accepted answers."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence


def contains(text: str, answers: Sequence[str]) -> float:
    """Look for one of the answers as whole words, in any case.

    Parameters
    ----------
    text : str
        What the model wrote.
    answers : sequence of str
        Accepted answers.

    Returns
    -------
    float
        1 if the text has an answer, else 0.
    """
    return float(any(re.search(rf"\b{re.escape(answer)}\b", text, re.IGNORECASE) for answer in answers))


def contains_words(text: str, answers: Sequence[str]) -> float:
    """Look for the words of one of the answers in a row, compared as SQuAD does.

    Parameters
    ----------
    text : str
        What the model wrote.
    answers : sequence of str
        Accepted answers.

    Returns
    -------
    float
        1 if the text has an answer, else 0.
    """
    written = f" {' '.join(words(text))} "
    return float(any(f" {' '.join(words(answer))} " in written for answer in answers))


def recall(text: str, expected: Sequence[str]) -> float:
    """Count which strings a text contains, in any case.

    Parameters
    ----------
    text : str
        What the model wrote.
    expected : sequence of str
        What it should contain; at least one string.

    Returns
    -------
    float
        Share of the strings that the text contains.
    """
    return sum(each.lower() in text.lower() for each in expected) / len(expected)


def squad_scores(text: str, answers: Sequence[str]) -> dict[str, float]:
    """Compute SQuAD's measures.

    Parameters
    ----------
    text : str
        What the model wrote.
    answers : sequence of str
        Accepted answers; at least one.

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
    """Split a text into words, in lower case and without punctuation and articles, as SQuAD's evaluation does.

    Parameters
    ----------
    text : str
        Any text.

    Returns
    -------
    list of str
    """
    plain = "".join(character for character in text.lower() if character not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", plain).split()


def _f1(written: list[str], expected: list[str]) -> float:
    """Compute the harmonic mean of precision and recall over words."""
    common = sum((Counter(written) & Counter(expected)).values())
    if not written or not expected:
        return float(written == expected)
    return 2 * common / (len(written) + len(expected))
