"""Fixtures of a fake Mac's GPU: one that computes nothing, and one that runs the shaders in the simulator."""

import pytest
from helpers import fake_metal, metal_executors
from metal_simulator import simulator

from octavo.metal import gpu


def install(monkeypatch, executor):
    metal = fake_metal.FakeMetal(executor)
    monkeypatch.setattr(gpu, "frameworks", lambda: metal.frameworks)
    gpu.open_gpu.cache_clear()
    return metal


@pytest.fixture
def metal(monkeypatch):
    """Install a GPU whose kernels do nothing."""
    yield (metal := install(monkeypatch, metal_executors.Recorder()))
    gpu.open_gpu.cache_clear()
    assert metal.problems == []


@pytest.fixture(scope="module")
def simulated():
    """Install a GPU whose kernels are computed. Those of a shape are compiled once in a module."""
    simulator.require()
    with pytest.MonkeyPatch.context() as monkeypatch:
        metal = install(monkeypatch, metal_executors.Simulator())
        metal.max_threads["select_spans"] = 192  # a GPU may have less room than 1024 threads need; and it is faster
        yield metal
    gpu.open_gpu.cache_clear()
    assert metal.problems == []
