"""Heavy hitters: the attention that rows get, which of them stay, and that those stay intact."""

import numpy as np
import pytest
from helpers import oracle, papers
from helpers.attention_cases import attend_spans
from helpers.kernel_heads import Head, queries_of
from helpers.kernel_inputs import (
    EACH,
    QUANTISED,
    SAME,
    SHAPE,
    THREADS,
    LoadedQuery,
    normal,
    read_rows,
    relative_error,
    store_rows,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.cpu_kernels.layout.head import ANY_ORDER
from octavo.cpu_kernels.layout.scores import score_rows
from octavo.cpu_kernels.methods import h2o
from octavo.cpu_kernels.methods.h2o import evict, select_kept
from octavo.cpu_kernels.numba_support.shape import Shape
from octavo.cpu_kernels.rows.tiles import CHUNK_ROWS

pytestmark = pytest.mark.sampled

MASSES = {
    "random": lambda rng, n: rng.random(n),
    "ties": lambda rng, n: rng.integers(0, 3, n),
    "zeros": lambda rng, n: np.zeros(n),
    "some are not numbers": lambda rng, n: np.where(rng.random(n) < 0.1, np.nan, rng.random(n)),
    "none is a number": lambda rng, n: np.full(n, np.nan),
    "far apart": lambda rng, n: 10.0 ** rng.integers(-30, 30, n),
}


class HeavyHead(Head):
    """A head with room for so many rows, which begins with none."""

    def __init__(self, shape, capacity, **fields):
        super().__init__(shape, np.zeros((capacity, shape.head_dim)), method=h2o, **fields)
        self.set(n_tail=0)
        self.n_tail = 0
        for number, chunk in enumerate(self.chunks):
            chunk.bytes[:] = 0xFF
            self.slots(number)[2][:] = 0

    def append(self, keys, values=None):
        """Rows of a step, as `append_rows` stores them."""
        stored = [store_rows(self.shape, rows) for rows in (keys, keys if values is None else values)]
        for row, key, value in zip(range(self.n_tail, self.n_tail + len(keys)), *stored, strict=True):
            self._stored(row, 0)[:], self._stored(row, self._value_offset)[:] = key, value
        self.n_tail += len(keys)
        self.set(n_tail=self.n_tail)

    def _stored(self, row, offset):
        first = offset + row % CHUNK_ROWS * self.shape.row_bytes
        return self.chunks[row // CHUNK_ROWS].bytes[first : first + self.shape.row_bytes]

    def select(self, queries, n_parts=1):
        if len(queries) == 1:
            self.score(score_rows, queries, n_parts)
        return super().select(select_kept, queries, 2 * len(self.chunks) + 1)

    def evict(self):
        evict(self.shape, self.address, 1)
        for chunk in range(len(self.chunks)):
            self.slots(chunk)[2][:] = 0
        self.n_tail = int(self.record["n_tail"][0])
        for room in (self.scratch, *self.chunks):
            room.check()

    @property
    def positions(self):
        return self._all_slots(0)[: self.n_tail]

    @property
    def masses(self):
        """What rows got before the step, and what they get in it if it is not ended."""
        return (self._all_slots(1) + self._all_slots(2))[: self.n_tail]

    def _all_slots(self, kind):
        return np.concatenate([self.slots(chunk)[kind] for chunk in range(len(self.chunks))])

    def fill_slots(self, positions, masses):
        for chunk in range(-(-len(positions) // CHUNK_ROWS)):
            own = slice(chunk * CHUNK_ROWS, (chunk + 1) * CHUNK_ROWS)
            filled = positions[own], masses[own], np.zeros(len(masses[own]))
            for slots, values in zip(self.slots(chunk), filled, strict=True):
                slots[: len(values)] = values

    def contents(self):
        """Keys and values, as they are stored, and attention, by position."""
        rows = range(self.n_tail)
        stored = [b"".join(self._stored(row, at).tobytes() for at in (0, self._value_offset)) for row in rows]
        return {
            int(position): (row, mass.tobytes())
            for position, row, mass in zip(self.positions, stored, self.masses, strict=True)
        }


def loaded(shape, queries):
    """What stored rows are multiplied by, with queries of one token or of many."""
    return np.stack([LoadedQuery(shape, query).floats for query in queries])


def random_step(rng, head, n_tokens, spread=0.3):
    """Append rows; returns their queries and what their keys are as they are stored."""
    keys = normal(rng, n_tokens, head.shape.head_dim).astype(np.float16)
    head.append(keys, normal(rng, n_tokens, head.shape.head_dim))
    return queries_of(rng, head.shape, n_tokens, spread), read_rows(head.shape, store_rows(head.shape, keys))


# What rows get.


@pytest.mark.parametrize("shape", EACH)
@pytest.mark.parametrize("softcap", [0.0, 2.0])
@pytest.mark.parametrize("n_parts", THREADS)
@pytest.mark.parametrize("n_rows", [1, 15, 16, 255, 256, 257, 600])
def test_a_token_adds_its_attention_to_what_rows_got(shape, softcap, n_parts, n_rows):
    rng = np.random.default_rng(0)
    head = HeavyHead(shape, n_rows, softcap=softcap)
    _, old = random_step(rng, head, n_rows - 1)
    before = rng.random(n_rows - 1)
    head.fill_slots(np.arange(n_rows - 1), before)
    query, new = random_step(rng, head, 1)
    head.select(query, n_parts)
    expected = oracle.attention_got(loaded(shape, query), np.vstack([old, new]), softcap)
    np.testing.assert_allclose(head.masses, np.append(before, 0) + expected, rtol=1e-4)
    assert head.positions.tolist() == list(range(n_rows))
    assert head.record["bytes_read"] == n_rows * shape.row_bytes


@pytest.mark.parametrize("shape", EACH)
@pytest.mark.parametrize("softcap", [0.0, 2.0])
@pytest.mark.parametrize(("n_old", "n_tokens"), [(0, 2), (0, 70), (1, 9), (250, 20), (256, 300), (300, 5)])
def test_a_batch_adds_the_attention_of_all_its_tokens(shape, softcap, n_old, n_tokens):
    """Each sees what was kept, and the batch up to itself."""
    rng = np.random.default_rng(1)
    head = HeavyHead(shape, n_old + n_tokens, softcap=softcap)
    _, old = random_step(rng, head, n_old)
    before = rng.random(n_old)
    head.fill_slots(np.arange(n_old), before)
    queries, new = random_step(rng, head, n_tokens)
    head.select(queries)
    expected = oracle.attention_got(loaded(shape, queries), np.vstack([old, new]), softcap)
    expected[:n_old] += before
    np.testing.assert_allclose(head.masses, expected, rtol=1e-4)
    assert head.masses.sum() == pytest.approx(before.sum() + 3 * n_tokens)
    assert head.positions.tolist() == list(range(n_old + n_tokens))


@pytest.mark.parametrize("shape", EACH)
@pytest.mark.parametrize(("n_old", "n_tokens"), [(0, 1), (300, 1), (256, 1), (0, 30), (300, 70), (255, 9)])
def test_all_that_is_kept_is_attended_whatever_its_position(shape, n_old, n_tokens):
    rng = np.random.default_rng(2)
    head = HeavyHead(shape, n_old + n_tokens, tail_position=4000)
    _, old = random_step(rng, head, n_old)
    head.fill_slots(rng.permutation(4000 + n_old)[:n_old], np.ones(n_old))
    queries, new = random_step(rng, head, n_tokens)
    spans = head.select(queries)
    assert head.rows(spans) == list(range(n_old + n_tokens))
    firsts = np.cumsum([0, *spans["n_rows"][:-1]])
    assert ((spans["position"] == ANY_ORDER) == (firsts < n_old)).all()
    assert head.positions[n_old:].tolist() == list(range(4000 + n_old, 4000 + n_old + n_tokens))

    if n_tokens == 1:
        queries = loaded(shape, queries).astype(np.float32)
    mask = oracle.visible(n_old + np.arange(n_tokens), np.arange(n_old + n_tokens))
    values = np.array([head._stored(row, head._value_offset) for row in range(head.n_tail)])
    rows = np.vstack([old, new]), read_rows(shape, values)
    expected = [oracle.attention(queries[:, g], *rows, visible=mask) for g in range(3)]
    actual = attend_spans(shape, queries, spans, 4000 + n_old)
    assert relative_error(actual, np.stack(expected, axis=1)) < 5 * SAME


@pytest.mark.parametrize("n_tokens", [1, 5])
def test_a_query_that_is_not_a_number_leaves_as_many_rows(n_tokens):
    """What it gave is not a number from then on; how many rows stay does not depend on it."""
    rng = np.random.default_rng(3)
    head = HeavyHead(SHAPE, 40, n_rows=20, n_recent=4)
    random_step(rng, head, 40 - n_tokens)
    head.fill_slots(np.arange(40), np.ones(40))
    queries = random_step(rng, head, n_tokens)[0]
    queries[0, 1, 5] = np.nan
    head.select(queries)
    assert np.isnan(head.masses[: 41 - n_tokens]).all()
    head.evict()
    assert head.n_tail == 20
    assert set(range(36, 40)) <= set(head.positions.tolist())


# What stays.


@settings(max_examples=150, deadline=None)
@given(
    shape=st.sampled_from([SHAPE, QUANTISED]),
    n_rows=st.integers(1, 2 * CHUNK_ROWS + 90),
    n_gone=st.sampled_from([0, 1, 1, 2, 10, 100, 250]),
    recent_share=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    masses=st.sampled_from(list(MASSES)),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_newest_rows_and_the_heaviest_stay_as_they_are(shape, n_rows, n_gone, recent_share, masses, seed):
    rng = np.random.default_rng(seed)
    n_kept = max(n_rows - n_gone, 1)
    n_recent = int(recent_share * n_kept)
    head = HeavyHead(shape, n_rows, n_rows=n_kept, n_recent=n_recent)
    random_step(rng, head, n_rows)
    newest = n_rows + 1000
    first_recent = newest + 1 - max(n_recent, 1)
    older = rng.choice(first_recent, n_rows - max(n_recent, 1), replace=False)
    positions = rng.permutation([*older, *range(first_recent, newest + 1)])
    mass = MASSES[masses](rng, n_rows).astype(np.float32)
    head.set(tail_position=newest + 1 - n_rows)
    head.fill_slots(positions, mass)
    before = head.contents()
    head.evict()

    assert head.n_tail == n_kept
    assert head.record["tail_position"] == newest + 1 - n_kept
    after = head.contents()
    assert after.items() <= before.items(), "a row was changed, or mixed with another's position or attention"
    assert len(after) == n_kept
    assert set(range(newest + 1 - n_recent, newest + 1)) <= after.keys()
    weight = {int(position): np.inf if np.isnan(m) else m for position, m in zip(positions, mass, strict=True)}
    older = [weight[position] for position in after if position <= newest - n_recent]
    gone = [weight[position] for position in before.keys() - after.keys()]
    assert max(gone, default=0) <= min(older, default=np.inf)


def test_nothing_is_moved_while_all_fits():
    rng = np.random.default_rng(4)
    head = HeavyHead(SHAPE, 300, n_rows=300, n_recent=100)
    random_step(rng, head, 300)
    head.fill_slots(np.arange(300), rng.random(300))
    before = [chunk.bytes.copy() for chunk in head.chunks]
    for n_selected in (300, 301, 9999):
        head.set(n_rows=n_selected)
        head.evict()
        assert head.n_tail == 300
    assert all((chunk.bytes == copy).all() for chunk, copy in zip(head.chunks, before, strict=True))


def test_the_newest_stay_even_where_fewer_rows_are_asked_for():
    rng = np.random.default_rng(5)
    head = HeavyHead(SHAPE, 50, n_rows=5, n_recent=9)
    random_step(rng, head, 50)
    head.fill_slots(rng.permutation(50), np.full(50, 7))
    head.evict()
    assert sorted(head.positions) == list(range(41, 50))


def test_rows_that_stay_where_they_are_are_not_copied():
    """One row goes, and the last takes its place."""
    rng = np.random.default_rng(6)
    head = HeavyHead(SHAPE, 600, n_rows=599, n_recent=100)
    random_step(rng, head, 600)
    masses = 1 + rng.random(600)
    masses[77] = 0.5
    head.fill_slots(np.arange(600), masses)
    head.evict()
    assert head.positions.tolist() == [*range(77), 599, *range(78, 599)]


# Step after step.

STEPS = [(64, 3, "f16"), (64, 3, "q8_0"), (72, 1, "f16"), (64, 4, "f16"), (72, 8, "f16")]


@pytest.mark.parametrize("sizes", STEPS, ids=str)
@pytest.mark.parametrize("recent_share", [0.0, 0.5])
@pytest.mark.parametrize("budget", ["fixed", "growing"])
def test_many_steps_keep_what_the_paper_keeps(sizes, recent_share, budget):
    rng, shape = np.random.default_rng(7), Shape(*sizes)
    head, paper = HeavyHead(shape, 400), papers.H2O(shape.head_dim)
    for n_tokens in [30, *[1] * 150, 40, 2, *[1] * 150, 5, 1, 1]:
        n_read = paper.n_tokens + n_tokens
        n_kept = min(50, n_read) if budget == "fixed" else -(-n_read * 3 // 4)
        head.set(n_rows=n_kept, n_recent=int(recent_share * n_kept))
        queries, keys = random_step(rng, head, n_tokens, 0.2)
        head.select(queries)
        head.evict()
        queries = loaded(shape, queries) * np.sqrt(shape.head_dim)
        expected = paper.step(queries, keys, n_kept, int(recent_share * n_kept))
        order = head.positions.argsort()
        assert head.positions[order].tolist() == expected.tolist()
        np.testing.assert_allclose(head.masses[order], paper.mass, rtol=1e-3)
    stored = np.array([head._stored(row, 0) for row in order])
    np.testing.assert_array_equal(read_rows(shape, stored), paper.keys)
