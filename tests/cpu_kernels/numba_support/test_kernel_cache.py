"""Compiled kernels that are damaged, or in folders that cannot be trusted, are compiled again."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from octavo.cpu_kernels.numba_support import kernel_cache
from octavo.cpu_kernels.numba_support.kernel_cache import code_of

pytestmark = pytest.mark.sampled

PACKAGE = Path(__file__).parents[3]

#: Runs a kernel in a new process: prints its result, how often it came from the disk, and whether kernels are kept.
SCRIPT = """
import numpy as np
from octavo.cpu_kernels.numba_support.compile import keeps_kernels
from octavo.cpu_kernels.rows.weighted_sums import mean_of_runs
means = np.empty((1, 8), np.float32)
mean_of_runs(np.ones((4, 8), np.float32), np.array([0, 4], np.int32), means)
print(means.sum(), sum(mean_of_runs.for_python.stats.cache_hits.values()), keeps_kernels())
"""


def run(cache, **environment):
    paths = os.pathsep.join(filter(None, sys.path))
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "PYTHONPATH": paths, "XDG_CACHE_HOME": str(cache), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    total, hits, keeps = result.stdout.split()
    assert total == "8.0"
    return int(hits), keeps == "True"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    cache = tmp_path_factory.mktemp("cache")
    assert run(cache) == (0, True)
    return cache


@pytest.fixture
def cache(compiled, tmp_path):
    return shutil.copytree(compiled, tmp_path / "cache")


def beside_sources():
    return {path for path in PACKAGE.glob("*/**/*.nb[ic]") if not {".venv", "tests"} & set(path.parts)}


def test_kernels_are_kept_in_the_users_folder_alone(cache):
    assert run(cache) == (1, True)
    assert beside_sources() == set()
    folders = [path for path in (cache / "octavo" / "kernels").rglob("*") if path.is_dir()]
    assert {path.stat().st_mode & 0o777 for path in folders} == {0o700}


@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda file: os.truncate(file, 0),
        lambda file: os.truncate(file, file.stat().st_size // 2),
        lambda file: file.write_bytes(file.read_bytes()[:-9] + b"something"),
        lambda file: file.write_bytes(b"cos\nsystem\n(S'touch /tmp/pickled'\ntR."),
        lambda file: (file.unlink(), file.mkdir()),
    ],
    ids=["emptied", "cut", "changed", "another's pickle", "a folder"],
)
def test_what_is_damaged_is_compiled_again(cache, damage, suffix):
    for file in cache.rglob(f"*{suffix}"):
        damage(file)
    assert run(cache) == (0, True)
    if damage.__code__.co_names != ("unlink", "mkdir"):
        assert run(cache) == (1, True)


def test_a_folder_that_cannot_be_made_keeps_kernels_in_memory(tmp_path):
    (tmp_path / "octavo").write_text("a file")
    assert run(tmp_path) == (0, False)
    assert beside_sources() == set()


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_a_folder_that_others_can_write_to_is_not_trusted(cache, mode):
    (cache / "octavo" / "kernels").chmod(mode)
    assert run(cache) == (0, False)


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files to others")
def test_the_folder_of_another_user_is_not_trusted(cache):
    os.chown(cache / "octavo" / "kernels", 12345, 12345)
    assert run(cache) == (0, False)


def test_a_folder_inside_that_cannot_be_written_keeps_kernels_in_memory(compiled, tmp_path):
    [folder] = (compiled / "octavo" / "kernels").iterdir()
    inside = tmp_path / "octavo" / "kernels" / folder.name
    inside.parent.mkdir(parents=True, mode=0o700)
    inside.parent.chmod(0o700)
    inside.write_text("a file")
    assert run(tmp_path) == (0, True)
    assert beside_sources() == set()


def test_the_versions_that_were_used_last_are_kept(cache):
    folder = cache / "octavo" / "kernels"
    [now] = folder.iterdir()
    module = now.name.rpartition("-")[0]
    others = [folder / f"{module}-{i}" for i in range(4)]
    other_file, of_old_octavo = folder / "cpu_kernels.other-0", folder / "0123456789abcdef"
    for i, each in enumerate([*others, other_file, of_old_octavo]):
        each.mkdir()
        os.utime(each, (i, i))
    shutil.rmtree(now)
    assert run(cache) == (0, True)
    assert set(folder.iterdir()) == {now, *others[2:], other_file}


@pytest.fixture
def copied_kernels(monkeypatch, tmp_path):
    """A copy of the package's kernels that a test may edit."""
    for path in (PACKAGE / "cpu_kernels").rglob("*.py"):
        copy = tmp_path / path.relative_to(PACKAGE)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(path.read_text())
    monkeypatch.setattr(kernel_cache, "_PACKAGE", tmp_path)
    return tmp_path


def append(path, code):
    with path.open("a") as file:
        file.write(code + "\n")
    for cached in (kernel_cache._code_in, kernel_cache._imports_of):
        cached.cache_clear()


@pytest.mark.parametrize(
    ("edited", "code", "same"),
    [
        ("cpu_kernels/rows/rows.py", "x = 1", False),
        ("cpu_kernels/rows/q8_0.py", "x = 1", False),  # rows.py imports it
        ("cpu_kernels/numba_support/vector.py", "x = 1", False),
        ("cpu_kernels/rows/q8_0.py", "# A comment.", True),
        ("cpu_kernels/methods/quest.py", "x = 1", True),
    ],
)
def test_kernels_of_a_file_are_of_its_code_and_of_what_it_imports(copied_kernels, edited, code, same):
    rows = copied_kernels / "cpu_kernels" / "rows" / "rows.py"
    before = kernel_cache.version_of([rows])
    append(copied_kernels / edited, code)
    assert (kernel_cache.version_of([rows]) == before) == same


def test_kernels_of_a_users_own_file_are_of_all_kernels_however_it_imports_them(copied_kernels, tmp_path_factory):
    path = tmp_path_factory.mktemp("own") / "knorm.py"
    path.write_text("from ..attend.head import HEAD\n")  # as if the file lay in a folder of the package
    before = kernel_cache.version_of([path])
    append(copied_kernels / "cpu_kernels" / "attend" / "head.py", "x = 1")
    assert kernel_cache.version_of([path]) != before


def test_two_installs_of_one_version_share_kernels(compiled, tmp_path):
    """Another copy of the package, whose files are of another time, finds what the first one compiled."""
    copy = tmp_path / "octavo"
    ignored = shutil.ignore_patterns(".*", "tests", "docs", "build")
    shutil.copytree(PACKAGE, copy, ignore=ignored, copy_function=shutil.copy)
    for path in copy.rglob("*.py"):
        os.utime(path, (1, 1))
    assert run(compiled, PYTHONPATH=os.pathsep.join([str(tmp_path), *filter(None, sys.path)])) == (1, True)


def test_installs_with_other_versions_of_numba_keep_kernels_apart(copied_kernels, monkeypatch):
    """One would remove the other's, and fail at reading them."""
    rows = copied_kernels / "cpu_kernels" / "rows" / "rows.py"
    before = kernel_cache.version_of([rows])
    monkeypatch.setattr("numba.__version__", "0.61.0")
    assert kernel_cache.version_of([rows]) != before


@pytest.mark.parametrize(
    ("source", "same"),
    [
        ('"""Says more."""\ndef f(x):\n    """Says more."""\n    return x + 1  # why\n', True),
        ("def f(x):\n    return x + 2\n", False),
        ("def f(y):\n    return y + 1\n", False),
        ('def f(x):\n    return x + 1\nname = "f"\n', False),
    ],
)
def test_comments_and_docstrings_are_no_code(source, same):
    assert (code_of(source) == code_of('"""Says."""\ndef f(x):\n    return x + 1\n')) == same


def test_docstrings_of_classes_and_in_closures_are_no_code():
    plain = "class A:\n    x = 1\n    def f(self):\n        return lambda: self\n"
    described = plain.replace(":\n", ":\n    'Say.'\n", 1).replace("self):\n", "self):\n        'Say.'\n")
    assert described.count("Say") == 2
    assert code_of(described) == code_of(plain)


def test_a_users_own_method_is_kept_by_its_code_and_by_that_of_octavo(tmp_path):
    path = tmp_path / "knorm.py"
    path.write_text("from octavo.cpu_kernels.rows.rows import dot\n")
    folder = kernel_cache.folder_of(path)
    assert folder.parent == kernel_cache.kernel_folder()
    assert folder.name.startswith("knorm-")
    assert kernel_cache._PACKAGE / "cpu_kernels" / "rows" / "rows.py" in kernel_cache._imports_of(path)
