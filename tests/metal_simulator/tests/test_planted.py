"""Test that the simulator finds each planted bug by the means that README.md names, and nothing without the bug."""

from pathlib import Path

import numpy as np
import pytest
from metal_simulator import simulator
from metal_simulator.simulator import Library, MSLError

pytestmark = pytest.mark.sampled

simulator.require()

FOLDER = Path(__file__).parents[1] / "planted"
SCHEDULES = range(6)
X = np.random.default_rng(7).standard_normal(256).astype(np.float32)

# threads, threadgroups, and what a correct kernel writes to out
PLANTED = {
    "missing_barrier": (64, 1, X[:64][::-1]),
    "barrier_without_memory": (64, 1, X[:64][::-1]),
    "reused_tile": (64, 1, X.reshape(4, 64)[:, ::-1].sum(axis=0)),
    "lockstep": (32, 1, X[:32][::-1] + X[:32].max()),
    "two_threadgroups": (32, 2, X[:64]),
    "divergent_barrier": (64, 1, X[:64]),
    "two_barriers": (64, 1, X[:64][::-1]),
    "early_return": (64, 1, np.r_[X[:50][::-1], np.zeros(14)]),
    "divergent_simd": (32, 1, np.full(32, X[:20].astype(np.float64).sum())),
    "write_outside_buffer": (64, 1, X[:64]),
    "read_outside_buffer": (64, 1, X[:64]),
    "threadgroup_bounds": (64, 1, X[:64]),
    "local_bounds": (64, 1, X[:64]),
    "too_much_memory": (64, 1, X[:64][::-1]),
    "uninitialised": (64, 1, X[:64]),
    "misaligned": (64, 1, X[:64]),
    "shift": (64, 1, 2.0 ** (np.arange(64) % 32)),
    "overflow": (64, 1, X[:64]),
}

# Errors that the engine finds in every schedule, with and without a sanitizer, and the line of the shader.
REFUSED = {
    "divergent_barrier": r":15: threadgroup_barrier reached by 40 of 64 threads, others have returned",
    "two_barriers": r":15: threadgroup_barrier reached by 32 of 64 threads, others wait in .* at .*:16",
    "early_return": r":15: threadgroup_barrier reached by 50 of 64 threads, others have returned",
    "divergent_simd": r":14: simd_sum in divergent control flow: 20 of 32 lanes reach it, others have returned",
    "too_much_memory": r"32800 bytes, more than 32768",
}
WRONG_IN_SOME_SCHEDULE = ["missing_barrier", "reused_tile", "lockstep", "two_threadgroups", "uninitialised"]
RACES = ["missing_barrier", "barrier_without_memory", "reused_tile", "lockstep", "two_threadgroups"]
ADDRESS = {
    "write_outside_buffer": r"heap-buffer-overflow\nwrite of size 4\n    at write_outside_buffer.metal:13",
    "read_outside_buffer": r"heap-buffer-overflow\nread of size 4\n    at read_outside_buffer.metal:13",
    "threadgroup_bounds": r"threadgroup_bounds.metal:15: index 63 out of bounds|heap-buffer-overflow|out of bounds",
    "local_bounds": r"local_bounds.metal:15: index 4 out of bounds|stack-buffer-overflow",
    "misaligned": r"misaligned.metal:13: load of misaligned address",
    "shift": r"shift.metal:13: shift exponent 32 is too large",
    "overflow": r"overflow.metal:13: signed integer overflow",
}


def library(name, fixed, sanitizer=None):
    defines = {"FIXED": 1} if fixed else {}
    return Library((FOLDER / f"{name}.metal").read_text(), defines, sanitizer, name=f"{name}.metal")


def run(compiled, name, schedule=0):
    threads, groups, expected = PLANTED[name]
    out = np.zeros(len(expected), np.float32)
    # `misaligned` reads up to three elements beyond the last
    compiled.run("planted", {0: X, 1: out}, groups, threads, schedule=schedule)
    return out


def is_right(out, name):
    return np.allclose(out, PLANTED[name][2], rtol=1e-5, atol=1e-5)


def test_every_planted_shader_is_tested():
    assert sorted(path.stem for path in FOLDER.glob("*.metal")) == sorted(PLANTED)
    assert {*REFUSED, *WRONG_IN_SOME_SCHEDULE, *RACES, *ADDRESS} == set(PLANTED)


@pytest.mark.parametrize("name", PLANTED)
def test_fixed_shaders_are_right_in_every_schedule(name):
    compiled = library(name, fixed=True)
    for schedule in SCHEDULES:
        np.testing.assert_allclose(run(compiled, name, schedule), PLANTED[name][2], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("sanitizer", ["address", "thread"])
@pytest.mark.parametrize("name", PLANTED)
def test_sanitizers_find_nothing_in_fixed_shaders(name, sanitizer):
    compiled = library(name, fixed=True, sanitizer=sanitizer)
    for schedule in (0, 2):
        assert is_right(run(compiled, name, schedule), name)


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("sanitizer", [None, "address"])
def test_refused(name, sanitizer):
    compiled = library(name, fixed=False, sanitizer=sanitizer)
    for schedule in (0, 1, 2):
        with pytest.raises(MSLError, match=REFUSED[name] if schedule == 0 else None):
            run(compiled, name, schedule)


@pytest.mark.parametrize("name", WRONG_IN_SOME_SCHEDULE)
def test_wrong_in_some_schedule(name):
    compiled = library(name, fixed=False)
    assert not all(is_right(run(compiled, name, schedule), name) for schedule in SCHEDULES)


def test_uninitialised_threadgroup_memory_is_nan():
    assert np.isnan(run(library("uninitialised", fixed=False), "uninitialised")).all()


@pytest.mark.parametrize("name", RACES)
def test_races(name):
    """Races are found even in the schedule that gives the right result."""
    with pytest.raises(MSLError, match=rf"^ThreadSanitizer: data race\n(.*\n)*    at {name}.metal:\d+, in planted"):
        run(library(name, fixed=False, sanitizer="thread"), name)


@pytest.mark.parametrize("name", ADDRESS)
def test_address_and_undefined_behaviour(name):
    with pytest.raises(MSLError, match=ADDRESS[name]):
        run(library(name, fixed=False, sanitizer="address"), name)
