"""Run a model on octavo's attentions and on llama.cpp's: the engines of `octavo bench`."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import llama_cpp
import numpy as np

from ..cpu_kernels.numba_support.shape import F16
from ..errors import OctavoError
from ..runtime.drafting import new_drafter
from ..runtime.graph.attention_nodes import silent_llama_cpp
from ..runtime.llama import Llama
from ..runtime.methods import LLAMA_CPP
from ..runtime.sequences.drafter import Drafter
from ..runtime.sequences.recurrent import put_recurrent_state, recurrent_state
from ..system.sensors import EnergyMeter
from ..system.working_time import working_time


@dataclass
class Measured:
    """The measurements of an engine at the current depth.

    Parameters
    ----------
    prefill_s : float
        Seconds of reading the text up to this depth; 0 for an engine that read nothing.
    step_s : float
        Seconds of a token over nothing.
    decode_s, ask_s : lists of float
        Seconds of each decoded token, and of each question.
    logits : list of float64 arrays, shape (n_vocab,)
        Logits after each decoded token.
    joules : float
        Energy of the decoded tokens, if `meter` works.
    """

    name: str
    prefill_s: float = field(default=0.0, kw_only=True)
    step_s: float = field(default=0.0, kw_only=True)
    decode_s: list[float] = field(default_factory=list, kw_only=True)
    ask_s: list[float] = field(default_factory=list, kw_only=True)
    logits: list[np.ndarray] = field(default_factory=list, kw_only=True)
    joules: float = field(default=0.0, kw_only=True)
    meter: EnergyMeter = field(default_factory=EnergyMeter, kw_only=True)

    @property
    def token_s(self) -> float:
        """Seconds of a token: their median; infinity if none was decoded."""
        return float(np.median(self.decode_s)) if self.decode_s else math.inf

    @property
    def first_token_s(self) -> float:
        """Seconds until the first token of an answer: the median over the questions; infinity if none was read."""
        return float(np.median(self.ask_s)) if self.ask_s else math.inf

    @property
    def joules_per_token(self) -> float | None:
        """Energy of a decoded token; None where it is not measured."""
        return self.joules / len(self.decode_s) if self.meter.works and self.decode_s else None

    def keep_state(self) -> None:
        """Keep what it takes to go back to this place."""

    def begin(self, draft: int | None) -> None:
        """Begin to measure."""

    def end(self) -> None:
        """End to measure."""

    def forget_measurements(self) -> None:
        """Forget what was measured of decoding."""
        self.decode_s, self.ask_s, self.logits, self.joules = [], [], [], 0.0


@dataclass
class Engine(Measured):
    """One way to run the model in this process, and its measurements.

    Parameters
    ----------
    llama : llama_cpp.Llama
        The model, on octavo's attention or on llama.cpp's.
    flash_attention : bool, optional
        Whether llama.cpp uses flash attention; None on octavo's attention.
    covers : float
        Share of its attention that a batch of the text must cover, on octavo's attention; 0 to read everything.
    bytes_read : int
        Bytes of keys, values and look-ups that the decoded tokens read, on octavo's attention.
    drafter : Drafter
        Drafts the text that is decoded.
    """

    llama: llama_cpp.Llama
    flash_attention: bool | None = None
    covers: float = 0.0
    bytes_read: int = 0
    drafter: Drafter = field(default_factory=partial(Drafter, 0))
    _state: np.ndarray | None = field(default=None, init=False)

    @property
    def n_tokens(self) -> int:
        """Tokens in the cache."""
        return int(self.llama.n_tokens)

    def prefill(self, tokens: list[int], last: bool) -> None:
        """Read a batch of the text, which may be its last."""
        start = working_time()
        with self.llama.context.attending_share(self.covers) if self.covers else nullcontext():
            self.llama.eval(tokens)
        self.prefill_s += working_time() - start

    def ask(self, tokens: list[int]) -> None:
        """Read a question, and keep the time until the first token of an answer can be drawn."""
        start = working_time()
        self.llama.eval(tokens)
        self.ask_s.append(working_time() - start)

    def decode(self, token: int, warm: bool) -> None:
        """Read one token. Of a warm engine keep time, energy and logits."""
        before, start = self.meter.look(), working_time()
        self.llama.eval([token])
        seconds = working_time() - start
        if not warm:
            return
        self.decode_s.append(seconds)
        self.joules += self.meter.joules_since(before)
        row = self.llama._ctx.get_logits_ith(-1)
        self.logits.append(np.ctypeslib.as_array(row, (self.llama.n_vocab(),)).astype(np.float64))

    def begin(self, draft: int | None) -> None:
        """Begin to measure, and draft from here on as an answer does (see `new_drafter`)."""
        if isinstance(self.llama, Llama):
            self.llama.context.bytes_read = 0
            if not self.decode_s:
                self.drafter = new_drafter(self.llama, draft)
            self.llama.sequence.drafter = self.drafter

    def end(self) -> None:
        """End to measure."""
        if isinstance(self.llama, Llama):
            self.bytes_read += self.llama.context.bytes_read
            self.llama.sequence.drafter = None

    @property
    def tokens_per_step(self) -> float:
        """Tokens that a step has computed and the text has, on average."""
        return len(self.decode_s) / (len(self.decode_s) - self.drafter.n_accepted)

    @property
    def token_s(self) -> float:
        """Seconds of a token: their mean if steps drafted, as tokens that are known take no time; else their median."""
        return float(np.mean(self.decode_s) if self.drafter.n_drafted else np.median(self.decode_s))

    def start_over(self) -> None:
        """Forget everything."""
        self.llama.reset()
        self.prefill_s = 0.0
        self.forget_measurements()

    def forget_measurements(self) -> None:
        super().forget_measurements()
        self.bytes_read = 0

    def keep_state(self) -> None:
        """Keep the recurrent state of a hybrid model, to go back to it."""
        if isinstance(self.llama, Llama):
            self.llama.context.keep_state()
        elif llama_cpp.llama_model_is_hybrid(self.llama.model):
            self._state = recurrent_state(self.llama.ctx, 0)

    def back_to(self, depth: int) -> None:
        """Forget all tokens after the first `depth`, where the state was kept."""
        if isinstance(self.llama, Llama):
            self.llama.rewind(depth)
        else:
            if self._state is not None:
                put_recurrent_state(self.llama.ctx, 0, self._state)
            self.llama._ctx.kv_cache_seq_rm(-1, depth, -1)
            self.llama.n_tokens = depth
        self.forget_measurements()


def context_for(n_tokens: int) -> int:
    """Return the size of llama.cpp's context for so many tokens."""
    return -(-n_tokens // 256) * 256


def llama_cpp_engines(model_path: str, n_tokens: int, cache_type: str, arguments: dict[str, Any]) -> list[Engine]:
    """Load a model on llama.cpp's own attention, with flash attention on and, if the cache is f16, off.

    Parameters
    ----------
    n_tokens : int
        Size of the context.
    cache_type : str
        Type of keys and values: "f16", "q8_0" or "q4_0".

    Raises
    ------
    OctavoError
        llama.cpp cannot store this model's keys and values as this type.
    """
    n_ctx = context_for(n_tokens)
    with silent_llama_cpp() as errors:
        try:
            return [
                Engine(
                    LLAMA_CPP,
                    llama_cpp.Llama(model_path, n_ctx=n_ctx, flash_attn=flash, verbose=False, **arguments),
                    flash_attention=flash,
                )
                for flash in ((True, False) if cache_type == F16 else (True,))
            ]
        except ValueError as problem:
            reason = f" It says: {errors[0].split(': ', 1)[-1]}." if errors else ""
            raise OctavoError(
                f"llama.cpp does not keep this model's keys and values as {cache_type}: leave it out "
                f"with --attention dense,squeezed.{reason}"
            ) from problem
