"""Squeezed Attention: what its parameters tell the kernels to read, and which thresholds they select by."""

from dataclasses import replace

import numpy as np
import pytest
from helpers.index_builds import thresholds_of

from octavo.convert.clusters import ClusterSettings
from octavo.cpu_kernels.numba_support.shape import Shape
from octavo.cpu_kernels.select.cluster_items import (
    BATCH_MEAN,
    BATCH_UNION,
    BY_HEAD,
    BY_THRESHOLD,
    ESTIMATE,
    EVERYTHING,
    EXACT_TAIL,
    LOOKUP_APART,
)
from octavo.errors import OctavoError
from octavo.evaluation.synthetic import random_layer
from octavo.runtime.cache.kv_cache import KVCache
from octavo.runtime.document.cache_layer import CacheLayer
from octavo.runtime.document.index import Calibration, Index, ThresholdCurve
from octavo.runtime.methods.assignment import assign
from octavo.runtime.methods.attention import Attention
from octavo.runtime.methods.budgets import distribute_budget
from octavo.runtime.methods.squeezed import Squeezed

HEAD_DIM = 64
ROW_BYTES = 4 * HEAD_DIM  # of a key and a value


def attached(attention, others=None, budget=0.5, curves=None):
    """A cache with a document of 600 tokens, 4 first and 100 last of which are in no cluster."""
    layer = CacheLayer(2, HEAD_DIM, 0)
    stored = random_layer(layer, 600, ClusterSettings(shortest=500), np.random.default_rng(0))
    curve = ThresholdCurve(np.array([0.2, 1.0]), np.array([[0.4, 0.01], [0.3, 0.02]]))
    if curves is None:
        curves = {Calibration(): curve, Calibration(levels=2): replace(curve, coarse_thresholds=np.array([0.5, 0.6]))}
    index = Index(np.zeros(600, np.int32), [stored], curves=curves | (others or {}))
    cache = KVCache([layer], 1000, assign(Attention.parse(attention, budget=budget), [layer]))
    cache.attach(index)
    return cache, curve


def states(cache, name):
    return [tail.state[name].item() for tail in cache.tails]


@pytest.mark.parametrize("method", ["squeezed", "squeezed2"])
def test_a_step_reads_its_share_of_all_bytes_and_nothing_is_measured(method):
    cache, _ = attached(method, curves={})
    for n_new in (1, 1, 390, 1):
        cache.reserve(n_new)
        share = max(0.5, cache.minimum_share(cache.n_tokens))
        expected = share * cache.n_tokens * ROW_BYTES if n_new == 1 else EVERYTHING
        assert states(cache, "n_bytes") == pytest.approx([expected] * 2, abs=1)
        assert states(cache, "least_share") == [0.25 * 0.5] * 2
        assert states(cache, "rules") == [ESTIMATE] * 2
        cache.finish_step()
    cache.table.groups[0].method.measure(cache.document)
    assert cache.document.curves == {}


@pytest.mark.parametrize("method", ["squeezed", "squeezed2"])
def test_a_share_of_1_reads_everything(method):
    cache, _ = attached(method, budget=1.0)
    cache.reserve(1)
    names = ["n_bytes", "threshold", *(["coarse_threshold"] if method == "squeezed2" else [])]
    assert [states(cache, name) for name in names] == [[-1, -1]] * len(names)


@pytest.mark.parametrize("method", ["squeezed", "squeezed2"])
@pytest.mark.parametrize("threshold", ["step", "head"])
def test_without_clusters_of_a_document_each_step_finds_its_threshold(method, threshold):
    layer = CacheLayer(2, HEAD_DIM, 0)
    cache = KVCache([layer], 1000, assign(Attention.parse(f"{method}:threshold={threshold}", budget=0.5), [layer]))
    stored = random_layer(layer, 600, ClusterSettings(shortest=601), np.random.default_rng(0))
    for document in (None, Index(np.zeros(600, np.int32), [stored])):
        cache.attach(document)
        cache.reserve(800)
        cache.finish_step()
        cache.reserve(1)
        assert states(cache, "n_bytes") == pytest.approx(
            [max(0.5, cache.minimum_share(cache.n_tokens)) * cache.n_tokens * ROW_BYTES] * 2
        )


@pytest.mark.parametrize("method", ["squeezed", "squeezed2"])
def test_thresholds_of_a_document_are_constant(method):
    cache, curve = attached(f"{method}:threshold=head")
    for n_new in (1, 300, 1, 1):
        cache.reserve(n_new)
        assert states(cache, "threshold") == pytest.approx(thresholds_of(curve, 0.5))
        assert states(cache, "n_bytes") == [BY_THRESHOLD if n_new == 1 else EVERYTHING] * 2
        if method == "squeezed2":
            assert states(cache, "coarse_threshold") == pytest.approx([0.5, 0.6])
        cache.finish_step()


@pytest.mark.parametrize("method", ["squeezed", "squeezed2"])
def test_tokens_are_the_rows_that_a_step_attends(method):
    cache, _ = attached(f"{method}:tokens=250")
    cache.reserve(1)
    assert states(cache, "n_bytes") == [250 * ROW_BYTES] * 2
    assert states(cache, "rules") == [LOOKUP_APART | ESTIMATE] * 2
    assert states(cache, "least_share") == pytest.approx([0.25 * 250 / 601] * 2)
    for tokens in (601, 900):
        cache, _ = attached(f"{method}:tokens={tokens}")
        cache.reserve(1)
        assert states(cache, "n_bytes") == [-1, -1]


@pytest.mark.parametrize("method", ["squeezed", "squeezed2"])
def test_tokens_set_the_thresholds_of_a_document(method):
    cache, curve = attached(f"{method}:threshold=head,tokens=250")
    lookup = 0.2 - 104 / 600
    assert states(cache, "threshold") == pytest.approx(thresholds_of(curve, 250 / 600 + lookup))
    for tokens in (600, 900):
        cache, _ = attached(f"{method}:threshold=head,tokens={tokens}")
        assert states(cache, "threshold") == [-1, -1]


@pytest.mark.parametrize("method", ["squeezed", "squeezed2"])
def test_fewer_tokens_than_are_always_attended_are_said(method):
    few, _ = attached(f"{method}:tokens=103")
    assert few.budget_warning(600) == f"{method} cannot attend as few as 103 tokens here: it always attends 104."
    enough, _ = attached(f"{method}:tokens=104")
    assert enough.budget_warning(600) == ""


@pytest.mark.parametrize("method", ["squeezed", "squeezed2"])
def test_a_document_too_short_for_clusters_is_read_whole_and_that_is_said(method):
    layer = CacheLayer(2, HEAD_DIM, 0)
    stored = random_layer(layer, 600, ClusterSettings(shortest=601), np.random.default_rng(0))
    sentences = {
        f"{method}": f"{method} cannot read as little as 0.5 of 600 tokens here: "
        "what it always reads is 1.000 of them.",
        f"{method}:tokens=103": f"{method} cannot attend as few as 103 tokens here: it always attends 600.",
    }
    for attention, sentence in sentences.items():
        cache = KVCache([layer], 1000, assign(Attention.parse(attention, budget=0.5), [layer]))
        cache.attach(Index(np.zeros(600, np.int32), [stored]))
        assert cache.budget_warning(600) == sentence
        later = "0.5 of 1,200 tokens here: what it always reads is 0.822 of them."
        assert cache.budget_warning(1200) == (sentence.split("0.5")[0] + later if method == attention else sentence)


@pytest.mark.parametrize("method", ["squeezed", "squeezed2"])
def test_a_plan_scales_tokens_without_the_lookup(method):
    cache, curve = attached(f"{method}:threshold=head,tokens=250")
    [served] = cache.table.groups
    served.layer_scale[:] = [0.8, 1.2]
    distribute_budget(cache.table.groups, 600, cache.document)
    served.method.start(served.heads, cache.document)
    expected = curve.at(np.array([200, 300]) / 600 + 0.2 - 104 / 600, np.arange(2))
    assert states(cache, "threshold") == pytest.approx(expected)
    cache, _ = attached(f"{method}:tokens=250")
    cache.table.groups[0].layer_scale[:] = [0.8, 1.2]
    cache.reserve(1)
    assert states(cache, "n_bytes") == pytest.approx([200 * ROW_BYTES, 300 * ROW_BYTES], abs=1)


def test_two_levels_select_for_the_group():
    assert Attention.parse("squeezed2:paper", budget=0.2).new_method().calibration == Calibration(
        "global", "mean", "group", 2
    )
    with pytest.raises(OctavoError, match="select"):
        Attention.parse("squeezed2:select=head")


def test_query_heads_that_select_for_themselves_have_their_own_thresholds():
    other = ThresholdCurve(np.array([0.2, 1.0]), np.array([[0.05, 0.04]] * 2))
    cache, _ = attached("squeezed:threshold=head,select=head", {Calibration(select="head"): other})
    assert states(cache, "threshold") == pytest.approx(thresholds_of(other, 0.5))
    assert set(states(cache, "rules")) == {BY_HEAD}


@pytest.mark.parametrize("method", ["squeezed", "squeezed2"])
def test_parameters_become_rules(method):
    for given, rules in [("batch=mean", BATCH_MEAN), ("batch=union", BATCH_UNION), ("tail=exact", EXACT_TAIL)]:
        for threshold in ("step", "head"):
            cache, _ = attached(f"{method}:{given},threshold={threshold}")
            assert set(states(cache, "rules")) == {rules | (ESTIMATE if threshold == "step" else 0)}
            assert not cache.table.groups[0].method.on_metal
    assert Attention.parse(method, budget=0.5).new_method().on_metal
    assert Attention.parse(f"{method}:tokens=300", budget=0.5).new_method().on_metal
    assert not Attention.parse(f"{method}:threshold=head", budget=0.5).new_method().on_metal


@pytest.mark.parametrize("method", ["squeezed", "squeezed2"])
def test_the_rest_is_estimated_unless_metal_or_measured_thresholds_decide(method):
    on, off, default = (
        Attention.parse(f"{method}{rest}", budget=0.5).new_method() for rest in (":rest=on", ":rest=off", "")
    )
    assert (on.estimates, off.estimates, default.estimates) == (True, False, True)
    assert (on.on_metal, off.on_metal, default.on_metal) == (False, True, True)
    assert (on.for_metal(), off.for_metal(), default.for_metal()) == (on, off, off)
    assert on.hooks.estimate is not None
    assert off.hooks.estimate is None
    assert set(off.document_arrays) < set(on.document_arrays)
    assert off.extras_bytes(Shape(64, 3)) < on.extras_bytes(Shape(64, 3))
    assert not Attention.parse(f"{method}:threshold=head", budget=0.5).new_method().estimates
    assert Attention.parse(f"{method}:threshold=head,rest=on", budget=0.5).new_method().estimates


@pytest.mark.parametrize("method", ["squeezed", "squeezed2"])
def test_parameters_become_other_thresholds(method):
    for given, how in [
        ("threshold=head", Calibration()),
        ("threshold=global", Calibration(threshold="global")),
        ("threshold=head,queries=mean", Calibration(queries="mean")),
        ("threshold=global,queries=mean", Calibration(threshold="global", queries="mean")),
    ]:
        if method == "squeezed2":
            how = how._replace(levels=2)
        other = ThresholdCurve(np.array([0.2, 1.0]), np.array([[0.05, 0.04]] * 2), np.array([0.3, 0.2]))
        cache, _ = attached(f"{method}:{given}", {how: other})
        assert states(cache, "threshold") == pytest.approx(thresholds_of(other, 0.5))


@pytest.mark.parametrize("attention", ["squeezed:paper", "duo+squeezed:paper"])
def test_the_preset_sets_the_papers_rules(attention):
    method = Attention.parse(attention, budget=0.2).new_method()
    assert method == Squeezed(
        budget=0.2,
        threshold="global",
        queries="mean",
        keys="normalised",
        batch="mean",
        tail="exact",
        select="head",
        rest=False,
    )
    assert not method.on_metal
    assert method.extras_bytes(Shape(64, 1)) == 0


def test_what_an_index_holds_follows_from_the_parameters():
    assert Squeezed(threshold="global", batch="mean", tail="exact", tokens=9).clustering == {}
    assert Attention.parse("squeezed:keys=normalised,centroids=0.1").new_method().clustering == {
        "keys": "normalised",
        "centroid_share": 0.1,
    }
    assert Attention.parse("squeezed2:coarse=0.02").new_method().clustering == {"coarse_share": 0.02}
    assert Attention.parse("squeezed2").new_method().clustering == {}
    paper = {"keys": "normalised", "coarse_of": "centroids"}
    assert Attention.parse("squeezed2:paper").new_method().clustering == paper
    raw, normalised = ClusterSettings(), ClusterSettings(keys="normalised")
    assert not {"keys", "coarse_of"} & set(raw.as_json()), "indexes from before are still found"
    assert normalised.as_json() == raw.as_json() | {"keys": "normalised"}


@pytest.mark.parametrize("shares", [{"centroid_share": 1e-5}, {"coarse_share": 0.2}, {"coarse_share": 1e-5}])
def test_there_is_a_cluster_and_no_more_coarse_ones_than_clusters(shares):
    settings = ClusterSettings(**shares)
    assert 1 <= settings.n_coarse(2000) <= settings.n_clusters(2000)
    assert settings.n_coarse(1000) == settings.n_clusters(1000) == 0
