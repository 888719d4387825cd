"""SparQ's parameters: how a budget becomes components and rows, and what a step then reads."""

import itertools

import numpy as np
import pytest
from helpers.kernel_heads import ONE_COPY, queries_of, random_head
from helpers.kernel_inputs import EACH, QUANTISED, SHAPE

from octavo.cpu_kernels.layout.head import HEAD
from octavo.cpu_kernels.methods import sparq
from octavo.cpu_kernels.numba_support.shape import F16, Q4_0, Q8_0, Shape
from octavo.runtime.methods.attention import Attention
from octavo.runtime.methods.method import Heads
from octavo.runtime.methods.sparq import LEAST_ROWS, SparQ

pytestmark = pytest.mark.sampled

SHAPES = [Shape(head_dim, group, kv) for head_dim in (64, 80, 128, 256) for group in (1, 4) for kv in (F16, Q8_0, Q4_0)]
DEPTHS = [600, 2_000, 8_000, 30_000]


def state_of(method, shape, n_tokens, scale=1.0):
    """The record of one head before a step."""
    state = np.zeros(1, method.state)
    heads = Heads(np.zeros(1, HEAD), np.arange(1), np.array([scale]), [shape], [None], 32_768, state)
    method.start(heads, None)
    method.before_step(heads, None, n_tokens)
    return state[0]


def share_read(shape, n_tokens, state):
    """The bytes of a step with two copies over those of all rows."""
    if state["n_rows"] >= n_tokens:
        return 1.0
    component, scale = (2, 0) if shape.kv_type == F16 else (1, 2)
    lookup = n_tokens * (component * state["n_components"] + scale)
    if not (state["by_query"] and state["by_coverage"]):
        lookup += 8 * shape.head_dim * min(n_tokens // 256, 8)
    if state["reallocates"]:
        lookup += 4 * shape.head_dim * -(-n_tokens // 256)
    return (state["n_rows"] * 2 * shape.row_bytes + lookup) / (n_tokens * 2 * shape.row_bytes)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("budget", [0.0625, 0.125, 0.25, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("settings", [{}, {"components": "query", "temperature": "l1"}, {"reallocate": "on"}], ids=str)
def test_what_is_read_is_the_budget(shape, budget, settings):
    for n_tokens in DEPTHS:
        state = state_of(SparQ(budget, **settings), shape, n_tokens)
        if state["n_rows"] > LEAST_ROWS:
            assert share_read(shape, n_tokens, state) == pytest.approx(budget, rel=0.05)
        elif shape.kv_type == Q4_0:
            assert budget <= 0.125, "moments and the scales of the copy are more of a row of 4 bits"
        else:
            assert (n_tokens, budget) == (600, 0.0625), "the rows that are read in any case"


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("r", "k"), [(4, 0), (16, 0), (0, 128), (0, 400)])
def test_what_r_or_k_leaves_goes_to_the_other(shape, r, k):
    for n_tokens, budget in itertools.product((8_000, 30_000), (0.25, 0.5)):
        state = state_of(SparQ(budget, r=r, k=k), shape, n_tokens)
        assert state["n_components"] == r or r == 0
        assert state["n_rows"] == k or k == 0
        if state["n_components"] < shape.head_dim and state["n_rows"] > LEAST_ROWS:  # more, or fewer, there are not
            assert share_read(shape, n_tokens, state) == pytest.approx(budget, rel=0.05)


@pytest.mark.parametrize("shape", EACH)
def test_query_heads_that_select_apart_have_r_and_k_of_their_own(shape):
    state = state_of(SparQ(r=5, k=40, select="head"), shape, 5_000)
    assert (state["n_own_components"], state["n_own"], state["n_recent"]) == (5, 40, 10)
    assert (state["n_components"], state["n_rows"]) == (15, 120)
    alone, together = (state_of(SparQ(select=each), Shape(64, 1), 5_000) for each in ("head", "group"))
    assert alone == together, "one query head is a group"


@pytest.mark.parametrize("shape", EACH)
def test_r_and_k_have_no_budget(shape):
    states = [state_of(SparQ(budget, r=32, k=128), shape, 5_000) for budget in (0.01, 0.125, 1.0)]
    for state in states:
        assert (state["n_components"], state["n_rows"], state["n_recent"]) == (32, 128, 32)
    assert state_of(SparQ(r=500, k=128), shape, 90)["n_components"] == shape.head_dim
    assert state_of(SparQ(r=500, k=128), shape, 90)["n_rows"] == 90
    assert state_of(SparQ(r=5, k=3), shape, 90)["n_rows"] == 3


@pytest.mark.parametrize("shape", EACH)
def test_a_plan_scales_what_is_read(shape):
    for scale, budget in ((0.5, 0.0625), (2.0, 0.25), (9.0, 1.0)):
        assert share_read(shape, 8_000, state_of(SparQ(0.125), shape, 8_000, scale)) == pytest.approx(budget, rel=0.05)
    state = state_of(SparQ(r=16, k=100, select="head"), shape, 8_000, 0.5)
    assert (state["n_own"], state["n_rows"], state["n_components"]) == (50, 50 * shape.group, 16 * shape.group)


@pytest.mark.parametrize("group", [1, 3])
@pytest.mark.parametrize(("reallocate", "expected"), [("on", {1, 3}), ("off", set()), ("auto", {1})])
def test_the_mean_value_is_used(group, reallocate, expected):
    """By default as in the paper: where a KV head has one query head."""
    assert state_of(SparQ(reallocate=reallocate), Shape(64, group), 600)["reallocates"] == (group in expected)


@pytest.mark.parametrize("shape", EACH)
@pytest.mark.parametrize("n_tokens", [600, 3_000])
@pytest.mark.parametrize(
    ("layout", "budget", "r"),
    [("two", 0.125, 0), ("two", 0.5, 0), ("two", 1.0, 0), ("one", 0.75, 0), ("one", 0.65, 1), ("one", 1.0, 0)],
)
@pytest.mark.parametrize("reallocate", ["on", "off"])
@pytest.mark.parametrize("select", ["group", "head"])
def test_the_kernels_count_what_was_asked_for(shape, n_tokens, layout, budget, r, reallocate, select):
    """One copy reads lines, and query heads components of their own: what they leave goes to rows."""
    if layout == "one" and shape.rotated:
        pytest.skip("rotated rows lack columns: octavo refuses that")
    method = SparQ(budget, layout=layout, r=r, reallocate=reallocate, select=select)
    state = state_of(method, shape, n_tokens)
    kernels = sparq if layout == "two" else ONE_COPY
    rng = np.random.default_rng(0)
    head = random_head(rng, shape, 0, n_tokens, method=kernels)
    head.set(**{name: state[name] for name in method.state.names})
    hooks = method.hooks
    assert hooks is kernels.HOOKS
    rows = head.rows(head.score_and_select(hooks.score, hooks.select, queries_of(rng, shape), n_tokens))
    read = head.record["bytes_read"][0] + len(rows) * 2 * shape.row_bytes
    assert read == pytest.approx(budget * n_tokens * 2 * shape.row_bytes, rel=0.05)


@pytest.mark.parametrize("shape", [SHAPE, QUANTISED, Shape(128, 1), Shape(128, 1, Q8_0)], ids=str)
def test_one_copy_takes_no_memory_for_keys(shape):
    two, one = (SparQ(layout=layout).extras_bytes(shape) / (2 * 256 * shape.row_bytes) for layout in ("two", "one"))
    assert two == pytest.approx(0.5, abs=0.03)
    assert one < 0.03


def test_the_preset_is_the_paper():
    method = Attention.parse("sparq:paper", budget=0.125).new_method()
    assert (method.r, method.k, method.recent) == (32, 128, 0.25)
    assert (method.components, method.temperature, method.reallocate) == ("query", "l1", "auto")
    assert not method.takes_budget


def test_metal_has_our_own_rules_only():
    assert SparQ().on_metal
    assert SparQ(0.5, r=3, k=90, recent=0.5, reallocate="on").on_metal
    for settings in ({"components": "query"}, {"temperature": "l1"}, {"layout": "one"}, {"select": "head"}):
        assert not SparQ(**settings).on_metal
