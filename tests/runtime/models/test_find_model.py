"""The values of shared options that depend on the machine."""

import os

import psutil
import pytest

from octavo.runtime.models import find_model


@pytest.mark.parametrize(
    ("physical", "usable", "expected"),
    [(4, 8, 4), (8, 4, 4), (4, 1, 1), (None, 6, 6)],
    ids=["two threads a core", "fewer cores usable than there are", "one core usable", "unknown number of cores"],
)
def test_default_threads_are_the_physical_cores_that_are_usable(monkeypatch, physical, usable, expected):
    monkeypatch.setattr(psutil, "cpu_count", lambda logical=True: 2 * expected if logical else physical)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(usable)), raising=False)
    assert find_model.default_threads() == expected


def test_default_threads_without_affinity(monkeypatch):
    monkeypatch.setattr(psutil, "cpu_count", lambda logical=True: 16 if logical else 8)
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert find_model.default_threads() == 6
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert find_model.default_threads() == 1
