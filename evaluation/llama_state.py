"""Write our KV cache as llama.cpp's state of one sequence, so that llama.cpp holds a text without reading it.

`llama_state_seq_set_data` reads it (`state_read` in llama.cpp's src/llama-context.cpp and src/llama-kv-cache.cpp):

1. A header: a magic number (u32, 0xAF143CD8) and the number of the sequence (i32), which is not used.
2. The number of streams (u32, 1), and of cells (u32): one for each token.
3. For each cell its position (i32), the number of its sequences (u32, 1), and that sequence (i32). If the model has
   positions in several dimensions (M-RoPE), two of them (i32), for text the same, and the token (i32) come before the
   sequence.
4. Whether values are transposed (u32): 1 where flash attention is off. The number of layers (u32).
5. The keys of each layer: their type (i32, 1 for f16), the bytes of a row (u64), and the rows,
   (n_cells, n_kv_head, head_dim).
6. After all keys, the values of each layer, in the same way if they are not transposed.
7. If they are transposed: the type (i32), the bytes of an element (u32), the elements of a row (u32), and the values,
   (n_kv_head, head_dim, n_cells). Values that are the first part of their keys are not written.
8. In a hybrid model, the recurrent state follows, as llama.cpp writes it alone, without another header.
9. Sliding-window layers have a second cache, with a state of its own, which this module does not write.

All numbers are in the machine's byte order, without padding.
"""

from __future__ import annotations

import ctypes
import struct

import llama_cpp
import numpy as np

from ..errors import OctavoError
from ..runtime.cache.kv_cache import KVCache
from ..runtime.document.kept_state import STATE_HEADER_BYTES
from ..runtime.graph import ggml
from ..runtime.graph.attention_nodes import silent_llama_cpp
from ..runtime.llama import Llama

MAGIC = 0xAF143CD8

_POSITION = [("position", np.int32), ("n_sequences", np.uint32)]
_OF_DIMENSIONS = [("x", np.int32), ("y", np.int32), ("token", np.int32)]
_SEQUENCE = [("sequence", np.int32)]

#: llama.cpp's rope types with positions in several dimensions.
_SEVERAL_DIMENSIONS = {llama_cpp.LLAMA_ROPE_TYPE_MROPE, llama_cpp.LLAMA_ROPE_TYPE_IMROPE}
_ITEM_BYTES = 2  # f16


def copy_sequence(source: Llama, target: llama_cpp.Llama) -> None:
    """Replace the tokens, keys and values of llama.cpp's own context with ours.

    Parameters
    ----------
    source : Llama
        A model on octavo's attention, with an f16 cache and no document.
    target : llama_cpp.Llama
        The same model on llama.cpp's attention.

    Raises
    ------
    OctavoError
        llama.cpp refuses the state.
    """
    n_tokens = source.n_tokens
    transposed = target.context_params.flash_attn_type == llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
    in_dimensions = llama_cpp.llama_model_rope_type(target.model) in _SEVERAL_DIMENSIONS
    tokens = source.input_ids[:n_tokens] if in_dimensions else None
    rows, recurrent = sequence_state(source.context.cache, transposed, tokens), source.context.state_blob()
    state = np.concatenate([rows, recurrent[STATE_HEADER_BYTES:]])
    with silent_llama_cpp() as errors:
        address = state.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
        n_read = llama_cpp.llama_state_seq_set_data(target.ctx, address, state.nbytes, 0)
    if n_read != state.nbytes:
        reason = f" It says: {errors[0]}." if errors else ""
        raise OctavoError(f"llama.cpp does not take a copy of octavo's KV cache: use --fill prefill.{reason}")
    target.input_ids[:n_tokens] = source.input_ids[:n_tokens]
    target.n_tokens = n_tokens


def sequence_state(cache: KVCache, transposed: bool, tokens: np.ndarray | None = None) -> np.ndarray:
    """Return the state of all tokens in a cache.

    Parameters
    ----------
    cache : KVCache
        An f16 cache without a document, with at least one token.
    transposed : bool
        Whether the reader wants values transposed, as it does without flash attention.
    tokens : int32 array, shape (n_tokens,), optional
        The tokens, if the model has positions in several dimensions.
    """
    n_cells = cache.n_tail
    cells = np.zeros(n_cells, [*_POSITION, *(() if tokens is None else _OF_DIMENSIONS), *_SEQUENCE])
    cells["position"], cells["n_sequences"] = np.arange(n_cells), 1
    if tokens is not None:
        cells["x"] = cells["y"] = cells["position"]
        cells["token"] = tokens
    head = struct.pack("=IiII", MAGIC, 0, 1, n_cells) + cells.tobytes()
    head += struct.pack("=II", transposed, len(cache.layers))
    parts: list[tuple[bytes, np.ndarray]] = [(head, np.empty(0, np.uint8))]
    parts += [_rows_in_order(cache.rows(i)[0]) for i in range(len(cache.layers))]
    for i, layer in enumerate(cache.layers):
        if not layer.latent:
            values = cache.rows(i)[1]
            parts.append(_transposed_rows(values) if transposed else _rows_in_order(values))
    state = np.empty(sum(len(header) + rows.nbytes for header, rows in parts), np.uint8)
    end = 0
    for header, rows in parts:
        start, end = end + len(header), end + len(header) + rows.nbytes
        state[start - len(header) : start] = np.frombuffer(header, np.uint8)
        state[start:end].view(rows.dtype).reshape(rows.shape)[:] = rows
    return state


def _rows_in_order(rows: np.ndarray) -> tuple[bytes, np.ndarray]:
    """Return the header of one layer's keys or values, (n_kv_head, n_cells, length) f16, and the rows, by rule 5."""
    return struct.pack("=iQ", ggml.TYPE_F16, rows.shape[0] * rows.shape[2] * _ITEM_BYTES), rows.transpose(1, 0, 2)


def _transposed_rows(rows: np.ndarray) -> tuple[bytes, np.ndarray]:
    """Return the header of one layer's values, and the values, by rule 7."""
    return struct.pack("=iII", ggml.TYPE_F16, _ITEM_BYTES, rows.shape[0] * rows.shape[2]), rows.transpose(0, 2, 1)


def refuse_windows(llama: Llama) -> None:
    """Refuse a model whose cache cannot be copied (rule 9).

    Raise OctavoError if some layers attend to a sliding window.
    """
    if any(layer.window for layer in llama.context.cache.layers):
        raise OctavoError(
            "Some layers of this model attend a sliding window, and llama.cpp keeps their keys and values in a cache "
            "that octavo cannot fill: use --fill prefill."
        )
