"""The scripts beside octavo: every name that they import of it is there. No test runs most of them."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted(file for folder in ("benchmarks", "examples", "tools") for file in (ROOT / folder).rglob("*.py"))


def names_of(module):
    """Return the names that a module defines or imports, and its modules if it is a package."""
    place = ROOT.joinpath(*module.split(".")[1:])
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    names = {each.stem for each in place.iterdir()} if place.is_dir() else set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {each.asname or each.name for each in node.names}
    return names


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_what_a_script_imports_is_there(script):
    for node in ast.walk(ast.parse(script.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("octavo."):
            missing = {each.name for each in node.names} - names_of(node.module)
            assert not missing, node.module
