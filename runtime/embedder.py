"""Compute embeddings with a model that pools: by llama.cpp's own attention, over the weights of octavo's context.

Products of weights are octavo's where its kernels are for this CPU.

A text is read in batches, so that requests can use the model in between, and the outputs of its tokens are pooled here:
a pooling context of llama.cpp would need the whole text in one batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import llama_cpp
import numpy as np
from llama_cpp import _internals as internals

from ..cpu_kernels.numba_support.machine_features import MULTIPLIES_WEIGHTS
from ..cpu_kernels.numba_support.shape import F16
from ..errors import OctavoError
from ..system.free_memory import check_free
from .graph import ggml, hook
from .graph.attention_nodes import silent_llama_cpp
from .llama import Llama

#: Poolings in a model's header: the mean of the outputs of a text's tokens, the first, or the last.
MEAN, FIRST, LAST = (
    llama_cpp.LLAMA_POOLING_TYPE_MEAN,
    llama_cpp.LLAMA_POOLING_TYPE_CLS,
    llama_cpp.LLAMA_POOLING_TYPE_LAST,
)

#: Cells of the smallest context; larger ones are powers of two, made on demand.
_LEAST_CELLS = 512

#: Settings of octavo's context that positions depend on.
_ROPE = (
    "rope_scaling_type",
    "rope_freq_base",
    "rope_freq_scale",
    "yarn_ext_factor",
    "yarn_attn_factor",
    "yarn_beta_fast",
    "yarn_beta_slow",
    "yarn_orig_ctx",
)


class Embedder:
    """Compute embeddings. Use it from one thread, and do not evaluate on the model meanwhile."""

    def __init__(self, llama: Llama) -> None:
        self._llama = llama
        self.n_batch = min(llama.n_batch, _LEAST_CELLS)
        self._pooling = pooling(llama)
        self._context: internals.LlamaContext | None = None
        self._batch = internals.LlamaBatch(n_tokens=self.n_batch, embd=0, n_seq_max=1, verbose=False)
        self._n_read, self._sum = 0, np.zeros(0)
        self._step = hook.new_step(0)  # without attention

    @property
    def works(self) -> bool:
        """Return whether the model computes embeddings: whether its header names a known pooling."""
        return self._pooling in (MEAN, FIRST, LAST)

    @property
    def n_dimensions(self) -> int:
        """Return the length of an embedding."""
        return int(llama_cpp.llama_model_n_embd_out(self._llama._model.model))

    def start(self, n_tokens: int) -> None:
        """Begin a text of n_tokens tokens. Raise OctavoError if memory does not suffice."""
        self._n_read, self._sum = 0, np.zeros(self.n_dimensions)
        if self._context is None or self._context.n_ctx() < n_tokens:
            self._make_context(max(_LEAST_CELLS, 1 << (n_tokens - 1).bit_length()))

    def read(self, tokens: Sequence[int]) -> None:
        """Read the next tokens of the text, at most `n_batch`. Raise OctavoError if llama.cpp cannot compute them."""
        context, n_tokens = self._context, len(tokens)
        assert context is not None
        if self._n_read == 0:
            context.kv_cache_clear()
        self._batch.set_batch(tokens, self._n_read, logits_all=True)
        self._products.start()
        if code := llama_cpp.llama_decode(context.ctx, self._batch.batch):
            raise OctavoError(f"llama.cpp could not compute a batch (llama_decode returned {code}).")
        address = llama_cpp.llama_get_embeddings(context.ctx)
        outputs = np.ctypeslib.as_array(address, (n_tokens, self.n_dimensions))
        if self._pooling == MEAN:
            self._sum += outputs.sum(axis=0, dtype=np.float64)
        elif self._pooling == LAST:
            self._sum = outputs[-1].astype(np.float64)
        elif self._n_read == 0:
            self._sum = outputs[0].astype(np.float64)
        self._n_read += n_tokens

    def embedding(self) -> np.ndarray:
        """Return the embedding of the text: float32, of length 1."""
        norm = np.linalg.norm(self._sum)
        return (self._sum / norm if norm else self._sum).astype(np.float32)

    def close(self) -> None:
        """Free memory."""
        if self._context is not None:
            self._context.close()
            self._context = None

    def _make_context(self, n_cells: int) -> None:
        """Make a context of llama.cpp's own attention, in place of a smaller one."""
        ours = self._llama.context
        self.close()
        row = sum(node.n_kv_head * node.shape(F16).token_bytes for node in ours.nodes if node.appends)
        check_free(f"Computing an embedding of up to {n_cells:,} tokens", n_cells * row)
        params = llama_cpp.llama_context_default_params()
        params.n_ctx, params.n_seq_max = n_cells, 1
        params.n_batch = params.n_ubatch = self.n_batch
        params.n_threads, params.n_threads_batch = ours.params.n_threads, ours.params.n_threads_batch
        params.type_k = params.type_v = ggml.TYPE_F16
        self._products, _ = hook.multiply_weights(self._step, max(params.n_threads, params.n_threads_batch))
        if MULTIPLIES_WEIGHTS:
            params.cb_eval = llama_cpp.ggml_backend_sched_eval_callback(hook.replace_attention.address)
            params.cb_eval_user_data = self._step.ctypes.data
        params.embeddings, params.pooling_type = True, llama_cpp.LLAMA_POOLING_TYPE_NONE
        for name in _ROPE:
            setattr(params, name, getattr(ours.params, name))
        try:
            with silent_llama_cpp():
                self._context = internals.LlamaContext(model=self._llama._model, params=params, verbose=False)
        except ValueError as problem:
            raise OctavoError(f"llama.cpp cannot make a context for embeddings of {n_cells:,} tokens.") from problem


def pooling(llama: Llama) -> int:
    """Return the pooling in a model's header, as llama.cpp numbers them; 0 for none."""
    architecture = llama.metadata.get("general.architecture")
    return int(llama.metadata.get(f"{architecture}.pooling_type", llama_cpp.LLAMA_POOLING_TYPE_NONE))
