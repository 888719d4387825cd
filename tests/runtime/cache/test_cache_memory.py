"""Memory of a cache: pieces do not overlap, and are free when no view of them is left."""

import gc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.cpu_kernels.numba_support.vector import CACHE_LINE
from octavo.runtime.cache.cache_memory import CpuMemory

SLAB = 8 << 20
SIZES = [1, 63, 64, 65, 68_000, 1 << 20, (1 << 20) + 1]


@pytest.mark.parametrize("n_bytes", [0, *SIZES])
def test_memory_is_writable_and_begins_on_a_cache_line(n_bytes):
    memory = CpuMemory()
    for _ in range(3):
        piece = memory.allocate(n_bytes)
        assert piece.shape == (n_bytes,)
        assert piece.dtype == np.uint8
        assert piece.ctypes.data % CACHE_LINE == 0 or not n_bytes
        piece[:] = 7


@settings(max_examples=30, deadline=None)
@given(steps=st.lists(st.tuples(st.sampled_from(SIZES), st.integers(0, 9)), min_size=1, max_size=60))
def test_pieces_in_use_do_not_overlap(steps):
    """Each step allocates, and lets go of an older piece."""
    memory, held = CpuMemory(), []
    for number, (n_bytes, oldest) in enumerate(steps):
        piece = memory.allocate(n_bytes)
        piece[:] = number % 251
        held.append((number % 251, piece[:]))
        if oldest < len(held) - 1:
            del held[oldest]
        del piece
    assert all((piece == number).all() for number, piece in held)


def test_a_piece_is_used_again_when_no_view_is_left():
    memory = CpuMemory()
    other, piece = memory.allocate(1000), memory.allocate(1000)
    place, view = piece.ctypes.data, piece[8:].view(np.float16)[:3]
    del piece
    gc.collect()
    assert memory.allocate(1000).ctypes.data != place, "the view is in use"
    del view
    gc.collect()
    assert memory.allocate(1000).ctypes.data == place
    assert other.size == 1000


def test_a_slab_goes_with_its_last_piece():
    memory = CpuMemory()
    pieces = [memory.allocate(SLAB // 8) for _ in range(20)]
    slabs = memory._slabs[SLAB // 8]
    assert len(slabs) == 3
    del pieces[:16]
    gc.collect()
    assert len(slabs) == 1
    del memory
    pieces[0][:] = 1
