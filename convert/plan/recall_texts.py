"""Texts that a model must look back in: what is measured of its heads is measured on their last tokens.

A text has two parts: one that is read, and one that repeats some of the first. Heads that must see everything are those
without which the second part is read otherwise (DuoAttention, Xiao et al. 2024, section 2.3).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...errors import OctavoError

PASSKEYS, REPETITION = "passkeys", "repetition"

_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")

#: Hidden and recalled in the same words: small models find a passkey by them, and few by a question.
_NAMED = "The {ordinal} passkey is:"
_BORDER = "\n\n"

#: Most of a text that passkeys may take, hidden and recalled.
_MOST = 0.75

#: How many words passkeys are drawn from.
_VOCABULARY = 500

#: Passages that are repeated, tokens of each, and how many of them tell which one it is.
_PASSAGES, _PASSAGE, _CUE = 4, 128, 16


@dataclass(frozen=True)
class RecallText:
    """Tokens of which the last ones repeat earlier ones.

    n_read : how many are read before the others are recalled
    recalled, sources : (n,) positions of tokens that can be known from the text, and of those that they repeat
    n_words : words of a passkey; 0 where passages of the text itself are repeated
    """

    tokens: list[int]
    n_read: int
    recalled: np.ndarray
    sources: np.ndarray
    n_words: int = 0

    @property
    def passkeys(self) -> list[np.ndarray]:
        """The recalled positions, passkey by passkey."""
        return np.split(self.recalled, np.flatnonzero(np.diff(self.recalled) > 1) + 1)


@dataclass(frozen=True)
class Haystack:
    """What to hide things in.

    llama : whose tokens are made    text : a novel, of paragraphs
    """

    llama: Any
    text: str

    def pieces(self, text: str) -> list[int]:
        """Tokens of a piece of text."""
        tokens: list[int] = self.llama.tokenize(text.encode(), add_bos=False, special=False)
        return tokens

    def head(self) -> list[int]:
        """What this model's texts begin with."""
        return [self.llama.token_bos()] if self.llama._model.add_bos_token() else []

    def tokens(self, n_tokens: int, rng: np.random.Generator) -> list[int]:
        """So many tokens from the beginning of some paragraph on; the novel's end is followed by its beginning."""
        return [token for paragraph in self.passage(n_tokens, rng) for token in paragraph]

    def passage(self, n_tokens: int, rng: np.random.Generator) -> list[list[int]]:
        """The same, paragraph by paragraph; the last one is cut."""
        at = int(rng.integers(len(self.paragraphs)))
        paragraphs: list[list[int]] = []
        while n_tokens > 0:
            paragraphs.append(self.paragraphs[at % len(self.paragraphs)][:n_tokens])
            n_tokens -= len(paragraphs[-1])
            at += 1
        return paragraphs

    @cached_property
    def paragraphs(self) -> list[list[int]]:
        """The tokens of each paragraph, with the border after it."""
        return [self.pieces(paragraph + _BORDER) for paragraph in self.text.split(_BORDER)]

    @property
    def n_tokens(self) -> int:
        """Tokens of the whole novel."""
        return sum(map(len, self.paragraphs))

    @cached_property
    def words(self) -> list[str]:
        """The words that passkeys are drawn from."""
        return self.common_words[:_VOCABULARY]

    @cached_property
    def common_words(self) -> list[str]:
        """Words that the novel has three times or more, those of the fewest tokens first."""
        counts = Counter(re.findall(r"(?<= )[a-z]{4,9}(?=[ ,.])", self.text))
        common = [word for word, count in counts.items() if count >= 3]
        return sorted(common, key=lambda word: len(self.pieces(f" {word}")))


def recall_text(task: str, haystack: Haystack, n_tokens: int, seed: int) -> RecallText:
    """A text of PASSKEYS or of REPETITION."""
    rng = np.random.default_rng(seed)
    if task == REPETITION:
        return repetition_text(haystack, n_tokens, rng)
    return passkey_text(haystack, n_tokens, rng, haystack.words)


def passkey_text(
    haystack: Haystack, n_tokens: int, rng: np.random.Generator, words: Sequence[str], n_words: int = 32
) -> RecallText:
    """Ten passkeys of n_words words at random depths of a novel, and then in order once more: n_tokens in all.

    No word comes twice in them. They are shorter where the novel would have no room. Raises OctavoError where even
    passkeys of one word leave none.
    """
    drawn = rng.choice(np.array(words), (len(_ORDINALS), n_words), replace=False)
    border, head = haystack.pieces(_BORDER), haystack.head()
    names = [haystack.pieces(_NAMED.format(ordinal=ordinal)) for ordinal in _ORDINALS]
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
    """A novel, and then some passages of it once more: n_tokens in all.

    A passage's first tokens, which tell which one it is, do not count as recalled.
    """
    length = min(_PASSAGE, n_tokens // (3 * _PASSAGES))
    cue, head = min(_CUE, length // 2), haystack.head()
    n_read = n_tokens - _PASSAGES * length
    tokens = head + haystack.tokens(n_read - len(head), rng)
    starts = len(head) + length * rng.choice((n_read - len(head)) // length, _PASSAGES, replace=False)
    sources = starts[:, None] + np.arange(length)
    recalled = n_read + np.arange(_PASSAGES * length).reshape(_PASSAGES, length)
    tokens += np.array(tokens)[sources].reshape(-1).tolist()
    return RecallText(tokens, n_read, recalled[:, cue:].reshape(-1), sources[:, cue:].reshape(-1))
