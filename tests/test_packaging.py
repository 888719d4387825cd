"""The wheel holds every subpackage and the example documents, and no tests; the source distribution, the repository."""

import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner
from helpers.product import MODULES, PROJECT, ROOT
from packaging.requirements import Requirement

import octavo
from octavo.cli.main import cli


def build(source, kind):
    command = [sys.executable, "-m", "build", kind, "--no-isolation", "--outdir", source / "dist", source]
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A copy of the repository in a folder of another name."""
    unneeded = (".git", ".venv", ".*_cache", ".hypothesis", "__pycache__", "build", "dist", "*.egg-info")
    ignored = shutil.ignore_patterns(*unneeded)
    return Path(shutil.copytree(ROOT, tmp_path_factory.mktemp("source") / "a-clone", symlinks=True, ignore=ignored))


@pytest.fixture(scope="module")
def tracked():
    """The paths of the files that git tracks."""
    if not (ROOT / ".git").exists():
        pytest.skip("needs a git checkout")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return {path for path in listed.split("\0") if path and os.path.lexists(ROOT / path)}


@pytest.fixture(scope="module")
def wheel(source):
    build(source, "--wheel")
    return next((source / "dist").glob("*.whl"))


def test_wheel_holds_every_module_and_no_tests(wheel):
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    modules = {path.relative_to(ROOT) for path in MODULES}
    examples = {path.relative_to(ROOT) for path in (ROOT / "examples").iterdir()}
    shaders = {path.relative_to(ROOT) for path in (ROOT / "metal").rglob("*.metal")}
    page = {path.relative_to(ROOT) for path in (ROOT / "serve" / "page").iterdir()}
    assert names == {f"octavo/{path.as_posix()}" for path in modules | examples | shaders | page} | {"octavo/py.typed"}


def test_source_distribution_is_the_repository(source, tracked):
    build(source, "--sdist")
    with tarfile.open(next((source / "dist").glob("*.tar.gz"))) as archive:
        names = {member.name.partition("/")[2] for member in archive if member.isfile()}
    assert sorted(tracked - names) == []


def test_repository_has_no_links(tracked):
    """Checkouts on Windows have none, and tools that follow links would copy a link to the repository without end."""
    assert [path for path in tracked if (ROOT / path).is_symlink()] == []


def test_wheel_imports_and_finds_its_example(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path)
    code = (
        "import octavo, octavo.api, octavo.cli.main, octavo.evaluation.evaluate;"
        "import octavo.convert.plan.recall_texts as texts;"
        "print(octavo.__file__); print(texts.SHIPPED_NOVEL.exists())"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True
    )
    assert run.stdout.split() == [str(tmp_path / "octavo" / "__init__.py"), "True"], run.stderr


@pytest.mark.parametrize(
    ("name", "version"),
    [("numpy", "1.26.0"), ("starlette", "0.40.0"), ("huggingface-hub", "0.30.0"), ("uvicorn", "0.30.0")],
)
def test_older_packages_that_others_need_may_stay(name, version):
    """Those of programs that want NumPy 1, an older FastAPI, or transformers 4."""
    needed = {each.name: each.specifier for each in map(Requirement, PROJECT["project"]["dependencies"])}
    assert needed[name].contains(version)


def test_editable_install_needs_no_link(source, tmp_path):
    code = f"from setuptools.build_meta import build_editable; build_editable({str(tmp_path)!r})"
    subprocess.run([sys.executable, "-c", code], cwd=source, check=True, capture_output=True)
    venv.create(tmp_path / "venv", with_pip=False)
    [installed] = tmp_path.glob("venv/lib/*/site-packages")
    zipfile.ZipFile(next(tmp_path.glob("*.whl"))).extractall(installed)
    code = "import octavo, octavo.settings; print(octavo.__file__); print(octavo.settings.__file__)"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [tmp_path / "venv" / "bin" / "python", "-c", code]
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert run.stdout == f"{source / '__init__.py'}\n{source / 'settings.py'}\n", run.stderr


def test_readme_shows_the_help_as_it_is(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown = CliRunner().invoke(cli, ["--help"], prog_name="octavo").output.rstrip()
    assert f"```\n$ octavo --help\n{shown}\n```" in (ROOT / "README.md").read_text("utf-8")


def test_release_workflow_finds_the_version():
    workflow = (ROOT / ".github" / "workflows" / "release.yml").read_text("utf-8")
    [line] = [line.strip() for line in workflow.splitlines() if "__version__ =" in line]
    subprocess.run(["bash", "-c", line], cwd=ROOT, env={**os.environ, "version": octavo.__version__}, check=True)


def test_changelog_has_the_version():
    assert f"\n## [{octavo.__version__}] - " in (ROOT / "CHANGELOG.md").read_text("utf-8")
