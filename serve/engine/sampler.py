"""Draw tokens by llama.cpp's samplers, for one request of several that a step serves."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import llama_cpp
import numpy as np
from llama_cpp import _internals as internals

from ...prompts.thought_form import Stage
from ...runtime.llama import Llama
from ..request_error import RequestError
from .grammar import Grammar
from .request import Request, TokenLogprob

#: Where seeds come from that requests leave out: the system, as other threads may seed Python's own numbers.
_SEEDS = random.SystemRandom()

#: Tokens at the end of an answer that a penalty covers, as in llama.cpp.
_LAST_TOKENS = 64


class TokenSampler:
    """Draw the tokens of one answer."""

    def __init__(self, llama: Llama, request: Request) -> None:
        self._llama, self._n_vocab = llama, llama.n_vocab()
        self._n_top = request.generation.n_logprobs
        self._chain = self._new_chain(request)
        self._grammar = None if request.grammar is None else request.grammar.copy()
        thinks = request.grammar is not None and request.stage is not Stage.ANSWER
        self._free = self._new_chain(request) if thinks else None  # for thoughts, which follow no grammar

    def _new_chain(self, request: Request) -> internals.LlamaSampler:
        """Return llama.cpp's samplers of a request."""
        asked, chain = request.generation.settled(request.context is not None), internals.LlamaSampler()
        sampling = asked.sampling
        if asked.logit_bias:
            _add_bias(chain, asked.logit_bias, self._n_vocab)
        if (sampling.repeat_penalty, asked.frequency_penalty, asked.presence_penalty) != (1, 0, 0):
            chain.add_penalties(
                n_vocab=self._n_vocab,
                penalty_last_n=_LAST_TOKENS,
                penalty_repeat=sampling.repeat_penalty,
                penalty_freq=asked.frequency_penalty,
                penalty_present=asked.presence_penalty,
            )
        if sampling.temperature == 0:
            chain.add_greedy()
            return chain
        chain.add_top_k(sampling.top_k)
        chain.add_top_p(sampling.top_p, 1)
        chain.add_min_p(sampling.min_p, 1)
        chain.add_temp(sampling.temperature)
        chain.add_dist(_SEEDS.getrandbits(31) if sampling.seed is None else sampling.seed)
        return chain

    def draw(
        self, number: int, may_think: Callable[[int], bool] = lambda token: False
    ) -> tuple[int, TokenLogprob | None]:
        """Draw the next token; return it with its log probability if the request asks for it.

        Parameters
        ----------
        number : int
            Number of the request's token in the predicting step; -1 for the last.
        may_think : callable
            Tells whether with a token there may still come a thought, which follows no grammar.

        Raises
        ------
        RequestError
            The grammar is too complex at this place.
        """
        token = -1 if self._free is None else self._sampled(self._free, number)
        if self._free is None or not may_think(token):
            token = self._draw_by_grammar(self._grammar, number) if self._grammar is not None else self._draw(number)
        if self._n_top is None:
            return token, None
        return token, token_logprob(self._llama, self._logits(number), token, self._n_top)

    def _draw(self, number: int) -> int:
        return self._sampled(self._chain, number)

    def _sampled(self, chain: internals.LlamaSampler, number: int) -> int:
        context = self._llama.context
        return int(chain.sample(context, context.place_of_logits(number)))

    def _draw_by_grammar(self, grammar: Grammar, number: int) -> int:
        """Draw a token that the grammar allows; the logits stay as they are."""
        logits = self._logits(number)
        before = logits.copy()
        logits[grammar.forbidden()] = -np.inf
        try:
            token = self._draw(number)
        finally:
            logits[:] = before
        grammar.accept(token)
        return token

    def _logits(self, number: int) -> np.ndarray:
        """Return the logits in llama.cpp's memory."""
        return np.ctypeslib.as_array(self._llama._ctx.get_logits_ith(number), (self._n_vocab,))

    def close(self) -> None:
        """Free the samplers."""
        self._chain.close()
        if self._free is not None:
            self._free.close()


def token_logprob(llama: Llama, logits: np.ndarray, token: int, n_top: int) -> TokenLogprob:
    """Return a token's log probability, and those of the n_top likeliest tokens.

    Parameters
    ----------
    logits : float32 array, shape (n_vocab,)
        The logits of its position.
    """
    highest = float(logits.max())
    log_sum = highest + float(np.log(np.exp(logits - highest, dtype=np.float64).sum()))
    best: list[int] = []
    if n_top:
        best = np.argpartition(logits, -n_top)[-n_top:].tolist()
        best.sort(key=lambda likely: -float(logits[likely]))
    top = [(likely, llama.piece(likely), float(logits[likely]) - log_sum) for likely in best]
    return TokenLogprob(token, llama.piece(token), float(logits[token]) - log_sum, top)


def check_bias(bias: Mapping[int, float], n_vocab: int) -> None:
    """Raise RequestError for a biased token that does not exist."""
    unknown = [token for token in bias if not 0 <= token < n_vocab]
    if unknown:
        raise RequestError(f"There is no token {unknown[0]}: this model has {n_vocab:,} tokens.", param="logit_bias")


def _add_bias(chain: internals.LlamaSampler, bias: Mapping[int, float], n_vocab: int) -> None:
    """Add a sampler that changes the logits of tokens."""
    biases = (llama_cpp.llama_logit_bias * len(bias))()
    for entry, (token, value) in zip(biases, bias.items(), strict=True):
        entry.token, entry.bias = token, value
    llama_cpp.llama_sampler_chain_add(
        chain.sampler, llama_cpp.llama_sampler_init_logit_bias(n_vocab, len(bias), biases)
    )
