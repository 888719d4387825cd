"""Clusters of the tail: that they are K-means clusters, that rows keep together, and that nothing is lost."""

import numpy as np
import pytest
from helpers.kernel_heads import Head
from helpers.kernel_inputs import EACH, SHAPE, normal, read_rows, shapes

from octavo.cpu_kernels.methods import squeezed
from octavo.cpu_kernels.numba_support.shape import F16, Q4_0, Q8_0, Shape
from octavo.cpu_kernels.rows.tiles import CHUNK_ROWS
from octavo.cpu_kernels.select.tail_clusters import CHUNK_CLUSTERS, RECENT, SINKS, order_of

ROUNDS = 8
SHAPES = shapes([(64, 3, F16), (72, 1, F16), (8, 16, Q8_0), (64, 3, Q8_0), (64, 2, Q4_0), (256, 1, F16)], groups=(1,))
ONE_CHUNK = CHUNK_ROWS + RECENT


def cluster(head):
    squeezed.cluster_tail(head.shape, head.address, 1)
    for chunk in head.chunks:
        chunk.check()
    head.scratch.check()


def squeezed_head(*arguments, **fields):
    return Head(*arguments, method=squeezed, **fields)


class Chunk:
    """What lies in a head's chunk now: stored rows as numbers, and its clusters."""

    def __init__(self, head, i):
        shape, part = head.shape, head.chunks[i].bytes
        size = 2 * CHUNK_ROWS * shape.row_bytes
        self.stored_keys, self.stored_values = part[:size].reshape(2, CHUNK_ROWS, -1).copy()
        self.keys = read_rows(shape, self.stored_keys)
        extras, size = part[size:], CHUNK_CLUSTERS * shape.head_dim * 2
        self.centroids = extras[:size].view(np.float16).reshape(CHUNK_CLUSTERS, -1)
        self.starts = extras[size : size + 4 * (CHUNK_CLUSTERS + 1)].view(np.int32)
        self.order = order_of(shape, extras)

    def clusters(self):
        return [range(a, b) for a, b in zip(self.starts, self.starts[1:], strict=False)]


def directions(keys):
    """Rows of length 1; 0 for those that have no length."""
    with np.errstate(invalid="ignore"):
        lengths = np.linalg.norm(keys.astype(np.float64), axis=1, keepdims=True)
        usable = (lengths > 0) & np.isfinite(lengths)
        return np.where(usable, keys / np.where(usable, lengths, 1), 0)


def inertia(rows, clusters):
    """The sum of squared distances to the mean of one's cluster."""
    return sum(((rows[own] - rows[own].mean(axis=0)) ** 2).sum() for own in clusters if len(own))


def naive_clusters(rows):
    """Lloyd's algorithm from evenly spaced rows."""
    centroids = rows[[len(rows) * i // CHUNK_CLUSTERS for i in range(CHUNK_CLUSTERS)]].copy()
    for _ in range(ROUNDS):
        distances = ((rows[:, None] - centroids[None]) ** 2).sum(axis=2)
        clusters = [np.flatnonzero(distances.argmin(axis=1) == i) for i in range(CHUNK_CLUSTERS)]
        for i, own in enumerate(clusters):
            if len(own):
                centroids[i] = rows[own].mean(axis=0)
    return clusters


def assert_valid(head, i, before, first):
    """That a chunk is a permutation of what it was, cut into clusters whose centroids are their means."""
    chunk = Chunk(head, i)
    assert np.array_equal(np.sort(chunk.order), np.arange(CHUNK_ROWS))
    np.testing.assert_array_equal(chunk.stored_keys, before.stored_keys[chunk.order])
    np.testing.assert_array_equal(chunk.stored_values, before.stored_values[chunk.order])
    assert (chunk.starts[0], chunk.starts[-1]) == (first, CHUNK_ROWS)
    assert (np.diff(chunk.starts) >= 0).all()
    assert np.array_equal(chunk.order[:first], np.arange(first))
    for own, centroid in zip(chunk.clusters(), chunk.centroids, strict=True):
        assert (np.diff(chunk.order[own].astype(int)) > 0).all(), "rows of a cluster stay in order"
        with np.errstate(invalid="ignore", over="ignore"):
            mean = chunk.keys[own].mean(axis=0) if len(own) else np.zeros(head.shape.head_dim)
        np.testing.assert_allclose(centroid, mean.astype(np.float16), rtol=2e-3, atol=1e-3)
    return chunk


def clustered_head(rng, shape, n_tail, keys=None, **fields):
    """A head, its chunks as they were, and the chunks clustered."""
    keys = normal(rng, n_tail, shape.head_dim) if keys is None else keys
    head = squeezed_head(shape, keys, normal(rng, n_tail, shape.head_dim), **fields)
    before = [Chunk(head, i) for i in range(len(head.chunks))]
    cluster(head)
    return head, before


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_are_sorted_by_clusters_as_good_as_those_of_a_naive_k_means(shape):
    rng = np.random.default_rng(1)
    around = normal(rng, 9, shape.head_dim, spread=2)[rng.integers(0, 9, ONE_CHUNK)]
    keys = (around + normal(rng, ONE_CHUNK, shape.head_dim)) * rng.uniform(0.1, 9, (ONE_CHUNK, 1))
    head, before = clustered_head(rng, shape, ONE_CHUNK, keys)
    assert head.state["n_clustered_chunks"] == 1
    chunk = assert_valid(head, 0, before[0], SINKS)
    rows = directions(before[0].keys[SINKS:])
    naive = inertia(rows, naive_clusters(rows))
    assert inertia(directions(chunk.keys), chunk.clusters()) <= naive * 1.02  # rounding may part their ways


@pytest.mark.parametrize("shape", EACH)
def test_planted_clusters_are_found(shape):
    rng = np.random.default_rng(2)
    planted = np.arange(ONE_CHUNK) * CHUNK_CLUSTERS // (CHUNK_ROWS - SINKS) % CHUNK_CLUSTERS
    keys = 9 * np.eye(CHUNK_CLUSTERS, shape.head_dim)[planted] + normal(rng, ONE_CHUNK, shape.head_dim, spread=0.1)
    head, _ = clustered_head(rng, shape, ONE_CHUNK, keys)
    chunk = Chunk(head, 0)
    for own in chunk.clusters():
        assert len(set(planted[chunk.order[own]])) == 1


@pytest.mark.parametrize("shape", EACH)
def test_a_chunk_is_clustered_once_it_is_full_and_no_longer_recent(shape):
    rng = np.random.default_rng(3)
    n_tail = 3 * CHUNK_ROWS + RECENT
    head = squeezed_head(shape, normal(rng, n_tail, shape.head_dim))
    before = [Chunk(head, i) for i in range(len(head.chunks))]
    for n_rows in range(1, n_tail + 1):
        head.set(n_tail=n_rows)
        cluster(head)
        assert head.state["n_clustered_chunks"] == max(0, n_rows - RECENT) // CHUNK_ROWS
        assert head.record["n_tail"] == n_rows
    for i in range(3):
        assert_valid(head, i, before[i], SINKS if i == 0 else 0)
    assert np.array_equal(Chunk(head, 3).stored_keys, before[3].stored_keys)


def test_many_chunks_at_once_are_clustered_as_one_by_one():
    rng = np.random.default_rng(4)
    n_tail = 3 * CHUNK_ROWS + RECENT
    keys = normal(rng, n_tail, 64)
    once, slowly = squeezed_head(SHAPE, keys), squeezed_head(SHAPE, keys)
    cluster(once)
    for n_rows in range(0, n_tail + 1, 64):
        slowly.set(n_tail=n_rows)
        cluster(slowly)
    for one, other in zip(once.chunks[:3], slowly.chunks[:3], strict=True):
        assert np.array_equal(one.bytes, other.bytes)


def test_after_a_document_no_row_of_the_tail_is_a_sink():
    rng = np.random.default_rng(5)
    head = squeezed_head(SHAPE, normal(rng, 10 + ONE_CHUNK, 64), n_document=10)
    before = Chunk(head, 0)
    cluster(head)
    assert_valid(head, 0, before, 0)


@pytest.mark.parametrize("shape", EACH)
@pytest.mark.parametrize("kind", ["zeros", "equal", "few", "tiny", "tiniest", "huge", "one NaN", "one inf", "all NaN"])
def test_hostile_keys(shape, kind):
    rng = np.random.default_rng(6)
    keys = normal(rng, ONE_CHUNK, 64)
    if kind == "zeros":
        keys[:] = 0
    elif kind == "equal":
        keys[:] = keys[0]
    elif kind == "few":
        keys = keys[np.arange(ONE_CHUNK) % 5]
    elif kind in ("tiny", "tiniest", "huge"):
        keys *= {"tiny": 1e-7, "tiniest": 1e-23, "huge": 1e4}[kind]  # squares of the tiniest are denormal
    elif kind == "all NaN":
        keys[:] = np.nan
    else:
        keys[77, 5] = np.nan if kind == "one NaN" else np.inf
    head, before = clustered_head(rng, shape, ONE_CHUNK, keys)
    chunk = assert_valid(head, 0, before[0], SINKS)
    sizes = np.diff(chunk.starts)
    if kind in ("zeros", "equal", "all NaN"):
        assert sizes.max() == CHUNK_ROWS - SINKS
    if kind == "few":
        assert (sizes > 0).sum() == 5
        assert inertia(directions(chunk.keys), chunk.clusters()) < 1e-4
    if kind in ("one NaN", "one inf"):
        assert (~np.isfinite(chunk.centroids).all(axis=1)).sum() == 1, "it shows in its own cluster only"
        assert (sizes > 0).sum() > 1


def test_the_scratch_is_left_alone():
    """It may be smaller than what clustering works in."""
    rng = np.random.default_rng(7)
    head, _ = clustered_head(rng, Shape(64, 1), ONE_CHUNK, n_items=16)
    assert (head.scratch.bytes == 0xFF).all()
