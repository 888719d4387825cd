"""What a method that only scores selects, against its twin in NumPy: for methods of the table, and for new ones."""

from types import SimpleNamespace

import numpy as np
from helpers import oracle
from helpers.kernel_heads import Head, assert_largest, queries_of
from helpers.kernel_inputs import normal
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.cpu_kernels.layout.head import HEAD
from octavo.cpu_kernels.methods.select_top import select_top
from octavo.runtime.methods.method import Heads


def ordinary(rng, keys):
    pass


def alike(rng, keys):
    keys[:] = keys[0]


def zero(rng, keys):
    keys[:] = 0


def huge(rng, keys):
    keys *= 1000


def far_apart(rng, keys):
    keys *= np.where(rng.random((len(keys), 1)) < 0.5, 1e-4, 100)


def one_number(value):
    """Write a number that is not finite into a key."""

    def write(rng, keys):
        keys[rng.integers(len(keys)), rng.integers(keys.shape[1])] = value

    return write


#: What is done to random keys.
KEYS = {
    "ordinary": ordinary,
    "alike": alike,
    "zero": zero,
    "huge": huge,
    "far apart": far_apart,
    "a NaN": one_number(np.nan),
    "an inf": one_number(np.inf),
    "a -inf": one_number(-np.inf),
}


class ScoredHead:
    """A KV head that a method serves as it does in a model: by its hooks, with the state that its budget sets."""

    def __init__(self, method, shape, keys, softcap=0.0):
        self.method, n_rows = method, len(keys)
        sizes = np.zeros(1, HEAD)
        sizes["n_tail"], sizes["shape"] = n_rows, shape.packed
        kernels = SimpleNamespace(STATE=method.state, extras_bytes=method.extras_bytes)
        n_items = method.n_items(self._heads(sizes, shape, np.zeros(1, method.state)))
        self.head = Head(shape, keys, n_items=n_items, method=kernels, softcap=softcap)
        if method.hooks.append is not None:
            method.hooks.append(shape, self.head.address, 0, n_rows)
        heads = self._heads(self.head.record, shape, self.head.state)
        method.start(heads, None)
        method.before_step(heads, None, n_rows)
        self.state, self.n_items = self.head.state[0], -(-n_rows // method.item_rows)
        self.item_bytes = int(np.max(method.item_bytes(heads)))

    @staticmethod
    def _heads(records, shape, state):
        return Heads(records, np.zeros(1, int), np.ones(1), [shape], [None], 0, state)

    def select(self, queries, n_parts):
        """Return the rows that are selected, in order."""
        most = self.n_items + 3 * len(self.head.chunks) + 2
        self.head.score(self.method.hooks.score, queries, n_parts)
        return self.head.rows(self.head.select(self.method.hooks.select, queries, most))


def assert_selects_as_twin(method, twin, shape, kind, n_rows, n_parts=1, softcap=0.0, seed=0):
    """Compare what a method selects in one head with what the scores of its twin say.

    method : a ScorerMethod    twin : one of `oracle.ITEM_SCORES`    kind : one of KEYS
    """
    rng = np.random.default_rng(seed)
    keys = normal(rng, n_rows, shape.head_dim)
    KEYS[kind](rng, keys)
    scored, queries = ScoredHead(method, shape, keys, softcap), queries_of(rng, shape)
    rows, everything = scored.select(queries, n_parts), list(range(n_rows))
    with np.errstate(all="ignore"):
        scores = twin(queries[0], scored.head.keys, scored.state)
        importance = oracle.shares(oracle.capped(scores, softcap))
    if np.isnan(importance).any():
        assert rows == everything, "so that the NaN reaches the output"
        return
    if not np.isfinite(keys).all() and rows == everything:
        return  # a kernel may meet 0 * inf where its twin does not
    items = sorted({row // method.item_rows for row in rows})
    assert rows == [row for row in everything if row // method.item_rows in items], "whole items"
    n_selected = int(scored.state["n_selected" if "n_selected" in method.state.names else "n_rows"])
    importance[max(scored.n_items - int(scored.state["n_recent"]), 0) :] = np.inf
    assert_largest(items, importance, n_selected)
    if kind == "zero":  # of keys that are alike, sums may be rounded in two ways
        assert items == oracle.top(importance, n_selected), "of equal ones the first"
    if method.hooks.select is select_top:
        assert scored.head.record["bytes_read"] == scored.n_items * scored.item_bytes


def check(method_class, twin, shape, kind):
    """Compare the selections of a method with its twin's, on heads of any length and for any budget."""

    @settings(max_examples=40, deadline=None)
    @given(
        n_rows=st.integers(1, 1100),
        budget=st.sampled_from([0.02, 0.1, 0.3, 0.9, 1.0]),
        n_parts=st.sampled_from([1, 2, 5]),
        softcap=st.sampled_from([0.0, 3.0]),
        seed=st.integers(0, 2**32 - 1),
    )
    def on_any_head(n_rows, budget, n_parts, softcap, seed):
        assert_selects_as_twin(method_class(budget), twin, shape, kind, n_rows, n_parts, softcap, seed)

    on_any_head()
    for n_rows in (1, 2, 16, 17, 256, 257):
        for budget in (0.02, 0.5, 1.0):
            assert_selects_as_twin(method_class(budget), twin, shape, kind, n_rows)
