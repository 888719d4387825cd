"""Score an answer as LongBench does (Bai et al. 2024, arXiv 2308.14508, table 1 and section 4.1).

Each function takes the written text, one accepted answer, and all classes, and returns a score from 0 to 1.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from .text_scores import squad_scores


def qa_f1(written: str, answer: str, classes: Sequence[str]) -> float:
    """Compute F1 over words, as SQuAD does."""
    return squad_scores(written, [answer])["score"]


def rouge_l(written: str, answer: str, classes: Sequence[str]) -> float:
    """Compute ROUGE-L: F1 over the longest common subsequence of words."""
    return _overlap(written.split(), answer.split())


def code_similarity(written: str, answer: str, classes: Sequence[str]) -> float:
    """Compute the edit similarity of the first line of code to the expected line: 1 - insertions and deletions."""
    lines = written.lstrip("\n").split("\n")
    code = next((line for line in lines if not any(mark in line for mark in ("`", "#", "//"))), "")
    return _overlap(code, answer)


def classification(written: str, answer: str, classes: Sequence[str]) -> float:
    """Look for the class. Further classes in the text divide the score, unless their names are parts of its name."""
    named = [name for name in classes if name in written and (name == answer or name not in answer)]
    return 1 / len(named) if answer in named else 0.0


def retrieval(written: str, answer: str, classes: Sequence[str]) -> float:
    """Return the share of the written numbers that is the number of the paragraph."""
    return _share_of_numbers(written, re.findall(r"\d+", answer))


def count(written: str, answer: str, classes: Sequence[str]) -> float:
    """Return the share of the written numbers that is the answer."""
    return _share_of_numbers(written, [answer])


def first_line(written: str) -> str:
    """Return the first line of an answer; after a prompt with examples, only this line counts."""
    return written.lstrip("\n").partition("\n")[0]


def _share_of_numbers(written: str, expected: Sequence[str]) -> float:
    numbers = re.findall(r"\d+", written)
    return sum(number == expected[0] for number in numbers) / len(numbers) if numbers else 0.0


def _overlap(own: Sequence[str], other: Sequence[str]) -> float:
    """Compute twice the length of the longest common subsequence, over the lengths of both."""
    if not own or not other:
        return 0.0
    lengths = [0] * (
        len(other) + 1
    )  # of the subsequences that `own` so far has in common with each beginning of `other`
    for each in own:
        before = 0
        for i, expected in enumerate(other, 1):
            before, lengths[i] = lengths[i], before + 1 if each == expected else max(lengths[i], lengths[i - 1])
    return 2 * lengths[-1] / (len(own) + len(other))
