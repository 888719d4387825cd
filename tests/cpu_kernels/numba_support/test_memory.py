"""Test plain memory: values at addresses, atomic counters, and the barrier between threads."""

import time

import numpy as np
import pytest
from helpers.kernel_inputs import THREADS, Room, address, before_a_hole, in_threads

from octavo.cpu_kernels.methods.dense import select_all
from octavo.cpu_kernels.numba_support import memory
from octavo.cpu_kernels.numba_support.compile import kernel, native
from octavo.cpu_kernels.numba_support.memory import barrier


@kernel
def read_and_write(source, target):
    memory.write_int32(target, memory.read_int32(source))
    memory.write_int64(target + 4, memory.read_int64(source + 4))
    memory.write_float(target + 12, memory.read_float(source + 12))


@kernel
def copy(target, source, n_bytes):
    memory.copy_bytes(target, source, n_bytes)


@kernel
def count(address, times):
    for _ in range(times):
        memory.fetch_add(address, 1)
    return memory.fetch_add(address, 0)


@kernel
def fill_borrowed(size, value):
    room, other = memory.borrow(4 * size), memory.borrow(4 * size)
    for i in range(size):
        memory.write_float(room + i * 4, np.float32(value))
        memory.write_float(other + i * 4, np.float32(-1))
    total = np.float32(0)
    for i in range(size):
        total += memory.read_float(room + i * 4)
    memory.give_back(other, 4 * size)
    memory.give_back(room, 4 * size)
    return room % 64 + other % 64, total


@kernel
def call(function, a, b, c, d):
    return memory.call_native(function, a, b, c, d)


def test_values_are_read_and_written_at_their_addresses():
    source = before_a_hole(np.random.default_rng(0).integers(0, 256, 16, np.uint8))
    target = Room(16)
    read_and_write(address(source), target.address)
    target.check()
    assert (target.bytes == source).all()


@pytest.mark.parametrize("n_bytes", [0, 1, 7, 64, 1001])
def test_bytes_are_copied_to_the_last(n_bytes):
    source, target = before_a_hole(np.random.default_rng(1).integers(0, 255, n_bytes, np.uint8)), Room(n_bytes)
    copy(target.address, address(source), n_bytes)
    target.check()
    assert (target.bytes == source).all()


def test_counting_in_threads_loses_nothing():
    counter = Room(8)
    counter.view(np.int64)[0] = 0
    count(counter.address, 0)  # compiles it
    in_threads(3, lambda ith: count(counter.address, 100_000))
    assert count(counter.address, 0) == 300_000
    counter.check()


@pytest.mark.parametrize("size", [0, 1, memory.MOST_ON_STACK // 4, memory.MOST_ON_STACK // 4 + 1, 1_000_003])
def test_borrowed_memory_has_the_room_that_it_promises(size):
    misaligned, total = fill_borrowed(size, 1)
    assert misaligned == 0
    assert total == size


def test_native_functions_are_called_by_address():
    head = np.zeros(64, np.int64)  # a HEAD record without rows, of which nothing is selected
    function = native(select_all)
    assert call(function.address, address(head), 0, 1, 0) == 0


@pytest.mark.parametrize("n_threads", THREADS)
def test_barrier_waits_for_all_threads(n_threads):
    counter, visits, rounds = np.zeros(1, np.int64), np.zeros(n_threads, np.int64), 40
    barrier(address(counter), 1)  # compiles it

    def work(ith):
        for i in range(rounds):
            if i % n_threads == ith:
                time.sleep(0.001)
            visits[ith] += 1
            barrier(address(counter), n_threads)
            assert (visits == i + 1).all()
            barrier(address(counter), n_threads)

    in_threads(n_threads, work)
    assert counter[0] == (2 * rounds * n_threads if n_threads > 1 else 0)
