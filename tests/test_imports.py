"""Imports between octavo's packages point one way, so that each can be understood without those that use it."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

#: Each package imports only packages that come after it.
ORDER = ["cli", "evaluation", "convert", "runtime", "metal", "cpu_kernels"]


def imported_packages(path: Path) -> set[str]:
    """The packages of octavo that a module imports, anywhere in it."""
    place = path.relative_to(ROOT).parts[:-1]
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            parent = place[: len(place) - node.level + 1]
            name = (*parent, *(node.module or "").split("."))[0]
            found |= {name} if name else {alias.name for alias in node.names}
    return found & set(ORDER)


@pytest.mark.parametrize("package", ORDER)
def test_packages_import_only_what_comes_after_them(package):
    allowed = set(ORDER[ORDER.index(package) :])
    wrong = {
        str(path.relative_to(ROOT)): sorted(imports - allowed)
        for path in (ROOT / package).rglob("*.py")
        if (imports := imported_packages(path)) - allowed
    }
    assert wrong == {}
