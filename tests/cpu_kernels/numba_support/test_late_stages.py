"""Test that a late stage is compiled by its first call, whoever makes it, and whatever comes in between."""

import os
import signal
import time

import numpy as np
import pytest
from helpers.kernel_inputs import in_threads
from numba import types

from octavo.cpu_kernels.numba_support import compile as compiling
from octavo.cpu_kernels.numba_support.compile import kernel, late_stage
from octavo.cpu_kernels.numba_support.memory import fetch_add


@late_stage(types.int64, types.int64)
def add_first(address, amount):
    fetch_add(address, amount)


@late_stage(types.int64, types.int64)
def add_second(address, amount):
    fetch_add(address, amount)


@late_stage(types.int64, types.int64)
def add_third(address, amount):
    fetch_add(address, amount)


@kernel
def call_first(address, amount):
    if amount > 0:
        add_first(address, amount)


@kernel
def call_second(address, amount):
    if amount > 0:
        add_second(address, amount)


@kernel
def call_third(address, amount):
    if amount > 0:
        add_third(address, amount)


@pytest.fixture
def total():
    return np.zeros(1, np.int64)


def test_a_late_stage_is_compiled_when_it_is_called(total):
    call_first(total.ctypes.data, -1)
    assert "native" not in vars(add_first)
    call_first(total.ctypes.data, 1)
    assert add_first._cell.value == vars(add_first)["native"].address
    call_first(total.ctypes.data, 2)
    assert total[0] == 3


def test_threads_may_call_it_at_once(total):
    call_second(total.ctypes.data, 0)  # the kernel is compiled, the stage is not
    in_threads(4, lambda ith: call_second(total.ctypes.data, 1 + ith))
    assert total[0] == 10


def test_a_ctrl_c_while_it_is_compiled_comes_after_the_call(total, monkeypatch):
    call_third(total.ctypes.data, 0)
    native_callback = compiling.native_callback

    def interrupted(signature):
        os.kill(os.getpid(), signal.SIGINT)
        return native_callback(signature)

    monkeypatch.setattr(compiling, "native_callback", interrupted)
    call_third(total.ctypes.data, 1)
    with pytest.raises(KeyboardInterrupt):
        time.sleep(60)
    assert total[0] == 1
