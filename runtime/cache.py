"""The KV cache: a read-only document, if one is attached, and a tail that grows by chunks.

One sequence. Rows are f16 or q8_0, contiguous for each layer and KV head. The compiled step reads all of it through the
HEAD records that this class keeps; it appends the step's new rows itself, to room that `reserve` made.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import psutil

from octavo.cpu_kernels.compile import F16
from octavo.cpu_kernels.spans import ANY_ORDER, CHUNK_ROWS, HEAD

from .document import Document
from .errors import OctavoError
from .rows import row_bytes, row_format

#: Memory that is left to the rest of the machine.
_SPARE_BYTES = 256 << 20


@dataclass(frozen=True)
class CacheLayer:
    """Shape of one layer's cache.

    window : newest rows that a token sees, 0 for all
    kv_type : how keys and values are stored, F16 or Q8_0
    """

    n_kv_head: int
    head_dim: int
    window: int
    kv_type: str = F16

    @property
    def row_bytes(self) -> int:
        """Bytes that one token takes: keys and values of all heads."""
        return 2 * self.n_kv_head * row_bytes(self.head_dim, self.kv_type)

    def new_rows(self, n_rows: int) -> np.ndarray:
        """Room for keys and values: (2, n_kv_head, n_rows, elements of a row); see rows.py."""
        dtype, n_elements = row_format(self.head_dim, self.kv_type)
        return np.empty((2, self.n_kv_head, n_rows, n_elements), dtype)


class KVCache:
    """Keys and values of one sequence of at most n_ctx tokens."""

    def __init__(self, layers: list[CacheLayer], n_ctx: int) -> None:
        self.layers = layers
        self.document: Document | None = None
        self.n_tail = 0
        self._chunks: list[list[np.ndarray]] = []  # for each chunk of CHUNK_ROWS rows, an array for each layer
        self._tables = np.zeros((len(layers), -(-n_ctx // CHUNK_ROWS)), np.int64)
        first = np.cumsum([0] + [layer.n_kv_head for layer in layers])
        self.heads = np.zeros(first[-1], HEAD)
        self._layer_heads = [self.heads[a:b] for a, b in itertools.pairwise(first)]
        for layer, heads, table in zip(layers, self._layer_heads, self._tables, strict=True):
            head_bytes = CHUNK_ROWS * row_bytes(layer.head_dim, layer.kv_type)
            heads["tail_chunks"] = table.ctypes.data
            heads["key_offset"] = np.arange(layer.n_kv_head) * head_bytes
            heads["value_offset"] = (np.arange(layer.n_kv_head) + layer.n_kv_head) * head_bytes
            heads["window"] = layer.window
            heads["document_position"] = ANY_ORDER

    def layer_heads(self, layer: int) -> np.ndarray:
        """The HEAD records of a layer, a view."""
        return self._layer_heads[layer]

    @property
    def n_document(self) -> int:
        """Tokens of the attached document."""
        return len(self.document.tokens) if self.document else 0

    @property
    def n_tokens(self) -> int:
        """Tokens in the cache."""
        return self.n_document + self.n_tail

    @property
    def row_bytes(self) -> int:
        """Bytes that one token takes in all layers."""
        return sum(layer.row_bytes for layer in self.layers)

    @property
    def kv_bytes(self) -> int:
        """Bytes allocated or mapped for keys and values."""
        document = self.document.n_bytes if self.document else 0
        return document + len(self._chunks) * CHUNK_ROWS * self.row_bytes

    def check_memory(self, n_tail: int) -> None:
        """Raise OctavoError, with the figures, where a tail of n_tail rows does not fit in free memory."""
        n_chunks = -(-n_tail // CHUNK_ROWS) - len(self._chunks)
        needed = max(0, n_chunks) * CHUNK_ROWS * self.row_bytes
        free = psutil.virtual_memory().available
        if needed and needed + _SPARE_BYTES > free:
            raise OctavoError(
                f"The KV cache of {self.n_document + n_tail:,} tokens needs {needed / 2**30:.2f} GiB more, but only "
                f"{free / 2**30:.2f} GiB of memory are free: close other programs, or give a shorter text."
            )

    def reserve(self, n_new: int) -> None:
        """Make room for n_new more rows, and count them in: the step that follows writes them."""
        n_tail = self.n_tail + n_new
        n_chunks = -(-n_tail // CHUNK_ROWS)
        if n_chunks > len(self._chunks):
            self.check_memory(n_tail)
        while len(self._chunks) < n_chunks:
            chunk = [layer.new_rows(CHUNK_ROWS) for layer in self.layers]
            self._tables[:, len(self._chunks)] = [array.ctypes.data for array in chunk]
            self._chunks.append(chunk)
        self._set_n_tail(n_tail)

    def truncate(self, n_tokens: int) -> bool:
        """Forget all but the first n_tokens tokens; False where that would cut into the document.

        Cutting everything detaches the document.
        """
        if n_tokens == 0:
            self.attach(None)
        elif n_tokens < self.n_document:
            return False
        self._set_n_tail(n_tokens - self.n_document)
        del self._chunks[-(-self.n_tail // CHUNK_ROWS) :]
        return True

    def attach(self, document: Document | None) -> None:
        """Start over with a document, or with nothing."""
        self.document = document
        self._chunks.clear()
        for i, heads in enumerate(self._layer_heads):
            for name in ("document_keys", "document_values", "n_document", "centroids", "cluster_starts", "n_clusters"):
                heads[name] = 0
            heads["document_position"] = ANY_ORDER
            heads["tail_position"] = self.n_document
            if document is not None:
                stored = document.layers[i]
                heads["document_keys"] = _row_addresses(stored.keys)
                heads["document_values"] = _row_addresses(stored.values)
                heads["n_document"] = stored.keys.shape[1]
                heads["document_position"] = stored.position
                heads["centroids"] = _row_addresses(stored.centroids)
                heads["cluster_starts"] = _row_addresses(stored.cluster_starts)
                heads["n_clusters"] = stored.n_clusters
        self._set_n_tail(0)

    def rows(self, layer: int, start: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Copies of a layer's keys and values in the tail from row `start`, as they are stored (see rows.py).

        (n_kv_head, n_rows, head_dim) f16 each, or (n_kv_head, n_rows, head_dim + 4) uint8 of q8_0
        """
        joined = self.layers[layer].new_rows(self.n_tail - start)
        for i, chunk in enumerate(self._chunks):
            first, last = max(start, i * CHUNK_ROWS), min(self.n_tail, (i + 1) * CHUNK_ROWS)
            if first < last:
                within = slice(first - i * CHUNK_ROWS, last - i * CHUNK_ROWS)
                joined[:, :, first - start : last - start] = chunk[layer][:, :, within]
        return joined[0], joined[1]

    def append_rows(self, layers: list[tuple[np.ndarray, np.ndarray]]) -> None:
        """Add rows that were taken with `rows`: keys and values of each layer."""
        start, n_new = self.n_tail, layers[0][0].shape[1]
        self.reserve(n_new)
        for layer, (keys, values) in enumerate(layers):
            for i, chunk in enumerate(self._chunks):
                first, last = max(start, i * CHUNK_ROWS), min(self.n_tail, (i + 1) * CHUNK_ROWS)
                if first < last:
                    within = slice(first - i * CHUNK_ROWS, last - i * CHUNK_ROWS)
                    chunk[layer][0][:, within] = keys[:, first - start : last - start]
                    chunk[layer][1][:, within] = values[:, first - start : last - start]

    @property
    def max_spans(self) -> int:
        """Spans that a selector may need for one head."""
        clusters = int(self.heads["n_clusters"].max(initial=0))
        return clusters + 2 + self._tables.shape[1]

    def _set_n_tail(self, n_tail: int) -> None:
        self.n_tail = n_tail
        self.heads["n_tail"] = n_tail


def _row_addresses(array: np.ndarray) -> np.ndarray:
    """Address of array[i] for each i of a C-contiguous array."""
    return array.ctypes.data + np.arange(array.shape[0]) * array.strides[0]
