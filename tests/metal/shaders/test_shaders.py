"""Test the shaders against the oracle, on the simulator: every kernel, every shape, in several schedules."""

import numpy as np
import pytest
from helpers import oracle
from helpers.kernel_heads import Head, extras_of, extras_offset, random_head
from helpers.kernel_inputs import address, halves, normal, read_as_stored, read_rows, relative_error, split_of
from helpers.shader_layers import Layer
from metal_simulator import simulator

from octavo.cpu_kernels.methods import dense, quest, sparq
from octavo.cpu_kernels.numba_support.shape import F16, Q8_0, Shape
from octavo.cpu_kernels.rows.tiles import CHUNK_ROWS

pytestmark = pytest.mark.sampled

simulator.require()

HEAD_DIMS = (64, 80, 96, 128, 256)
SHAPES = [Shape(head_dim, 3, kv_type) for head_dim in HEAD_DIMS for kv_type in (F16, Q8_0)]
SHAPES += [Shape(64, 1), Shape(8, 16), Shape(40, 1, Q8_0), Shape(128, 8)]
SHAPES += [Shape(40, 5, F16, 72), Shape(192, 4, F16, 128), Shape(72, 2, Q8_0, 40), Shape(64, 3, Q8_0, 96)]
SHAPES += [Shape(512, 8), Shape(512, 5, Q8_0), Shape(264, 1, F16, 576), Shape(64, 17)]
SHAPES += [Shape(96, 17, F16, 64, latent=True), Shape(72, 3, Q8_0, 40, latent=True)]
SHAPES += [Shape(576, 20, F16, 512, latent=True), Shape(576, 16, Q8_0, 512, latent=True)]
MANY_HEADS = pytest.param(Shape(576, 128, F16, 512, latent=True), marks=pytest.mark.slow)
SMALL = [pytest.param(Shape(64, 3), id="f16"), pytest.param(Shape(64, 3, Q8_0), id="q8_0")]
SCHEDULES = (0, 1, 2, 3)
SAME = 3e-5
N_ROWS = (1, 31, 33, 700)
METHODS = {"dense": dense, "quest": quest, "sparq": sparq}  # those with extras, and one without

of_shapes = pytest.mark.parametrize("shape", [*SHAPES, MANY_HEADS], ids=str)
of_both = pytest.mark.parametrize("shape", SMALL)


def queries_of(rng, shape, n_heads, n_tokens=1, spread=0.3):
    return normal(rng, n_heads, n_tokens, shape.group, shape.head_dim, spread=spread)


# Appending.


def stored_in(head, chunk):
    """A chunk's keys and values as they are stored, up to the last row."""
    shape, room, n_rows = head.shape, head.chunks[chunk], min(CHUNK_ROWS, head.n_tail - chunk * CHUNK_ROWS)
    values_at = 0 if shape.latent else CHUNK_ROWS * shape.row_bytes
    sizes = ((shape.row_bytes, 0), (shape.value_bytes, values_at))
    return [room.view(np.uint8, n_rows, n_bytes, at=at) for n_bytes, at in sizes]


def assert_rounded(shape, stored, rows):
    """That rows are stored as they are, of q8_0 to half a step of their rotation."""
    split, actual, expected = split_of(shape), read_as_stored(shape, stored), rows.astype(np.float64)
    if shape.rotated:
        expected = oracle.rotate(expected, split)
    for part in (np.s_[:, :split], np.s_[:, split:]):
        step = np.abs(expected[part]).max(axis=1, keepdims=True, initial=0) / 127 if shape.quantised else 0
        assert (np.abs(actual[part] - expected[part]) <= 0.501 * step).all()


def assert_extras(head, chunk):
    """That a chunk's extras are those of its rows as they are stored."""
    at = extras_offset(head.shape)
    for expected in extras_of(head.method, head.shape, *stored_in(head, chunk)):
        actual = head.chunks[chunk].view(expected.dtype, *expected.shape, at=at)
        at += expected.nbytes
        slack = 1e-4 if expected.dtype == np.float32 else 0  # of sums
        np.testing.assert_allclose(actual, expected, rtol=slack, atol=slack)


def shortened(head, n_new):
    """Return the same head before its newest rows came: room for them, and nothing of them in the extras."""
    stored = head.keys[: head.n_tail - n_new], head.values[: head.n_tail - n_new]
    before = Head(head.shape, *stored, method=head.method)
    for i, chunk in enumerate(head.chunks):
        chunk.bytes[:] = before.chunks[i].bytes if i < len(before.chunks) else 0xFF
    return head


def appended(shape, methods, rows, n_new, **options):
    """Heads to which the shaders appended the newest of rows. rows : of each, keys and values, f16."""
    heads = [shortened(Head(shape, *own, method=METHODS[m]), n_new) for own, m in zip(rows, methods, strict=True)]
    Layer(heads, methods, **options).append(*(np.stack([own[kind][-n_new:] for own in rows]) for kind in range(2)))
    return heads


@of_shapes
@pytest.mark.parametrize(("n_old", "n_new"), [(0, 1), (5, 1), (250, 300), (256, 2), (255, 1), (100, 31)])
def test_rows_and_extras_are_appended(shape, n_old, n_new):
    rng, lengths = np.random.default_rng(0), (shape.head_dim, shape.value_dim)
    rows = [[halves(rng, n_old + n_new, length) for length in lengths] for _ in METHODS]
    for head, (keys, values) in zip(appended(shape, METHODS, rows, n_new, schedule=n_old % 4), rows, strict=True):
        stored = [
            np.concatenate(each) for each in zip(*(stored_in(head, i) for i in range(len(head.chunks))), strict=True)
        ]
        assert_rounded(shape, stored[0], keys)
        if not shape.latent:
            assert_rounded(shape.of_values, stored[1], values)
        for i in range(len(head.chunks)):
            assert_extras(head, i)


@pytest.mark.parametrize("shape", [Shape(64, 3, Q8_0), Shape(72, 3, Q8_0, 40, latent=True)], ids=str)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_rows_that_are_not_finite_are_nan_as_on_the_cpu(shape, bad):
    """Of a latent key only the part that is not finite. SparQ's copy of it has one scale."""
    rng, n_rows = np.random.default_rng(5), 9
    rows = [halves(rng, n_rows, length) for length in (shape.head_dim, shape.value_dim)]
    rows[0][2, 3] = rows[0][4, -1] = rows[1][6, 1] = bad
    rows[0][7, :40] = 0
    for head in appended(shape, ["dense", "sparq"], [rows, rows], n_rows):
        known = Head(shape, *rows).chunks[0].view(np.uint8, n_rows, shape.row_bytes)
        keys = read_rows(shape, stored_in(head, 0)[0])
        np.testing.assert_allclose(keys, read_rows(shape, known), atol=1e-5)
        assert np.flatnonzero(np.isnan(keys).any(axis=1)).tolist() == [2, 4]
        assert_extras(head, 0)


# Dense attention: decode and prefill.


@of_shapes
def test_decode_is_softmax_attention(shape):
    rng = np.random.default_rng(1)
    for i, n_rows in enumerate(N_ROWS):
        heads = [random_head(rng, shape, n_document, n_rows) for n_document in (0, 300, 17)]
        queries = queries_of(rng, shape, len(heads))
        out = Layer(heads, ["dense"] * 3, schedule=SCHEDULES[i]).attend(queries)[0]
        for head, query, actual in zip(heads, queries, out, strict=True):
            assert relative_error(actual, oracle.attention(query[0], head.keys, head.values)) < SAME, n_rows


@of_shapes
def test_prefill_is_causal_softmax_attention(shape):
    rng = np.random.default_rng(2)
    for i, (n_document, n_tail, n_tokens) in enumerate([(0, 2, 2), (0, 33, 33), (40, 300, 31), (0, 290, 3)]):
        heads = [random_head(rng, shape, n_document, n_tail) for _ in range(2)]
        queries = queries_of(rng, shape, 2, n_tokens)
        out = Layer(heads, ["dense"] * 2, schedule=SCHEDULES[i]).attend(queries)
        seen = np.ones((n_tokens, n_document + n_tail), bool)
        seen[:, n_document:] = oracle.visible(n_tail - n_tokens + np.arange(n_tokens), np.arange(n_tail))
        for number, head in enumerate(heads):
            for g in range(shape.group):
                expected = oracle.attention(queries[number, :, g], head.keys, head.values, visible=seen)
                assert relative_error(out[:, number, g], expected) < 20 * SAME, (n_tail, n_tokens)


# Spans of any kind.


@of_shapes
def test_runs_and_lists_in_any_order_and_rows_more_than_once(shape):
    """Lists number the rows of the tail, in the chunk that they are read from."""
    rng = np.random.default_rng(3)
    head = random_head(rng, shape, 0, CHUNK_ROWS)
    key = head.chunks[0].address
    value = key if shape.latent else key + CHUNK_ROWS * shape.row_bytes
    rows, spans, lists = [], [], []
    for i in range(30):
        if i % 3:
            start, n_rows = rng.integers(0, 200), rng.integers(0, 50)
            rows += range(start, start + n_rows)
            spans.append((key + start * shape.row_bytes, value + start * shape.value_bytes, 0, n_rows))
        else:
            lists.append(rng.integers(0, CHUNK_ROWS, rng.integers(0, 40)).astype(np.int32) + 7 * CHUNK_ROWS)
            rows += (lists[-1] % CHUNK_ROWS).tolist()
            spans.append((key, value, address(lists[-1]), len(lists[-1])))
    queries = queries_of(rng, shape, 1)
    for n_shares in (1, 6, 100):
        out = Layer([head], ["dense"], n_shares=n_shares).attend_spans(queries, [spans])[0, 0]
        assert relative_error(out, oracle.attention(queries[0, 0], head.keys[rows], head.values[rows])) < SAME


@of_both
def test_a_head_without_rows_leaves_the_others_alone(shape):
    """Its sinks get all of its attention, and their value is 0."""
    rng = np.random.default_rng(4)
    heads = [random_head(rng, shape, 0, n_rows) for n_rows in (5, 40)]
    queries, sinks = queries_of(rng, shape, 2), normal(rng, 2 * shape.group)
    key = heads[1].chunks[0].address
    value = key + CHUNK_ROWS * shape.row_bytes
    out = Layer(heads, ["dense"] * 2, sinks=sinks).attend_spans(queries, [[], [(key, value, 0, 40)]])[0]
    assert (out[0] == 0).all()
    options = {"sinks": sinks[shape.group :]}
    assert relative_error(out[1], oracle.attention(queries[1, 0], heads[1].keys, heads[1].values, **options)) < SAME
