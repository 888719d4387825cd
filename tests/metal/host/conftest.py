"""A fake Mac's GPU for each test: one that computes nothing, or one that runs the shaders in the simulator."""

import pytest
from helpers import fake_metal
from metal_simulator import simulator

from octavo.metal import gpu


def install(monkeypatch, executor):
    metal = fake_metal.FakeMetal(executor)
    monkeypatch.setattr(gpu, "frameworks", lambda: metal.frameworks)
    gpu.open_gpu.cache_clear()
    return metal


@pytest.fixture
def metal(monkeypatch):
    """A GPU whose kernels do nothing."""
    yield (metal := install(monkeypatch, fake_metal.Recorder()))
    gpu.open_gpu.cache_clear()
    assert metal.problems == []


@pytest.fixture(scope="module")
def simulated():
    """A GPU whose kernels are computed. Those of a shape are compiled once in a module."""
    simulator.require()
    with pytest.MonkeyPatch.context() as monkeypatch:
        metal = install(monkeypatch, fake_metal.Simulator())
        metal.max_threads["select_spans"] = 192  # a GPU may have less room than 1024 threads need; and it is faster
        yield metal
    gpu.open_gpu.cache_clear()
    assert metal.problems == []
