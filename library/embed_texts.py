"""Compute the vectors of kept texts, block by block: each is kept at once, so that interrupted work continues."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from ..progress import Progress
from .meaning import installed_embedder
from .source_text import SourceText
from .text_store import TextStore, pieces_with_heads

#: Fewest passages that an embedder gets at once, for its threads to share.
_AT_ONCE = 16


def embed_texts(
    store: TextStore, texts: Sequence[SourceText], progress: Progress, most_seconds: float = float("inf")
) -> float:
    """Compute the vectors that texts lack, if the embedder is installed.

    Parameters
    ----------
    texts : sequence of SourceText
        Texts that are kept.
    most_seconds : float
        Seconds after which to leave the rest to the next call.

    Returns
    -------
    float
        Share of the texts' characters that have vectors now; 1 without the embedder, as there is nothing to wait for.
    """
    if (embedder := installed_embedder()) is None:
        return 1.0
    began, blocks = time.monotonic(), store.unembedded(texts, embedder.name)
    n_left = sum(block.stop - block.start for block in blocks)
    if not blocks:
        return 1.0
    n_characters = sum(text.length for text in texts)
    progress.start("Preparing the meaning of passages", n_characters, "characters", n_characters - n_left)
    document_of = lru_cache(1)(store.document)
    while blocks and time.monotonic() - began < most_seconds:
        passages, chosen = list[str](), []
        while blocks and len(passages) < _AT_ONCE:
            block = blocks.pop(0)
            pieces = list(pieces_with_heads(document_of(block.text), *block))
            passages += [passage for _, passage in pieces]
            chosen.append((block, [piece for piece, _ in pieces]))
        vectors = embedder.of_passages(passages) if passages else np.empty((0, embedder.n_values), np.float32)
        for block, own in chosen:
            store.keep_vectors(block, embedder.name, own, vectors[: len(own)])
            vectors, n_left = vectors[len(own) :], n_left - (block.stop - block.start)
            progress.advance(block.stop - block.start)
    return 1 - n_left / n_characters
