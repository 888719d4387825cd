"""Fixtures shared by all tests. No test needs the network; caches and indexes go to temporary folders."""

import os
import random
import signal
import uuid
from collections import defaultdict
from pathlib import Path

import pytest
from helpers import (
    other_cpus,  # noqa: F401  # before octavo
    tiny_models,
)


@pytest.fixture(scope="session", autouse=True)
def _clean_state(tmp_path_factory):
    """Hide the tester's history of questions, libraries and queue from the tests, and theirs from the tester.

    Servers that several tests share have them, too.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.getbasetemp() / "state"))
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.getbasetemp() / "data"))
        patch.setenv("OCTAVO_FIRST_ANSWER", "1h")  # documents are read, however slow the machine is
        patch.setattr(os, "fsync", os.fstat)  # only a power cut would show that a file is not on the disk yet
        yield


@pytest.fixture(autouse=True)
def _compiled_before(monkeypatch):
    """Whether kernels were compiled before the tests began changes no output."""
    monkeypatch.setattr("octavo.cpu_kernels.numba_support.compile.compiled_before", lambda: True)


@pytest.fixture(autouse=True)
def costs_file(monkeypatch, tmp_path_factory) -> Path:
    """Hide this machine's measured costs, so that `auto` chooses alike everywhere; returns the test's own file."""
    path = tmp_path_factory.getbasetemp() / "costs" / f"{uuid.uuid4()}.json"
    monkeypatch.setattr("octavo.runtime.devices.step_costs.costs_path", lambda: path)
    return path


@pytest.fixture(autouse=True)
def loads_apart(monkeypatch):
    """Spare the tests the process in which a model is loaded for the first time; returns the function that does it."""
    from octavo.runtime.models import model_file

    load_apart = model_file.load_apart
    monkeypatch.setattr(model_file, "load_apart", lambda *arguments: "")
    return load_apart


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory) -> Path:
    """A small llama model with a chat template: 3 layers, 4 query heads on 2 KV heads."""
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    return tiny_models.write_model(path, "llama", chat_template=tiny_models.CHAT_TEMPLATE)


@pytest.fixture(scope="session")
def real_model() -> Path:
    """SmolLM2-135M-Instruct, the default model."""
    from octavo.runtime.models.find_model import default_model

    return default_model()


def pytest_addoption(parser):
    parser.addoption("--cases", type=int, default=0, help="of each test marked `sampled`, run so many cases; 0: all")
    parser.addoption("--case-seed", default="0", help="draw other cases")


def pytest_collection_modifyitems(config, items):
    """Draw the cases of tests that are marked `sampled`, the same ones in each worker."""
    n_cases, seed, cases = config.getoption("--cases"), config.getoption("--case-seed"), defaultdict(list)
    for item in items:
        if item.get_closest_marker("sampled") and not item.get_closest_marker("slow"):
            cases[item.nodeid.partition("[")[0]].append(item)
    left = set()
    for name, own in cases.items():
        if 0 < n_cases < len(own):
            left.update(set(own) - set(random.Random(f"{seed} {name}").sample(own, n_cases)))
    config.hook.pytest_deselected(items=list(left))
    items[:] = [item for item in items if item not in left]


def pytest_configure(config):
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # of a shell's background jobs: tests of Ctrl-C inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)
