"""Kernels of cpu_kernels against the oracle, by relative error, on ordinary and on hostile inputs."""

import threading
import time
from itertools import pairwise

import numpy as np
import oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import int64

from octavo.cpu_kernels import blocks, vector
from octavo.cpu_kernels.blocks import TILE, TILE_ROWS
from octavo.cpu_kernels.compile import LANES, Shape, kernel
from octavo.cpu_kernels.decode import BLOCK, attend_share, merge_shares, partial_size
from octavo.cpu_kernels.memory import barrier
from octavo.cpu_kernels.prefill import attend_tile, n_tiles, tile_scratch_size
from octavo.cpu_kernels.spans import ANY_ORDER, SPAN

HEAD_DIMS = [8, 40, 64, 72, 80, 96, 128, 256]
GROUPS = range(1, 9)
#: Each head_dim and each group once; the other pairs are compiled by the slow tests only.
FEW = [(8, 8), (40, 6), (64, 3), (72, 2), (80, 1), (96, 7), (128, 4), (256, 5)]
OTHERS = [(head_dim, group) for head_dim in HEAD_DIMS for group in GROUPS if (head_dim, group) not in FEW]
SHAPES = [pytest.param(Shape(*sizes), id="{}-{}".format(*sizes)) for sizes in FEW]
SHAPES += [pytest.param(Shape(*sizes), id="{}-{}".format(*sizes), marks=pytest.mark.slow) for sizes in OTHERS]
THREADS = [1, 2, 5]  # 5: more than the cores of a small machine
SAME = 2e-5  # relative: f32 sums of some hundred products
N_ROWS = [1, 7, 8, 9, 61, 127, 128, 129, 700]


def normal(rng, *shape, spread=1.0, dtype=np.float32):
    return (rng.standard_normal(shape) * spread).astype(dtype)


def halves(rng, *shape):
    return normal(rng, *shape, dtype=np.float16)


def poisoned(*shape):
    """What a kernel gets to write on: whatever it leaves, or reads before it wrote, is a NaN."""
    return np.full(shape, np.nan, np.float32)


def address(array):
    return array.ctypes.data


def relative_error(actual, expected):
    """The largest error of a row of the last axis, relative to the row's largest element; inf for a NaN."""
    error = np.abs(actual - expected).max(axis=-1) / np.abs(expected).max(axis=-1)
    return np.where(np.isnan(error), np.inf, error).max(initial=0.0)


# Vectors.


@kernel
def exp_of(source, target, n):
    for i in range(0, n, LANES):
        vector.store(target + i * 4, vector.exp(vector.load(source + i * 4)))


@kernel
def lane_reductions(source, target):
    x = vector.load(source)
    vector.store(target, vector.splat(vector.sum_of(x)))
    vector.store(target + LANES * 4, vector.splat(vector.max_of(x)))


@kernel
def kept_at_most(source, index, limits, target):
    vector.store(target, vector.keep_at_most(vector.load(source), index, vector.load(limits)))


def vector_exp(numbers):
    padded = np.zeros(-(-len(numbers) // LANES) * LANES, np.float32)
    padded[: len(numbers)] = numbers
    out = poisoned(len(padded))
    exp_of(address(padded), address(out), len(padded))
    return out[: len(numbers)]


def test_exp_is_exact_to_two_units_in_the_last_place():
    steps = np.linspace(-87, 88, 100_001, dtype=np.float32)
    near_zero = np.concatenate([sign * np.geomspace(1e-30, 1, 10_001, dtype=np.float32) for sign in (-1, 1)])
    x = np.concatenate([steps, near_zero])
    expected = np.exp(x.astype(np.float64))
    units = np.abs(vector_exp(x) - expected) / np.spacing(expected.astype(np.float32))
    assert units.max() <= 2


def test_exp_of_little_is_0_and_of_0_is_1():
    x = np.array([-np.inf, -3e38, -1e30, -1e4, np.nextafter(np.float32(-87), np.float32(-88)), 0, -0.0], np.float32)
    assert vector_exp(x).tolist() == [0, 0, 0, 0, 0, 1, 1]


def test_exp_keeps_nan():
    x = np.array([1, np.nan, -np.inf, -np.nan, 0], np.float32)
    assert np.isnan(vector_exp(x)).tolist() == [False, True, False, True, False]


def test_sum_and_maximum_take_in_every_lane():
    for lane in range(LANES):
        x = np.zeros(LANES, np.float32)
        x[lane] = 3
        out = poisoned(2, LANES)
        lane_reductions(address(x), address(out))
        assert (out == 3).all()


def test_mask_keeps_what_is_not_after_the_limit():
    x, limits = np.arange(LANES, dtype=np.float32), np.arange(LANES, dtype=np.float32)
    out = poisoned(LANES)
    kept_at_most(address(x), np.float32(3), address(limits), address(out))
    assert out.tolist() == [-np.inf if lane < 3 else lane for lane in range(LANES)]


# Blocks.


@kernel
def add_weighted_rows(shape, weights, stride, values, n_rows, out):
    blocks.add_weighted(shape, weights, stride, values, n_rows, out)


@kernel
def score_one_tile(shape, keys, queries, scores):
    blocks.score_tile(shape, keys, queries, scores)


@kernel
def weigh_one_tile(shape, weights, values, n_rows, out):
    blocks.value_tile(shape, weights, values, int64(n_rows), out)


@pytest.mark.parametrize("shape", SHAPES)
def test_dot_scores_each_row_for_each_head(shape):
    rng = np.random.default_rng(0)
    query, keys = normal(rng, shape.group, shape.head_dim), halves(rng, 50, shape.head_dim)
    for n_rows in (0, 1, 3, 4, 7, 8, 9, 33, 50):
        stride = 53
        scores = poisoned(shape.group, stride)
        blocks.dot(shape, address(query), address(keys), n_rows, address(scores), stride)
        lengths = np.linalg.norm(query, axis=1)[:, None] * np.linalg.norm(keys.astype(np.float64), axis=1)
        error = np.abs(scores[:, :n_rows] - query.astype(np.float64) @ keys[:n_rows].T) / lengths[:, :n_rows]
        assert error.max(initial=0.0) < 1e-6
        assert np.isnan(scores[:, n_rows:]).all()  # nothing is written behind the last row


@pytest.mark.parametrize("shape", SHAPES)
def test_add_weighted_adds_to_what_is_there(shape):
    rng = np.random.default_rng(1)
    for n_rows in (0, 1, 7, 8, 9, 33):
        stride = n_rows + 3
        weights, values = normal(rng, shape.group, stride), halves(rng, n_rows, shape.head_dim)
        before = normal(rng, shape.group, shape.head_dim)
        out = before.copy()
        add_weighted_rows(shape, address(weights), stride, address(values), n_rows, address(out))
        expected = before + weights[:, :n_rows].astype(np.float64) @ values
        assert relative_error(out, expected) < 1e-5


@pytest.mark.parametrize("shape", SHAPES)
def test_score_tile_adds_the_products_of_its_rows(shape):
    rng = np.random.default_rng(2)
    keys, queries = normal(rng, TILE_ROWS, shape.head_dim), normal(rng, shape.head_dim, TILE)
    before = normal(rng, TILE_ROWS, TILE)
    scores = before.copy()
    score_one_tile(shape, address(keys), address(queries), address(scores))
    assert relative_error(scores, before + keys.astype(np.float64) @ queries) < 1e-5


@pytest.mark.parametrize("shape", SHAPES)
def test_value_tile_adds_the_weighted_rows(shape):
    rng = np.random.default_rng(3)
    for n_rows in (0, 1, 7, TILE):
        weights, values = normal(rng, n_rows, TILE), normal(rng, n_rows, shape.head_dim)
        before = normal(rng, TILE_ROWS, shape.head_dim)
        out = before.copy()
        first = 8  # the tile of queries 8 to 11
        weigh_one_tile(shape, address(weights) + first * 4, address(values), n_rows, address(out))
        expected = before + weights[:, first : first + TILE_ROWS].astype(np.float64).T @ values
        assert relative_error(out, expected) < 1e-5


# Decode: one token over spans.


class Decode:
    """One token's attention: for each KV head its keys and values, cut into spans that lie in any order.

    keys, values : for each KV head (n_rows, head_dim) f16    query : (n_kv_head * group, head_dim) f32
    cuts : for each KV head, the rows where a new span starts
    """

    def __init__(self, shape, query, keys, values, cuts=None, softcap=0.0, sinks=None, seed=0):
        self.shape, self.query, self.keys, self.values = shape, query, keys, values
        self.softcap, self.sinks = np.float32(softcap), sinks
        rng = np.random.default_rng(seed)
        spans = []
        for head, rows in enumerate(keys):
            bounds = [0, *(sorted(cuts[head]) if cuts else []), len(rows)]
            pieces = list(pairwise(bounds))
            rng.shuffle(pieces)
            spans.append(
                [
                    (address(keys[head]) + a * rows.strides[0], address(values[head]) + a * rows.strides[0], b - a, -1)
                    for a, b in pieces
                ]
            )
        self.spans = np.zeros((len(keys), max(map(len, spans)) + 1), SPAN)
        for head, head_spans in enumerate(spans):
            self.spans[head, : len(head_spans)] = head_spans
        self.n_spans = np.array([len(head_spans) for head_spans in spans], np.int64)
        self.n_rows = np.array([len(rows) for rows in keys], np.int64)
        self.out = poisoned(*query.shape)

    def start(self, n_threads):
        self.partials = poisoned(n_threads, len(self.keys), partial_size(self.shape))
        self.scratch = poisoned(n_threads, self.shape.group, BLOCK)
        self.out[:] = np.nan

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
            address(self.scratch[ith]),
            address(self.partials),
            ith,
            n_threads,
        )

    def merge(self, head, n_threads):
        sinks = address(self.sinks) if self.sinks is not None else 0
        out_stride = self.out.strides[0]
        partials, out = address(self.partials), address(self.out)
        merge_shares(self.shape, head, len(self.keys), partials, n_threads, sinks, out, out_stride)

    def run(self, n_threads):
        self.start(n_threads)
        for ith in range(n_threads):
            self.attend(ith, n_threads)
        for head in range(len(self.keys)):
            self.merge(head, n_threads)
        return self.out

    def expected(self):
        group, results = self.shape.group, []
        for head, (keys, values) in enumerate(zip(self.keys, self.values, strict=True)):
            own = slice(head * group, (head + 1) * group)
            sinks = self.sinks[own] if self.sinks is not None else None
            results.append(oracle.attention(self.query[own], keys, values, softcap=float(self.softcap), sinks=sinks))
        return np.concatenate(results)


def random_decode(rng, shape, n_rows, n_cuts=0, spread=0.3, **options):
    """n_rows : for each KV head, its number of rows."""
    keys, values = ([halves(rng, n, shape.head_dim) for n in n_rows] for _ in range(2))
    query = normal(rng, len(n_rows) * shape.group, shape.head_dim, spread=spread)
    cuts = [rng.integers(0, n, n_cuts, endpoint=True).tolist() for n in n_rows]  # equal cuts: empty spans
    return Decode(shape, query, keys, values, cuts, **options)


@pytest.mark.parametrize("shape", SHAPES)
def test_decode_is_softmax_attention(shape):
    rng = np.random.default_rng(4)
    for n in N_ROWS:
        decode = random_decode(rng, shape, [n, n])
        for n_threads in THREADS:
            assert relative_error(decode.run(n_threads), decode.expected()) < SAME, (n, n_threads)


@pytest.mark.parametrize("n_threads", THREADS)
@pytest.mark.parametrize(
    "n_rows", [[1, 500], [500, 1, 1], [3, 0, 5], [0, 130], [1, 1, 1, 1], [2000, 3, 17, 256]], ids=str
)
def test_decode_shares_out_uneven_heads(n_rows, n_threads):
    decode = random_decode(np.random.default_rng(5), Shape(64, 3), n_rows, n_cuts=5)
    actual, expected = decode.run(n_threads).reshape(len(n_rows), 3, 64), np.zeros((len(n_rows), 3, 64))
    for head in np.flatnonzero(n_rows):
        one = Decode(decode.shape, decode.query[head * 3 : head * 3 + 3], [decode.keys[head]], [decode.values[head]])
        expected[head] = one.expected()
        assert relative_error(actual[head], expected[head]) < SAME


@pytest.mark.parametrize("n_threads", THREADS)
def test_decode_with_fewer_rows_than_threads(n_threads):
    decode = random_decode(np.random.default_rng(6), Shape(64, 3), [1])
    assert relative_error(decode.run(n_threads), decode.expected()) < SAME


@settings(max_examples=60, deadline=None)
@given(
    n_rows=st.lists(st.integers(1, 400), min_size=1, max_size=4),
    n_cuts=st.integers(0, 12),
    n_threads=st.integers(1, 6),
    spread=st.sampled_from([0.0, 1e-3, 0.3, 3.0]),
    softcap=st.sampled_from([0.0, 2.0, 50.0]),
    with_sinks=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_decode_however_the_rows_are_split(n_rows, n_cuts, n_threads, spread, softcap, with_sinks, seed):
    rng = np.random.default_rng(seed)
    sinks = normal(rng, len(n_rows) * 3, spread=3) if with_sinks else None
    decode = random_decode(rng, Shape(64, 3), n_rows, n_cuts, spread, softcap=softcap, sinks=sinks, seed=seed)
    assert relative_error(decode.run(n_threads), decode.expected()) < 5 * SAME


def rows_with_scores(scores, head_dim):
    """A query and f16 keys whose scores are exactly these, whole numbers below 2048 or multiples of 8."""
    query, keys = np.zeros(head_dim, np.float32), np.zeros((len(scores), head_dim), np.float16)
    query[1] = 1
    keys[:, 1] = scores
    assert (keys[:, 1] == scores).all()
    return query, keys


HOSTILE_SCORES = {
    "all high": [10000] * 300,
    "all low": [-10000] * 300,
    "rising": list(range(-10000, 10001, 40)),
    "one high, first": [10000] + [-10000] * 299,
    "one high, last": [-10000] * 299 + [10000],
    "one low among high": [10000] * 150 + [-10000] + [10000] * 149,
    "steps up": [-10000] * 130 + [0] * 130 + [10000] * 130,
    "steps down": [10000] * 130 + [0] * 130 + [-10000] * 130,
    "close together, far from 0": [9992, 10000] * 140,
    "all the same": [0] * 300,
}


@pytest.mark.parametrize("n_threads", THREADS)
@pytest.mark.parametrize("scores", HOSTILE_SCORES.values(), ids=HOSTILE_SCORES)
def test_decode_with_hostile_scores(scores, n_threads):
    rng = np.random.default_rng(7)
    query, keys = rows_with_scores(scores, 64)
    queries = np.stack([query, -query, query * 0.25])
    decode = Decode(Shape(64, 3), queries, [keys], [halves(rng, len(keys), 64)], [[11, 130, 131]])
    assert relative_error(decode.run(n_threads), decode.expected()) < SAME


@pytest.mark.parametrize("n_threads", THREADS)
@pytest.mark.parametrize("sink", [-10000, -20, 0, 5, 10000])
def test_decode_with_sinks_above_and_below_all_scores(sink, n_threads):
    rng = np.random.default_rng(8)
    decode = random_decode(rng, Shape(64, 3), [200, 3], n_cuts=2, sinks=np.full(6, sink, np.float32))
    decode.sinks[4] = 1  # each query head has its own
    actual, expected = decode.run(n_threads), decode.expected()
    if sink == 10000:
        assert (actual[[0, 1, 2, 3, 5]] == 0).all()  # all weight is the sink's
        actual, expected = actual[[4]], expected[[4]]
    assert relative_error(actual, expected) < SAME


@pytest.mark.parametrize("softcap", [2.0, 30.0])
def test_decode_caps_scores(softcap):
    rng = np.random.default_rng(9)
    decode = random_decode(rng, Shape(64, 3), [300, 9], n_cuts=3, spread=3.0, softcap=softcap)
    assert relative_error(decode.run(2), decode.expected()) < SAME
    uncapped = oracle.attention(decode.query[:3], decode.keys[0], decode.values[0])
    assert relative_error(decode.out[:3], uncapped) > 0.1  # these scores are far above the cap


@pytest.mark.parametrize("kind", ["keys", "values"])
def test_decode_does_not_hide_a_nan(kind):
    """A NaN in the cache shows; it does not become a plausible number."""
    decode = random_decode(np.random.default_rng(10), Shape(64, 3), [200, 50])
    getattr(decode, kind)[0][77, 5] = np.nan
    out = decode.run(2)
    assert np.isnan(out[:3]).any(axis=1).all()
    assert np.isfinite(out[3:]).all()


def in_threads(n_threads, work):
    """Run work(ith) in real threads; an exception in one of them is raised here."""
    problems = []

    def guarded(ith):
        try:
            work(ith)
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=guarded, args=(ith,), daemon=True) for ith in range(n_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a thread hangs at a barrier"
    if problems:
        raise problems[0]


@pytest.mark.parametrize("n_threads", THREADS)
def test_barrier_waits_for_all_threads(n_threads):
    counter, visits, rounds = np.zeros(1, np.int64), np.zeros(n_threads, np.int64), 40
    barrier(address(counter), 1)  # compiled now

    def work(ith):
        for i in range(rounds):
            if i % n_threads == ith:
                time.sleep(0.001)
            visits[ith] += 1
            barrier(address(counter), n_threads)
            assert (visits == i + 1).all()
            barrier(address(counter), n_threads)

    in_threads(n_threads, work)
    assert counter[0] == (2 * rounds * n_threads if n_threads > 1 else 0)


@pytest.mark.parametrize("n_threads", THREADS)
def test_decode_in_real_threads(n_threads):
    rng = np.random.default_rng(11)
    counter = np.zeros(1, np.int64)
    decodes = [random_decode(rng, Shape(64, 3), rng.integers(1, 600, 3), n_cuts=4) for _ in range(12)]
    decodes[0].run(n_threads)  # compiled now
    for decode in decodes:
        decode.start(n_threads)

    def work(ith):
        for i, decode in enumerate(decodes):
            if i % n_threads == ith:
                time.sleep(0.001)
            decode.attend(ith, n_threads)
            barrier(address(counter), n_threads)
            for head in range(ith, 3, n_threads):
                decode.merge(head, n_threads)

    in_threads(n_threads, work)
    for decode in decodes:
        assert relative_error(decode.out, decode.expected()) < SAME


# Prefill: a batch of tokens over spans.


class Prefill:
    """A batch's attention on one KV head: a document in any order, and a tail in order, the batch's tokens its last.

    query : (n_tokens, group, head_dim) f32    keys, values : (n_document + n_tail, head_dim) f16
    cuts : rows of the tail where a new span starts
    """

    def __init__(self, shape, query, keys, values, n_document, position=0, window=0, softcap=0.0, sinks=None, cuts=()):
        self.shape, self.query, self.keys, self.values = shape, query, keys, values
        self.n_document, self.window, self.softcap, self.sinks = n_document, window, np.float32(softcap), sinks
        self.position = position  # of the first row of the tail
        bounds = sorted({n_document, len(keys), *(n_document + cut for cut in cuts)})
        pieces = [(0, n_document, ANY_ORDER)]
        pieces += [(a, b, position + a - n_document) for a, b in pairwise(bounds)]
        self.spans = np.zeros(len(pieces), SPAN)
        for i, (a, b, first) in enumerate(pieces):
            step = keys.strides[0]
            self.spans[i] = (address(keys) + a * step, address(values) + a * step, b - a, first)

    @property
    def first_token(self):
        """Position of the batch's first token."""
        return self.position + len(self.keys) - self.n_document - len(self.query)

    def run(self):
        n_tokens, group, head_dim = self.query.shape
        out = poisoned(n_tokens, group + 1, head_dim + 3)[:, :group, :head_dim]  # gaps between heads and tokens
        for tile in range(n_tiles(self.shape, n_tokens)):
            scratch = poisoned(tile_scratch_size(self.shape))
            attend_tile(
                self.shape,
                tile,
                n_tokens,
                address(self.query),
                self.first_token,
                self.spans,
                len(self.spans),
                self.window,
                self.softcap,
                address(self.sinks) if self.sinks is not None else 0,
                address(scratch),
                address(out),
                out.strides[0],
                out.strides[1],
            )
        assert np.isnan(out.base[:, group]).all(), "written between the heads"
        return out

    def expected(self):
        n_tokens, group, _ = self.query.shape
        tail = self.position + np.arange(len(self.keys) - self.n_document)
        visible = oracle.visible(self.first_token + np.arange(n_tokens), tail, self.window)
        visible = np.hstack([np.ones((n_tokens, self.n_document), bool), visible])
        heads = []
        for g in range(group):
            sinks = np.full(n_tokens, self.sinks[g]) if self.sinks is not None else None
            heads.append(
                oracle.attention(
                    self.query[:, g],
                    self.keys,
                    self.values,
                    softcap=float(self.softcap),
                    sinks=sinks,
                    visible=visible,
                )
            )
        return np.stack(heads, axis=1)


def random_prefill(rng, shape, n_tokens, n_past=0, n_document=0, spread=0.3, **options):
    query = normal(rng, n_tokens, shape.group, shape.head_dim, spread=spread)
    keys, values = (halves(rng, n_document + n_past + n_tokens, shape.head_dim) for _ in range(2))
    return Prefill(shape, query, keys, values, n_document, **options)


@pytest.mark.parametrize("shape", SHAPES)
def test_prefill_is_causal_attention(shape):
    rng = np.random.default_rng(12)
    for n_tokens, n_past in [(1, 0), (2, 1), (7, 0), (8, 64), (9, 63), (33, 100), (65, 0), (130, 61)]:
        prefill = random_prefill(rng, shape, n_tokens, n_past)
        assert relative_error(prefill.run(), prefill.expected()) < SAME, (n_tokens, n_past)


@pytest.mark.parametrize("window", [1, 2, 31, 64, 65, 1000])
@pytest.mark.parametrize("n_past", [0, 1, 64, 200])
def test_prefill_inside_a_window(n_past, window):
    prefill = random_prefill(np.random.default_rng(13), Shape(64, 3), 70, n_past, window=window)
    assert relative_error(prefill.run(), prefill.expected()) < SAME


@pytest.mark.parametrize("n_document", [1, 63, 64, 65, 300])
def test_prefill_sees_all_of_a_document(n_document):
    rng = np.random.default_rng(14)
    prefill = random_prefill(rng, Shape(64, 3), 70, 10, n_document, position=n_document, cuts=[5, 75])
    assert relative_error(prefill.run(), prefill.expected()) < SAME


@settings(max_examples=60, deadline=None)
@given(
    n_tokens=st.integers(1, 90),
    n_past=st.integers(0, 200),
    n_document=st.integers(0, 150),
    position=st.sampled_from([0, 1, 77, 100_000, 4_000_000]),
    cuts=st.lists(st.integers(1, 290), max_size=4),
    window=st.sampled_from([0, 1, 20, 64, 100]),
    softcap=st.sampled_from([0.0, 2.0]),
    with_sinks=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_prefill_however_the_rows_are_split(
    n_tokens, n_past, n_document, position, cuts, window, softcap, with_sinks, seed
):
    rng = np.random.default_rng(seed)
    prefill = random_prefill(
        rng,
        Shape(64, 3),
        n_tokens,
        n_past,
        n_document,
        position=position,
        window=window,
        softcap=softcap,
        sinks=normal(rng, 3, spread=3) if with_sinks else None,
        cuts=[cut for cut in cuts if cut < n_past + n_tokens],
    )
    assert relative_error(prefill.run(), prefill.expected()) < 5 * SAME


@pytest.mark.parametrize("window", [0, 100])
@pytest.mark.parametrize("scores", HOSTILE_SCORES.values(), ids=HOSTILE_SCORES)
def test_prefill_with_hostile_scores(scores, window):
    rng = np.random.default_rng(15)
    query, keys = rows_with_scores(scores, 64)
    queries = np.tile(np.stack([query, -query, query * 0.25]), (70, 1, 1))
    prefill = Prefill(Shape(64, 3), queries, keys, halves(rng, len(keys), 64), 0, window=window, cuts=[40, 129])
    assert relative_error(prefill.run(), prefill.expected()) < SAME


@pytest.mark.parametrize("sink", [-10000, -20, 0, 5, 10000])
def test_prefill_with_sinks_above_and_below_all_scores(sink):
    sinks = np.array([sink, 1, sink], np.float32)
    prefill = random_prefill(np.random.default_rng(16), Shape(64, 3), 30, 40, sinks=sinks)
    actual, expected = prefill.run(), prefill.expected()
    if sink == 10000:
        assert (actual[:, [0, 2]] == 0).all()
        actual, expected = actual[:, [1]], expected[:, [1]]
    assert relative_error(actual, expected) < SAME


def test_prefill_does_not_hide_a_nan_and_does_not_spread_it_to_earlier_tokens():
    prefill = random_prefill(np.random.default_rng(17), Shape(64, 3), 20, 5)
    prefill.keys[5 + 12, 3] = np.nan  # of the batch's token 12
    out = prefill.run()
    assert np.isnan(out[12:]).any(axis=-1).all()
    assert relative_error(out[:12], prefill.expected()[:12]) < SAME


def test_decode_and_prefill_of_one_token_agree():
    rng = np.random.default_rng(18)
    shape = Shape(64, 3)
    prefill = random_prefill(rng, shape, 1, 299)
    decode = Decode(shape, prefill.query[0], [prefill.keys], [prefill.values])
    assert relative_error(prefill.run()[0], decode.run(2)) < SAME
