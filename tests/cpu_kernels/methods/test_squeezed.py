"""Centroid lookup, on one level and on two: which clusters are selected, and what that counts as read.

In most tests no chunk of the tail is clustered; later ones are about those that are. Thresholds are given in most
tests; the last ones are about those that a step finds.
"""

import numpy as np
import pytest
from helpers import oracle, papers
from helpers.clustered_heads import Clustered, best, between, kept_clusters
from helpers.kernel_heads import queries_of
from helpers.kernel_inputs import EACH, QUANTISED, SHAPE, THREADS, shapes
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.cpu_kernels.layout.head import ANY_ORDER
from octavo.cpu_kernels.layout.scores import COARSE_KEPT, ITEMS_STEP, padded
from octavo.cpu_kernels.methods.squeezed import score_clusters, select_clusters
from octavo.cpu_kernels.methods.squeezed2 import score_coarse_clusters, select_clusters_of_clusters
from octavo.cpu_kernels.numba_support.shape import F16, Q8_0, Shape
from octavo.cpu_kernels.rows.tiles import CHUNK_ROWS
from octavo.cpu_kernels.select.cluster_items import BATCH_MEAN, BATCH_UNION, BY_HEAD, LOOKUP_APART
from octavo.cpu_kernels.select.tail_clusters import CHUNK_CLUSTERS, RECENT, SINKS

SHAPES = shapes([(64, 3, F16), (72, 1, F16), (8, 16, Q8_0), (64, 3, Q8_0)], groups=(1, 2, 4, 8, 16))
SIZES = [5, 1, 0, 30, 12, 2, 0, 9, 1, 17, 3, 0]
COARSE = [2, 0, 4, 1, 5]
ONE, TWO = (score_clusters, select_clusters), (score_coarse_clusters, select_clusters_of_clusters)


# One level.


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("softcap", [0.0, 2.0])
def test_importance_is_that_of_the_paper(shape, softcap):
    rng = np.random.default_rng(3)
    head = Clustered(rng, shape, SIZES, 4, softcap=softcap)
    queries = queries_of(rng, shape)
    head.selected(ONE, queries)
    expected = oracle.centroid_importance(queries, head.centroids, head.sizes, softcap)
    np.testing.assert_allclose(head.importance() * head.sizes, expected * head.sizes, rtol=1e-4)
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
    head = Clustered(rng, shape, sizes, n_exact, max(n_tail, n_tokens), rules=BATCH_UNION)
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


@pytest.mark.parametrize("shape", EACH)
@pytest.mark.parametrize("kernels", [ONE, TWO], ids=["one level", "two levels"])
@pytest.mark.parametrize("threshold", [1e30, 2.0])
def test_exact_rows_and_the_tail_are_always_selected(shape, kernels, threshold):
    rng = np.random.default_rng(5)
    head = Clustered(rng, shape, [9, 9, 9], 6, 300, coarse=[1, 2], threshold=threshold)
    assert head.selected(kernels, queries_of(rng, shape)) == list(range(27, 33 + 300))


@pytest.mark.parametrize("shape", EACH)
@pytest.mark.parametrize("n_tokens", [1, 3])
@pytest.mark.parametrize("kernels", [ONE, TWO], ids=["one level", "two levels"])
@pytest.mark.parametrize("where", ["query", "centroid"])
def test_a_nan_attends_everything(shape, kernels, where, n_tokens):
    """Where it shows."""
    rng = np.random.default_rng(14)
    thresholds = {"coarse_threshold": -1, "threshold": 1e30}
    head = Clustered(rng, shape, [9, 0, 9, 9], 6, 300, coarse=[1, 3], rules=BATCH_UNION, **thresholds)
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
    rules = BATCH_UNION if n_tokens > 1 else 0
    head = Clustered(rng, shape, SIZES, 4, n_tokens, coarse=COARSE, softcap=softcap, rules=rules)
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
        if n_tokens == 1:
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
    head = Clustered(rng, shape, sizes, n_exact, n_tokens, coarse, rules=BATCH_UNION)
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
    thresholds = {"coarse_threshold": 1e30, "threshold": -1}
    head = Clustered(rng, SHAPE, SIZES, 4, 5, COARSE, rules=BATCH_UNION, **thresholds)
    assert head.selected(TWO, queries_of(rng, SHAPE, n_tokens)) == list(range(sum(SIZES), sum(SIZES) + 4 + 5))
    assert head.record["bytes_read"] == len(COARSE) * 64 * 2


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n_tokens", [1, 3])
def test_all_coarse_clusters_kept_are_one_level(shape, n_tokens):
    rng = np.random.default_rng(13)
    rules = BATCH_UNION if n_tokens > 1 else 0
    head = Clustered(rng, shape, SIZES, 4, n_tokens, COARSE, coarse_threshold=-1, rules=rules)
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
TAILS = [CHUNK_ROWS + RECENT + 3, 2 * CHUNK_ROWS + RECENT - 1, 3 * CHUNK_ROWS + RECENT + 50]
DOCUMENTS = {"no document": ([], []), "a document": (SIZES, COARSE), "17 clusters": ([3] * 17, [9, 8])}


@pytest.mark.parametrize("shape", TAIL_SHAPES)
@pytest.mark.parametrize("n_tokens", [1, 3])
@pytest.mark.parametrize("softcap", [0.0, 2.0])
@pytest.mark.parametrize("document", DOCUMENTS)
def test_clusters_of_the_tail_are_looked_up_with_those_of_the_document(shape, document, n_tokens, softcap):
    rng = np.random.default_rng(20)
    sizes, coarse = DOCUMENTS[document]
    for n_tail in TAILS:
        head = Clustered(rng, shape, sizes, 4 if sizes else 0, n_tail, coarse, softcap=softcap, rules=BATCH_UNION)
        queries = queries_of(rng, shape, n_tokens)
        importance = head.all_importance(queries, softcap=softcap)
        for keep in (0, 1, 7, 20, len(importance)):
            threshold = between(importance, keep)
            head.set(threshold=threshold, bytes_read=0)
            expected = head.expected(importance, threshold)
            assert head.selected(ONE, queries) == expected
            assert head.record["bytes_read"] == len(importance) * shape.head_dim * 2


@pytest.mark.parametrize("shape", TAIL_SHAPES)
@pytest.mark.parametrize("n_tokens", [1, 3])
@pytest.mark.parametrize("document", DOCUMENTS)
@pytest.mark.parametrize("softcap", [0.0, 2.0])
def test_on_two_levels_clusters_of_the_tail_are_on_the_second(shape, document, n_tokens, softcap):
    rng = np.random.default_rng(21)
    sizes, coarse = DOCUMENTS[document]
    for n_tail in TAILS:
        head = Clustered(rng, shape, sizes, 4 if sizes else 0, n_tail, coarse, softcap=softcap, rules=BATCH_UNION)
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


@pytest.mark.parametrize("shape", EACH)
def test_scores_of_the_tail_do_not_depend_on_who_computes_them(shape):
    rng = np.random.default_rng(22)
    head = Clustered(rng, shape, SIZES, 2, 5 * CHUNK_ROWS + RECENT + 1)
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
    head = Clustered(rng, SHAPE, [], 300, TAILS[0], document_position=position, threshold=1e30, rules=BATCH_UNION)
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


@pytest.mark.parametrize("shape", EACH)
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


@pytest.mark.parametrize("rules", [BATCH_MEAN, BY_HEAD | BATCH_UNION, BY_HEAD | BATCH_MEAN])
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
@pytest.mark.parametrize("rules", [BATCH_UNION, BATCH_MEAN])
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
        if rules == BATCH_UNION:
            each = [papers.importance_of(token * 8, document.centroids, sizes) for token in queries]
            importance = np.max(each, axis=0)
        threshold = between(importance * (sizes > 0), keep)
        tail.set(threshold=threshold)
        document.set(threshold=threshold)
        first = tail.first_ordered
        in_tail = [row for row in tail.selected(kernels, queries) if SINKS <= row < first]
        in_document = [row for row in document.selected(kernels, queries) if row < sizes.sum()]
        assert len(in_tail) == len(in_document) == sizes[importance > threshold].sum()


# Batches that select nothing, and chunks that are not due.


@pytest.mark.parametrize("shape", EACH)
@pytest.mark.parametrize("kernels", [ONE, TWO], ids=["one level", "two levels"])
@pytest.mark.parametrize("n_bytes", [-1, 0])
def test_a_batch_attends_to_everything_and_looks_nothing_up(shape, kernels, n_bytes):
    rng = np.random.default_rng(30)
    head = Clustered(rng, shape, SIZES, 4, TAILS[1], COARSE, threshold=1e30, n_bytes=n_bytes)
    spans = head.select(kernels[1], queries_of(rng, shape, 3), head.most)
    assert head.rows(spans) == list(range(head.n_document + head.n_tail))
    assert head.record["bytes_read"] == 0


@pytest.mark.parametrize("shape", EACH)
@pytest.mark.parametrize("kernels", [ONE, TWO], ids=["one level", "two levels"])
@pytest.mark.parametrize("rules", [0, BY_HEAD])
def test_a_clustered_chunk_that_is_not_due_is_attended(shape, kernels, rules):
    """After a cut: it counts as clustered when it would in a sequence that was read to there."""
    if kernels is TWO and rules:
        pytest.skip("query heads of two levels select together")
    rng, short = np.random.default_rng(31), 2 * CHUNK_ROWS + RECENT
    queries = queries_of(rng, shape)
    head = Clustered(rng, shape, SIZES, 4, short + 40, COARSE, n_bytes=0, rules=rules)
    head.set(n_tail=short)  # the second chunk is due after this step
    rows = head.score_and_select(*kernels, queries, head.most)
    assert head.n_clustered == 2
    assert set(range(head.n_document + CHUNK_ROWS, head.n_document + short)) <= set(head.rows(rows))
    n_read = head.record["bytes_read"][0]
    head.set(n_clustered_chunks=1, bytes_read=0)
    again = head.score_and_select(*kernels, queries, head.most)
    assert sorted(head.rows(again)) == sorted(head.rows(rows))
    assert head.record["bytes_read"][0] == n_read
    head.set(n_tail=short + 1, n_clustered_chunks=2, bytes_read=0)
    head.score_and_select(*kernels, queries, head.most)
    assert head.record["bytes_read"][0] == n_read + CHUNK_CLUSTERS * shape.head_dim * 2


# Thresholds that a step finds.


class Budgeted(Clustered):
    """A head with a document and a tail of two clustered chunks, which selects by a number of bytes."""

    def __init__(self, rng, shape, document="a document", **fields):
        sizes, coarse = DOCUMENTS[document]
        super().__init__(rng, shape, sizes, 4 if sizes else 0, TAILS[2], coarse, n_bytes=0, **fields)
        self.all_sizes = np.concatenate([self.sizes, np.diff(self.tail_starts()).ravel()]).astype(int)

    def wants(self, n_rows, n_lookup):
        """Set the bytes with which a step that looks up so many centroids should select so many rows of clusters."""
        n_exact = self.n_document + self.n_tail - self.all_sizes.sum()
        self.set(n_bytes=2 * self.shape.row_bytes * (n_exact + n_rows) + n_lookup * self.shape.head_dim * 2)
        self.set(bytes_read=0)

    def chosen_rows(self, chosen):
        """Rows of clusters, and all that are in none."""
        return self.expected(chosen.astype(float), 0.5)


@pytest.mark.parametrize("shape", TAIL_SHAPES)
@pytest.mark.parametrize("document", DOCUMENTS)
@pytest.mark.parametrize("rules", [0, LOOKUP_APART, BATCH_UNION, BATCH_MEAN])
def test_a_step_selects_the_best_clusters_that_fill_its_budget(shape, document, rules):
    rng = np.random.default_rng(40)
    head = Budgeted(rng, shape, document, rules=rules)
    for n_rows in (-50, 0, 3, 40, 200, 470, 5000):
        queries = queries_of(rng, shape)
        head.wants(n_rows, 0 if rules == LOOKUP_APART else len(head.all_sizes))
        chosen = best(head.all_importance(queries), head.all_sizes, n_rows)
        assert head.selected(ONE, queries) == head.chosen_rows(chosen), n_rows
        assert head.record["bytes_read"] == len(head.all_sizes) * shape.head_dim * 2
        if 0 <= n_rows <= head.all_sizes.sum():
            assert abs(head.all_sizes[chosen].sum() - n_rows) <= head.all_sizes.max() / 2


@pytest.mark.parametrize("shape", TAIL_SHAPES)
@pytest.mark.parametrize("document", DOCUMENTS)
def test_two_levels_keep_half_and_then_fill_the_budget(shape, document):
    rng = np.random.default_rng(41)
    head = Budgeted(rng, shape, document)
    of_coarse = np.diff(head.starts[head.coarse_starts])
    for n_rows in (-50, 0, 40, 200, 5000):
        queries, kept = queries_of(rng, shape), np.zeros(0, bool)
        if len(of_coarse):
            among_coarse = oracle.centroid_importance(queries, head.coarse_centroids, of_coarse)
            coarse = best(np.where(of_coarse > 0, among_coarse, 0), of_coarse, COARSE_KEPT * of_coarse.sum())
            kept = np.repeat(coarse, np.diff(head.coarse_starts))
        # Which coarse clusters without rows are kept makes no difference but to the lookup.
        sizes = head.all_sizes * np.concatenate([kept, np.ones(len(head.all_sizes) - len(kept), bool)])
        n_lookup = len(of_coarse) + kept.sum() + CHUNK_CLUSTERS * head.n_clustered
        head.wants(n_rows, n_lookup)
        chosen = best(head.all_importance(queries, kept), sizes, n_rows) & (sizes > 0)
        assert head.selected(TWO, queries) == head.chosen_rows(chosen), n_rows
        assert head.record["bytes_read"] == n_lookup * shape.head_dim * 2


@pytest.mark.parametrize("kernels", [ONE, TWO], ids=["one level", "two levels"])
def test_clusters_get_their_least_share_whatever_the_rest_takes(kernels):
    rng = np.random.default_rng(42)
    head = Budgeted(rng, SHAPE, "no document", least_share=0.25)
    queries = queries_of(rng, SHAPE)
    for n_bytes in (0, 100):
        head.set(n_bytes=n_bytes)
        chosen = best(head.all_importance(queries), head.all_sizes, 0.25 * head.all_sizes.sum())
        assert head.selected(kernels, queries) == head.chosen_rows(chosen)


@pytest.mark.parametrize("shape", TAIL_SHAPES)
@pytest.mark.parametrize("document", DOCUMENTS)
def test_what_query_heads_select_for_themselves_fills_the_budget_together(shape, document):
    rng = np.random.default_rng(43)
    head = Budgeted(rng, shape, document, rules=BY_HEAD)
    for n_rows in (0, 40, 200, 5000):
        queries = queries_of(rng, shape)
        head.wants(n_rows, len(head.all_sizes))
        own = np.array([head.all_importance(queries[:, g : g + 1]) for g in range(shape.group)])
        chosen = best(own.max(axis=0), head.all_sizes, n_rows)
        assert sorted(head.selected(ONE, queries)) == sorted(head.chosen_rows(chosen))
        largest = own.max(axis=0)
        surely, least = own > largest[chosen].min(initial=np.inf) * 1.001, largest[~chosen].max(initial=-1)
        for g in range(shape.group):
            of_head = set(head.rows([span for span in head.spans if span["heads"] == 0 or span["heads"] >> g & 1]))
            assert set(head.chosen_rows(surely[g])) <= of_head <= set(head.chosen_rows(own[g] > least * 0.999))


@pytest.mark.parametrize("shape", EACH)
@pytest.mark.parametrize("kernels", [ONE, TWO], ids=["one level", "two levels"])
@pytest.mark.parametrize("rules", [BATCH_UNION, BATCH_UNION | BY_HEAD])
def test_a_union_is_what_the_tokens_select_alone(shape, kernels, rules):
    if kernels is TWO and rules & BY_HEAD:
        pytest.skip("query heads of two levels select together")
    rng = np.random.default_rng(44)
    head = Budgeted(rng, shape, "no document" if kernels is TWO else "a document", rules=rules)
    queries = queries_of(rng, shape, 3)
    head.wants(100, len(head.all_sizes))
    alone = [head.selected(kernels, queries[i : i + 1]) for i in range(3)]
    assert sorted(head.selected(kernels, queries)) == sorted(set().union(*alone))
    assert len({tuple(rows) for rows in alone}) > 1


@pytest.mark.parametrize("shape", EACH)
@pytest.mark.parametrize("rules", [BATCH_MEAN, BATCH_MEAN | BY_HEAD])
def test_a_mean_fills_the_budget_once(shape, rules):
    rng = np.random.default_rng(45)
    head = Budgeted(rng, shape, rules=rules)
    queries = queries_of(rng, shape, 3)
    if rules & BY_HEAD:
        own = [[head.all_importance(queries[i : i + 1, g : g + 1]) for i in range(3)] for g in range(shape.group)]
        importance = np.mean(own, axis=1).max(axis=0)
    else:
        importance = np.mean([head.all_importance(queries[i : i + 1]) for i in range(3)], axis=0)
    for n_rows in (0, 40, 200):
        head.wants(n_rows, len(head.all_sizes))
        chosen = best(importance, head.all_sizes, n_rows)
        assert head.selected(ONE, queries) == head.chosen_rows(chosen)


@pytest.mark.parametrize("shape", EACH)
@pytest.mark.parametrize("kernels", [ONE, TWO], ids=["one level", "two levels"])
def test_a_nan_attends_everything_by_a_budget(shape, kernels):
    rng = np.random.default_rng(46)
    head = Budgeted(rng, shape)
    queries = queries_of(rng, shape)
    queries[0, 1, 5] = np.nan
    assert head.selected(kernels, queries) == list(range(head.n_document + head.n_tail))
