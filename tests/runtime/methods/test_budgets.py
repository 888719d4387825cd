"""Budgets: what a step reads, or keeps, is the share that was asked for, within 5 %, or the method says what it reads.

Measured over whole models: 30 layers of random rows, whose steps run without llama.cpp.
"""

import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from helpers.kernel_inputs import KV_TYPES, normal, store_rows
from hypothesis import given
from hypothesis import strategies as st

from octavo.convert.clusters import settings_for
from octavo.cpu_kernels.numba_support.shape import F16, Q4_0, Q8_0, Shape
from octavo.errors import OctavoError
from octavo.evaluation.synthetic import random_layer
from octavo.runtime.cache.kv_cache import KVCache
from octavo.runtime.devices.cpu_device import CpuDevice
from octavo.runtime.devices.protocol import ExecutorArguments
from octavo.runtime.document.cache_layer import CacheLayer, Rope
from octavo.runtime.document.index import Index, IndexLayer, LastQueries
from octavo.runtime.document.stored_rows import row_format
from octavo.runtime.graph.attention_nodes import AttentionNode
from octavo.runtime.methods.assignment import assign
from octavo.runtime.methods.attention import Attention
from octavo.runtime.methods.budgets import scaled
from octavo.runtime.store.plan import Plan

pytestmark = pytest.mark.sampled

N_LAYERS, GROUP = 30, 2
ROPE = Rope(0.1 ** np.linspace(0, 2, 8), interleaved=False)
DEPTHS = [700, 4000]
BUDGETS = [0.5, 0.25, 0.125]
TYPES = [(64, F16), (64, Q8_0)]
#: Kernels of another shape take long to compile.
TYPES += [pytest.param(*each, marks=pytest.mark.slow) for each in ((128, F16), (128, Q8_0), (64, Q4_0))]

#: Layer budgets as SqueezeAttention allots them to SmolLM2: most to three layers.
SCALE = (6.85, 6.85, 6.85, *[0.35] * 27)
SCALES = dict.fromkeys(("quest", "sparq", "h2o", "streaming", "window"), SCALE)
PLAN = Plan("-", "duo", 0.5, 4, 60, SCALES, tuple((layer, 0) for layer in range(N_LAYERS)), (None,) * N_LAYERS)


@cache
def document(head_dim, kv_type, n_tokens):
    """A document of the same random rows in all layers, in order and without clusters."""
    rng, shape = np.random.default_rng(0), Shape(head_dim, GROUP, kv_type)
    keys, values = (store_rows(shape, normal(rng, n_tokens, head_dim))[None] for _ in range(2))
    keys, values = (stored.view(row_format(head_dim, kv_type)[0]) for stored in (keys, values))
    nothing, starts = np.zeros((1, 0, head_dim), np.float16), np.zeros((1, 1), np.int32)
    order, mass = np.arange(n_tokens, dtype=np.int32)[None], rng.random((1, n_tokens), np.float32)
    layer = IndexLayer(keys, values, 0, nothing, starts, nothing, starts, order, mass)
    return Index(np.zeros(n_tokens, np.int32), [layer] * N_LAYERS)


@cache
def clustered_document(head_dim, kv_type, n_tokens):
    """A document whose keys lie around centroids, the same in all layers, with queries like those of the steps."""
    rng, shape, settings = np.random.default_rng(0), Shape(head_dim, GROUP, kv_type), settings_for(kv_type)
    layer = random_layer(CacheLayer(1, head_dim, 0, kv_type, GROUP), n_tokens, settings, rng)
    if kv_type != F16:
        dtype, _ = row_format(head_dim, kv_type)
        stored = (
            store_rows(shape, rows[0].astype(np.float32))[None].view(dtype) for rows in (layer.keys, layer.values)
        )
        keys, values = stored
        layer = replace(layer, keys=keys, values=values)
    queries = normal(rng, 1, 50, GROUP, head_dim, spread=0.1).astype(np.float16)
    of_layers = [LastQueries(i, 0.0, queries) for i in range(N_LAYERS)]
    return Index(np.zeros(n_tokens, np.int32), [layer] * N_LAYERS, of_layers)


rows = document


class Model:
    """Layers of one KV head each, some of which slide, at the end of a document; without one, of as many tokens."""

    def __init__(self, attention, budget, head_dim, kv_type, depth, n_sliding=0, plan=PLAN, document=document):
        windows = [*[32] * n_sliding, *[0] * (N_LAYERS - n_sliding)]
        layers = [CacheLayer(1, head_dim, window, kv_type, GROUP, rope=ROPE) for window in windows]
        device = CpuDevice()
        self.cache = KVCache(
            layers, 2 * depth, assign(Attention.parse(attention, budget=budget, plan=plan), layers), device.new_memory()
        )
        if document is None:
            self.cache.append_rows([(stored.keys, stored.values) for stored in rows(head_dim, kv_type, depth).layers])
        else:
            self.cache.attach(document(head_dim, kv_type, depth))
        nodes = [AttentionNode(head_dim, GROUP, 1, window, 1.0, 0.0, i, True) for i, window in enumerate(windows)]
        self.executor = device.new_executor(
            ExecutorArguments(self.cache, nodes, [layer.shape for layer in layers], 400)
        )
        self.rng, self.head_dim = np.random.default_rng(1), head_dim

    def share_read(self, n_steps=3, spread=0.1):
        """Bytes that steps of one token read, as a share of what dense attention reads. `spread` : of queries"""
        heads, counted = self.cache.table.heads, self.cache.table.heads["window"] == 0
        heads["bytes_read"] = whole = 0
        for _ in range(n_steps):
            self.cache.reserve(1)
            self.executor.start(1)
            for number in range(N_LAYERS):
                rows = normal(self.rng, 2, 1, 1, self.head_dim, dtype=np.float16)
                query = normal(self.rng, 1, 1, GROUP, self.head_dim, spread=spread)
                self.executor.attend_alone(number, query, rows[0], rows[1])
            self.cache.finish_step()
            whole += self.cache.n_tokens * 2 * counted.sum() * self.cache.layers[0].shape.row_bytes
        return heads["bytes_read"][counted].sum() / whole

    def known_steps(self, first, n_steps, n_tokens=1):
        """Cut the sequence, and go on by steps of rows and queries that follow from their place."""
        self.cache.truncate(first)
        steps = []
        for start in range(first, first + n_steps * n_tokens, n_tokens):
            self.cache.table.heads["bytes_read"] = 0
            self.cache.reserve(n_tokens)
            self.executor.start(n_tokens)
            out = []
            for number in range(2):
                drawn = [np.random.default_rng((number, start + i)) for i in range(n_tokens)]
                keys, values = (
                    np.concatenate([normal(rng, 1, 1, self.head_dim, dtype=np.float16) for rng in drawn], axis=1)
                    for _ in "kv"
                )
                query = np.concatenate([normal(rng, 1, 1, GROUP, self.head_dim, spread=0.3) for rng in drawn], axis=1)
                out.append(self.executor.attend_alone(number, query, keys, values).copy())
            self.cache.finish_step()
            steps.append((self.cache.table.heads["bytes_read"].tolist(), out))
        return steps


SELECTING = [
    "quest",
    "quest:dense_layers=2",
    "quest:paper",
    "duo+quest",
    "plan+quest",
    "plan+duo+quest:dense_layers=2",
    "sparq:r=16",
    "sparq:k=300",
    "sparq:layout=one",
    "sparq:r=4,select=head",
    "sparq",
    "plan+sparq",
    "sketch",
    "sketch:columns=8",
    "duo+sketch",
]


@pytest.mark.parametrize(("head_dim", "kv_type"), TYPES)
@pytest.mark.parametrize("attention", SELECTING)
def test_a_step_reads_the_budget(attention, head_dim, kv_type):
    if "layout=one" in attention and kv_type != F16:
        pytest.skip("rotated rows have no components")
    for depth in DEPTHS:
        for budget in BUDGETS:
            model = Model(attention, budget, head_dim, kv_type, depth)
            least = model.cache.minimum_share(depth + 2)  # of the second of three steps
            assert model.share_read() == pytest.approx(max(budget, least), rel=0.05), (depth, budget)


@pytest.mark.parametrize(("head_dim", "kv_type"), TYPES)
@pytest.mark.parametrize("attention", ["squeezed", "squeezed2", "duo+squeezed"])
def test_a_step_reads_the_budget_of_a_clustered_document(attention, head_dim, kv_type):
    for depth in (1500, 4000):
        for budget in BUDGETS:
            model = Model(attention, budget, head_dim, kv_type, depth, document=clustered_document)
            least = model.cache.minimum_share(depth)
            assert model.share_read() == pytest.approx(max(budget, least), rel=0.05), (depth, budget)


@pytest.mark.parametrize(("head_dim", "kv_type"), TYPES)
@pytest.mark.parametrize("attention", ["squeezed", "squeezed2", "squeezed:select=head", "plan+squeezed"])
def test_a_step_reads_the_budget_without_a_document(attention, head_dim, kv_type):
    for depth in DEPTHS:
        for budget in BUDGETS:
            model = Model(attention, budget, head_dim, kv_type, depth, document=None)
            least = model.cache.minimum_share(depth + 1)
            assert model.share_read() == pytest.approx(max(budget, least), rel=0.05), (depth, budget)


@pytest.mark.parametrize("attention", ["squeezed", "squeezed2", "squeezed:tail=exact"])
def test_what_came_after_a_document_counts(attention):
    """Its newest rows, and those of its clusters that are selected."""
    model = Model(attention, 0.25, 64, F16, 4000, document=clustered_document)
    model.share_read(400)
    assert model.share_read(20) == pytest.approx(0.25, rel=0.05)


def test_the_least_share_grows_with_what_is_always_read_after_a_document():
    model = Model("squeezed:rest=off", 0.125, 64, F16, 4000, document=clustered_document)
    model.share_read(370)
    centroids = model.cache.document.n_clusters / 2  # in rows of keys and values
    assert model.cache.minimum_share(4370) == pytest.approx((centroids + 104 + 370 + 0.25 * 0.125 * 3896) / 4370)
    assert model.share_read(3) == pytest.approx(model.cache.minimum_share(4372), rel=0.01)


@pytest.mark.parametrize("document", [None, clustered_document], ids=["no document", "a document"])
@pytest.mark.parametrize("spread", [0.05, 0.15])
def test_each_step_reads_the_budget_however_tokens_attend(spread, document):
    """They spread their attention more, or less."""
    model = Model("squeezed", 0.25, 64, F16, 4000, document=document)
    assert [model.share_read(1, spread) for _ in range(5)] == pytest.approx([0.25] * 5, rel=0.01)


@pytest.mark.parametrize("attention", ["squeezed:tokens=800,rest=off", "squeezed2:tokens=800,rest=off"])
def test_squeezed_attends_a_number_of_tokens(attention):
    model = Model(attention, 0.5, 64, F16, 4000, document=clustered_document, plan=None)
    lookup = model.cache.table.groups[0].method.looked_up(model.cache.document) / 2
    assert model.share_read() * 4002 == pytest.approx(800 + lookup, rel=0.01)


@pytest.mark.parametrize("document", [None, clustered_document], ids=["no document", "a document"])
@pytest.mark.parametrize("kv_type", KV_TYPES)
@pytest.mark.parametrize("attention", ["squeezed", "squeezed2", "squeezed:select=head", "squeezed:tokens=300"])
def test_a_step_after_a_cut_is_the_step_that_it_was(attention, kv_type, document):
    """It reads the same rows, in another order where a chunk is not due that is clustered: so sums may round apart."""
    model = Model(attention, 0.25, 64, kv_type, 1500, document=document, plan=None)
    whole = model.known_steps(1500, 400)
    for n_tokens, n_new in ((1899, 1), (1890, 10), (1500 + 380, 20), (1500 + 383, 3), (1500 + 100, 300), (1500, 1)):
        expected = whole[n_tokens - 1500 :][:n_new]
        for _ in range(2):
            for (n_bytes, out), (expected_bytes, expected_out) in zip(
                model.known_steps(n_tokens, n_new), expected, strict=True
            ):
                assert n_bytes == expected_bytes
                np.testing.assert_allclose(out, expected_out, atol=1e-5)
            model.known_steps(n_tokens, 1, 1900 - n_tokens)  # in one batch


def test_two_levels_say_what_they_cannot_read():
    said = {
        b: Model("squeezed2", b, 64, F16, 4000, document=clustered_document).cache.budget_warning(4000) for b in BUDGETS
    }
    assert set(said.values()) == {""}
    model = Model("squeezed2", 0.75, 64, F16, 4000, document=clustered_document)
    said = model.cache.budget_warning(4000)
    assert re.fullmatch(
        r"squeezed2 cannot read as much as 0.75 of 4,000 tokens here: it reads 0\.5\d\d of them\.", said
    )
    assert model.share_read() == pytest.approx(float(said.split()[-3]), rel=0.02)
    assert Model("squeezed2", 1.0, 64, F16, 4000, document=clustered_document).cache.budget_warning(4000) == ""


@pytest.mark.parametrize("kv_type", KV_TYPES)
@pytest.mark.parametrize("attention", ["h2o", "streaming", "window", "plan+h2o", "plan+streaming", "plan+window"])
def test_methods_that_forget_keep_the_budget(attention, kv_type):
    """H2O reads the keys that are kept twice."""
    for depth in DEPTHS:
        for budget in BUDGETS:
            model = Model(attention, budget, 64, kv_type, depth)
            share = model.share_read() / (1.5 if "h2o" in attention else 1)
            assert share == pytest.approx(max(budget, model.cache.minimum_share(depth)), rel=0.05), (depth, budget)


def kept_rows(model):
    """Rows that each layer keeps."""
    [served] = model.cache.table.groups
    state = served.heads.state
    return state["n_rows"] if "n_rows" in state.dtype.names else state["n_sinks"] + state["n_recent"]


@pytest.mark.parametrize("attention", ["plan+h2o", "plan+streaming", "plan+window"])
@pytest.mark.parametrize("budget", [0.2, 0.5])
def test_a_plan_scales_the_rows_that_are_kept_and_their_sum_stays(attention, budget):
    depth = 63 * 64  # windows grow at multiples of 64
    rows = kept_rows(Model(attention, budget, 64, F16, depth))
    assert rows.sum() == pytest.approx(budget * depth * N_LAYERS, abs=N_LAYERS / 2)
    assert set(rows[:3].tolist()) == {min(depth, round(SCALE[0] * budget * depth))}
    assert len(set(rows[3:].tolist())) == 1
    assert rows[3] >= 256


@pytest.mark.parametrize("attention", ["h2o:tokens=512", "window:tokens=512", "streaming:tokens=512"])
@pytest.mark.parametrize("depth", [1000, 4000])
def test_a_plan_scales_a_number_of_rows_and_their_mean_stays(attention, depth):
    rows = kept_rows(Model(f"plan+{attention}", 0.125, 64, F16, depth))
    important = min(depth, round(6.85 * 512))
    assert rows.tolist() == pytest.approx([important] * 3 + [(30 * 512 - 3 * important) / 27] * 27, abs=1)
    assert set(kept_rows(Model(attention, 0.125, 64, F16, depth)).tolist()) == {512}


def test_a_plan_scales_recent_rows_without_the_sinks():
    model = Model("plan+streaming:sinks=7,recent=100", 0.125, 64, F16, 4000)
    assert kept_rows(model).tolist() == [7 + 685] * 3 + [7 + 35] * 27
    assert model.share_read() == pytest.approx(107 / 4001, rel=0.01)
    assert set(kept_rows(Model("streaming:sinks=7,recent=100", 0.125, 64, F16, 4000)).tolist()) == {107}


@pytest.mark.parametrize("attention", SELECTING[:6])
def test_a_budget_of_1_reads_everything(attention):
    for kv_type in (F16, Q8_0):
        model = Model(attention.replace("duo+", ""), 1.0, 64, kv_type, 700)
        lookup = model.cache.table.groups[-1].method.lookup_share(model.cache.table.groups[-1].heads, None, 700).max()
        assert 1 <= model.share_read() <= 1 + 1.03 * lookup  # the last page is not full


def test_the_least_share_is_that_of_dense_layers_and_bounds():
    pages = 4 * 16 / 700
    assert Model("quest:dense_layers=2", 0.1, 64, F16, 700).cache.minimum_share(700) == pytest.approx(
        (2 + 28 * (1 / 16 + pages)) / 30
    )
    assert Model("quest", 0.1, 64, Q8_0, 700).cache.minimum_share(700) == pytest.approx(1 / 8.5 + pages)
    duo = Model("duo+quest", 0.1, 64, F16, 700).cache
    assert duo.minimum_share(700) == pytest.approx((64 / 700 + 1 / 16 + pages) / 2)
    assert Model("h2o", 0.1, 64, F16, 700).cache.minimum_share(700) == pytest.approx(256 / 700)
    assert Model("dense", 0.1, 64, F16, 700).cache.minimum_share(700) == 1


def test_a_budget_below_the_least_share_is_said():
    said = {
        budget: Model("quest:dense_layers=2", budget, 64, Q8_0, 4000).cache.budget_warning(4000) for budget in BUDGETS
    }
    assert said == {
        0.5: "",
        0.25: "",
        0.125: "quest cannot read as little as 0.125 of 4,000 tokens here: what it always reads is 0.191 of them.",
    }
    assert (
        Model("h2o", 0.125, 64, F16, 700)
        .cache.budget_warning(700)
        .startswith("h2o cannot keep as little as 0.125 of 7")
    )
    assert Model("dense", 0.125, 64, F16, 700).cache.budget_warning(700) == ""


def test_fewer_tokens_than_are_read_in_any_case_are_said():
    assert Model("streaming:tokens=4", 0.5, 64, F16, 700).cache.budget_warning(700) == (
        "streaming cannot keep as few as 4 tokens here: it always keeps 5."
    )
    for attention in ("streaming:tokens=5", "streaming:recent=1", "window:tokens=1"):
        assert Model(attention, 0.5, 64, F16, 700).cache.budget_warning(700) == ""


def test_a_budget_counts_no_sliding_window():
    model = Model("quest", 0.25, 64, F16, 4000, n_sliding=20)
    assert model.share_read() == pytest.approx(0.25, rel=0.05)


@pytest.mark.parametrize(("tokens", "select"), [(64, "group"), (512, "group"), (64, "head"), (512, "head")])
def test_quest_attends_a_number_of_tokens(tokens, select):
    """Bounds come on top, and what one query head selects and the other does not."""
    model = Model(f"quest:tokens={tokens},select={select}", 0.5, 64, F16, 4000, plan=None)
    n_rows = (model.share_read() - 1 / 16) * model.cache.n_tokens
    assert n_rows > tokens - 16  # the last page is not full
    if select == "group":
        assert n_rows <= tokens
    else:
        assert 1.1 * tokens < n_rows <= GROUP * tokens, "the query heads select differently"


def test_query_heads_of_too_large_a_group_cannot_select_apart():
    with pytest.raises(OctavoError, match="65 query heads share a KV head, and 64 are the most here: leave out"):
        assign(Attention.parse("quest:select=head", budget=0.5), [CacheLayer(1, 64, 0, F16, 65)])


# The shares of a plan's layers.


@pytest.mark.parametrize("share", [0.15, 0.5, 0.7, 0.9, 1.0])
@pytest.mark.parametrize("lookup", [0.0, 0.06])
@pytest.mark.parametrize("few", [0.0, 0.05])
def test_what_the_lookup_leaves_is_scaled_and_the_mean_stays(share, lookup, few):
    scale, weight = np.array([2.0, 0.5, 0.25]), np.array([1.0, 1.0, 2.0])
    own = scaled(share, scale, np.full(3, lookup), np.full(3, lookup + few), weight)
    assert own @ weight / weight.sum() == pytest.approx(share)
    assert (own <= 1).all()
    assert (own >= lookup + few).all()
    free = (own > lookup + few + 1e-9) & (own < 1)
    factors = (own - lookup)[free] / scale[free]
    assert factors == pytest.approx(np.broadcast_to(factors[:1], factors.shape))
    assert (np.diff(own) <= 1e-9).all()  # the order stays


def test_of_a_large_budget_most_goes_to_the_important_layers_first():
    own = scaled(0.2, np.array(SCALE), np.zeros(30), np.zeros(30), np.ones(30))
    assert own[:3] == pytest.approx([1, 1, 1])
    assert own[3:] == pytest.approx([3 / 27] * 27)


@given(
    scale=st.lists(st.floats(0.01, 8), min_size=1, max_size=12),
    share=st.floats(0.01, 1),
    least=st.floats(0, 1),
)
def test_what_heads_get_in_any_case_is_taken_from_the_others(scale, share, least):
    scale = np.array(scale)
    own = scaled(share, scale, np.zeros(len(scale)), np.full(len(scale), least), np.ones(len(scale)))
    assert own.min() >= least
    assert own.max() <= 1
    assert own.mean() == pytest.approx(max(share, least))
    assert np.all(np.diff(own[scale.argsort()]) >= 0)


@pytest.mark.parametrize("share", [-0.2, 0.0, 0.125])
def test_a_share_below_what_is_read_in_any_case_leaves_nothing_to_scale(share):
    least = np.full(3, 0.125)
    assert scaled(share, np.array([2.0, 0.5, 0.5]), least / 2, least, np.ones(3)) == pytest.approx(least)
