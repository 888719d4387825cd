"""Find the names and numbers of an answer that are neither in the text that the model saw nor in the question.

No finding does not mean that the answer is right (docs/sources.md has figures).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

#: A number, with its separators.
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")

#: The number of a list's item.
_ITEM = re.compile(r"^\s*\d+[.)]\s", re.MULTILINE)

#: A word, and one after another word or a comma: with a capital letter it is a name in most languages.
_WORD = re.compile(r"[^\W\d_]+")
_NAME = re.compile(r"(?<=[^\W\d_] )[^\W\d_]+|(?<=[^\W\d_], )[^\W\d_]+")

#: Fewest letters of a name, and most words with a capital letter in a language whose nouns have none.
_LETTERS, _CAPITALS = 3, 0.2

#: Numbers that texts write as words.
_WORDS = """
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen
nineteen twenty
"""
_VALUES = {word: str(value) for value, word in enumerate(_WORDS.split())}

#: Names that a sentence lists.
_LISTED = 3


def unfounded(answer: str, known: Sequence[str], document: Iterable[bytes] = ()) -> list[str]:
    """Return the names and numbers of an answer that are in no known text, each once.

    Parameters
    ----------
    known : sequence of str
        Texts that the model saw, as the questions.
    document : iterable of bytes
        The bytes of the document's tokens.
    """
    text = "\n".join([b"".join(document).decode(errors="replace"), *known])
    words = {word.casefold() for word in _WORD.findall(text)}
    numbers = set(_numbers(text)) | {_VALUES[word] for word in words & _VALUES.keys()}
    found = []
    answer = _ITEM.sub("", answer)
    if _capitals(text) < _CAPITALS:
        found += [name for name in _NAME.findall(answer) if _is_name(name) and not _has(words, name)]
    found += [match for match in _NUMBER.findall(answer) if len(match) > 1 and _plain(match) not in numbers]
    return list(dict.fromkeys(found))


def sentence_about(found: Sequence[str]) -> str:
    """Return a sentence about names and numbers that `unfounded` found; "" if there are none."""
    if not found:
        return ""
    more = [f"{len(found) - _LISTED} more"] if len(found) > _LISTED else []
    *first, last = [*found[:_LISTED], *more]
    listed = f"{', '.join(first)} and {last}" if first else last
    return f"{listed} {'are' if first else 'is'} not in the text that was read."


def _is_name(word: str) -> bool:
    return len(word) >= _LETTERS and word[0].isupper()


def _numbers(text: str) -> Iterator[str]:
    for number in _NUMBER.findall(text):
        yield _plain(number)
        yield from map(_plain, re.split(r"[.,:]", number))


def _plain(number: str) -> str:
    """Return a number without separators of thousands, and without zeros that mean nothing."""
    plain = re.sub(r"[,.](?=\d{3}\b)", "", number).replace(",", ".")
    if "." in plain and plain.count(".") == 1:
        plain = plain.rstrip("0").rstrip(".")
    return plain.lstrip("0") or "0"


def _has(words: set[str], name: str) -> bool:
    """Return whether a word is among others, perhaps with or without an ending."""
    word = name.casefold()
    return not words.isdisjoint({word, word.removesuffix("s"), word.removesuffix("es"), f"{word}s", f"{word}es"})


def _capitals(text: str) -> float:
    """Return the share of the words after another word that have a capital letter."""
    following = re.findall(r"(?<=[^\W\d_] )[^\W\d_]", text)
    return len(list(filter(str.isupper, following))) / max(len(following), 1)
