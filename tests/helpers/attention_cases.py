"""Decode and prefill on any rows, cut into any spans: what a kernel computes, and what the oracle expects."""

from itertools import pairwise

import numpy as np
from helpers import oracle
from helpers.kernel_inputs import (
    LoadedQuery,
    Room,
    SpanOf,
    address,
    halves,
    normal,
    random_pieces,
    read_pair,
    relative_error,
    store_pair,
)

from octavo.cpu_kernels.attend import decode
from octavo.cpu_kernels.attend.decode import attend_share, merge_shares, partial_size
from octavo.cpu_kernels.layout.head import ANY_ORDER
from octavo.cpu_kernels.layout.spans import ALL_HEADS, SPAN
from octavo.cpu_kernels.prefill.attend_batch import attend_tile
from octavo.cpu_kernels.prefill.tile_scratch import most_queries, scratch_parts
from octavo.cpu_kernels.rows.rows import query_bytes


def _decode_bytes(shape):
    """Bytes of a thread's scratch to decode."""
    return decode.scratch_parts(shape, 0).query + query_bytes(shape)


def span_array(spans):
    records = np.zeros(len(spans), SPAN)
    for i, span in enumerate(spans):
        records[i] = span.record
    return records


class Decode:
    """One token's attention over pieces of the rows of some KV heads.

    query : (n_kv_head * group, head_dim) f32    keys, values : for each KV head (n_rows, head_dim or value_dim)
    pieces : for each KV head, ranges (runs) and arrays of row numbers (lists); None attends each row once
    heads : for each KV head, bits of the query heads that attend each piece; None is all
    """

    def __init__(self, shape, query, keys, values, pieces=None, softcap=0.0, sinks=None, heads=None):
        self.shape, self.query, self.softcap, self.sinks = shape, query, np.float32(softcap), sinks
        pairs = [store_pair(shape, *of_head) for of_head in zip(keys, values, strict=True)]
        self.keys, self.values = ([pair[i] for pair in pairs] for i in (0, 1))
        self.pieces = pieces or [[range(len(rows))] for rows in keys]
        self.heads = heads or [[ALL_HEADS] * len(own) for own in self.pieces]
        self._spans = [
            [SpanOf(k, v, piece, ANY_ORDER, heads=bits) for piece, bits in zip(own, of, strict=True)]
            for k, v, own, of in zip(self.keys, self.values, self.pieces, self.heads, strict=True)
        ]
        self.spans = np.zeros((len(keys), max(map(len, self._spans)) + 1), SPAN)
        for head, spans in enumerate(self._spans):
            self.spans[head, : len(spans)] = span_array(spans)
        self.n_spans = np.array([len(spans) for spans in self._spans], np.int64)
        self.n_rows = np.array([sum(map(len, own)) for own in self.pieces], np.int64)

    def start(self, n_threads):
        self._partials = Room(4 * n_threads * len(self.keys) * partial_size(self.shape))
        self._scratch = [Room(_decode_bytes(self.shape)) for _ in range(n_threads)]
        size = len(self.query), self.shape.value_dim
        self._out = Room(4 * size[0] * size[1])
        self.out = self._out.floats(*size)

    def attend(self, ith, n_threads):
        attend_share(
            self.shape,
            address(self.query),
            len(self.keys),
            address(self.spans),
            self.spans.shape[1],
            address(self.n_spans),
            address(self.n_rows),
            self.softcap,
            self._scratch[ith].address,
            self._partials.address,
            ith,
            n_threads,
        )

    def merge(self, head, n_threads):
        sinks = address(self.sinks) if self.sinks is not None else 0
        n_heads, partials, out = len(self.keys), self._partials.address, self._out.address
        merge_shares(self.shape, head, n_heads, partials, n_threads, sinks, out, self.out.strides[0], 0)

    def check(self):
        for room in (*self._scratch, self._partials, self._out):
            room.check()

    def run(self, n_threads):
        self.start(n_threads)
        for ith in range(n_threads):
            self.attend(ith, n_threads)
        for head in range(len(self.keys)):
            self.merge(head, n_threads)
        self.check()
        return self.out

    def attended(self, head):
        """The rows of a KV head in the order of its pieces: keys and values."""
        numbers = np.concatenate([*map(np.asarray, self.pieces[head]), []]).astype(int)
        return tuple(rows[numbers] for rows in read_pair(self.shape, self.keys[head], self.values[head]))

    def visible(self, head):
        """Which query heads of a KV head attend each row in the order of its pieces: (group, n_rows) bool."""
        bits = np.repeat(np.array(self.heads[head], np.int64), [len(piece) for piece in self.pieces[head]])
        return (bits == ALL_HEADS) | (bits >> np.arange(self.shape.group)[:, None] & 1 == 1)

    def expected(self, loaded=True):
        """By the oracle, on the query as it is loaded or as it was; NaN for a head without rows."""
        group, results = self.shape.group, []
        for head in range(len(self.keys)):
            own = slice(head * group, (head + 1) * group)
            query = LoadedQuery(self.shape, self.query[own]).floats if loaded else self.query[own]
            sinks = self.sinks[own] if self.sinks is not None else None
            if self.n_rows[head] == 0 and sinks is None:
                results.append(np.full((group, self.shape.value_dim), np.nan))
                continue
            options = {"softcap": float(self.softcap), "sinks": sinks, "visible": self.visible(head)}
            results.append(oracle.attention(query, *self.attended(head), **options))
        return np.concatenate(results)

    def error(self, n_threads):
        return relative_error(self.run(n_threads), self.expected())


def random_decode(rng, shape, n_rows, n_cuts=0, spread=0.3, some_heads=False, **options):
    """n_rows : for each KV head, its number of rows. Their pieces are runs and lists, in any order.

    some_heads : whether pieces are of some query heads only, each at random; the longest piece is of all
    """
    keys, values = ([halves(rng, n, length) for n in n_rows] for length in (shape.head_dim, shape.value_dim))
    query = normal(rng, len(n_rows) * shape.group, shape.head_dim, spread=spread)
    pieces = [random_pieces(rng, n, n_cuts) for n in n_rows] if n_cuts else None
    if some_heads:
        options["heads"] = [random_heads(rng, shape.group, own) for own in pieces]
    return Decode(shape, query, keys, values, pieces, **options)


def random_heads(rng, group, pieces):
    """Bits of some query heads for each piece, as SPAN has them; of all for the longest piece."""
    chosen = rng.random((len(pieces), group)) < 0.5
    chosen[:, 0] |= ~chosen.any(axis=1)  # no bits would be all
    chosen[np.argmax([len(piece) for piece in pieces])] = True
    return [int(np.bitwise_or.reduce(np.left_shift(1, np.flatnonzero(own)))) for own in chosen]


class Prefill:
    """A batch's attention on one KV head: a document in any order, and a tail in order, the batch's tokens its last.

    query : (n_tokens, group, head_dim) f32    keys, values : (n_document + n_tail, head_dim or value_dim)
    position : of the first row of the tail    cuts : rows of the tail where a new span starts
    pieces : of the document's rows, runs and lists; None attends each once
    rounds : 1 to round to int16 where that is faster
    """

    def __init__(
        self,
        shape,
        query,
        keys,
        values,
        n_document=0,
        position=0,
        window=0,
        softcap=0.0,
        sinks=None,
        cuts=(),
        pieces=None,
        rounds=0,
    ):
        self.shape, self.query, self.n_document, self.position = shape, query, n_document, position
        self.window, self.softcap, self.sinks, self.rounds = window, np.float32(softcap), sinks, rounds
        self.keys, self.values = store_pair(shape, keys, values)
        self.pieces = pieces if pieces is not None else [range(n_document)]
        bounds = sorted({n_document, len(keys), *(n_document + cut for cut in cuts)})
        self.n_tail = len(keys) - n_document
        self._spans = [SpanOf(self.keys, self.values, piece, ANY_ORDER) for piece in self.pieces]
        for a, b in pairwise(bounds):
            self._spans.append(SpanOf(self.keys, self.values, range(a, b), position + a - n_document, window))
        self.spans = span_array(self._spans)

    @property
    def first_token(self):
        """Position of the batch's first token."""
        return self.position + self.n_tail - len(self.query)

    def run(self):
        (n_tokens, group, _), value_dim = self.query.shape, self.shape.value_dim
        room = Room(4 * n_tokens * (group + 1) * (value_dim + 3))
        with_gaps = room.floats(n_tokens, group + 1, value_dim + 3)
        for first, n_rows in tiles(self.shape, n_tokens):
            scratch = Room(scratch_parts(self.shape, 0).end)
            attend_tile(
                self.shape,
                first,
                n_rows,
                address(self.query),
                self.first_token,
                address(self.spans),
                len(self.spans),
                0,
                0,
                self.rounds,
                self.softcap,
                address(self.sinks) if self.sinks is not None else 0,
                scratch.address,
                room.address,
                with_gaps.strides[0],
                with_gaps.strides[1],
            )
            scratch.check()
        room.check()
        assert np.isnan(with_gaps[:, group]).all(), "written between the heads"
        assert np.isnan(with_gaps[:, :, value_dim:]).all(), "written between the heads"
        return with_gaps[:, :group, :value_dim]

    def expected(self):
        n_tokens, group, _ = self.query.shape
        document = np.concatenate([*map(np.asarray, self.pieces), []]).astype(int)
        numbers = np.concatenate([document, np.arange(self.n_document, self.n_document + self.n_tail)])
        keys, values = (rows[numbers] for rows in read_pair(self.shape, self.keys, self.values))
        positions = self.position + np.arange(self.n_tail)
        visible = oracle.visible(self.first_token + np.arange(n_tokens), positions, self.window)
        visible = np.hstack([np.ones((n_tokens, len(document)), bool), visible])
        heads = []
        for g in range(group):
            sinks = np.full(n_tokens, self.sinks[g]) if self.sinks is not None else None
            softcap = float(self.softcap)
            heads.append(
                oracle.attention(self.query[:, g], keys, values, softcap=softcap, sinks=sinks, visible=visible)
            )
        return np.stack(heads, axis=1)

    def error(self):
        return relative_error(self.run(), self.expected())


def random_prefill(rng, shape, n_tokens, n_past=0, n_document=0, spread=0.3, **options):
    query = normal(rng, n_tokens, shape.group, shape.head_dim, spread=spread)
    n_rows = n_document + n_past + n_tokens
    keys, values = (halves(rng, n_rows, length) for length in (shape.head_dim, shape.value_dim))
    return Prefill(shape, query, keys, values, n_document, **options)


def tiles(shape, n_tokens):
    """The first query and the number of queries of the largest tiles."""
    total, size = n_tokens * shape.group, most_queries(shape)
    return [(first, min(size, total - first)) for first in range(0, total, size)]


def attend_spans(shape, queries, spans, position, softcap=0.0):
    """What (n_tokens, group, head_dim) queries of one KV head get of spans: a single token decodes, a batch prefills.

    position : of the first token
    """
    (n_tokens, group, _), value_dim = queries.shape, shape.value_dim
    out, softcap = Room(4 * n_tokens * group * value_dim), np.float32(softcap)
    if n_tokens > 1:
        scratch = Room(scratch_parts(shape, 0).end)
        steps = group * value_dim * 4, value_dim * 4
        for first, n_rows in tiles(shape, n_tokens):
            attend_tile(
                shape,
                first,
                n_rows,
                address(queries),
                position,
                address(spans),
                len(spans),
                0,
                0,
                0,
                softcap,
                0,
                scratch.address,
                out.address,
                *steps,
            )
    else:
        scratch, partials = Room(_decode_bytes(shape)), Room(4 * partial_size(shape))
        counts = np.array([len(spans)], np.int64), spans["n_rows"].sum(keepdims=True)
        places = address(spans), len(spans), *map(address, counts)
        attend_share(shape, address(queries), 1, *places, softcap, scratch.address, partials.address, 0, 1)
        merge_shares(shape, 0, 1, partials.address, 1, 0, out.address, value_dim * 4, 0)
    for room in (out, scratch):
        room.check()
    return out.floats(n_tokens, group, value_dim)
