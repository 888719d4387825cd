"""Test the shaders against the oracle, on the simulator: every kernel, every shape, in several schedules."""

import numpy as np
import pytest
from helpers import oracle
from helpers.kernel_heads import Head, extras_offset, random_head
from helpers.kernel_inputs import address, halves, normal, read_rows, relative_error
from helpers.shader_layers import Layer
from metal_simulator import simulator

from octavo.cpu_kernels.methods import dense, quest, sparq
from octavo.cpu_kernels.methods.sparq import moments_bytes
from octavo.cpu_kernels.numba_support.shape import F16, FLAT_Q8_0, Shape
from octavo.cpu_kernels.rows.columns import element_bytes, scale_bytes
from octavo.cpu_kernels.rows.tiles import CHUNK_ROWS

pytestmark = pytest.mark.sampled

simulator.require()

HEAD_DIMS = (64, 80, 96, 128, 256)
SHAPES = [Shape(head_dim, 3, kv_type) for head_dim in HEAD_DIMS for kv_type in (F16, FLAT_Q8_0)]
SHAPES += [Shape(64, 1), Shape(8, 16), Shape(40, 1, FLAT_Q8_0), Shape(128, 8)]
SHAPES += [Shape(40, 5, F16, 72), Shape(192, 4, F16, 128), Shape(72, 2, FLAT_Q8_0, 40), Shape(64, 3, FLAT_Q8_0, 96)]
SHAPES += [Shape(512, 8), Shape(512, 5, FLAT_Q8_0), Shape(264, 1, F16, 576), Shape(64, 17)]
SHAPES += [Shape(96, 17, F16, 64, latent=True), Shape(72, 3, FLAT_Q8_0, 40, latent=True)]
SHAPES += [Shape(576, 20, F16, 512, latent=True), Shape(576, 16, FLAT_Q8_0, 512, latent=True)]
MANY_HEADS = pytest.param(Shape(576, 128, F16, 512, latent=True), marks=pytest.mark.slow)
SMALL = [pytest.param(Shape(64, 3), id="f16"), pytest.param(Shape(64, 3, FLAT_Q8_0), id="q8_0")]
SCHEDULES = (0, 1, 2, 3)
SAME = 3e-5
N_ROWS = (1, 31, 33, 700)

of_shapes = pytest.mark.parametrize("shape", [*SHAPES, MANY_HEADS], ids=str)
of_both = pytest.mark.parametrize("shape", SMALL)


def queries_of(rng, shape, n_heads, n_tokens=1, spread=0.3):
    return normal(rng, n_heads, n_tokens, shape.group, shape.head_dim, spread=spread)


# Appending.


def parts_of(head):
    """Yield the stored parts of each chunk of a head, up to its last row: name, array, largest difference allowed."""
    shape, n_tail = head.shape, head.n_tail
    for i, chunk in enumerate(head.chunks):
        n_rows = min(CHUNK_ROWS, n_tail - i * CHUNK_ROWS)
        yield "keys", chunk.view(np.uint8, n_rows, shape.row_bytes), 0
        if not shape.latent:
            yield "values", chunk.view(np.uint8, n_rows, shape.value_bytes, at=CHUNK_ROWS * shape.row_bytes), 0
        extras = extras_offset(shape)
        if head.method is quest:
            n_pages = -(-n_rows // 16)
            yield "pages", chunk.view(np.float16, n_pages, 2, shape.head_dim, at=extras), 0
        if head.method is sparq:
            yield "moments", chunk.view(np.float32, 2, shape.head_dim, at=extras), 1e-4
            yield "sums", chunk.view(np.float32, shape.value_dim, at=extras + 8 * shape.head_dim), 1e-4
            copy, size = extras + moments_bytes(shape), element_bytes(shape)
            scales = CHUNK_ROWS * scale_bytes(shape)
            yield "scales", chunk.view(np.uint16, CHUNK_ROWS, at=copy)[: n_rows if scales else 0], 0
            columns = chunk.view(np.uint8, shape.head_dim, CHUNK_ROWS * size, at=copy + scales)
            yield "columns", columns[:, : n_rows * size], 0


def shortened(head, n_new):
    """Return the same head before its newest rows came: room for them, and nothing of them in the extras."""
    stored = head.keys[: head.n_tail - n_new], head.values[: head.n_tail - n_new]
    before = Head(head.shape, *stored, method=head.method)
    for i, chunk in enumerate(head.chunks):
        chunk.bytes[:] = before.chunks[i].bytes if i < len(before.chunks) else 0xFF
    return head


@of_shapes
@pytest.mark.parametrize(("n_old", "n_new"), [(0, 1), (5, 1), (250, 300), (256, 2), (255, 1), (100, 31)])
def test_append_is_what_the_cpu_stores(shape, n_old, n_new):
    rng = np.random.default_rng(0)
    n_rows, methods = n_old + n_new, (dense, quest, sparq)
    lengths = shape.head_dim, shape.value_dim
    rows = [[halves(rng, n_rows, length) for length in lengths] for _ in methods]  # of each head: keys, values
    expected = [Head(shape, *own, method=method) for own, method in zip(rows, methods, strict=True)]
    heads = [shortened(Head(shape, *own, method=each), n_new) for own, each in zip(rows, methods, strict=True)]
    layer = Layer(heads, ["dense", "quest", "sparq"], schedule=n_old % 4)
    layer.append(*(np.stack([own[kind][n_old:] for own in rows]) for kind in range(2)))
    for head, other in zip(heads, expected, strict=True):
        for (name, actual, tolerance), (_, stored, _) in zip(parts_of(head), parts_of(other), strict=True):
            if tolerance:
                assert np.allclose(actual, stored, rtol=tolerance, atol=tolerance), name
            else:
                assert np.array_equal(actual, stored), name


@pytest.mark.parametrize("shape", [Shape(64, 3, FLAT_Q8_0), Shape(72, 3, FLAT_Q8_0, 40, latent=True)], ids=str)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_rows_that_are_not_finite_are_nan_as_on_the_cpu(shape, bad):
    """Of a latent key only the part that is not finite. SparQ's copy of it has one scale."""
    rng, n_rows = np.random.default_rng(5), 9
    rows = [halves(rng, n_rows, length) for length in (shape.head_dim, shape.value_dim)]
    rows[0][2, 3] = rows[0][4, -1] = rows[1][6, 1] = bad
    rows[0][7, :40] = 0
    expected = [Head(shape, *rows, method=method) for method in (dense, sparq)]
    heads = [shortened(Head(shape, *rows, method=method), n_rows) for method in (dense, sparq)]
    Layer(heads, ["dense", "sparq"]).append(*(np.stack([own, own]) for own in rows))
    for head, other in zip(heads, expected, strict=True):
        keys, stored = (each.chunks[0].view(np.uint8, n_rows, shape.row_bytes) for each in (head, other))
        np.testing.assert_array_equal(read_rows(shape, keys), read_rows(shape, stored))
        assert np.isnan(read_rows(shape, keys)[4]).any()
    copy = extras_offset(shape) + moments_bytes(shape)
    scales, known = (each.chunks[0].view(np.float16, n_rows, at=copy) for each in (heads[1], expected[1]))
    np.testing.assert_array_equal(scales, known)
    assert np.flatnonzero(np.isnan(scales)).tolist() == [2, 4]


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
