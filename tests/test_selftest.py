"""`make` builds llama.cpp once, as GCC needs it, tests it, builds it again if it crashes, and compiles kernels."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import NamedTuple

import pytest
from helpers.product import ROOT

GCC_FLAGS = "-fno-dse -fno-tree-dse"
COMPILERS = {
    "c++": "c++ (GCC) 12.2.0\nCopyright (C) 2022 Free Software Foundation, Inc.",
    "clang++": "Apple clang version 17.0.0\nTarget: arm64-apple-darwin24.6.0",
}
#: Stands in for the virtual environment's python: the self-test crashes as often as $CRASHES says.
PYTHON = """
case "$*" in *compile_kernels*) echo "compile kernels" >> "$LOG"; exit ;; esac
echo "selftest" >> "$LOG"
test "$(grep -c selftest "$LOG")" -gt "$CRASHES"
"""
#: Stands in for its pip: writes down what is installed, and with which flags.
PIP = """
case "$*" in
    freeze) echo "llama_cpp_python==0.3.36" ;;
    *--upgrade*) ;;
    cache*) echo "forget wheel" >> "$LOG" ;;
    *) echo "install" $(for last; do :; done; echo "$last") "CXXFLAGS:" $CXXFLAGS "CMAKE_ARGS:" $CMAKE_ARGS >> "$LOG" ;;
esac
"""
INSTALL = "install .[demo] CXXFLAGS: {} CMAKE_ARGS:".format
REBUILD = "install llama_cpp_python==0.3.36 CXXFLAGS: {} CMAKE_ARGS:".format


class Made(NamedTuple):
    """What `make` did: its exit status, its steps, and whether it holds the environment to be ready."""

    status: int
    steps: list[str]
    ready: bool


@pytest.fixture
def make(tmp_path):
    """Return a function that makes a virtual environment of stand-ins, with environment variables of the caller's."""

    def run(crashes: int = 0, target: str = "ready", **variables: str) -> Made:
        environment = tmp_path / "environment"
        log = tmp_path / "log"
        scripts = {environment / "bin" / "python": PYTHON, environment / "bin" / "pip": PIP}
        scripts |= {tmp_path / "bin" / name: f"echo '{version}'" for name, version in COMPILERS.items()}
        for path, text in scripts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"#!/bin/sh\n{text}\n")
            path.chmod(0o755)
        made = environment / target
        arguments = ["make", f"VENV={environment}", f"PYTHON={sys.executable}", str(made)]
        settings = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", "LOG": str(log), "CRASHES": str(crashes), **variables}
        status = subprocess.run(arguments, cwd=ROOT, env=settings, capture_output=True).returncode
        return Made(status, log.read_text("utf-8").splitlines(), made.exists())

    return run


def test_llama_cpp_runs_on_this_cpu():
    subprocess.run([sys.executable, "-m", "octavo.runtime.selftest"], check=True)


def test_make_builds_once_and_tests_it(make):
    assert make() == (0, [INSTALL(GCC_FLAGS), "selftest", "compile kernels"], True)


def test_only_tests_and_linters_need_their_tools(make):
    steps = [INSTALL(GCC_FLAGS), "selftest", "compile kernels"]
    assert make(target="dev") == (0, [*steps, INSTALL(GCC_FLAGS).replace("demo", "demo,dev")], True)
    assert make() == (0, [*steps, INSTALL(GCC_FLAGS).replace("demo", "demo,dev")], True)  # nothing more


def test_targets_that_test_name_the_tools():
    targets = re.findall(r"^([a-z-]+): \$\(VENV\)/(\S+)", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert {name for name, need in targets if need == "ready"} == {"demo", "bench", "compile-times", "man"}
    assert {"test", "lint"} <= {name for name, need in targets if need == "dev"}


def test_make_appends_to_the_users_flags(make):
    assert make(CXXFLAGS="-O2 -g").steps[0] == INSTALL(f"-O2 -g {GCC_FLAGS}")


def test_make_leaves_clang_alone(make):
    assert make(CXX="clang++", CXXFLAGS="-O2").steps[0] == INSTALL("-O2")


def test_make_replaces_a_wheel_that_crashes(make):
    rebuilt = ["forget wheel", REBUILD(GCC_FLAGS), "selftest", "compile kernels"]
    assert make(crashes=1) == (0, [INSTALL(GCC_FLAGS), "selftest", *rebuilt], True)


def test_make_builds_for_any_cpu_in_the_end(make):
    made = make(crashes=2, CMAKE_ARGS="-DGGML_BLAS=ON")
    rebuilt = f"{REBUILD(GCC_FLAGS)} -DGGML_BLAS=ON -DGGML_NATIVE=OFF"
    assert made.steps[-4:] == ["forget wheel", rebuilt, "selftest", "compile kernels"]
    assert (made.status, made.ready) == (0, True)


def test_make_fails_if_nothing_runs(make):
    made = make(crashes=3)
    assert made.steps.count("selftest") == 3
    assert made.status != 0
    assert not made.ready
