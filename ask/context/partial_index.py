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


class UnfinishedIndex:
    """The unfinished index of a document, which grows while another process reads the document.

    Parameters
    ----------
    folder : Path
        Its folder, which is renamed at the end.
    """

    def __init__(self, llama: Llama, folder: Path) -> None:
        self._llama, self._folder = llama, folder

    @classmethod
    def of(cls, indexer: Indexer, document: SourceText) -> UnfinishedIndex | None:
        """Return the unfinished index of a document; None without one, or if its rows do not stand alone."""
        folder = indexer.begun(document)
        return cls(indexer.llama, folder) if folder is not None and rows_stand_alone(indexer.llama) else None

    @property
    def n_tokens(self) -> int:
        """Return the number of tokens that are read, from the names of the files."""
        numbers = {int(path.stem.rpartition("-")[2]) for path in self._folder.glob("prefill-*.safetensors")}
        return next(
            (end - PIECE for end in range(PIECE, max(numbers, default=0) + 2 * PIECE, PIECE) if end not in numbers), 0
        )

    def read(self, text: str, tokens: Sequence[int]) -> ReadPart | None:
        """Return the part that is read so far; None if there is none, or memory cannot hold it.

        Parameters
        ----------
        text : str
            The document's text.
        tokens : sequence of int
            The tokens of its text.
        """
        head = self._head()
        with suppress(OctavoError, OSError, KeyError):  # it was finished just now, or memory is short
            pieces = Pieces(self._folder, self._llama, len(head) + len(tokens), 0)
            known = pieces.known(range(PIECE, self.n_tokens + 1, PIECE), None)
            n_known = known[-1][0] if known else 0
            if n_known <= len(head):
                return None
            self._llama.context.cache.check_memory(2 * n_known)  # the pieces are mapped, and joined in memory
            of_pieces = [rows() for _, rows in known]
            of_layers = zip(self._llama.context.cache.layers, *of_pieces, strict=True)
            rows = [
                (joined([keys for keys, _ in of_layer], layer.split), joined([values for _, values in of_layer]))
                for layer, *of_layer in of_layers
            ]
            own = np.asarray(tokens[: n_known - len(head)], np.int32)
            known_text = TokenText.of_beginning(self._llama, own, text)
            return ReadPart(np.concatenate([np.asarray(head, np.int32), own]), len(head), rows, known_text)
        return None

    def _head(self) -> list[int]:
        """Return the tokens before the text."""
        with suppress(DamagedError, KeyError):
            return list(read_json(self._folder / HEAD)["head"])
        return self._llama.prompt().head()


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
