"""Which attention a model computes, read off its graph: the graph of one batch that is never computed."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import llama_cpp
import numpy as np
from llama_cpp import _internals as internals
from llama_cpp._logger import llama_log_callback

from ...cpu_kernels.compile import Shape
from ...errors import OctavoError
from . import ggml

_LOG_LEVEL_ERROR = 4  # enum ggml_log_level

#: What a reader of a refusal can do.
_WAY_OUT = "In Python, Llama(..., attention='llama.cpp') runs it on llama.cpp's own attention."


@dataclass(frozen=True)
class AttentionNode:
    """One attention of the graph, in the order in which they are computed.

    head_dim, n_head, n_kv_head : its shape
    window : newest rows that a token sees, itself included; 0 sees all
    scale, softcap : of the scores; softcap 0 for none
    kv_layer : which of the model's caches it reads, counted from 0
    appends : whether it is the first to read that cache, so that the batch's rows are new to it
    """

    head_dim: int
    n_head: int
    n_kv_head: int
    window: int
    scale: float
    softcap: float
    kv_layer: int
    appends: bool

    def shape(self, kv_type: str) -> Shape:
        """What its kernels are compiled for."""
        return Shape(self.head_dim, self.n_head // self.n_kv_head, kv_type)


def attention_nodes(model: internals.LlamaModel, params: Any) -> list[AttentionNode]:
    """All attentions of a model. Raises OctavoError, in one sentence, where octavo cannot compute them."""
    operations = ggml.check_layout()
    name = model.metadata().get("general.architecture", "unknown")
    refuse_memory(model.model, name)
    nodes: list[AttentionNode] = []
    caches: dict[int, int] = {}
    problems: list[Exception] = []
    n_swa = llama_cpp.llama_model_n_swa(model.model)
    n_tokens = n_swa + 2 if n_swa > 0 else 2

    @llama_cpp.ggml_backend_sched_eval_callback
    def look(address: int, ask: bool, _: Any) -> bool:
        tensor = ggml.Tensor.from_address(address)
        if ask and tensor.op == operations.flash_attention and not problems:
            try:
                nodes.append(_read_node(tensor, caches, n_tokens, n_swa, name))
            except OctavoError as problem:
                problems.append(problem)
        return not ask

    @llama_cpp.ggml_abort_callback
    def abort(_: Any) -> bool:
        return True

    params = type(params).from_buffer_copy(params)
    params.n_ctx = params.n_batch = params.n_ubatch = n_tokens
    params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED
    params.embeddings = False
    params.cb_eval, params.abort_callback = look, abort
    with silent_llama_cpp(), closing(internals.LlamaContext(model=model, params=params, verbose=False)) as context:
        batch = internals.LlamaBatch(n_tokens=n_tokens, embd=0, n_seq_max=1, verbose=False)
        batch.set_batch([0] * n_tokens, 0, False)
        llama_cpp.llama_decode(context.ctx, batch.batch)
        batch.close()
    if problems:
        raise problems[0]
    if not nodes:
        raise OctavoError(f"llama.cpp runs '{name}' models without flash attention, which octavo needs. {_WAY_OUT}")
    return nodes


def refuse_memory(model: Any, name: str) -> None:
    """Raise OctavoError for a model whose memory is not a plain KV cache."""
    if llama_cpp.llama_model_is_recurrent(model) or llama_cpp.llama_model_is_hybrid(model):
        raise OctavoError(f"octavo needs a KV cache, and '{name}' models keep a recurrent state. {_WAY_OUT}")
    if llama_cpp.llama_model_has_encoder(model) or not llama_cpp.llama_model_has_decoder(model):
        raise OctavoError(f"octavo runs decoder-only models, and '{name}' models have an encoder. {_WAY_OUT}")


@contextmanager
def silent_llama_cpp() -> Iterator[list[str]]:
    """Keep llama.cpp from printing what we provoke or report ourselves; gives the errors that it logs meanwhile."""
    errors: list[str] = []

    @llama_cpp.llama_log_callback
    def keep(level: int, text: bytes, _: Any) -> None:
        if level == _LOG_LEVEL_ERROR:
            errors.append(text.decode("utf-8", "replace").strip())

    llama_cpp.llama_log_set(keep, None)
    try:
        yield errors
    finally:
        llama_cpp.llama_log_set(llama_log_callback, None)


def _read_node(node: Any, caches: dict[int, int], n_tokens: int, n_swa: int, name: str) -> AttentionNode:
    """Describe an attention node that is about to be computed."""
    q, k, v = (node.src[i].contents for i in range(3))
    scale, max_bias, softcap = (ctypes.c_float * 3).from_buffer(node.op_params)
    head_dim, n_head, n_kv_head = q.ne[0], q.ne[2], k.ne[2]
    if max_bias > 0:
        raise OctavoError(f"octavo cannot compute the ALiBi attention of '{name}' models. {_WAY_OUT}")
    if not k.view_src or k.type != ggml.TYPE_F16 or v.type != ggml.TYPE_F16 or q.ne[3] != 1:
        raise OctavoError(f"octavo cannot compute the attention of '{name}' models: it has no KV cache. {_WAY_OUT}")
    if v.ne[0] != head_dim or k.ne[0] != head_dim or head_dim % 8 or n_head % n_kv_head or v.ne[2] != n_kv_head:
        raise OctavoError(
            f"octavo cannot compute the attention of '{name}' models: keys of {k.ne[0]} and values of {v.ne[0]} "
            f"numbers for {n_head} query and {n_kv_head} KV heads (multi-head latent attention, perhaps). {_WAY_OUT}"
        )
    cache = ctypes.addressof(k.view_src.contents)
    appends = cache not in caches
    kv_layer = caches.setdefault(cache, len(caches))
    window = _window(node.src[3].contents, n_tokens, n_swa, name)
    return AttentionNode(head_dim, n_head, n_kv_head, window, scale, softcap, kv_layer, appends)


def _window(mask: Any, n_tokens: int, n_swa: int, name: str) -> int:
    """The window that a causal mask shows, 0 for none. mask : (n_tokens, n_cells) f16, -inf where not seen."""
    seen = ggml.strided(mask, np.float16, (n_tokens, n_tokens), (2 * mask.ne[0], 2)) > -1
    row, column = np.arange(n_tokens)[:, None], np.arange(n_tokens)[None]
    causal = column <= row
    if np.array_equal(seen, causal):
        return 0
    if np.array_equal(seen, causal & (row - column < n_swa)):
        return n_swa
    raise OctavoError(f"octavo does not know the attention pattern of '{name}' models. {_WAY_OUT}")
