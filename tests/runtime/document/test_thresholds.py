"""Thresholds that are measured in other ways: by the papers' text, and with what they read on average."""

import itertools

import numpy as np
import pytest
from helpers import papers
from helpers.index_builds import thresholds_of
from helpers.kernel_inputs import normal

from octavo.convert.clusters import ClusterSettings, cluster_keys, mean_keys
from octavo.evaluation.synthetic import random_layer
from octavo.runtime.document.cache_layer import CacheLayer
from octavo.runtime.document.index import Calibration
from octavo.runtime.document.thresholds import NodeQueries, one_level_curve, two_level_curve

HEAD_DIM, GROUP, N_TOKENS, N_HEADS = 64, 3, 3000, 4
SETTINGS = ClusterSettings()
SCALE = 8  # the square root of HEAD_DIM: our queries are scaled, papers' are not
LOOKUP = SETTINGS.n_clusters(N_TOKENS) / (2 * N_TOKENS)
GLOBAL = Calibration(threshold="global")

#: The ways to measure thresholds besides the usual one.
OTHER_CALIBRATIONS = (
    Calibration(queries="mean"),
    GLOBAL,
    Calibration(select="head"),
    Calibration(queries="mean", select="head"),
    Calibration(threshold="global", select="head"),
    Calibration(threshold="global", queries="mean"),
    Calibration(threshold="global", queries="mean", select="head"),
)


class Document:
    """Two layers of two heads, some of which attend more sharply; queries of 100 tokens and of 50 later ones."""

    def __init__(self, n_queries=100):
        rng = np.random.default_rng(1)
        self.nodes, self.later = [], []
        for sharpness in (0.05, 0.2):
            layer = random_layer(CacheLayer(2, HEAD_DIM, 0), N_TOKENS, SETTINGS, rng)
            queries = normal(rng, 2, n_queries + 50, GROUP, HEAD_DIM, spread=sharpness)
            self.nodes.append(NodeQueries(layer, 2 * len(self.nodes), queries[:, :n_queries], 0.0))
            self.later.append(queries[:, n_queries:])

    def heads(self):
        """Layer, number and queries of each head, those of calibration and later ones; scaled as papers have them."""
        for node, later in zip(self.nodes, self.later, strict=True):
            for head in range(2):
                yield node.layer, head, node.queries[head] * SCALE, later[head] * SCALE


@pytest.fixture(scope="module")
def document():
    return Document()


def clusters_of(layer, head):
    """The rows of each cluster, the clusters of each coarse cluster, and the rows that are in none."""
    starts, coarse = layer.cluster_starts[head], layer.coarse_starts[head]
    rows = [np.arange(a, b) for a, b in itertools.pairwise(starts)]
    return rows, [np.arange(a, b) for a, b in itertools.pairwise(coarse)], np.arange(starts[-1], N_TOKENS)


@pytest.mark.parametrize("share", [0.03, 0.1, 0.4])
def test_one_threshold_of_all_heads_is_the_papers_quantile(share):
    """Of one query for each head, so that there is nothing to average."""
    document = Document(n_queries=1)
    parts = [
        (queries, layer.centroids[h], np.diff(layer.cluster_starts[h])) for layer, h, queries, _ in document.heads()
    ]
    expected = papers.squeezed_threshold(*zip(*parts, strict=True), share)
    curve = one_level_curve(document.nodes, N_HEADS, GLOBAL)
    clustered = SETTINGS.n_clustered(N_TOKENS)
    budget = (share * clustered + N_TOKENS - clustered) / N_TOKENS + LOOKUP
    thresholds = thresholds_of(curve, budget)
    assert thresholds == pytest.approx(np.full(N_HEADS, expected), rel=0.05)


@pytest.mark.parametrize("share", [0.05, 0.2, 0.7])
def test_one_threshold_of_mean_importance_is_the_papers_quantile_over_100_queries(document, share):
    """It is one of the curve's, whose budgets are what single queries read with it."""
    curve = one_level_curve(document.nodes, N_HEADS, Calibration(threshold="global", queries="mean"))
    parts = [(each, layer.centroids[h], np.diff(layer.cluster_starts[h])) for layer, h, each, _ in document.heads()]
    expected = papers.squeezed_threshold(*zip(*parts, strict=True), share)
    nearest = np.abs(np.log(curve.thresholds[0] / expected)).argmin()
    assert curve.thresholds[:, nearest] == pytest.approx(np.full(N_HEADS, expected), rel=0.05)


@pytest.mark.parametrize("share", [0.05, 0.2, 0.7])
def test_thresholds_of_mean_importance_are_the_papers_quantiles_of_each_head(document, share):
    """Together they are those of one budget: the same share of each head's keys exceeds its own."""
    curve = one_level_curve(document.nodes, N_HEADS, Calibration(queries="mean"))
    expected = [
        papers.squeezed_threshold([queries], [layer.centroids[head]], [np.diff(layer.cluster_starts[head])], share)
        for layer, head, queries, _ in document.heads()
    ]
    nearest = np.abs(curve.thresholds[0] - expected[0]).argmin()
    assert curve.thresholds[:, nearest] == pytest.approx(expected, rel=0.1)


def rows_read(how, layer, head, queries, threshold):
    """Rows that a step reads, averaged, by the paper's text; a row is read if any query head selects it."""
    clusters, _, exact = clusters_of(layer, head)
    counts = []
    for token in queries:
        selecting = token[:, None] if how.select == "head" else token[None]
        rows = [papers.squeezed_rows(each, exact, clusters, layer.centroids[head], threshold) for each in selecting]
        counts.append(len(np.unique(np.concatenate(rows))))
    return np.mean(counts)


@pytest.mark.parametrize("how", OTHER_CALIBRATIONS, ids=str)
@pytest.mark.parametrize("budget", [0.1, 0.25, 0.5])
def test_the_budget_is_what_later_tokens_read(document, how, budget):
    curve = one_level_curve(document.nodes, N_HEADS, how)
    thresholds = thresholds_of(curve, budget)
    read = [
        rows_read(how, layer, head, later, thresholds[number]) / N_TOKENS + LOOKUP
        for number, (layer, head, _, later) in enumerate(document.heads())
    ]
    assert np.mean(read) == pytest.approx(budget, rel=0.05)
    if how.threshold == "global":
        assert len(set(thresholds)) == 1
        assert max(read) > 1.1 * min(read), "heads that spread their attention read more"
    elif how.queries == "each":
        assert read == pytest.approx(np.full(N_HEADS, budget), rel=0.1)


@pytest.mark.parametrize("how", [each for each in OTHER_CALIBRATIONS if each.select == "group"], ids=str)
@pytest.mark.parametrize("budget", [0.1, 0.25, 0.4])
def test_the_budget_is_what_later_tokens_read_on_two_levels(document, how, budget):
    levels = two_level_curve(document.nodes, N_HEADS, how)
    thresholds = thresholds_of(levels, budget)
    read = []
    for number, (layer, head, _, later) in enumerate(document.heads()):
        clusters, coarse, exact = clusters_of(layer, head)
        coarse_centroids, coarse_threshold = layer.coarse_centroids[head], levels.coarse_thresholds[number]
        sizes = [sum(len(clusters[i]) for i in members) for members in coarse]
        for token in later:
            rows = papers.squeezed_rows_of_two_levels(
                token,
                exact,
                clusters,
                layer.centroids[head],
                thresholds[number],
                coarse,
                coarse_centroids,
                coarse_threshold,
            )
            kept = papers.importance_of(token, coarse_centroids, sizes) > coarse_threshold
            n_looked_up = len(coarse) + sum(len(members) for members in np.array(coarse, object)[kept])
            read.append((len(rows) + n_looked_up / 2) / N_TOKENS)
    assert np.mean(read) == pytest.approx(budget, rel=0.05)


def test_every_budget_up_to_1_can_be_read(document):
    curve = one_level_curve(document.nodes, N_HEADS, Calibration(queries="mean"))
    assert curve.budgets[-1] == pytest.approx(1 + LOOKUP, rel=1e-3)
    assert (np.diff(curve.budgets) >= 0).all()
    assert (np.diff(curve.thresholds) <= 0).all()


def test_normalised_keys_are_clustered_by_direction_and_centroids_are_means_of_keys():
    rng = np.random.default_rng(3)
    directions = normal(rng, 5, HEAD_DIM)
    keys = directions[rng.integers(0, 5, 400)] + normal(rng, 400, HEAD_DIM, spread=0.05)
    keys = (keys * rng.uniform(0.2, 5, (400, 1))).astype(np.float16)
    settings = ClusterSettings(keys="normalised", seed=1)
    found, raw = cluster_keys(keys, 12, 3, settings), cluster_keys(keys, 12, 3, ClusterSettings(seed=1))
    ones = [keys[found.order[a:b]].astype(float) for a, b in zip(found.starts, found.starts[1:], strict=False) if a < b]
    for members in ones:
        unit = members / np.linalg.norm(members, axis=1, keepdims=True)
        assert (unit @ unit.mean(axis=0) > 0.9).all(), "one direction"
    lengths = [np.linalg.norm(members, axis=1) for members in ones]
    assert max(each.max() / each.min() for each in lengths) > 4, "of any length"
    assert found.order.tolist() != raw.order.tolist()
    means = mean_keys(keys[found.order], found.starts)
    np.testing.assert_allclose(means[np.diff(found.starts) > 0], [members.mean(axis=0) for members in ones], atol=0.01)
