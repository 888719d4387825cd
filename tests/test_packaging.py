"""The wheel holds every subpackage and the example documents, and no tests."""

import os
import shutil
import subprocess
import sys
import venv
import zipfile

import pytest
from click.testing import CliRunner
from helpers.product import FOLDERS, MODULES, PROJECT, ROOT
from packaging.requirements import Requirement

import octavo
from octavo.cli.main import cli


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A copy of what is built."""
    source = tmp_path_factory.mktemp("source")
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for folder in (*FOLDERS, ROOT / "examples", ROOT / "tests"):
        shutil.copytree(folder, source / folder.name, ignore=ignored)
    for path in (*ROOT.glob("*.py"), *(ROOT / name for name in ("pyproject.toml", "README.md", "LICENSE", "py.typed"))):
        shutil.copy(path, source)
    shutil.copytree(ROOT / "src", source / "src", symlinks=True)
    return source


@pytest.fixture(scope="module")
def wheel(source):
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
        "import octavo, octavo.api, octavo.cli.main, octavo.evaluation.evaluate;"
        "import octavo.documents.text.plain_text as texts;"
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


def test_type_checkers_find_an_editable_install(source, tmp_path):
    """They follow paths, but no code that finds modules when they are imported."""
    code = f"from setuptools.build_meta import build_editable; build_editable({str(tmp_path)!r})"
    subprocess.run([sys.executable, "-c", code], cwd=source, check=True, capture_output=True)
    venv.create(tmp_path / "venv", with_pip=False, system_site_packages=True)
    [installed] = tmp_path.glob("venv/lib/*/site-packages")
    zipfile.ZipFile(next(tmp_path.glob("*.whl"))).extractall(installed)
    (tmp_path / "script.py").write_text(
        "import octavo\nreveal_type(octavo.open_document('a.txt'))\nx: int = octavo.Llama\n"
    )
    python = tmp_path / "venv" / "bin" / "python"
    command = [sys.executable, "-m", "mypy", "--python-executable", python, "script.py"]
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MYPYPATH")}
    checked = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True).stdout
    assert 'note: Revealed type is "octavo.ask.document_session.Document | octavo.ask.collection.Collection"' in checked
    assert 'expression has type "type[Llama]"' in checked
    run = subprocess.run(
        [python, "-c", "import octavo; print(octavo.__file__)"], env=environment, capture_output=True, text=True
    )
    assert run.stdout == f"{source / 'src' / 'octavo' / '__init__.py'}\n"


def test_readme_shows_the_help_as_it_is(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown = CliRunner().invoke(cli, ["--help"], prog_name="octavo").output.rstrip()
    assert f"```\n$ octavo --help\n{shown}\n```" in (ROOT / "README.md").read_text("utf-8")


def test_changelog_has_the_version():
    assert f"\n## [{octavo.__version__}] - " in (ROOT / "CHANGELOG.md").read_text("utf-8")
