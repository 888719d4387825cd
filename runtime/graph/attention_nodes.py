"""Determine from a model's graph which attention it computes, and how far RoPE rotates queries for each position.

llama.cpp builds the graph of a tiny batch and passes each node to a callback, which aborts the computation.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import llama_cpp
import numpy as np
from llama_cpp import _internals as internals
from llama_cpp._logger import llama_log_callback

from ...cpu_kernels.numba_support.shape import Limits, Shape
from ...errors import OctavoError
from ..document.cache_layer import CacheLayer, Rope
from ..process.interruption import shielded
from . import ggml

_LOG_LEVEL_ERROR = 4  # enum ggml_log_level

#: Longest window for which a batch is built, which takes memory for a moment; and the window that replaces a longer
#: one.
_LONGEST_PROBE, _NARROW = 512, 8

#: Operations that do not affect a rotation.
_TRANSPARENT = ("VIEW", "RESHAPE", "PERMUTE", "TRANSPOSE", "CONT", "CPY", "DUP", "SCALE")

#: llama.cpp's numbers of the two ways to pair elements.
_NORM, _NEOX = 0, 2

#: The end of each refusal: advice for the user.
_WAY_OUT = "In Python, Llama(..., attention='llama.cpp') runs it on llama.cpp's own attention."


@dataclass(frozen=True)
class AttentionNode:
    """One attention of the graph.

    Parameters
    ----------
    window : int
        Newest rows that a token sees, including its own, or most of them, if the window is a chunk; 0 for all.
    scale : float
        Factor of the scores.
    softcap : float
        Soft cap of the scores, 0 for none.
    kv_layer : int
        Number of the cache that it reads, from 0. Layers may share a cache.
    appends : bool
        Whether it is the first in the graph to read that cache, and so stores the batch's keys and values.
    rope : Rope or None
        The rotation of its queries and keys; None if octavo does not know it.
    value_dim : int
        Elements of a value. 0, the default, is head_dim.
    latent : bool
        Whether a value is the first part of its key, as in multi-head latent attention.
    chunked : bool
        Whether the window is a chunk: a token sees the rows from the last multiple of the window on.
    """

    head_dim: int
    n_head: int
    n_kv_head: int
    window: int
    scale: float
    softcap: float
    kv_layer: int
    appends: bool
    rope: Rope | None = None
    value_dim: int = 0
    latent: bool = False
    chunked: bool = False

    def shape(self, kv_type: str) -> Shape:
        """Return the sizes that its kernels are compiled for."""
        return Shape(self.head_dim, self.n_head // self.n_kv_head, kv_type, self.value_dim, self.latent)


def cache_layers(nodes: list[AttentionNode], kv_type: str) -> list[CacheLayer]:
    """Return the caches of a model's attentions, each once: some attentions read another's."""
    return [
        CacheLayer(
            node.n_kv_head,
            node.head_dim,
            node.window,
            kv_type,
            node.n_head // node.n_kv_head,
            node.softcap,
            node.rope,
            node.value_dim,
            node.latent,
            node.chunked,
        )
        for node in nodes
        if node.appends
    ]


def attention_nodes(model: internals.LlamaModel, params: Any) -> list[AttentionNode]:
    """Describe all attentions of a model.

    Parameters
    ----------
    params : llama_context_params
        Parameters of its context. They are not changed.

    Returns
    -------
    list of AttentionNode
        The attentions, in the order of the graph.

    Raises
    ------
    OctavoError
        octavo cannot compute one of them; or the model has no keys and values of its own tokens, as it keeps nothing
        but a recurrent state, or has an encoder.
    """
    name = model.metadata().get("general.architecture", "unknown")
    if llama_cpp.llama_model_is_recurrent(model.model) and not llama_cpp.llama_model_is_hybrid(model.model):
        raise OctavoError(
            f"octavo replaces attention, and '{name}' models have none: their state is all they keep. {_WAY_OUT}"
        )
    if llama_cpp.llama_model_has_encoder(model.model) or not llama_cpp.llama_model_has_decoder(model.model):
        raise OctavoError(f"octavo runs decoder-only models, and '{name}' models have an encoder. {_WAY_OUT}")
    window = llama_cpp.llama_model_n_swa(model.model)
    if window <= _LONGEST_PROBE:
        return _probe(model, params, name)
    across = _probe(model, params, name, window - 2, 4)  # the border of a chunk
    if any(node.window for node in across):
        return across
    with _with_window(model, name) as narrow:
        if llama_cpp.llama_model_n_swa(narrow.model) != _NARROW:  # the architecture sets its window in another way
            return _probe(model, params, name)
        nodes = _probe(narrow, params, name)
    return [replace(node, window=window if node.window else 0) for node in nodes]


@contextmanager
def _with_window(model: internals.LlamaModel, name: str) -> Iterator[internals.LlamaModel]:
    """Load a model again with narrow windows, so that a short batch crosses them. Weights stay on disk."""
    overrides = (llama_cpp.llama_model_kv_override * 2)()
    overrides[0].tag = llama_cpp.LLAMA_KV_OVERRIDE_TYPE_INT
    overrides[0].key = f"{name}.attention.sliding_window".encode()
    overrides[0].value.val_i64 = _NARROW
    params = llama_cpp.llama_model_default_params()
    params.n_gpu_layers, params.use_extra_bufts = 0, False
    params.kv_overrides = overrides
    with silent_llama_cpp(), closing(_load(model.path_model, params)) as narrow:
        yield narrow


def _load(path: str, params: Any) -> internals.LlamaModel:
    return internals.LlamaModel(path_model=path, params=params, verbose=False)


def _probe(
    model: internals.LlamaModel, params: Any, name: str, first: int = 0, n_tokens: int = 0
) -> list[AttentionNode]:
    """Make llama.cpp build the graph of a batch, and read it.

    Parameters
    ----------
    first : int
        Position of the first token.
    n_tokens : int
        Number of tokens; 0 for more than the model's windows.
    """
    operations = ggml.check_layout()
    nodes: list[AttentionNode] = []
    caches: dict[int, int] = {}
    problems: list[BaseException] = []
    n_swa = llama_cpp.llama_model_n_swa(model.model)
    n_tokens = n_tokens or (n_swa + 2 if n_swa > 0 else 2)

    @llama_cpp.ggml_backend_sched_eval_callback
    def look(address: int, ask: bool, _: Any) -> bool:
        tensor = ggml.Tensor.from_address(address)
        if ask and tensor.op == operations.flash_attention and not problems:
            try:
                nodes.append(_read_node(tensor, caches, first + np.arange(n_tokens), n_swa, name))
            except BaseException as problem:  # C would lose it
                problems.append(problem)
        return not ask

    params = type(params).from_buffer_copy(params)
    params.n_ctx = params.n_batch = params.n_ubatch = n_tokens
    params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED
    params.embeddings = False
    params.cb_eval, params.abort_callback = look, llama_cpp.ggml_abort_callback(lambda _: True)
    with silent_llama_cpp(), closing(internals.LlamaContext(model=model, params=params, verbose=False)) as context:
        batch = internals.LlamaBatch(n_tokens=n_tokens, embd=0, n_seq_max=1, verbose=False)
        batch.set_batch([0] * n_tokens, first, False)
        llama_cpp.llama_decode(context.ctx, batch.batch)
        batch.close()
    if problems:
        raise problems[0]
    if not nodes:
        raise OctavoError(f"llama.cpp runs '{name}' models without flash attention, which octavo needs. {_WAY_OUT}")
    return nodes


@contextmanager
def silent_llama_cpp() -> Iterator[list[str]]:
    """Keep llama.cpp from printing errors that octavo causes on purpose or reports itself.

    Ctrl-C takes effect at the end: llama.cpp would lose what Python raises while it logs.

    Yields
    ------
    list of str
        The errors logged so far.
    """
    errors: list[str] = []

    @llama_cpp.llama_log_callback
    def keep(level: int, text: bytes, _: Any) -> None:
        if level == _LOG_LEVEL_ERROR:
            errors.append(text.decode("utf-8", "replace").strip())

    with shielded():
        llama_cpp.llama_log_set(keep, None)
        try:
            yield errors
        finally:
            llama_cpp.llama_log_set(llama_log_callback, None)


def _read_node(node: Any, caches: dict[int, int], positions: np.ndarray, n_swa: int, name: str) -> AttentionNode:
    """Describe an attention node before it is computed. caches : the numbers of the caches so far, by address"""
    q, k, v = (node.src[i].contents for i in range(3))
    scale, max_bias, softcap = (ctypes.c_float * 3).from_buffer(node.op_params)
    head_dim, n_head, n_kv_head = q.ne[0], q.ne[2], k.ne[2]
    mask = node.src[3].contents
    if reason := _obstacle(q, k, v, mask, max_bias):
        raise OctavoError(f"octavo cannot compute the attention of '{name}' models: {reason}. {_WAY_OUT}")
    cache = ctypes.addressof(k.view_src.contents)
    appends = cache not in caches
    kv_layer = caches.setdefault(cache, len(caches))
    window, chunked = _window(mask, positions, n_swa, name)
    first, rest = (head_dim, n_head, n_kv_head, window, scale, softcap), (v.ne[0], _is_latent(k, v), chunked)
    return AttentionNode(*first, kv_layer, appends, _rope_of(q), *rest)


def _obstacle(q: Any, k: Any, v: Any, mask: Any, max_bias: float) -> str:
    """Return why octavo cannot compute an attention of these tensors; "" if it can."""
    head_dim, n_head, n_kv_head = q.ne[0], q.ne[2], k.ne[2]
    if max_bias > 0:
        return "it adds a bias to scores that grows with the distance (ALiBi)"
    if q.ne[3] != 1:
        return "it is block-sparse: each KV head chooses the blocks of keys that it reads"
    if not (k.view_src and v.view_src) or k.type != ggml.TYPE_F16 or v.type != ggml.TYPE_F16:
        return "it has no KV cache, as in encoders and diffusion models, where each token sees the whole text"
    if ggml.operation_name(_origin(mask)) != "NONE":
        return "an indexer chooses the keys that each token reads"
    if _is_latent(k, v) and (k.data != v.data or v.ne[0] > head_dim):
        return "its values are a part of its keys, but not the first"
    if head_dim % 8 or v.ne[0] % 8:
        own = f"{head_dim} numbers" if v.ne[0] == head_dim else f"keys of {head_dim} numbers and values of {v.ne[0]}"
        return f"its heads have {own}, and octavo's kernels read multiples of 8"
    if n_head % n_kv_head or v.ne[2] != n_kv_head:
        return f"its {n_head} query heads do not share {n_kv_head} heads of keys and {v.ne[2]} of values evenly"
    return Limits().excess(Shape(head_dim, n_head // n_kv_head, value_dim=v.ne[0]))


def _is_latent(k: Any, v: Any) -> bool:
    """Return whether values are views of the keys."""
    return ctypes.addressof(k.view_src.contents) == ctypes.addressof(v.view_src.contents)


def _window(mask: Any, positions: np.ndarray, n_swa: int, name: str) -> tuple[int, bool]:
    """Return the window of a causal mask, 0 for none, and whether it is a chunk.

    Parameters
    ----------
    mask : ggml.Tensor
        (n_tokens, n_cells) f16, -inf for hidden cells.
    positions : int array, shape (n_tokens,)
        Position of each token; the first cells have the same.
    """
    n_tokens = len(positions)
    seen = ggml.strided(mask, np.float16, (n_tokens, n_tokens), (2 * mask.ne[0], 2)) > -1
    row, column = positions[:, None], positions[None]
    causal = column <= row
    if np.array_equal(seen, causal):
        return 0, False
    if np.array_equal(seen, causal & (row - column < n_swa)):
        return n_swa, False
    if np.array_equal(seen, causal & (row // n_swa == column // n_swa)):
        return n_swa, True
    raise OctavoError(f"octavo does not know the attention pattern of '{name}' models. {_WAY_OUT}")


def _rope_of(queries: Any) -> Rope | None:
    """Return the rotation of an attention node's queries; None if octavo does not know it."""
    node = _origin(queries)
    operation = ggml.operation_name(node)
    if operation == "ROPE":
        return _rope_at(node)
    if operation == "CONCAT":
        return _rope_of_parts(node.src[0].contents, node.src[1].contents)
    if operation == "ADD":  # a bias
        operation = ggml.operation_name(node.src[0].contents)
    return Rope(np.zeros(0), interleaved=False) if operation == "MUL_MAT" else None


def _origin(node: Any) -> Any:
    """Return the node that computed another one's numbers."""
    while ggml.operation_name(node) in _TRANSPARENT:
        node = node.src[0].contents
    return node


def _rope_of_parts(first: Any, second: Any) -> Rope | None:
    """Return the rotation of queries of two parts, of which only the second turns, as in latent attention."""
    ropes = _rope_of(first), _rope_of(second)
    if ropes[0] is None or ropes[1] is None or len(ropes[0].frequencies) or not ropes[1].interleaved:
        return None
    still = np.zeros(first.ne[0] // 2)  # pairs that stay
    return Rope(np.concatenate([still, ropes[1].frequencies]), interleaved=True)


def _rope_at(node: Any) -> Rope | None:
    """Return the rotation of a ROPE node: llama.cpp's NORM or NEOX, with any scaling."""
    integers = list(node.op_params)
    n_dims, mode, original = integers[1], integers[2], integers[4]
    base, scale, extrapolated, _, fast, slow = np.frombuffer(bytes(node.op_params)[20:44], np.float32).tolist()
    if mode not in (_NORM, _NEOX):
        return None
    pairs = np.arange(n_dims // 2)
    frequencies = base ** (-2.0 * pairs / n_dims)
    if node.src[2]:
        frequencies /= ggml.strided(node.src[2].contents, np.float32, (n_dims // 2,), (4,))
    stretched = scale * frequencies
    if extrapolated:  # YaRN: fast pairs keep their frequency, slow ones are stretched
        low, high = (_pair_with(turns, n_dims, original, base) for turns in (fast, slow))
        low, high = max(np.floor(low), 0.0), min(np.ceil(high), n_dims - 1.0)
        kept = extrapolated * (1 - np.clip((pairs - low) / max(high - low, 0.001), 0.0, 1.0))
        stretched = stretched * (1 - kept) + frequencies * kept
    return Rope(np.ascontiguousarray(stretched, np.float64), interleaved=mode == _NORM)


def _pair_with(turns: float, n_dims: int, original: int, base: float) -> float:
    """Return the pair that turns this often in the original context."""
    return float(n_dims * np.log(original / (turns * 2 * np.pi)) / (2 * np.log(base)))
