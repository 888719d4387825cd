"""The wheel holds every subpackage and the example documents, and no tests."""

import shutil
import subprocess
import sys
import zipfile

import pytest
from click.testing import CliRunner
from helpers.product import FOLDERS, MODULES, ROOT

import octavo
from octavo.cli.main import cli


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    source = tmp_path_factory.mktemp("source")
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for folder in (*FOLDERS, ROOT / "examples", ROOT / "tests"):
        shutil.copytree(folder, source / folder.name, ignore=ignored)
    for path in (*ROOT.glob("*.py"), *(ROOT / name for name in ("pyproject.toml", "README.md", "LICENSE", "py.typed"))):
        shutil.copy(path, source)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", source / "dist", source]
    subprocess.run(command, check=True, capture_output=True)
    return next((source / "dist").glob("*.whl"))


def test_wheel_holds_every_module_and_no_tests(wheel):
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    modules = {path.relative_to(ROOT) for path in MODULES}
    examples = {path.relative_to(ROOT) for path in (ROOT / "examples").iterdir()}
    shaders = {path.relative_to(ROOT) for path in (ROOT / "metal").rglob("*.metal")}
    page = {path.relative_to(ROOT) for path in (ROOT / "serve" / "page").iterdir()}
    assert names == {f"octavo/{path.as_posix()}" for path in modules | examples | shaders | page} | {"octavo/py.typed"}


def test_wheel_imports_and_finds_its_example(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path)
    code = (
        "import octavo, octavo.api, octavo.cli.main, octavo.evaluation.evaluate, octavo.documents.plain_text as texts;"
        "print(octavo.__file__); print(texts.SHIPPED_NOVEL.exists())"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True
    )
    assert run.stdout.split() == [str(tmp_path / "octavo" / "__init__.py"), "True"], run.stderr


def test_readme_shows_the_help_as_it_is(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown = CliRunner().invoke(cli, ["--help"], prog_name="octavo").output.rstrip()
    assert f"```\n$ octavo --help\n{shown}\n```" in (ROOT / "README.md").read_text("utf-8")


def test_changelog_has_the_version():
    assert f"\n## [{octavo.__version__}] - " in (ROOT / "CHANGELOG.md").read_text("utf-8")
