"""Lay excerpts of several documents out as one context, with the keys and values that they have in their documents.

RoPE makes attention depend on how far a key is from a query, so keys that are turned by as many positions as they move
are as if they had been read there. What they hold of the text before them in their document stays (Gim et al. 2024,
"Prompt Cache", section 3, found that to do no harm).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..errors import OctavoError
from ..runtime.cache.index import Index
from ..runtime.cache.tail import Rows
from ..runtime.llama import Llama
from .clusters import whole_layer
from .known_rows import KnownRows, keep_all_rows
from .look import Excerpt
from .shelf import Shelf

#: Tokens of the excerpts that an answer is given from.
EXCERPT_TOKENS = 1024


def lay_out(llama: Llama, shelf: Shelf, excerpts: Sequence[Excerpt]) -> Index:
    """Lay excerpts out, and read none of their tokens again.

    Parameters
    ----------
    llama : Llama
        The model.
    shelf : Shelf
        The documents.
    excerpts : sequence of Excerpt
        The excerpts, at least one.

    Returns
    -------
    Index
        The prompt's head and the excerpts, in this order.

    Raises
    ------
    OctavoError
        An index cannot be opened, or keys were not kept or cannot be moved.
    """
    n_head, layers = shelf.n_head, llama.context.cache.layers
    parts: list[list[Rows]] = []
    tokens: list[np.ndarray] = []
    n_tokens = n_head
    for number, (document, start, stop) in enumerate(excerpts):
        index, _ = shelf.open(document)
        if not keep_all_rows(index.layers):
            raise OctavoError(
                "Excerpts need all keys and values of the documents, and this model or attention does not keep them: "
                "use --read document."
            )
        known = KnownRows(index.layers, len(index.tokens))
        if number == 0:
            parts.append(known.rows(0, n_head))
            tokens.append(index.tokens[:n_head])
        own = known.rows(n_head + start, n_head + stop)
        for (keys, _), layer in zip(own, layers, strict=True):
            if layer.rope is None:
                raise OctavoError(
                    "Excerpts move keys, and octavo does not know this model's RoPE: use --read document."
                )
            layer.rope.turn(keys, n_tokens - n_head - start)
        parts.append(own)
        tokens.append(index.tokens[n_head + start : n_head + stop])
        n_tokens += stop - start
    joined = []
    for layer, *rows in zip(layers, *parts, strict=True):
        keys, values = (np.concatenate(arrays, axis=1) for arrays in zip(*rows, strict=True))
        joined.append(whole_layer(keys, values, layer.window))
    return Index(np.concatenate(tokens), joined)
