"""How layers are ranked (SqueezeAttention, algorithm 1), and in which order heads are eliminated."""

import numpy as np
import pytest
from helpers import papers, tiny_models

import octavo
from octavo.convert.plan.heads import (
    HIDDEN,
    change,
    cross_entropy,
    eliminate,
    evaluate,
    full_heads,
    recall,
    round_sizes,
    streaming,
)
from octavo.convert.plan.layer_importance import ResidualChange
from octavo.convert.plan.recall_texts import PASSKEYS, recall_text
from octavo.runtime.methods.layer_budgets import budget_scales, importance_groups


def draw(seed=0):
    return np.random.default_rng(seed)


# Layers


@pytest.mark.parametrize("architecture", tiny_models.RUN)
def test_the_residual_stream_is_compared_around_attention(tmp_path, architecture):
    n_layer = 6 if architecture == "gemma3" else 3
    path = tiny_models.write_model(tmp_path / "model.gguf", architecture, n_layer=n_layer)
    model = octavo.Llama(path, n_threads=2)
    found, residual = {}, ResidualChange(n_layer)
    after = "sa_out" if architecture.startswith("gemma") else "ffn_inp"

    def take(name, values):
        found.setdefault(name, []).append(values)
        if residual.wants(name):
            residual.take(name, values)
        return name != HIDDEN

    def wants(name):
        return residual.wants(name) or name == HIDDEN or name.startswith("attn_post_norm")

    tokens = draw().integers(0, 256, 700).tolist()  # two batches
    evaluate(model, tokens, np.ones(700, bool), wants, take)
    found = {name: np.concatenate(values).astype(np.float64) for name, values in found.items()}
    expected = []
    for i in range(n_layer):
        a, b = found["embd" if i == 0 else f"l_out-{i - 1}"], found[f"{after}-{i}"]
        if i and after == "sa_out":  # what lies between is what attention adds
            np.testing.assert_allclose(b - a, found[f"attn_post_norm-{i}"], atol=1e-4)
        expected.append(np.mean([x @ y / np.sqrt((x @ x) * (y @ y)) for x, y in zip(a, b, strict=True)]))
    np.testing.assert_allclose(residual.means, expected, rtol=1e-6)
    assert 0.1 < min(expected) < max(expected) < 0.999


def test_a_graph_that_does_not_name_the_residual_stream_tells_nothing():
    residual = ResidualChange(2)
    rows = draw().normal(size=(5, 8))
    residual.take("embd", rows)
    residual.take("ffn_inp-0", rows)
    residual.take("ffn_inp-1", rows)  # without l_out-0
    assert residual.means.shape == (0,)


SIMILARITY = [0.20, 0.96, 0.25, 0.60, 0.95, 0.65]


def test_budgets_as_in_algorithm_1():
    groups = importance_groups(SIMILARITY, [False] * 6)
    assert groups == [0, 2, 0, 1, 2, 1]
    scales = budget_scales(groups, 0.35)
    np.testing.assert_allclose(scales, [1.325, 0.35, 1.325, 1.325, 0.35, 1.325])
    assert sum(scales) == pytest.approx(6)
    assert budget_scales(groups, 1.0) == [1.0] * 6


@pytest.mark.parametrize("n_layers", [3, 8, 30])
@pytest.mark.parametrize("seed", range(5))
def test_budgets_are_those_of_the_paper(n_layers, seed):
    similarity = 1 - draw(seed).exponential(0.1, n_layers)
    expected = papers.squeeze_budgets(similarity, 512, 0.35)
    scales = budget_scales(importance_groups(similarity, [False] * n_layers), 0.35)
    np.testing.assert_allclose(512 * np.array(scales), expected)


def test_layers_that_slide_have_no_part_in_it():
    similarity = [0.5, *SIMILARITY, 0.99]
    groups = importance_groups(similarity, [True, *[False] * 6, True])
    assert groups == [None, 0, 2, 0, 1, 2, 1, None]
    scales = budget_scales(groups, 0.2)
    assert (scales[0], scales[-1]) == (1.0, 1.0)
    np.testing.assert_allclose(scales[1:-1], [1.4, 0.2, 1.4, 1.4, 0.2, 1.4])


@pytest.mark.parametrize(
    ("similarity", "expected"),
    [([0.5], [1.0]), ([0.5] * 4, [1.0] * 4), ([0.5, 0.9], [1.65, 0.35]), ([0.9, 0.5, 0.9], [0.35, 2.3, 0.35])],
)
def test_few_layers_make_fewer_groups(similarity, expected):
    np.testing.assert_allclose(budget_scales(importance_groups(similarity, [False] * len(similarity)), 0.35), expected)


def test_only_layers_that_slide():
    assert budget_scales(importance_groups([0.5, 0.6], [True, True]), 0.35) == [1.0, 1.0]


# Heads

HEADS = [(layer, head) for layer in range(10) for head in range(3)]


def test_rounds_shrink_evenly():
    assert round_sizes(90, 6) == [90, 43, 20, 9, 4, 2]
    assert round_sizes(90, 1) == [90]
    assert round_sizes(1, 6) == [1]
    for n_heads in (2, 5, 30):
        sizes = round_sizes(n_heads, 1000)
        assert sizes == sorted(set(sizes), reverse=True)  # each round eliminates one at least
        assert (sizes[0], sizes[-1]) == (n_heads, 1)


@pytest.mark.parametrize("rounds", [1, 4, 100])
def test_heads_are_eliminated_by_the_loss_without_them(rounds):
    cost = dict(zip(HEADS, draw().permutation(30) + 1.0, strict=True))

    def measure(number, streams, candidates):
        assert not set(streams) & set(candidates)
        assert len(streams) + len(candidates) == 30
        return [sum(cost[head] for head in (*streams, candidate)) for candidate in candidates]

    eliminated = eliminate(HEADS, rounds, measure)
    assert [each.head for each in eliminated] == sorted(HEADS, key=lambda head: cost[head])
    assert [each.round for each in eliminated] == sorted(each.round for each in eliminated)
    assert eliminated[0].loss == 1.0
    if rounds == 100:
        assert eliminated[-1].loss == pytest.approx(sum(cost.values()))


def test_of_two_heads_that_stand_in_for_each_other_one_stays():
    twins = [(2, 1), (7, 0)]

    def measure(number, streams, candidates):
        def lost(streaming_heads):
            return 100.0 * all(twin in streaming_heads for twin in twins) + len(streaming_heads)

        return [lost([*streams, candidate]) + 0.01 * candidate[0] for candidate in candidates]

    at_once = [each.head for each in eliminate(HEADS, 1, measure)]
    assert at_once[-1] not in twins
    in_rounds = [each.head for each in eliminate(HEADS, 6, measure)]
    assert in_rounds[-1] in twins


@pytest.fixture
def loaded(llama, haystack):
    """A text that was read, and its hidden states with full attention."""
    text = recall_text(PASSKEYS, haystack, 1024, 0)
    llama.reset()
    llama.eval(text.tokens[: text.n_read])
    return text, recall(llama, text)[HIDDEN]


def test_what_streams_changes_the_hidden_states_and_is_undone(llama, loaded):
    text, full = loaded
    cache = llama.context.cache
    assert change(recall(llama, text)[HIDDEN], full) == 0  # the same rows, the same kernels
    losses = []
    for heads in ([(1, 0)], full_heads(cache)):
        with streaming(cache, heads, 16, 32):
            losses.append(change(recall(llama, text)[HIDDEN], full))
    assert 0 < losses[0] < losses[1]
    with streaming(cache, full_heads(cache), 16, 5000):  # sees all
        assert change(recall(llama, text)[HIDDEN], full) < 1e-6
    assert change(recall(llama, text)[HIDDEN], full) == 0
    assert cache.n_tokens == text.n_read


def test_the_loss_is_the_cross_entropy_of_the_recalled_tokens():
    logits = np.log(np.array([[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]], np.float32)) + np.float32([[90], [-90]])
    assert cross_entropy(logits, np.array([0, 1])) == pytest.approx((np.log(2) + np.log(10)) / 2, rel=1e-5)


def test_hidden_states_are_those_that_logits_come_from(llama, loaded):
    text, full = loaded
    recalled = recall(llama, text, logits=True)
    np.testing.assert_array_equal(recalled[HIDDEN], full)
    assert len(full) == len(text.recalled)
    last = text.recalled[-1]
    llama.eval(text.tokens[text.n_read : last])
    np.testing.assert_allclose(recalled["result_output"][-1], llama.logits(), atol=0.05)
