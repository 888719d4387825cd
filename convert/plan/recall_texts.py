"""Make texts whose end repeats earlier parts, to find the heads that retrieve.

A text has two parts; the second repeats some of the first. Retrieval heads are those without which a model predicts the
second part differently. DuoAttention (Xiao et al. 2024, section 2.2) hides passkeys in this way.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import OctavoError

#: Folder of the texts that octavo ships.
EXAMPLES = Path(__file__).parents[2] / "examples"

#: The part of *Emma* that octavo ships, some 40,000 tokens: a novel to read, to time with, and to hide things in.
SHIPPED_NOVEL = EXAMPLES / "emma.txt"

#: The tasks: recall hidden passkeys, or repeat passages.
PASSKEYS, REPETITION = "passkeys", "repetition"

_PEOPLE = ("Marta", "Quentin", "Oswald", "Priya", "Hilda", "Tobias", "Ingrid", "Rafael", "Noor", "Barnaby")

#: A passkey is recalled in the words that it was hidden in: small models find it by them, and few by a question. Models
#: tell people apart, but not the first passkey from the second, so each passkey belongs to a person.
_NAMED = "The pass key of {person} is"
_BORDER = "\n\n"

#: Largest share of a text that hidden and recalled passkeys may take.
_MOST = 0.75

#: Number of words that passkeys are drawn from.
_VOCABULARY = 500

#: Number of repeated passages, tokens of each, and first tokens of each that identify it.
_PASSAGES, _PASSAGE, _CUE = 4, 128, 16


@dataclass(frozen=True)
class RecallText:
    """Tokens whose last ones repeat earlier ones.

    Parameters
    ----------
    n_read : int
        Tokens of the first part.
    recalled : int64 array, shape (n,)
        Positions of the tokens in the second part that follow from the first.
    sources : int64 array, shape (n,)
        Positions of the tokens that they repeat.
    n_words : int
        Words of a passkey; 0 if passages of the text are repeated.
    """

    tokens: list[int]
    n_read: int
    recalled: np.ndarray
    sources: np.ndarray
    n_words: int = 0

    @property
    def passkeys(self) -> list[np.ndarray]:
        """The recalled positions of each passkey."""
        return np.split(self.recalled, np.flatnonzero(np.diff(self.recalled) > 1) + 1)


@dataclass(frozen=True)
class Haystack:
    """A text to hide things in, as a model's tokens.

    Parameters
    ----------
    text : str
        Prose with empty lines between paragraphs.
    """

    llama: Any
    text: str

    def pieces(self, text: str) -> list[int]:
        """Tokenize a piece of text."""
        tokens: list[int] = self.llama.tokenize(text.encode(), add_bos=False, special=False)
        return tokens

    def head(self) -> list[int]:
        """Return the tokens that this model's texts begin with."""
        return [self.llama.token_bos()] if self.llama._model.add_bos_token() else []

    def tokens(self, n_tokens: int, rng: np.random.Generator) -> list[int]:
        """Take consecutive tokens, from the start of a random paragraph on. The text's end continues at its start."""
        return [token for paragraph in self.passage(n_tokens, rng) for token in paragraph]

    def passage(self, n_tokens: int, rng: np.random.Generator) -> list[list[int]]:
        """Take consecutive tokens as `tokens` does, one list for each paragraph; the last one is cut."""
        texts = self.text.split(_BORDER)
        number = int(rng.integers(len(texts)))
        paragraphs: list[list[int]] = []
        while n_tokens > 0:  # to tokenize all of the text would take longer
            paragraphs.append(self._paragraph(texts[number % len(texts)])[:n_tokens])
            n_tokens -= len(paragraphs[-1])
            number += 1
        return paragraphs

    @cached_property
    def paragraphs(self) -> list[list[int]]:
        """Tokens of each paragraph, with the border after it."""
        return list(map(self._paragraph, self.text.split(_BORDER)))

    def _paragraph(self, text: str) -> list[int]:
        """Tokenize a paragraph, with the border after it."""
        return self.pieces(text + _BORDER)

    @property
    def n_tokens(self) -> int:
        """Number of tokens of the whole text."""
        return sum(map(len, self.paragraphs))

    @cached_property
    def words(self) -> list[str]:
        """Words that passkeys are drawn from."""
        return self.common_words[:_VOCABULARY]

    @cached_property
    def common_words(self) -> list[str]:
        """Words that the text has three times or more, those of the fewest tokens first."""
        counts = Counter(re.findall(r"(?<= )[a-z]{4,9}(?=[ ,.])", self.text))
        common = [word for word, count in counts.items() if count >= 3]
        return sorted(common, key=lambda word: len(self.pieces(f" {word}")))


def recall_text(task: str, haystack: Haystack, n_tokens: int, seed: int) -> RecallText:
    """Make a text of one of the tasks.

    Parameters
    ----------
    task : str
        PASSKEYS or REPETITION.

    Raises
    ------
    OctavoError
        Passkeys do not fit in so few tokens.
    """
    rng = np.random.default_rng(seed)
    if task == REPETITION:
        return repetition_text(haystack, n_tokens, rng)
    return passkey_text(haystack, n_tokens, rng, haystack.words)


def passkey_text(
    haystack: Haystack, n_tokens: int, rng: np.random.Generator, words: Sequence[str], n_words: int = 32
) -> RecallText:
    """Hide ten passkeys at random depths of a text, and repeat them in order at its end.

    No word occurs twice in the passkeys. They are shortened if they leave too little room for the surrounding text.

    Raises
    ------
    OctavoError
        Even passkeys of one word leave too little room, or there are too few words.
    """
    if len(words) < len(_PEOPLE) * n_words:
        raise OctavoError(
            f"The text has {len(words):,} words to draw passkeys from, and they take {len(_PEOPLE) * n_words:,}: give "
            "a longer text, in English."
        )
    drawn = rng.choice(np.array(words), (len(_PEOPLE), n_words), replace=False)
    border, head = haystack.pieces(_BORDER), haystack.head()
    names = [haystack.pieces(_NAMED.format(person=person)) for person in _PEOPLE]
    while True:
        keys = [haystack.pieces("".join(f" {word}" for word in key[:n_words])) for key in drawn]
        n_keys = 2 * sum(len(name) + len(key) for name, key in zip(names, keys, strict=True))
        n_novel = n_tokens - len(head) - n_keys - 3 * len(border) * len(keys)
        if n_novel >= (1 - _MOST) * n_tokens:
            break
        if n_words == 1:
            raise OctavoError(f"Ten passkeys do not fit a text of {n_tokens:,} tokens: give more (--tokens).")
        n_words //= 2
    novel = haystack.tokens(n_novel, rng)
    depths = np.sort(rng.choice(np.linspace(0.05, 0.95, 19), len(keys), replace=False))
    tokens, sources, done = list(head), [], 0
    for depth, name, key in zip(depths, names, keys, strict=True):
        until = int(depth * n_novel)
        tokens += novel[done:until] + border + name
        sources.append(len(tokens) + np.arange(len(key)))
        tokens += key + border
        done = until
    tokens += novel[done:]
    n_read, recalled = len(tokens), []
    for name, key in zip(names, keys, strict=True):
        tokens += border + name
        recalled.append(len(tokens) + np.arange(len(key)))
        tokens += key
    return RecallText(tokens, n_read, np.concatenate(recalled), np.concatenate(sources), n_words)


def repetition_text(haystack: Haystack, n_tokens: int, rng: np.random.Generator) -> RecallText:
    """Repeat passages of a text at its end. The first tokens of a passage identify it, and do not count as recalled."""
    length = min(_PASSAGE, n_tokens // (3 * _PASSAGES))
    cue, head = min(_CUE, length // 2), haystack.head()
    n_read = n_tokens - _PASSAGES * length
    tokens = head + haystack.tokens(n_read - len(head), rng)
    starts = len(head) + length * rng.choice((n_read - len(head)) // length, _PASSAGES, replace=False)
    sources = starts[:, None] + np.arange(length)
    recalled = n_read + np.arange(_PASSAGES * length).reshape(_PASSAGES, length)
    tokens += np.array(tokens)[sources].reshape(-1).tolist()
    return RecallText(tokens, n_read, recalled[:, cue:].reshape(-1), sources[:, cue:].reshape(-1))
