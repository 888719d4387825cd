"""Squeezed Attention without a document: thresholds that are steered, so that what is read follows the budget."""

from dataclasses import replace

import numpy as np
import pytest
from helpers.index_builds import thresholds_of

from octavo.convert.clusters import ClusterSettings
from octavo.cpu_kernels.compile import F16, Q8_0, Shape
from octavo.cpu_kernels.head import CHUNK_ROWS, HEAD
from octavo.cpu_kernels.methods.squeezed import BATCH_MEAN, BY_HEAD, EXACT_TAIL
from octavo.cpu_kernels.tail_clusters import CHUNK_CLUSTERS, RECENT
from octavo.errors import OctavoError
from octavo.evaluation.synthetic import random_layer
from octavo.runtime.cache.index import Calibration, Index, ThresholdCurve
from octavo.runtime.cache.kv_cache import KVCache
from octavo.runtime.cache.tail import CacheLayer
from octavo.runtime.methods.budgets import share_out
from octavo.runtime.methods.compose import assign, parse
from octavo.runtime.methods.method import Heads
from octavo.runtime.methods.squeezed import Squeezed
from octavo.runtime.methods.squeezed2 import Squeezed2

HEAD_DIM, N_HEADS = 64, 6


class Chat:
    """Heads of which some attend sharply, and a sequence that grows by a token, or a batch, at a time."""

    def __init__(self, method, kv_type=F16, seed=0):
        self.method, self.rng, self.n_rows = method, np.random.default_rng(seed), 0
        shape = Shape(HEAD_DIM, 1, kv_type)
        self.row_bytes = shape.row_bytes
        self.records, self.state = np.zeros(N_HEADS, HEAD), np.zeros(N_HEADS, method.state)
        self.own = Heads(
            self.records, np.arange(N_HEADS), np.ones(N_HEADS), [shape] * N_HEADS, [None] * N_HEADS, 4096, self.state
        )
        self.sharpness = np.linspace(0.5, 3, N_HEADS)

    def step(self, n_tokens=1):
        """Returns the bytes that were read, as a share of all."""
        self.method.before_step(self.own, None, self.n_rows + n_tokens)
        records, state = self.records, self.state
        self.n_rows += n_tokens
        records["n_tail"] = self.n_rows
        n_clustered = int(state["n_clustered_chunks"][0])
        importance = np.exp(self.sharpness[:, None] * self.rng.standard_normal((N_HEADS, n_clustered * 13)))
        importance /= np.maximum(importance.sum(axis=1, keepdims=True), 1) * (CHUNK_ROWS / 13)
        rows = (importance > state["threshold"][:, None]).sum(axis=1) * CHUNK_ROWS / 13
        state["n_tail_selected"] = np.where(n_tokens == 1, rows, -1) if n_clustered else 0
        exact = self.n_rows - CHUNK_ROWS * n_clustered
        lookup = n_clustered * CHUNK_CLUSTERS * HEAD_DIM * 2
        state["n_clustered_chunks"] = max(0, self.n_rows - RECENT) // CHUNK_ROWS
        read = rows * (n_clustered > 0) + exact + lookup / (2 * self.row_bytes)
        return read.mean() / self.n_rows

    @property
    def factor(self):
        """Of each head."""
        return self.state["threshold"] * self.n_rows


@pytest.mark.parametrize("kv_type", [F16, Q8_0])
@pytest.mark.parametrize("budget", [0.15, 0.25, 0.5])
@pytest.mark.parametrize("method", [Squeezed, Squeezed2])
def test_what_is_read_follows_the_budget(method, budget, kv_type):
    chat = Chat(method(budget), kv_type)
    for _ in range(8):
        chat.step(512)
    read = [chat.step() for _ in range(300)]
    assert np.mean(read[20:]) == pytest.approx(budget, rel=0.05)
    assert np.std(read[20:]) < 0.1 * budget


def test_heads_that_focus_read_as_much_as_those_that_spread():
    chat, selected = Chat(Squeezed(0.2)), []
    for n_tokens in [512] * 8 + [1] * 200:
        chat.step(n_tokens)
        selected.append(chat.state["n_tail_selected"].copy())
    of_heads = np.mean(selected[-150:], axis=0)
    assert of_heads == pytest.approx(np.full(N_HEADS, of_heads.mean()), rel=0.1)
    assert chat.factor.max() > 3 * chat.factor.min()


def test_nothing_winds_up_while_the_newest_rows_take_up_the_budget():
    """Clusters get a part of it all the same, and soon the right one."""
    chat = Chat(Squeezed(0.1))
    shares = [chat.step() for _ in range(3000)]
    clustered = CHUNK_ROWS * ((np.arange(3000) - RECENT) // CHUNK_ROWS)
    exact = (np.arange(3000) - clustered) / np.arange(1, 3001)
    over = slice(600, 1200)  # exact rows alone are more than the budget
    assert (exact[over] > 0.1).all()
    assert (np.array(shares)[over] > exact[over] + 0.01).all()
    assert ((chat.factor > 0.001) & (chat.factor < 20)).all()


def test_the_threshold_is_an_even_share_until_there_are_clusters():
    chat = Chat(Squeezed(0.2))
    for n_tokens in (1, 30, 200):
        chat.step(n_tokens)
        assert chat.factor == pytest.approx(np.ones(N_HEADS))


def test_a_threshold_that_selects_nothing_recovers():
    chat = Chat(Squeezed(0.3))
    for _ in range(6):
        chat.step(512)
    chat.state["threshold"] = 1
    read = [chat.step() for _ in range(60)]
    assert read[-1] == pytest.approx(0.3, rel=0.2)


def test_a_batch_says_nothing_of_what_a_token_reads():
    """Its tokens attend what any of them selects: thresholds that followed it would leave the next ones nothing."""
    chat = Chat(Squeezed(0.2))
    for n_tokens in [512] * 4 + [1] * 50:
        chat.step(n_tokens)
    for _ in range(20):
        chat.step(512)
        before = chat.factor
        chat.step(512)
        assert chat.factor == pytest.approx(before)


def test_of_a_short_document_all_is_exact():
    """It counts among what is stored: its rows do not move the threshold."""
    chat = Chat(Squeezed(0.9))
    chat.records["n_document"] = 1000
    chat.records["n_tail"] = 2000
    chat.state["n_clustered_chunks"] = 7
    clustered = 7 * CHUNK_ROWS
    chat.state["threshold"] = 1 / 3000
    chat.state["n_tail_selected"] = round(0.9 * 3000 - (3000 - clustered) - 7 * CHUNK_CLUSTERS / 2)
    chat.method.before_step(chat.own, None, 3000)
    assert chat.state["threshold"][0] * 3000 == pytest.approx(1, rel=1e-2)


@pytest.mark.parametrize("kv_type", [F16, Q8_0])
@pytest.mark.parametrize("tokens", [700, 1500])
def test_tokens_are_the_rows_that_a_step_attends_without_a_document(tokens, kv_type):
    chat = Chat(Squeezed(tokens=tokens), kv_type)
    for _ in range(8):
        chat.step(512)
    rows = []
    for _ in range(300):
        clustered = CHUNK_ROWS * int(chat.state["n_clustered_chunks"][0])
        chat.step()
        rows.append(chat.state["n_tail_selected"].mean() + chat.n_rows - clustered)
    assert np.mean(rows[20:]) == pytest.approx(tokens, rel=0.05)


def test_as_many_tokens_as_there_are_select_everything():
    chat = Chat(Squeezed(tokens=3000))
    for n_tokens in [512] * 5 + [1]:
        chat.step(n_tokens)
    assert (chat.state["threshold"] == -1).all()


def attached(attention, others=None):
    """A cache with a document of 600 tokens, 4 first and 100 last of which are in no cluster."""
    layer = CacheLayer(2, HEAD_DIM, 0)
    stored = random_layer(layer, 600, ClusterSettings(shortest=500), np.random.default_rng(0))
    curve = ThresholdCurve(np.array([0.2, 1.0]), np.array([[0.4, 0.01], [0.3, 0.02]]))
    curves = {Calibration(): curve, Calibration(levels=2): replace(curve, coarse_thresholds=np.array([0.5, 0.6]))}
    index = Index(np.zeros(600, np.int32), [stored], curves=curves | (others or {}))
    cache = KVCache([layer], 1000, assign(attention, 0.5, [layer], None))
    cache.attach(index)
    return cache, curve


@pytest.mark.parametrize("method", ["squeezed", "squeezed2"])
def test_tokens_are_the_rows_of_a_document_that_a_step_attends(method):
    cache, curve = attached(f"{method}:tokens=250")
    lookup = 0.2 - 104 / 600
    expected = thresholds_of(curve, 250 / 600 + lookup)
    assert [float(tail.state["threshold"]) for tail in cache.tails] == pytest.approx(expected)
    for tokens in (600, 900):
        cache, _ = attached(f"{method}:tokens={tokens}")
        assert [float(tail.state["threshold"]) for tail in cache.tails] == [-1, -1]


@pytest.mark.parametrize("method", ["squeezed", "squeezed2"])
def test_fewer_tokens_than_are_always_attended_are_said(method):
    few, curve = attached(f"{method}:tokens=103")
    assert few.shortfall(600) == f"{method} cannot attend as few as 103 tokens here: it attends 104 in any case."
    enough, _ = attached(f"{method}:tokens=104")
    assert enough.shortfall(600) == ""
    for cache in (few, enough):
        assert [float(tail.state["threshold"]) for tail in cache.tails] == pytest.approx(thresholds_of(curve, 0.2))


@pytest.mark.parametrize("method", ["squeezed", "squeezed2"])
def test_a_document_too_short_for_clusters_is_read_whole_and_that_is_said(method):
    layer = CacheLayer(2, HEAD_DIM, 0)
    stored = random_layer(layer, 600, ClusterSettings(shortest=601), np.random.default_rng(0))
    sentences = {
        f"{method}": f"{method} cannot read as little as 0.5 of 600 tokens here: "
        "what it reads in any case is 1.000 of them.",
        f"{method}:tokens=103": f"{method} cannot attend as few as 103 tokens here: it attends 600 in any case.",
    }
    for attention, sentence in sentences.items():
        cache = KVCache([layer], 1000, assign(attention, 0.5, [layer], None))
        cache.attach(Index(np.zeros(600, np.int32), [stored]))
        assert cache.shortfall(600) == sentence
        assert cache.shortfall(1200) == ("" if method == attention else sentence)


@pytest.mark.parametrize("method", ["squeezed", "squeezed2"])
def test_a_plan_scales_tokens_without_the_lookup(method):
    cache, curve = attached(f"{method}:tokens=250")
    [served] = cache.served
    served.layer_scale[:] = [0.8, 1.2]
    share_out(cache.served, 600, cache.document)
    served.method.start(served.heads, cache.document)
    expected = curve.at(np.array([200, 300]) / 600 + 0.2 - 104 / 600, np.arange(2))
    assert [float(tail.state["threshold"]) for tail in cache.tails] == pytest.approx(expected)


def test_two_levels_select_for_the_group():
    assert parse("squeezed2:paper").new_method(0.2).calibration == Calibration("global", "each", "group", 2)
    with pytest.raises(OctavoError, match="select"):
        parse("squeezed2:select=head")


def test_query_heads_that_select_for_themselves_have_their_own_thresholds():
    other = ThresholdCurve(np.array([0.2, 1.0]), np.array([[0.05, 0.04]] * 2))
    cache, _ = attached("squeezed:select=head", {Calibration(select="head"): other})
    assert [float(tail.state["threshold"]) for tail in cache.tails] == pytest.approx(thresholds_of(other, 0.5))
    assert {int(tail.state["rules"]) for tail in cache.tails} == {BY_HEAD}


@pytest.mark.parametrize("method", ["squeezed", "squeezed2"])
def test_parameters_become_rules_and_other_thresholds(method):
    other = ThresholdCurve(np.array([0.2, 1.0]), np.array([[0.05, 0.04]] * 2))
    for given, how, rules in [
        ("batch=mean", Calibration(), BATCH_MEAN),
        ("tail=exact", Calibration(), EXACT_TAIL),
        ("threshold=global", Calibration(threshold="global"), 0),
        ("queries=mean", Calibration(queries="mean"), 0),
        ("threshold=global,queries=mean", Calibration(threshold="global"), 0),
    ]:
        if method == "squeezed2":
            how = how._replace(levels=2)
        other = replace(other, coarse_thresholds=np.array([0.3, 0.2]))
        cache, _ = attached(f"{method}:{given}", {how: other})
        expected = thresholds_of(other, 0.5)
        assert [float(tail.state["threshold"]) for tail in cache.tails] == pytest.approx(expected)
        assert {int(tail.state["rules"]) for tail in cache.tails} == {rules}


@pytest.mark.parametrize("attention", ["squeezed:paper", "duo+squeezed:paper"])
def test_the_preset_sets_the_papers_rules(attention):
    method = parse(attention).new_method(0.2)
    assert method == Squeezed(
        budget=0.2, threshold="global", queries="mean", keys="normalised", batch="mean", tail="exact", select="head"
    )
    assert not method.on_metal
    assert method.extras_bytes(Shape(64, 1)) == 0


def test_what_an_index_holds_follows_from_the_parameters():
    assert Squeezed(threshold="global", batch="mean", tail="exact", tokens=9).clustering == {}
    assert parse("squeezed:keys=normalised,centroids=0.1").clustering == {"keys": "normalised", "centroid_share": 0.1}
    assert parse("squeezed2:coarse=0.02").clustering == {"coarse_share": 0.02}
    assert parse("squeezed2").clustering == {}
    raw, normalised = ClusterSettings(), ClusterSettings(keys="normalised")
    assert "keys" not in raw.as_json(), "indexes from before are still found"
    assert normalised.as_json() == raw.as_json() | {"keys": "normalised"}


@pytest.mark.parametrize("shares", [{"centroid_share": 1e-5}, {"coarse_share": 0.2}, {"coarse_share": 1e-5}])
def test_there_is_a_cluster_and_no_more_coarse_ones_than_clusters(shares):
    settings = ClusterSettings(**shares)
    assert 1 <= settings.n_coarse(2000) <= settings.n_clusters(2000)
    assert settings.n_coarse(1000) == settings.n_clusters(1000) == 0


class Answering:
    """A document of 600 tokens, and tokens after it that select more, or fewer, than those it was measured on."""

    def __init__(self, more):
        self.cache, self.curve = attached("squeezed")
        self.more = more

    def step(self, n_tokens=1):
        """Returns the share that is read: the curve is a line, of logarithms."""
        self.cache.reserve(n_tokens)
        ends = np.log(self.curve.thresholds)
        part = (np.log(self.thresholds) - ends[:, 0]) / (ends[:, 1] - ends[:, 0])
        rows = (0.2 + 0.8 * self.more * part) * 600 + self.cache.n_tail
        self.cache.heads["bytes_read"] += (rows * 4 * HEAD_DIM).astype(int)
        self.cache.finish_step()
        return rows.mean() / self.cache.n_tokens

    @property
    def thresholds(self):
        return np.array([float(tail.state["threshold"]) for tail in self.cache.tails])


@pytest.mark.parametrize("more", [0.7, 1.0, 1.5])
def test_what_tokens_after_a_document_read_follows_the_budget(more):
    """Its newest rows are a part of that."""
    answering = Answering(more)
    read = [answering.step() for _ in range(60)]
    assert np.mean(read[20:]) == pytest.approx(0.5, rel=0.02)
    assert (abs(read[0] / 0.5 - 1) > 0.1) == (more != 1)


def test_what_is_read_after_a_cut_is_what_was_read_before_it():
    answering = Answering(1.5)
    before = [answering.step() for _ in range(30)]
    answering.cache.truncate(600 + 11)
    assert [answering.step() for _ in range(19)] == before[11:]
    checkpoint = answering.cache.checkpoint()
    after = [answering.step() for _ in range(5)]
    answering.cache.restore(checkpoint)
    assert [answering.step() for _ in range(5)] == after
    answering.cache.attach(answering.cache.document)
    assert [answering.step() for _ in range(30)] == before


def test_a_batch_selects_of_a_document_as_if_nothing_had_come_after_it():
    """And corrects nothing: its tokens share what is read."""
    answering = Answering(1.5)
    for _ in range(20):
        answering.step()
    heads = answering.cache.served[0].heads
    before = heads.correction
    assert before < 0.9
    answering.step(64)
    assert answering.thresholds == pytest.approx(thresholds_of(answering.curve, 0.5))
    assert heads.correction == before
