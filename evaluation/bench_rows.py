"""Make the rows of `octavo bench`: the same fields for octavo, llama.cpp and other engines; None is not measured."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from ..runtime.methods import LLAMA_CPP
from ..runtime.methods.attention import Attention
from .engines import Engine, Measured
from .measures import kl_divergence, log_softmax, same_top_token
from .peer_engine import PeerEngine

Row = dict[str, Any]


@dataclass(frozen=True)
class Rows:
    """Rows of one depth.

    Parameters
    ----------
    n_question : int
        Tokens of a question.
    cache_type : str
        How engines keep keys and values, but for peers that keep them otherwise.
    dense_logits : list of float arrays, shape (n_vocab,)
        Dense attention's logits of the decoded tokens, to compare with.
    next_tokens : mapping
        The text's next token after the decoded tokens that have one, by their numbers.
    """

    depth: int
    n_question: int
    cache_type: str
    dense_logits: list[np.ndarray]
    next_tokens: Mapping[int, int]

    def octavo_row(self, engine: Engine, attention: Attention) -> Row:
        """Return the row of one of octavo's attentions."""
        n_bytes = engine.llama.context.cache.kv_bytes, engine.bytes_read // len(engine.decode_s)
        row = self._in_process(str(attention), engine, [engine], *n_bytes)
        budget = attention.budget if attention.has_budget else 1.0
        return {**row, "budget": budget, "chosen": str(engine.llama.resolved_attention)}

    def llama_cpp_row(self, best: Engine, engines: Sequence[Engine], kv_bytes: int, bytes_read: int) -> Row:
        """Return the row of llama.cpp's own attention in this process. The best engine decodes fastest."""
        row = self._in_process(LLAMA_CPP, best, engines, kv_bytes, bytes_read)
        return {**row, "flash_attention": best.flash_attention}

    def _in_process(self, name: str, engine: Engine, ways: Sequence[Measured], kv_bytes: int, bytes_read: int) -> Row:
        divergence, agreement = compare(self.dense_logits, engine.logits)
        loss = mean_loss([engine.logits[number] for number in self.next_tokens], self.next_tokens.values())
        row = self._row(name, engine, ways, (divergence, agreement, loss))
        attention_s = engine.token_s - engine.step_s
        row |= {"kv_bytes": kv_bytes, "bytes_read_per_token": bytes_read}
        if engine.drafter.n_drafted:
            row |= {"tokens_per_step": round(engine.tokens_per_step, 2), "attention_share": None}
        elif attention_s > 0:
            row["attention_gb_s"] = round(bytes_read / attention_s / 1e9, 2)
        return row

    def peer_rows(self, engines: Sequence[PeerEngine]) -> list[Row]:
        """Return a row for each peer: its faster way to run, or why it has none."""
        rows = []
        for name, group in groupby(engines, key=lambda engine: engine.name):
            ways = list(group)
            able = [engine for engine in ways if engine.cannot is None and engine.decode_s]
            if able:
                best = min(able, key=lambda engine: engine.token_s)
                row = self._row(name, best, able, self._quality(best))
                row |= {"flash_attention": best.flash_attention, "peak_resident_bytes": best.peak_resident_bytes}
            else:
                farthest = max(ways, key=lambda engine: len(engine.decode_s))
                row = {**self._row(name, farthest, [], (None, None, None)), "cannot": self._cannot(farthest)}
            rows.append({**row, "cache_type": ways[0].peer.cache_type or self.cache_type})
        return rows

    def _cannot(self, engine: PeerEngine) -> str | None:
        """Return what a peer cannot do, and how many tokens its figures are of if it stopped among them."""
        of_them = f", after {len(engine.decode_s)} of {len(self.dense_logits)} tokens" if engine.decode_s else ""
        return engine.cannot and f"{engine.cannot}{of_them}"

    def _quality(self, engine: PeerEngine) -> tuple[float | None, float | None, float | None]:
        """Return KL divergence to dense attention, agreement with it, and the loss of the next tokens, where known."""
        if engine.logits:
            dense = [self.dense_logits[number] for number in self.next_tokens]
            return *compare(dense, engine.logits), mean_loss(engine.logits, self.next_tokens.values())
        return None, None, -float(np.mean(engine.log_probs)) if engine.log_probs else None

    def _row(
        self,
        name: str,
        engine: Measured,
        ways: Sequence[Measured],
        quality: tuple[float | None, float | None, float | None],
    ) -> Row:
        """Return the row of an engine. Of all its ways to run, the better counts for reading text and question."""
        token_s = engine.token_s if engine.decode_s else None
        step_s = engine.step_s if engine.step_s < math.inf else None
        prefill_s = min((way.prefill_s for way in ways), default=0.0)
        first_token_s = min((way.first_token_s for way in ways), default=math.inf)
        divergence, agreement, loss = quality
        # A step over nothing that took longer was disturbed: nothing is known of attention then.
        beyond_s = token_s - step_s if token_s and step_s and token_s > step_s else None
        joules = engine.joules_per_token
        return {
            "attention": name,
            "budget": 1.0,
            "depth": self.depth,
            "prefill_tokens_per_s": round(self.depth / prefill_s, 1) if prefill_s else None,
            "decode_ms": _ms(token_s, 2),
            **spread(engine.decode_s),
            "decode_tokens_per_s": round(1 / token_s, 1) if token_s else None,
            "tokens_per_step": 1.0 if engine.decode_s else None,
            "step_without_context_ms": _ms(step_s, 2),
            "attention_share": round(beyond_s / token_s, 3) if token_s and beyond_s else None,
            "attention_gb_s": None,
            "question_tokens": self.n_question,
            "first_token_ms": _ms(first_token_s if first_token_s < math.inf else None, 1),
            "kv_bytes": None,
            "bytes_read_per_token": None,
            "peak_resident_bytes": None,
            "joules_per_token": None if joules is None else round(joules, 3),
            "kl_divergence": None if divergence is None else round(divergence, 5),
            "top1_agreement": None if agreement is None else round(agreement, 3),
            "loss": None if loss is None else round(loss, 4),
            "cannot": None,
            "cache_type": self.cache_type,
        }


def _ms(seconds: float | None, digits: int) -> float | None:
    return None if seconds is None else round(seconds * 1e3, digits)


def spread(seconds: Sequence[float]) -> Row:
    """Return the least time, its percentiles and all times, in milliseconds, as a row has them."""
    ms = np.array(seconds) * 1e3
    least, low, high = (round(float(n), 2) for n in np.percentile(ms, (0, 10, 90))) if seconds else (None,) * 3
    return {"decode_ms_min": least, "decode_ms_p10": low, "decode_ms_p90": high, "decode_ms_all": ms.round(3).tolist()}


def mean_loss(logits: Sequence[np.ndarray], tokens: Iterable[int]) -> float | None:
    """Return the mean loss of tokens, in nats; None if there are none.

    Parameters
    ----------
    logits : sequence of float arrays, shape (n_vocab,)
        Logits of each token's place.
    tokens : iterable of int
        The tokens that the text has there.
    """
    if not logits:
        return None
    log_probs = log_softmax(np.array(logits))
    return -float(np.mean([row[token] for row, token in zip(log_probs, tokens, strict=True)]))


def compare(expected: list[np.ndarray], actual: list[np.ndarray]) -> tuple[float, float]:
    """Compare the next-token distributions of two engines.

    Parameters
    ----------
    expected, actual : lists of float arrays, shape (n_vocab,)
        Logits of the same steps.

    Returns
    -------
    divergence : float
        Mean KL divergence of `actual` from `expected`, in nats.
    agreement : float
        Share of steps with the same most likely token.
    """
    p, q = log_softmax(np.array(expected)), log_softmax(np.array(actual))
    return float(kl_divergence(p, q).mean()), same_top_token(p, q)
