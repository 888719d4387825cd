"""Which budgets layers get by their sensitivity, and when they are better than equal ones."""

import json

import numpy as np
import pytest

import octavo
from octavo.convert.plan.allocation import Check, Checker, Kept, factors, layer_budgets, layer_change, prose_text
from octavo.convert.plan.heads import HIDDEN, recall
from octavo.convert.plan.recall_texts import SHIPPED_NOVEL, Haystack
from octavo.progress import Silent

SENSITIVITY = [0.1, None, 0.4, 0.5, 0.0]


def test_budgets_go_by_a_power_of_the_sensitivity():
    equal, root, whole = (factors(SENSITIVITY, power) for power in (0.0, 0.5, 1.0))
    assert equal == [1.0] * 5
    assert whole == pytest.approx([0.4, 1.0, 1.6, 2.0, 0.0], abs=1e-3)
    own = [0, 2, 3, 4]
    assert np.mean([root[i] for i in own]) == pytest.approx(1, abs=1e-3)
    assert root[2] / root[0] == pytest.approx(2, rel=1e-3)
    dense = factors(SENSITIVITY, 1.0, n_dense=3)
    assert dense == pytest.approx([1.0, 1.0, 1.0, 2.0, 0.0], abs=1e-3)
    assert factors([None, None], 0.5) == [1.0, 1.0]


class Written(Checker):
    """Checks whose figures are written down: divergences and share by power."""

    def __init__(self, figures, more=None):
        self.figures, self.more, self.asked = figures, more, []

    def _check(self, method, power, budget):
        self.asked.append((round(power, 2), budget))
        if budget != 0.125:
            return Check(power, *self.more)
        return Check(power, *self.figures[round(power, 2)])


EQUAL = ((0.5, 0.02), 0.125)


@pytest.mark.parametrize(
    ("third", "half", "used"),
    [
        (((0.4, 0.019), 0.125), ((0.3, 0.021), 0.125), 0.33),  # the half is better on one text only, and by more
        (((0.4, 0.019), 0.125), ((0.3, 0.018), 0.125), 0.5),
        (((0.6, 0.01), 0.125), ((0.7, 0.01), 0.125), 0),
        (EQUAL, EQUAL, 0),
    ],
)
def test_unequal_budgets_have_to_be_better_on_both_texts(third, half, used):
    first, second = Written({0: EQUAL, 0.33: third, 0.5: half}).best("h2o")
    assert round(first.power, 2) == used
    assert {bool(first.power), bool(second.power)} == {True, False}


def test_a_method_that_reads_more_is_compared_with_as_much():
    figures = {0: EQUAL, 0.33: ((0.4, 0.019), 0.15), 0.5: ((0.4, 0.019), 0.15)}
    better = Written(figures, more=((0.3, 0.018), 0.15))
    assert better.best("h2o")[0].divergence == (0.3, 0.018)
    assert (0, 0.15) in better.asked
    worse = Written(figures, more=((0.45, 0.0195), 0.15))
    assert worse.best("h2o")[0].power > 0


def test_a_plan_says_both_figures():
    checks = {"h2o": [Check(0.5, (0.3, 0.018), 0.125), Check(0.0, (0.5, 0.02), 0.125)]}
    budgets = layer_budgets(checks, SENSITIVITY)
    assert budgets["budget_scale"]["h2o"] == factors(SENSITIVITY, 0.5)
    assert budgets["checks"] == {"equal": {"h2o": [0.5, 0.02]}, "by_sensitivity": {"h2o": [0.3, 0.018]}}


def test_numbers_are_kept(tmp_path):
    kept = Kept(tmp_path / "numbers.json", Silent())
    assert kept.get("a", lambda: 1.5) == 1.5
    again = Kept(tmp_path / "numbers.json", Silent())
    assert again.get("a", lambda: 2.5) == 1.5
    assert again.count(["a", "b"]) == 1
    assert json.loads((tmp_path / "numbers.json").read_text()) == {"a": 1.5}


def test_a_layer_that_sees_less_changes_the_hidden_states(tiny_model):
    llama = octavo.Llama(tiny_model, n_threads=1)
    text = prose_text(Haystack(llama, SHIPPED_NOVEL.read_text("utf-8")), 600, 0)
    assert len(text.tokens) == 600
    assert text.recalled[-1] == 599
    llama.eval(text.tokens[: text.n_read])
    hidden = recall(llama, text)[HIDDEN]
    changes = [layer_change(llama, text, hidden, layer) for layer in range(3)]
    assert min(changes) > 1e-6
    assert len(set(changes)) == 3
    np.testing.assert_array_equal(recall(llama, text)[HIDDEN], hidden)
