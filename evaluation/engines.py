"""Run a model on octavo's attentions and on llama.cpp's: the engines of `octavo bench`."""

from __future__ import annotations

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
from ..system.working_time import working_time


@dataclass
class Engine:
    """One way to run the model, and its measurements at the current depth.

    Parameters
    ----------
    llama : llama_cpp.Llama
        The model, on octavo's attention or on llama.cpp's.
    flash_attention : bool, optional
        Whether llama.cpp uses flash attention; None on octavo's attention.
    prefill_s : float
        Seconds of reading the text up to this depth; 0 for an engine that read nothing.
    decode_s : list of float
        Seconds of each decoded token.
    logits : list of float64 arrays, shape (n_vocab,)
        Logits after each decoded token.
    drafter : Drafter
        Drafts the text that is decoded.
    """

    name: str
    llama: llama_cpp.Llama
    flash_attention: bool | None = None
    prefill_s: float = 0.0
    decode_s: list[float] = field(default_factory=list)
    logits: list[np.ndarray] = field(default_factory=list)
    drafter: Drafter = field(default_factory=partial(Drafter, 0))
    _state: np.ndarray | None = field(default=None, init=False)

    def prefill(self, tokens: list[int]) -> None:
        """Read a batch of the text."""
        start = working_time()
        self.llama.eval(tokens)
        self.prefill_s += working_time() - start

    def decode(self, token: int) -> None:
        """Read one token, and keep its time and logits."""
        start = working_time()
        self.llama.eval([token])
        self.decode_s.append(working_time() - start)
        row = self.llama._ctx.get_logits_ith(-1)
        self.logits.append(np.ctypeslib.as_array(row, (self.llama.n_vocab(),)).astype(np.float64))

    def measure_anew(self, draft: int | None) -> None:
        """Forget what was measured, and draft from here on as an answer does (see `new_drafter`)."""
        self.decode_s, self.logits = [], []
        if isinstance(self.llama, Llama):
            self.llama.context.bytes_read = 0
            self.drafter = self.llama.sequence.drafter = new_drafter(self.llama, draft)

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
        self.prefill_s, self.decode_s, self.logits = 0.0, [], []

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
        self.decode_s, self.logits = [], []


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
    n_ctx = -(-n_tokens // 256) * 256
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
