"""Test which blocks of keys a batch reads, and what it makes of them."""

import numpy as np
import pytest
from helpers import oracle
from helpers.kernel_heads import random_head
from helpers.kernel_inputs import (
    ROTATED,
    SAME_IN_BATCHES,
    SHAPE,
    THREADS,
    Room,
    address,
    as_bf16,
    in_threads,
    normal,
    relative_error,
)

from octavo.cpu_kernels.attend.decode import partial_size
from octavo.cpu_kernels.layer import WORK, attend_batch, choose_in_layer, scratch_bytes
from octavo.cpu_kernels.layout.spans import SPAN
from octavo.cpu_kernels.methods import dense
from octavo.cpu_kernels.numba_support.compile import native
from octavo.cpu_kernels.numba_support.shape import F16, Q8_0, Shape
from octavo.cpu_kernels.prefill.integer_tiles import LARGEST_ELEMENT, OF_BYTES
from octavo.cpu_kernels.prefill.sparse_prefill import (
    FEWEST_BLOCKS,
    QUERY_TOKENS,
    SAMPLE_STEP,
    most_groups,
    sample_bytes,
)
from octavo.cpu_kernels.prefill.tile_scratch import BLOCK, strip_queries

pytestmark = pytest.mark.sampled

N_KV_HEAD, CAPACITY = 2, 60
N_ROWS = FEWEST_BLOCKS * BLOCK + 330
BORDERLINE = 1e-4  # of a share: f32 sums, and products of bf16 where there is AMX

#: Rough products of bf16 and of bytes round queries, keys and values, as is expected; and weights, as is not. Those of
#: int16 round everything, as is not expected. A weight in bytes is off by up to 1 / 510 of the largest of its block. So
#: the sum of its 64 weights, which is at least the largest, is off by up to 64 times that.
ROUGH, ROUGH_IN_BYTES = 5e-3, 64 / 510
OF_WORDS = Shape(80, 2)


def as_bytes(array, axis):
    """What bytes hold of the vectors along an axis, as f32."""
    steps = np.abs(array).max(axis=axis, keepdims=True) / np.float32(LARGEST_ELEMENT)
    return np.rint(array / np.maximum(steps, np.finfo(np.float32).tiny)) * steps


class Batch:
    """A layer whose heads attend to everything, at the end of a sequence, and a batch that covers a share.

    run() returns (n_tokens, n_kv_head * group, head_dim), and sets `chosen`: (n_kv_head, n_groups, n_blocks) bool
    """

    def __init__(self, shape, n_rows, n_tokens, covers, softcap=0.0, window=0, peaked=True):
        rng = np.random.default_rng(8)
        self.shape, self.covers, self.softcap, self.window = shape, covers, softcap, window
        options = {"method": dense, "softcap": softcap, "window": window}
        self.heads = [random_head(rng, shape, 0, n_rows, **options) for _ in range(N_KV_HEAD)]
        for head in self.heads:
            head.connect(dense.HOOKS)
        self.n_rows, self.n_tokens, self.first = n_rows, n_tokens, n_rows - n_tokens
        spread = 0.6 if peaked else 0.1
        self.queries = normal(rng, N_KV_HEAD, n_tokens, shape.group, shape.head_dim, spread=spread)

    @property
    def groups(self):
        """The tokens of each group, by number in the batch."""
        tokens = np.arange(self.n_tokens)
        numbers = (self.first + tokens) // QUERY_TOKENS
        return [tokens[numbers == number] for number in np.unique(numbers)]

    def run(self, n_threads=2):
        shape, n_tokens, n_heads = self.shape, self.n_tokens, N_KV_HEAD * self.shape.group
        records = np.concatenate([head.record for head in self.heads])
        size, n_blocks = -(-scratch_bytes(shape) // 64) * 64, self.n_rows // BLOCK + CAPACITY
        per_head = {
            "spans": CAPACITY * SPAN.itemsize,
            "n_spans": 8,
            "n_rows": 8,
            "n_blocks": 8,
            "samples": sample_bytes(shape, n_tokens, n_blocks),
            "chosen": most_groups(n_tokens) * n_blocks,
            "partials": n_threads * 4 * partial_size(shape),
        }
        rooms = {name: Room(N_KV_HEAD * n_bytes) for name, n_bytes in per_head.items()}
        rooms["scratch"] = Room(n_threads * size)
        work = np.zeros(1, WORK)
        for name, room in rooms.items():
            work[name] = room.address
        work["queries"], work["span_capacity"], work["scratch_bytes"] = address(self.queries), CAPACITY, size
        work["covers"], work["most_blocks"] = self.covers, n_blocks
        work["sample_bytes"], work["chosen_bytes"] = per_head["samples"], per_head["chosen"]
        out = Room(4 * n_tokens * n_heads * shape.value_dim)
        rooms["out"] = out
        steps = n_heads * shape.value_dim * 4, shape.value_dim * 4

        choose = native(choose_in_layer).address

        def attend(ith):
            places = address(work), choose, 0, out.address
            layer = address(records), N_KV_HEAD, n_tokens, np.float32(self.softcap)
            attend_batch(shape, *layer, *places, steps, ith, n_threads)

        in_threads(n_threads, attend)
        for room in (*rooms.values(), *(head.scratch for head in self.heads)):
            room.check()
        self.n_blocks = rooms["n_blocks"].view(np.int64) if self.covers else np.zeros(N_KV_HEAD, int)
        if self.n_blocks.any():
            [own] = set(self.n_blocks.tolist())
            rows = rooms["chosen"].view(np.uint8, N_KV_HEAD, per_head["chosen"])[:, : len(self.groups) * own]
            assert set(np.unique(rows)) <= {0, 1}
            self.chosen = rows.reshape(N_KV_HEAD, len(self.groups), own) == 1
        return out.floats(n_tokens, n_heads, shape.value_dim)

    def visible(self, tokens):
        return oracle.visible(self.first + tokens, np.arange(self.n_rows), self.window)

    def rounded(self, array):
        """What rough products of bf16 or of bytes make of queries or keys, where there are some: bytes rotate them."""
        if not self.n_blocks.any():
            return array
        if self.of_bytes:
            rows = oracle.rotate(array.reshape(-1, array.shape[-1]), self.shape.value_dim if self.shape.latent else 0)
            return as_bytes(rows, axis=1).reshape(array.shape)
        return as_bf16(array) if self.shape.on_amx and self.shape != ROTATED else array

    def rounded_values(self, values):
        """What they make of values, whose columns are rounded block by block."""
        if not (self.of_bytes and self.n_blocks.any()):
            return self.rounded(values)
        stored = oracle.rotate(values) if self.shape.rotated else values
        blocks = [as_bytes(stored[first : first + BLOCK], axis=0) for first in range(0, len(values), BLOCK)]
        return oracle.rotate(np.concatenate(blocks)) if self.shape.rotated else np.concatenate(blocks)

    @property
    def of_bytes(self):
        return OF_BYTES and self.shape.on_integers

    def expected(self):
        """Attention over the blocks that were chosen. A strip of queries that lies in two groups reads both's."""
        n_queries, width = self.n_tokens * self.shape.group, int(strip_queries(self.shape))
        tokens = np.arange(n_queries) // self.shape.group
        groups = (self.first + tokens) // QUERY_TOKENS - self.first // QUERY_TOKENS
        seen = self.visible(tokens)
        out = []
        for h, head in enumerate(self.heads):
            own = seen.copy()
            for first in range(0, n_queries, width) if self.n_blocks.any() else ():
                strip = slice(first, min(first + width, n_queries))
                read = self.chosen[h, np.unique(groups[strip])].any(axis=0)
                own[strip] &= np.repeat(read, BLOCK)[: self.n_rows]
            queries, keys, values = *map(self.rounded, (self.queries[h], head.keys)), self.rounded_values(head.values)
            queries = queries.reshape(n_queries, -1)
            made = oracle.attention(queries, keys, values, softcap=self.softcap, visible=own)
            out.append(made.reshape(self.n_tokens, self.shape.group, -1))
        return np.concatenate(out, axis=1)

    def sampled(self, h, tokens):
        """The share of each block in the attention of each half of a group's sampled tokens: (2, n_blocks)."""
        last, first = tokens[-1], tokens[0]
        chosen = [max(last - i * SAMPLE_STEP, first) for i in range(QUERY_TOKENS // SAMPLE_STEP)]
        keys, queries = self.rounded(self.heads[h].keys), self.rounded(self.queries[h])
        halves = []
        for half in (chosen[::2], chosen[1::2]):
            seen = self.visible(np.array(half))
            shares = [oracle.block_shares(own, keys, seen, BLOCK, self.softcap) for own in queries[half].swapaxes(0, 1)]
            halves.append(np.mean(shares, axis=(0, 1)))
        return np.array(halves)

    def forced(self, tokens):
        """The first block, and those that are near."""
        blocks = np.arange(-(-self.n_rows // BLOCK))
        start = (self.first + tokens[0]) // QUERY_TOKENS * QUERY_TOKENS
        newest = np.minimum((blocks + 1) * BLOCK, self.n_rows) - 1
        return (blocks == 0) | (newest >= start - QUERY_TOKENS)


def threshold(shares, missing):
    """The largest threshold for which the blocks above it in one half hold what is missing in the other, or 0."""
    candidates = np.unique(shares)[::-1]
    held = [(shares[::-1] * (shares >= least)).sum(axis=1).mean() for least in candidates]
    enough = np.flatnonzero(np.array(held) >= missing)
    return candidates[enough[0]] if len(enough) else 0.0


#: Values shorter or longer than keys, or their first part.
OTHERS = [Shape(96, 2, F16, 64), Shape(64, 2, Q8_0, 96), Shape(96, 3, F16, 64, latent=True)]
SHAPES = [SHAPE, OF_WORDS, *OTHERS, pytest.param(ROTATED, marks=pytest.mark.slow)]


@pytest.mark.parametrize("n_threads", THREADS)
def test_a_batch_attends_to_the_blocks_that_its_groups_chose(n_threads):
    batch = Batch(SHAPE, N_ROWS, 150, covers=0.8)
    assert relative_error(batch.run(n_threads), batch.expected()) < (ROUGH_IN_BYTES if batch.of_bytes else ROUGH)
    assert batch.chosen.mean() < 0.8


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("softcap", [0.0, 20.0])
@pytest.mark.parametrize("covers", [0.3, 0.9, 0.99])
def test_the_blocks_of_either_half_of_a_sample_hold_the_share_of_the_other(shape, covers, softcap):
    """Check that the blocks suffice, that the largest are taken, and that fewer would not do."""
    uncertain = 1 if shape == SHAPE and shape.on_amx else 32  # else not all rounding is expected: 8 bits of each factor
    batch = Batch(shape, N_ROWS, 150, covers, softcap)
    assert relative_error(batch.run(), batch.expected()) < (ROUGH_IN_BYTES if batch.of_bytes else uncertain * ROUGH)
    for h in range(N_KV_HEAD):
        for number, tokens in enumerate(batch.groups):
            chosen, forced, shares = batch.chosen[h, number], batch.forced(tokens), batch.sampled(h, tokens)
            assert chosen[forced].all()
            certain = shares[:, forced].mean(axis=0).sum()
            if certain >= covers + uncertain * BORDERLINE:
                assert (chosen == forced).all()
                continue
            largest = shares.max(axis=0)
            lower, upper = (
                threshold(shares[:, ~forced], covers + each * BORDERLINE - certain) for each in (uncertain, -uncertain)
            )
            assert chosen[largest >= upper * (1 + uncertain / 1000)].all()
            assert not chosen[(largest < lower * (1 - uncertain / 1000)) & ~forced].any()


def test_what_a_token_reads_does_not_depend_on_its_batch():
    """Check batches that begin where groups do."""
    n_rows, n_tokens = FEWEST_BLOCKS * BLOCK + 4 * QUERY_TOKENS, 3 * QUERY_TOKENS
    whole = Batch(SHAPE, n_rows, n_tokens, covers=0.8)
    expected = whole.run()
    part = Batch(SHAPE, n_rows, n_tokens, covers=0.8)
    part.queries, part.n_tokens = np.ascontiguousarray(part.queries[:, QUERY_TOKENS:]), n_tokens - QUERY_TOKENS
    part.first += QUERY_TOKENS
    np.testing.assert_array_equal(part.run(), expected[QUERY_TOKENS:])
    np.testing.assert_array_equal(part.chosen, whole.chosen[:, 1:])


@pytest.mark.parametrize(
    ("n_rows", "covers", "window"), [(FEWEST_BLOCKS * BLOCK - 300, 0.8, 0), (N_ROWS, 0.0, 0), (N_ROWS, 0.8, 200)]
)
def test_everything_is_read_where_it_is_little_or_asked_for(n_rows, covers, window):
    batch = Batch(SHAPE, n_rows, 90, covers, window=window)
    out = batch.run()
    assert not batch.n_blocks.any()
    assert relative_error(out, batch.expected()) < 2 * SAME_IN_BATCHES


def test_attention_that_is_spread_out_reads_its_share_of_the_blocks():
    batch = Batch(SHAPE, N_ROWS, 64, covers=0.9, peaked=False)
    batch.run()
    assert batch.chosen.mean() > 0.8


def test_a_nan_reaches_the_output():
    batch = Batch(SHAPE, N_ROWS, 70, covers=0.8)
    batch.queries[0, 30, 1, 5] = np.nan
    out = batch.run()
    assert np.isnan(out[30, 1]).all()
    assert np.isfinite(out[:, SHAPE.group :]).all()
