"""The budget that is found for a share, for methods that read as real ones do."""

from math import ceil

import pytest

from octavo.evaluation.matching import Unreachable, matched

TARGETS = [0.5, 0.25, 0.125, 0.0625]


class Measured:
    """A method by its curve; counts how often it is measured."""

    def __init__(self, curve):
        self.curve, self.budgets = curve, []

    def __call__(self, budget):
        assert 0 < budget <= 1
        self.budgets.append(budget)
        return self.curve(budget)


def offset(budget):
    """Something is always read, as by dense layers."""
    return 0.04 + 0.96 * budget


def slope(budget):
    """Keys are read twice, as by H2O."""
    return 1.5 * budget


def steps(budget):
    """Whole pages, of which there are 400."""
    return 0.01 + ceil(400 * budget) / 400


def bent(budget):
    return budget**0.5 / 2


def floored(budget):
    """A lookup is paid in any case."""
    return max(budget, 0.05) + 0.002


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("curve", [float, offset, slope, steps, bent, floored])
def test_the_budget_reads_the_share(curve, target):
    measure = Measured(curve)
    budget = matched(measure, target, target)
    assert curve(budget) == pytest.approx(target, rel=0.02)
    assert len(measure.budgets) <= 7
    assert len(set(measure.budgets)) == len(measure.budgets)


def test_what_is_right_at_once_is_measured_once():
    measure = Measured(float)
    assert matched(measure, 0.25, 0.25) == 0.25
    assert measure.budgets == [0.25]
    measure = Measured(slope)
    assert matched(measure, 0.3, 0.2) == 0.2  # a good guess
    assert measure.budgets == [0.2]


def test_all_of_it_takes_all_of_the_budget():
    assert matched(Measured(float), 1.0, 1.0) == 1.0


@pytest.mark.parametrize("start", [0.01, 1.0, 7.0])
def test_any_start_will_do(start):
    assert offset(matched(Measured(offset), 0.25, start)) == pytest.approx(0.25, rel=0.02)


def test_the_nearest_is_taken_where_steps_leave_no_better():
    """With 15 pages a quarter is 4 of them, 0.267, or 3, 0.2."""
    budget = matched(Measured(lambda budget: ceil(15 * budget) / 15), 0.25, 0.25)
    assert ceil(15 * budget) == 4


@pytest.mark.parametrize("target", [0.25, 0.5])
def test_a_floor_above_the_share_is_out_of_reach(target):
    measure = Measured(lambda budget: 0.6 + 0.4 * budget)
    with pytest.raises(Unreachable) as unreachable:
        matched(measure, target, target)
    assert unreachable.value.share == min(map(measure.curve, measure.budgets))
    assert unreachable.value.share == pytest.approx(0.6, abs=0.03)
    assert len(measure.budgets) <= 8


def test_a_flat_floor_is_seen_at_once():
    measure = Measured(lambda budget: 0.6)
    with pytest.raises(Unreachable) as unreachable:
        matched(measure, 0.25, 0.25)
    assert unreachable.value.share == 0.6
    assert len(measure.budgets) == 2
