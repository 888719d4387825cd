"""Take the part of a document that is read so far from its unfinished index, and let passages follow it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...convert.build_pieces import HEAD, PIECE, Pieces
from ...errors import OctavoError
from ...library.open_index import Indexer
from ...library.source_text import SourceText
from ...runtime.document.cache_layer import Rows
from ...runtime.document.index import Index, whole_layer
from ...runtime.document.stored_rows import joined
from ...runtime.llama import Llama
from ...system.files import DamagedError, read_json
from ..sources.find_sources import TokenText


@dataclass(frozen=True, eq=False)
class ReadPart:
    """The first tokens of a document, with their keys and values.

    Parameters
    ----------
    tokens : int32 array, shape (n_tokens,)
        The prompt's head and the tokens of the text.
    n_head : int
        Tokens of the head.
    rows : list of (keys, values), one for each layer
        Their rows.
    text : TokenText
        The part's text.
    """

    tokens: np.ndarray
    n_head: int
    rows: Sequence[Rows]
    text: TokenText

    @property
    def starts(self) -> np.ndarray:
        """Return the character in which each token of the text begins."""
        return self.text.starts

    @property
    def n_characters(self) -> int:
        """Return the number of characters of the part."""
        return len(self.text.text)


def unfinished_index(indexer: Indexer, document: SourceText) -> Path | None:
    """Return the folder of a document's unfinished index, which grows while another process reads the document.

    None without one, or if its rows do not stand alone. At the end the folder is renamed.
    """
    return indexer.begun(document) if rows_stand_alone(indexer.llama) else None


def n_tokens_read(folder: Path) -> int:
    """Return the number of tokens in an unfinished index, from the names of its files."""
    numbers = {int(path.stem.rpartition("-")[2]) for path in folder.glob("prefill-*.safetensors")}
    ends = range(PIECE, max(numbers, default=0) + 2 * PIECE, PIECE)
    return next((end - PIECE for end in ends if end not in numbers), 0)


def read_part(llama: Llama, folder: Path, text: str, tokens: Sequence[int]) -> ReadPart | None:
    """Return the part of a document in an unfinished index; None if there is none, or memory cannot hold it.

    Parameters
    ----------
    text : str
        The document's text.
    tokens : sequence of int
        The tokens of its text.
    """
    head = llama.prompt().head()
    with suppress(DamagedError, KeyError):
        head = list(read_json(folder / HEAD)["head"])
    with suppress(OctavoError, OSError, KeyError):  # it was finished just now, or memory is short
        pieces = Pieces(folder, llama, len(head) + len(tokens), 0)
        known = pieces.known(range(PIECE, n_tokens_read(folder) + 1, PIECE), None)
        n_known = known[-1][0] if known else 0
        if n_known <= len(head):
            return None
        llama.context.cache.check_memory(2 * n_known)  # the pieces are mapped, and joined in memory
        rows, of_pieces = [], [rows_of_piece() for _, rows_of_piece in known]
        for layer, *of_layer in zip(llama.context.cache.layers, *of_pieces, strict=True):
            all_keys, all_values = zip(*of_layer, strict=True)
            rows.append((joined(all_keys, layer.split), joined(all_values)))
        own = np.asarray(tokens[: n_known - len(head)], np.int32)
        known_text = TokenText.of_beginning(llama, own, text)
        return ReadPart(np.concatenate([np.asarray(head, np.int32), own]), len(head), rows, known_text)
    return None


def rows_stand_alone(llama: Llama) -> bool:
    """Return whether a part of a document serves without the rest, and passages can follow it."""
    moves = all(layer.rope is not None and not layer.window for layer in llama.context.cache.layers)
    return moves and not llama.context.is_hybrid and not llama.context.cache.evicts


def after(llama: Llama, part: ReadPart, passages: Index) -> Index:
    """Return the index of a part and of passages after it, which were read without it.

    RoPE makes attention depend on distances, so keys that are turned to their new positions act as if they had been
    read there (see excerpts.py).
    """
    n_head, n_part = passages.n_prefix, len(part.tokens)
    layers = []
    for layer, (keys, values), read in zip(llama.context.cache.layers, part.rows, passages.layers, strict=True):
        moved = read.keys[:, n_head:].copy()
        assert layer.rope is not None
        layer.rope.turn(moved, n_part - n_head, layer.split)
        both = joined([keys, moved], layer.split), joined([values, read.values[:, n_head:]])
        layers.append(whole_layer(*both, layer.window, split=layer.split))
    tokens = np.concatenate([part.tokens, passages.tokens[n_head:]])
    return Index(tokens, layers, n_prefix=part.n_head)
