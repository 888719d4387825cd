"""Spans: runs that follow one another are one span, and nothing else is."""

import numpy as np
import pytest
from helpers.kernel_inputs import SHAPE

from octavo.cpu_kernels.layout.head import ANY_ORDER
from octavo.cpu_kernels.layout.spans import SPAN, add_list, add_run


def runs(spans, n_spans):
    return [
        tuple(int(span[name]) for name in ("keys", "values", "n_rows", "position", "window"))
        for span in spans[:n_spans]
    ]


def test_a_run_that_follows_the_last_lengthens_it():
    spans = np.zeros(4, SPAN)
    n = add_run(SHAPE, 1000, 5000, 3, ANY_ORDER, 0, spans, 0)
    n = add_run(SHAPE, 1000 + 3 * 128, 5000 + 3 * 128, 2, ANY_ORDER, 0, spans, n)
    assert runs(spans, n) == [(1000, 5000, 5, ANY_ORDER, 0)]


@pytest.mark.parametrize(
    ("keys", "values", "position"),
    [(1384, 5384, 3), (1385, 5384, -1), (1384, 9384, -1), (1000, 5000, -1), (872, 4872, -1)],
    ids=["it has a position", "other keys", "other values", "the same again", "the one before"],
)
def test_other_runs_are_spans_of_their_own(keys, values, position):
    spans = np.zeros(4, SPAN)
    n = add_run(SHAPE, 1000, 5000, 3, ANY_ORDER, 0, spans, 0)
    n = add_run(SHAPE, keys, values, 2, position, 9, spans, n)
    assert runs(spans, n) == [(1000, 5000, 3, ANY_ORDER, 0), (keys, values, 2, position, 9)]


def test_runs_with_positions_are_not_joined():
    """The last has a position: what follows it in any order must stay visible to all."""
    spans = np.zeros(4, SPAN)
    n = add_run(SHAPE, 1000, 5000, 3, 0, 0, spans, 0)
    assert add_run(SHAPE, 1384, 5384, 2, ANY_ORDER, 0, spans, n) == 2


def test_a_run_does_not_lengthen_a_list():
    """Three listed rows from address 1000 on need not be the first three there."""
    spans = np.zeros(4, SPAN)
    n = add_list(1000, 5000, 3, 70000, spans, 0)
    assert add_run(SHAPE, 1384, 5384, 2, ANY_ORDER, 0, spans, n) == 2
    assert spans["n_rows"][:2].tolist() == [3, 2]
    assert spans["rows"][:2].tolist() == [70000, 0]


@pytest.mark.parametrize("n_rows", [0, -3])
def test_a_run_of_nothing_is_no_span(n_rows):
    spans = np.zeros(1, SPAN)
    assert add_run(SHAPE, 1000, 5000, n_rows, ANY_ORDER, 0, spans, 0) == 0
    assert spans[0]["keys"] == 0
