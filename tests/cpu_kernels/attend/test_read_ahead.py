"""What a step asks the system for: the pages of selected rows, each once, unless a step selected them lately."""

import ctypes

import numpy as np
import pytest
from helpers.kernel_inputs import SHAPE, address

from octavo.cpu_kernels.attend.read_ahead import LATELY, PAGES, ask_for_rows
from octavo.cpu_kernels.layout.spans import SPAN

PAGE = 4096
ROWS = PAGE // SHAPE.row_bytes  # rows of a page
N_PAGES = 64
FIRST = 1 << 30  # nothing lies there: what is asked for is not touched


class Asked:
    """A file of N_PAGES pages, and what the system was asked for."""

    def __init__(self):
        self.calls = []
        kind = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 4)
        self._advise = kind(self._hear)
        self._selected = np.zeros(N_PAGES, np.uint16)
        self.record = np.zeros(1, PAGES)
        self.record["first"], self.record["n_pages"], self.record["page_bits"] = FIRST, N_PAGES, 12
        self.record["selected"], self.record["step"] = address(self._selected), LATELY
        self.record["advise"] = ctypes.cast(self._advise, ctypes.c_void_p).value

    def _hear(self, start, n_bytes, advice, _):
        assert advice == 3, "not MADV_WILLNEED"
        assert start % PAGE == n_bytes % PAGE == 0
        self.calls.append(((start - FIRST) // PAGE, n_bytes // PAGE))
        return 0

    def select(self, *runs, n_steps=1):
        """Select runs of rows, (first key, first value, rows) in rows from the file's first on; returns the calls."""
        spans = np.zeros(len(runs), SPAN)
        for span, (key, value, n_rows) in zip(spans, runs, strict=True):
            span["keys"], span["values"] = (FIRST + row * SHAPE.row_bytes for row in (key, value))
            span["n_rows"] = n_rows
        self.calls = []
        self.record["step"] += n_steps
        ask_for_rows(SHAPE, address(self.record), address(spans), len(spans))
        return self.calls

    @property
    def pages(self):
        return {page for first, n in self.calls for page in range(first, first + n)}


@pytest.fixture
def asked():
    return Asked()


def test_the_pages_of_keys_and_values_are_asked_for_in_one_call_each(asked):
    assert asked.select((2 * ROWS - 1, 40 * ROWS, 2 * ROWS)) == [(1, 3), (40, 2)]


def test_what_was_selected_lately_is_not_asked_for_again(asked):
    asked.select((0, 32 * ROWS, ROWS))
    assert asked.select((0, 32 * ROWS, 3 * ROWS)) == [(1, 2), (33, 2)]


def test_a_page_that_stays_selected_is_asked_for_once(asked):
    calls = [len(asked.select((0, 32 * ROWS, ROWS))) for _ in range(3 * LATELY)]
    assert calls == [2] + [0] * (3 * LATELY - 1)


@pytest.mark.parametrize(("n_steps", "n_calls"), [(LATELY - 1, 0), (LATELY, 2)])
def test_a_page_may_be_gone_some_steps_later(asked, n_steps, n_calls):
    asked.select((0, 32 * ROWS, ROWS))
    assert len(asked.select((0, 32 * ROWS, ROWS), n_steps=n_steps)) == n_calls


def test_the_step_may_pass_the_largest_number_of_a_page(asked):
    asked.record["step"] = (1 << 16) - 2
    asked.select((0, 32 * ROWS, ROWS))
    assert asked.select((0, 32 * ROWS, ROWS), n_steps=4) == []


def test_a_run_between_known_pages_is_one_call(asked):
    asked.select((0, 32 * ROWS, ROWS), (4 * ROWS, 36 * ROWS, ROWS))
    assert asked.select((0, 32 * ROWS, 6 * ROWS)) == [(1, 3), (5, 1), (33, 3), (37, 1)]


def test_rows_in_no_file_are_passed_over(asked):
    before, behind = -ROWS, N_PAGES * ROWS
    assert asked.select((before, 0, ROWS), (ROWS, behind, ROWS)) == [(0, 1), (1, 1)]
    assert asked.select((before, behind - ROWS // 2, ROWS)) == []


def test_listed_rows_are_passed_over(asked):
    spans = np.zeros(1, SPAN)
    spans["keys"], spans["values"], spans["n_rows"], spans["rows"] = FIRST, FIRST, 3, 1000
    ask_for_rows(SHAPE, address(asked.record), address(spans), 1)
    assert asked.calls == []


@pytest.mark.parametrize("seed", range(5))
def test_it_asks_for_what_a_set_of_pages_says(asked, seed):
    rng = np.random.default_rng(seed)
    selected = {}  # the step that selected each page last
    for step in range(60):
        runs = []
        for _ in range(rng.integers(1, 6)):
            n_rows = int(rng.integers(1, 3 * ROWS))
            runs.append((*rng.integers(0, N_PAGES * ROWS - n_rows, 2).tolist(), n_rows))
        asked.select(*runs)
        own = {
            page
            for key, value, n_rows in runs
            for row in (key, value)
            for page in range(row // ROWS, (row + n_rows - 1) // ROWS + 1)
        }
        assert asked.pages == {page for page in own if step - selected.get(page, -LATELY) >= LATELY}
        assert sum(n for _, n in asked.calls) == len(asked.pages), "a page twice"
        selected |= dict.fromkeys(own, step)
