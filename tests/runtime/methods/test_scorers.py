"""Each method that only scores selects what its twin in NumPy says (see `oracle.ITEM_SCORES`), on hostile keys, too."""

import pytest
from helpers import oracle, scorers
from helpers.kernel_inputs import SHAPE

from octavo.cpu_kernels.numba_support.shape import Shape
from octavo.runtime.methods import METHODS, method_class
from octavo.runtime.methods.scorer import ScorerMethod

pytestmark = pytest.mark.sampled

SCORERS = [name for name in METHODS if issubclass(method_class(name), ScorerMethod)]


def test_quest_and_sparq_only_score():
    assert {"quest", "sparq"} <= set(SCORERS)


@pytest.mark.parametrize("name", SCORERS)
@pytest.mark.parametrize("shape", [SHAPE, Shape(72, 1)], ids=["a group", "one query head"])
@pytest.mark.parametrize("kind", scorers.KEYS)
def test_a_scorer_selects_as_its_twin(name, shape, kind):
    scorers.check(method_class(name), oracle.ITEM_SCORES[name], shape, kind)
