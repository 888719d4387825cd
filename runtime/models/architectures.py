"""Tell from a model's header alone whether octavo runs it: what `octavo models` lists.

When a model is loaded, its graph decides (attention_nodes.py). tests/runtime/test_zoo.py compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_NO_ATTENTION = "it has no attention: a recurrent state is all it keeps"
_ALIBI = "it has no positions but a bias (ALiBi)"
_NO_CACHE = "it has no KV cache: each token sees the whole text"
_INDEXER = "an indexer chooses the keys that it reads"

#: Architectures that octavo does not run, and why.
_NOT_RUN = {
    **dict.fromkeys(("mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"), _NO_ATTENTION),
    **dict.fromkeys(("bloom", "jais", "mpt", "refact"), _ALIBI),
    **dict.fromkeys(("bert", "eurobert", "gemma-embedding", "jina-bert-v2", "jina-bert-v3", "llama-embed"), _NO_CACHE),
    **dict.fromkeys(("modern-bert", "neo-bert", "nomic-bert", "nomic-bert-moe", "t5", "t5encoder"), _NO_CACHE),
    **dict.fromkeys(("dream", "llada", "llada-moe", "rnd1"), _NO_CACHE),
    "grok": "llama.cpp runs it without flash attention",
    "minimax-m3": "it is block-sparse: each KV head chooses the blocks of keys that it reads",
}


def obstacle(architecture: str, header: Mapping[str, Any]) -> str:
    """Return why octavo does not run a model; "" if the header shows no reason.

    Parameters
    ----------
    header : mapping
        The values of a GGUF header, by their keys.
    """
    if architecture in _NOT_RUN:
        return _NOT_RUN[architecture]
    if header.get(f"{architecture}.attention.indexer.head_count"):
        return _INDEXER
    if header.get(f"{architecture}.attention.causal") is False:
        return _NO_CACHE
    for part in ("key", "value"):
        length = header.get(f"{architecture}.attention.{part}_length") or _head_dim(architecture, header)
        if isinstance(length, int) and length % 8:
            return f"its heads have {length} numbers, and octavo's kernels read multiples of 8"
    return ""


def _head_dim(architecture: str, header: Mapping[str, Any]) -> int:
    """Return the numbers of a head where the header does not name them; 0 if it has other entries than usual."""
    n_embd, n_head = header.get(f"{architecture}.embedding_length"), header.get(f"{architecture}.attention.head_count")
    return n_embd // n_head if isinstance(n_embd, int) and isinstance(n_head, int) and n_head else 0
