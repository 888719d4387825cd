"""Lay excerpts of several documents out as one context, with the keys and values that they have in their documents.

A hybrid model reads them as text instead: its recurrent state depends on all tokens before, in their order.

RoPE makes attention depend on the distance of a key from a query, so keys that are rotated by their change of position
act as if they had been read there. Keys and values still hold the text before them in their document (Gim et al. 2024,
"Prompt Cache", section 3, found that harmless).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ...convert.pipeline import keep_whole
from ...convert.prefix_reuse import KnownRows, keep_all_rows
from ...documents.document import Place
from ...errors import OctavoError
from ...runtime.document.cache_layer import Rows
from ...runtime.document.index import Index, whole_layer
from ...runtime.llama import Llama
from ...runtime.methods.attention import DENSE_ATTENTION
from ..search.ranking import Excerpt
from ..sources.find_sources import Passage, TokenText, passages
from .document_set import DocumentSet

_Result = TypeVar("_Result")

#: Tokens of all excerpts of an answer, and the share of a shorter context that they take.
EXCERPT_TOKENS, _OF_CONTEXT = 1024, 0.5


class BatchRead(NamedTuple):
    """How many tokens of a text are read after a batch, and how many there are."""

    done: int
    total: int


class CannotLayOut(OctavoError):
    """The documents' keys were not kept, or cannot be moved."""


@dataclass(frozen=True, eq=False)
class LaidOut:
    """Excerpts as one context.

    Parameters
    ----------
    excerpts : sequence of Excerpt
        At least one.
    index : Index
        The prompt's head and the excerpts, in this order.
    """

    excerpts: Sequence[Excerpt]
    index: Index

    @property
    def documents(self) -> list[Any]:
        """Return the documents of the excerpts, the likeliest first."""
        return list(dict.fromkeys(excerpt.document for excerpt in reversed(self.excerpts)))

    def passages(
        self, attended: np.ndarray, text_of: Callable[[Any], tuple[TokenText, list[Place]]], most: int
    ) -> list[tuple[Any, Passage]]:
        """Find the passages of the documents with most attention.

        Parameters
        ----------
        attended : float32 array, shape (n_parts, n_tokens)
            Attention of each part of an answer to the index's tokens (`Recorder.attended`).
        text_of : callable
            Returns the text of a document, and the places of its pages and headings.
        most : int
            Most passages to return.

        Returns
        -------
        list of (document, Passage)
            The largest shares first.
        """
        texts = {document: text_of(document) for document in self.documents}
        of_documents = {
            document: np.zeros((len(attended), len(text.starts)), np.float32) for document, (text, _) in texts.items()
        }
        at = self.index.n_prefix
        for document, start, stop in self.excerpts:
            of_documents[document][:, start:stop] = attended[:, at : at + stop - start]
            at += stop - start
        found = [
            (document, passage)
            for document, (text, places) in texts.items()
            for passage in passages(text, places, of_documents[document], most)
        ]
        return sorted(found, key=lambda found: -found[1].share)[:most]


def n_excerpt_tokens(llama: Llama) -> int:
    """Return the number of tokens of the excerpts of an answer."""
    return min(EXCERPT_TOKENS, int(llama.n_ctx() * _OF_CONTEXT))


def lay_out(llama: Llama, document_set: DocumentSet, excerpts: Sequence[Excerpt]) -> LaidOut:
    """Lay excerpts out as `lay_out_in_batches` does, at once."""
    return at_once(lay_out_in_batches(llama, document_set, excerpts, lambda: llama.n_batch))


def at_once(steps: Generator[object, None, _Result]) -> _Result:
    """Take all steps of a generator, and return what it returns."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


def lay_out_in_batches(
    llama: Llama, document_set: DocumentSet, excerpts: Sequence[Excerpt], room: Callable[[], int]
) -> Generator[BatchRead, None, LaidOut]:
    """Lay excerpts out as one context, without reading their tokens again, unless the model is a hybrid.

    Parameters
    ----------
    llama : Llama
        The model. If it is a hybrid, it forgets its sequence.
    excerpts : sequence of Excerpt
        At least one.
    room : callable
        Returns the number of tokens of the next batch.

    Yields
    ------
    BatchRead
        After each batch of a hybrid model. It may compute other sequences then.

    Raises
    ------
    CannotLayOut
        Keys were not kept, or cannot be moved.
    OctavoError
        An index cannot be opened.
    """
    if llama.context.is_hybrid:
        return (yield from _read(llama, document_set, excerpts, room))
    return _moved(llama, document_set, excerpts)


def _moved(llama: Llama, document_set: DocumentSet, excerpts: Sequence[Excerpt]) -> LaidOut:
    """Lay excerpts out with the rows that they have in their documents, their keys moved to their new places."""
    layers = llama.context.cache.layers
    parts: list[list[Rows]] = []
    tokens: list[np.ndarray] = []
    n_tokens = 0
    for number, (document, start, stop) in enumerate(excerpts):
        index, _ = document_set.open(document)
        if not keep_all_rows(index.layers):
            raise CannotLayOut(
                "Excerpts need all keys and values of the documents, and this model or attention does not keep them: "
                'read "document" in place of "excerpts".'
            )
        known, n_prefix = KnownRows(index.layers, len(index.tokens)), index.n_prefix
        if number == 0:
            parts.append(known.rows(0, n_prefix))
            tokens.append(index.tokens[:n_prefix])
            n_tokens = n_prefix
        rows = known.rows(n_prefix + start, n_prefix + stop)
        for (keys, _), layer in zip(rows, layers, strict=True):
            if layer.rope is None:
                raise CannotLayOut(
                    "Excerpts move keys, and octavo does not know this model's RoPE: "
                    'read "document" in place of "excerpts".'
                )
            layer.rope.turn(keys, n_tokens - n_prefix - start, layer.split)
        parts.append(rows)
        tokens.append(index.tokens[n_prefix + start : n_prefix + stop])
        n_tokens += stop - start
    joined = []
    for layer, *of_layer in zip(layers, *parts, strict=True):
        keys, values = (np.concatenate(arrays, axis=1) for arrays in zip(*of_layer, strict=True))
        joined.append(whole_layer(keys, values, layer.window, split=layer.split))
    return LaidOut(excerpts, Index(np.concatenate(tokens), joined, n_prefix=len(tokens[0])))


def _read(
    llama: Llama, document_set: DocumentSet, excerpts: Sequence[Excerpt], room: Callable[[], int]
) -> Generator[BatchRead, None, LaidOut]:
    """Read excerpts as one text, and return their rows and the recurrent state after them."""
    opened = [document_set.open(excerpt.document)[0] for excerpt in excerpts]
    places = zip(opened, excerpts, strict=True)
    parts = [index.tokens[index.n_prefix + start : index.n_prefix + stop] for index, (_, start, stop) in places]
    n_prefix = opened[0].n_prefix
    tokens = np.concatenate([opened[0].tokens[:n_prefix], *parts])
    return LaidOut(excerpts, (yield from read_as_text(llama, tokens, n_prefix, room)))


def read_as_text(
    llama: Llama, tokens: np.ndarray, n_prefix: int, room: Callable[[], int]
) -> Generator[BatchRead, None, Index]:
    """Read tokens, the first n_prefix of them the prompt's head; return their index, and yield after each batch."""
    with llama.attending(DENSE_ATTENTION):
        while (n_read := llama.n_tokens) < len(tokens):
            llama.prefill(tokens[n_read : n_read + room()].tolist())
            yield BatchRead(llama.n_tokens, len(tokens))
        state, layers = llama.context.state(), keep_whole(llama.context.cache)
    return Index(tokens, layers, n_prefix=n_prefix, states=[] if state is None else [state])
