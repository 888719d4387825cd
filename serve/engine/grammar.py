"""Keep an answer to a grammar: llguidance tells which tokens may come next.

Its limits bound what a request can make it compute: some 20 ms when a grammar is made, and as much for a token.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import llama_cpp
import numpy as np

from ...runtime.llama import Llama
from ..request_error import RequestError
from .grammar_check import GrammarCheck

#: Tokens that llguidance treats as special: they match nothing in a grammar but their own numbers.
_SPECIAL = llama_cpp.LLAMA_TOKEN_ATTR_CONTROL, llama_cpp.LLAMA_TOKEN_ATTR_USER_DEFINED

#: Most characters of a grammar in llama.cpp's form, whose parser is not fast.
_LONGEST_GBNF = 64_000


class Grammar:
    """A grammar, and how far an answer has come in it. Made by `Grammars`."""

    def __init__(self, matcher: Any, n_vocab: int) -> None:
        self._matcher, self._n_vocab = matcher, n_vocab

    def copy(self) -> Grammar:
        """Return a grammar for another answer."""
        return Grammar(self._matcher.deep_copy(), self._n_vocab)

    def forbidden(self) -> np.ndarray:
        """Return which tokens may not come next, as bool array, shape (n_vocab,).

        Raises
        ------
        RequestError
            The grammar is too complex at this place.
        """
        allowed = np.unpackbits(np.frombuffer(self._matcher.compute_bitmask(), np.uint8), bitorder="little")
        if self._matcher.is_error():
            raise RequestError(f"The form of the answer is too complex: {_reason(self._matcher.get_error())}.")
        return np.asarray(allowed[: self._n_vocab] == 0)

    def accept(self, token: int) -> None:
        """Note the next token."""
        self._matcher.consume_token(token)

    @property
    def ignored(self) -> Sequence[str]:
        """Return sentences on what of a schema is not enforced."""
        return list(self._matcher.get_grammar_warnings())


class Grammars:
    """Makes grammars for the tokens of a model. Any thread may call it."""

    def __init__(self, llama: Llama) -> None:
        self._llama, self._check = llama, GrammarCheck()

    def close(self) -> None:
        """End the process that checks grammars."""
        self._check.close()

    def warm_up(self) -> None:
        """Do what takes up to a second, once."""
        _ = self._tokenizer, self._special

    @cached_property
    def _tokenizer(self) -> Any:
        """Return llguidance's view of the tokens."""
        from llguidance.llamacpp import lltokenizer_from_vocab

        return lltokenizer_from_vocab(self._llama._model.vocab, eos_token=self.ends)

    @cached_property
    def ends(self) -> list[int]:
        """Return the tokens that end an answer."""
        return [token for token in range(self._llama.n_vocab()) if self._llama.ends(token)]

    @cached_property
    def _special(self) -> dict[str, int]:
        """Return the special tokens by their texts."""
        vocab = self._llama._model.vocab
        pieces = ((self._llama.piece(token, special=True), token) for token in range(self._llama.n_vocab()))
        return {piece.decode(): token for piece, token in pieces if piece and _is_special(vocab, token, piece)}

    def pattern(self, text: str) -> list[str]:
        """Return the patterns of a text's parts: its special tokens, and the texts between them."""
        special = self._special
        longest = sorted((name for name in special if name in text), key=len, reverse=True)
        parts = re.split(f"({'|'.join(map(re.escape, longest))})", text) if longest else [text]
        return [f"<[{special[part]}]>" if part in special else json.dumps(part) for part in parts if part]

    def of_gbnf(self, gbnf: str) -> Grammar:
        """Return a grammar in llama.cpp's form. Raise RequestError if it cannot be used."""
        return self.made(_lark_of(gbnf), "grammar")

    def made(self, lark: str, param: str) -> Grammar:
        """Return a grammar.

        Parameters
        ----------
        lark : str
            The grammar in llguidance's form of Lark.
        param : str
            The field of the request that it comes from.

        Raises
        ------
        RequestError
            It cannot be used, or is too complex.
        """
        from llguidance import LLMatcher, LLParserLimits

        self._check.check(lark, param)
        limits = LLParserLimits(max_items_in_row=20_000, verbose_errors=False)
        matcher = LLMatcher(self._tokenizer, LLMatcher.grammar_from_lark(lark), log_level=0, limits=limits)
        if matcher.is_error():
            raise RequestError(f"This form of an answer cannot be used: {_reason(matcher.get_error())}.", param=param)
        matcher.compute_bitmask()  # of a large form that takes long, and copies have it then
        return Grammar(matcher, self._llama.n_vocab())


def _lark_of(gbnf: str) -> str:
    """Return a GBNF grammar in Lark. Raise RequestError if it cannot be read."""
    from llguidance.gbnf_to_lark import gbnf_to_lark

    if len(gbnf) > _LONGEST_GBNF:
        raise RequestError(f"A grammar has at most {_LONGEST_GBNF:,} characters.", param="grammar")
    try:
        return str(gbnf_to_lark(gbnf))
    except Exception as problem:  # of any kind: the converter checks little
        raise RequestError(f"This grammar cannot be read: {_reason(str(problem))}.", param="grammar") from problem


def _is_special(vocab: Any, token: int, piece: bytes) -> bool:
    """Return whether llguidance treats a token as special."""
    control, user_defined = _SPECIAL
    kinds = llama_cpp.llama_vocab_get_attr(vocab, token)
    return bool(kinds & control or (kinds & user_defined and piece[:1] == b"<" and piece[-1:] == b">"))


def _reason(error: str) -> str:
    """Return the first line of an error, without its last mark."""
    return error.strip().splitlines()[0].rstrip(".") if error.strip() else "llguidance gives no reason"
