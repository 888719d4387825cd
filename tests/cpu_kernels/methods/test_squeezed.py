"""Centroid lookup, on one level and on two: which clusters are selected, and what that counts as read.

In most tests no chunk of the tail is clustered; the last ones are about those that are.
"""

import numpy as np
import pytest
from helpers import oracle, papers
from helpers.clustered_heads import Clustered, between, kept_clusters
from helpers.kernel_heads import queries_of
from helpers.kernel_inputs import BOTH, QUANTISED, SHAPE, THREADS, shapes
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.cpu_kernels.compile import F16, Q8_0, Shape
from octavo.cpu_kernels.head import ANY_ORDER, CHUNK_ROWS
from octavo.cpu_kernels.methods.squeezed import BATCH_MEAN, BY_HEAD, score_clusters, select_clusters
from octavo.cpu_kernels.methods.squeezed2 import score_coarse_clusters, select_clusters_of_clusters
from octavo.cpu_kernels.scores import ITEMS_STEP, padded
from octavo.cpu_kernels.tail_clusters import CHUNK_CLUSTERS, RECENT, SINKS

SHAPES = shapes([(64, 3, F16), (72, 1, F16), (8, 16, Q8_0), (64, 3, Q8_0)], groups=(1, 2, 4, 8, 16))
SIZES = [5, 1, 0, 30, 12, 2, 0, 9, 1, 17, 3, 0]
COARSE = [2, 0, 4, 1, 5]
ONE, TWO = (score_clusters, select_clusters), (score_coarse_clusters, select_clusters_of_clusters)


# One level.


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n_tokens", [1, 7])
@pytest.mark.parametrize("softcap", [0.0, 2.0])
def test_importance_is_that_of_the_paper(shape, n_tokens, softcap):
    rng = np.random.default_rng(3)
    head = Clustered(rng, shape, SIZES, 4, n_tokens, softcap=softcap)
    queries = queries_of(rng, shape, n_tokens)
    head.selected(ONE, queries)
    expected = oracle.centroid_importance(queries, head.centroids, head.sizes, softcap)
    np.testing.assert_allclose(head.importance() * head.sizes, expected * head.sizes, rtol=1e-4)
    if n_tokens == 1:
        assert (expected * head.sizes).sum() == pytest.approx(1)


@settings(max_examples=100, deadline=None)
@given(
    shape=st.sampled_from([SHAPE, QUANTISED, Shape(72, 1)]),
    sizes=st.lists(st.sampled_from([0, 0, 1, 2, 3, 20]), min_size=1, max_size=40),
    n_exact=st.integers(0, 9),
    n_tail=st.integers(1, CHUNK_ROWS + RECENT - 1),
    n_tokens=st.sampled_from([1, 1, 3]),
    keep=st.integers(0, 40),
    seed=st.integers(0, 2**32 - 1),
)
def test_clusters_above_the_threshold_are_selected(shape, sizes, n_exact, n_tail, n_tokens, keep, seed):
    rng = np.random.default_rng(seed)
    head = Clustered(rng, shape, sizes, n_exact, max(n_tail, n_tokens))
    queries = queries_of(rng, shape, n_tokens)
    if sum(sizes) == 0:  # importance is a share of nothing
        assert head.selected(ONE, queries) == list(range(n_exact + head.n_tail))
        return
    importance = oracle.centroid_importance(queries, head.centroids, head.sizes)
    threshold = between(importance, keep)
    head.set(threshold=threshold)
    expected = head.expected(importance, threshold)
    assert head.selected(ONE, queries) == expected
    of_document = np.array(expected)[: -head.n_tail]
    runs = np.count_nonzero(np.diff(of_document, prepend=-2) > 1)
    assert len(head.spans) == runs + -(-head.n_tail // CHUNK_ROWS), "neighbours are one span"


@pytest.mark.parametrize("shape", BOTH)
@pytest.mark.parametrize("kernels", [ONE, TWO], ids=["one level", "two levels"])
@pytest.mark.parametrize("threshold", [1e30, 2.0])
def test_exact_rows_and_the_tail_are_always_selected(shape, kernels, threshold):
    rng = np.random.default_rng(5)
    head = Clustered(rng, shape, [9, 9, 9], 6, 300, coarse=[1, 2], threshold=threshold)
    assert head.selected(kernels, queries_of(rng, shape)) == list(range(27, 33 + 300))


@pytest.mark.parametrize("shape", BOTH)
@pytest.mark.parametrize("n_tokens", [1, 3])
@pytest.mark.parametrize("kernels", [ONE, TWO], ids=["one level", "two levels"])
@pytest.mark.parametrize("where", ["query", "centroid"])
def test_a_nan_attends_everything(shape, kernels, where, n_tokens):
    """Where it shows."""
    rng = np.random.default_rng(14)
    head = Clustered(rng, shape, [9, 0, 9, 9], 6, 300, coarse=[1, 3], coarse_threshold=-1, threshold=1e30)
    queries = queries_of(rng, shape, n_tokens)
    if where == "query":
        queries[n_tokens // 2, 1, 5] = np.nan  # of three tokens, one before it and one after it have numbers
    else:
        head.centroids[2, 3] = np.nan
    assert head.selected(kernels, queries) == list(range(33 + 300))


def test_a_coarse_centroid_of_nan_keeps_all_coarse_clusters():
    rng = np.random.default_rng(15)
    head = Clustered(rng, SHAPE, SIZES, 4, 5, COARSE, coarse_threshold=1e30)
    queries = queries_of(rng, SHAPE)
    head.coarse_centroids[2, 3] = np.nan
    for keep in range(len(SIZES)):
        head.set(threshold=between(oracle.centroid_importance(queries, head.centroids, head.sizes), keep))
        assert head.selected(TWO, queries) == head.selected(ONE, queries)


@pytest.mark.parametrize("spread", [0.3, 30.0])
def test_a_threshold_of_almost_nothing_selects_all_that_gets_anything(spread):
    rng = np.random.default_rng(6)
    head = Clustered(rng, SHAPE, [3, 0, 200, 0, 0, 1, 40], 5, 2, threshold=-1)
    assert head.selected(ONE, queries_of(rng, SHAPE, 1, spread)) == list(range(251))


@pytest.mark.parametrize("kernels", [ONE, TWO], ids=["one level", "two levels"])
def test_an_empty_cluster_takes_no_part_however_low_the_others_score(kernels):
    """Its centroid is 0, so it scores 0: far above scores that are all below -87, where exp gives 0."""
    rng, shape = np.random.default_rng(7), Shape(72, 1)
    head = Clustered(rng, shape, [4, 0, 8], 2, coarse=[1, 1, 1])
    queries = np.zeros((1, 1, 72), np.float32)
    queries[..., 0] = 1
    head.centroids[[0, 2], 0] = head.coarse_centroids[[0, 2], 0] = [-150, -151]
    assert head.selected(kernels, queries) == list(range(15))
    expected = oracle.centroid_importance(queries, head.centroids, head.sizes)
    importance = head.importance()[[0, 2] if kernels is ONE else [0, 1]]  # of those that were kept
    np.testing.assert_allclose(importance, expected[[0, 2]], rtol=1e-4)


@pytest.mark.parametrize("kernels", [ONE, TWO], ids=["one level", "two levels"])
@pytest.mark.parametrize(
    ("scores", "rows"), [([1e4, -1e4, 0], range(4)), ([-1e4, -1e4, -9992], range(8, 12)), ([5, 5, 5], ())], ids=str
)
def test_hostile_centroid_scores_select_the_best_cluster(kernels, scores, rows):
    head = Clustered(np.random.default_rng(8), Shape(72, 1), [4, 4, 4], coarse=[1, 1, 1], threshold=0.2)
    queries = np.zeros((1, 1, 72), np.float32)
    queries[..., 0] = 1
    head.centroids[:, 0] = head.coarse_centroids[:, 0] = scores
    assert head.selected(kernels, queries) == [*rows, 12]


def test_lookup_counts_the_centroids_that_it_reads():
    rng = np.random.default_rng(9)
    head = Clustered(rng, SHAPE, [3, 0, 5], 2)
    for times in (1, 2):
        head.selected(ONE, queries_of(rng, SHAPE))
        assert head.record["bytes_read"] == times * 3 * 64 * 2


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kernel", [score_clusters, score_coarse_clusters])
def test_scores_do_not_depend_on_who_computes_them(shape, kernel):
    rng = np.random.default_rng(10)
    sizes = rng.integers(0, 3, 75)
    head = Clustered(rng, shape, sizes, 2, coarse=np.ones(75, int))
    query = queries_of(rng, shape)[0]
    centroids = head.centroids if kernel is score_clusters else head.coarse_centroids
    scores = [head.score(kernel, query, n_parts)[:, :75].copy() for n_parts in THREADS]
    lengths = np.linalg.norm(query, axis=1)[:, None] * np.linalg.norm(centroids.astype(np.float64), axis=1)
    assert (np.abs(scores[0] - query.astype(np.float64) @ centroids.T) <= 1e-6 * lengths).all()
    for others in scores[1:]:
        np.testing.assert_array_equal(others, scores[0])


# Two levels.


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n_tokens", [1, 3])
@pytest.mark.parametrize("softcap", [0.0, 2.0])
def test_two_levels_are_those_of_the_paper(shape, n_tokens, softcap):
    rng = np.random.default_rng(11)
    head = Clustered(rng, shape, SIZES, 4, n_tokens, coarse=COARSE, softcap=softcap)
    queries = queries_of(rng, shape, n_tokens)
    of_coarse = np.diff(head.starts[head.coarse_starts])
    coarse = oracle.centroid_importance(queries, head.coarse_centroids, of_coarse, softcap)
    for keep in (1, 2, 4):
        least = between(coarse, keep)
        levels = (head.coarse_centroids, head.coarse_starts, least, head.centroids, head.starts, softcap)
        importance = oracle.two_level_importance(queries, *levels)
        kept = kept_clusters(head, least, coarse)
        if n_tokens == 1:
            assert (importance * head.sizes).sum() == pytest.approx(1)  # a share of what was kept alone
        threshold = between(importance, 3)
        head.set(coarse_threshold=least, threshold=threshold)
        assert head.selected(TWO, queries) == head.expected(importance, threshold)
        actual = head.scratch.floats(kept.sum()) / shape.group
        np.testing.assert_allclose(actual * head.sizes[kept], (importance * head.sizes)[kept], rtol=1e-4)


@settings(max_examples=100, deadline=None)
@given(
    shape=st.sampled_from([SHAPE, QUANTISED, Shape(72, 1)]),
    coarse=st.lists(st.sampled_from([0, 1, 1, 2, 5, 17]), min_size=1, max_size=9),
    n_exact=st.integers(0, 9),
    n_tokens=st.sampled_from([1, 1, 3]),
    keep_coarse=st.integers(0, 9),
    keep=st.integers(0, 40),
    seed=st.integers(0, 2**32 - 1),
)
def test_clusters_of_kept_coarse_clusters_are_selected(shape, coarse, n_exact, n_tokens, keep_coarse, keep, seed):
    rng = np.random.default_rng(seed)
    sizes = rng.choice([0, 0, 1, 2, 3, 20], sum(coarse))
    head = Clustered(rng, shape, sizes, n_exact, n_tokens, coarse)
    queries = queries_of(rng, shape, n_tokens)
    if sum(sizes) == 0:
        assert head.selected(TWO, queries) == list(range(n_exact + n_tokens))
        return
    of_coarse = np.diff(head.starts[head.coarse_starts])
    importance = oracle.centroid_importance(queries, head.coarse_centroids, of_coarse)
    least = between(importance, keep_coarse)
    kept = kept_clusters(head, least, importance)
    levels = (head.coarse_centroids, head.coarse_starts, least, head.centroids, head.starts)
    fine = oracle.two_level_importance(queries, *levels)
    threshold = between(fine, keep)
    head.set(coarse_threshold=least, threshold=threshold)
    assert head.selected(TWO, queries) == head.expected(fine, threshold)
    assert head.record["bytes_read"] == (len(coarse) + kept.sum()) * shape.head_dim * 2


@pytest.mark.parametrize("n_tokens", [1, 3])
def test_of_no_kept_coarse_cluster_nothing_is_selected(n_tokens):
    rng = np.random.default_rng(12)
    head = Clustered(rng, SHAPE, SIZES, 4, 5, COARSE, coarse_threshold=1e30, threshold=-1)
    assert head.selected(TWO, queries_of(rng, SHAPE, n_tokens)) == list(range(sum(SIZES), sum(SIZES) + 4 + 5))
    assert head.record["bytes_read"] == len(COARSE) * 64 * 2


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n_tokens", [1, 3])
def test_all_coarse_clusters_kept_are_one_level(shape, n_tokens):
    rng = np.random.default_rng(13)
    head = Clustered(rng, shape, SIZES, 4, n_tokens, COARSE, coarse_threshold=-1)
    queries = queries_of(rng, shape, n_tokens)
    importance = oracle.centroid_importance(queries, head.centroids, head.sizes)
    for keep in range(len(SIZES)):
        head.set(threshold=between(importance, keep))
        one = head.selected(ONE, queries)
        from_one = head.importance()
        assert head.selected(TWO, queries) == one
        np.testing.assert_allclose(head.importance(), from_one, rtol=1e-5)


# Clusters of the tail.

TAIL_SHAPES = shapes([(64, 1, F16), (64, 3, F16), (72, 4, Q8_0), (8, 8, F16)], groups=(1, 3, 4, 8))
TAILS = [CHUNK_ROWS + RECENT, 2 * CHUNK_ROWS + RECENT - 1, 3 * CHUNK_ROWS + RECENT + 50]
DOCUMENTS = {"no document": ([], []), "a document": (SIZES, COARSE), "17 clusters": ([3] * 17, [9, 8])}


@pytest.mark.parametrize("shape", TAIL_SHAPES)
@pytest.mark.parametrize("n_tokens", [1, 3])
@pytest.mark.parametrize("softcap", [0.0, 2.0])
@pytest.mark.parametrize("document", DOCUMENTS)
def test_clusters_of_the_tail_are_looked_up_with_those_of_the_document(shape, document, n_tokens, softcap):
    rng = np.random.default_rng(20)
    sizes, coarse = DOCUMENTS[document]
    for n_tail in TAILS:
        head = Clustered(rng, shape, sizes, 4 if sizes else 0, n_tail, coarse, softcap=softcap)
        queries = queries_of(rng, shape, n_tokens)
        importance = head.all_importance(queries, softcap=softcap)
        for keep in (0, 1, 7, 20, len(importance)):
            threshold = between(importance, keep)
            head.set(threshold=threshold, bytes_read=0)
            expected = head.expected(importance, threshold)
            assert head.selected(ONE, queries) == expected
            assert head.record["bytes_read"] == len(importance) * shape.head_dim * 2
            own = importance[len(sizes) :] > threshold
            n_selected = np.diff(head.tail_starts()).ravel()[own].sum() if n_tokens == 1 else -1
            assert head.state["n_tail_selected"] == n_selected


@pytest.mark.parametrize("shape", TAIL_SHAPES)
@pytest.mark.parametrize("n_tokens", [1, 3])
@pytest.mark.parametrize("document", DOCUMENTS)
@pytest.mark.parametrize("softcap", [0.0, 2.0])
def test_on_two_levels_clusters_of_the_tail_are_on_the_second(shape, document, n_tokens, softcap):
    rng = np.random.default_rng(21)
    sizes, coarse = DOCUMENTS[document]
    for n_tail in TAILS:
        head = Clustered(rng, shape, sizes, 4 if sizes else 0, n_tail, coarse, softcap=softcap)
        queries = queries_of(rng, shape, n_tokens)
        of_coarse = np.diff(head.starts[head.coarse_starts])
        least, kept = 1.0, np.zeros(0, bool)
        for keep_coarse in (0, 1, len(coarse)):
            if coarse:
                among_coarse = oracle.centroid_importance(queries, head.coarse_centroids, of_coarse, softcap)
                least = between(among_coarse, keep_coarse)
                kept = kept_clusters(head, least, among_coarse)
            importance = head.all_importance(queries, kept, softcap)
            for keep in (1, 9, 30):
                threshold = between(importance, keep)
                head.set(coarse_threshold=least, threshold=threshold, bytes_read=0)
                assert head.selected(TWO, queries) == head.expected(importance, threshold)
                n_read = len(coarse) + kept.sum() + CHUNK_CLUSTERS * head.n_clustered
                assert head.record["bytes_read"] == n_read * shape.head_dim * 2


@pytest.mark.parametrize("shape", BOTH)
def test_scores_of_the_tail_do_not_depend_on_who_computes_them(shape):
    rng = np.random.default_rng(22)
    head = Clustered(rng, shape, SIZES, 2, 5 * CHUNK_ROWS + RECENT)
    query = queries_of(rng, shape)[0]
    items = np.arange(head.n_clustered)[:, None] * ITEMS_STEP + padded(len(SIZES)) + np.arange(CHUNK_CLUSTERS)
    scores = [head.score(score_clusters, query, n_parts)[:, items].copy() for n_parts in THREADS]
    expected = query.astype(np.float64) @ head.tail_centroids().astype(np.float64).T
    np.testing.assert_allclose(scores[0].reshape(expected.shape), expected, rtol=1e-4, atol=1e-4)
    for others in scores[1:]:
        np.testing.assert_array_equal(others, scores[0])


@pytest.mark.parametrize("kernels", [ONE, TWO], ids=["one level", "two levels"])
@pytest.mark.parametrize("position", [ANY_ORDER, 0])
def test_a_document_without_clusters_is_attended_with_the_tail(kernels, position):
    """Its rows are older than any batch, wherever they stand."""
    rng = np.random.default_rng(23)
    head = Clustered(rng, SHAPE, [], 300, TAILS[0], document_position=position, threshold=1e30)
    rows = head.selected(kernels, queries_of(rng, SHAPE, 2))
    assert rows == [*range(300), *range(300 + CHUNK_ROWS, 300 + TAILS[0])]


@pytest.mark.parametrize("kernels", [ONE, TWO], ids=["one level", "two levels"])
def test_sinks_are_attended_and_neighbours_are_one_span(kernels):
    rng = np.random.default_rng(24)
    head = Clustered(rng, SHAPE, [], 0, TAILS[2], threshold=1e30)
    queries = queries_of(rng, SHAPE)
    assert head.selected(kernels, queries) == [*range(SINKS), *range(3 * CHUNK_ROWS, TAILS[2])]
    head.set(threshold=-1)
    assert head.selected(kernels, queries) == list(range(TAILS[2]))
    assert len(head.spans) == 4


@pytest.mark.parametrize("shape", BOTH)
@pytest.mark.parametrize("kernels", [ONE, TWO], ids=["one level", "two levels"])
def test_a_nan_in_a_centroid_of_the_tail_attends_everything(shape, kernels):
    rng = np.random.default_rng(25)
    head = Clustered(rng, shape, [9, 0, 9], 6, TAILS[0], coarse=[1, 2], coarse_threshold=-1, threshold=1e30)
    head._extras()[0][2 * shape.head_dim :][:2] = 0xFF
    assert head.selected(kernels, queries_of(rng, shape)) == list(range(24 + TAILS[0]))


@pytest.mark.parametrize("shape", TAIL_SHAPES)
@pytest.mark.parametrize("document", DOCUMENTS)
@pytest.mark.parametrize("softcap", [0.0, 2.0])
def test_query_heads_select_for_themselves_of_document_and_tail(shape, document, softcap):
    rng = np.random.default_rng(26)
    sizes, _ = DOCUMENTS[document]
    head = Clustered(rng, shape, sizes, 4 if sizes else 0, TAILS[2], softcap=softcap, rules=BY_HEAD)
    queries = queries_of(rng, shape)
    own = [head.all_importance(queries[:, g : g + 1], softcap=softcap) for g in range(shape.group)]
    for keep in (0, 1, 20):
        threshold = between(np.concatenate(own), keep)
        head.set(threshold=threshold, bytes_read=0)
        rows = head.selected(ONE, queries)
        chosen = [head.expected(importance, threshold) for importance in own]
        assert sorted(rows) == sorted(set().union(*chosen))
        assert head.record["bytes_read"] == len(own[0]) * shape.head_dim * 2
        for g in range(shape.group):
            of_head = head.rows([span for span in head.spans if span["heads"] == 0 or span["heads"] >> g & 1])
            assert sorted(of_head) == sorted(chosen[g])
        own_tail = np.any([each[len(sizes) :] > threshold for each in own], axis=0)
        assert head.state["n_tail_selected"] == np.diff(head.tail_starts()).ravel()[own_tail].sum()


@pytest.mark.parametrize("rules", [BY_HEAD, BATCH_MEAN, BY_HEAD | BATCH_MEAN])
@pytest.mark.parametrize("n_tokens", [1, 3])
@pytest.mark.parametrize("where", ["query", "centroid"])
def test_a_nan_attends_everything_by_every_rule(rules, n_tokens, where):
    rng = np.random.default_rng(27)
    head = Clustered(rng, SHAPE, [9, 0, 9, 9], 6, 300, threshold=1e30, rules=rules)
    queries = queries_of(rng, SHAPE, n_tokens)
    if where == "query":
        queries[n_tokens // 2, 1, 5] = np.nan
    else:
        head.centroids[2, 3] = np.nan
    assert head.selected(ONE, queries) == list(range(33 + 300))


@pytest.mark.parametrize("kernels", [ONE, TWO], ids=["one level", "two levels"])
@pytest.mark.parametrize("rules", [0, BATCH_MEAN])
def test_a_cluster_weighs_as_much_in_the_tail_as_in_the_document(kernels, rules):
    """One rule for the denominator: the tail's clusters are a document's when that is all there is."""
    rng = np.random.default_rng(28)
    tail = Clustered(rng, SHAPE, [], 0, TAILS[1], rules=rules)
    queries = queries_of(rng, SHAPE, 3)
    sizes = np.diff(tail.tail_starts()).ravel()
    document = Clustered(rng, SHAPE, sizes, 4, 5, coarse=[len(sizes)], coarse_threshold=-1, rules=rules)
    document.centroids[:] = tail.tail_centroids()
    for keep in (1, 4, 8):
        importance = papers.importance_of(queries * 8, document.centroids, sizes)
        if rules == 0:
            each = [papers.importance_of(token * 8, document.centroids, sizes) for token in queries]
            importance = np.max(each, axis=0)
        threshold = between(importance * (sizes > 0), keep)
        tail.set(threshold=threshold)
        document.set(threshold=threshold)
        first = tail.first_ordered
        in_tail = [row for row in tail.selected(kernels, queries) if SINKS <= row < first]
        in_document = [row for row in document.selected(kernels, queries) if row < sizes.sum()]
        assert len(in_tail) == len(in_document) == sizes[importance > threshold].sum()
