"""The values of shared options that depend on the machine."""

import os
from unittest.mock import Mock

import psutil
import pytest

from octavo.runtime import load_model
from octavo.runtime.models import find_model
from octavo.settings import ModelSettings
from octavo.system import processors


@pytest.fixture(autouse=True)
def _groups(monkeypatch, tmp_path):
    """Control groups without a quota: those of the test."""
    monkeypatch.setattr(processors, "_GROUPS", (tmp_path, tmp_path / "cpu"))


@pytest.mark.parametrize(
    ("physical", "usable", "expected"),
    [(4, 8, 4), (8, 4, 4), (4, 1, 1), (None, 6, 6)],
    ids=["two threads a core", "fewer cores usable than there are", "one core usable", "unknown number of cores"],
)
def test_default_threads_are_the_physical_cores_that_are_usable(monkeypatch, physical, usable, expected):
    monkeypatch.setattr(psutil, "cpu_count", lambda logical=True: 2 * expected if logical else physical)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(usable)), raising=False)
    assert processors.default_threads() == expected


def test_default_threads_without_affinity(monkeypatch):
    monkeypatch.setattr(psutil, "cpu_count", lambda logical=True: 16 if logical else 8)
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert processors.default_threads() == 6
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert processors.default_threads() == 1


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"cpu.max": "max 100000"}, 8),
        ({"cpu.max": "150000 100000"}, 2),
        ({"cpu.max": "10000 100000"}, 1),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 8),
        ({"cpu/cpu.cfs_quota_us": "400000", "cpu/cpu.cfs_period_us": "100000"}, 4),
        ({"cpu.max": "nonsense"}, 8),
    ],
)
def test_default_threads_are_no_more_than_a_containers_quota(monkeypatch, tmp_path, files, expected):
    monkeypatch.setattr(psutil, "cpu_count", lambda logical=True: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    (tmp_path / "cpu").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(f"{text}\n")
    assert processors.default_threads() == expected


@pytest.mark.parametrize(
    ("usable", "others", "least", "expected"),
    [
        (8, 0.0, 1, 8),
        (8, 0.4, 1, 8),
        (8, 2.1, 2, 6),
        (8, 7.0, 1, 1),
        (8, 7.0, 2, 2),
        (8, 20.0, 2, 2),
        (2, 1.0, 1, 1),
        (1, 0.0, 2, 1),
        (1, 3.0, 2, 1),
    ],
)
def test_threads_are_for_the_cores_that_others_leave(monkeypatch, usable, others, least, expected):
    monkeypatch.setattr(psutil, "cpu_count", lambda logical=True: usable)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(usable)), raising=False)
    monkeypatch.setattr(find_model, "cores_of_others", lambda: others)
    assert find_model.free_threads(least) == expected


@pytest.mark.parametrize(("measures", "n_threads", "n_threads_batch"), [(False, 1, 2), (True, 5, 5)])
def test_a_model_runs_on_free_cores_unless_it_is_measured(monkeypatch, measures, n_threads, n_threads_batch):
    given = {}
    monkeypatch.setattr(load_model, "free_threads", lambda least: least)
    monkeypatch.setattr(load_model, "default_threads", lambda: 5)
    monkeypatch.setattr(load_model, "Llama", lambda path, **arguments: given.update(arguments) or Mock())
    load_model.load_model(ModelSettings("a.gguf"), print, measures)
    assert (given["n_threads"], given["n_threads_batch"]) == (n_threads, n_threads_batch)
    load_model.load_model(ModelSettings("a.gguf", n_threads=7), print, measures)
    assert given["n_threads"] == given["n_threads_batch"] == 7
