"""Selectors from queries to output against the papers' algorithms as they are printed, on random and on real keys.

Real ones are of SmolLM2-135M over a novel: see data/save_keys.py.
"""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from helpers import oracle, papers
from helpers.attention_cases import attend_spans
from helpers.kernel_heads import ONE_COPY, Head, queries_of, random_head
from helpers.kernel_inputs import SAME, address, relative_error

from octavo.cpu_kernels.methods import quest, sparq, squeezed2
from octavo.cpu_kernels.methods.quest import PAGE_ROWS, score_pages
from octavo.cpu_kernels.methods.select_top import select_top
from octavo.cpu_kernels.methods.sparq import MEASURED_CHUNKS
from octavo.cpu_kernels.methods.squeezed import (
    BATCH_MEAN,
    BATCH_UNION,
    BY_HEAD,
    EXACT_TAIL,
    cluster_tail,
    score_clusters,
    select_clusters,
)
from octavo.cpu_kernels.methods.squeezed2 import score_coarse_clusters, select_clusters_of_clusters
from octavo.cpu_kernels.numba_support.shape import Shape
from octavo.cpu_kernels.rows.tiles import CHUNK_ROWS
from octavo.cpu_kernels.select.tail_clusters import RECENT

pytestmark = pytest.mark.sampled

SAVED = np.load(Path(__file__).parents[2] / "data" / "smollm2.npz")
N_ROWS, N_QUERIES = 700, 8
SCALE = 8  # the square root of a head's 64: kernels take scaled queries, papers do not
SHAPES = [pytest.param(Shape(64, group), id=f"group {group}") for group in (1, 3, 4, 8)]
KEYS = ["random", "an early layer", "a late layer"]


def inputs(kind, group):
    """Keys and values, (N_ROWS, 64), and queries of some tokens, (N_QUERIES, group, 64).

    Real query heads beyond the KV head's own three are those of its layer's other KV heads.
    """
    if kind == "random":
        rng = np.random.default_rng(0)
        head = random_head(rng, Shape(64, group), 0, N_ROWS)
        return head.keys.astype(np.float16), head.values, queries_of(rng, head.shape, N_QUERIES, 0.1)
    layer = KEYS.index(kind) - 1
    queries = np.ascontiguousarray(SAVED["queries"][layer, :, :group], np.float32)
    return SAVED["keys"][layer], SAVED["values"][layer], queries


def select_and_attend(head, score, select, query, most):
    """The rows that are selected, rising, and their attention: (group, head_dim)."""
    spans = head.score_and_select(score, select, query[None], most)
    out = attend_spans(head.shape, query[None], spans, head.n_document + head.n_tail - 1)[0]
    return np.sort(head.rows(spans)), out


def assert_same(actual, expected):
    assert actual[0].tolist() == expected[0].tolist()
    assert relative_error(actual[1], expected[1]) < 5 * SAME
    assert len(actual[0]) < N_ROWS, "this leaves something out"


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("n_pages", [1, 6, 20])
def test_quest(shape, kind, n_pages):
    keys, values, queries = inputs(kind, shape.group)
    head = Head(shape, keys, values, method=quest, n_selected=n_pages)
    for query in queries:
        actual = select_and_attend(head, score_pages, select_top, query, n_pages)
        assert_same(actual, papers.quest(query * SCALE, keys, values, PAGE_ROWS, n_pages))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("n_pages", [1, 6])
def test_quest_by_query_head(shape, kind, n_pages):
    keys, values, queries = inputs(kind, shape.group)
    head = Head(shape, keys, values, method=quest, n_selected=len(keys), n_own=n_pages)
    for query in queries:
        actual = select_and_attend(head, score_pages, select_top, query, n_pages * shape.group)
        assert_same(actual, papers.quest_by_head(query * SCALE, keys, values, PAGE_ROWS, n_pages))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("n_selected", [20, 90])
@pytest.mark.parametrize("reallocates", [False, True])
@pytest.mark.parametrize(("by_query", "by_coverage"), [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("method", [sparq, ONE_COPY], ids=["two copies", "one copy"])
def test_sparq(shape, kind, n_selected, reallocates, by_query, by_coverage, method):
    """With both rules of our own, each of the paper's in its place, and both of the paper's."""
    keys, values, queries = inputs(kind, shape.group)
    n_components, n_recent = 16, n_selected // 4
    state = {"n_rows": n_selected, "n_components": n_components, "n_recent": n_recent, "reallocates": reallocates}
    head = Head(shape, keys, values, method=method, by_query=by_query, by_coverage=by_coverage, **state)
    spread = oracle.spread(keys, CHUNK_ROWS, MEASURED_CHUNKS)
    rules = None if by_query else spread, None if by_coverage else spread
    for query in queries:
        hooks = method.HOOKS
        actual = select_and_attend(head, hooks.score, hooks.select, query, len(head.chunks))
        hooks.finish(shape, head.address, address(actual[1]), 64 * 4)
        sizes = n_components, n_selected, n_recent
        assert_same(actual, papers.sparq(query * SCALE, keys, values, *sizes, reallocates, *rules))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("reallocates", [False, True])
@pytest.mark.parametrize("method", [sparq, ONE_COPY], ids=["two copies", "one copy"])
def test_sparq_with_query_heads_that_select_apart(shape, kind, reallocates, method):
    """Each has r components and k rows of its own, as the heads of a model without groups."""
    keys, values, queries = inputs(kind, shape.group)
    r, k, n_recent, group = 16, 40, 10, shape.group
    state = {"n_rows": group * k, "n_own": k, "n_components": group * r, "n_own_components": r, "n_recent": n_recent}
    head = Head(shape, keys, values, method=method, by_query=1, by_coverage=1, reallocates=reallocates, **state)
    for query in queries:
        hooks = method.HOOKS
        rows, out = select_and_attend(head, hooks.score, hooks.select, query, N_ROWS)
        hooks.finish(shape, head.address, address(out), 64 * 4)
        alone = [
            papers.sparq(query[g : g + 1] * SCALE, keys, values, r, k, n_recent, reallocates) for g in range(group)
        ]
        expected = np.unique(np.concatenate([own for own, _ in alone])), np.concatenate([out for _, out in alone])
        assert_same((rows, out), expected)


class Clustered:
    """Rows sorted by cluster and coarse cluster, each the rows that are most like a row that was drawn for it.

    At the end lie exact rows, and then those of the tail. Centroids are means, f16.
    """

    def __init__(self, shape, keys, values, n_coarse=6, n_fine=6, n_exact=30, n_tail=20):
        rng, n_clustered = np.random.default_rng(1), N_ROWS - n_exact - n_tail
        order, starts, coarse_starts = [], [0], [0]
        for members in _nearest(rng, keys, np.arange(n_clustered), n_coarse):
            for rows in _nearest(rng, keys, members, n_fine):
                order += rows.tolist()
                starts.append(len(order))
            coarse_starts.append(len(starts) - 1)
        order = np.array([*order, *range(n_clustered, N_ROWS)])
        self.keys, self.values = keys[order], values[order]
        self.starts, self.coarse_starts = np.int32(starts), np.int32(coarse_starts)
        self.centroids = self._means(self.starts)
        self.coarse_centroids = self._means(self.starts[self.coarse_starts])
        self.clusters = [np.arange(a, b) for a, b in pairwise(starts)]
        self.coarse = [np.arange(a, b) for a, b in pairwise(coarse_starts)]
        self.exact = np.arange(n_clustered, N_ROWS)
        self.head = Head(shape, self.keys, self.values, N_ROWS - n_tail, n_items=99, method=squeezed2)
        self.head.set(
            n_bytes=-1,
            n_clusters=len(self.clusters),
            centroids=address(self.centroids),
            cluster_starts=address(self.starts),
            n_coarse=len(self.coarse),
            coarse_centroids=address(self.coarse_centroids),
            coarse_starts=address(self.coarse_starts),
        )

    def coarse_importance(self, queries):
        return papers.importance_of(queries * SCALE, self.coarse_centroids, np.diff(self.starts[self.coarse_starts]))

    def _means(self, starts):
        return np.array([self.keys[a:b].astype(np.float64).mean(axis=0) for a, b in pairwise(starts)], np.float16)


def _nearest(rng, keys, rows, n):
    """These rows in at most n groups, none of them empty."""
    floats = keys[rows].astype(np.float64)
    centers = floats[rng.choice(len(rows), min(n, len(rows)), replace=False)]
    labels = ((floats[:, None] - centers) ** 2).sum(axis=-1).argmin(axis=1)
    return [rows[labels == label] for label in np.unique(labels)]


def between(importance, share):
    """A threshold that about this share of the clusters exceeds, between two that rounding does not exchange."""
    falling = np.sort(importance)[::-1]
    n = max(round(share * len(falling)), 1)
    while n < len(falling) and falling[n] > 0.999 * falling[n - 1]:
        n += 1
    return float(np.float32(np.sqrt(falling[n - 1] * falling[n]))) if n < len(falling) else 0.0


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("share", [0.1, 0.5])
def test_squeezed(shape, kind, share):
    keys, values, queries = inputs(kind, shape.group)
    document = Clustered(shape, keys, values)
    parts = document.exact, document.clusters, document.centroids
    for query in queries:
        sizes = np.diff(document.starts)
        threshold = between(papers.importance_of(query * SCALE, document.centroids, sizes), share)
        document.head.set(threshold=threshold)
        actual = select_and_attend(document.head, score_clusters, select_clusters, query, 99)
        rows = papers.squeezed_rows(query * SCALE, *parts, threshold)
        assert_same(actual, papers.attended(query * SCALE, document.keys, document.values, rows))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("threshold", [0.001, 0.003])
def test_squeezed_on_two_levels(shape, kind, threshold):
    """The fine threshold is the same whatever is kept: an even share of attention is about 0.0025."""
    keys, values, queries = inputs(kind, shape.group)
    document = Clustered(shape, keys, values)
    coarse = document.coarse, document.coarse_centroids
    parts = document.exact, document.clusters, document.centroids
    for query in queries:
        coarse_threshold = between(document.coarse_importance(query), 0.5)
        document.head.set(threshold=threshold, coarse_threshold=coarse_threshold)
        actual = select_and_attend(document.head, score_coarse_clusters, select_clusters_of_clusters, query, 99)
        levels = *parts, threshold, *coarse, coarse_threshold
        rows = papers.squeezed_rows_of_two_levels(query * SCALE, *levels)
        assert_same(actual, papers.attended(query * SCALE, document.keys, document.values, rows))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("n_tokens", [2, N_QUERIES])
def test_squeezed_selects_for_a_batch_by_its_mean(shape, kind, n_tokens):
    keys, values, queries = inputs(kind, shape.group)
    queries = queries[:n_tokens]
    document = Clustered(shape, keys, values)
    document.head.set(rules=BATCH_MEAN)
    coarse = document.coarse, document.coarse_centroids
    parts = document.exact, document.clusters, document.centroids
    importance = papers.importance_of(queries * SCALE, document.centroids, np.diff(document.starts))
    for share in (0.1, 0.5):
        threshold = between(importance, share)
        coarse_threshold = between(document.coarse_importance(queries), 0.5)
        document.head.set(threshold=threshold, coarse_threshold=coarse_threshold)
        rows = np.sort(document.head.rows(document.head.select(select_clusters, queries, 99)))
        assert rows.tolist() == papers.squeezed_rows(queries * SCALE, *parts, threshold).tolist()
        rows = np.sort(document.head.rows(document.head.select(select_clusters_of_clusters, queries, 99)))
        levels = *parts, threshold, *coarse, coarse_threshold
        assert rows.tolist() == papers.squeezed_rows_of_two_levels(queries * SCALE, *levels).tolist()


@pytest.mark.parametrize("rules", [0, EXACT_TAIL])
@pytest.mark.parametrize("select", [select_clusters, select_clusters_of_clusters])
def test_squeezed_attends_to_all_of_an_exact_tail(rules, select):
    """However long it is; and it takes no part in the denominator."""
    shape = Shape(64, 3)
    keys, values, queries = inputs("a late layer", shape.group)
    document = Clustered(shape, keys, values, n_tail=CHUNK_ROWS + RECENT + 1, n_exact=30)
    threshold = between(papers.importance_of(queries[0] * SCALE, document.centroids, np.diff(document.starts)), 0.5)
    document.head.set(rules=rules, threshold=threshold, coarse_threshold=-1)
    cluster_tail(shape, document.head.address, 1)
    score = score_clusters if select is select_clusters else score_coarse_clusters
    rows = document.head.rows(document.head.score_and_select(score, select, queries[:1], 99))
    expected = papers.squeezed_rows(
        queries[0] * SCALE, document.exact, document.clusters, document.centroids, threshold
    )
    assert (sorted(rows) == expected.tolist()) == (rules == EXACT_TAIL)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("share", [0.1, 0.5])
def test_squeezed_selects_for_each_query_head(shape, kind, share):
    """As the paper has it, which has no groups; a row is read once for all query heads that select it."""
    keys, values, queries = inputs(kind, shape.group)
    document = Clustered(shape, keys, values)
    document.head.set(rules=BY_HEAD)
    parts = document.exact, document.clusters, document.centroids
    for query in queries:
        sizes = np.diff(document.starts)
        own = [papers.importance_of(each[None] * SCALE, document.centroids, sizes) for each in query]
        threshold = between(np.concatenate(own), share)
        document.head.set(threshold=threshold)
        rows, output = select_and_attend(document.head, score_clusters, select_clusters, query, 99)
        expected = [
            papers.attended(
                each[None] * SCALE,
                document.keys,
                document.values,
                papers.squeezed_rows(each[None] * SCALE, *parts, threshold),
            )
            for each in query
        ]
        assert rows.tolist() == np.unique(np.concatenate([of_head for of_head, _ in expected])).tolist()
        assert relative_error(output, np.concatenate([out for _, out in expected])) < 5 * SAME


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("rules", [BY_HEAD | BATCH_UNION, BY_HEAD | BATCH_MEAN])
def test_squeezed_selects_for_a_batch_what_any_query_head_selects(shape, rules):
    keys, values, queries = inputs("a late layer", shape.group)
    document = Clustered(shape, keys, values)
    parts = document.exact, document.clusters, document.centroids
    asking = [queries[:, g] for g in range(shape.group)]  # (n_tokens, head_dim), each of one choice by its mean
    if rules & BATCH_UNION:
        asking = [token[None] for of_head in asking for token in of_head]
    sizes = np.diff(document.starts)
    own = [papers.importance_of(each * SCALE, document.centroids, sizes) for each in asking]
    for share in (0.03, 0.2):
        threshold = between(np.concatenate(own), share)
        document.head.set(rules=rules, threshold=threshold)
        rows = np.sort(document.head.rows(document.head.select(select_clusters, queries, 99)))
        expected = [papers.squeezed_rows(each * SCALE, *parts, threshold) for each in asking]
        assert rows.tolist() == np.unique(np.concatenate(expected)).tolist()
