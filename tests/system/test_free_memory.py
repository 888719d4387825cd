"""What is left of memory: of the machine, of control groups of both versions, and of `ulimit -v`."""

import subprocess
import sys
from types import SimpleNamespace

import psutil
import pytest

from octavo import OctavoError
from octavo.system.free_memory import _of_cgroups, check_free, check_limits

GIB = 1 << 30


@pytest.fixture(autouse=True)
def _machine(monkeypatch):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=8 * GIB))


V2 = {"memory.max": 4 * GIB, "memory.current": 3 * GIB, "memory.stat": f"anon 5\ninactive_file {GIB}\nactive_file 7"}
V1 = {
    "memory.limit_in_bytes": 4 * GIB,
    "memory.usage_in_bytes": 3 * GIB,
    "memory.stat": f"cache 9\ntotal_inactive_file {GIB}\ntotal_active_file 7",
}


@pytest.mark.parametrize(
    ("lines", "folder", "files"),
    [
        ("0::/own\n", "own", V2),
        ("0::/around/own\n", "around", V2),
        ("0::/somewhere/else\n", ".", V2),  # a container shows its own group at the top
        ("4:memory:/own\n0::/\n", "memory/own", V1),
        ("7:cpu,memory:/own\n", "memory", V1),
        ("0::/own\n", "own", {**V2, "memory.high": 9 * GIB}),
        ("0::/own\n", "own", {**V2, "memory.max": "max", "memory.high": 4 * GIB}),
    ],
)
def test_the_limit_of_a_container_counts_and_pages_of_files_are_free(groups, lines, folder, files):
    groups(lines, {f"{folder}/{name}": content for name, content in files.items()})
    assert min(limit.n_bytes for limit in _of_cgroups()) == 2 * GIB + 7
    with pytest.raises(OctavoError, match=r"needs 1\.80 GiB more, besides the rest 0\.25 GiB, but only 2\.00 GiB of "):
        check_free("It", int(1.8 * GIB))
    check_free("It", int(1.7 * GIB))
    with pytest.raises(OctavoError, match=r"besides clustering 0\.10 GiB and the rest 0\.25 GiB, .* container's limit"):
        check_free("It", int(1.7 * GIB), {"clustering": GIB // 10})


@pytest.mark.parametrize("most", ["max", 9223372036854771712, "", "many"])
def test_no_limit_is_no_limit(groups, most):
    groups("0::/own\n", {f"own/{name}": most if name == "memory.max" else content for name, content in V2.items()})
    assert list(_of_cgroups()) == []
    check_limits("model.gguf", 100 * GIB)  # it can be mapped


def test_a_model_that_does_not_fit_the_limit_is_refused(groups):
    groups("0::/own\n", {f"own/{name}": content for name, content in V2.items()})
    check_limits("model.gguf", GIB)
    with pytest.raises(OctavoError, match=r"model\.gguf needs 2\.50 GiB of memory, but only 2\.00 GiB are left of"):
        check_limits("model.gguf", 2 * GIB)


def test_ulimit_v_is_told(tiny_model):
    """In a process of its own, as the limit cannot be raised again."""
    script = """
import psutil, resource, sys, octavo
Llama = octavo.Llama  # imports it
most = psutil.Process().memory_info().vms + (300 << 20)
resource.setrlimit(resource.RLIMIT_AS, (most, most))
try:
    Llama(sys.argv[1])
except octavo.OctavoError as problem:
    print(problem)
"""
    result = subprocess.run([sys.executable, "-c", script, tiny_model], capture_output=True, text=True, check=True)
    assert "are left of `ulimit -v`: raise the limit, or give a smaller model" in result.stdout
