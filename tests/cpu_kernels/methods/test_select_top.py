"""Which items query heads choose for themselves. tests/runtime/methods/test_scorers.py tests what groups select."""

import numpy as np
from helpers import oracle
from helpers.kernel_inputs import Room
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.cpu_kernels.layout.head import HEAD
from octavo.cpu_kernels.layout.scores import padded, selection_scratch_bytes
from octavo.cpu_kernels.methods.select_top import choose_apart
from octavo.cpu_kernels.numba_support.shape import Shape


@settings(max_examples=200, deadline=None)
@given(
    group=st.sampled_from([1, 3]),
    n_items=st.integers(1, 70),
    n_own=st.integers(1, 80),
    n_all=st.integers(1, 80),
    alike=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_query_heads_choose_apart(group, n_items, n_own, n_all, alike, seed):
    """Query heads may like the same items best, or others; all like the last one best, as methods have it."""
    rng, n = np.random.default_rng(seed), padded(n_items)
    scores = np.full((group, n), -1, np.float32)
    for own in scores:
        own[:n_items] = np.sort(rng.random(n_items, np.float32)) if alike else rng.random(n_items, np.float32)
    scores[:, n_items - 1] = np.inf
    scratch, head = Room(selection_scratch_bytes(group, n)), np.zeros(1, HEAD)
    scratch.view(np.float32, group, n, at=8 * n)[:] = scores
    head["scratch"], head["scratch_items"] = scratch.address, n
    count = choose_apart(Shape(64, group), head[0], n, n_own, n_all)
    scratch.check()
    choices = scratch.view(np.int64, n)
    expected = oracle.choices_apart(scores, n_own, n_all)
    assert (choices == expected.T @ (1 << np.arange(group))).all()
    assert count == (choices != 0).sum()
    assert count <= n_all
