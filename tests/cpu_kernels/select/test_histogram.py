"""The cut between the largest of many numbers and the others, against a full sort."""

import numpy as np
import pytest
from helpers.kernel_inputs import Room, address, before_a_hole
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.cpu_kernels.layout.scores import BINS
from octavo.cpu_kernels.numba_support.compile import kernel
from octavo.cpu_kernels.numba_support.machine_features import LANES
from octavo.cpu_kernels.rows.tiles import CHUNK_ROWS
from octavo.cpu_kernels.select import histogram as module

#: Numbers of a bin differ by less than this factor.
BIN = 1.126

SIZES = [1, LANES, 100, CHUNK_ROWS, 1000, 5000]


@kernel
def count_numbers(values, n, least, own, room):
    """Call the kernel from Python."""
    module.count_numbers(values, n, least, own, room)


def bits(number):
    return int(np.float32(number).view(np.int32))


class Stretches:
    """Numbers in stretches of a chunk, the last one padded with -1, and the histogram of all, as threads add it up."""

    def __init__(self, values, least=0.0, taken=()):
        values, self.least = np.asarray(values, np.float32), bits(least)
        self.parts = [values[i : i + CHUNK_ROWS] for i in range(0, len(values), CHUNK_ROWS)]
        self.padded = [self._padded(part) for part in self.parts]
        self.histogram = np.zeros(BINS + 1, np.int64)
        for part in self.padded:
            own, room = np.zeros((2, BINS + 1), np.int64), Room(4 * (len(part) + LANES))
            count_numbers(address(part), len(part), self.least, own, room.address)
            room.check()
            module.add_histogram(own, address(self.histogram))
        for number in taken:
            self.histogram[BINS] += module.entry_of(np.float32(number))
        self.n_taken = len(taken)

    @staticmethod
    def _padded(part):
        padded = np.full(-(-len(part) // LANES) * LANES, -1, np.float32)
        padded[: len(part)] = part
        return before_a_hole(padded)

    def largest(self, wanted, fewest=0, most=1 << 40):
        """The indices that are listed, rising, and the cut."""
        cut = module.find_cut(address(self.histogram), np.float32(wanted), self.n_taken, fewest, most, self.least)
        cut, indices = module.Cut(*cut), []
        for number, part in enumerate(self.padded):
            listed = Room(4 * (len(part) + LANES))
            n = module.list_largest(address(part), len(part), cut, listed.address)
            listed.check()
            indices += (number * CHUNK_ROWS + listed.view(np.int32)[:n]).tolist()
        assert len(set(indices)) == len(indices)
        return sorted(indices), cut


def shares(n, seed=0):
    values = np.random.default_rng(seed).exponential(size=n).astype(np.float32) ** 3
    return values / values.sum()


def assert_largest(values, listed):
    """Of the numbers of one bin, any may be listed."""
    others = np.delete(values, listed)
    if len(listed) and len(others):
        assert others.max() <= values[listed].min() * BIN


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("wanted", [1e-6, 0.3, 0.9, 0.999])
def test_as_few_numbers_are_listed_as_add_up(n, wanted):
    values = shares(n, n)
    listed, _ = Stretches(values).largest(wanted)
    assert_largest(values, listed)
    smallest = np.sort(values[listed])
    n_parts = -(-n // CHUNK_ROWS)  # each may list one more of the last bin
    assert values[listed].sum() >= wanted - (BIN - 1) * smallest[:n].sum() / 8 - 1e-5
    assert smallest[n_parts:].sum() <= wanted * BIN + 1e-5


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("most", [0, 1, 7, 60, 900])
def test_no_more_are_listed_than_the_most_and_hardly_fewer(n, most):
    values = shares(n, n)
    listed, _ = Stretches(values).largest(2.0, fewest=most, most=most)
    assert_largest(values, listed)
    assert max(min(most, n) - -(-n // CHUNK_ROWS), 0) <= len(listed) <= most


def test_at_least_the_fewest_are_listed():
    values = shares(3000)
    listed, _ = Stretches(values).largest(0.0, fewest=500)
    assert_largest(values, listed)
    assert 500 <= len(listed) <= 500 + -(-3000 // CHUNK_ROWS)


def test_the_largest_count_goes_before_the_least():
    assert len(Stretches(shares(300)).largest(0.0, fewest=100, most=30)[0]) <= 30


def test_what_is_taken_in_any_case_counts():
    values = shares(1000)
    alone, _ = Stretches(values).largest(0.9)
    listed, _ = Stretches(values, taken=[0.25, 0.15]).largest(0.9)
    fewer, _ = Stretches(values).largest(0.5)
    assert listed == fewer
    assert len(listed) < len(alone)
    assert len(Stretches(values, taken=[0.0] * 40).largest(0.0, 100, 100)[0]) <= 60


def test_smaller_numbers_than_the_least_are_never_listed():
    values, least = shares(2000), 1e-4
    listed, _ = Stretches(values, least).largest(1.0, fewest=2000)
    assert listed == np.flatnonzero(values >= np.float32(least)).tolist()


def test_of_many_large_numbers_only_these_are_counted():
    values = np.full(CHUNK_ROWS, 1e-6, np.float32)
    values[:: CHUNK_ROWS // 16] = 0.01
    assert Stretches(values, 1e-6).histogram[:BINS].sum() >> 40 == 16
    values[0] = 1e-6
    assert Stretches(values, 1e-6).histogram[:BINS].sum() >> 40 == CHUNK_ROWS


@pytest.mark.parametrize("value", [0.0, 1e-45, 1e-20, 0.2])
def test_of_equal_numbers_each_stretch_lists_its_part(value):
    values = np.full(4 * CHUNK_ROWS, value, np.float32)
    listed, _ = Stretches(values).largest(1e6, 100, 100)
    assert np.bincount(np.array(listed) // CHUNK_ROWS, minlength=4).tolist() == [25] * 4


def test_infinity_is_always_listed_and_nan_and_smaller_numbers_never():
    values = np.float32([np.inf, np.nan, -1, -np.inf, 0.5, 0.25])
    assert Stretches(values).largest(0.0)[0] == [0]
    assert Stretches(values).largest(1e6)[0] == [0, 4, 5]


@settings(max_examples=200, deadline=None)
@given(
    values=st.lists(
        st.one_of(st.floats(0, 100, width=32), st.sampled_from([0.0, 1e-30, 1.0])), min_size=1, max_size=900
    ),
    share=st.floats(0, 1.1),
    fewest=st.integers(0, 200),
    most=st.integers(0, 600),
)
def test_any_numbers_are_cut_as_a_sort_cuts_them(values, share, fewest, most):
    """But for those of one bin: the first 2**-56 is one."""
    values = np.array(values, np.float32)
    values = (values / max(values.sum(), 1)).astype(np.float32)
    stretches = Stretches(values)
    listed, cut = stretches.largest(share * values.sum(), fewest, most)
    n_parts = len(stretches.parts)
    assert len(listed) <= most + (0 if cut.rounded == 0 else n_parts)
    whole = np.flatnonzero(values >= np.int32(cut.high).view(np.float32)).tolist()
    assert set(whole) <= set(listed)
    assert (values[listed] >= np.int32(cut.low).view(np.float32)).all()
    if most > len(values):
        assert len(listed) >= min(fewest, int(stretches.histogram[:BINS].sum()) >> 40)
        assert values[listed].sum() >= min(share, 1) * values.sum() * 0.99 - 1e-4
    assert values[whole].sum() <= share * values.sum() + 1e-4 or len(whole) <= fewest or cut.listed == cut.counted
