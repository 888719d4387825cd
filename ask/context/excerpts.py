"""Lay excerpts of several documents out as one context, with the keys and values that they have in their documents.

A hybrid model reads them as text instead: its recurrent state depends on all tokens before, in their order.

RoPE makes attention depend on the distance of a key from a query, so keys that are rotated by their change of position
act as if they had been read there. Keys and values still hold the text before them in their document (Gim et al. 2024,
"Prompt Cache", section 3, found that harmless).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import cache

import numpy as np

from ...convert.pipeline import keep_whole
from ...convert.prefix_reuse import KnownRows, keep_all_rows
from ...documents.table_heads import TableHeads
from ...errors import OctavoError
from ...library.source_text import SourceText
from ...runtime.document.cache_layer import Rows
from ...runtime.document.index import Index, whole_layer
from ...runtime.document.stored_rows import joined
from ...runtime.llama import Llama
from ...runtime.methods.attention import DENSE_ATTENTION
from ..answer.answer import ContextShare
from ..search.ranking import Span
from ..sources.find_sources import TokenText
from .answer_context import BatchRead, Context, Steps
from .document_set import DocumentSet

#: Tokens of all excerpts of an answer, and the share of a shorter context that they take.
EXCERPT_TOKENS, _OF_CONTEXT = 1024, 0.5


class CannotLayOut(OctavoError):
    """The documents' keys were not kept, or cannot be moved."""


def n_excerpt_tokens(llama: Llama) -> int:
    """Return the number of tokens of the excerpts of an answer."""
    return min(EXCERPT_TOKENS, int(llama.n_ctx() * _OF_CONTEXT))


def lay_out(
    llama: Llama, document_set: DocumentSet, spans: Sequence[Span], n_batch: Callable[[], int]
) -> Steps[Context]:
    """Lay excerpts out as one context, without evaluating their tokens again, unless the model is a hybrid.

    An excerpt that begins in a table follows the head of the table.

    Parameters
    ----------
    llama : Llama
        The model. If it is a hybrid, it forgets its sequence.
    spans : sequence of Span
        The excerpts, at least one, the likeliest last.
    n_batch : callable
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
    excerpts = _with_heads(document_set, spans)
    laid_out = [span for excerpt in excerpts for span in excerpt]
    if llama.context.is_hybrid:
        index = yield from _evaluated(llama, document_set, laid_out, n_batch)
    else:
        index = _moved(llama, document_set, laid_out)
    likeliest_first = [span for *_, span in reversed(excerpts)]
    documents = list(dict.fromkeys(span.document for span in (*likeliest_first, *laid_out)))
    n_tokens = sum(span.stop - span.start for *_, span in excerpts)
    n_all = sum(len(document_set.texts[document]) for document in documents)
    share = ContextShare("excerpts", len(excerpts), n_tokens / n_all)

    def text_of(document: SourceText) -> TokenText:
        return document_set.whole(document).text_of(document)

    return Context(index, laid_out, documents, share, text_of, tuple(spans))


def _with_heads(document_set: DocumentSet, spans: Sequence[Span]) -> list[list[Span]]:
    """Return for each excerpt its spans: the excerpt, and before it the head of the table that it begins in.

    The heads take the place of the least likely excerpts. One that is longer than its excerpt is left out.
    """

    @cache
    def tables_of(document: SourceText) -> tuple[TokenText, TableHeads]:
        text = document_set.whole(document).text_of(document)
        return text, TableHeads(text.text, document.name)

    made: list[list[Span]] = []
    room = sum(span.stop - span.start for span in spans)
    for span in reversed(spans):
        own = _with_head(document_set, span, tables_of)
        if own[0].stop - own[0].start > own[-1].stop - own[-1].start:
            del own[0]
        room -= sum(stop - start for _, start, stop in own)
        if made and room < 0:
            break
        made.insert(0, own)
    return made


def _with_head(
    document_set: DocumentSet, span: Span, tables_of: Callable[[SourceText], tuple[TokenText, TableHeads]]
) -> list[Span]:
    """Return an excerpt from the beginning of its row, and before it its table's head, maybe of an earlier part."""
    document, (text, heads) = span.document, tables_of(span.document)
    offset = int(text.starts[span.start])
    above = heads.above(offset)
    start = span.start if above is None else min(_token_at(text, above.row), span.start)
    while offset < heads.n_continued:
        before = document_set.part_before(document)
        if before is None:
            return [span._replace(start=start)]
        document, (text, heads) = before, tables_of(before)
        offset = len(text.text) - 1
        above = heads.above(offset)
    if above is None or above.start == above.stop:
        return [span._replace(start=start)]
    stop = int(np.searchsorted(text.starts, above.stop))
    return [Span(document, _token_at(text, above.start), stop), span._replace(start=start)]


def _token_at(text: TokenText, offset: int) -> int:
    """Return the token that a character is in."""
    return int(np.searchsorted(text.starts, offset, side="right")) - 1


def _moved(llama: Llama, document_set: DocumentSet, spans: Sequence[Span]) -> Index:
    """Lay excerpts out with the rows that they have in their documents, their keys moved to their new places."""
    layers = llama.context.cache.layers
    parts: list[list[Rows]] = []
    tokens: list[np.ndarray] = []
    n_tokens = 0
    for number, (document, start, stop) in enumerate(spans):
        index = document_set.whole(document).index
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
    laid_out = []
    for layer, *of_layer in zip(layers, *parts, strict=True):
        all_keys, all_values = zip(*of_layer, strict=True)
        rows_of_layer = joined(all_keys, layer.split), joined(all_values)
        laid_out.append(whole_layer(*rows_of_layer, layer.window, split=layer.split))
    return Index(np.concatenate(tokens), laid_out, n_prefix=len(tokens[0]))


def _evaluated(
    llama: Llama, document_set: DocumentSet, spans: Sequence[Span], n_batch: Callable[[], int]
) -> Steps[Index]:
    """Evaluate excerpts as one text; return the index of their rows and of the recurrent state after them."""
    opened = [document_set.whole(span.document).index for span in spans]
    places = zip(opened, spans, strict=True)
    parts = [index.tokens[index.n_prefix + start : index.n_prefix + stop] for index, (_, start, stop) in places]
    n_prefix = opened[0].n_prefix
    tokens = np.concatenate([opened[0].tokens[:n_prefix], *parts])
    return (yield from evaluate_as_text(llama, tokens, n_prefix, n_batch))


def evaluate_as_text(
    llama: Llama, tokens: np.ndarray, n_prefix: int, n_batch: Callable[[], int]
) -> Generator[BatchRead, None, Index]:
    """Evaluate tokens, the first n_prefix of them the prompt's head, and return their index. Yield after each batch."""
    with llama.attending(DENSE_ATTENTION):
        while (n_read := llama.n_tokens) < len(tokens):
            llama.prefill(tokens[n_read : n_read + n_batch()].tolist())
            yield BatchRead(llama.n_tokens, len(tokens))
        state, layers = llama.context.state(), keep_whole(llama.context.cache)
    return Index(tokens, layers, n_prefix=n_prefix, states=[] if state is None else [state])
